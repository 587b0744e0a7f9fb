#include "data/ids_source.h"

#include <span>
#include <vector>

#include "data/content.h"
#include "sys/error.h"

namespace braid::data {
namespace {

constexpr const char* kExpected = "I64 [steps, batch, length + 1]";

View batches_of(const io::Safetensors& file, const std::filesystem::path& path) {
  if (const View* batches = file.find("batches")) return *batches;
  fail(printable(path.string()), {.what = "has no token ids",
                                  .got = "no tensor batches",
                                  .expected = kExpected,
                                  .hint = fmt::format("braid info {}", printable(path.string()))});
}

}  // namespace

IdsSource::IdsSource(const std::filesystem::path& path, int64_t vocabulary)
    : file_(path), batches_(batches_of(file_, path)) {
  const std::string where = printable(path.string());
  const Shape& shape = batches_.shape;
  if (batches_.dtype != DType::i64 || shape.rank != 3 || shape.count() == 0 || shape[2] < 2) {
    fail(where, {.what = "the tensor 'batches' has the wrong type or shape",
                 .got = fmt::format("{} {}", name_of(batches_.dtype), to_string(shape)),
                 .expected = kExpected});
  }
  const int64_t* ids = batches_.as<int64_t>();
  for (int64_t i = 0; i < shape.count(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary) continue;
    fail(where, {.what = "a token id is outside the vocabulary",
                 .got = fmt::format("id {} in batches[{}]", ids[i], i / (shape[1] * shape[2])),
                 .expected = fmt::format("0 to {}, the model's vocabulary", vocabulary - 1)});
  }
}

void IdsSource::row(int64_t index, RowWriter& out) const {
  const int64_t width = batches_.dim(2);
  const int64_t* ids = batches_.as<int64_t>() + index * width;
  std::vector<int32_t>& row = out.scratch().ids;
  row.assign(ids, ids + width);
  out.add(row, 0, width - 1);
}

uint64_t IdsSource::content(int threads) const {
  const int64_t* ids = batches_.as<int64_t>();
  const uint64_t hash = hash_in_parts(threads, batches_.shape.count(), [&](int64_t from, int64_t count) {
    return hash_of(std::span(ids + from, static_cast<size_t>(count)));
  });
  return mix(mix(hash, static_cast<uint64_t>(batches_.dim(1))), static_cast<uint64_t>(batches_.dim(2)));
}

}  // namespace braid::data
