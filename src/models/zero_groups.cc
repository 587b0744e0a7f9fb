#include "models/zero_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "core/grouped_rows.h"
#include "math/grouped_rows.h"
#include "math/panel.h"
#include "sys/machine.h"
#include "sys/parallel.h"

namespace braid::models {
namespace {

struct Held {
  std::shared_ptr<const GroupedRows> rows;
  GroupedView view;
};

// Tables are looked up, experts are products of an op that reads no groups, and what routers choose must not depend on
// the order of a sum more than it does.
bool is_multiplied(const Param& p) {
  switch (p.role) {
    case ParamRole::embedding:
    case ParamRole::positions:
    case ParamRole::router:
      return false;
    default:
      return is_matrix(p.role) && p.experts == 0 && !p.adapter;
  }
}

int64_t zeros_of(const View& row) {
  const auto count = [&row](const auto* v, auto zero) { return std::count_if(v, v + row.count(), zero); };
  return row.dtype == DType::f32 ? count(row.as<float>(), [](float v) { return v == 0; })
                                 : count(row.as<Bf16>(), [](Bf16 v) { return (v.bits & 0x7fff) == 0; });
}

// Of rows all over the matrix. One in twenty is more than values that were trained have, and less than a pattern of any
// use leaves out.
bool has_zeros(const Weight& w) {
  constexpr int64_t kRows = 16;
  if (!codec_of(w).in_place || w.codes.device != Device::cpu) return false;
  const int64_t rows = std::min(kRows, w.rows);
  int64_t zeros = 0;
  for (int64_t i = 0; i < rows; ++i) zeros += zeros_of(w.codes.slice(0, (2 * i + 1) * w.rows / (2 * rows), 1));
  return zeros * 20 > rows * w.cols;
}

}  // namespace

std::string summary(const ZeroGroups& z) {
  constexpr double kMib = 1 << 20;
  if (z.grouped == 0) return fmt::format("products multiply by all of {} matrices with zeros", z.scanned);
  return fmt::format("{} of {} matrices skip theirs; {:.1f}% of values stay, and {:.2f} of {:.2f} MiB", z.grouped,
                     z.matrices, 100 * static_cast<double>(z.stored) / static_cast<double>(z.values),
                     static_cast<double>(z.bytes) / kMib, static_cast<double>(z.own) / kMib);
}

// Measured on a Zen 3 and a Zen 5 (src/kernels/linear/README.md). Beside tiles it was not: they multiply faster still,
// so only what is nearly empty is left to skip.
double density_most(DType x, Format w) {
  if (x == DType::f32 || w == Format::f32) return sys::machine().cpu_class >= sys::CpuClass::avx512 ? 0.8 : 0.4;
  if (sys::machine().amx) return 0.1;
  return panel_class(DType::bf16) == PanelClass::bf16_dot ? 0.4 : 0.65;
}

ZeroGroups skip_zeros(Model& model, Zeros zeros, DType products, int threads) {
  ZeroGroups found;
  if (zeros == Zeros::multiplied) return found;
  std::vector<std::pair<Param*, std::shared_ptr<const Held>>> list;
  for (Param* p : model.params()) {
    if (!is_multiplied(*p)) continue;
    ++found.matrices;
    if (has_zeros(p->value)) list.emplace_back(p, nullptr);
  }
  std::atomic<bool> full = false;  // an exception may not leave a task
  sys::parallel_tasks(threads, std::ssize(list), [&](int64_t i) {
    auto& [p, held] = list[static_cast<size_t>(i)];
    const Format format = p->value.spec.format;
    try {
      auto rows = find_groups(p->value, zeros == Zeros::skipped ? 1 : density_most(products, format));
      if (rows) held = std::make_shared<Held>(Held{.rows = rows, .view = rows->view()});
    } catch (const std::bad_alloc&) {
      full = true;
    }
  });
  if (full) throw std::bad_alloc();
  found.scanned = std::ssize(list);
  for (const auto& [p, held] : list) {
    if (!held) continue;
    Weight& w = p->value;
    ++found.grouped;
    found.values += w.rows * w.cols;
    found.stored += held->view.values.count();
    found.bytes += held->view.bytes();
    found.own += w.bytes();
    w.groups = &held->view;
    model.store->keep(held);
  }
  return found;
}

}  // namespace braid::models
