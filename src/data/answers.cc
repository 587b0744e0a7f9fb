#include "data/answers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "data/chat.h"
#include "data/content.h"
#include "data/lines.h"
#include "io/json.h"
#include "io/ordered_json.h"
#include "sys/error.h"

namespace braid::data {
namespace {

using Ids = std::vector<int32_t>;

constexpr int64_t kAnswerMax = int64_t{1} << 22;  // tokens, with its prompt
constexpr io::NumberRange kReward{-1e9, 1e9};     // finite, and so are sums of squares
constexpr io::NumberRange kLogprob{-1e9, 1};      // rounded or shifted, that of a sure token may exceed 0

// Groups of different files have nothing to do with each other, whatever their names are: those of a run's log are
// "STEP.NUMBER".
struct Group {
  size_t file = 0;
  std::string name{};

  bool operator<(const Group& other) const { return std::tie(file, name) < std::tie(other.file, other.name); }
};

// An answer as a line has it.
struct Answer {
  Example tokens;
  std::string group{};
  uint64_t prompt = 0;  // a hash of it, of an answer in a group
  std::optional<double> reward{};
  std::vector<float> logprobs{};
};

const text::Tokenizer& tokenizer_of(const Language& language, const io::Json& line) {
  if (language.tokenizer == nullptr) {
    fail(line.document(), {.what = "text needs a tokenizer, and the model has none",
                           .hint = "prompt_ids and other members of token ids"});
  }
  return *language.tokenizer;
}

Ids ids_of(const io::Json& list, const Language& language) {
  Ids ids;
  for (const io::Json& item : list.items())
    ids.push_back(static_cast<int32_t>(item.as_int({0, language.vocabulary - 1})));
  if (ids.empty()) list.refuse("has no tokens", "at least one");
  return ids;
}

// The tokens of member `name`, or of `name`_ids.
Ids tokens_of(const io::Json& line, const std::string& name, const Language& language, bool opens) {
  if (const auto ids = line.get({name + "_ids"})) return ids_of(*ids, language);
  const std::string& text = line.need({name, name + "_ids"}).as_string();
  Ids ids = tokenizer_of(language, line).encode(text, opens);
  if (!opens && language.end_of_text && (ids.empty() || ids.back() != *language.end_of_text))
    ids.push_back(*language.end_of_text);
  if (ids.empty()) fail(line.document(), {.what = fmt::format("'{}' has no tokens", name), .expected = "at least one"});
  return ids;
}

// The conversation with the answer as its next turn: a text, or a message as the template takes it. Templates print
// tools with their members in the order of the file.
Example turn_of(const Line& text, const io::Json& line, const std::string& name, const Language& language) {
  if (language.chat == nullptr)
    fail(text.where, {.what = "a conversation needs a chat template, and the model has none",
                      .hint = fmt::format("lines of prompt and {}", name)});
  const io::Json messages = line.need({"messages"}), answer = line.need({name});
  if (!messages.is_array()) messages.refuse("is not a list", "messages");
  if (!answer.is_object() && !answer.is_string()) answer.refuse("is not an answer", "a text or a message");
  nlohmann::ordered_json whole = io::parse_ordered(text.text, text.where);
  nlohmann::ordered_json turn = whole[name];
  if (turn.is_string()) turn = {{"role", "assistant"}, {"content", std::move(turn)}};
  whole["messages"].push_back(std::move(turn));
  return last_answer_of(whole, *language.chat, tokenizer_of(language, line), text.where);
}

Example answer_of(const Line& text, const io::Json& line, const std::string& name, const Language& language) {
  Example example;
  if (line.get({"messages"})) {
    example = turn_of(text, line, name, language);
    while (!example.trained.empty() && example.trained.back() == 0) {  // nothing is learnt after the last target
      example.trained.pop_back();
      example.ids.pop_back();
    }
    if (example.ids.empty() || example.trained[0] != 0)
      fail(text.where,
           {.what = "the template gives a prompt or an answer without tokens", .expected = "at least one of each"});
  } else {
    const Ids answer = tokens_of(line, name, language, false);
    example.ids = tokens_of(line, "prompt", language, true);
    example.trained.assign(example.ids.size(), 0);
    example.ids.insert(example.ids.end(), answer.begin(), answer.end());
    example.trained.resize(example.ids.size(), 1);
  }
  if (std::ssize(example.ids) > kAnswerMax)
    fail(line.document(), {.what = "prompt and answer are too long",
                           .got = fmt::format("{} tokens", example.ids.size()),
                           .expected = fmt::format("at most {}", kAnswerMax)});
  for (const int32_t id : example.ids) {
    if (id < 0 || id >= language.vocabulary)
      fail(line.document(), {.what = "a token id is outside the vocabulary",
                             .got = std::to_string(id),
                             .expected = fmt::format("0 to {}, the model's vocabulary", language.vocabulary - 1)});
  }
  return example;
}

// Of a conversation as it is written: what a template renders of it may depend on the answer.
uint64_t prompt_hash(const io::Json& line, const Example& example) {
  if (!line.get({"messages"})) {
    const auto end = std::find(example.trained.begin(), example.trained.end(), uint8_t{1});
    return hash_of(std::span(example.ids).first(static_cast<size_t>(end - example.trained.begin())));
  }
  const std::string text = line.raw()["messages"].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                           line.raw().value("tools", nlohmann::json()).dump();
  return hash_of(std::span<const char>(text));
}

std::vector<Answer> pair_of(const Line& text, const Language& language, bool rated) {
  const io::Json line = io::Json::parse(text.text, text.where);
  std::vector<Answer> pair;
  for (const char* name : {"chosen", "rejected"}) {
    const std::string reward = std::string(name) + "_reward";
    if (rated) line.need({reward});
    pair.push_back({.tokens = answer_of(text, line, name, language), .reward = line.number_of({reward}, kReward)});
    pair.back().prompt = prompt_hash(line, pair[0].tokens);
    pair.back().group = std::to_string(pair.back().prompt);
  }
  if (pair[0].reward.has_value() != pair[1].reward.has_value())
    fail(text.where, {.what = "one answer of the pair is rated", .expected = "chosen_reward and rejected_reward"});
  return pair;
}

std::vector<Answer> rollout_of(const Line& text, const Language& language, bool rated) {
  const io::Json line = io::Json::parse(text.text, text.where);
  if (line.get({"error"})) return {};  // of an environment, in the log of a run
  if (rated) line.need({"reward"});
  const auto group = rated ? line.need({"group"}) : line.get({"group"});
  Answer answer{.tokens = answer_of(text, line, "completion", language),
                .group = group ? group->raw().dump() : "",
                .reward = line.number_of({"reward"}, kReward)};
  if (group) answer.prompt = prompt_hash(line, answer.tokens);
  const io::Json logprobs = line.need({"logprobs"});
  for (const io::Json& value : logprobs.items())
    answer.logprobs.push_back(static_cast<float>(value.as_number(kLogprob)));
  const auto tokens = std::count(answer.tokens.trained.begin(), answer.tokens.trained.end(), uint8_t{1});
  if (std::ssize(answer.logprobs) != tokens) {
    logprobs.refuse("has another length", fmt::format("{}, one for each token of the answer", tokens));
  }
  return {std::move(answer)};
}

// What the ratings of a group have in common.
void rate_groups(const std::vector<Group>& groups, std::vector<Rating>& ratings, const std::filesystem::path& path) {
  std::map<Group, Rating> of;
  for (size_t i = 0; i < groups.size(); ++i) {
    Rating& group = of[groups[i]];
    group.mean += ratings[i].reward;
    ++group.answers;
  }
  for (auto& [name, group] : of) {
    if (group.answers == 1)
      fail(printable(path.string()), {.what = fmt::format("group {} has a single answer", printable(name.name, 40)),
                                      .expected = "at least two: an advantage compares them"});
    group.mean /= static_cast<double>(group.answers);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    Rating& group = of[groups[i]];
    group.deviation += (ratings[i].reward - group.mean) * (ratings[i].reward - group.mean);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    const Rating& group = of[groups[i]];
    ratings[i].mean = group.mean;
    ratings[i].answers = group.answers;
    if (group.answers > 1) ratings[i].deviation = std::sqrt(group.deviation / static_cast<double>(group.answers - 1));
  }
}

// The numbers of groups by their names; "" is a group of its own.
std::vector<int64_t> numbers_of(const std::vector<Group>& groups) {
  std::map<Group, int64_t> known;
  std::vector<int64_t> numbers;
  int64_t next = 0;
  for (const Group& group : groups) {
    const auto [at, fresh] = known.emplace(group, next);
    const bool own = fresh || group.name.empty();
    numbers.push_back(own ? next : at->second);
    next += own ? 1 : 0;
  }
  return numbers;
}

// All answers of a path; `of` gives those of a line.
template <class Of>
Answers read(const std::filesystem::path& path, std::vector<Group>& groups, const Reading& reading, const Of& of) {
  Answers out;
  size_t number = 0;
  for (const std::filesystem::path& file : files_of(path, {".jsonl"})) {
    std::map<std::string, uint64_t> prompts;  // of the groups of this file
    each_line(
        file, of,
        [&](std::vector<Answer>& answers) {
          for (Answer& answer : answers) {
            out.corpus.add(answer.tokens.ids, answer.tokens.trained);
            out.ratings.push_back(
                {.reward = answer.reward.value_or(0), .answers = answer.reward ? std::ssize(answers) : 0});
            out.logprobs.insert(out.logprobs.end(), answer.logprobs.begin(), answer.logprobs.end());
            if (!answer.group.empty() && prompts.emplace(answer.group, answer.prompt).first->second != answer.prompt)
              fail(printable(file.string()),
                   {.what = fmt::format("answers of group {} have different prompts", printable(answer.group, 40)),
                    .expected = "one prompt to a group: an advantage compares answers to it"});
            groups.push_back({.file = number, .name = std::move(answer.group)});
            if (!answer.logprobs.empty()) {
              if (out.logprob_begins.empty()) out.logprob_begins.push_back(0);
              out.logprob_begins.push_back(std::ssize(out.logprobs));
            }
          }
        },
        reading);
    ++number;
  }
  if (out.ratings.empty())
    fail(printable(path.string()), {.what = "holds no lines", .expected = "JSON objects, one a line"});
  return out;
}

}  // namespace

int64_t Answers::length_of(int64_t row) const {
  int64_t tokens = 0;
  for (int64_t i = row * per_row; i < (row + 1) * per_row; ++i) tokens += corpus.length(i) - 1;
  return tokens;
}

Answers read_preferences(const std::filesystem::path& path, const Language& language, bool rated,
                         const Reading& reading) {
  std::vector<Group> prompts;  // of every answer
  Answers answers = read(path, prompts, reading, [&](const Line& line) { return pair_of(line, language, rated); });
  answers.per_row = 2;
  for (Group& prompt : prompts) prompt.file = 0;  // the same one in another file, too
  const std::vector<int64_t> numbers = numbers_of(prompts);
  for (size_t i = 0; i < numbers.size(); i += 2) answers.groups.push_back(numbers[i]);
  return answers;
}

Answers read_rollouts(const std::filesystem::path& path, const Language& language, bool rated, const Reading& reading) {
  std::vector<Group> groups;
  Answers answers = read(path, groups, reading, [&](const Line& line) { return rollout_of(line, language, rated); });
  if (rated) rate_groups(groups, answers.ratings, path);
  answers.groups = numbers_of(groups);
  return answers;
}

void AnswersSource::row(int64_t index, RowWriter& out) const {
  const int64_t first = chosen_[static_cast<size_t>(index)] * answers_.per_row;
  for (int64_t i = first; i < first + answers_.per_row; ++i) {
    const Corpus::Tokens tokens = answers_.corpus.read(i, 0, answers_.corpus.length(i), out.scratch().ids);
    out.add(tokens.ids, 0, std::ssize(tokens.ids) - 1, tokens.trained);
    std::span<const float> logprobs;
    if (!answers_.logprob_begins.empty()) {
      const auto at = answers_.logprob_begins.begin() + i;
      logprobs = std::span(answers_.logprobs).subspan(static_cast<size_t>(at[0]), static_cast<size_t>(at[1] - at[0]));
    }
    out.rate(answers_.ratings[static_cast<size_t>(i)], logprobs);
  }
}

uint64_t AnswersSource::content(int threads) const {
  uint64_t hash = mix(answers_.corpus.content(threads), hash_of(std::span(answers_.logprobs)));
  for (const Rating& r : answers_.ratings) {
    for (const double value : {r.reward, r.mean, r.deviation}) hash = mix(hash, std::bit_cast<uint64_t>(value));
  }
  return hash;
}

}  // namespace braid::data
