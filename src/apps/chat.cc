// braid chat: a conversation at the terminal. Answers go to standard output, everything else (thinking, prompts, the
// speed line) to standard error, so that `braid chat > answers` and `echo question | braid chat` hold answers alone.
#include <fmt/format.h>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/answer_printer.h"
#include "apps/commands.h"
#include "apps/model_args.h"
#include "engine/conversation.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "report/line_reader.h"
#include "report/progress.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

using nlohmann::ordered_json;

struct Options {
  ModelArgs model;
  SamplingArgs sampling;
  std::string system, think;
  int64_t tokens = -1;
  const Cli* cli = nullptr;
};

class Chat {
 public:
  explicit Chat(const Options& options)
      : model_(options.model.model, options.model.runner_options()),
        conversation_(model_),
        asked_context_(options.model.context),
        generate_{.tokens_max = options.tokens, .sampling = options.sampling.resolve(*options.cli, model_.path())},
        think_(think_switch(options.think)) {
    need_tokenizer(model_.path(), "");
    system(options.system);
  }
  int talk();
  int answer_once(std::string text);  // all of standard input is one message

 private:
  struct Command {
    const char *name, *argument, *help;
    void (Chat::*run)(const std::string& argument);
  };
  static std::span<const Command> commands();
  void command(std::string_view line);
  void answer(const std::string& text);
  void greet();

  void think(const std::string& argument);
  void system(const std::string& argument);
  void reset(const std::string&) { messages_.erase(messages_.begin() + (has_system() ? 1 : 0), messages_.end()); }
  void save(const std::string& argument);
  void load(const std::string& argument);
  void help(const std::string&);
  void exit(const std::string&) { leaving_ = true; }
  bool has_system() const { return !messages_.empty() && messages_[0]["role"] == "system"; }

  engine::LanguageModel model_;
  engine::Conversation conversation_;
  int64_t asked_context_;
  engine::GenerateOptions generate_;
  std::optional<bool> think_;
  ordered_json messages_ = ordered_json::array();
  std::string file_;  // where they were saved or loaded from: the only file that /save replaces
  AnswerPrinter printer_;
  bool leaving_ = false;
};

std::span<const Chat::Command> Chat::commands() {
  static constexpr Command kCommands[] = {
      {"/think", "on|off", "let the model think before it answers, where it can", &Chat::think},
      {"/system", "[TEXT]", "instructions for the model; without TEXT: none", &Chat::system},
      {"/reset", "", "forget the conversation, keep the instructions", &Chat::reset},
      {"/save", "FILE", "write the conversation as JSON messages", &Chat::save},
      {"/load", "FILE", "go on with such a conversation", &Chat::load},
      {"/help", "", "this list", &Chat::help},
      {"/exit", "", "leave, as Ctrl-D does", &Chat::exit},
  };
  return kCommands;
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
  think_ = argument == "on";
}

void Chat::system(const std::string& argument) {
  if (has_system()) messages_.erase(messages_.begin());
  if (!argument.empty()) messages_.insert(messages_.begin(), ordered_json{{"role", "system"}, {"content", argument}});
}

void Chat::save(const std::string& argument) {
  if (argument != file_) io::check_new_file(argument);
  io::write_text_file(argument, messages_.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  file_ = argument;
  printer_.note(fmt::format("{} messages in {}", messages_.size(), printable(argument)));
}

void Chat::load(const std::string& argument) {
  ordered_json messages = ordered_json::array();
  if (!std::filesystem::exists(argument)) fail(printable(argument), {.what = "is missing", .expected = "a /save file"});
  for (const io::Json& m : io::Json::read(argument).items()) {
    ordered_json message;
    for (const char* key : {"role", "content", "reasoning_content"}) {
      if (const auto text = m.string_of({key})) message[key] = *text;
    }
    if (!message.contains("role") || !message.contains("content"))
      m.refuse("is not a message", "an object with role and content, both strings");
    messages.push_back(std::move(message));
  }
  messages_ = std::move(messages);
  file_ = argument;
  printer_.note(fmt::format("{} messages from {}", messages_.size(), printable(argument)));
}

void Chat::help(const std::string&) {
  for (const Command& c : commands()) printer_.note(fmt::format("{:<8}{:<8}{}", c.name, c.argument, c.help));
  printer_.note("Ctrl-C stops an answer, Alt-Enter begins a new line, arrows look back; pasted lines are one message.");
}

// Adds both messages of the turn, or none when it cannot be answered.
void Chat::answer(const std::string& text) {
  messages_.push_back(ordered_json{{"role", "user"}, {"content", text}});
  engine::Answer a;
  try {
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
    a = conversation_.answer(messages_, {.generate = generate_, .think = think_}, {on_prompt, on_text});
  } catch (const Error&) {
    printer_.end();
    messages_.erase(messages_.size() - 1);
    throw;
  }
  printer_.end();
  messages_.push_back(a.message());
  const engine::Timings& t = a.generated.timings;
  printer_.note(fmt::format("{} tokens, {}, prompt {} tokens, {}", t.generated_tokens,
                            report::rate(static_cast<double>(t.generated_tokens), t.generate_seconds, "tokens"),
                            t.prompt_tokens,
                            report::rate(static_cast<double>(t.prompt_tokens), t.prompt_seconds, "tokens")));
  const int64_t context = model_.runner().options().context;
  if (a.generated.finish == engine::Finish::length && model_.runner().length(0) == context)
    printer_.note(fmt::format("the context of {} tokens is full: /reset forgets{}", context,
                              model_.runner().context_may_grow() ? ", -c N makes it larger" : ""));
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

// Ctrl-C: stops an answer, empties a line, and the second time on an empty line leaves. An error costs a turn only.
int Chat::talk() {
  using Ending = report::LineReader::Ending;
  report::LineReader reader;
  greet();
  sys::catch_requests_to_stop();
  for (bool warned = false; !leaving_;) {
    const report::LineReader::Line line = reader.read(">>> ");
    if (line.ending == Ending::end) return 0;
    if (line.ending == Ending::stop) return 128 + sys::caught_signal();
    if (line.ending == Ending::interrupt && line.text.empty()) {
      if (warned) return 130;
      printer_.note("Ctrl-C once more leaves, as Ctrl-D does");
      warned = true;
      continue;
    }
    warned = false;
    if (line.ending == Ending::interrupt || is_blank(line.text)) continue;
    try {
      if (line.text[0] == '/' && line.text.find('\n') == std::string::npos) {
        command(line.text);
      } else {
        answer(line.text);
      }
    } catch (const Error& e) {
      printer_.note(fmt::format("braid: {}", e.what()));
    }
    sys::take_interrupt();
  }
  return 0;
}

int Chat::answer_once(std::string text) {
  text.erase(text.find_last_not_of("\r\n") + 1);
  if (is_blank(text)) fail("chat", {.what = "standard input holds no message"});
  sys::catch_interrupts();
  answer(text);
  return sys::interrupted() ? 130 : 0;
}

}  // namespace

Action setup_chat(Cli& cli) {
  auto o = std::make_shared<Options>();
  o->cli = &cli;
  o->model.declare(cli);
  cli.option("--system TEXT", o->system, "instructions for the model");
  cli.choice("--think", o->think, {"on", "off"}, "reasoning, where the model has it");
  cli.option("-n,--predict", o->tokens, "tokens of one answer; -1: until the model ends");
  o->sampling.declare(cli);
  return [o] {
    check_range("--predict", o->tokens, -1, int64_t{1} << 30);
    const std::optional<std::string> piped = prompt_text("", "");
    Chat chat(*o);
    return piped ? chat.answer_once(*piped) : chat.talk();
  };
}

}  // namespace braid::apps
