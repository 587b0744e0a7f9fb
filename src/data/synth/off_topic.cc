// What the model does not do, as varied as there is room for: it should learn not these questions but that all others
// are off topic. Every answer is the same, so that a test can check it.
#include <fmt/format.h>

#include "data/synth/fillers.h"
#include "data/synth/frames.h"
#include "data/synth/prompts.h"
#include "data/synth/task.h"
#include "data/synth/text.h"
#include "data/synth/topics.h"
#include "data/synth/words.h"

namespace braid::synth {
namespace {

constexpr std::string_view kNotMine = "I only do small sums, word puzzles and questions about Braid.";

// Things in a frame, filled forms, whole prompts, questions about Braid asked of something else, unknown words.
constexpr int64_t kShares[] = {2, 4, 4, 3, 1};

constexpr std::string_view kOthers[] = {"{code}",  "{company}", "{title}",   "my {noun}",  "{sport}",
                                        "{place}", "{person}",  "{science}", "the {noun}", "{language}"};

// What one may ask about in a word or two.
constexpr std::string_view kThings[] = {"{science}",       "{person}",
                                        "{place}",         "{title}",
                                        "{sport}",         "{food}",
                                        "{company}",       "{code}",
                                        "a {noun}",        "my {noun}",
                                        "{language}",      "{illness}",
                                        "the {noun}",      "{noun}s",
                                        "{science}",       "the {sport} world cup",
                                        "the year {year}", "the weather in {place}",
                                        "the {job}",       "the history of {place}"};

constexpr std::string_view kSentences[] = {
    // facts
    "What is the capital of {place}?",
    "How many people live in {place}?",
    "Where is {place}?",
    "Who rules {place}?",
    "Which language do they speak in {place}?",
    "How far is it from {place} to {place}?",
    "Who is {person}?",
    "When was {person} born?",
    "Who wrote {title}?",
    "Who painted {title}?",
    "Who directed {title}?",
    "What year did {person} die?",
    "Who won the {sport} world cup?",
    "What are the rules of {sport}?",
    "How tall is the highest {noun}?",
    "How long does a {noun} live?",
    "What do {noun}s eat?",
    "Why is the {noun} {colour}?",
    "What colour is a {noun}?",
    "How heavy is a {noun}?",
    "How much does a {noun} cost?",
    "Where can I buy a {noun}?",
    "What is the difference between a {noun} and a {noun}?",
    "How is {noun} made?",
    "Who invented the {noun}?",
    "What is {science}?",
    "Explain {science} to a child.",
    "Tell me about {science}.",
    "How does {science} work?",
    "What causes {illness}?",
    "How do I treat {illness}?",
    "I have {illness}, what should I do?",
    "Is it healthy to eat {noun} every day?",
    "What is the meaning of life?",
    "Is there life on other planets?",
    "What happened in {place} in {year}?",
    "Who was king in {year}?",
    "Tell me about the history of {place}.",
    // wishes
    "Write a poem about a {noun}.",
    "Write a story about {person} and a {noun}.",
    "Tell me a joke about {noun}s.",
    "Sing me a song.",
    "Write an email to {person}.",
    "Write a letter about my {noun}.",
    "Draw a {colour} {noun}.",
    "Paint me a picture of {place}.",
    "Make a list of {noun}s.",
    "Give me a recipe for {food}.",
    "How do I cook {food}?",
    "What goes well with {food}?",
    "How long should I bake {food}?",
    "Suggest a name for my {noun}.",
    "Recommend a good book about {science}.",
    "Recommend a film with {person}.",
    "Plan a trip to {place}.",
    "Find me a hotel in {place}.",
    "Book a flight to {place}.",
    "What should I wear in {place}?",
    "Translate {noun} into {language}.",
    "How do you say {noun} in {language}?",
    "Teach me {language}.",
    "Summarise {title} for me.",
    "Write an essay on {science}.",
    "Correct this sentence: the {noun} are {colour}",
    "Write a {code} program that sorts a list.",
    "How do I write a loop in {code}?",
    "Debug my {code} code.",
    "What is {code} used for?",
    "How do I install {code}?",
    "Is {code} better than {code}?",
    "Write a web page in {code}.",
    "Play {sport} with me.",
    "Let us play a game.",
    "Order a {food} for me.",
    "Set an alarm for seven.",
    "Turn on the {noun}.",
    "Call {person} please.",
    "Remind me to buy {food}.",
    // talk
    "What is the weather like in {place}?",
    "Will it rain tomorrow?",
    "What time is it?",
    "What day is today?",
    "What is the news today?",
    "How is the stock market?",
    "Should I buy shares of {company}?",
    "Who runs {company}?",
    "What does {company} sell?",
    "Do you like {food}?",
    "Do you love me?",
    "What is your favourite {noun}?",
    "Are you married?",
    "Do you dream of {noun}s?",
    "I feel {mood} today.",
    "My {noun} is broken.",
    "I am so {mood}.",
    "My friend is {mood}, what can I say to her?",
    "Should I marry {person}?",
    "Who will win the election in {place}?",
    "Do you believe in {noun}s?",
    "What do you think about {person}?",
    "I lost my {noun}.",
    "My {noun} ran away.",
    "Is {person} a good singer?",
    "Can a {noun} fly?",
    "Can I keep a {noun} at home?",
    "How do I repair a {noun}?",
    "How do I clean a {noun}?",
    "How can I learn {sport}?",
    "How do I get rich?",
    "How do I become a {job}?",
    "What does a {job} earn?",
    "What does a {job} do?",
    "Give me advice about my {job}.",
    "I hate my {job}.",
    "Which {noun} is the best?",
    "What is the fastest {noun}?",
    "Why do people like {food}?",
    "Name three {noun}s.",
    "What does the word {noun} mean?",
    "What is the plural of {noun}?",
    "Tell me something about {person}.",
    "Tell me a secret.",
    "Tell me about {place}.",
    "Describe a {noun}.",
    "{noun}",
    "{noun} {noun}",
    "{place}",
    "{person}",
    "asdf",
    "{food} and {food}",
    "the {colour} {noun}",
};

// The form with every "{place}" and the like replaced, each by another word.
std::string filled(Draw& draw, std::string form) {
  static const auto lists = [] {
    std::vector<std::pair<std::string, std::vector<std::string_view>>> out;
    for (const Filler& f : fillers()) out.emplace_back("{" + std::string(f.name) + "}", entries(f.words));
    for (auto& list : out)
      if (list.first == "{noun}") list.second.insert(list.second.end(), words().begin(), words().end());
    return out;
  }();
  for (const auto& list : lists)
    for (size_t at = form.find(list.first); at != std::string::npos; at = form.find(list.first, at))
      form.replace(at, list.first.size(), draw.pick(list.second));
  return fill(form,
              {{"year", std::to_string(draw.between(1000, 2030))}, {"count", std::to_string(draw.between(2, 60))}});
}

// Questions that name Braid, the name replaced: what is asked about decides, not how.
const std::vector<std::string>& of_others() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> out;
    for (const Topic& topic : topics()) {
      for (const std::string_view question : entries(topic.questions)) {
        std::string form(question);
        size_t at = form.find("Braid");
        if (at == std::string::npos) continue;
        for (; at != std::string::npos; at = form.find("Braid", at)) form.replace(at, 5, "{other}");
        out.push_back(form + (form.starts_with("Wh") || form.starts_with("How") ? "?" : ""));
      }
    }
    return out;
  }();
  return all;
}

std::string unknown_words(Draw& draw) {
  std::string out;
  for (int64_t left = draw.between(1, 4); left > 0; --left)
    out += (out.empty() ? "" : " ") + invented_word(draw, 2, 12);
  constexpr std::string_view kEnds[] = {"", "!", "?", "."};
  if (draw.percent(60)) out[0] = upper(out[0]);
  return out.append(draw.pick(kEnds));
}
}  // namespace

Turn off_topic(Draw& draw) {
  const auto one = [&](std::span<const std::string_view> among) { return std::string(draw.pick(among)); };
  static const std::vector<std::string_view> prompts = entries(other_prompts()), talk = entries(chatter()),
                                             forms = entries(other_forms());
  std::string form;
  switch (draw.weighted(kShares)) {
    case 0:
      form = framed(draw, draw.pick(kThings));
      break;
    case 1:
      form = opened(draw, draw.percent(35) ? one(kSentences) : std::string(draw.pick(forms)));
      break;
    case 2:
      if (draw.percent(30))
        form = draw.pick(talk);
      else
        form = opened(draw, one(prompts));
      break;
    case 3: {
      const std::string& asked = draw.pick(of_others());
      form = opened(draw, fill(asked, {{"other", one(kOthers)}}));
      break;
    }
    default:
      form = unknown_words(draw);
  }
  const std::string user = typed(draw, filled(draw, std::move(form)));
  return {
      .task = "off topic", .user = user, .reasoning = "This is not mine to answer.", .answer = std::string(kNotMine)};
}

}  // namespace braid::synth
