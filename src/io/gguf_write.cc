#include "io/gguf_write.h"

#include <fmt/format.h>

#include <bit>
#include <set>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::io {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr int64_t kAlignment = 32;  // the default of the format
constexpr size_t kKeyBytesMax = 65'535, kArrayEntriesMax = 1 << 22;
constexpr int kWrittenRankMax = 4;

// Type numbers of the format; lists are 9.
template <class Value>
constexpr uint32_t kind_of() {
  if constexpr (std::is_same_v<Value, uint32_t>) return 4;
  if constexpr (std::is_same_v<Value, int32_t>) return 5;
  if constexpr (std::is_same_v<Value, float>) return 6;
  if constexpr (std::is_same_v<Value, bool>) return 7;
  if constexpr (std::is_same_v<Value, std::string>) return 8;
}

class HeaderWriter {
 public:
  template <class Num>
  void number(Num value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(std::string_view value) {
    number(static_cast<uint64_t>(value.size()));
    bytes_ += value;
  }
  template <class Value>
  void field(const Value& value) {
    number(kind_of<Value>());
    scalar(value);
  }
  template <class Value>
  void field(const std::vector<Value>& list) {
    number(uint32_t{9});
    number(kind_of<Value>());
    number(static_cast<uint64_t>(list.size()));
    for (const Value& value : list) scalar(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class Value>
  void scalar(const Value& value) {
    if constexpr (std::is_same_v<Value, std::string>)
      text(value);
    else if constexpr (std::is_same_v<Value, bool>)
      number(static_cast<uint8_t>(value));
    else
      number(value);
  }

  std::string bytes_ = "GGUF";
};

void check_name(const std::string& where, std::set<std::string_view>& names, const std::string& name, size_t most) {
  if (name.empty() || name.size() > most)
    fail(where, {.what = "GGUF cannot hold the name " + printable(name),
                 .got = fmt::format("{} bytes", name.size()),
                 .expected = fmt::format("1 to {}", most)});
  if (!names.insert(name).second) fail(where, {.what = "duplicate name " + printable(name)});
}

void check_fields(const std::string& where, const GgufFields& fields) {
  std::set<std::string_view> keys;
  for (const auto& field : fields) {
    check_name(where, keys, field.first, kKeyBytesMax);
    const size_t entries = std::visit(
        [](const auto& value) {
          if constexpr (requires { value.size(); }) return value.size();
          return size_t{1};
        },
        field.second);
    if (!std::holds_alternative<std::string>(field.second) && entries > kArrayEntriesMax)
      fail(where, {.what = field.first + " is too long a list",
                   .got = std::to_string(entries),
                   .expected = fmt::format("at most {}", kArrayEntriesMax)});
  }
}

void check_specs(const std::string& where, std::span<const GgufSpec> specs) {
  std::set<std::string_view> names;
  for (const GgufSpec& spec : specs) {
    check_name(where, names, spec.name, GgufSpec::kNameBytesMax);
    const GgmlTypeRow& row = *ggml_type(static_cast<uint32_t>(spec.type));
    const int rank = spec.shape.rank;
    const bool whole =
        rank >= 1 && rank <= kWrittenRankMax && spec.shape.count() > 0 && spec.shape[rank - 1] % row.values == 0;
    if (!whole)
      fail(where, {.what = fmt::format("tensor {} cannot be {}", spec.name, row.name),
                   .got = to_string(spec.shape),
                   .expected = fmt::format("1 to {} axes, the last a multiple of {}", kWrittenRankMax, row.values)});
  }
}

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string header_of(const std::string& where, const GgufFields& fields, std::span<const GgufSpec> specs) {
  check_fields(where, fields);
  check_specs(where, specs);
  HeaderWriter header;
  header.number(uint32_t{3});
  header.number(static_cast<uint64_t>(specs.size()));
  header.number(static_cast<uint64_t>(fields.size()));
  for (const auto& field : fields) {
    header.text(field.first);
    std::visit([&](const auto& value) { header.field(value); }, field.second);
  }
  int64_t at = 0;
  for (const GgufSpec& spec : specs) {
    header.text(spec.name);
    header.number(static_cast<uint32_t>(spec.shape.rank));
    for (int i = spec.shape.rank - 1; i >= 0; --i) header.number(static_cast<uint64_t>(spec.shape[i]));
    header.number(static_cast<uint32_t>(spec.type));
    header.number(static_cast<uint64_t>(at));
    at += aligned(spec.bytes());
  }
  return header.bytes();
}

}  // namespace

int64_t GgufSpec::bytes() const {
  const GgmlTypeRow& row = *ggml_type(static_cast<uint32_t>(type));
  return shape.count() / row.values * row.bytes;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufFields& fields, std::vector<GgufSpec> specs)
    : where_(printable(path.string())), specs_(std::move(specs)), file_(path) {
  const std::string header = header_of(where_, fields, specs_);
  file_.write(header);
  written_ = std::ssize(header);
  pad();
  if (!specs_.empty()) left_ = specs_[0].bytes();
}

void GgufWriter::pad() {
  constexpr std::byte kZeros[kAlignment] = {};
  const int64_t missing = aligned(written_) - written_;
  file_.write(std::span(kZeros).first(static_cast<size_t>(missing)));
  written_ += missing;
}

void GgufWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  CHECK(next_ < specs_.size() && specs_[next_].name == name, "tensor {} out of order", name);
  CHECK(std::ssize(bytes) <= left_, "tensor {}: {} bytes, {} are left", name, bytes.size(), left_);
  file_.write(bytes);
  written_ += std::ssize(bytes);
  left_ -= std::ssize(bytes);
  if (left_ > 0) return;
  pad();
  if (++next_ < specs_.size()) left_ = specs_[next_].bytes();
}

void GgufWriter::finish() {
  CHECK(next_ == specs_.size(), "tensor {} was not written", specs_[next_].name);
  file_.commit();
}

}  // namespace braid::io
