#include "eval/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/answer_text.h"
#include "engine/reasoning.h"
#include "engine/scheduler.h"
#include "io/ordered_json.h"
#include "sys/error.h"
#include "sys/read.h"
#include "text/trimmed.h"

namespace braid::eval {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLineMax = 1 << 20;  // bytes

bool is_text(const ordered_json& row, const char* key) { return row.contains(key) && row[key].is_string(); }

// What is wrong with a line, or "".
std::string fault_of(const ordered_json& row) {
  const auto list = [&row](const char* key) { return row.contains(key) && row[key].is_array() && !row[key].empty(); };
  if (!row.is_object()) return "is not a JSON object";
  if (!is_text(row, "task")) return "'task' is not a text";
  if (!list("messages")) return "'messages' is not a list, or empty";
  if (!std::ranges::all_of(row["messages"], [](const auto& m) { return m.is_object() && is_text(m, "role"); }))
    return "a message has no 'role'";
  if (!list("answers")) return "'answers' is not a list, or empty";
  if (!std::ranges::all_of(row["answers"], [](const auto& a) { return a.is_string(); }))
    return "an answer is not a text";
  if (row.contains("tools") && !row["tools"].is_array()) return "'tools' is not a list";
  return "";
}

// The prediction block sees the hidden state before a token and that token, and drafts the one after it. The last token
// is only drafted, never read: an answer may fill the context.
void count_drafts(engine::Runner& runner, std::vector<int32_t> ids, std::span<const int32_t> answer, TaskResult& out) {
  const size_t prompt = ids.size();
  if (answer.size() < 2) return;
  ids.insert(ids.end(), answer.begin(), answer.end());
  const std::span<const int32_t> read(ids.data(), ids.size() - 1);
  std::vector<float> rows;
  runner.reset(0);
  runner.prefill(0, read, [&](const Tensor& x) {
    const Tensor hidden = runner.final_hidden(x);
    const float* from = hidden.view().as<float>();
    rows.insert(rows.end(), from, from + hidden.view().count());
  });
  const Tensor hidden(runner.ctx().arena, DType::f32, {std::ssize(read), runner.config().hidden});
  std::ranges::copy(rows, hidden.mut().as<float>());
  const Tensor logits = runner.mtp_logits(read, hidden);
  const auto width = static_cast<size_t>(logits.dim(1));
  for (size_t i = prompt + 1; i < ids.size(); ++i) {
    const float* row = logits.view().as<float>() + (i - 2) * width;
    ++out.drafted;
    out.accepted += std::max_element(row, row + width) - row == ids[i];
  }
  runner.reset(0);
}

}  // namespace

std::vector<ordered_json> read_tasks(const std::filesystem::path& path) {
  constexpr const char* kExpected = R"({"task": "", "messages": [{"role": "", ...}], "answers": [""]})";
  const std::string name = printable(path.string());
  std::vector<ordered_json> rows;
  sys::for_each_line(path, [&](const std::string& line, int64_t number) {
    const std::string where = fmt::format("{} line {}", name, number);
    ordered_json row = io::parse_ordered(line, where, kExpected, {.bytes = kLineMax});
    if (const std::string fault = fault_of(row); !fault.empty())
      fail(where, {.what = "is not a task: " + fault, .got = printable(line, 60), .expected = kExpected});
    rows.push_back(std::move(row));
  });
  if (rows.empty()) fail(name, {.what = "has no tasks", .expected = kExpected});
  return rows;
}

std::vector<TaskResult> run_tasks(engine::LanguageModel& model, const std::vector<ordered_json>& rows,
                                  const TaskOptions& options, const sys::FunctionRef<bool(int64_t)>& progress) {
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> prompts;
  for (const ordered_json& row : rows) {
    const auto tools = row.find("tools");
    texts.push_back(
        model.render(row["messages"], {.think = options.think, .tools = tools == row.end() ? nullptr : &*tools}));
    prompts.push_back(model.tokenizer().encode(texts.back(), false));
  }
  if (options.drafts && model.runner().model().mtp_steps() == 0)
    fail("--mtp", {.what = "this model has no multi-token prediction block", .hint = "leaving it out"});
  const engine::ReasoningBudget budget = model.reasoning_budget(options.budget);
  std::vector<engine::Request> requests;
  requests.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    requests.push_back({.prompt = prompts[i],
                        .generate = {.tokens_max = options.tokens_max,
                                     .budget = budget,
                                     .thinking = model.thinking_after(texts[i], options.think)}});
  }
  bool whole = true;
  std::vector<engine::Generated> answers = engine::generate_all(
      model.runner(), std::move(requests), [&](int64_t done) { return whole = progress(done); }, options.speculation);
  if (!whole) return {};
  std::vector<TaskResult> results;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<int32_t>& ids = answers[i].ids;
    const bool cut = answers[i].finish == engine::Finish::length;
    if (!cut) ids.pop_back();  // the end token
    engine::AnswerText text = engine::answer_text(model.tokenizer(), engine::ends_in_think(texts[i]), ids);
    TaskResult r{.task = rows[i]["task"], .reasoning = std::move(text.reasoning), .content = std::move(text.content)};
    r.cut = cut;
    if (options.drafts) count_drafts(model.runner(), prompts[i], ids, r);
    for (const ordered_json& accepted : rows[i]["answers"])
      r.right = r.right || r.content == text::trimmed(accepted.get_ref<const std::string&>());
    results.push_back(std::move(r));
  }
  return results;
}

std::pair<double, double> TaskScore::interval() const {
  constexpr double z = 1.959964;  // of a normal distribution, on either side
  const auto count = static_cast<double>(n);
  const double share = accuracy(), centre = share + z * z / (2 * count),
               half = z * std::sqrt(share * (1 - share) / count + z * z / (4 * count * count)), all = 1 + z * z / count;
  return {std::max(0.0, (centre - half) / all), std::min(1.0, (centre + half) / all)};
}

std::vector<TaskScore> scores_of(const std::vector<TaskResult>& results) {
  std::vector<TaskScore> scores;
  for (const TaskResult& r : results) {
    auto it = std::find_if(scores.begin(), scores.end(), [&](const TaskScore& s) { return s.task == r.task; });
    if (it == scores.end()) it = scores.insert(scores.end(), TaskScore{.task = r.task});
    it->right += r.right;
    it->cut += r.cut;
    ++it->n;
    it->drafted += r.drafted;
    it->accepted += r.accepted;
  }
  return scores;
}

}  // namespace braid::eval
