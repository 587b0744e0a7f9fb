#include "kernels/head_loss/distill_loss.h"

#include <algorithm>
#include <array>

#include "codec/codec.h"
#include "core/ref.h"
#include "kernels/head_loss/distill_loss_ref.h"
#include "kernels/head_loss/head_loss_rows.h"
#include "math/packed_rows.h"
#include "math/pieces.h"

namespace braid {
namespace {

void check_teacher(const DistillLoss& op) {
  const bool head = op.teacher_x && op.teacher_w, entries = op.top_ids && op.top_logprobs;
  CHECK(head != entries, "distill_loss: a head or entries, not both or neither");
  CHECK(op.temperature > 0, "distill_loss: temperature {}", op.temperature);
  for (int64_t t = 0; t < op.targets.dim(0); ++t) {
    const int32_t target = *op.targets.as<int32_t>(t);
    CHECK(target >= -1 && target < op.w.rows, "distill_loss: target {} of {}", target, op.w.rows);
  }
  if (!entries) return;
  CHECK(op.top_ids.dtype == DType::i32 && op.top_logprobs.dtype == DType::f32, "distill_loss: types of entries");
  CHECK(op.top_ids.dim(1) <= kDistillEntries, "distill_loss: {} entries", op.top_ids.dim(1));
  for (int64_t t = 0; t < op.top_ids.dim(0); ++t) {
    for (int64_t k = 0; k < op.top_ids.dim(1); ++k) {
      const int32_t id = op.top_ids.as<int32_t>(t)[k];
      CHECK(id >= -1 && id < op.w.rows, "distill_loss: entry {} of {}", id, op.w.rows);
    }
  }
}

std::vector<double> logits_of(const std::vector<double>& x, const std::vector<double>& w, int64_t t, int64_t vocab) {
  const int64_t depth = std::ssize(w) / vocab;
  std::vector<double> logits(static_cast<size_t>(vocab));
  for (int64_t v = 0; v < vocab; ++v) {
    for (int64_t d = 0; d < depth; ++d)
      logits[static_cast<size_t>(v)] += x[static_cast<size_t>(t * depth + d)] * w[static_cast<size_t>(v * depth + d)];
  }
  return logits;
}

Taught taught_by(const DistillLoss& op, const std::vector<double>& teacher_x, const std::vector<double>& teacher_w,
                 int64_t t) {
  Taught taught;
  if (op.top_ids) {
    for (int64_t k = 0; k < op.top_ids.dim(1); ++k) {
      if (op.top_ids.as<int32_t>(t)[k] < 0) continue;
      taught.ids.push_back(op.top_ids.as<int32_t>(t)[k]);
      taught.logprobs.push_back(static_cast<double>(op.top_logprobs.as<float>(t)[k]));
    }
    return taught;
  }
  const std::vector<double> logits = logits_of(teacher_x, teacher_w, t, op.w.rows);
  const double temperature = static_cast<double>(op.temperature), lse = log_sum(logits, temperature);
  for (size_t v = 0; v < logits.size(); ++v) {
    taught.ids.push_back(static_cast<int32_t>(v));
    taught.logprobs.push_back(logits[v] / temperature - lse);
  }
  return taught;
}

// dlogits of one token.
std::vector<double> gradient_of(const DistillLoss& op, const std::vector<double>& logits, const Taught& taught,
                                double log_tail, int32_t target) {
  const double temperature = static_cast<double>(op.temperature), lse = log_sum(logits, temperature),
               lse_one = log_sum(logits, 1);
  const double kl = static_cast<double>(op.kl_weight) * temperature, ce = static_cast<double>(op.ce_weight);
  const double left = op.top_ids && log_tail > -INFINITY ? taught.tail() : 0;
  double mass = left;
  for (const double l : taught.logprobs) mass += std::exp(l);
  std::vector<double> g(logits.size());
  std::vector<double> p(logits.size());
  for (size_t v = 0; left > 0 && v < p.size(); ++v) p[v] = left * std::exp(logits[v] / temperature - lse - log_tail);
  for (size_t k = 0; k < taught.ids.size(); ++k) p[static_cast<size_t>(taught.ids[k])] = std::exp(taught.logprobs[k]);
  for (size_t v = 0; v < g.size(); ++v)
    g[v] = kl * (mass * std::exp(logits[v] / temperature - lse) - p[v]) + ce * std::exp(logits[v] - lse_one);
  g[static_cast<size_t>(target)] -= ce;
  return g;
}

void run_ref(Ctx&, const DistillLoss& op, std::span<std::byte>) {
  check_teacher(op);
  const int64_t tokens = op.x.dim(0), vocab = op.w.rows, depth = op.w.cols;
  const auto x = to_doubles(op.x), w = decode(op.w), weights = to_doubles(op.token_weight);
  const auto teacher_x = to_doubles(op.teacher_x),
             teacher_w = op.teacher_x ? decode(op.teacher_w) : std::vector<double>();
  std::vector<double> kl(static_cast<size_t>(tokens)), ce(kl), dx(x.size());
  for_each_piece(op.seqs, tokens, [&](int64_t first, int64_t n) {
    std::vector<double> dw(op.dw ? w.size() : 0);
    for (int64_t t = first; t < first + n; ++t) {
      const auto i = static_cast<size_t>(t);
      const int32_t target = *op.targets.as<int32_t>(t);
      if (target < 0) continue;
      const std::vector<double> logits = logits_of(x, w, t, vocab);
      const Taught taught = taught_by(op, teacher_x, teacher_w, t);
      double log_tail = 0;
      distill_loss_ref(logits, static_cast<double>(op.temperature), taught, target, kl[i], ce[i], log_tail);
      const std::vector<double> g = gradient_of(op, logits, taught, log_tail, target);
      for (int64_t v = 0; v < vocab; ++v) {
        const double dlogit = (weights.empty() ? 1 : weights[i]) * g[static_cast<size_t>(v)];
        for (int64_t d = 0; d < depth; ++d) {
          const auto at = static_cast<size_t>(v * depth + d), on = static_cast<size_t>(t * depth + d);
          dx[on] += dlogit * w[at];
          if (op.dw) dw[at] += dlogit * x[on];
        }
      }
    }
    accumulate(op.dw, dw);
  });
  store(op.kl, kl);
  store(op.ce, ce);
  store(op.dx, dx);
}

HeadProblem problem_of(const DistillLoss& op) {
  HeadProblem problem{HeadLoss{.x = op.x,
                               .w = op.w,
                               .targets = op.targets,
                               .token_weight = op.token_weight,
                               .loss = op.kl,
                               .dx = op.dx,
                               .dw = op.dw,
                               .seqs = op.seqs}};
  problem.distills = true;
  problem.teacher_x = op.teacher_x;
  problem.teacher_w = op.teacher_w;
  problem.top_ids = op.top_ids;
  problem.top_logprobs = op.top_logprobs;
  problem.ce = op.ce;
  problem.temperature = op.temperature;
  problem.kl_weight = op.kl_weight;
  problem.ce_weight = op.ce_weight;
  return problem;
}

struct Packed {
  static const char* supports(packed::Class c, const DistillLoss& op) {
    return head_loss_packed_supports(c, problem_of(op));
  }
  static int64_t workspace(packed::Class c, const DistillLoss& op, int threads) {
    return head_loss_packed_workspace(c, problem_of(op), threads);
  }
  static void run(packed::Class c, Ctx& ctx, const DistillLoss& op, std::span<std::byte> space) {
    check_teacher(op);
    head_loss_packed(c, ctx, problem_of(op), space);
  }
};

constexpr std::array<Row<DistillLoss>, 5> kRows = {
    packed::kTileRow<DistillLoss, Packed>, packed::kDotRow<DistillLoss, Packed>, packed::kBf16Row<DistillLoss, Packed>,
    packed::kF32Row<DistillLoss, Packed>, Row<DistillLoss>{.name = "ref", .numerics = "f64", .run = &run_ref}};

}  // namespace

std::span<const Row<DistillLoss>> DistillLoss::rows() { return kRows; }

}  // namespace braid
