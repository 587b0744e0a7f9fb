#include "puzzle/times.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "core/integers.h"
#include "engine/state_pool.h"
#include "puzzle/stream.h"

namespace braid::puzzle {
namespace {

constexpr Numerics kServed = Numerics::serving(DType::bf16);  // of braid run

// In a row over the same variants, after one that fills the caches with their weights: as answers are made.
constexpr int64_t kSteps = 4;

class Stopwatch {
 public:
  double ms() const { return 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// One variant with the memory of its sequences, all at the same depth.
class Timed {
 public:
  Timed(Ctx& ctx, std::unique_ptr<models::Model> model, const TimeOptions& options)
      : model_(std::move(model)),
        pool_(model_->state_shapes(), {.sequences = options.batch,
                                       .context = options.length + 1,
                                       .types = kServed.caches(),
                                       .context_may_grow = false}) {
    for (int64_t i = 0; i < options.batch; ++i) {
      const int64_t slot = pool_.take_slot();
      pool_.clear_slot(slot);
      pool_.prepare(ctx, i, 0, options.length + 1);
      steps_.seqs.push_back(
          {.start = i, .len = 1, .pos0 = options.length, .slot = slot, .table = i, .phase = Phase::step});
    }
  }

  double step(Ctx& ctx, int64_t layer, const Tensor& x) {
    nn::Run run{.ctx = ctx, .seqs = steps_, .state = pool_.view(), .numerics = kServed};
    const Stopwatch watch;
    const Tensor y = model_->forward(run, {}, x, {layer, 1});
    return watch.ms();
  }
  double prompt(Ctx& ctx, int64_t layer, const Tensor& x) {
    const SeqMap seqs = SeqMap::one(x.dim(0));
    const Stopwatch watch;
    const Tensor y = run_layers(ctx, *model_, seqs, {}, x, {layer, 1}, kServed);
    return watch.ms();
  }

 private:
  std::unique_ptr<models::Model> model_;
  engine::StatePool pool_;
  SeqMap steps_;
};

class TimeBench {
 public:
  TimeBench(Parent& parent, std::span<const Site> sites, const TimeInputs& inputs, const TimeOptions& options)
      : parent_(parent), sites_(sites), inputs_(inputs), options_(options) {
    ctx_.threads = options.threads;
    for (size_t s = 0; s < sites.size(); ++s) {
      auto& list = blocks_.emplace_back();
      for (const Variant& v : sites[s].variants) {
        if (v.change == Change::none) continue;
        list.push_back(
            {puzzle::shape_of(v.block),
             std::make_unique<Timed>(ctx_, parent.block(sites[s], s, v, parent.first_values(sites[s], v)), options)});
        passes_ = std::max(passes_, list.size());
      }
    }
  }

  TimeTable run(const sys::FunctionRef<bool(int64_t, int64_t)>& progress) {
    const int64_t total = (options_.rounds + 1) * static_cast<int64_t>(passes_);
    for (int64_t round = -1; round < options_.rounds; ++round) {  // the first warms up
      for (size_t k = 0; k < passes_; ++k) {
        if (!progress((round + 1) * static_cast<int64_t>(passes_) + static_cast<int64_t>(k), total)) return {};
        const bool counts = round >= 0;
        for (int64_t i = 0; i <= kSteps; ++i) pass(k, true, counts && i > 0);
        pass(k, false, counts);
      }
    }
    return table();
  }

 private:
  struct Entry {
    std::string shape{};
    std::unique_ptr<Timed> block{};
  };
  using Samples = std::map<std::string, std::vector<double>>;

  void pass(size_t k, bool step, bool counts) {
    Samples& samples = step ? steps_ : prompts_;
    const int64_t tokens = step ? options_.batch : options_.length;
    const double rest = ends(step, tokens);
    if (counts) samples[""].push_back(rest);
    for (size_t s = 0; s < blocks_.size(); ++s) {
      Entry& e = blocks_[s][k % blocks_[s].size()];
      const Tensor x = matrix(ctx_, step ? inputs_.step(s) : inputs_.prompt(s), tokens);
      const auto layer = static_cast<int64_t>(s);
      const double ms = step ? e.block->step(ctx_, layer, x) : e.block->prompt(ctx_, layer, x);
      if (counts) samples[e.shape].push_back(ms);
    }
  }

  // Embedding, and the head over what answers read: every token of a step, the last one of a prompt.
  double ends(bool step, int64_t tokens) {
    const std::vector<int32_t> list(static_cast<size_t>(tokens), 0);
    const Tensor ids = integers(arena_, list);
    const SeqMap seqs = SeqMap::one(tokens), heads = SeqMap::one(step ? tokens : 1);
    const Stopwatch watch;
    const Tensor x = run_layers(ctx_, parent_.model(), seqs, ids, {}, {0, 0}, kServed);
    nn::StateView state;
    nn::Run run{.ctx = ctx_, .seqs = heads, .state = state, .numerics = kServed};
    const Tensor logits = parent_.model().logits(run, x.slice(0, 0, heads.tokens()));
    return watch.ms();
  }

  TimeTable table() const {
    const auto of = [this](const std::string& shape) {
      return Times{.decode = median(steps_.at(shape)), .prefill = median(prompts_.at(shape))};
    };
    TimeTable table{.rest = of("")};
    for (const Site& site : sites_) {
      auto& list = table.of.emplace_back();
      for (const Variant& v : site.variants)
        list.push_back(v.change == Change::none ? Times{} : of(puzzle::shape_of(v.block)));
    }
    return table;
  }

  Parent& parent_;
  std::span<const Site> sites_;
  const TimeInputs& inputs_;
  const TimeOptions& options_;
  std::vector<std::vector<Entry>> blocks_;  // by site
  size_t passes_ = 1;                       // of a round
  Samples steps_, prompts_;                 // by shape; "": embedding and head
  Arena arena_;
  Ctx ctx_{.arena = arena_};
};

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void TimeInputs::take(const Judge& judge) {
  std::vector<float>&step = step_.emplace_back(), &prompt = prompt_.emplace_back();
  const auto append = [&](std::vector<float>& to, size_t row, size_t token) {
    const std::vector<float>& x = judge.stream(row);
    const size_t width = x.size() / judge.row(row).ids.size();
    to.insert(to.end(), x.begin() + static_cast<std::ptrdiff_t>(token * width),
              x.begin() + static_cast<std::ptrdiff_t>((token + 1) * width));
  };
  // The last tokens of rows; then those before them.
  for (int64_t i = 0; i < options_.batch; ++i) {
    const size_t row = static_cast<size_t>(i) % judge.rows(), back = static_cast<size_t>(i) / judge.rows(),
                 n = judge.row(row).ids.size();
    append(step, row, n - 1 - back % n);
  }
  for (size_t row = 0, token = 0, i = 0; i < static_cast<size_t>(options_.length); ++i) {
    append(prompt, row, token);
    if (++token < judge.row(row).ids.size()) continue;
    token = 0;
    row = (row + 1) % judge.rows();
  }
}

TimeTable measure_times(Parent& parent, std::span<const Site> sites, const TimeInputs& inputs,
                        const TimeOptions& options, const sys::FunctionRef<bool(int64_t, int64_t)>& progress) {
  return TimeBench(parent, sites, inputs, options).run(progress);
}

}  // namespace braid::puzzle
