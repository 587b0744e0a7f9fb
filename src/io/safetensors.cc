// The header is read by a SAX parser, never as a tree: an entry is checked when it ends, and the first bad one stops
// it.
#include "io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "io/json.h"
#include "io/placeholder.h"
#include "sys/error.h"

namespace braid::io {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kHeaderBytesMax = 100'000'000;  // the reference's cap
constexpr int64_t kHeaderTensorsMax = 1'000'000;
constexpr int64_t kTensorNameBytesMax = 256;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool by_name(const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; }

struct HeaderEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape{};
  int64_t begin = 0, end = 0;  // bytes after the header
};

// Bytes of a tensor, or nullopt when the product overflows. Zero dimensions count as one, since strides skip them too.
std::optional<int64_t> byte_size(DType dtype, const Shape& shape) {
  int64_t bytes = size_of(dtype);
  bool empty = false;
  for (int i = 0; i < shape.rank; ++i) {
    empty |= shape[i] == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(shape[i], 1), &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

// The grammar of the header as a state machine over the parser's events.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& where) : where_(where) {}
  std::vector<HeaderEntry> entries;

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("true or false"); }
  bool number_float(double, const std::string& text) { return unexpected(text); }
  bool binary(nlohmann::json::binary_t&) { return unexpected("binary data"); }
  bool number_integer(int64_t value) { return unexpected(std::to_string(value)); }
  bool number_unsigned(uint64_t value) {
    if (!in_list_ || value > std::numeric_limits<int64_t>::max()) return unexpected(std::to_string(value));
    const auto number = static_cast<int64_t>(value);
    if (field_ == Field::shape) {
      if (now_.shape.rank == Shape::kMaxRank) refuse("has too many dimensions", "more than 8", "at most 8");
      now_.shape[now_.shape.rank++] = number;
    } else {
      if (offsets_ == 2) return unexpected("a third offset");
      (offsets_++ == 0 ? now_.begin : now_.end) = number;
    }
    return true;
  }
  bool string(std::string& text) {
    if (state_ == State::metadata) return true;
    if (state_ != State::tensor || field_ != Field::dtype) return unexpected("a string");
    const auto dtype = dtype_of(text);
    if (!dtype) refuse("has an unknown dtype", printable(text), "F32, F16, BF16, F8_E4M3, I8, U8, I32 or I64");
    now_.dtype = *dtype;
    return true;
  }
  bool key(std::string& text) {
    if (state_ == State::tensor) return tensor_key(text);
    if (state_ == State::metadata) return true;
    now_ = HeaderEntry{.name = std::move(text)};
    if (std::ssize(now_.name) > kTensorNameBytesMax) {
      refuse("has too long a name", fmt::format("{} bytes", now_.name.size()),
             fmt::format("at most {}", kTensorNameBytesMax));
    }
    return true;
  }
  bool start_object(size_t) {
    if (state_ == State::start) {
      state_ = State::top;
    } else if (state_ == State::top && now_.name == "__metadata__") {
      state_ = State::metadata;
    } else if (state_ == State::top) {
      if (std::ssize(entries) == kHeaderTensorsMax)
        fail(where_, {.what = fmt::format("has more than {} tensors", kHeaderTensorsMax)});
      state_ = State::tensor;
      seen_ = offsets_ = 0;
      field_ = Field::none;
    } else {
      return unexpected("an object");
    }
    return true;
  }
  bool end_object() {
    if (state_ == State::tensor) finish_entry();
    state_ = state_ == State::top ? State::done : State::top;
    return true;
  }
  bool start_array(size_t) {
    const bool allowed = state_ == State::tensor && !in_list_ && (field_ == Field::shape || field_ == Field::offsets);
    in_list_ = true;
    return allowed || unexpected("a list");
  }
  bool end_array() {
    in_list_ = false;
    field_ = Field::none;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) {
    fail(where_, {.what = fmt::format("the header is not valid JSON at byte {}", position + 7)});
  }

 private:
  enum class State { start, top, metadata, tensor, done };
  enum class Field { none, dtype, shape, offsets };

  [[noreturn]] void refuse(std::string_view what, std::string got, std::string expected) const {
    fail(where_, {.what = fmt::format("tensor {} {}", printable(now_.name), what),
                  .got = std::move(got),
                  .expected = std::move(expected)});
  }
  [[noreturn]] bool unexpected(const std::string& got) const {
    if (state_ == State::start) fail(where_, {.what = "the header is not an object", .got = printable(got)});
    if (state_ == State::metadata) {
      fail(where_, {.what = "__metadata__ is malformed", .got = printable(got), .expected = "strings only"});
    }
    refuse("has a malformed entry", printable(got), "a dtype, a shape of whole numbers and two data_offsets");
  }
  bool tensor_key(const std::string& text) {
    field_ = text == "dtype"          ? Field::dtype
             : text == "shape"        ? Field::shape
             : text == "data_offsets" ? Field::offsets
                                      : Field::none;
    const int bit = 1 << static_cast<int>(field_);
    if (field_ == Field::none || (seen_ & bit)) return unexpected("key " + text);
    seen_ |= bit;
    return true;
  }
  void finish_entry() {
    constexpr int all = 1 << static_cast<int>(Field::dtype) | 1 << static_cast<int>(Field::shape) |
                        1 << static_cast<int>(Field::offsets);
    if (seen_ != all || offsets_ != 2) unexpected("an entry without one of them");
    if (now_.begin > now_.end)
      refuse("ends before it begins", fmt::format("data_offsets [{}, {}]", now_.begin, now_.end), "");
    const auto bytes = byte_size(now_.dtype, now_.shape);
    if (!bytes) refuse("has an impossible shape", to_string(now_.shape), "a product below 2^63 bytes");
    if (*bytes != now_.end - now_.begin) {
      refuse("has a wrong size", fmt::format("{} bytes", now_.end - now_.begin),
             fmt::format("{} for {} {}", *bytes, name_of(now_.dtype), to_string(now_.shape)));
    }
    entries.push_back(std::move(now_));
    now_ = HeaderEntry{};
  }

  const std::string& where_;
  State state_ = State::start;
  Field field_ = Field::none;
  bool in_list_ = false;
  int seen_ = 0, offsets_ = 0;
  HeaderEntry now_;
};

// The tensors must fill the data section: no gaps that could hide data, no overlaps.
void check_layout(std::vector<HeaderEntry>& entries, int64_t header_bytes, int64_t file_bytes, const std::string& where,
                  const char* hint) {
  const int64_t data_bytes = file_bytes - header_bytes;
  std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t at = 0;
  const HeaderEntry* last = nullptr;
  for (const HeaderEntry& e : entries) {
    if (e.begin < at) {
      fail(where, {.what = fmt::format("tensors {} and {} overlap", printable(last->name), printable(e.name)),
                   .got = fmt::format("data_offsets [{}, {}] and [{}, {}]", last->begin, last->end, e.begin, e.end)});
    }
    if (e.begin > at) {
      fail(where, {.what = fmt::format("no tensor covers the {} bytes before {}", e.begin - at, printable(e.name)),
                   .expected = "tensors without gaps"});
    }
    at = e.end;
    last = &e;
  }
  if (at > data_bytes) {
    fail(where, {.what = fmt::format("is truncated: tensor {} ends beyond the file", printable(last->name)),
                 .got = fmt::format("{} bytes", file_bytes),
                 .expected = fmt::format("{}", static_cast<uint64_t>(at) + static_cast<uint64_t>(header_bytes)),
                 .hint = hint});
  }
  if (at < data_bytes)
    fail(where, {.what = "has bytes after the last tensor", .got = fmt::format("{} of them", data_bytes - at)});
}

// Tensor name -> shard, from the index of a folder.
std::map<std::string, std::string> read_index(const fs::path& folder) {
  const Json index = Json::read(folder / kIndex, {.bytes = kHeaderBytesMax, .values = 2 * kHeaderTensorsMax});
  const Json weight_map = index.need({"weight_map"});
  if (!weight_map.is_object()) weight_map.refuse("is of the wrong kind", "an object");
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, shard] : weight_map.raw().items()) {
    if (!shard.is_string()) weight_map.refuse("holds something other than file names", "strings");
    const auto& file = shard.get_ref<const std::string&>();
    if (file.empty() || file.find_first_of(std::string_view("/\\\0", 3)) != file.npos || file.starts_with(".")) {
      fail(index.document(),
           {.what = "names a shard outside of its folder", .got = printable(file), .expected = "a plain file name"});
    }
    shard_of[name] = file;
  }
  return shard_of;
}

}  // namespace

std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> file, const std::string& where,
                                            const char* hint) {
  static_assert(std::endian::native == std::endian::little, "safetensors is little-endian and views are not swapped");
  const auto file_bytes = static_cast<int64_t>(file.size());
  if (file_bytes < 8) {
    fail(where,
         {.what = "is truncated", .got = fmt::format("{} bytes", file_bytes), .expected = "a safetensors header"});
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kHeaderBytesMax) {
    fail(where, {.what = "is not a safetensors file: the header length is too large",
                 .got = fmt::format("{} bytes", length),
                 .expected = fmt::format("at most {}", kHeaderBytesMax)});
  }
  const int64_t header_bytes = 8 + static_cast<int64_t>(length);
  if (header_bytes > file_bytes) {
    fail(where, {.what = "is truncated within its header",
                 .got = fmt::format("{} bytes", file_bytes),
                 .expected = fmt::format("at least {}", header_bytes),
                 .hint = hint});
  }
  const char* text = reinterpret_cast<const char*>(file.data()) + 8;
  if (length == 0 || *text != '{') fail(where, {.what = "the header does not begin with {"});

  HeaderReader header(where);
  nlohmann::json::sax_parse(text, text + length, &header);
  check_layout(header.entries, header_bytes, file_bytes, where, hint);

  std::vector<StoredTensor> tensors;
  tensors.reserve(header.entries.size());
  for (HeaderEntry& e : header.entries) {
    tensors.push_back({std::move(e.name), View(file.data() + header_bytes + e.begin, e.dtype, e.shape)});
  }
  std::sort(tensors.begin(), tensors.end(), by_name);
  const auto same = [](const StoredTensor& a, const StoredTensor& b) { return a.name == b.name; };
  const auto twice = std::adjacent_find(tensors.begin(), tensors.end(), same);
  if (twice != tensors.end()) fail(where, {.what = fmt::format("tensor {} is duplicated", printable(twice->name))});
  return tensors;
}

std::vector<fs::path> weight_files(const fs::path& folder) {
  std::error_code none;
  // symlink_status: a cache's link to a blob that is not there yet counts as a weight file, a missing one.
  if (fs::exists(fs::symlink_status(folder / kSingle, none))) return {folder / kSingle};
  if (!fs::exists(fs::symlink_status(folder / kIndex, none))) return {};
  std::set<fs::path> files;
  for (const auto& [name, shard] : read_index(folder)) files.insert(folder / shard);
  return {files.begin(), files.end()};
}

Safetensors::Safetensors(const fs::path& path) : where_(printable(path.string())) {
  std::error_code none;
  const auto is_there = [&](const char* name) { return fs::exists(fs::symlink_status(path / name, none)); };
  if (!fs::is_directory(path, none)) {
    add_file(path);
  } else if (is_there(kSingle)) {
    add_file(path / kSingle);
  } else if (is_there(kIndex)) {
    add_shards(path);
  } else {
    const bool incomplete = has_incomplete_download(path);
    fail(where_,
         {.what = incomplete ? "has no weights, the download is incomplete (.incomplete blobs)" : "has no weights",
          .expected = fmt::format("{}, or {} and its shards", kSingle, kIndex),
          .hint = fetch_hint(path)});
  }
}

void Safetensors::add_file(const fs::path& path) {
  refuse_missing(path);
  files_.emplace_back(path);
  const auto bytes = files_.back().bytes();
  refuse_lfs_pointer(path, bytes);
  const char* hint = comes_with_a_model(path) ? "downloading it again" : "";
  for (StoredTensor& t : parse_safetensors(bytes, printable(path.string()), hint)) {
    const auto address = reinterpret_cast<uintptr_t>(t.view.data);
    if (address % static_cast<uintptr_t>(size_of(t.view.dtype)) != 0) {
      auto copy = std::make_unique<std::byte[]>(static_cast<size_t>(t.view.bytes()));
      std::memcpy(copy.get(), t.view.data, static_cast<size_t>(t.view.bytes()));
      t.view.data = copy.get();
      copies_.push_back(std::move(copy));
    }
    tensors_.push_back(std::move(t));
  }
}

void Safetensors::add_shards(const fs::path& folder) {
  const auto shard_of = read_index(folder);
  std::set<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.insert(shard);
  for (const std::string& shard : shards) {
    const size_t first = tensors_.size();
    add_file(folder / shard);
    for (size_t i = first; i < tensors_.size(); ++i) {
      const std::string& name = tensors_[i].name;
      const auto claim = shard_of.find(name);
      if (claim == shard_of.end() || claim->second != shard) {
        fail(printable((folder / shard).string()),
             {.what = fmt::format("holds tensor {}, which the index does not place there", printable(name))});
      }
    }
  }
  std::sort(tensors_.begin(), tensors_.end(), by_name);
  for (const auto& [name, shard] : shard_of) {
    if (!find(name)) {
      fail(printable((folder / shard).string()),
           {.what = fmt::format("tensor {} of the index is not in this shard", printable(name))});
    }
  }
}

const View* Safetensors::find(std::string_view name) const {
  const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const StoredTensor& t, std::string_view n) { return t.name < n; });
  return it != tensors_.end() && it->name == name ? &it->view : nullptr;
}

void Safetensors::give_back(const View& tensor) const {
  for (const sys::MappedFile& file : files_) file.give_back({tensor.data, static_cast<size_t>(tensor.bytes())});
}

View Safetensors::need(std::string_view name) const {
  const View* view = find(name);
  if (!view) fail(where_, {.what = fmt::format("tensor {} is missing", printable(name))});
  return *view;
}

}  // namespace braid::io
