#include "text/jinja_pretty.h"

#include <algorithm>

#include "sys/utf8.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

namespace braid::text::jinja {
namespace {

constexpr int64_t kWidth = 80;

// Keys of one kind in their order, others by the names of their types.
bool key_before(const Value& a, const Value& b) {
  const bool numbers = a.is_number() && b.is_number(), texts = a.is(Kind::text) && b.is(Kind::text);
  if (numbers || texts) return less(a, b, "<");
  if (a.is(Kind::sequence) && b.is(Kind::sequence)) {
    try {
      return less(a, b, "<");
    } catch (const Raised&) {  // items of kinds without an order
    }
  }
  return type_name(a) < type_name(b);
}

// Dicts with their keys in order, at all levels.
Value in_order(const Value& v) {
  if (v.is(Kind::dict)) {
    auto entries = v.dict().entries;
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return key_before(a.first, b.first); });
    auto sorted = std::make_shared<Dict>();
    for (const auto& [key, value] : entries) sorted->set(key, in_order(value));
    return std::shared_ptr<const Dict>(std::move(sorted));
  }
  if (!v.is(Shape::list) && !v.is(Shape::tuple)) return v;
  Values items;
  for (const Value& item : v.sequence().items) items.push_back(in_order(item));
  return v.is(Shape::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

int64_t columns(const std::string& s) { return sys::utf8_count(s); }

// Runs of other characters, each with the spaces behind it.
std::vector<std::string> parts_of(const std::string& line) {
  std::vector<std::string> parts;
  bool spaces = true;
  for (size_t pos = 0; pos < line.size();) {
    const size_t start = pos;
    const bool space = is_space(next_point(line, pos));
    if (parts.empty() || (spaces && !space)) parts.emplace_back();
    spaces = space;
    parts.back().append(line, start, pos - start);
  }
  return parts;
}

class Pretty {
 public:
  explicit Pretty(const std::function<void(int64_t)>& spend) : spend_(spend) {}
  std::string take() { return std::move(out_); }

  // `allowance`: columns that what follows needs on the last line.
  void value(const Value& v, int64_t indent, int64_t allowance, int level) {
    std::string flat = to_repr(v);
    spend_(static_cast<int64_t>(flat.size()));
    if (columns(flat) > kWidth - indent - allowance) {
      if (v.is(Kind::dict)) return dict(v.dict(), indent, allowance, level);
      if (v.is(Shape::list)) return items(v.sequence().items, "[", "]", indent, allowance, level);
      if (v.is(Shape::tuple))
        return items(v.sequence().items, "(", v.sequence().items.size() == 1 ? ",)" : ")", indent, allowance, level);
      if (v.is(Kind::text) && !v.text().safe) return text(v.str(), indent, allowance, level);
    }
    out_ += flat;
  }

 private:
  void line(int64_t indent) {
    out_ += '\n';
    out_.append(static_cast<size_t>(indent), ' ');
    spend_(indent);
  }

  void dict(const Dict& d, int64_t indent, int64_t allowance, int level) {
    out_ += '{';
    for (size_t i = 0; i < d.entries.size(); ++i) {
      if (i > 0) out_ += ',', line(indent + 1);
      const std::string key = to_repr(d.entries[i].first);
      out_ += key + ": ";
      const bool last = i + 1 == d.entries.size();
      value(d.entries[i].second, indent + 1 + columns(key) + 2, last ? allowance + 1 : 1, level + 1);
    }
    out_ += '}';
  }

  void items(const Values& list, const char* open, const std::string& close, int64_t indent, int64_t allowance,
             int level) {
    out_ += open;
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out_ += ',', line(indent + 1);
      const bool last = i + 1 == list.size();
      value(list[i], indent + 1, last ? allowance + static_cast<int64_t>(close.size()) : 1, level + 1);
    }
    out_ += close;
  }

  // A long text as several that follow each other.
  void text(const std::string& s, int64_t indent, int64_t allowance, int level) {
    const std::vector<std::string> lines = split_lines(s, true);
    if (level == 1) ++indent, ++allowance;
    const int64_t width = kWidth - indent;
    std::vector<std::string> chunks;
    std::string flat;
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool last = i + 1 == lines.size();
      flat = to_repr(Value(lines[i]));
      if (columns(flat) <= width - (last ? allowance : 0))
        chunks.push_back(flat);
      else
        break_line(lines[i], width, last ? allowance : 0, chunks);
    }
    if (chunks.size() == 1) {
      out_ += flat;
      return;
    }
    if (level == 1) out_ += '(';
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (i > 0) line(indent);
      out_ += chunks[i];
    }
    if (level == 1) out_ += ')';
  }

  void break_line(const std::string& own, int64_t width, int64_t allowance, std::vector<std::string>& chunks) {
    const std::vector<std::string> parts = parts_of(own);
    std::string current;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i + 1 == parts.size()) width -= allowance;
      const std::string with = current + parts[i];
      spend_(static_cast<int64_t>(with.size()));
      if (columns(to_repr(Value(with))) > width) {
        if (!current.empty()) chunks.push_back(to_repr(Value(current)));
        current = parts[i];
      } else {
        current = with;
      }
    }
    if (!current.empty()) chunks.push_back(to_repr(Value(current)));
  }

  const std::function<void(int64_t)>& spend_;
  std::string out_;
};

}  // namespace

std::string to_pretty(const Value& v, const std::function<void(int64_t)>& spend) {
  spend(v.weight());
  Pretty pretty(spend);
  pretty.value(in_order(v), 0, 0, 1);
  return pretty.take();
}

}  // namespace braid::text::jinja
