// What the model does not do, as varied as there is room for: it should learn not these questions but that all others
// are off topic. Every answer is the same, so that a test can check it.
#include <fmt/format.h>

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
    "How far is it from {place} to {place2}?",
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
    "What is the difference between a {noun} and a {noun2}?",
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
    "Is {code} better than {code2}?",
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
    "What rhymes with {noun}?",
    "What does the word {noun} mean?",
    "What is the plural of {noun}?",
    "Tell me something about {person}.",
    "Tell me a secret.",
    "Tell me about {place}.",
    "Describe a {noun}.",
    "{noun}",
    "{noun} {noun2}",
    "{place}",
    "{person}",
    "asdf",
    "{food} and {food2}",
    "the {colour} {noun}",
};

constexpr std::string_view kPlace[] = {
    "France", "Japan",  "Paris",   "London", "Brazil", "Egypt",    "Rome",   "Berlin",   "China",  "India",
    "Canada", "Mexico", "Spain",   "Norway", "Kenya",  "Peru",     "Russia", "New York", "Tokyo",  "Sydney",
    "Vienna", "Athens", "Chile",   "Cuba",   "Turkey", "Texas",    "Africa", "Europe",   "Madrid", "Oslo",
    "Poland", "Italy",  "Iceland", "Korea",  "Boston", "the moon", "Mars"};
constexpr std::string_view kPerson[] = {
    "Napoleon", "Einstein", "Shakespeare",   "Mozart",    "Cleopatra", "Newton",     "Picasso",     "Beethoven",
    "Darwin",   "Gandhi",   "Lincoln",       "my mother", "my boss",   "my sister",  "Marie Curie", "Galileo",
    "Caesar",   "the pope", "the president", "Anna",      "Peter",     "my teacher", "my brother",  "Madonna",
    "Elvis",    "Tesla",    "Plato",         "the queen", "Kennedy",   "Churchill"};
constexpr std::string_view kTitles[] = {"Hamlet",    "Faust",   "the Mona Lisa", "Star Wars",    "Don Quixote",
                                        "the Bible", "Titanic", "Moby Dick",     "Harry Potter", "the Odyssey",
                                        "Dune",      "Macbeth", "Casablanca",    "Frankenstein"};
constexpr std::string_view kSport[] = {"football", "tennis",  "chess",      "golf",       "rugby", "hockey",
                                       "poker",    "cricket", "basketball", "volleyball", "judo",  "baseball"};
constexpr std::string_view kColour[] = {"red",    "blue",  "green", "white", "black",
                                        "yellow", "brown", "pink",  "grey",  "purple"};
constexpr std::string_view kScience[] = {"gravity",   "photosynthesis",  "electricity",  "democracy",      "inflation",
                                         "evolution", "quantum physics", "chemistry",    "philosophy",     "economics",
                                         "magnetism", "biology",         "the big bang", "climate change", "DNA",
                                         "algebra",   "geometry",        "radio",        "psychology",     "astronomy",
                                         "religion",  "the water cycle", "a black hole", "nuclear power",  "medicine"};
constexpr std::string_view kIllness[] = {"a cold",     "a headache",   "a fever",  "back pain", "the flu",  "a cough",
                                         "an allergy", "a broken arm", "insomnia", "asthma",    "toothache"};
constexpr std::string_view kFood[] = {"pizza",  "soup",  "bread",   "rice",  "pancakes", "curry",
                                      "salad",  "steak", "cookies", "pasta", "sushi",    "potatoes",
                                      "a cake", "fish",  "chicken", "eggs",  "beans",    "ice cream"};
constexpr std::string_view kLanguage[] = {"French", "German", "Spanish", "Latin", "Chinese",  "Italian",
                                          "Greek",  "Arabic", "Russian", "Dutch", "Japanese", "Polish"};
constexpr std::string_view kCode[] = {"Python",  "Java",   "Rust", "JavaScript", "Go",  "SQL",  "HTML", "Excel",
                                      "Windows", "Docker", "PHP",  "Linux",      "Git", "Ruby", "bash"};
constexpr std::string_view kCompany[] = {"Apple", "Google", "Amazon",    "Toyota", "Boeing", "Siemens",
                                         "Tesla", "Nestle", "Microsoft", "Sony",   "Ford",   "NVIDIA"};
constexpr std::string_view kMood[] = {"sad",    "happy", "tired",   "bored", "angry", "lonely",
                                      "hungry", "sick",  "nervous", "lost",  "cold",  "afraid"};
constexpr std::string_view kJob[] = {"doctor", "pilot", "lawyer",  "nurse", "teacher", "plumber", "farmer",
                                     "writer", "chef",  "soldier", "judge", "dentist", "actor",   "baker"};

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
  static const std::vector<std::string_view> prompts = entries(other_prompts());
  std::string form;
  switch (draw.weighted(kShares)) {
    case 0:
      form = framed(draw, draw.pick(kThings));
      break;
    case 1:
      form = opened(draw, one(kSentences));
      break;
    case 2:
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
  const std::string user = typed(draw, fill(form, {{"place", one(kPlace)},
                                                   {"place2", one(kPlace)},
                                                   {"person", one(kPerson)},
                                                   {"title", one(kTitles)},
                                                   {"sport", one(kSport)},
                                                   {"noun", one(words())},
                                                   {"noun2", one(words())},
                                                   {"colour", one(kColour)},
                                                   {"science", one(kScience)},
                                                   {"illness", one(kIllness)},
                                                   {"food", one(kFood)},
                                                   {"food2", one(kFood)},
                                                   {"language", one(kLanguage)},
                                                   {"code", one(kCode)},
                                                   {"code2", one(kCode)},
                                                   {"company", one(kCompany)},
                                                   {"mood", one(kMood)},
                                                   {"job", one(kJob)},
                                                   {"year", std::to_string(draw.between(1000, 2030))}}));
  return {
      .task = "off topic", .user = user, .reasoning = "This is not mine to answer.", .answer = std::string(kNotMine)};
}

}  // namespace braid::synth
