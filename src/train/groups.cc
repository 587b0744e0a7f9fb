#include "train/groups.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <type_traits>

#include "environments/environment.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "sys/error.h"

namespace braid::train {
namespace {

using nlohmann::ordered_json;

constexpr io::NumberRange kRewards{-environments::kRewardMax, environments::kRewardMax}, kLogprobs{-1e9, 0};
constexpr io::IntRange kNumbers{0, int64_t{1} << 60};

// What the ratings of a group have in common.
data::Rating rating_of(const Group& group) {
  data::Rating rating{.answers = std::ssize(group.answers)};
  const auto n = static_cast<double>(rating.answers);
  for (const Sample& s : group.answers) rating.mean += s.reward;
  rating.mean /= n;
  double squares = 0;
  for (const Sample& s : group.answers) squares += (s.reward - rating.mean) * (s.reward - rating.mean);
  if (rating.answers > 1) rating.deviation = std::sqrt(squares / (n - 1));
  return rating;
}

void put_row(const Group& group, const Sample& sample, bool trains, int64_t position, data::Batch& out) {
  const size_t prompt = group.prompt.size(), tokens = prompt + sample.ids.size() - 1;
  out.seqs.add(static_cast<int64_t>(tokens), 0, 0, position);
  for (size_t t = 0; t < tokens; ++t) {
    out.ids.push_back(t < prompt ? group.prompt[t] : sample.ids[t - prompt]);
    const bool target = trains && t + 1 >= prompt;
    const size_t at = t + 1 - prompt;  // in the answer, if it is a target
    out.targets.push_back(target ? sample.ids[at] : data::kMasked);
    out.logprobs.push_back(target ? sample.logprobs[at] : 0.0f);
    if (!sample.trainer.empty()) out.trainer_logprobs.push_back(target ? sample.trainer[at] : 0.0f);
    out.trained += target ? 1 : 0;
  }
  out.rows.push_back(std::ssize(out.ids));
}

std::vector<float> floats_of(const io::Json& list, size_t count) {
  std::vector<float> out;
  for (const io::Json& value : list.items()) out.push_back(static_cast<float>(value.as_number(kLogprobs)));
  if (out.size() != count) list.refuse("has another length", std::to_string(count));
  return out;
}

std::vector<int32_t> tokens_in(const io::Json& list, int64_t vocabulary) {
  std::vector<int32_t> out;
  for (const io::Json& value : list.items()) out.push_back(static_cast<int32_t>(value.as_int({0, vocabulary - 1})));
  if (out.empty()) list.refuse("has no tokens", "at least one");
  return out;
}

// By layer. Whether they are experts of the model, and enough, is checked where they are replayed.
nn::Routes routes_in(const io::Json& list) {
  nn::Routes routes;
  for (const io::Json& layer : list.items()) {
    const std::vector<io::Json> parts = layer.items();
    if (parts.size() != 2) layer.refuse("is not a layer with its experts", "a number and a list");
    std::vector<int32_t>& experts = routes[static_cast<int>(parts[0].as_int({0, 1 << 20}))];
    for (const io::Json& e : parts[1].items()) experts.push_back(static_cast<int32_t>(e.as_int({0, 1 << 20})));
  }
  return routes;
}

Sample sample_in_json(const io::Json& json, int64_t vocabulary) {
  Sample sample{.ids = tokens_in(json.need({"ids"}), vocabulary)};
  sample.logprobs = floats_of(json.need({"logprobs"}), sample.ids.size());
  if (const auto trainer = json.get({"trainer"})) sample.trainer = floats_of(*trainer, sample.ids.size());
  if (const auto routes = json.get({"routes"})) sample.routes = routes_in(*routes);
  return sample;
}

// Takes the next of every array, as many as the state says.
class Taker {
 public:
  Taker(const TokenArrays& from, int64_t vocabulary) : from_(from), vocabulary_(vocabulary) {}

  // `count` has the number of the tokens.
  std::vector<int32_t> ids(const io::Json& count) {
    auto taken = next(from_.ids, ids_, count.as_int({1, kNumbers.max}), count);
    for (const int32_t id : taken) {
      if (id < 0 || id >= vocabulary_)
        count.refuse(fmt::format("is of tokens with {}, outside the vocabulary", id), "another checkpoint");
    }
    return taken;
  }
  Sample sample(const io::Json& json) {
    const io::Json count = json.need({"tokens"});
    Sample sample{.ids = ids(count)};
    const int64_t n = std::ssize(sample.ids);
    sample.logprobs = next(from_.logprobs, logprobs_, n, count);
    if (json.need({"trainer"}).as_bool()) sample.trainer = next(from_.trainer, trainer_, n, count);
    for (const std::vector<float>* list : {&sample.logprobs, &sample.trainer}) {
      if (!std::ranges::all_of(*list, [](float p) { return p >= kLogprobs.min && p <= kLogprobs.max; }))
        count.refuse("is of tokens whose log-probabilities are none", "another checkpoint");
    }
    for (const io::Json& layer : json.need({"routes"}).items()) {
      const std::vector<io::Json> parts = layer.items();
      if (parts.size() != 2) layer.refuse("is not a layer with the number of its experts", "two numbers");
      sample.routes[static_cast<int>(parts[0].as_int({0, 1 << 20}))] =
          next(from_.routes, routes_, parts[1].as_int({0, kNumbers.max}), layer);
    }
    return sample;
  }

 private:
  template <class Num>
  static std::vector<Num> next(const std::vector<Num>& from, size_t& at, int64_t count, const io::Json& where) {
    if (count > std::ssize(from) - static_cast<int64_t>(at))
      where.refuse("is beyond what is stored beside the state", fmt::format("at most {}", from.size() - at));
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(at);
    at += static_cast<size_t>(count);
    return {begin, begin + count};
  }

  const TokenArrays& from_;
  const int64_t vocabulary_;
  size_t ids_ = 0, routes_ = 0, logprobs_ = 0, trainer_ = 0;
};

}  // namespace

bool Group::alike() const {
  return std::ranges::all_of(answers, [&](const Sample& s) { return s.reward == answers.front().reward; });
}

double Group::passed() const {
  const auto right = std::ranges::count_if(answers, [](const Sample& s) { return s.reward >= 1; });
  return static_cast<double>(right) / static_cast<double>(answers.size());
}

Metric& StepRollouts::metric(const std::string& name) {
  const auto found = std::ranges::find(metrics, name, &Metric::name);
  return found != metrics.end() ? *found : metrics.emplace_back(Metric{.name = name});
}

void put_batch(const StepRollouts& rollouts, int64_t length, bool mask_cut, data::Batch& out) {
  out.clear();
  int64_t rows = 0;
  for (const Group& group : rollouts.groups) rows += std::ssize(group.answers);
  out.reserve(rows, length);
  for (const Group& group : rollouts.groups) {
    data::Rating rating = rating_of(group);
    for (const Sample& sample : group.answers) {
      const int64_t row = rollouts.step * rows + std::ssize(out.row_ids);
      put_row(group, sample, group.error.empty() && !(mask_cut && sample.cut), row * length, out);
      rating.reward = sample.reward;
      out.ratings.push_back(rating);
      out.row_ids.push_back(row);
    }
  }
}

std::string lines_of(const StepRollouts& rollouts) {
  std::string lines;
  const auto put = [&](const ordered_json& line) {
    lines += line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  };
  for (const Group& group : rollouts.groups) {
    ordered_json line = {{"step", rollouts.step + 1},
                         {"group", fmt::format("{}.{}", rollouts.step + 1, group.number)},
                         {"environment", group.environment},
                         {"level", group.of.level},
                         {"prompt", group.question}};
    if (!group.error.empty()) {
      line["error"] = group.error;
      put(line);
      continue;
    }
    for (const Sample& sample : group.answers) {
      line["completion"] = sample.text;
      line["reward"] = sample.reward;
      line["finish"] = sample.cut ? "length" : "stop";
      line["prompt_ids"] = group.prompt;
      line["completion_ids"] = sample.ids;
      line["logprobs"] = sample.logprobs;
      if (!sample.trainer.empty()) line["trainer_logprobs"] = sample.trainer;
      put(line);
    }
  }
  return lines;
}

void write_tokens(const TokenArrays& tokens, const std::filesystem::path& file) {
  const auto length = [](const auto& list) { return Shape{std::ssize(list)}; };
  io::SafetensorsWriter out(file, {{"ids", DType::i32, length(tokens.ids)},
                                   {"routes", DType::i32, length(tokens.routes)},
                                   {"logprobs", DType::f32, length(tokens.logprobs)},
                                   {"trainer", DType::f32, length(tokens.trainer)}});
  out.write("ids", std::as_bytes(std::span(tokens.ids)));
  out.write("routes", std::as_bytes(std::span(tokens.routes)));
  out.write("logprobs", std::as_bytes(std::span(tokens.logprobs)));
  out.write("trainer", std::as_bytes(std::span(tokens.trainer)));
  out.finish();
}

TokenArrays read_tokens(const std::filesystem::path& path) {
  const io::Safetensors file(path);
  const auto take = [&](const char* name, DType dtype, auto& to) {
    const View view = file.need(name);
    if (view.dtype != dtype || view.shape.rank != 1)
      fail(printable(path.string()),
           {.what = fmt::format("{} is not a list of {}", name, name_of(dtype)), .hint = "another checkpoint"});
    const auto* values = view.as<typename std::remove_reference_t<decltype(to)>::value_type>();
    to.assign(values, values + view.count());
  };
  TokenArrays tokens;
  take("ids", DType::i32, tokens.ids);
  take("routes", DType::i32, tokens.routes);
  take("logprobs", DType::f32, tokens.logprobs);
  take("trainer", DType::f32, tokens.trainer);
  return tokens;
}

ordered_json state_of(const StepRollouts& rollouts, TokenArrays& tokens) {
  const auto append = [](auto& to, const auto& list) { to.insert(to.end(), list.begin(), list.end()); };
  ordered_json state = {{"step", rollouts.step}, {"groups", ordered_json::array()}, {"metrics", ordered_json::array()}};
  for (const Group& group : rollouts.groups) {
    ordered_json g = {{"number", group.number},           {"index", group.of.environment},   {"level", group.of.level},
                      {"environment", group.environment}, {"question", group.question},      {"error", group.error},
                      {"prompt", group.prompt.size()},    {"answers", ordered_json::array()}};
    append(tokens.ids, group.prompt);
    for (const Sample& s : group.answers) {
      ordered_json answer = {{"tokens", s.ids.size()}, {"text", s.text}, {"reward", s.reward}, {"cut", s.cut}};
      answer["trainer"] = !s.trainer.empty();
      answer["routes"] = ordered_json::array();
      append(tokens.ids, s.ids);
      append(tokens.logprobs, s.logprobs);
      append(tokens.trainer, s.trainer);
      for (const auto& [layer, experts] : s.routes) {
        answer["routes"].push_back({layer, experts.size()});
        append(tokens.routes, experts);
      }
      g["answers"].push_back(std::move(answer));
    }
    state["groups"].push_back(std::move(g));
  }
  for (const Metric& m : rollouts.metrics) state["metrics"].push_back({m.name, m.sum, m.count});
  return state;
}

StepRollouts rollouts_of(const io::Json& state, const TokenArrays& tokens, int64_t vocabulary) {
  Taker taker(tokens, vocabulary);
  StepRollouts out{.step = state.need({"step"}).as_int(kNumbers)};
  for (const io::Json& g : state.need({"groups"}).items()) {
    Group group{.number = g.need({"number"}).as_int(kNumbers),
                .of = {.environment = static_cast<size_t>(g.need({"index"}).as_int(kNumbers)),
                       .level = g.need({"level"}).as_int(kNumbers)},
                .environment = g.need({"environment"}).as_string(),
                .question = g.need({"question"}).as_string(),
                .error = g.need({"error"}).as_string()};
    const io::Json prompt = g.need({"prompt"});
    group.prompt = prompt.is_array() ? tokens_in(prompt, vocabulary) : taker.ids(prompt);
    for (const io::Json& s : g.need({"answers"}).items()) {
      Sample& sample = group.answers.emplace_back(s.get({"ids"}) ? sample_in_json(s, vocabulary) : taker.sample(s));
      sample.text = s.need({"text"}).as_string();
      sample.reward = s.need({"reward"}).as_number(kRewards);
      sample.cut = s.need({"cut"}).as_bool();
    }
    if (group.answers.empty()) g.refuse("has no answers", "at least one");
    out.groups.push_back(std::move(group));
  }
  for (const io::Json& m : state.need({"metrics"}).items()) {
    const std::vector<io::Json> parts = m.items();
    if (parts.size() != 3) m.refuse("is not a metric", "a name and two numbers");
    out.metrics.push_back({parts[0].as_string(), parts[1].as_number(), parts[2].as_number()});
  }
  return out;
}

}  // namespace braid::train
