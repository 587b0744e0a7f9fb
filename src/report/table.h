// A table of text with aligned columns, as Markdown (what llama-bench prints) or plain for a terminal.
#pragma once
#include <string>
#include <vector>

namespace braid::report {

enum class Align { left, right };
struct Column {
  std::string title;
  Align align = Align::left;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void row(std::vector<std::string> cells);  // as many cells as columns
  std::string markdown() const;
  std::string plain() const;

 private:
  std::vector<size_t> widths() const;
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace braid::report
