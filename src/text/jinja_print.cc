#include "text/jinja_print.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja_unicode.h"

namespace braid::text::jinja {
namespace {

constexpr int kCycle = 2 * kDepthMax;  // namespaces can hold themselves

void bound(const std::string& out) {
  if (static_cast<int64_t>(out.size()) > kWeightMax)
    raise_type(fmt::format("a value prints as more than {} bytes", kWeightMax));
}

void repr_text(const std::string& s, std::string& out) {
  const bool single = s.find('\'') == std::string::npos || s.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  out += quote;
  for (size_t pos = 0; pos < s.size();) {
    const size_t start = pos;
    const char32_t c = next_point(s, pos);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out.append(s, start, pos - start);
    } else {
      const auto code = static_cast<uint32_t>(c);
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
  }
  out += quote;
}

void repr_into(const Value& v, std::string& out, int depth);

void repr_entries(const std::vector<std::pair<Value, Value>>& entries, std::string& out, int depth) {
  out += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out += ", ";
    repr_into(entries[i].first, out, depth);
    out += ": ";
    repr_into(entries[i].second, out, depth);
  }
  out += '}';
}

void repr_sequence(const Value& v, std::string& out, int depth) {
  const Sequence& s = v.sequence();
  if (s.shape == Shape::range || s.shape == Shape::iterator) {
    out += s.shape == Shape::range ? s.label : "<generator object>";
    return;
  }
  const bool view = s.shape != Shape::list && s.shape != Shape::tuple;
  if (view) out += fmt::format("{}(", type_name(v));
  out += s.shape == Shape::tuple ? '(' : '[';
  for (size_t i = 0; i < s.items.size(); ++i) {
    if (i > 0) out += ", ";
    repr_into(s.items[i], out, depth);
  }
  if (s.shape == Shape::tuple) {
    out += s.items.size() == 1 ? ",)" : ")";
  } else {
    out += ']';
  }
  if (view) out += ')';
}

void repr_into(const Value& v, std::string& out, int depth) {
  if (depth > kCycle) raise_type("a namespace holds itself and cannot be printed");
  bound(out);
  switch (v.kind()) {
    case Kind::missing:
      break;
    case Kind::undefined:
      out += "Undefined";
      break;
    case Kind::none:
      out += "None";
      break;
    case Kind::boolean:
      out += v.boolean() ? "True" : "False";
      break;
    case Kind::integer:
      out += fmt::format("{}", v.integer());
      break;
    case Kind::large:
      out += v.digits();
      break;
    case Kind::real:
      out += real_text(v.real());
      break;
    case Kind::text:
      if (v.text().safe) out += "Markup(";
      repr_text(v.str(), out);
      if (v.text().safe) out += ')';
      break;
    case Kind::sequence:
      repr_sequence(v, out, depth + 1);
      break;
    case Kind::dict:
      repr_entries(v.dict().entries, out, depth + 1);
      break;
    case Kind::space: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [name, value] : v.space().attributes) entries.emplace_back(Value(name), value);
      out += "<Namespace ";
      repr_entries(entries, out, depth + 1);
      out += '>';
      break;
    }
    case Kind::callable:
      out += fmt::format("<function {}>", v.callable().name);
      break;
    case Kind::loop:
      out += fmt::format("<LoopContext {}/{}>", v.loop().index0 + 1, v.loop().items.size());
      break;
  }
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}
  void write(const Value& v);
  std::string take() { return std::move(out_); }

 private:
  void text(const std::string& s);
  void key(const Value& k);
  void line() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
    bound(out_);
  }
  template <class Range, class Each>
  void members(const Range& range, char open, char close, Each each) {
    out_ += open;
    ++level_;
    for (bool first = true; const auto& member : range) {
      if (!std::exchange(first, false)) out_ += style_.between;
      line();
      each(member);
    }
    --level_;
    if (!std::empty(range)) line();
    out_ += close;
  }

  const JsonStyle& style_;
  std::string out_;
  int level_ = 0;
};

std::string json_real(double d) {
  return std::isnan(d) ? "NaN" : std::isinf(d) ? (d > 0 ? "Infinity" : "-Infinity") : real_text(d);
}

void JsonWriter::text(const std::string& s) {
  out_ += '"';
  for (size_t pos = 0; pos < s.size();) {
    const size_t start = pos;
    const auto c = static_cast<uint32_t>(next_point(s, pos));
    switch (c) {
      case '"':
        out_ += "\\\"";
        break;
      case '\\':
        out_ += "\\\\";
        break;
      case '\n':
        out_ += "\\n";
        break;
      case '\r':
        out_ += "\\r";
        break;
      case '\t':
        out_ += "\\t";
        break;
      case '\f':
        out_ += "\\f";
        break;
      case '\b':
        out_ += "\\b";
        break;
      default:
        if (c >= 0x20 && (!style_.ascii || c < 0x7F)) {
          out_.append(s, start, pos - start);
        } else if (c < 0x10000) {
          out_ += fmt::format("\\u{:04x}", c);
        } else {
          out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + ((c - 0x10000) & 0x3FF));
        }
    }
  }
  out_ += '"';
  bound(out_);
}

void JsonWriter::key(const Value& k) {
  if (k.is(Kind::text)) return text(k.str());
  if (!k.is_number() && !k.is(Kind::none)) {
    raise_type(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(k)));
  }
  out_ += '"';
  write(k);
  out_ += '"';
}

void JsonWriter::write(const Value& v) {
  switch (v.kind()) {
    case Kind::none:
      out_ += "null";
      return;
    case Kind::boolean:
      out_ += v.boolean() ? "true" : "false";
      return;
    case Kind::integer:
      out_ += fmt::format("{}", v.integer());
      return;
    case Kind::large:
      out_ += v.digits();
      return;
    case Kind::real:
      out_ += json_real(v.real());
      return;
    case Kind::text:
      return text(v.str());
    case Kind::sequence:
      if (!v.is(Shape::list) && !v.is(Shape::tuple)) break;
      return members(v.sequence().items, '[', ']', [this](const Value& item) { write(item); });
    case Kind::dict: {
      auto entries = v.dict().entries;
      if (style_.sort_keys) {
        std::stable_sort(entries.begin(), entries.end(),
                         [](const auto& a, const auto& b) { return less(a.first, b.first, "<"); });
      }
      return members(entries, '{', '}', [this](const auto& entry) {
        key(entry.first);
        out_ += style_.colon;
        write(entry.second);
      });
    }
    default:
      break;
  }
  raise_type(fmt::format("Object of type {} is not JSON serializable", type_name(v)));
}

}  // namespace

std::string real_text(double d) {
  if (std::isnan(d)) return "nan";
  std::string s = fmt::format("{}", d);
  if (s.find_first_of(".en") == std::string::npos) s += ".0";  // 1e+16, inf
  return s;
}

std::string to_repr(const Value& v) {
  std::string out;
  repr_into(v, out, 0);
  bound(out);
  return out;
}

std::string to_text(const Value& v) {
  if (v.is(Kind::text)) return v.str();
  if (v.is(Kind::undefined)) return {};
  return to_repr(v);
}

std::string to_json(const Value& v, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(v);
  return writer.take();
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace braid::text::jinja
