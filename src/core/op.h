// The op mechanism. An op is a plain struct (its contract) and a table of rows (its variants):
//
//   struct RmsNormFwd {
//     View x{}, w{}; MutView y{}, rstd{}; float eps = 1e-5f;
//     static constexpr const char* name = "rms_norm_fwd";
//     static constexpr auto fields() {
//       return std::tuple{in("x", &RmsNormFwd::x, "T D"), in("w", &RmsNormFwd::w, "D"),
//                         out("y", &RmsNormFwd::y, "T D"), optional_out("rstd", &RmsNormFwd::rstd, "T")};
//     }
//     static std::span<const Row<RmsNormFwd>> rows();
//   };
//   run(ctx, RmsNormFwd{.x = x, .w = w, .y = y});
//
// `fields` is read for the shape check, for poisoning, byte counts, printing and the sweep test (core/op_sweep.h). In
// `dims` every letter is a dimension (ARCHITECTURE.md, Letters of dimensions); equal letters must agree across fields.
// The first row that accepts wins; the reference is last and accepts every CPU problem. A profile (sys/env.h) names a
// row to try before the others, BRAID_OP_<NAME>=<row> the only one, BRAID_VERBOSE=dispatch prints choice and refusals.
// `numerics` names the row's class: within one class a token's result depends on its sequence and the weights alone,
// and rows of one class agree bit for bit.
#pragma once
#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "core/ctx.h"
#include "core/tensor.h"
#include "core/view.h"
#include "core/weight.h"

namespace braid {

enum class Role : uint8_t { in, out, saved, inout };

template <class Op, class Value>
struct Field {
  const char* name;
  Value Op::*member;
  const char* dims;
  Role role;
  bool optional;
};

// Inputs: views, weights, lists of weights. `maybe` may be left empty.
template <class Op, class Value>
constexpr Field<Op, Value> in(const char* name, Value Op::*member, const char* dims) {
  return {name, member, dims, Role::in, false};
}
template <class Op, class Value>
constexpr Field<Op, Value> maybe(const char* name, Value Op::*member, const char* dims) {
  return {name, member, dims, Role::in, true};
}
// Outputs are overwritten. `optional_out` may be left empty: what only a backward pass needs, for instance. `inout`
// accumulates or is a state, or a list of such.
template <class Op>
constexpr Field<Op, MutView> out(const char* name, MutView Op::*member, const char* dims) {
  return {name, member, dims, Role::out, false};
}
template <class Op>
constexpr Field<Op, MutView> optional_out(const char* name, MutView Op::*member, const char* dims) {
  return {name, member, dims, Role::saved, true};
}
template <class Op>
constexpr Field<Op, MutView> inout(const char* name, MutView Op::*member, const char* dims) {
  return {name, member, dims, Role::inout, false};
}
template <class Op>
constexpr Field<Op, MutView> maybe_inout(const char* name, MutView Op::*member, const char* dims) {
  return {name, member, dims, Role::inout, true};
}
template <class Op>
constexpr Field<Op, std::span<const MutView>> maybe_inout(const char* name, std::span<const MutView> Op::*member,
                                                          const char* dims) {
  return {name, member, dims, Role::inout, true};
}

template <class Op>
struct Row {
  const char* name;
  const char* numerics;
  const char* (*supports)(const Op&) = nullptr;            // null: always; else returns null, or why not
  int64_t (*workspace)(const Op&, int threads) = nullptr;  // bytes; null: none
  void (*run)(Ctx&, const Op&, std::span<std::byte> workspace) = nullptr;  // null: not built here
  Device device = Device::cpu;
};

template <class Op, class Visit>
void for_each_field(const Op& op, Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field, op.*(field.member)), ...); }, Op::fields());
}

// Letters bound to sizes while the fields of one call are checked.
class DimCheck {
 public:
  explicit DimCheck(const char* op) : op_(op) {}
  void view(const char* field, const char* dims, const Shape& shape);

 private:
  const char* op_;
  struct Bound {
    std::string_view letter;
    int64_t size;
  };
  std::array<Bound, 24> bound_{};
  int count_ = 0;
};

namespace detail {

inline bool present(const View& v) { return static_cast<bool>(v); }
inline bool present(const MutView& v) { return static_cast<bool>(v); }
inline bool present(const Weight& w) { return static_cast<bool>(w); }
inline bool present(std::span<const Weight> list) { return !list.empty(); }
inline bool present(std::span<const MutView> list) { return !list.empty(); }

inline Shape shape_of(const View& v) { return v.shape; }
inline Shape shape_of(const MutView& v) { return v.shape; }
inline Shape shape_of(const Weight& w) { return {w.rows, w.cols}; }
inline Shape shape_of(std::span<const Weight> list) {
  return {static_cast<int64_t>(list.size()), list[0].rows, list[0].cols};
}
inline Shape shape_of(std::span<const MutView> list) {
  return {static_cast<int64_t>(list.size()), list[0].dim(0), list[0].dim(1)};
}

inline Device device_of(const View& v) { return v.device; }
inline Device device_of(const MutView& v) { return v.device; }
inline Device device_of(const Weight& w) { return w.codes.device; }
inline Device device_of(std::span<const Weight> list) { return list[0].codes.device; }
inline Device device_of(std::span<const MutView> list) { return list[0].device; }

inline bool lies_on(Device device, const View& v) { return v.device == device; }
inline bool lies_on(Device device, const MutView& v) { return v.device == device; }
inline bool lies_on(Device device, const Weight& w) {
  return w.codes.device == device && (!w.scales || w.scales.device == device);
}
template <class Value>
bool lies_on(Device device, std::span<const Value> list) {
  for (const Value& v : list) {
    if (!lies_on(device, v)) return false;
  }
  return true;
}

inline int64_t bytes_of(const View& v) { return v.bytes(); }
inline int64_t bytes_of(const MutView& v) { return v.bytes(); }
inline int64_t bytes_of(const Weight& w) { return w.bytes(); }
inline int64_t bytes_of(std::span<const Weight> list) {
  int64_t sum = 0;
  for (const Weight& w : list) sum += w.bytes();
  return sum;
}
inline int64_t bytes_of(std::span<const MutView> list) {
  int64_t sum = 0;
  for (const MutView& v : list) sum += v.bytes();
  return sum;
}

// The row that `rows` names for an op; null if none. Nothing is allocated, even for a long name.
inline const std::string* find_row(const std::map<std::string, std::string>& rows, const char* op) {
  for (const auto& entry : rows) {
    if (entry.first == op) return &entry.second;
  }
  return nullptr;
}

// Rows that refused, and why.
class Refusals {
 public:
  void add(const char* row, const char* reason) {
    CHECK(count_ < list_.size(), "more rows than {}", list_.size());
    list_[count_++] = {row, reason};
  }
  std::string text() const;

 private:
  struct Refusal {
    const char *row = nullptr, *reason = nullptr;
  };
  std::array<Refusal, 32> list_{};
  size_t count_ = 0;
};

void poison(const MutView& v);
[[noreturn]] void missing_field(const char* op, const char* field);
[[noreturn]] void mixed_devices(const char* op, const char* field, const char* first, Device device);
[[noreturn]] void unknown_row(const char* op, const std::string& row, const std::string& known);
[[noreturn]] void no_row(const char* op, const std::string& refusals);
void print_choice(const char* op, const char* row, const char* numerics, const std::string& refusals);

}  // namespace detail

template <class Op>
void check_fields(const Op& op) {
  DimCheck check(Op::name);
  for_each_field(op, [&](const auto& field, const auto& value) {
    if (detail::present(value)) {
      check.view(field.name, field.dims, detail::shape_of(value));
    } else if (!field.optional) {
      detail::missing_field(Op::name, field.name);
    }
  });
}

template <class Op>
int64_t bytes_of(const Op& op) {
  int64_t sum = 0;
  for_each_field(op, [&](const auto&, const auto& value) {
    if (detail::present(value)) sum += detail::bytes_of(value);
  });
  return sum;
}

// Why a row cannot run a problem on this device; null if it can.
template <class Op>
const char* refusal(const Row<Op>& row, const Op& op, Device device) {
  if (row.device != device) return "other device";
  if (!row.run) return "not built";
  return row.supports ? row.supports(op) : nullptr;
}

// The row of that name. Error listing the known rows.
template <class Op>
const Row<Op>& row_named(const std::string& name) {
  std::string known;
  for (const Row<Op>& row : Op::rows()) {
    if (row.name == name) return row;
    known += std::string(known.empty() ? "" : ", ") + row.name;
  }
  detail::unknown_row(Op::name, name, known);
}

// The device of a call's fields: the same for all, or it is a bug.
template <class Op>
Device device_of_all(const Op& op) {
  Device device = Device::cpu;
  const char* first = nullptr;
  for_each_field(op, [&](const auto& field, const auto& value) {
    if (!detail::present(value)) return;
    if (!first) {
      first = field.name;
      device = detail::device_of(value);
    }
    if (!detail::lies_on(device, value)) detail::mixed_devices(Op::name, field.name, first, device);
  });
  return device;
}

template <class Op>
const Row<Op>& choose(const Ctx& ctx, const Op& op) {
  const Device device = device_of_all(op);
  detail::Refusals refusals;
  const auto accepts = [&](const Row<Op>& row) {
    const char* reason = refusal(row, op, device);
    if (reason) refusals.add(row.name, reason);
    if (!reason && ctx.verbose_dispatch) detail::print_choice(Op::name, row.name, row.numerics, refusals.text());
    return !reason;
  };
  if (const std::string* forced = detail::find_row(ctx.forced_rows, Op::name)) {
    const Row<Op>& row = row_named<Op>(*forced);
    if (accepts(row)) return row;
    detail::no_row(Op::name, refusals.text());
  }
  if (const std::string* preferred = detail::find_row(ctx.preferred_rows, Op::name)) {
    const Row<Op>& row = row_named<Op>(*preferred);
    if (accepts(row)) return row;
  }
  for (const Row<Op>& row : Op::rows()) {
    if (accepts(row)) return row;
  }
  detail::no_row(Op::name, refusals.text());
}

template <class Op>
void run_row(Ctx& ctx, const Op& op, const Row<Op>& row) {
  if (ctx.poison && !ctx.dry) {
    for_each_field(op, [](const auto& field, const auto& value) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, MutView>) {
        if (field.role != Role::inout && value && value.device == Device::cpu) detail::poison(value);
      }
    });
  }
  const int64_t bytes = row.workspace ? row.workspace(op, ctx.threads) : 0;
  if (bytes == 0) return ctx.dry ? void() : row.run(ctx, op, {});
  const Tensor scratch(ctx.arena, DType::u8, {bytes});
  if (!ctx.dry) row.run(ctx, op, {scratch.mut().data, static_cast<size_t>(bytes)});
}

template <class Op>
void run(Ctx& ctx, const Op& op) {
  check_fields(op);
  const Row<Op>& row = choose(ctx, op);
  ++ctx.counts.ops;
  ctx.counts.bytes += bytes_of(op);
  ctx.counts.flops += op.flops();
  if (ctx.dry) ctx.dry->push_back({Op::name, row.name});
  run_row(ctx, op, row);
}

}  // namespace braid
