#include "io/safetensors_write.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::io {
namespace fs = std::filesystem;
namespace {

// With its length before it.
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
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text;
}

bool is_model_folder(const fs::path& path) { return path.extension() != ".safetensors"; }

void plan_shards(int64_t shard_bytes, TensorFilePlan& plan) {
  int64_t filled = 0;
  plan.files.push_back({});
  for (const TensorSpec& t : plan.specs) {
    if (plan.files.back().end > plan.files.back().begin && filled + t.bytes() > shard_bytes) {
      plan.files.push_back({plan.files.back().end, plan.files.back().end, {}});
      filled = 0;
    }
    ++plan.files.back().end;
    filled += t.bytes();
  }
  const size_t n = plan.files.size();
  for (size_t i = 0; i < n; ++i)
    plan.files[i].name = n == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, n);
}

TensorFilePlan plan_files(const fs::path& path, std::vector<TensorSpec> specs, int64_t shard_bytes) {
  TensorFilePlan plan{.folder = path, .specs = std::move(specs)};
  std::set<std::string_view> names;
  for (const TensorSpec& t : plan.specs) CHECK(names.insert(t.name).second, "tensor {} twice", t.name);
  if (is_model_folder(path)) {
    plan_shards(shard_bytes, plan);
  } else {
    plan.folder = path.parent_path();
    plan.files = {{0, plan.specs.size(), path.filename().string()}};
  }
  for (const TensorFilePlan::File& file : plan.files) {
    const auto first = plan.specs.begin();
    std::stable_sort(first + static_cast<ptrdiff_t>(file.begin), first + static_cast<ptrdiff_t>(file.end),
                     [](const TensorSpec& a, const TensorSpec& b) { return size_of(a.dtype) > size_of(b.dtype); });
  }
  return plan;
}

bool create_folder(const fs::path& path) {
  std::error_code failed;
  const bool created = fs::create_directories(path, failed);
  if (failed) fail_environment(printable(path.string()), {.what = "cannot be created", .got = failed.message()});
  return created;
}

int64_t bytes_of(std::span<const TensorSpec> specs) {
  int64_t sum = 0;
  for (const TensorSpec& t : specs) sum += t.bytes();
  return sum;
}

void write_index(const TensorFilePlan& plan) {
  nlohmann::json index;
  for (const TensorFilePlan::File& file : plan.files) {
    for (const TensorSpec& t : plan.tensors(file)) index["weight_map"][t.name] = file.name;
  }
  index["metadata"]["total_size"] = bytes_of(plan.specs);
  write_text_file(plan.folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

// A new file of so many bytes, of which the first are the header.
void lay_out_file(const fs::path& path, const std::string& header, int64_t bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const auto need = [&](bool done) {
    if (done) return;
    const int problem = errno;
    if (fd >= 0) close(fd);
    fail_environment(printable(path.string()), {.what = "cannot be written", .got = std::strerror(problem)});
  };
  need(fd >= 0);
  // A file system that cannot allocate reports a full disk later, when a rank writes.
  bool allocated = false;
  do {
    allocated = fallocate(fd, 0, 0, bytes) == 0;
  } while (!allocated && errno == EINTR);
  need(allocated || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL);
  need(allocated || ftruncate(fd, bytes) == 0);
  const auto size = static_cast<ssize_t>(header.size());
  need(pwrite(fd, header.data(), header.size(), 0) == size);
  close(fd);
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

void lay_out_safetensors(const fs::path& path, std::vector<TensorSpec> specs, int64_t shard_bytes) {
  const TensorFilePlan plan = plan_files(path, std::move(specs), shard_bytes);
  create_folder(plan.folder);
  for (const TensorFilePlan::File& file : plan.files) {
    const std::string header = header_of(plan.tensors(file));
    lay_out_file(plan.folder / file.name, header, std::ssize(header) + bytes_of(plan.tensors(file)));
  }
  if (plan.files.size() > 1) write_index(plan);
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<TensorSpec> specs, int64_t shard_bytes)
    : folder_is_model_(is_model_folder(path)), plan_(plan_files(path, std::move(specs), shard_bytes)) {
  if (folder_is_model_) folder_is_new_ = create_folder(plan_.folder);
  open_file();
}

SafetensorsWriter::~SafetensorsWriter() {
  if (finished_ || !folder_is_model_) return;
  file_.reset();
  std::error_code none;
  for (size_t i = 0; i < number_; ++i) fs::remove(plan_.folder / plan_.files[i].name, none);
  if (folder_is_new_) fs::remove(plan_.folder, none);  // fails unless it is empty
}

void SafetensorsWriter::open_file() {
  const TensorFilePlan::File& file = plan_.files[number_];
  file_ = std::make_unique<AtomicFile>(plan_.folder / file.name);
  file_->write(header_of(plan_.tensors(file)));
  left_ = plan_.specs.empty() ? 0 : plan_.specs[next_].bytes();
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  const std::vector<TensorSpec>& specs = plan_.specs;
  CHECK(next_ < specs.size() && specs[next_].name == name, "tensor {} out of order", name);
  CHECK(std::ssize(bytes) <= left_, "tensor {}: {} bytes, {} are left", name, bytes.size(), left_);
  file_->write(bytes);
  left_ -= std::ssize(bytes);
  if (left_ > 0) return;
  if (++next_ < plan_.files[number_].end) {
    left_ = specs[next_].bytes();
  } else if (file_->commit(); ++number_ < plan_.files.size()) {
    open_file();
  }
}

void SafetensorsWriter::write(std::string_view name, const View& view) {
  CHECK(view.contiguous(), "tensor {} has gaps", name);
  write(name, {view.data, static_cast<size_t>(view.bytes())});
}

void SafetensorsWriter::finish() {
  CHECK(next_ == plan_.specs.size(), "tensor {} was not written", plan_.specs[next_].name);
  if (plan_.specs.empty()) file_->commit();  // an empty file is a file, too
  finished_ = true;
  if (!folder_is_model_) return;
  // A reader takes model.safetensors before an index: what an older model left here must not shadow the new one.
  const bool sharded = plan_.files.size() > 1;
  if (sharded) write_index(plan_);
  std::error_code none;
  fs::remove(plan_.folder / (sharded ? "model.safetensors" : "model.safetensors.index.json"), none);
}

}  // namespace braid::io
