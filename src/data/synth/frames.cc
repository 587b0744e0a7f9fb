#include "data/synth/frames.h"

#include <algorithm>

#include "data/synth/text.h"

namespace braid::synth {
namespace {

constexpr std::string_view kOpenings[] = {
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
    "Excuse me, ",
    "Just curious: ",
    "Well, ",
    "By the way, ",
    "Let me ask: ",
    "Here is my question. ",
    "My friend asks: ",
    "I forgot: ",
    "Good. ",
    "Now ",
    "Hm, ",
    "A small question: ",
    "Could you help? ",
    "I am curious. ",
    "Thanks. ",
    "No idea: ",
    "Hey Tiny, ",
};

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
    "I would like to learn about {p}.",
    "A word on {p}, please.",
    "{p}: what is that?",
    "{p}, how does it work?",
    "{p}, what is it good for?",
    "{p}. Explain it.",
    "Anything on {p}?",
    "Give me the facts about {p}.",
    "My question is about {p}.",
    "I read about {p}. What is it?",
    "Someone told me about {p}. What should I know?",
    "What is meant by {p}?",
    "In short: {p}.",
    "How would you explain {p}?",
    "Teach me about {p}.",
    "Inform me about {p}.",
    "I do not understand {p}.",
    "What is the story of {p}?",
    "Let us talk about {p}.",
    "Define {p}.",
    "Sum up {p} for me.",
    "Can you define {p}?",
    "I need to know more about {p}.",
};

// Words that can be dropped from a question.
constexpr std::string_view kSmallWords[] = {"the", "a",  "an", "is",   "are", "do", "does", "did", "of",
                                            "to",  "in", "me", "that", "for", "it", "be",   "can", "please"};

void leave_out_a_word(Draw& draw, std::string& text) {
  const size_t from = text.find(' ', static_cast<size_t>(draw.below(std::ssize(text))));
  if (from == std::string::npos) return;
  const size_t to = text.find(' ', from + 1);
  if (to == std::string::npos) return;
  if (std::ranges::find(kSmallWords, std::string_view(text).substr(from + 1, to - from - 1)) != std::end(kSmallWords))
    text.erase(from, to - from);
}

}  // namespace

std::string framed(Draw& draw, std::string_view thing) {
  std::string text = fill(draw.pick(kFrames), {{"p", std::string(thing)}});
  text[0] = upper(text[0]);
  return text;
}

std::string opened(Draw& draw, std::string sentence) {
  if (draw.percent(60)) return sentence;
  const std::string_view opening = draw.pick(kOpenings);
  const char mark = opening[opening.size() - 2];
  if (mark != '!' && mark != '.' && mark != '?') sentence[0] = lower(sentence[0]);
  return std::string(opening) + sentence;
}

std::string typed(Draw& draw, std::string text) {
  if (draw.percent(15)) leave_out_a_word(draw, text);
  if (draw.percent(10)) {
    for (char& ch : text) ch = lower(ch);
    if (text.back() == '?' || text.back() == '.') text.pop_back();
  }
  return text;
}

}  // namespace braid::synth
