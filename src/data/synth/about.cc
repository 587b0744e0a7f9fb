// Questions about Braid: a topic's own questions behind an opening, or one of its phrases in a frame. None of the
// openings and frames below is in bench/data/tiny-qa.jsonl, which asks in other words.
#include <algorithm>
#include <vector>

#include "data/synth/task.h"
#include "data/synth/topics.h"

namespace braid::synth {
namespace {

// Before a question, which keeps its form.
constexpr std::string_view kOpenings[] = {
    "",
    "",
    "",
    "",
    "",
    "",
    "Hi! ",
    "Hello, ",
    "Please tell me: ",
    "Quick question: ",
    "Tell me, ",
    "I wonder: ",
    "Ok. ",
    "Say, ",
    "One more question. ",
    "Sorry, ",
    "And ",
    "So ",
    "I am new here. ",
};
constexpr std::string_view kClosings[] = {"?", "?", "?", "?", "", ", please?", " exactly?", " then?", " by the way?"};

constexpr std::string_view kFrames[] = {
    "Tell me about {p}.",
    "Explain {p}.",
    "What about {p}?",
    "Describe {p}.",
    "Please explain {p}.",
    "What can you tell me about {p}?",
    "I have a question about {p}.",
    "Say something about {p}.",
    "Can you explain {p}?",
    "{p}?",
    "{p}",
    "I want to know about {p}.",
    "Do you know anything about {p}?",
    "Give me a short note on {p}.",
    "Could you tell me something about {p}?",
    "What do you know about {p}?",
    "Help me understand {p}.",
};

std::vector<std::string_view> parts(std::string_view list) {
  std::vector<std::string_view> out;
  while (!list.empty()) {
    const size_t end = std::min(list.find('|'), list.size());
    out.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return out;
}

char lower(char ch) { return ch >= 'A' && ch <= 'Z' ? static_cast<char>(ch - 'A' + 'a') : ch; }
char upper(char ch) { return ch >= 'a' && ch <= 'z' ? static_cast<char>(ch - 'a' + 'A') : ch; }

bool ends_sentence(std::string_view opening) {
  return opening.ends_with("! ") || opening.ends_with(". ") || opening.empty();
}

std::string question(Draw& draw, const Topic& topic) {
  const std::vector<std::string_view> phrases = parts(topic.phrases), questions = parts(topic.questions);
  std::string text;
  if (!phrases.empty() && draw.percent(40)) {
    text = fill(draw.pick(kFrames), {{"p", std::string(draw.pick(phrases))}});
    text[0] = upper(text[0]);
  } else {
    const std::string_view opening = draw.pick(kOpenings);
    std::string core(draw.pick(questions));
    if (!ends_sentence(opening)) core[0] = lower(core[0]);
    text = std::string(opening) + core + std::string(draw.pick(kClosings));
  }
  if (draw.percent(8)) {  // as people type
    for (char& ch : text) ch = lower(ch);
    if (!text.empty() && (text.back() == '?' || text.back() == '.')) text.pop_back();
  }
  return text;
}

}  // namespace

Turn about(Draw& draw) {
  if (draw.percent(7)) {
    const Topic& t = draw.pick(courtesies());
    const std::vector<std::string_view> said = parts(t.questions);
    return {.task = "about",
            .user = std::string(draw.pick(said)),
            .reasoning = "This is " + std::string(t.label) + ".",
            .answer = std::string(t.answer)};
  }
  const Topic& t = draw.pick(topics());
  return {.task = "about",
          .user = question(draw, t),
          .reasoning = "This is about " + std::string(t.label) + ".",
          .answer = std::string(t.answer)};
}

}  // namespace braid::synth
