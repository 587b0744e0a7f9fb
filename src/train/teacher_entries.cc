#include "train/teacher_entries.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "io/atomic_file.h"
#include "io/atomic_folder.h"
#include "io/json.h"
#include "io/safetensors_write.h"
#include "kernels/linear/linear.h"
#include "sys/error.h"
#include "sys/parallel.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kRowsMax = 400'000;  // two tensors each, of the million that a file may have
constexpr const char* kEntriesMadeOf = "made_of.json";

// The `count` largest of a row of logits, as log-probabilities at the temperature.
void likeliest(const float* logits, int64_t vocab, int64_t count, double temperature, int32_t* ids, float* logprobs) {
  std::vector<int32_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  const int64_t n = std::min(count, vocab);
  std::partial_sort(order.begin(), order.begin() + n, order.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;  // one order, so that files are equal
  });
  const auto top = static_cast<double>(logits[order[0]]);
  double sum = 0;
  for (int64_t v = 0; v < vocab; ++v) sum += std::exp((static_cast<double>(logits[v]) - top) / temperature);
  const double log_sum = std::log(sum);
  for (int64_t k = 0; k < count; ++k) {
    ids[k] = k < n ? order[static_cast<size_t>(k)] : -1;
    logprobs[k] = k < n ? static_cast<float>((static_cast<double>(logits[ids[k]]) - top) / temperature - log_sum) : 0;
  }
}

// Batches of the data with the rows that no earlier one had.
template <class Body>
void each_new_row(const data::Loader& data, Body&& body) {
  std::set<int64_t> seen;
  data::Batch batch, row;
  for (int64_t step = 0; step < data.steps_per_epoch(); ++step) {
    data.batch(step, batch);
    for (int64_t r = 0; r < std::ssize(batch.row_ids); ++r) {
      if (!seen.insert(batch.row_ids[static_cast<size_t>(r)]).second) continue;
      data::take_rows(batch, r, r + 1, row);
      body(row);
    }
  }
}

std::string name_of(const char* what, int64_t row) { return fmt::format("{}.{:08}", what, row); }

}  // namespace

Entries entries_of(Ctx& ctx, Frozen& teacher, const data::Batch& part, int64_t count, double temperature) {
  constexpr int64_t kRows = 64;
  const Tensor x = teacher.head_input(ctx, part);
  const Weight& head = teacher.model().head();
  const int64_t tokens = x.dim(0);
  const Entries entries{.ids = Tensor(ctx.arena, DType::i32, {tokens, count}),
                        .logprobs = Tensor(ctx.arena, DType::f32, {tokens, count})};
  const Tensor logits(ctx.arena, DType::f32, {std::min(kRows, tokens), head.rows});
  for (int64_t first = 0; first < tokens; first += kRows) {
    const int64_t n = std::min(kRows, tokens - first);
    const MutView some = logits.mut().slice(0, 0, n);
    run(ctx, LinearFwd{.x = x.view().slice(0, first, n), .w = head, .y = some});
    sys::parallel_for(ctx.threads, n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        likeliest(some.as<float>(t), head.rows, count, temperature, entries.ids.mut().as<int32_t>(first + t),
                  entries.logprobs.mut().as<float>(first + t));
      }
    });
  }
  return entries;
}

void EntriesCache::make(const fs::path& folder, const std::string& made_of, Ctx& ctx, Frozen& teacher,
                        const data::Loader& data, int64_t count, double temperature) {
  std::vector<int64_t> rows;
  std::vector<io::TensorSpec> specs{{"rows", DType::i64, {}}};
  each_new_row(data, [&](const data::Batch& row) {
    const Shape shape{std::ssize(row.ids), count};
    specs.push_back({name_of("ids", std::ssize(rows)), DType::i32, shape});
    specs.push_back({name_of("logprobs", std::ssize(rows)), DType::f32, shape});
    rows.push_back(row.row_ids[0]);
  });
  if (rows.empty() || std::ssize(rows) > kRowsMax) {
    fail("distill.cache",
         {.what = "cannot hold the rows of this data",
          .got = rows.empty() ? "no end" : fmt::format("{} rows", rows.size()),
          .expected = fmt::format("1 to {}", kRowsMax),
          .hint = rows.empty() ? "no cache: generated rows never come again" : "a larger length, or no cache"});
  }
  specs[0].shape = {std::ssize(rows)};
  io::AtomicFolder made(folder);
  io::SafetensorsWriter writer(made.place(), std::move(specs));
  writer.write("rows", view_of(rows.data(), {std::ssize(rows)}));
  int64_t next = 0;
  each_new_row(data, [&](const data::Batch& row) {
    const Entries entries = entries_of(ctx, teacher, row, count, temperature);
    writer.write(name_of("ids", next), entries.ids.view());
    writer.write(name_of("logprobs", next++), entries.logprobs.view());
  });
  writer.finish();
  io::write_text_file(made.place() / kEntriesMadeOf, made_of);
  made.commit();
}

namespace {

// Before its tensors: another teacher's cache may have any.
const fs::path& checked(const fs::path& folder, const std::string& made_of) {
  const std::string where = printable(folder.string());
  if (!io::is_complete(folder) || !fs::exists(folder / kEntriesMadeOf))
    fail(where, {.what = "is not a cache of a teacher", .hint = "another distill.cache, or a name that is not taken"});
  const nlohmann::json there = io::Json::read(folder / kEntriesMadeOf).raw(), here = nlohmann::json::parse(made_of);
  for (const auto& [key, value] : here.items()) {
    if (there.is_object() && there.contains(key) && there[key] == value) continue;
    fail(where, {.what = fmt::format("was made with another {}", key),
                 .got = there.is_object() && there.contains(key) ? printable(there[key].dump(), 40) : "none",
                 .expected = value.dump(),
                 .hint = "another distill.cache"});
  }
  return folder;
}

}  // namespace

EntriesCache::EntriesCache(const fs::path& folder, const std::string& made_of, int64_t count, int64_t vocabulary)
    : where_(printable(folder.string())), count_(count), vocabulary_(vocabulary), file_(checked(folder, made_of)) {
  const View rows = file_.need("rows");
  bool good = rows.dtype == DType::i64 && rows.shape.rank == 1;
  for (int64_t row = 0; good && row < rows.dim(0); ++row) {
    const Row entries{file_.need(name_of("ids", row)), file_.need(name_of("logprobs", row))};
    good = entries.ids.dtype == DType::i32 && entries.logprobs.dtype == DType::f32 && entries.ids.shape.rank == 2 &&
           entries.ids.shape == entries.logprobs.shape && entries.ids.dim(1) == count;
    rows_.emplace(rows.as<int64_t>()[row], entries);
  }
  if (!good) fail(where_, {.what = "its tensors have other types or shapes than a cache"});
}

Entries EntriesCache::read(Ctx& ctx, const data::Batch& part) const {
  const int64_t tokens = std::ssize(part.ids);
  const Entries entries{.ids = Tensor(ctx.arena, DType::i32, {tokens, count_}),
                        .logprobs = Tensor(ctx.arena, DType::f32, {tokens, count_})};
  for (size_t r = 0; r < part.row_ids.size(); ++r) {
    const auto row = rows_.find(part.row_ids[r]);
    const int64_t first = part.rows[r], n = part.rows[r + 1] - first;
    if (row == rows_.end() || row->second.ids.dim(0) != n)
      fail(where_, {.what = fmt::format("has no row {} of {} tokens", part.row_ids[r], n)});
    const auto* ids = row->second.ids.as<int32_t>();
    if (std::any_of(ids, ids + n * count_, [&](int32_t id) { return id < -1 || id >= vocabulary_; }))
      fail(where_, {.what = fmt::format("row {} has an id outside the vocabulary", part.row_ids[r])});
    std::memcpy(entries.ids.mut().as<int32_t>(first), ids, static_cast<size_t>(n * count_) * sizeof(int32_t));
    std::memcpy(entries.logprobs.mut().as<float>(first), row->second.logprobs.data,
                static_cast<size_t>(n * count_) * sizeof(float));
  }
  return entries;
}

}  // namespace braid::train
