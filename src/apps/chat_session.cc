#include "apps/chat_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "apps/messages.h"
#include "io/atomic_file.h"
#include "report/progress.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

constexpr const char* kNoSwitch = "this model's chat template has no switch for thinking: off changes nothing";

engine::RunnerOptions runner_options(const ChatOptions& o) {
  engine::RunnerOptions options = o.model.runner_options();
  o.drafts.reserve(options, 1);
  return options;
}

// One answer at a time, and the states that the next one may continue from.
engine::RunnerOptions with_cache(engine::RunnerOptions options) {
  options.memory = engine::kMemoryOfContexts;
  return options;
}

std::optional<engine::DraftModel> load_draft(const ChatOptions& o) {
  engine::RunnerOptions options = runner_options(o);
  return o.drafts.load(options);
}

void check_file(const char* command, const std::string& path) {
  if (path == "-") fail(command, {.what = "the chat itself uses standard input and output", .expected = "a file"});
}

}  // namespace

Chat::Chat(const ChatOptions& options)
    : draft_(load_draft(options)),
      model_(options.model.open(with_cache(runner_options(options)))),
      scheduler_(model_.runner(), options.drafts.resolve(model_, draft_)),
      conversation_(model_, scheduler_),
      asked_context_(options.model.context),
      generate_{.tokens_max = options.tokens, .sampling = options.sampling.resolve(*options.cli, model_.path())},
      think_(think_switch(options.think)),
      context_shift_(options.context_shift) {
  need_tokenizer(model_.path(), "");
  set_system(options.system);
  if (think_ && check_thinking(*think_)) printer_.note(kNoSwitch);
  generate_.budget = model_.reasoning_budget(options.budget);
}

std::span<const Chat::Command> Chat::commands() {
  static constexpr Command kList[] = {
      {"/think", "on|off", "let the model think before it answers, where it can", &Chat::think},
      {"/system", "[TEXT]", "instructions for the model; without TEXT: none", &Chat::system},
      {"/reset", "", "forget the conversation, keep the instructions", &Chat::reset},
      {"/save", "FILE", "write the conversation as JSON messages", &Chat::save},
      {"/load", "FILE", "go on with such a conversation", &Chat::load},
      {"/help", "", "this list", &Chat::help},
      {"/exit", "", "leave, as Ctrl-D does", &Chat::exit},
  };
  return kList;
}

void Chat::command(std::string_view line) {
  line = line.substr(0, line.find_last_not_of(" \t") + 1);
  const size_t space = line.find_first_of(" \t");
  const std::string_view name = line.substr(0, space);
  const std::string argument(space == line.npos ? "" : line.substr(line.find_first_not_of(" \t", space)));
  for (const Command& c : commands()) {
    if (name != c.name) continue;
    if (argument.empty() && *c.argument && *c.argument != '[')
      fail(name, {.what = "lacks its argument", .expected = fmt::format("{} {}", c.name, c.argument)});
    return (this->*c.run)(argument);
  }
  fail(printable(name), {.what = "no such command", .hint = "/help; a message may begin with a space"});
}

void Chat::think(const std::string& argument) {
  if (argument != "on" && argument != "off")
    fail("/think", {.what = "not a choice", .got = printable(argument), .expected = "on or off"});
  const bool on = argument == "on";
  const bool no_switch = check_thinking(on);
  think_ = on;
  printer_.note(no_switch ? kNoSwitch : fmt::format("thinking is {}", argument));
}

void Chat::system(const std::string& argument) {
  set_system(argument);
  printer_.note(argument.empty() ? "no instructions" : "new instructions; the conversation goes on");
}

void Chat::set_system(const std::string& argument) {
  if (has_system()) messages_.erase(messages_.begin());
  if (!argument.empty()) messages_.insert(messages_.begin(), ordered_json{{"role", "system"}, {"content", argument}});
}

void Chat::save(const std::string& argument) {
  check_file("/save", argument);
  if (argument != file_) io::check_new_file(argument);
  write_messages(argument, messages_);
  file_ = argument;
  printer_.note(fmt::format("{} in {}", report::counted(std::ssize(messages_), "message"), printable(argument)));
}

// Refuses a conversation that the template could not continue, before the one here is lost.
void Chat::load(const std::string& argument) {
  check_file("/load", argument);
  ordered_json messages = read_messages(argument), asked = messages;
  asked.push_back(ordered_json{{"role", "user"}, {"content", "?"}});
  (void)model_.render(asked, {.think = think_});
  messages_ = std::move(messages);
  file_ = argument;
  printer_.note(fmt::format("{} from {}", report::counted(std::ssize(messages_), "message"), printable(argument)));
}

void Chat::help(const std::string&) {
  for (const Command& c : commands()) printer_.note(fmt::format("{:<8}{:<8}{}", c.name, c.argument, c.help));
  printer_.note("Ctrl-C stops an answer, Alt-Enter begins a new line, arrows look back; pasted lines are one message.");
}

// Adds both messages of the turn; changes nothing if it cannot be answered or is stopped before its first token.
void Chat::answer(const std::string& text) {
  ordered_json messages = messages_;
  messages.push_back(ordered_json{{"role", "user"}, {"content", text}});
  engine::Answer a;
  size_t dropped = 0;
  try {
    if (context_shift_) dropped = drop_oldest_turns(messages);
    std::optional<report::Progress> progress;
    const auto on_prompt = [&](int64_t read, int64_t total) {
      if (!progress) progress.emplace("reading the prompt", total);
      progress->at(read);
      return sys::caught_signal() == 0;
    };
    const auto on_text = [&](const engine::ReasoningSplitter::Parts& parts) {
      progress.reset();
      printer_.print(parts);
      return sys::caught_signal() == 0;
    };
    a = conversation_.answer(messages, {.generate = generate_, .think = think_}, {on_prompt, on_text});
  } catch (const Error&) {
    printer_.end();
    throw;
  }
  printer_.end();
  if (a.generated.ids.empty()) return printer_.note("stopped before the answer");
  messages_ = std::move(messages);
  messages_.push_back(a.message());
  if (dropped > 0) printer_.note(fmt::format("{} of the oldest messages were dropped", dropped));
  report(a);
}

void Chat::report(const engine::Answer& a) {
  printer_.speed(a.generated.timings, a.cached_tokens);
  if (a.generated.finish != engine::Finish::length) return;
  const int64_t context = model_.runner().options().context;
  if (std::ssize(a.generated.ids) == generate_.tokens_max)
    return printer_.note(fmt::format("stopped after {} (-n)", report::counted(generate_.tokens_max, "token")));
  printer_.note(fmt::format("the context of {} tokens is full: {}{}", context,
                            context_shift_ ? "the next message drops the oldest turns"
                                           : "/reset forgets, --context-shift at the start drops the oldest turns",
                            model_.runner().context_may_grow() ? ", -c N makes it larger" : ""));
}

// With --context-shift: leaves a quarter of the context for the answer. Returns how many messages that cost.
size_t Chat::drop_oldest_turns(ordered_json& messages) {
  const int64_t limit = model_.runner().options().context * 3 / 4;
  const size_t before = messages.size();
  while (conversation_.prompt_tokens(messages, think_) > limit) {
    const auto first = messages.begin() + (has_system() ? 1 : 0);
    const auto next = std::find_if(first + 1, messages.end(), [](const auto& m) { return m["role"] == "user"; });
    if (next == messages.end()) break;
    messages.erase(first, next);
  }
  return before - messages.size();
}

// Error where thinking cannot be turned on. True if there is no switch: then off is accepted and changes nothing.
bool Chat::check_thinking(bool on) {
  (void)model_.render(ordered_json::array({{{"role", "user"}, {"content", "?"}}}), {.think = on});
  return !model_.has_think_switch();
}

void Chat::reset(const std::string&) {
  messages_.erase(messages_.begin() + (has_system() ? 1 : 0), messages_.end());
  printer_.note("the conversation is forgotten");
}

void Chat::greet() {
  const engine::Runner& runner = model_.runner();
  const int64_t context = runner.options().context, allowed = runner.config().positions_max;
  const std::string why = asked_context_ > 0                      ? "as asked for"
                          : context == allowed                    ? "all that the model allows"
                          : context == engine::kContextDefaultMax ? fmt::format("the default; -c up to {}", allowed)
                                                                  : "what memory allows";
  printer_.note(fmt::format("{}: {} in {}, context {} tokens ({}). /help lists the commands, Ctrl-D leaves.",
                            printable(model_.path().name), runner.config().family, numbers_of(model_.runner()), context,
                            why));
}

}  // namespace braid::apps
