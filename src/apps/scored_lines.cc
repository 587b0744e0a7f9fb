#include "apps/scored_lines.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "io/json.h"
#include "io/model_path.h"
#include "sys/error.h"
#include "sys/read.h"
#include "text/tokenizer.h"

namespace braid::apps {
namespace {

// Reads lines into ids; the tokenizer only when a line has text.
class LineReader {
 public:
  LineReader(std::string command, const std::string& model) : command_(std::move(command)), model_(model) {}

  std::vector<ScoredLine> read(const std::string& file) {
    if (file.empty()) fail(command_, {.what = "no lines to score", .hint = "--jsonl FILE or -"});
    const std::string name = file == "-" ? "standard input" : printable(file);
    std::vector<ScoredLine> lines;
    sys::for_each_line(file, [&](const std::string& text, int64_t number) {
      ScoredLine line{.where = fmt::format("{} line {}", name, number)};
      line.item = parse(io::Json::parse(text, line.where));
      lines.push_back(std::move(line));
    });
    if (lines.empty()) fail(name, {.what = "has no lines", .expected = kForms});
    return lines;
  }

 private:
  static constexpr const char* kForms = R"({"ids": [1, 2, ...]} or {"prompt": "...", "completion": "..."})";

  engine::ScoreItem parse(const io::Json& json) {
    if (!json.is_object()) json.refuse("is not an object", kForms);
    engine::ScoreItem item;
    const auto ids = json.get({"ids"}), prompt = json.get({"prompt"}), completion = json.get({"completion"});
    if (ids && !prompt && !completion) {
      for (const io::Json& id : ids->items())
        item.ids.push_back(static_cast<int32_t>(id.as_int({0, std::numeric_limits<int32_t>::max()})));
      if (item.ids.empty()) ids->refuse("is empty", "at least one token");
      return item;
    }
    if (ids || !prompt || !completion) json.refuse("is not a line to score", kForms);
    item.ids = tokenizer().encode(prompt->as_string(), true);
    item.first = std::ssize(item.ids);
    if (item.first == 0) prompt->refuse("has no tokens", "at least one, from which the completion is predicted");
    const std::vector<int32_t> more = tokenizer().encode(completion->as_string(), false);
    item.ids.insert(item.ids.end(), more.begin(), more.end());
    return item;
  }

  const text::Tokenizer& tokenizer() {
    if (!tokenizer_) tokenizer_ = text::Tokenizer::load(io::find_model(model_).folder);
    return *tokenizer_;
  }

  std::string command_;
  const std::string& model_;
  std::optional<text::Tokenizer> tokenizer_;
};

}  // namespace

std::vector<ScoredLine> read_scored_lines(const std::string& command, const std::string& model,
                                          const std::string& file) {
  return LineReader(command, model).read(file);
}

void check_ids(const std::vector<ScoredLine>& lines, int64_t vocab) {
  for (const ScoredLine& line : lines) {
    for (const int32_t id : line.item.ids) {
      if (id >= vocab)
        fail(line.where,
             {.what = "no such token", .got = std::to_string(id), .expected = fmt::format("0 to {}", vocab - 1)});
    }
  }
}

}  // namespace braid::apps
