// braid chat: a conversation at the terminal. Answers go to standard output, everything else (thinking, prompts, the
// speed line) to standard error, so that `braid chat > answers` and `echo question | braid chat` hold answers alone.
#include <fmt/format.h>

#include <optional>

#include "apps/chat_session.h"
#include "apps/commands.h"
#include "report/line_reader.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

// Ctrl-C: stops an answer, empties a line, and the second time on an empty line leaves. An error costs a turn only.
int talk(Chat& chat) {
  using Ending = report::LineReader::Ending;
  report::LineReader reader;
  chat.greet();
  sys::catch_requests_to_stop();
  for (bool warned = false; !chat.leaving();) {
    const report::LineReader::Line line = reader.read(">>> ");
    if (line.ending == Ending::end) return 0;
    if (line.ending == Ending::stop) return 128 + sys::caught_signal();
    if (line.ending == Ending::interrupt && line.text.empty()) {
      if (warned) return 130;
      chat.note("Ctrl-C once more leaves, as Ctrl-D does");
      warned = true;
      continue;
    }
    warned = false;
    if (line.ending == Ending::interrupt || is_blank(line.text)) continue;
    try {
      if (line.text[0] == '/' && line.text.find('\n') == std::string::npos) {
        chat.command(line.text);
      } else {
        chat.answer(line.text);
      }
    } catch (const Error& e) {
      chat.note(fmt::format("braid: {}", e.what()));
    }
    sys::take_interrupt();
  }
  return 0;
}

// All of standard input is one message.
int answer_once(Chat& chat, std::string text) {
  text.erase(text.find_last_not_of("\r\n") + 1);
  if (is_blank(text)) fail("chat", {.what = "standard input holds no message", .hint = "echo Hello | braid chat"});
  sys::catch_requests_to_stop();
  chat.answer(text);
  return sys::caught_signal() > 0 ? 128 + sys::caught_signal() : 0;
}

}  // namespace

Action setup_chat(Cli& cli) {
  auto o = std::make_shared<ChatOptions>();
  o->cli = &cli;
  o->model.declare(cli);
  cli.option("--system TEXT", o->system, "instructions for the model");
  cli.choice("--think", o->think, {"on", "off"}, "reasoning, if the model has it");
  cli.option("-n,--predict", o->tokens, "tokens of one answer; -1: until the model ends");
  cli.flag("--context-shift", o->context_shift, "drop the oldest turns when the context is full");
  o->drafts.declare(cli);
  o->sampling.declare(cli);
  cli.rare();
  cli.option("--reasoning-budget", o->budget, "tokens of thinking at most, then the answer; -1: no limit");
  o->sampling.declare_penalties(cli);
  return [o] {
    check_range("--predict", o->tokens, -1, int64_t{1} << 30);
    check_range("--reasoning-budget", o->budget, -1, int64_t{1} << 30);
    check_utf8("--system", o->system);
    const std::optional<std::string> piped = prompt_text("", "");
    if (piped) check_utf8("standard input", *piped);
    Chat chat(*o);
    return piped ? answer_once(chat, *piped) : talk(chat);
  };
}

}  // namespace braid::apps
