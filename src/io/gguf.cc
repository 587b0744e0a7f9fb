#include "io/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "sys/error.h"

namespace braid::io {
namespace {

constexpr uint64_t kTensorsMax = 1'000'000, kValuesMax = 100'000, kNameBytesMax = 65'535, kEntriesMax = 1 << 22,
                   kTextBytesMax = uint64_t{1} << 32;
constexpr int64_t kAlignmentMax = 1 << 20;
constexpr int kRankMax = 4;
constexpr const char* kAgain = "copying or downloading it again";

// As files number them.
enum Kind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
constexpr int64_t kKindBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // the least that a value takes

class Reader {
 public:
  Reader(std::span<const std::byte> file, const std::string& where) : file_(file), where_(where) {}

  size_t at() const { return at_; }
  size_t left() const { return file_.size() - at_; }

  template <class Num>
  Num number() {
    Num value;
    std::memcpy(&value, take(sizeof(Num)), sizeof(Num));
    return value;
  }

  std::string text(uint64_t most = kTextBytesMax) {
    const auto bytes = number<uint64_t>();
    if (bytes > most)
      fail(where_, {.what = fmt::format("a string at byte {} is too long", at_ - 8),
                    .got = fmt::format("{} bytes", bytes),
                    .expected = fmt::format("at most {}", most)});
    return {reinterpret_cast<const char*>(take(bytes)), bytes};
  }

  GgufValue value(const std::string& key, uint32_t kind) {
    switch (kind) {
      case boolean:
        return number<uint8_t>() != 0;
      case f32:
      case f64:
        return real(kind);
      case string:
        return text();
      case array:
        return list(key);
      default:
        return integer(key, kind);
    }
  }

 private:
  const std::byte* take(uint64_t bytes) {
    need(bytes);
    at_ += bytes;
    return file_.data() + at_ - bytes;
  }

  void need(uint64_t bytes) const {
    if (bytes > left())
      fail(where_, {.what = "is truncated within its header",
                    .got = fmt::format("{} bytes", file_.size()),
                    .expected = fmt::format("at least {}", at_ + bytes),
                    .hint = kAgain});
  }

  double real(uint32_t kind) { return kind == f32 ? static_cast<double>(number<float>()) : number<double>(); }

  int64_t integer(const std::string& key, uint32_t kind) {
    switch (kind) {
      case u8:
        return number<uint8_t>();
      case i8:
        return number<int8_t>();
      case u16:
        return number<uint16_t>();
      case i16:
        return number<int16_t>();
      case u32:
        return number<uint32_t>();
      case i32:
        return number<int32_t>();
      case i64:
        return number<int64_t>();
      case u64: {
        const auto value = number<uint64_t>();
        if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
          refuse(key, "is out of range", std::to_string(value), "below 2^63");
        return static_cast<int64_t>(value);
      }
      default:
        refuse(key, "has an unknown type", std::to_string(kind), "0 to 12");
    }
  }

  GgufValue list(const std::string& key) {
    const auto kind = number<uint32_t>();
    const auto count = number<uint64_t>();
    if (kind > f64 || kind == array)
      refuse(key, "is a list of an unknown type", std::to_string(kind), "0 to 12, not 9");
    if (count > kEntriesMax)
      refuse(key, "is too long a list", fmt::format("{} entries", count), fmt::format("at most {}", kEntriesMax));
    need(count * static_cast<uint64_t>(kKindBytes[kind]));  // before memory is reserved for them
    const auto fill = [&]<class Item>(std::vector<Item> items, auto&& next) -> GgufValue {
      items.reserve(count);
      for (uint64_t i = 0; i < count; ++i) items.push_back(next());
      return items;
    };
    if (kind == string) return fill(std::vector<std::string>(), [&] { return text(); });
    if (kind == f32 || kind == f64) return fill(std::vector<double>(), [&] { return real(kind); });
    return fill(std::vector<int64_t>(), [&] { return kind == boolean ? number<uint8_t>() : integer(key, kind); });
  }

  [[noreturn]] void refuse(const std::string& key, std::string what, std::string got, std::string expected) const {
    fail(where_,
         {.what = fmt::format("{} {}", printable(key), what), .got = std::move(got), .expected = std::move(expected)});
  }

  std::span<const std::byte> file_;
  const std::string& where_;
  size_t at_ = 0;
};

// A tensor of the table and where its bytes begin, counted from those of the first.
struct Entry {
  GgufTensor tensor;
  uint64_t offset = 0;
  int64_t bytes = 0;
};

int64_t bytes_of(const std::string& where, const GgufTensor& tensor) {
  int64_t values = 1;
  for (int i = 0; i < tensor.shape.rank; ++i) {
    if (__builtin_mul_overflow(values, tensor.shape[i], &values))
      fail(where, {.what = "tensor " + printable(tensor.name) + " is too large", .got = to_string(tensor.shape)});
  }
  const int64_t row = tensor.shape[tensor.shape.rank - 1];
  if (row % tensor.type->values != 0)
    fail(where, {.what = fmt::format("tensor {} is {}, but its row length is not a multiple of {}",
                                     printable(tensor.name), tensor.type->name, tensor.type->values),
                 .got = to_string(tensor.shape)});
  int64_t bytes = 0;
  if (__builtin_mul_overflow(values / tensor.type->values, tensor.type->bytes, &bytes))
    fail(where, {.what = "tensor " + printable(tensor.name) + " is too large", .got = to_string(tensor.shape)});
  return bytes;
}

Entry read_entry(Reader& reader, const std::string& where) {
  Entry entry;
  GgufTensor& tensor = entry.tensor;
  tensor.name = reader.text(kNameBytesMax);
  const auto rank = reader.number<uint32_t>();
  if (rank == 0 || rank > kRankMax)
    fail(where, {.what = "tensor " + printable(tensor.name) + " has a wrong number of dimensions",
                 .got = std::to_string(rank),
                 .expected = fmt::format("1 to {}", kRankMax)});
  tensor.shape.rank = static_cast<int>(rank);
  for (int i = tensor.shape.rank - 1; i >= 0; --i) {
    const auto size = reader.number<uint64_t>();
    if (size == 0 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail(where,
           {.what = "tensor " + printable(tensor.name) + " has an impossible size", .got = std::to_string(size)});
    tensor.shape[i] = static_cast<int64_t>(size);
  }
  const auto number = reader.number<uint32_t>();
  tensor.type = ggml_type(number);
  if (!tensor.type)
    fail(where, {.what = "tensor " + printable(tensor.name) + " has an unknown type", .got = std::to_string(number)});
  entry.offset = reader.number<uint64_t>();
  entry.bytes = bytes_of(where, tensor);
  return entry;
}

// The end of a tensor, at `begin` plus its offset; not beyond 2^63 whatever the file says.
uint64_t end_of(const Entry& entry, uint64_t begin) {
  return begin + std::min(entry.offset, uint64_t{1} << 62) + static_cast<uint64_t>(entry.bytes);
}

// Sets the bytes of every tensor, which begin at `begin`; checks that they are aligned, inside the file and do not
// overlap.
void set_bytes(const std::string& where, std::span<const std::byte> file, uint64_t begin, int64_t alignment,
               std::vector<Entry>& entries) {
  const std::span<const std::byte> data = file.subspan(std::min<uint64_t>(begin, file.size()));
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
  uint64_t end = 0;
  for (Entry& entry : entries) {
    const std::string name = "tensor " + printable(entry.tensor.name);
    if (entry.offset % static_cast<uint64_t>(alignment) != 0)
      fail(where, {.what = name + " is not aligned",
                   .got = fmt::format("offset {}", entry.offset),
                   .expected = fmt::format("a multiple of {}", alignment)});
    if (entry.offset < end)
      fail(where, {.what = name + " overlaps another", .got = fmt::format("offset {}", entry.offset)});
    if (entry.offset > data.size() || static_cast<uint64_t>(entry.bytes) > data.size() - entry.offset)
      fail(where, {.what = fmt::format("is truncated: {} ends beyond the file", name),
                   .got = fmt::format("{} bytes", file.size()),
                   .expected = fmt::format("at least {}", end_of(entries.back(), begin)),
                   .hint = kAgain});
    end = entry.offset + static_cast<uint64_t>(entry.bytes);
    entry.tensor.bytes = data.subspan(entry.offset, static_cast<size_t>(entry.bytes));
  }
}

void sort_by_name(const std::string& where, std::vector<GgufTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].name == tensors[i - 1].name)
      fail(where, {.what = "tensor " + printable(tensors[i].name) + " is duplicated"});
  }
}

// NAME of NAME-00002-of-00003.gguf; nullopt for a file with another name.
std::optional<std::string> split_name(const std::filesystem::path& path, int64_t number, int64_t count) {
  const std::string name = path.filename().string(), ending = fmt::format("-{:05}-of-{:05}.gguf", number, count);
  if (!name.ends_with(ending)) return std::nullopt;
  return name.substr(0, name.size() - ending.size());
}

int64_t alignment_of(const std::string& where, const GgufParts& parts) {
  const auto found = parts.values.find("general.alignment");
  if (found == parts.values.end()) return 32;
  const int64_t* value = std::get_if<int64_t>(&found->second);
  if (!value || *value < 8 || *value > kAlignmentMax || !std::has_single_bit(static_cast<uint64_t>(*value)))
    fail(where,
         {.what = "general.alignment is wrong", .expected = fmt::format("a power of two, 8 to {}", kAlignmentMax)});
  return *value;
}

}  // namespace

GgufParts parse_gguf(std::span<const std::byte> file, const std::string& where) {
  Reader reader(file, where);
  if (file.size() < 4 || std::memcmp(file.data(), "GGUF", 4) != 0)
    fail(where, {.what = "is not a GGUF file",
                 .expected = "GGUF at its beginning",
                 .hint = "braid info FILE on the file that was meant, or downloading it again"});
  reader.number<uint32_t>();
  if (const auto version = reader.number<uint32_t>(); version != 2 && version != 3)
    fail(where, {.what = "unknown GGUF version", .got = std::to_string(version), .expected = "2 or 3"});
  const auto tensors = reader.number<uint64_t>(), values = reader.number<uint64_t>();
  if (tensors > kTensorsMax || values > kValuesMax)
    fail(where, {.what = "too many tensors or values",
                 .got = fmt::format("{} and {}", tensors, values),
                 .expected = fmt::format("at most {} and {}", kTensorsMax, kValuesMax)});
  GgufParts parts;
  for (uint64_t i = 0; i < values; ++i) {
    std::string key = reader.text(kNameBytesMax);
    const auto kind = reader.number<uint32_t>();
    GgufValue value = reader.value(key, kind);
    const auto added = parts.values.emplace(std::move(key), std::move(value));
    if (!added.second) fail(where, {.what = printable(added.first->first) + " is duplicated"});
  }
  std::vector<Entry> entries;
  for (uint64_t i = 0; i < tensors; ++i) entries.push_back(read_entry(reader, where));
  const auto alignment = static_cast<uint64_t>(alignment_of(where, parts));
  const uint64_t begin = (reader.at() + alignment - 1) / alignment * alignment;
  set_bytes(where, file, begin, static_cast<int64_t>(alignment), entries);
  for (Entry& entry : entries) parts.tensors.push_back(std::move(entry.tensor));
  sort_by_name(where, parts.tensors);
  return parts;
}

Gguf::Gguf(const std::filesystem::path& path) : where_(printable(path.string())) {
  files_.emplace_back(path);
  parts_ = parse_gguf(files_.back().bytes(), where_);
  add_parts(path);
}

Gguf::Gguf(std::span<const std::byte> file, std::string where)
    : where_(std::move(where)), parts_(parse_gguf(file, where_)) {}

void Gguf::add_parts(const std::filesystem::path& first) {
  const int64_t count = int_of("split.count").value_or(1), number = int_of("split.no").value_or(0) + 1;
  if (count == 1) return;
  constexpr int64_t kPartsMax = 99'999;  // five digits of a name
  if (count < 1 || count > kPartsMax || number < 1 || number > count)
    fail(where_, {.what = "impossible part number", .got = fmt::format("{} of {}", number, count)});
  const auto name = split_name(first, number, count);
  if (!name)
    fail(where_, {.what = "the file is one part of several, but its name does not say so",
                  .got = fmt::format("part {} of {}", number, count),
                  .expected = fmt::format("NAME-{:05}-of-{:05}.gguf", number, count)});
  const auto path_of = [&](int64_t i) {
    return first.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", *name, i, count);
  };
  if (number != 1)
    fail(where_, {.what = fmt::format("the file is part {} of {}", number, count),
                  .expected = "the first",
                  .hint = printable(path_of(1).string())});
  for (int64_t i = 2; i <= count; ++i) add_part(path_of(i), i, count);
  sort_by_name(where_, parts_.tensors);
  const int64_t tensors = std::ssize(parts_.tensors), expected = int_of("split.tensors.count").value_or(tensors);
  if (tensors != expected)
    fail(where_, {.what = "the parts together have a wrong number of tensors",
                  .got = std::to_string(tensors),
                  .expected = std::to_string(expected)});
}

void Gguf::add_part(const std::filesystem::path& path, int64_t number, int64_t count) {
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    fail(where_, {.what = fmt::format("part {} of {} is missing", number, count),
                  .expected = printable(path.string()),
                  .hint = "downloading it too"});
  files_.emplace_back(path);
  const std::string where = printable(path.string());
  GgufParts part = parse_gguf(files_.back().bytes(), where);
  const auto number_of = [&](std::string_view key) {
    const auto found = part.values.find(key);
    const int64_t* value = found == part.values.end() ? nullptr : std::get_if<int64_t>(&found->second);
    return value ? *value : -1;
  };
  if (number_of("split.no") != number - 1 || number_of("split.count") != count)
    fail(where, {.what = "the file is not the part that its name says",
                 .got = fmt::format("split.no {} of {}", number_of("split.no"), number_of("split.count")),
                 .expected = fmt::format("{} of {}", number - 1, count)});
  std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(parts_.tensors));
}

const GgufTensor* Gguf::find(std::string_view name) const {
  const auto at = std::lower_bound(parts_.tensors.begin(), parts_.tensors.end(), name,
                                   [](const GgufTensor& t, std::string_view n) { return t.name < n; });
  return at != parts_.tensors.end() && at->name == name ? &*at : nullptr;
}

template <class Kind>
const Kind* Gguf::get(std::string_view key, const char* expected) const {
  const auto found = parts_.values.find(key);
  if (found == parts_.values.end()) return nullptr;
  const Kind* value = std::get_if<Kind>(&found->second);
  if (!value) fail(where_, {.what = std::string(key) + " has the wrong type", .expected = expected});
  return value;
}

std::optional<int64_t> Gguf::int_of(std::string_view key) const {
  const int64_t* value = get<int64_t>(key, "an integer");
  return value ? std::optional(*value) : std::nullopt;
}
std::optional<double> Gguf::number_of(std::string_view key) const {
  const double* value = get<double>(key, "a number");
  if (value && !std::isfinite(*value))
    fail(where_, {.what = printable(key) + " is not finite", .got = fmt::format("{}", *value), .expected = "a number"});
  return value ? std::optional(*value) : std::nullopt;
}
std::optional<bool> Gguf::bool_of(std::string_view key) const {
  const bool* value = get<bool>(key, "true or false");
  return value ? std::optional(*value) : std::nullopt;
}
std::optional<std::string> Gguf::string_of(std::string_view key) const {
  const std::string* value = get<std::string>(key, "a string");
  return value ? std::optional(*value) : std::nullopt;
}

const std::vector<std::string>* Gguf::strings_of(std::string_view key) const {
  return get<std::vector<std::string>>(key, "strings");
}

const std::vector<double>* Gguf::numbers_of(std::string_view key) const {
  return get<std::vector<double>>(key, "numbers");
}

std::optional<std::vector<int64_t>> Gguf::ints_of(std::string_view key, size_t count) const {
  const auto found = parts_.values.find(key);
  if (found == parts_.values.end()) return std::nullopt;
  if (const int64_t* one = std::get_if<int64_t>(&found->second)) return std::vector<int64_t>(count, *one);
  const auto* list = get<std::vector<int64_t>>(key, "integers");
  if (list->size() != count)
    fail(where_, {.what = std::string(key) + " has the wrong length",
                  .got = std::to_string(list->size()),
                  .expected = std::to_string(count)});
  return *list;
}

int64_t Gguf::need_int(std::string_view key) const {
  const auto value = int_of(key);
  if (!value) fail(where_, {.what = std::string(key) + " is missing"});
  return *value;
}

}  // namespace braid::io
