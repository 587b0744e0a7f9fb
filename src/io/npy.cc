#include "io/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

std::string header_text(const Shape& shape) {
  std::string dims;
  for (int i = 0; i < shape.rank; ++i)
    dims += fmt::format("{}{}", shape[i], shape.rank == 1 ? "," : i + 1 < shape.rank ? ", " : "");
  std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", dims);
  const size_t used = kMagic.size() + 4 + text.size() + 1;
  text.append((64 - used % 64) % 64, ' ');  // the values start at a multiple of 64 bytes
  text += '\n';
  const auto size = static_cast<uint16_t>(text.size());
  return fmt::format("{}\x01{}{}{}{}", kMagic, '\0', static_cast<char>(size & 255), static_cast<char>(size >> 8), text);
}

// The header is a Python dict. Only what NumPy writes is read: three keys, a string, a boolean, a tuple of integers.
class Dict {
 public:
  Dict(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  NpyLayout read() {
    NpyLayout out;
    bool descr = false, order = false, shape = false;
    want('{');
    while (!take('}')) {
      const std::string_view key = quoted();
      want(':');
      if (key == "descr" && !descr) {
        descr = true;
        out.dtype = dtype(quoted());
      } else if (key == "fortran_order" && !order) {
        order = true;
        if (word("True"))
          fail(where_, {.what = "is column-major", .got = "fortran_order", .expected = "row-major values"});
        if (!word("False")) refuse();
      } else if (key == "shape" && !shape) {
        shape = true;
        out.shape = tuple();
      } else {
        refuse();
      }
      if (!take(',')) {
        want('}');
        break;
      }
    }
    if (!descr || !order || !shape) refuse();
    return out;
  }

 private:
  [[noreturn]] void refuse() const {
    fail(where_, {.what = "the npy header is malformed", .got = printable(text_, 40)});
  }
  void skip_blanks() { text_.remove_prefix(std::min(text_.find_first_not_of(" \n"), text_.size())); }
  bool word(std::string_view wanted) {
    skip_blanks();
    if (!text_.starts_with(wanted)) return false;
    text_.remove_prefix(wanted.size());
    return true;
  }
  bool take(char ch) { return word({&ch, 1}); }
  void want(char ch) {
    if (!take(ch)) refuse();
  }
  std::string_view quoted() {
    want('\'');
    const size_t end = text_.find('\'');
    if (end == text_.npos) refuse();
    const std::string_view inside = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return inside;
  }
  DType dtype(std::string_view descr) const {
    if (descr == "<f4") return DType::f32;
    if (descr == "<i4") return DType::i32;
    if (descr == "<i8") return DType::i64;
    fail(where_, {.what = "has the wrong dtype",
                  .got = printable(descr),
                  .expected = "float32, int32 or int64 ('<f4', '<i4', '<i8')"});
  }
  Shape tuple() {
    Shape shape;
    want('(');
    while (!take(')')) {
      skip_blanks();
      int64_t value = -1;
      const auto [stop, status] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
      if (status != std::errc{} || value < 0 || shape.rank == Shape::kMaxRank) refuse();
      text_.remove_prefix(static_cast<size_t>(stop - text_.data()));
      shape[shape.rank++] = value;
      if (!take(',')) {
        want(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  const std::string& where_;
};

}  // namespace

NpyWriter::NpyWriter(const std::filesystem::path& path, const Shape& shape) : file_(path), left_(shape.count()) {
  file_.write(header_text(shape));
}

void NpyWriter::append(std::span<const float> values) {
  left_ -= std::ssize(values);
  CHECK(left_ >= 0, "{} values too many", -left_);
  file_.write(std::as_bytes(values));
}

void NpyWriter::finish() {
  CHECK(left_ == 0, "{} values were not written", left_);
  file_.commit();
}

NpyLayout parse_npy(std::span<const std::byte> file, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kMagic) || text.size() < 12)
    fail(where, {.what = "is not an npy file", .expected = "a file that numpy.save wrote"});
  const char major = text[6];
  if (major < 1 || major > 3)
    fail(where, {.what = "unknown npy version", .got = std::to_string(major), .expected = "1, 2 or 3"});
  const size_t start = major == 1 ? 10 : 12;
  uint32_t length = 0;
  std::memcpy(&length, text.data() + 8, start - 8);
  if (length > text.size() - start) {
    fail(where, {.what = "is truncated within its header",
                 .got = fmt::format("{} bytes", text.size()),
                 .expected = fmt::format("at least {}", start + length)});
  }
  NpyLayout layout = Dict(text.substr(start, length), where).read();
  layout.offset = static_cast<int64_t>(start + length);
  int64_t bytes = size_of(layout.dtype);
  for (int i = 0; i < layout.shape.rank; ++i) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(layout.shape[i], 1), &bytes)) {
      fail(where, {.what = "has an impossible shape", .got = to_string(layout.shape)});
    }
  }
  if (layout.shape.count() == 0) bytes = 0;
  const int64_t rest = std::ssize(file) - layout.offset;
  if (rest != bytes) {
    fail(where, {.what = rest < bytes ? "is truncated" : "has bytes after its values",
                 .got = fmt::format("{} bytes of values", rest),
                 .expected = fmt::format("{} for {} {}", bytes, name_of(layout.dtype), to_string(layout.shape))});
  }
  return layout;
}

Npy::Npy(const std::filesystem::path& path)
    : file_(path), layout_(parse_npy(file_.bytes(), printable(path.string()))) {}

std::vector<float> Npy::floats() const {
  if (layout_.dtype != DType::f32) {
    fail(printable(file_.path().string()),
         {.what = "has the wrong dtype", .got = name_of(layout_.dtype), .expected = "F32"});
  }
  std::vector<float> out(static_cast<size_t>(layout_.shape.count()));
  if (!out.empty()) std::memcpy(out.data(), file_.bytes().data() + layout_.offset, out.size() * sizeof(float));
  return out;
}

std::vector<int64_t> Npy::integers() const {
  if (layout_.dtype == DType::f32) {
    fail(printable(file_.path().string()), {.what = "has the wrong dtype", .got = "F32", .expected = "I32 or I64"});
  }
  std::vector<int64_t> out(static_cast<size_t>(layout_.shape.count()));
  const std::byte* at = file_.bytes().data() + layout_.offset;
  for (int64_t& value : out) {
    int32_t narrow = 0;
    if (layout_.dtype == DType::i64)
      std::memcpy(&value, at, sizeof value);
    else
      std::memcpy(&narrow, at, sizeof narrow);
    if (layout_.dtype == DType::i32) value = narrow;
    at += size_of(layout_.dtype);
  }
  return out;
}

}  // namespace braid::io
