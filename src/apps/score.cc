// braid score: log-probabilities of given tokens by the training pass, by prefill or step by step; a line of JSON in, a
// line of JSON out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "engine/score.h"
#include "io/json.h"
#include "report/progress.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/read.h"
#include "text/tokenizer.h"

namespace braid::apps {
namespace {

struct Options {
  ModelArgs model;
  std::string jsonl, path = "prefill";
  int64_t batch = 1;
};

struct Line {
  std::string where;  // "F line 3"
  engine::ScoreItem item{};
};

engine::ScorePath path_of(const std::string& word) {
  return word == "train"  ? engine::ScorePath::train
         : word == "step" ? engine::ScorePath::step
                          : engine::ScorePath::prefill;
}

// Reads lines into ids; the tokenizer only when a line has text.
class LineReader {
 public:
  explicit LineReader(const std::string& model) : model_(model) {}

  std::vector<Line> read(const std::string& file) {
    if (file.empty()) fail("score", {.what = "no lines to score", .hint = "--jsonl FILE or -"});
    const std::string name = file == "-" ? "standard input" : printable(file);
    std::vector<Line> lines;
    sys::for_each_line(file, [&](const std::string& text, int64_t number) {
      Line line{.where = fmt::format("{} line {}", name, number)};
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

  const std::string& model_;
  std::optional<text::Tokenizer> tokenizer_;
};

// The last token of a line predicts nothing that is asked for, so it takes no place in the context.
int64_t read_of(const Line& line) { return std::max<int64_t>(1, std::ssize(line.item.ids) - 1); }

int64_t longest(const std::vector<Line>& lines, int64_t context) {
  int64_t most = 1;
  for (const Line& line : lines) {
    most = std::max(most, read_of(line));
    if (context > 0 && most > context) {
      fail(line.where, {.what = "longer than the context",
                        .got = fmt::format("{} tokens", line.item.ids.size()),
                        .expected = fmt::format("at most {}", context + 1),
                        .hint = "a larger -c"});
    }
  }
  return most;
}

void check_ids(const std::vector<Line>& lines, int64_t vocab) {
  for (const Line& line : lines) {
    for (const int32_t id : line.item.ids) {
      if (id >= vocab)
        fail(line.where,
             {.what = "no such token", .got = std::to_string(id), .expected = fmt::format("0 to {}", vocab - 1)});
    }
  }
}

void print(const std::vector<std::vector<float>>& results) {
  for (const std::vector<float>& values : results) fmt::print("{{\"logprobs\":[{}]}}\n", fmt::join(values, ","));
  std::fflush(stdout);
}

int score_command(const Options& o) {
  check_range("--batch", o.batch, 1, 1024);
  engine::RunnerOptions options = o.model.runner_options();
  const std::vector<Line> lines = LineReader(o.model.model).read(o.jsonl);
  const engine::ScorePath path = path_of(o.path);
  options.context = std::max(longest(lines, options.context), int64_t{1});
  options.sequences = path == engine::ScorePath::train ? 1 : std::min<int64_t>(o.batch, std::ssize(lines));
  engine::LanguageModel lm(o.model.model, options);
  check_ids(lines, lm.runner().config().vocab);

  sys::catch_interrupts();
  report::Progress progress("scoring", std::ssize(lines));
  std::vector<engine::ScoreItem> items;
  for (size_t begin = 0; begin < lines.size(); begin += items.size()) {
    items.clear();
    for (size_t i = begin; i < lines.size() && std::ssize(items) < o.batch; ++i) items.push_back(lines[i].item);
    const std::vector<std::vector<float>> results = engine::score(lm.runner(), items, path);
    progress.wipe();
    print(results);
    progress.at(static_cast<int64_t>(begin + items.size()));
    if (sys::interrupted()) return 130;
  }
  return 0;
}

}  // namespace

Action setup_score(Cli& cli) {
  auto o = std::make_shared<Options>();
  o->model.declare(cli);
  cli.option("--jsonl F", o->jsonl,
             "lines {\"ids\": [1, 2]} or {\"prompt\": \"\", \"completion\": \"\"}; - is standard input. Each becomes "
             "a line {\"logprobs\": []}: natural logarithms, of the ids after the first or of the completion");
  cli.choice("--path", o->path, {"train", "prefill", "step"},
             "the forward pass of training, passes through the caches, or one token at a time; with --exact all are "
             "the same numbers");
  cli.option("--batch N", o->batch, "lines computed together");
  return [o] { return score_command(*o); };
}

}  // namespace braid::apps
