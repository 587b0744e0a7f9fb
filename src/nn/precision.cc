#include "nn/precision.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/quantize/low_experts.h"
#include "sys/error.h"
#include "sys/nearest.h"

namespace braid::nn {
namespace {

using enum Encoding;
using enum Scaling;

constexpr ProductSpecs kFp8{.forward_x = {fp8_e4m3, matrix},
                            .forward_w = {fp8_e4m3, matrix},
                            .data_dy = {fp8_e5m2, matrix},
                            .data_w = {fp8_e4m3, matrix},
                            .weight_dy = {fp8_e5m2, matrix},
                            .weight_x = {fp8_e4m3, matrix}};
constexpr ProductSpecs kFp8Block{.forward_x = {fp8_e4m3, along_cols},
                                 .forward_w = {fp8_e4m3, square},
                                 .data_dy = {fp8_e4m3, along_cols},
                                 .data_w = {fp8_e4m3, square},
                                 .weight_dy = {fp8_e4m3, along_rows},
                                 .weight_x = {fp8_e4m3, along_rows}};
constexpr ProductSpecs kMxfp8{.forward_x = {mxfp8, along_cols},
                              .forward_w = {mxfp8, along_cols},
                              .data_dy = {mxfp8, along_cols},
                              .data_w = {mxfp8, along_rows},
                              .weight_dy = {mxfp8, along_rows},
                              .weight_x = {mxfp8, along_rows}};
constexpr ProductSpecs kMxfp4{.forward_x = {mxfp4, along_cols},
                              .forward_w = {mxfp4, along_cols},
                              .data_dy = {mxfp4, along_cols, false, true},
                              .data_w = {mxfp4, along_rows},
                              .weight_dy = {mxfp4, along_rows, true, true},
                              .weight_x = {mxfp4, along_rows, true}};
constexpr ProductSpecs kNvfp4{.forward_x = {nvfp4, along_cols},
                              .forward_w = {nvfp4, square},
                              .data_dy = {nvfp4, along_cols, false, true},
                              .data_w = {nvfp4, square},
                              .weight_dy = {nvfp4, along_rows, true, true},
                              .weight_x = {nvfp4, along_rows, true}};

// Layers kept in high precision at the ends: this many of `of` layers, in proportion for other depths; at most `most`.
struct Ends {
  int64_t first, last, of, most;

  int64_t kept(int64_t count, int64_t layers) const {
    return std::clamp((count * layers + of / 2) / of, int64_t{1}, most);
  }
};
constexpr int64_t kAny = int64_t{1} << 20;

struct Row {
  const char* word;
  const ProductSpecs* specs;
  Ends ends;
  bool four_bits;
};
constexpr Row kRows[] = {{"fp8", &kFp8, {4, 4, 52, 4}, false},
                         {"fp8-block", &kFp8Block, {2, 2, 62, 2}, false},
                         {"mxfp8", &kMxfp8, {2, 2, 62, 2}, false},
                         {"mxfp4", &kMxfp4, {2, 8, 62, kAny}, true},
                         {"nvfp4", &kNvfp4, {2, 8, 62, kAny}, true}};

// Never quantised: the tables, the router, and the prediction block.
bool stays_high(const Param& p) {
  return p.mtp || p.role == ParamRole::embedding || p.role == ParamRole::positions || p.role == ParamRole::head ||
         p.role == ParamRole::router;
}

// Nor these with four bits: attention and the latent projections.
bool stays_high_of_four(ParamRole role) {
  switch (role) {
    case ParamRole::q:
    case ParamRole::k:
    case ParamRole::v:
    case ParamRole::attention_out:
    case ParamRole::linear_attention:
    case ParamRole::latent_in:
    case ParamRole::latent_out:
      return true;
    default:
      return false;
  }
}
// A matrix with a side shorter than this is not quantised: low-precision units do not take it.
constexpr int64_t kShortest = 16;

const Row* find_row(const std::string& word) {
  if (word == "none" || word == "bf16") return nullptr;
  for (const Row& row : kRows) {
    if (word == row.word) return &row;
  }
  std::vector<std::string> words = {"none", "bf16"};
  for (const Row& row : kRows) words.emplace_back(row.word);
  fail("precision.recipe", {.what = "no such recipe",
                            .got = printable(word),
                            .expected = fmt::format("{}", fmt::join(words, ", ")),
                            .hint = sys::nearest(word, words)});
}

// The recipe without what an ablation leaves out, which `without` names.
ProductSpecs specs_of(const std::string& recipe, ProductSpecs specs, const RecipeParts& parts, std::string& without) {
  const auto leave_out = [&](bool keep, const char* word, const char* what, auto&& change) {
    if (keep) return;
    const ProductSpecs before = specs;
    for (OperandSpec* s :
         {&specs.forward_x, &specs.forward_w, &specs.data_dy, &specs.data_w, &specs.weight_dy, &specs.weight_x})
      change(*s);
    if (specs == before)
      fail(word, {.what = fmt::format("{} has no {}", printable(recipe), what), .hint = "leaving it out"});
    without += fmt::format("{}{}", without.empty() ? ", without " : " and ", what);
  };
  leave_out(parts.stochastic, "precision.stochastic", "stochastic rounding",
            [](OperandSpec& s) { s.stochastic = false; });
  leave_out(parts.hadamard, "precision.hadamard", "Hadamard transform", [](OperandSpec& s) { s.hadamard = false; });
  leave_out(parts.square_weights, "precision.weight_scales", "weight scales in two dimensions", [&](OperandSpec& s) {
    if (s.scaling == square) s.scaling = &s == &specs.forward_w ? along_cols : along_rows;
  });
  return specs;
}

// Gradients for data and for weights use different noise, and so do micro-batches, since each begins with its own
// sample, and the steps of a loop over the same weights.
Noise noise_of(const LowWeight& low, uint32_t product, std::span<const Seq> seqs) {
  const Seq first = seqs.empty() ? Seq() : seqs[0];
  const auto r = philox({.seed = low.precision->seed(), .stream = static_cast<uint32_t>(low.precision->step())},
                        static_cast<uint64_t>(first.sample_id), low.use);
  return {.key = {.seed = static_cast<uint64_t>(r[1]) << 32 | r[0], .stream = low.stream + product},
          .row0 = first.pos0};
}

Tensor quantized(Ctx& ctx, const OperandSpec& spec, const View& x, DType dtype, const Noise& noise = {}) {
  const Tensor q(ctx.arena, dtype, {quantized_rows(spec, x.dim(0)), x.dim(1)});
  run(ctx, Quantize{.x = x, .q = q.mut(), .spec = spec, .noise = noise});
  return q;
}

}  // namespace

bool is_low_precision(const std::string& recipe) { return find_row(recipe) != nullptr; }

Precision::Precision(const std::string& recipe, std::span<Param* const> params, uint64_t seed, const RecipeParts& parts)
    : recipe_(recipe), seed_(seed) {
  const Row* row = find_row(recipe);
  const ProductSpecs specs = specs_of(recipe, row ? *row->specs : ProductSpecs(), parts, without_);
  if (!row) return;
  int64_t layers = 0;
  for (const Param* p : params) {
    if (!stays_high(*p)) layers = std::max<int64_t>(layers, p->layer + 1);
  }
  first_ = row->ends.kept(row->ends.first, layers);
  last_ = row->ends.kept(row->ends.last, layers);
  for (size_t i = 0; i < params.size(); ++i) {
    const Param& p = *params[i];
    if (std::min(p.value.rows, p.value.cols) < kShortest) continue;
    ++matrices_;
    values_ += p.value.rows * p.value.cols;
    if (p.layer < first_ || p.layer >= layers - last_ || stays_high(p)) continue;
    if (row->four_bits && stays_high_of_four(p.role)) continue;
    const bool eight = row->four_bits && p.role == ParamRole::mamba_out;
    low_[&p] = {.precision = this, .specs = eight ? kMxfp8 : specs, .stream = static_cast<uint32_t>(2 * i)};
    low_values_ += p.value.rows * p.value.cols;
  }
}

LowWeight Precision::find(const Param& w) const {
  const auto found = low_.find(&w);
  return found == low_.end() ? LowWeight() : found->second;
}

void Precision::replace(const ProductSpecs& specs) {
  for (auto& [param, low] : low_) low.specs = specs;
}

std::string Precision::describe() const {
  if (matrices_ == 0) return recipe_ + ": nothing is quantised";
  return fmt::format(
      "{}{}, emulated (numerics only, nothing is faster): {} of {} matrices, {:.0f}% of their values; the first {} and "
      "last {} layers stay in high precision",
      recipe_, without_, low_.size(), matrices_,
      100.0 * static_cast<double>(low_values_) / static_cast<double>(values_), first_, last_);
}

void product(Ctx& ctx, const LowWeight& low, LinearFwd op) {
  if (!low) return run(ctx, op);
  const Tensor x = quantized(ctx, low.specs.forward_x, op.x, op.x.dtype),
               w = quantized(ctx, low.specs.forward_w, op.w.codes, op.w.codes.dtype);
  op.x = x.view();
  op.w = dense_weight(w.view());
  run(ctx, op);
}

void product(Ctx& ctx, const LowWeight& low, LinearBwdData op, std::span<const Seq> seqs) {
  if (!low) return run(ctx, op);
  const Tensor dy = quantized(ctx, low.specs.data_dy, op.dy, op.w.codes.dtype, noise_of(low, 0, seqs)),
               w = quantized(ctx, low.specs.data_w, op.w.codes, op.w.codes.dtype);
  op.dy = dy.view();
  op.w = dense_weight(w.view());
  run(ctx, op);
}

// A bias sums unquantised gradients; the product with one column of x that comes with it is discarded.
void product(Ctx& ctx, const LowWeight& low, const LinearBwdWeight& op, std::span<const Seq> seqs) {
  if (!low) return run(ctx, op);
  if (op.dbias) {
    const Tensor unused(ctx.arena, DType::f32, {op.dw.dim(0), 1});
    if (!ctx.dry) fill(unused.mut(), 0);
    run(ctx,
        LinearBwdWeight{.dy = op.dy, .x = op.x.slice(1, 0, 1), .dw = unused.mut(), .dbias = op.dbias, .seqs = op.seqs});
  }
  const Tensor dy = quantized(ctx, low.specs.weight_dy, op.dy, op.x.dtype, noise_of(low, 1, seqs)),
               x = quantized(ctx, low.specs.weight_x, op.x, op.x.dtype);
  run(ctx, LinearBwdWeight{.dy = dy.view(), .x = x.view(), .dw = op.dw});
}

void product(Ctx& ctx, const LowExperts& low, const ExpertsFwd& op) {
  const LowWeight up = low.find(low.up);
  if (!up) return run(ctx, op);
  run(ctx, LowExpertsFwd{.x = op.x,
                         .experts = op.experts,
                         .weights = op.weights,
                         .up = op.up,
                         .gate = op.gate,
                         .down = op.down,
                         .y = op.y,
                         .specs = up.specs,
                         .silu = op.act == ExpertAct::silu});
}

void product(Ctx& ctx, const LowExperts& low, const ExpertsBwd& op, std::span<const Seq> seqs) {
  const LowWeight up = low.find(low.up);
  if (!up) return run(ctx, op);
  const Noise noise = noise_of(up, 0, seqs);
  run(ctx, LowExpertsBwd{.dy = op.dy,
                         .x = op.x,
                         .experts = op.experts,
                         .weights = op.weights,
                         .up = op.up,
                         .gate = op.gate,
                         .down = op.down,
                         .dx = op.dx,
                         .dweights = op.dweights,
                         .dup = op.dup,
                         .dgate = op.dgate,
                         .ddown = op.ddown,
                         .specs = up.specs,
                         .noise = {.seed = noise.key.seed,
                                   .up = up.stream,
                                   .gate = low.find(low.gate).stream,
                                   .down = low.find(low.down).stream},
                         .silu = op.act == ExpertAct::silu});
}

}  // namespace braid::nn
