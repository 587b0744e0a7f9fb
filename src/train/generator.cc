#include "train/generator.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/integers.h"
#include "io/model_path.h"
#include "models/load.h"
#include "models/quant_recipe.h"
#include "models/quantize.h"
#include "sys/interrupt.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kTogether = 64;  // answers at once: more share little of a pass, and each has a state

bool quantises(const std::string& format) { return format != "none" && format != "bf16"; }

}  // namespace

Generator::Generator(const Recipe& recipe, std::shared_ptr<models::Model> live,
                     std::function<void(const fs::path&)> write, const fs::path& copy, int64_t context, int threads)
    : recipe_(recipe), live_(std::move(live)), write_(std::move(write)), context_(context), threads_(threads) {
  if (quantises(recipe.rollout.format)) copy_ = copy;
}

Generator::~Generator() {
  runner_.reset();
  std::error_code ignored;
  if (!copy_.empty()) fs::remove_all(copy_, ignored);
}

engine::RunnerOptions Generator::options(int64_t sequences) const {
  return {.numerics = Numerics::serving(numerics_of(recipe_).products, recipe_.exact),
          .context = context_,
          .sequences = sequences,
          .memory = engine::kMemoryOfContexts,
          .threads = threads_};
}

void Generator::renew() {
  const RolloutRecipe& r = recipe_.rollout;
  const int64_t together = std::min(kTogether, r.prompts * r.answers);
  if (copy_.empty()) {
    if (!runner_) runner_ = std::make_unique<engine::Runner>(live_, options(together));
    return;
  }
  runner_.reset();  // its weights are mapped from the folder
  fs::remove_all(copy_);
  write_(copy_ / "whole");
  const auto to_the_end = [](int64_t, int64_t) { return true; };
  models::quantize_model(io::find_model((copy_ / "whole").string()), models::quant_recipe(r.format), copy_ / "coded",
                         {.threads = threads_}, to_the_end);
  std::shared_ptr<models::Model> coded = models::load_model(io::find_model((copy_ / "coded").string()));
  runner_ = std::make_unique<engine::Runner>(std::move(coded), options(together));
}

// A scheduler of its own: prefixes that it caches belong to these weights.
std::vector<engine::Generated> Generator::answers(std::vector<engine::Request> requests) {
  const int64_t count = std::ssize(requests);
  bool stopped = false;
  std::vector<engine::Generated> answers = engine::generate_all(*runner_, std::move(requests), [&](int64_t done) {
    stopped = done < count && sys::caught_signal() != 0;
    return !stopped;
  });
  if (stopped) throw sys::Interrupted();
  return answers;
}

std::vector<std::vector<float>> Generator::score(const std::vector<engine::ScoreItem>& items) {
  if (!scorer_) scorer_ = std::make_unique<engine::Runner>(live_, options(1));
  return engine::score(*scorer_, items, engine::ScorePath::train);
}

nn::Routes Generator::routes(std::span<const int32_t> ids) {
  constexpr int64_t kSequence = 0;  // no answer is being generated
  nn::Probe probe{.want_routes = true};
  runner_->reset(kSequence);
  runner_->prefill(
      kSequence, ids.first(ids.size() - 1), [](const Tensor&) {}, &probe);
  runner_->reset(kSequence);
  return std::move(probe.routes);
}

std::vector<float> Generator::score(const engine::ScoreItem& item, const nn::Routes& routes) {
  Arena arena;
  Ctx ctx{.arena = arena};
  if (threads_ > 0) ctx.threads = threads_;
  const size_t tokens = item.ids.size() - 1;
  SeqMap seqs;
  seqs.add(static_cast<int64_t>(tokens));
  nn::StateView none;
  nn::Probe probe{.replay = &routes};
  nn::Run run{.ctx = ctx, .seqs = seqs, .state = none, .numerics = numerics_of(recipe_), .probe = &probe};
  const std::span<const int32_t> ids(item.ids);
  const Tensor losses =
      live_->losses_of(run, integers(arena, ids.first(tokens)), integers(arena, ids.subspan(1, tokens)));
  std::vector<float> logprobs;
  for (auto t = static_cast<size_t>(item.first - 1); t < tokens; ++t) logprobs.push_back(-losses.view().as<float>()[t]);
  return logprobs;
}

}  // namespace braid::train
