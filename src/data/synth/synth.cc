#include "data/synth/synth.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/synth/holdout.h"
#include "data/synth/near.h"
#include "data/synth/task.h"
#include "io/atomic_file.h"
#include "io/atomic_folder.h"
#include "sys/error.h"

namespace braid::synth {
namespace {

using nlohmann::ordered_json;

// Streams of the random counter. Tasks at a later turn are other problems: kTasks + turn.
enum : uint32_t { kTrain = 1, kValid, kVocabulary, kFollowUps, kTasks = 16 };

constexpr std::string_view kSystems[] = {
    "You are a helpful assistant.",
    "Answer briefly.",
    "You are Tiny.",
    "Be kind.",
    "You help people with Braid.",
    "Think step by step.",
    "You are a friendly teacher.",
    "Be precise.",
    "Keep answers short.",
    "You answer questions about software.",
    "Help the user with small sums and words.",
    "You are an expert in arithmetic.",
    "Talk to a beginner.",
    "Do not make things up.",
    "The user is a developer.",
    "Say so when you cannot do something.",
};

// By kind of puzzle: sorting is the hardest to learn.
constexpr int64_t kStringWeights[] = {3, 2, 3, 4, 4};

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

std::string call_text(const std::string& expression) {
  return fmt::format(
      "<tool_call>\n<function=calculator>\n<parameter=expression>\n{}\n</parameter>\n</function>\n</tool_call>",
      expression);
}

// What is tested by prompts of bench/data; other problems are held out by their numbers and words alone.
bool declines_or_tells(const Turn& turn) {
  return turn.task == "about" || turn.task == "off range" || turn.task == "off topic";
}

// The messages of a turn, a calculator's included.
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

class Writer {
 public:
  explicit Writer(const Options& options) : avoid_(options.avoid) {}

  // Tiny's template keeps the thinking of earlier turns, so that every turn of a conversation shows how to think. Some
  // conversations think throughout, some never, and in others the user switches. Those without thinking have more
  // turns, each of them short. One in ten has a calculator; one in a hundred or so fills the context.
  ordered_json conversation(Draw& draw) const {
    enum : size_t { kAlways, kSwitched, kNever };
    constexpr int64_t kHabits[] = {38, 32, 30};
    const bool with_calculator = draw.percent(10);
    const size_t habit = draw.weighted(kHabits);
    ordered_json messages = begun(draw);
    const bool single = draw.percent(habit == kNever ? 25 : 60);
    const int64_t turns = single ? 1 : draw.percent(3) ? draw.between(17, 56) : draw.between(2, 16);
    Turn turn;
    bool think = false;
    for (int64_t i = 0; i < turns; ++i) {
      think = habit == kSwitched ? draw.percent(50) : habit == kAlways;
      turn = next(draw, turn, with_calculator, think);
      if (think && draw.percent(3)) cut_thinking(draw, turn);
      append(messages, turn, think);
    }
    ordered_json row = {{"messages", messages}};
    if (with_calculator) row["tools"] = tools();
    row["chat_template_kwargs"] = {{"enable_thinking", think}};
    return row;
  }

  // `make` asks the last question of a conversation of some turns.
  ordered_json task(Draw& draw, int64_t turns, const sys::FunctionRef<Turn(Draw&)>& make) const {
    const Turn asked = make(draw);
    ordered_json messages = ordered_json::array();
    Turn turn;
    for (int64_t i = 1; i < turns; ++i) {
      const bool think = draw.percent(50);
      turn = next(draw, turn, !asked.expression.empty(), think);
      append(messages, turn, think);
    }
    return task_row(std::move(messages), asked);
  }

  // After a turn that it can ask about; the name of its number, or a held-out problem.
  ordered_json follow_up_task(Draw& draw, bool named) const {
    while (true) {
      const Turn before = next(draw, {}, false, true);
      const std::optional<Turn> asked = follow_up(draw, before);
      if (!asked || (asked->task == "in words") != named || (!named && !mentions_held_out(*asked))) continue;
      ordered_json messages = ordered_json::array();
      append(messages, before, draw.percent(50));
      return task_row(std::move(messages), *asked);
    }
  }

  // A turn to train on.
  Turn clean(Draw& draw, const sys::FunctionRef<Turn(Draw&)>& make) const {
    while (true) {
      Turn turn = make(draw);
      if (!mentions_held_out(turn) && !(declines_or_tells(turn) && avoid_.nearest(turn.user) >= kNear)) return turn;
    }
  }

 private:
  static ordered_json begun(Draw& draw) {
    ordered_json messages = ordered_json::array();
    if (draw.percent(12)) messages.push_back(message("system", std::string(draw.pick(kSystems))));
    return messages;
  }

  static ordered_json task_row(ordered_json messages, const Turn& asked) {
    messages.push_back(message("user", asked.user));
    ordered_json row = {{"task", asked.task}, {"messages", std::move(messages)}};
    if (!asked.expression.empty()) row["tools"] = tools();
    row["answers"] = {asked.expression.empty() ? asked.answer : call_text(asked.expression)};
    return row;
  }

  Turn next(Draw& draw, const Turn& before, bool with_calculator, bool think) const {
    return clean(draw, [&](Draw& d) {
      if (!with_calculator && d.percent(think ? 30 : 15)) {
        if (std::optional<Turn> turn = follow_up(d, before)) return *turn;
      }
      return turn_of(d, with_calculator ? kWithCalculator : think ? kThinking : kAnswers);
    });
  }

  // What is asked, by weights in the order of turn_of. Steps are learnt from few sums; sums without steps need many.
  static constexpr size_t kKinds = 10;
  //                                            +   -   *   <>  words, capitals, calculator, Braid, range, the rest
  static constexpr int64_t kThinking[kKinds] = {9, 9, 10, 5, 30, 2, 0, 11, 10, 14};
  static constexpr int64_t kAnswers[kKinds] = {21, 25, 3, 9, 1, 9, 0, 10, 9, 13};
  static constexpr int64_t kWithCalculator[kKinds] = {0, 0, 0, 2, 8, 0, 68, 14, 0, 8};

  static Turn turn_of(Draw& draw, std::span<const int64_t> weights) {
    const auto kind = static_cast<int64_t>(draw.weighted(weights));
    if (kind < kArithmeticKinds) return arithmetic(draw, Split::train, kind);
    switch (kind) {
      case 4:
        return strings(draw, Split::train, static_cast<int64_t>(draw.weighted(kStringWeights)));
      case 5:
        return in_capitals(draw);
      case 6:
        return calculator(draw, Split::train);
      case 7:
        return about(draw);
      case 8:
        return off_range(draw);
      default:
        return off_topic(draw);
    }
  }

  // Ends anywhere: a limit on thinking may cut it, and the answer follows without the rest. A number cut short may
  // make a pair that is held out.
  static void cut_thinking(Draw& draw, Turn& turn) {
    const std::string whole = turn.reasoning;
    do turn.reasoning = whole.substr(0, static_cast<size_t>(draw.below(std::ssize(whole) + 1)));
    while (mentions_held_out(turn));
  }

  Prompts avoid_;
};

void create_folder(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed)
    fail_environment(printable(folder.string()), {.what = "cannot create the folder", .got = failed.message()});
}

void write_tasks(const Writer& writer, const std::filesystem::path& folder, const Options& o, int64_t turns) {
  const auto file = [&](const char* name, int64_t kinds, const sys::FunctionRef<Turn(Draw&, int64_t)>& make) {
    io::AtomicFile out(folder / name);
    for (int64_t i = 0; i < o.tasks * kinds; ++i) {
      Draw draw({o.seed, kTasks + static_cast<uint32_t>(turns)}, static_cast<uint64_t>(i));
      out.write(writer.task(draw, turns, [&](Draw& d) { return make(d, i % kinds); }).dump() + "\n");
    }
    out.commit();
  };
  create_folder(folder);
  file("arithmetic.jsonl", kArithmeticKinds, [](Draw& d, int64_t kind) { return arithmetic(d, Split::test, kind); });
  file("strings.jsonl", kStringKinds, [](Draw& d, int64_t kind) { return strings(d, Split::test, kind); });
  file("calculator.jsonl", 1, [](Draw& d, int64_t) { return calculator(d, Split::test); });
}

void write_follow_ups(const Writer& writer, const std::filesystem::path& path, const Options& o) {
  io::AtomicFile file(path);
  for (int64_t i = 0; i < o.tasks; ++i) {
    Draw draw({o.seed, kFollowUps}, static_cast<uint64_t>(i));
    file.write(writer.follow_up_task(draw, i % 4 == 0).dump() + "\n");
  }
  file.commit();
}

// Prose of users and the model. Half of it is about Braid, so that these words become whole tokens.
void write_vocabulary(const Writer& writer, const std::filesystem::path& path, const Options& o) {
  io::AtomicFile file(path);
  for (uint64_t i = 0; i < 20000; ++i) {
    Draw draw({o.seed, kVocabulary}, i);
    const Turn t = writer.clean(draw, [&](Draw& d) { return i % 2 ? off_topic(d) : about(d); });
    file.write(t.user + "\n" + t.reasoning + "\n" + t.answer + "\n");
    const Turn problem = writer.clean(draw, [&](Draw& d) {
      return i % 8 == 0 ? off_range(d)
             : i % 4    ? strings(d, Split::train, d.below(4))
                        : arithmetic(d, Split::train, d.below(4));
    });
    file.write(problem.user + "\n");
    if (problem.task == "off range") file.write(problem.reasoning + "\n" + problem.answer + "\n");
    if (i % 20 == 0) file.write(call_text("1 + 2") + "\n" + tools().dump() + "\n" + in_words(draw.below(1000)) + "\n");
  }
  file.commit();
}

}  // namespace

bool write(const std::filesystem::path& folder, const Options& o, const sys::FunctionRef<bool(int64_t)>& progress) {
  const Writer writer(o);
  io::AtomicFolder whole(folder, io::AtomicFolder::Mark::none);
  const std::filesystem::path& to = whole.place();
  for (const int64_t turns : kTaskTurns)
    write_tasks(writer, turns == 1 ? to : to / fmt::format("turn-{}", turns), o, turns);
  write_follow_ups(writer, to / "follow_up.jsonl", o);
  write_vocabulary(writer, to / "vocabulary.txt", o);
  for (const bool train : {false, true}) {
    io::AtomicFile file(to / (train ? "train.jsonl" : "valid.jsonl"));
    const int64_t rows = train ? o.train : o.valid;
    for (int64_t i = 0; i < rows; ++i) {
      Draw draw({o.seed, train ? kTrain : kValid}, static_cast<uint64_t>(i));
      file.write(writer.conversation(draw).dump() + "\n");
      if (train && i % 1024 == 0 && !progress(i)) return false;
    }
    file.commit();
  }
  whole.commit();
  return true;
}

}  // namespace braid::synth
