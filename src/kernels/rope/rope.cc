#include "kernels/rope/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/ref.h"
#include "kernels/rope/rope_ref.h"
#include "kernels/rope/rope_rows.h"

namespace braid {
namespace {

template <class Op>
void run_ref(Ctx&, const Op& problem, std::span<std::byte>) {
  const RopeArgs op = args_of(problem);
  check_rope(op);
  const int64_t heads = op.x.dim(1), width = op.x.dim(2), half = op.cos.dim(1);
  const std::vector<double> cos = to_doubles(op.cos);
  std::vector<double> sin = to_doubles(op.sin);
  for (double& s : sin) s *= static_cast<double>(op.sign);
  std::vector<double> x = to_doubles(op.x);
  for (const Seq& seq : op.seqs->seqs) {
    for (int64_t t = 0; t < seq.len; ++t) {
      const auto at = static_cast<size_t>((seq.pos0 + t) * half);
      for (int64_t h = 0; h < heads; ++h) {
        rope_ref(half, op.adjacent, &cos[at], &sin[at], &x[static_cast<size_t>(((seq.start + t) * heads + h) * width)]);
      }
    }
  }
  store(op.x, x);
}

template <class Op>
void run_hwy(Ctx& ctx, const Op& op, std::span<std::byte>) {
  rope_hwy(ctx, args_of(op));
}

template <class Op>
const char* hwy_supports(const Op& problem) {
  const RopeArgs op = args_of(problem);
  return op.x.rows_contiguous() && op.cos.rows_contiguous() && op.sin.rows_contiguous() ? nullptr : "strided rows";
}

}  // namespace

void check_rope(const RopeArgs& args) {
  CHECK(args.seqs, "{}: no sequence map", args.op);
  CHECK(args.x.dtype == DType::f32 || args.x.dtype == DType::bf16, "{}: heads are {}", args.op, name_of(args.x.dtype));
  CHECK(args.cos.dtype == DType::f32 && args.sin.dtype == DType::f32, "{}: tables are not F32", args.op);
  CHECK(2 * args.cos.dim(1) <= args.x.dim(2), "{}: {} pairs in {} channels", args.op, args.cos.dim(1), args.x.dim(2));
  CHECK(args.seqs->tokens() <= args.x.dim(0), "{}: {} tokens, {} rows", args.op, args.seqs->tokens(), args.x.dim(0));
  for (const Seq& seq : args.seqs->seqs) {
    CHECK(seq.pos0 >= 0 && seq.pos0 + seq.len <= args.cos.dim(0), "{}: position {} in a table of {}", args.op,
          seq.pos0 + seq.len - 1, args.cos.dim(0));
  }
}

double yarn_attention_factor(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

// The part of a frequency that is slowed down: a ramp over the indices between those of beta_fast and beta_slow.
static double yarn_ramp(const RopeOptions& options, int64_t i, int64_t pairs) {
  const auto channels = static_cast<double>(2 * pairs);
  const auto index_of = [&](double turns) {
    return channels * std::log(options.original_max_position_embeddings / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(options.theta));
  };
  double low = index_of(options.beta_fast), high = index_of(options.beta_slow);
  if (options.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, channels - 1);
  if (low == high) high += 0.001;
  return std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
}

double rope_frequency(const RopeOptions& options, int64_t i, int64_t pairs) {
  const double base = std::pow(options.theta, -static_cast<double>(i) / static_cast<double>(pairs));
  if (options.scaling == RopeScaling::none) return base;
  if (options.scaling == RopeScaling::linear) return base / options.factor;
  if (options.scaling == RopeScaling::yarn) {
    const double slowed = yarn_ramp(options, i, pairs);
    return base / options.factor * slowed + base * (1 - slowed);
  }
  const double wave = 2 * std::numbers::pi / base, original = options.original_max_position_embeddings;
  if (wave > original / options.low_freq_factor) return base / options.factor;
  if (wave < original / options.high_freq_factor) return base;
  const double blend =
      (original / wave - options.low_freq_factor) / (options.high_freq_factor - options.low_freq_factor);
  return (1 - blend) * base / options.factor + blend * base;
}

void rope_tables(const RopeOptions& options, const MutView& cos, const MutView& sin) {
  CHECK(cos.shape == sin.shape && cos.shape.rank == 2, "cos {}, sin {}", to_string(cos.shape), to_string(sin.shape));
  const int64_t half = cos.dim(1);
  for (int64_t i = 0; i < half; ++i) {
    const double f = rope_frequency(options, i, half);
    for (int64_t pos = 0; pos < cos.dim(0); ++pos) {
      const double angle = static_cast<double>(pos) * f;
      cos.as<float>(pos)[i] = static_cast<float>(options.attention_factor * std::cos(angle));
      sin.as<float>(pos)[i] = static_cast<float>(options.attention_factor * std::sin(angle));
    }
  }
}

std::span<const Row<RopeFwd>> RopeFwd::rows() {
  static constexpr Row<RopeFwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports<RopeFwd>, .run = &run_hwy<RopeFwd>},
      {.name = "ref", .numerics = "f64", .run = &run_ref<RopeFwd>},
  };
  return kRows;
}

std::span<const Row<RopeBwd>> RopeBwd::rows() {
  static constexpr Row<RopeBwd> kRows[] = {
      {.name = "hwy", .numerics = "f32", .supports = &hwy_supports<RopeBwd>, .run = &run_hwy<RopeBwd>},
      {.name = "ref", .numerics = "f64", .run = &run_ref<RopeBwd>},
  };
  return kRows;
}

}  // namespace braid
