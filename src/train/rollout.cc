#include "train/rollout.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "data/chat.h"
#include "data/shuffle.h"
#include "engine/answer_text.h"
#include "engine/reasoning.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "sys/check.h"
#include "sys/error.h"
#include "train/log.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kPromptTokens = 256;            // where `length` says nothing
constexpr int64_t kGroupsMax = int64_t{1} << 16;  // of a step, those drawn again included
constexpr int64_t kFailuresMax = 16;              // judgements in a row: the environment is broken
constexpr uint32_t kProblemStream = 0x70726f62;
constexpr int64_t kShares = 1'000'000;  // steps of rollout.think_share
constexpr const char *kLines = "rollouts.jsonl", *kState = "rollout.json", *kTokens = "rollout.safetensors";

[[noreturn]] void refuse(const char* word, const char* what, std::string got, std::string expected) {
  fail(word, {.what = what, .got = std::move(got), .expected = std::move(expected)});
}

bool is_command(const std::string& environment) { return environment.starts_with("command:"); }

// "command", "command_2": what metrics and lines call the environments.
std::vector<std::string> labels_of(const std::vector<std::string>& names) {
  std::vector<std::string> labels;
  int64_t commands = 0;
  for (const std::string& name : names) {
    if (!is_command(name)) {
      labels.push_back(name);
      continue;
    }
    labels.push_back(++commands == 1 ? "command" : fmt::format("command_{}", commands));
  }
  return labels;
}

}  // namespace

int64_t rollout_rows(const Recipe& recipe) { return recipe.rollout.prompts * recipe.rollout.answers; }

int64_t rollout_length(const Recipe& recipe) {
  return recipe.length > 0 ? recipe.length : kPromptTokens + recipe.rollout.tokens;
}

void check_rollout(const Recipe& recipe) {
  if (!generates(recipe)) return;
  const RolloutRecipe& r = recipe.rollout;
  const auto number = [](auto value) { return fmt::format("{}", value); };
  if (recipe.policy.advantage == "none")
    refuse("policy.advantage", "[rollout] trains a policy", "none", "leave-one-out, mean, std or teacher");
  for (const auto& [word, value] : changed_words(recipe)) {
    if (word.starts_with("data."))
      fail(word.c_str(),
           {.what = "[rollout] generates the data", .got = printable(value), .hint = "leaving out [data]"});
  }
  if (recipe.loss.goldfish_k > 0)
    fail("loss.goldfish_k",
         {.what = "[rollout] trains whole answers", .got = number(recipe.loss.goldfish_k), .expected = "0"});
  if (recipe.batch > 0 && recipe.batch != rollout_rows(recipe))
    refuse("batch", "is not rollout.prompts * rollout.answers", number(recipe.batch), number(rollout_rows(recipe)));
  if (r.answers < 2 && recipe.policy.advantage != "teacher")
    refuse("rollout.answers", "a group of one answer has nothing to compare it with", number(r.answers), "2 or more");
  if (r.effort_cost > 0 && recipe.policy.advantage == "teacher")
    refuse("rollout.effort_cost", "a teacher's advantage reads no rewards", fmt::format("{:g}", r.effort_cost), "0");
  if (r.prompts * (r.refill + 1) > kGroupsMax)
    refuse("rollout.prompts", "too many groups with those drawn again", number(r.prompts * (r.refill + 1)),
           "at most " + number(kGroupsMax));
  if (rollout_length(recipe) <= r.tokens)
    refuse("length", "has no room for a prompt", number(recipe.length), "more than rollout.tokens");
  if (!r.weights.empty() && r.weights.size() != r.environments.size())
    refuse("rollout.weights", "is not one for each environment", number(r.weights.size()),
           number(r.environments.size()));
  if (r.temperature != 1 && recipe.policy.importance_cap == 0)
    fail("rollout.temperature", {.what = "answers that are not drawn at 1 are another policy's, and need a correction",
                                 .got = fmt::format("{:g}", r.temperature),
                                 .expected = "1, or policy.importance_cap, as 5"});
  if (r.format == "bf16" && recipe.dtype != "bf16")
    refuse("rollout.format", "is not the type that products read", "bf16", "dtype = \"bf16\", or none");
  if (r.format != "none" && r.format != "bf16" && recipe.lora.rank > 0)
    fail("rollout.format", {.what = "adapters are not quantised", .got = r.format, .expected = "none"});
  if (recipe.eval.every > 0)
    fail("eval.every", {.what = "[rollout] holds nothing out", .hint = "braid eval --tasks on the checkpoints"});
}

Rollouts::Rollouts(const Recipe& recipe, const fs::path& language, int64_t vocabulary, comm::Group* ranks)
    : recipe_(recipe), files_(language), language_(files_.language(vocabulary)), exchange_(ranks, vocabulary) {
  const RolloutRecipe& r = recipe.rollout;
  std::vector<int64_t> levels;
  for (const std::string& name : r.environments) {
    environments_.push_back(environments::make(name, r.timeout, "rollout.environments"));
    levels.push_back(environments_.back()->levels());
  }
  labels_ = labels_of(r.environments);
  curriculum_.emplace(levels, r.weights, r.curriculum == "pass-rate");
  if (r.think && !(language_.chat && language_.chat->reads("enable_thinking")))
    fail("rollout.think", {.what = "the model's chat template has no switch for thinking", .hint = "false"});
}

Rollouts::~Rollouts() {
  if (lines_) std::fclose(lines_);
}

void Rollouts::start(std::shared_ptr<models::Model> live, std::function<void(const fs::path&)> write, int threads) {
  const std::string copy = exchange_.first() ? ".generator" : fmt::format(".generator-{}", exchange_.rank());
  generator_ = std::make_unique<Generator>(recipe_, std::move(live), std::move(write), fs::path(recipe_.out) / copy,
                                           rollout_length(recipe_), threads);
}

std::string Rollouts::prompt_of(const environments::Problem& problem, const std::string& environment,
                                bool think) const {
  if (!language_.chat) {
    if (problem.messages.size() > 1 || !problem.tools.empty())
      refuse("rollout.environments", "a model without a chat template reads one message without tools",
             fmt::format("{} with {}", environment,
                         problem.tools.empty() ? fmt::format("{} messages", problem.messages.size()) : "tools"),
             "another environment, or a model with a chat template");
    return problem.messages.back()["content"].get<std::string>();
  }
  nlohmann::ordered_json variables = {{"messages", problem.messages}};
  if (!problem.tools.is_null()) variables["tools"] = problem.tools;
  if (language_.chat->reads("enable_thinking")) variables["enable_thinking"] = think;
  return data::prompt_text(variables, *language_.chat, environment);
}

// Problems `first` to `first + count` of a step.
std::vector<Rollouts::Posed> Rollouts::pose(int64_t step, int64_t first, int64_t count) {
  std::vector<Posed> posed;
  for (int64_t number = first; number < first + count; ++number) {
    synth::Draw draw({.seed = static_cast<uint64_t>(recipe_.seed), .stream = kProblemStream},
                     static_cast<uint64_t>(step * kGroupsMax + number));
    const Curriculum::Choice choice = curriculum_->draw(draw);
    Posed p{.problem = environments_[choice.environment]->problem(draw, choice.level),
            .group = {.number = number, .of = choice, .environment = labels_[choice.environment]}};
    const RolloutRecipe& r = recipe_.rollout;
    const bool think =
        r.think && (r.think_share == 1 || static_cast<double>(draw.below(kShares)) < r.think_share * kShares);
    const std::string text = prompt_of(p.problem, p.group.environment, think);
    p.thinking = engine::ends_in_think(text);
    p.group.question = p.problem.messages.back()["content"].get<std::string>();
    p.group.prompt = language_.tokenizer->encode(text, !language_.chat);
    if (const int64_t room = rollout_length(recipe_) - recipe_.rollout.tokens;
        std::ssize(p.group.prompt) > room || p.group.prompt.empty())
      refuse("length", "a prompt does not fit",
             fmt::format("{} tokens of {}", p.group.prompt.size(), p.group.environment),
             fmt::format("1 to {}, what rollout.tokens leaves", room));
    posed.push_back(std::move(p));
  }
  return posed;
}

// Prompts of a group are read once: the later ones find what the first has read.
void Rollouts::answer(int64_t step, std::vector<Posed>& posed) {
  const RolloutRecipe& r = recipe_.rollout;
  const uint64_t of_step = data::mix(static_cast<uint64_t>(recipe_.seed), static_cast<uint64_t>(step));
  std::vector<engine::Request> requests;
  for (const Posed& p : posed) {
    for (int64_t i = 0; i < r.answers; ++i) {
      engine::GenerateOptions generate{.tokens_max = r.tokens, .logprobs = 0, .drawn_logprobs = true};
      generate.sampling.temperature = r.temperature;
      generate.sampling.seed = data::mix(of_step, static_cast<uint64_t>(p.group.number * r.answers + i));
      requests.push_back({.prompt = p.group.prompt, .generate = std::move(generate)});
    }
  }
  std::vector<engine::Generated> answers = generator_->answers(std::move(requests));
  auto next = answers.begin();
  for (Posed& p : posed) {
    for (int64_t i = 0; i < r.answers; ++i, ++next) {
      Sample sample{.ids = std::move(next->ids), .cut = next->finish == engine::Finish::length};
      CHECK(!sample.ids.empty() && next->logprobs.size() == sample.ids.size(), "{} tokens", sample.ids.size());
      for (const auto& token : next->logprobs) sample.logprobs.push_back(static_cast<float>(token[0].logprob));
      const auto spoken = std::span(sample.ids).first(sample.ids.size() - (sample.cut ? 0 : 1));
      sample.text = engine::answer_text(*language_.tokenizer, p.thinking, spoken).content;
      p.group.answers.push_back(std::move(sample));
    }
  }
}

// Advantages compare the answers of a group: without the reward of one of them there are none.
void Rollouts::judge(Posed& posed) {
  Group& group = posed.group;
  for (Sample& sample : group.answers) {
    const environments::Verdict verdict =
        environments_[group.of.environment]->judge(posed.problem, {.text = sample.text, .cut = sample.cut});
    sample.reward = verdict.reward;
    failures_ = verdict.error.empty() ? 0 : failures_ + 1;
    if (failures_ == kFailuresMax)
      throw Error(Fault::failed_run,
                  format_message("rollout.environments", {.what = fmt::format("{} gave no verdict, {} times in a row",
                                                                              group.environment, failures_),
                                                          .got = verdict.error}));
    if (verdict.error.empty()) continue;
    group.error = verdict.error;
    for (Sample& s : group.answers) s.reward = 0;
    return;
  }
}

// Of two right answers the shorter one earns more.
void Rollouts::charge(Group& group) const {
  for (Sample& s : group.answers) {
    const double effort = static_cast<double>(s.ids.size()) / static_cast<double>(recipe_.rollout.tokens);
    if (s.reward > 0) s.reward *= 1 - recipe_.rollout.effort_cost * effort;
  }
}

// Of all groups that were drawn, those that are replaced too: a mean over the others alone would flatter. Rewards are
// the environments', before effort is charged.
void Rollouts::note(const std::vector<Group>& groups, StepRollouts& out) {
  for (const Group& group : groups) {
    const auto n = static_cast<double>(group.answers.size());
    if (!group.error.empty()) continue;
    curriculum_->note(group.of, group.passed());
    out.add("pass_at_1", n * group.passed(), n);
    for (const Sample& s : group.answers) {
      const auto tokens = static_cast<double>(s.ids.size());
      double surprise = 0;
      for (const float p_token : s.logprobs) surprise -= static_cast<double>(p_token);
      out.add("reward_" + group.environment, s.reward, 1);
      out.add("entropy", surprise, tokens);
      out.add("answer_tokens", tokens, 1);
      out.add("cut", s.cut ? 1 : 0, 1);
    }
  }
}

// What training computes for the answers at this time; a group at once.
void Rollouts::score(std::vector<Group>& groups) {
  for (Group& group : groups) {
    std::vector<engine::ScoreItem> items;
    for (const Sample& s : group.answers) {
      engine::ScoreItem& item = items.emplace_back();
      item.first = std::ssize(group.prompt);
      item.ids = group.prompt;
      item.ids.insert(item.ids.end(), s.ids.begin(), s.ids.end());
    }
    if (recipe_.policy.replay_routes) {
      for (size_t i = 0; i < items.size(); ++i)
        group.answers[i].trainer = generator_->score(items[i], group.answers[i].routes);
      continue;
    }
    std::vector<std::vector<float>> found = generator_->score(items);
    for (size_t i = 0; i < found.size(); ++i) group.answers[i].trainer = std::move(found[i]);
  }
}

void Rollouts::route(std::vector<Group>& groups) {
  for (Group& group : groups) {
    for (Sample& s : group.answers) {
      std::vector<int32_t> ids = group.prompt;
      ids.insert(ids.end(), s.ids.begin(), s.ids.end());
      s.routes = generator_->routes(ids);
    }
  }
}

void Rollouts::routes_of(std::span<const int64_t> row_ids, nn::Routes& out) const {
  out.clear();
  for (const int64_t id : row_ids) {
    for (const auto& [layer, experts] : routes_.at(static_cast<size_t>(id - first_row_))) {
      std::vector<int32_t>& to = out[layer];
      to.insert(to.end(), experts.begin(), experts.end());
    }
  }
}

// This rank's share of problems `first` to `first + count` of a step, answered and judged.
std::vector<Group> Rollouts::own_groups(int64_t step, int64_t first, int64_t count) {
  const Range own = exchange_.share(count);
  if (own.count == 0) return {};
  std::vector<Posed> posed = pose(step, first + own.begin, own.count);
  answer(step, posed);
  std::vector<Group> groups;
  for (Posed& p : posed) {
    judge(p);
    groups.push_back(std::move(p.group));
  }
  return groups;
}

// This rank's share of them, with what else training reads. The others are dropped.
std::vector<Group> Rollouts::looked_at_again(std::vector<Group>& groups) {
  const Range own = exchange_.share(std::ssize(groups));
  const auto begin = std::make_move_iterator(groups.begin() + own.begin);
  std::vector<Group> mine(begin, begin + own.count);
  if (recipe_.policy.replay_routes) route(mine);
  if (recipe_.policy.importance_cap > 0) score(mine);
  return mine;
}

StepRollouts Rollouts::generate(int64_t step) {
  const RolloutRecipe& r = recipe_.rollout;
  const bool compares = recipe_.policy.advantage != "teacher";
  generator_->renew();
  const bool commands = std::ranges::any_of(r.environments, is_command);
  StepRollouts out{.step = step};
  for (const char* name : {"pass_at_1", "zero_variance", "entropy", "answer_tokens", "cut"}) out.add(name, 0, 0);
  for (const std::string& label : labels_) out.add("reward_" + label, 0, 0);  // in this order in all logs
  std::vector<Group> spare, failed;  // without anything to learn, if there is nothing better
  int64_t posed_so_far = 0;
  for (int64_t round = 0; round <= r.refill && std::ssize(out.groups) < r.prompts; ++round) {
    const int64_t count = r.prompts - std::ssize(out.groups);
    std::vector<Group> groups = exchange_.all([&] { return own_groups(step, posed_so_far, count); });
    posed_so_far += count;
    note(groups, out);
    for (Group& group : groups) {
      charge(group);
      if (group.error.empty()) out.add("zero_variance", group.alike() ? 1 : 0, 1);
      std::vector<Group>& to = !group.error.empty() ? failed : compares && group.alike() ? spare : out.groups;
      to.push_back(std::move(group));
    }
  }
  if (out.groups.empty() && spare.empty() && !failed.empty())
    throw CommonError(
        Fault::failed_run,
        format_message("rollout.environments", {.what = fmt::format("no answer of step {} was judged", step + 1),
                                                .got = failed[0].error,
                                                .hint = "mending the command, then --resume auto"}));
  if (r.refill > 0) out.add("refilled", static_cast<double>(posed_so_far - r.prompts), 0);
  if (commands) out.add("environment_errors", static_cast<double>(failed.size()), 0);
  spare.insert(spare.end(), std::make_move_iterator(failed.begin()), std::make_move_iterator(failed.end()));
  for (size_t i = 0; std::ssize(out.groups) < r.prompts; ++i) out.groups.push_back(std::move(spare[i]));
  if (recipe_.policy.replay_routes || recipe_.policy.importance_cap > 0)
    out.groups = exchange_.all([&] { return looked_at_again(out.groups); });
  return out;
}

// Also after the last step: a longer run that continues this one trains on what the weights before its last update
// answered, as it would have without the stop. If an environment fails there, this run still has all that it trains.
void Rollouts::generate_ahead(int64_t step) {
  const Curriculum rates = *curriculum_;
  try {
    next_ = generate(step);
  } catch (const Error&) {
    if (step < recipe_.steps) throw;
    curriculum_ = rates;
  }
}

// A step that an environment or a signal ends has not happened: the state stays that of the step before.
void Rollouts::draw(int64_t step, data::Batch& out) {
  const Curriculum rates = *curriculum_;
  const std::optional<StepRollouts> ready = next_;
  StepRollouts now;
  try {
    now = next_ && next_->step == step ? std::move(*next_) : generate(step);
    next_.reset();
    if (recipe_.rollout.ahead > 0) generate_ahead(step + 1);
  } catch (...) {
    curriculum_ = rates;
    next_ = ready;
    throw;
  }
  put_batch(now, rollout_length(recipe_), recipe_.rollout.mask_cut, out);
  log(now);
  routes_.clear();
  first_row_ = out.row_ids.front();
  for (Group& group : now.groups) {
    for (Sample& s : group.answers) routes_.push_back(std::move(s.routes));
  }
  metrics_ = std::move(now.metrics);
}

void Rollouts::log(const StepRollouts& rollouts) {
  const int64_t every = recipe_.rollout.every;
  if (every == 0 || !exchange_.first()) return;
  const fs::path path = fs::path(recipe_.out) / kLines;
  if (!lines_) lines_ = reopen_lines(path, rollouts.step);
  if ((rollouts.step + 1) % every == 0) append_lines(lines_of(rollouts), lines_, path);
}

void Rollouts::report(Sums& sums) {
  for (const Metric& m : metrics_) {
    if (m.count == 0 && m.name.starts_with("reward_")) continue;  // not drawn
    sums.add(*names_.insert(m.name).first, m.sum, m.count);
  }
}

void Rollouts::write_state(const fs::path& folder) const {
  nlohmann::ordered_json state = {{"pass_rates", curriculum_->state()}};
  if (next_) {
    TokenArrays tokens;
    state["next"] = state_of(*next_, tokens);
    write_tokens(tokens, folder / kTokens);
  }
  io::write_text_file(folder / kState,
                      state.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void Rollouts::read_state(const fs::path& folder) {
  if (!fs::exists(folder / kState)) return;  // forced, from another kind of run
  const io::Json state = io::Json::read(folder / kState, kRolloutLimits);
  curriculum_->set(state.need({"pass_rates"}));
  next_.reset();
  const auto next = state.get({"next"});
  if (!next) return;
  const bool has_tokens = fs::exists(folder / kTokens);  // older checkpoints have all in one file
  next_ = rollouts_of(*next, has_tokens ? read_tokens(folder / kTokens) : TokenArrays(), language_.vocabulary);
}

}  // namespace braid::train
