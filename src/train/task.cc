#include "train/task.h"

#include <string_view>

#include "models/cut.h"
#include "sys/error.h"
#include "train/distill.h"
#include "train/policy.h"
#include "train/preference.h"
#include "train/rollout.h"

namespace braid::train {
namespace {

constexpr const char* kNone = "none";

bool prefers(const Recipe& r) { return r.preference.kind != kNone; }
bool earns(const Recipe& r) { return r.policy.advantage != kNone; }
bool distills(const Recipe& r) { return !r.distill.teacher.empty(); }
bool taught(const Recipe& r) { return r.policy.advantage == "teacher"; }

void need_data(const Recipe& recipe, const char* kind, const char* table) {
  if (recipe.data.kind == kind) return;
  fail("data.kind", {.what = fmt::format("[{}] reads other data", table),
                     .got = printable(recipe.data.kind),
                     .expected = kind,
                     .hint = std::string_view(kind) == "rollouts" ? "rollout.environments, to generate them" : ""});
}

[[noreturn]] void refuse_together(const char* word, const char* other) {
  fail(word, {.what = fmt::format("cannot be combined with {}", other), .hint = "leaving one out"});
}

void check_policy(const Recipe& recipe) {
  const PolicyRecipe& policy = recipe.policy;
  if (policy.replay_routes && !generates(recipe))
    fail("policy.replay_routes", {.what = "answers of a file have no recorded experts",
                                  .expected = "answers that the run generates, rollout.environments"});
  if (policy.dual_clip > 0 && policy.dual_clip <= 1)
    fail("policy.dual_clip", {.what = "is not above 1",
                              .got = fmt::format("{:g}", policy.dual_clip),
                              .expected = "0 (off), or a ratio like 3"});
  if (policy.advantage == "teacher") {
    for (const auto& [word, value] : changed_words(recipe)) {
      if (word.starts_with("distill.") && word != "distill.teacher")
        refuse_together(word.c_str(), "a teacher that is the advantage of a policy");
    }
  }
  if (policy.ratio != "sequence") return;
  if (policy.importance_cap > 0) refuse_together("policy.importance_cap", "policy.ratio = \"sequence\"");
  if (policy.advantage == "teacher") refuse_together("policy.advantage = \"teacher\"", "policy.ratio = \"sequence\"");
}

void check_data(const Recipe& recipe) {
  if (prefers(recipe)) return need_data(recipe, "preference", "preference");
  if (generates(recipe)) return;
  if (earns(recipe)) return need_data(recipe, "rollouts", "policy");
  if (!data::has_answers(recipe.data)) return;
  fail("data.kind", {.what = "answers need something that rates them",
                     .got = recipe.data.kind,
                     .expected = recipe.data.kind == "preference" ? "[preference] kind" : "[policy] advantage"});
}

}  // namespace

bool rates_answers(const Recipe& recipe) { return prefers(recipe) || earns(recipe); }

void check_task(const Recipe& recipe) {
  if (prefers(recipe) && earns(recipe)) refuse_together("preference.kind", "policy.advantage");
  if (distills(recipe) && rates_answers(recipe) && !taught(recipe))
    refuse_together("distill.teacher", prefers(recipe) ? "[preference]" : "[policy], but as its advantage");
  if (taught(recipe) && !distills(recipe))
    fail("policy.advantage", {.what = "there is no teacher", .expected = "distill.teacher = a model folder"});
  check_rollout(recipe);
  check_data(recipe);
  check_policy(recipe);
  if (!distills(recipe) && recipe.distill.hidden > 0)
    fail("distill.hidden", {.what = "there is no teacher", .expected = "distill.teacher = a model folder"});
  if (!distills(recipe) && !rates_answers(recipe)) return;
  if (distills(recipe) && !rates_answers(recipe)) {
    const DistillRecipe& d = recipe.distill;
    if (recipe.exact) refuse_together("exact", "[distill]");
    if (d.weight == 0 && d.ce == 0 && d.hidden == 0)
      fail("distill", {.what = "trains nothing: every part of its loss has weight 0",
                       .expected = "distill.weight, distill.ce or distill.hidden above 0"});
  }
  if (recipe.distill.hidden > 0 && !recipe.distill.cache.empty()) refuse_together("distill.hidden", "distill.cache");
  if (!recipe.distill.cache.empty() && recipe.distill.top_k == 0)
    fail("distill.cache", {.what = "needs distill.top_k", .hint = "distill.top_k = 64"});
  const char* table = prefers(recipe) ? "[preference]" : earns(recipe) ? "[policy]" : "[distill]";
  for (const auto& [word, value] :
       {std::pair("loss.mtp_scale", recipe.loss.mtp_scale), std::pair("loss.z", recipe.loss.z)}) {
    if (value > 0) refuse_together(word, table);
  }
  if (recipe.loss.mean != "token") refuse_together("loss.mean", table);
}

std::unique_ptr<Task> make_task(const Recipe& recipe, const models::Config& config, const io::ModelPath& start,
                                std::span<Param> maps, Ctx& ctx) {
  if (config.loop && (distills(recipe) || rates_answers(recipe)))
    fail("train", {.what = "a model of recurrent depth is trained by predicting tokens alone",
                   .got = printable(start.folder.string()),
                   .hint = "a model without recurrent depth"});
  if (recipe.policy.replay_routes && !models::has_experts(config))
    fail("policy.replay_routes", {.what = "the model has no experts", .hint = "leaving it out"});
  std::unique_ptr<Frozen> teacher;
  if (distills(recipe)) teacher = load_teacher(recipe, config, start.folder);
  if (prefers(recipe)) return std::make_unique<Preference>(recipe, start);
  if (earns(recipe)) return std::make_unique<Policy>(recipe, start, std::move(teacher));
  if (teacher) return std::make_unique<Distill>(recipe, config, std::move(teacher), maps, ctx);
  return nullptr;
}

}  // namespace braid::train
