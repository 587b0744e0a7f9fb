#include "io/safetensors_write.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::io {
namespace fs = std::filesystem;
namespace {

std::string header_of(std::span<const TensorSpec> specs) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  int64_t at = 0;
  for (const TensorSpec& t : specs) {
    std::string dims;
    for (int i = 0; i < t.shape.rank; ++i) dims += fmt::format("{}{}", i ? "," : "", t.shape[i]);
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", nlohmann::json(t.name).dump(),
                        name_of(t.dtype), dims, at, at + t.bytes());
    at += t.bytes();
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

void check_tensor_file(const fs::path& path) {
  check_new_file(path, ".safetensors");
  const std::string where = printable(path.string());
  if (path.extension() != ".safetensors")
    fail(where, {.what = "is not the name of a safetensors file", .expected = "one that ends in .safetensors"});
  std::error_code none;
  if (path.filename() == "model.safetensors" && fs::exists(path.parent_path() / "config.json", none))
    fail(where, {.what = "would be the weights of the model in that folder", .hint = "another name"});
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<TensorSpec> specs, int64_t shard_bytes)
    : folder_(path), folder_is_model_(path.extension() != ".safetensors"), specs_(std::move(specs)) {
  std::set<std::string_view> names;
  for (const TensorSpec& t : specs_) CHECK(names.insert(t.name).second, "tensor {} twice", t.name);
  if (folder_is_model_) {
    std::error_code failed;
    folder_is_new_ = fs::create_directories(folder_, failed);
    if (failed) fail_environment(printable(path.string()), {.what = "cannot be created", .got = failed.message()});
    plan_shards(shard_bytes);
  } else {
    folder_ = path.parent_path();
    shards_ = {{0, specs_.size(), path.filename().string()}};
  }
  for (const Shard& s : shards_) {
    const auto first = specs_.begin();
    std::stable_sort(first + static_cast<ptrdiff_t>(s.begin), first + static_cast<ptrdiff_t>(s.end),
                     [](const TensorSpec& a, const TensorSpec& b) { return size_of(a.dtype) > size_of(b.dtype); });
  }
  open_shard();
}

SafetensorsWriter::~SafetensorsWriter() {
  if (finished_ || !folder_is_model_) return;
  file_.reset();
  std::error_code none;
  for (size_t i = 0; i < shard_; ++i) fs::remove(folder_ / shards_[i].file, none);
  if (folder_is_new_) fs::remove(folder_, none);  // fails unless it is empty
}

void SafetensorsWriter::plan_shards(int64_t shard_bytes) {
  int64_t filled = 0;
  shards_.push_back({});
  for (const TensorSpec& t : specs_) {
    if (shards_.back().end > shards_.back().begin && filled + t.bytes() > shard_bytes) {
      shards_.push_back({shards_.back().end, shards_.back().end, {}});
      filled = 0;
    }
    ++shards_.back().end;
    filled += t.bytes();
  }
  const size_t n = shards_.size();
  for (size_t i = 0; i < n; ++i) {
    shards_[i].file = n == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, n);
  }
}

void SafetensorsWriter::open_shard() {
  const Shard& s = shards_[shard_];
  file_ = std::make_unique<AtomicFile>(folder_ / s.file);
  const std::string header = header_of(std::span(specs_).subspan(s.begin, s.end - s.begin));
  const uint64_t size = header.size();
  file_->write(std::as_bytes(std::span(&size, 1)));
  file_->write(header);
  left_ = specs_.empty() ? 0 : specs_[next_].bytes();
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  CHECK(next_ < specs_.size() && specs_[next_].name == name, "tensor {} out of order", name);
  CHECK(std::ssize(bytes) <= left_, "tensor {}: {} bytes, {} are left", name, bytes.size(), left_);
  file_->write(bytes);
  left_ -= std::ssize(bytes);
  if (left_ > 0) return;
  if (++next_ < shards_[shard_].end) {
    left_ = specs_[next_].bytes();
  } else if (file_->commit(); ++shard_ < shards_.size()) {
    open_shard();
  }
}

void SafetensorsWriter::write(std::string_view name, const View& view) {
  CHECK(view.contiguous(), "tensor {} has gaps", name);
  write(name, {view.data, static_cast<size_t>(view.bytes())});
}

void SafetensorsWriter::finish() {
  CHECK(next_ == specs_.size(), "tensor {} was not written", specs_[next_].name);
  if (specs_.empty()) file_->commit();  // an empty file is a file, too
  finished_ = true;
  if (!folder_is_model_) return;
  // A reader takes model.safetensors before an index: what an older model left here must not shadow the new one.
  const bool sharded = shards_.size() > 1;
  if (sharded) write_index();
  std::error_code none;
  fs::remove(folder_ / (sharded ? "model.safetensors" : "model.safetensors.index.json"), none);
}

void SafetensorsWriter::write_index() const {
  nlohmann::json index;
  int64_t total = 0;
  for (const Shard& s : shards_) {
    for (size_t i = s.begin; i < s.end; ++i) {
      index["weight_map"][specs_[i].name] = s.file;
      total += specs_[i].bytes();
    }
  }
  index["metadata"]["total_size"] = total;
  write_text_file(folder_ / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace braid::io
