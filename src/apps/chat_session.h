// The conversation of `braid chat`: its messages, its /commands, and answers as they are printed.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "apps/answer_printer.h"
#include "apps/model_args.h"
#include "engine/conversation.h"

namespace braid::apps {

struct ChatOptions {
  ModelArgs model;
  SamplingArgs sampling;
  DraftArgs drafts;
  std::string system, think;
  int64_t tokens = -1, budget = -1;
  bool context_shift = false;
  const Cli* cli = nullptr;
};

class Chat {
 public:
  explicit Chat(const ChatOptions& options);
  void greet();
  // A line of the user: a /command or a message.
  void command(std::string_view line);
  void answer(const std::string& text);
  void note(const std::string& line) const { printer_.note(line); }
  bool leaving() const { return leaving_; }

 private:
  struct Command {
    const char *name, *argument, *help;
    void (Chat::*run)(const std::string& argument);
  };
  static std::span<const Command> commands();
  void think(const std::string& argument);
  void system(const std::string& argument);
  void reset(const std::string&);
  void save(const std::string& argument);
  void load(const std::string& argument);
  void help(const std::string&);
  void exit(const std::string&) { leaving_ = true; }

  bool has_system() const { return !messages_.empty() && messages_[0]["role"] == "system"; }
  void set_system(const std::string& argument);
  bool check_thinking(bool on);
  size_t drop_oldest_turns(nlohmann::ordered_json& messages);
  void report(const engine::Answer& a);

  std::optional<engine::DraftModel> draft_;
  engine::LanguageModel model_;
  engine::Scheduler scheduler_;
  engine::Conversation conversation_;
  int64_t asked_context_;
  engine::GenerateOptions generate_;
  std::optional<bool> think_;
  bool context_shift_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::string file_;  // where they were saved or loaded from: the only file that /save replaces
  AnswerPrinter printer_;
  bool leaving_ = false;
};

}  // namespace braid::apps
