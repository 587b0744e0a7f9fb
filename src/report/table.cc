#include "report/table.h"

#include <algorithm>

#include "sys/check.h"
#include "sys/utf8.h"

namespace braid::report {
namespace {

// Terminal columns of the text: one per code point, which is right for everything Braid prints in tables.
size_t width_of(const std::string& text) { return static_cast<size_t>(sys::utf8_count(text)); }

std::string pad(const std::string& text, size_t width, Align align) {
  const std::string space(width - width_of(text), ' ');
  return align == Align::left ? text + space : space + text;
}

}  // namespace

void Table::row(std::vector<std::string> cells) {
  CHECK(cells.size() == columns_.size(), "{} cells for {} columns", cells.size(), columns_.size());
  rows_.push_back(std::move(cells));
}

std::vector<size_t> Table::widths() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = std::max<size_t>(3, width_of(columns_[i].title));
    for (const auto& cells : rows_) width = std::max(width, width_of(cells[i]));
    widths.push_back(width);
  }
  return widths;
}

std::string Table::markdown() const {
  const std::vector<size_t> wide = widths();
  std::string head = "|", rule = "|", body;
  for (size_t i = 0; i < columns_.size(); ++i) {
    head += " " + pad(columns_[i].title, wide[i], columns_[i].align) + " |";
    rule += columns_[i].align == Align::left ? " " + std::string(wide[i], '-') + " |"
                                             : " " + std::string(wide[i], '-') + ":|";
  }
  for (const auto& cells : rows_) {
    body += "|";
    for (size_t i = 0; i < cells.size(); ++i) body += " " + pad(cells[i], wide[i], columns_[i].align) + " |";
    body += "\n";
  }
  return head + "\n" + rule + "\n" + body;
}

std::string Table::plain() const {
  const std::vector<size_t> wide = widths();
  const auto line = [&](auto&& cell) {
    std::string text;
    for (size_t i = 0; i < columns_.size(); ++i) text += (i ? "  " : "") + pad(cell(i), wide[i], columns_[i].align);
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string out = line([&](size_t i) { return columns_[i].title; });
  for (const auto& cells : rows_) out += line([&](size_t i) { return cells[i]; });
  return out;
}

}  // namespace braid::report
