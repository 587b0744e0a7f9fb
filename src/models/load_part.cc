#include "models/load_part.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "models/inventory.h"
#include "models/load.h"
#include "sys/error.h"

namespace braid::models {
namespace {

int64_t sum_of(const std::vector<Range>& ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), int64_t{0},
                         [](int64_t sum, const Range& r) { return sum + r.count; });
}

// Columns [begin, begin + count) of `values` columns are these bytes of a row.
Range bytes_of_columns(const View& codes, int64_t values, const Range& columns) {
  const int64_t row = codes.dim(1) * size_of(codes.dtype);
  return {columns.begin * row / values, columns.count * row / values};
}

// The parts of each row, side by side.
View gathered(WeightStore& store, const View& from, int64_t values, const std::vector<Range>& held,
              const Range& within) {
  const int64_t size = size_of(from.dtype), stride = from.stride(0) * size;
  std::vector<Range> bytes;
  bytes.reserve(held.size());
  for (const Range& columns : held) bytes.push_back(bytes_of_columns(from, values, columns));
  const MutView to = store.make(from.dtype, {within.count, sum_of(bytes) / size});
  std::byte* at = to.data;
  for (int64_t row = within.begin; row < within.begin + within.count; ++row) {
    for (const Range& part : bytes) {
      std::memcpy(at, from.data + row * stride + part.begin, static_cast<size_t>(part.count));
      at += part.count;
    }
  }
  return to;
}

View stacked(WeightStore& store, const View& from, const std::vector<Range>& held) {
  const int64_t row = from.dim(1) * size_of(from.dtype), stride = from.stride(0) * size_of(from.dtype);
  const MutView to = store.make(from.dtype, {sum_of(held), from.dim(1)});
  std::byte* at = to.data;
  for (const Range& part : held) {
    for (int64_t r = part.begin; r < part.begin + part.count; ++r, at += row)
      std::memcpy(at, from.data + r * stride, static_cast<size_t>(row));
  }
  return to;
}

}  // namespace

int64_t block_columns(const Weight& w) { return std::max(1, w.spec.block); }

Weight columns_of(WeightStore& store, const Weight& w, const std::vector<Range>& held, const Range& within) {
  const int64_t block = block_columns(w);
  for (const Range& r : held)
    CHECK(r.begin % block == 0 && r.count % block == 0, "columns {} + {} of blocks of {}", r.begin, r.count, block);
  Weight part = w;
  part.rows = within.count;
  part.cols = sum_of(held);
  part.codes = gathered(store, w.codes, w.cols, held, within);
  if (w.scales) part.scales = gathered(store, w.scales, w.cols, held, within);
  return part;
}

Weight rows_of(WeightStore& store, const Weight& w, const std::vector<Range>& held, bool copies) {
  if (held.size() == 1 && !copies) return w.rows_of(held[0].begin, held[0].count);
  Weight part = w;
  part.rows = sum_of(held);
  part.codes = stacked(store, w.codes, held);
  if (w.scales) part.scales = stacked(store, w.scales, held);
  return part;
}

namespace {

class PartSource final : public nn::ParamSource {
 public:
  // `files` makes what it converts in `scratch`.
  PartSource(WeightStore& store, WeightStore& scratch, nn::ParamSource& files, const Config& whole, const Config& own,
             const Division& division, int64_t rank)
      : store_(store),
        scratch_(scratch),
        files_(files),
        own_(own),
        tensor_(division.tensor(rank)),
        stage_(division.of_stage(rank)) {
    for (TensorSpec& t : stored_inventory(whole, files)) whole_.emplace(t.name, std::move(t));
  }

  bool has(const std::string& name) const override { return files_.has(name); }
  float cache_factor(const std::string& name) const override { return files_.cache_factor(name); }

  // Error where a cut would lie inside a block.
  void check() {
    for (const auto& [name, all] : whole_) {
      const auto part = columns(all);
      if (part && is_matrix(all.role)) check_blocks(all, files_.get(all), *part);
    }
  }

 protected:
  Param first(const nn::ParamRequest& r) override {
    const nn::ParamRequest& all = whole_.at(r.name);
    const Param p = files_.get(all);
    const bool converted = scratch_.has_made();
    Param own = r.param(part_of(all, p, converted));
    own.name = p.name;
    scratch_.drop_made();
    CHECK(own.value.rows == r.rows() && own.value.cols == r.cols(), "{}: {} x {} of {}", r.name, own.value.rows,
          own.value.cols, to_string(r.shape));
    return own;
  }

 private:
  Weight part_of(const nn::ParamRequest& all, const Param& p, bool converted) {
    const Weight& w = p.value;
    if (const auto part = columns(all)) {
      check_blocks(all, p, *part);
      return columns_of(store_, w, part->held, part->within);
    }
    if (all.experts > 0 && own_.expert_cut.divides())
      return rows_of(store_, w, expert_ranges_of(all, w.rows, w.cols, own_.expert_cut).rows, converted);
    const Cut* cut = cut_of(all);
    if (cut && all.shard.axis != Shard::Axis::whole)
      return rows_of(store_, w, ranges_of(all, w.rows, w.cols, *cut), converted);
    // What is added to a block's output is added once.
    if (cut && all.role == ParamRole::bias && cut->rank > 0) return dense_weight(store_.make(DType::f32, {1, w.cols}));
    return converted ? rows_of(store_, w, {{0, w.rows}}, true) : w;
  }

  struct Columns {
    std::vector<Range> held{};
    Range within{};  // rows
    int64_t ranks = 1;
  };
  // Of a tensor that is divided by them.
  std::optional<Columns> columns(const nn::ParamRequest& all) const {
    const int64_t rows = all.rows(), cols = all.cols();
    if (all.experts > 0 && own_.expert_cut.divides()) {
      ExpertRanges held = expert_ranges_of(all, rows, cols, own_.expert_cut);
      if (held.columns.empty()) return std::nullopt;
      return Columns{std::move(held.columns), held.within, own_.expert_cut.etp.ranks};
    }
    const Cut* cut = cut_of(all);
    const bool by_columns = all.shard.axis == Shard::Axis::cols || (rows == 1 && !is_matrix(all.role));
    if (!cut || !by_columns || all.shard.axis == Shard::Axis::whole) return std::nullopt;
    return Columns{ranges_of(all, rows, cols, *cut), {0, rows}, cut->ranks};
  }

  // Null: every rank has all of it.
  const Cut* cut_of(const nn::ParamRequest& all) const {
    if (all.role == ParamRole::embedding || all.role == ParamRole::head)
      return own_.cut.ranks > 1 ? &own_.cut : nullptr;
    const PartSpec* block = block_of(own_, all);
    if (!block || !block->cut) return nullptr;
    return std::holds_alternative<nn::MoeSpec>(block->block) ? &stage_ : &tensor_;
  }

  void check_blocks(const nn::ParamRequest& all, const Param& p, const Columns& part) const {
    const int64_t block = block_columns(p.value), columns = p.value.cols;
    if (std::ranges::all_of(part.held, [&](const Range& r) { return r.begin % block == 0 && r.count % block == 0; }))
      return;
    int64_t fits = part.ranks;
    while (fits > 1 && (columns % fits != 0 || columns / fits % block != 0)) --fits;
    fail(printable(p.name),
         {.what = fmt::format("is stored in blocks of {} columns, which {} ranks cannot divide", block, part.ranks),
          .got = fmt::format("{} columns", columns),
          .expected = "parts of whole blocks",
          .hint = all.experts > 0 ? fmt::format("--ep {}", own_.expert_cut.ep.ranks * own_.expert_cut.etp.ranks)
                  : fits > 1      ? fmt::format("--tp {}, or --pp", fits)
                                  : "--pp"});
  }

  WeightStore &store_, &scratch_;
  nn::ParamSource& files_;
  const Config own_;
  Cut tensor_, stage_;  // of blocks that are cut: of most, and of those with experts
  std::map<std::string, nn::ParamRequest> whole_;
};

}  // namespace

void check_parts(const io::ModelPath& path, const Division& division) {
  const Config whole = load_config(path);
  check_division(whole, division);
  if (!path.is_gguf()) return;
  Division stage = division;  // with all layers
  stage.pp = 1;
  const OpenFolder folder = open_folder(path);
  for (int64_t rank = 0; rank < stage.ranks(); ++rank) {
    WeightStore none;
    PartSource(none, *folder.store, *folder.source, whole, divided_config(whole, stage, rank), stage, rank).check();
  }
}

std::unique_ptr<Model> load_part(const io::ModelPath& path, const Division& division, int64_t rank) {
  const Config whole = load_config(path);
  check_division(whole, division);
  Config own = divided_config(whole, division, rank);
  const OpenFolder folder = open_folder(path);
  auto store = std::make_shared<WeightStore>();
  store->keep(folder.store);  // and so the mapped file
  PartSource source(*store, *folder.store, *folder.source, whole, own, division, rank);
  auto model = std::make_unique<Model>(std::move(own), source);
  model->store = std::move(store);
  return model;
}

}  // namespace braid::models
