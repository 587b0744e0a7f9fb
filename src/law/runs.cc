#include "law/runs.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>

#include "sys/error.h"
#include "sys/nearest.h"
#include "sys/read.h"

namespace braid::law {
namespace {

// What a table may have; a fit's time grows with the rows, and no published one comes near.
constexpr size_t kBytesMax = size_t{16} << 20, kRowsMax = 100'000, kFieldsMax = 1024;

std::string at(const std::string& name, int64_t line) { return fmt::format("{}:{}", printable(name), line); }

// A quoted field's text, from behind its opening quote; `line` is left at what follows the closing one.
std::optional<std::string> take_quoted(std::string_view& line) {
  std::string field;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '"') {
      field += line[i];
    } else if (i + 1 < line.size() && line[i + 1] == '"') {
      field += line[i++];
    } else {
      line.remove_prefix(i + 1);
      return field;
    }
  }
  return std::nullopt;
}

std::vector<std::string> fields_of(std::string_view line, const std::string& where) {
  std::vector<std::string> fields;
  for (;;) {
    if (fields.size() == kFieldsMax)
      fail(where, {.what = "too many fields", .expected = fmt::format("at most {}", kFieldsMax)});
    if (line.starts_with('"')) {
      line.remove_prefix(1);
      std::optional<std::string> field = take_quoted(line);
      if (!field || !(line.empty() || line.front() == ','))
        fail(where, {.what = fmt::format("the quotes of field {} do not end it", fields.size() + 1),
                     .expected = "\"text\", with \"\" for a quote inside"});
      fields.push_back(std::move(*field));
    } else {
      const size_t end = std::min(line.find(','), line.size());
      fields.emplace_back(line.substr(0, end));
      line.remove_prefix(end);
    }
    if (line.empty()) return fields;
    line.remove_prefix(1);
  }
}

// Where the columns of a header are.
class Header {
 public:
  Header(std::vector<std::string> names, std::string where) : names_(std::move(names)), where_(std::move(where)) {}
  size_t size() const { return names_.size(); }

  size_t need(const std::string& name) const {
    const std::optional<size_t> found = find(name);
    if (found) return *found;
    std::string have;
    for (const std::string& n : names_) have += (have.empty() ? "" : ", ") + n;
    fail(where_, {.what = fmt::format("no column {}", printable(name)),
                  .got = printable(have),
                  .expected = "a column of that name",
                  .hint = sys::nearest(name, names_)});
  }

  // An empty name stands for `usual`, which may be missing.
  std::optional<size_t> optional(const std::string& name, const std::string& usual) const {
    return name.empty() ? find(usual) : need(name);
  }

 private:
  std::optional<size_t> find(const std::string& name) const {
    const auto it = std::find(names_.begin(), names_.end(), name);
    if (it == names_.end()) return std::nullopt;
    if (std::find(std::next(it), names_.end(), name) != names_.end())
      fail(where_, {.what = fmt::format("column {} is there twice", printable(name)), .expected = "it once"});
    return static_cast<size_t>(it - names_.begin());
  }

  std::vector<std::string> names_;
  std::string where_;
};

double positive(std::string_view text, const std::string& where, const char* column) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  const size_t end = text.find_last_not_of(" \t") + 1;
  double value = 0;
  const char* const last = text.data() + std::max(begin, end);
  const auto [next, code] = std::from_chars(text.data() + begin, last, value);
  // Beyond these a product of two columns leaves the range of double precision.
  if (code != std::errc() || next != last || !(value >= 1e-100 && value <= 1e100))
    fail(where, {.what = fmt::format("{} is not a positive number", column),
                 .got = fmt::format("\"{}\"", printable(text, 40)),
                 .expected = "1e-100 to 1e100"});
  return value;
}

bool next_line(std::string_view& text, std::string_view& line) {
  if (text.empty()) return false;
  const size_t end = std::min(text.find('\n'), text.size());
  line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return true;
}

// Numbers the runs in the order of their names; or every row is a run.
void number_runs(Runs& runs, const std::vector<std::string>& names) {
  const auto key = [](const Row& r) {
    return std::tuple(r.run, r.params, r.tokens, r.flops, r.loss, r.width, r.depth);
  };
  std::map<std::string_view, int64_t> numbers;
  for (const std::string& n : names) numbers.emplace(n, 0);
  int64_t count = 0;
  for (auto& [name, number] : numbers) number = count++;
  for (size_t i = 0; i < names.size(); ++i) runs.rows[i].run = numbers.at(names[i]);
  std::sort(runs.rows.begin(), runs.rows.end(), [&](const Row& a, const Row& b) { return key(a) < key(b); });
  if (names.empty())
    for (Row& r : runs.rows) r.run = count++;
  runs.count = count;
}

}  // namespace

Runs read_runs(std::string_view text, const std::string& name, const Columns& columns) {
  if (text.size() > kBytesMax)
    fail(printable(name), {.what = "too large",
                           .got = fmt::format("{} bytes", text.size()),
                           .expected = fmt::format("at most {}", kBytesMax)});
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string_view line;
  int64_t number = 1;
  if (!next_line(text, line)) fail(printable(name), {.what = "empty", .expected = "a header and rows"});
  const Header header(fields_of(line, at(name, 1)), at(name, 1));
  const size_t params = header.need(columns.params), tokens = header.need(columns.tokens),
               loss = header.need(columns.loss);
  const std::optional<size_t> run = header.optional(columns.run, "run"),
                              flops = header.optional(columns.flops, "flops"), width = header.optional("", "width"),
                              depth = header.optional("", "depth");
  Runs runs{.own_flops = flops.has_value(), .has_shapes = width && depth};
  std::vector<std::string> names;
  while (next_line(text, line)) {
    const std::string where = at(name, ++number);
    if (line.empty()) continue;
    if (runs.rows.size() == kRowsMax)
      fail(where, {.what = "too many rows", .expected = fmt::format("at most {}", kRowsMax)});
    std::vector<std::string> fields = fields_of(line, where);
    if (fields.size() != header.size())
      fail(where, {.what = "wrong number of fields",
                   .got = std::to_string(fields.size()),
                   .expected = fmt::format("{}, as in the header", header.size())});
    Row& row = runs.rows.emplace_back();
    row.params = positive(fields[params], where, "params");
    row.tokens = positive(fields[tokens], where, "tokens");
    row.loss = positive(fields[loss], where, "loss");
    row.flops = flops ? positive(fields[*flops], where, "flops") : 6 * row.params * row.tokens;
    if (runs.has_shapes) {
      row.width = positive(fields[*width], where, "width");
      row.depth = positive(fields[*depth], where, "depth");
    }
    if (run) names.push_back(std::move(fields[*run]));
  }
  if (runs.rows.empty()) fail(printable(name), {.what = "no rows", .expected = "one for each checkpoint"});
  number_runs(runs, names);
  return runs;
}

Runs read_runs_file(const std::string& path, const Columns& columns) {
  return read_runs(sys::read_file(path, kBytesMax), path, columns);
}

}  // namespace braid::law
