#include "data/synth/synth.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/synth/task.h"
#include "io/atomic_file.h"
#include "sys/error.h"

namespace braid::synth {
namespace {

using nlohmann::ordered_json;

// Streams of the random counter.
enum : uint32_t { kTrain = 1, kValid, kVocabulary, kTasks };

constexpr std::string_view kSystems[] = {
    "You are a helpful assistant.", "Answer briefly.",    "You are Tiny.", "Be kind.",
    "You help people with Braid.",  "Think step by step."};

// By kind of puzzle: sorting is the hardest to learn.
constexpr int64_t kStringWeights[] = {2, 2, 2, 4, 4};

ordered_json tools() {
  return ordered_json::parse(R"([{"type": "function", "function": {
    "name": "calculator", "description": "Works out an expression.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}])");
}

ordered_json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

ordered_json assistant(const std::string& reasoning, const std::string& content) {
  ordered_json m = message("assistant", content);
  if (!reasoning.empty()) m["reasoning_content"] = reasoning;
  return m;
}

// The messages of a turn, a calculator's included. Every turn keeps its thinking: if the template drops earlier ones,
// each turn becomes its own example.
void append(ordered_json& messages, const Turn& turn, bool think) {
  messages.push_back(message("user", turn.user));
  const std::string reasoning = think ? turn.reasoning : "";
  if (turn.expression.empty()) return messages.push_back(assistant(reasoning, turn.answer));
  ordered_json call = assistant(reasoning, "");
  call["tool_calls"] = {
      {{"type", "function"}, {"function", {{"name", "calculator"}, {"arguments", {{"expression", turn.expression}}}}}}};
  messages.push_back(call);
  messages.push_back(message("tool", turn.answer));
  messages.push_back(assistant(think ? "The calculator has answered." : "", turn.answer));
}

Turn turn_of(Draw& draw, bool with_calculator, bool think) {
  //                            +   -   *   <>  words, calculator, Braid, the rest
  constexpr int64_t kWeights[] = {14, 14, 19, 7, 17, 0, 17, 12};
  constexpr int64_t kWeightsCalculator[] = {0, 0, 0, 2, 6, 72, 14, 6};
  const auto kind = static_cast<int64_t>(draw.weighted(with_calculator ? std::span(kWeightsCalculator) : kWeights));
  if (kind < kArithmeticKinds) return arithmetic(draw, Split::train, kind, think);
  if (kind == 4) return strings(draw, Split::train, static_cast<int64_t>(draw.weighted(kStringWeights)));
  if (kind == 5) return calculator(draw, Split::train);
  return kind == 6 ? about(draw) : off_topic(draw);
}

// One conversation: usually one turn, one in sixteen with a calculator, one in four without thinking.
ordered_json conversation(Draw& draw) {
  const bool with_calculator = draw.percent(6), think = !draw.percent(25);
  ordered_json messages = ordered_json::array();
  if (draw.percent(6)) messages.push_back(message("system", std::string(draw.pick(kSystems))));
  const int64_t turns = draw.percent(90) ? 1 : draw.between(2, 3);
  for (int64_t i = 0; i < turns; ++i) append(messages, turn_of(draw, with_calculator, think), think);
  ordered_json row = {{"messages", messages}};
  if (with_calculator) row["tools"] = tools();
  row["chat_template_kwargs"] = {{"enable_thinking", think}};
  return row;
}

std::string call_text(const std::string& expression) {
  return fmt::format(
      "<tool_call>\n<function=calculator>\n<parameter=expression>\n{}\n</parameter>\n</function>\n</tool_call>",
      expression);
}

ordered_json task_row(const Turn& turn) {
  ordered_json row = {{"task", turn.task}, {"messages", {message("user", turn.user)}}};
  if (!turn.expression.empty()) row["tools"] = tools();
  row["answers"] = {turn.expression.empty() ? turn.answer : call_text(turn.expression)};
  return row;
}

void write_tasks(const std::filesystem::path& path, const Options& o, int64_t kinds,
                 const sys::FunctionRef<Turn(Draw&, int64_t)>& make) {
  io::AtomicFile file(path);
  for (int64_t i = 0; i < o.tasks * kinds; ++i) {
    Draw draw({o.seed, kTasks}, static_cast<uint64_t>(i));
    file.write(task_row(make(draw, i % kinds)).dump() + "\n");
  }
  file.commit();
}

// Prose of users and the model. Half of it is about Braid, so that these words become whole tokens.
void write_vocabulary(const std::filesystem::path& path, const Options& o) {
  io::AtomicFile file(path);
  for (uint64_t i = 0; i < 20000; ++i) {
    Draw draw({o.seed, kVocabulary}, i);
    const Turn t = i % 2 ? off_topic(draw) : about(draw);
    file.write(t.user + "\n" + t.reasoning + "\n" + t.answer + "\n");
    const Turn puzzle =
        i % 4 ? strings(draw, Split::train, draw.below(4)) : arithmetic(draw, Split::train, draw.below(4));
    file.write(puzzle.user + "\n");
    if (i % 20 == 0) file.write(call_text("1 + 2") + "\n" + tools().dump() + "\n");
  }
  file.commit();
}

}  // namespace

bool write(const std::filesystem::path& folder, const Options& o, const sys::FunctionRef<bool(int64_t)>& progress) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed)
    fail_environment(printable(folder.string()), {.what = "cannot create the folder", .got = failed.message()});
  write_tasks(folder / "arithmetic.jsonl", o, kArithmeticKinds,
              [](Draw& d, int64_t kind) { return arithmetic(d, Split::test, kind); });
  write_tasks(folder / "strings.jsonl", o, kStringKinds,
              [](Draw& d, int64_t kind) { return strings(d, Split::test, kind); });
  write_tasks(folder / "calculator.jsonl", o, 1, [](Draw& d, int64_t) { return calculator(d, Split::test); });
  write_vocabulary(folder / "vocabulary.txt", o);
  for (const bool train : {false, true}) {
    io::AtomicFile file(folder / (train ? "train.jsonl" : "valid.jsonl"));
    const int64_t rows = train ? o.train : o.valid;
    for (int64_t i = 0; i < rows; ++i) {
      Draw draw({o.seed, train ? kTrain : kValid}, static_cast<uint64_t>(i));
      file.write(conversation(draw).dump() + "\n");
      if (train && i % 1024 == 0 && !progress(i)) return false;
    }
    file.commit();
  }
  return true;
}

}  // namespace braid::synth
