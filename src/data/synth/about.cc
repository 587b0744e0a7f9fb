// Questions about Braid: a topic's own questions, or one of its phrases in a frame. None of them is in
// bench/data/tiny-qa.jsonl, which asks in other words.
#include <algorithm>
#include <vector>

#include "data/synth/frames.h"
#include "data/synth/task.h"
#include "data/synth/topics.h"

namespace braid::synth {
namespace {

constexpr std::string_view kClosings[] = {"?", "?", "?", "?", "", ", please?", " exactly?", " then?", " by the way?"};
// Sentences that begin with these end in a full stop.
constexpr std::string_view kRequests[] = {
    "Tell", "Give", "Name",      "List",      "Show", "Define", "Describe", "Explain", "Please", "Summarise", "I ",
    "I'd ", "My ",  "Introduce", "Summarize", "Say",  "Let",    "Help",     "Walk",    "Sum",    "Write",     "Delete"};

std::string question(Draw& draw, const Topic& topic) {
  const std::vector<std::string_view> phrases = entries(topic.phrases), questions = entries(topic.questions);
  if (!phrases.empty() && draw.percent(30)) return typed(draw, framed(draw, draw.pick(phrases)));
  std::string core(draw.pick(questions));
  const bool request = std::ranges::any_of(kRequests, [&](std::string_view word) { return core.starts_with(word); });
  core += request ? std::string_view(".") : draw.pick(kClosings);
  return typed(draw, opened(draw, std::move(core)));
}

}  // namespace

Turn about(Draw& draw) {
  if (draw.percent(7)) {
    const Topic& t = draw.pick(courtesies());
    const std::vector<std::string_view> said = entries(t.questions);
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
