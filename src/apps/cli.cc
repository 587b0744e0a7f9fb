// Reads argv with CLI11, one subcommand at a time: only the chosen subcommand's options are set up, so that another's
// environment variables cannot disturb it. Help, completions and the man page come from the same items (cli_pages.h).
#include "apps/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include "apps/cli_pages.h"
#include "apps/unknown_variables.h"
#include "apps/version.h"
#include "comm/mpi.h"
#include "sys/error.h"
#include "sys/nearest.h"
#include "sys/standard_streams.h"

namespace braid::apps {

struct Cli::State {
  CLI::App app{};
  bool rare = false;
  std::vector<Item> items{};
  Rows prints{};
  std::vector<std::string> words{};  // of the command line
};

namespace {

// Adds an option that takes one argument; the last one on the command line counts.
void add_option(Cli::State& state, const Item& item, const Take& take) {
  const std::string names = fmt::format("{}", fmt::join(item.spellings, ","));
  auto* option = state.app.add_option_function<std::string>(names, checked(take, item, state.items, state.words));
  option->take_last()->required(item.required);
  if (!item.positional && !item.long_name().empty()) option->envname(item.variable());
  state.items.push_back(item);
  state.items.back().rare = state.rare;
}

}  // namespace

void Cli::flag(const std::string& names, bool& value, const std::string& help) {
  Item item = item_of(names, "", help);
  item.rare = state_->rare;
  CLI::Option* option = state_->app.add_flag(names, value);
  if (!item.long_name().empty()) option->envname(item.variable());
  state_->items.push_back(item);
}
void Cli::option(const std::string& names, int64_t& value, const std::string& help) {
  Item item = item_of(names, "N", help);
  item.initial = fmt::to_string(value);
  add_option(*state_, item,
             [&value, item](const std::string& text) { value = number_of<int64_t>(item, text, "a whole number"); });
}
void Cli::option(const std::string& names, double& value, const std::string& help) {
  Item item = item_of(names, "X", help);
  item.initial = fmt::to_string(value);
  add_option(*state_, item,
             [&value, item](const std::string& text) { value = number_of<double>(item, text, "a number"); });
}
void Cli::option(const std::string& names, std::string& value, const std::string& help) {
  Item item = item_of(names, "TEXT", help);
  item.initial = value;
  add_option(*state_, item, [&value](const std::string& text) { value = text; });
}
void Cli::option(const std::string& names, std::vector<int64_t>& value, const std::string& help) {
  Item item = item_of(names, "N,N,...", help);
  item.initial = fmt::format("{}", fmt::join(value, ","));
  add_option(*state_, item, [&value, item](const std::string& text) {
    value.clear();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      value.push_back(number_of<int64_t>(item, text.substr(begin, end - begin), "whole numbers with commas between"));
      begin = end + 1;
    }
  });
}
void Cli::choice(const std::string& names, std::string& value, const std::vector<std::string>& among,
                 const std::string& help) {
  // Pages break long lists at their spaces.
  Item item = item_of(names, fmt::format("{}", fmt::join(among, among.size() > 6 ? ", " : "|")), help);
  item.initial = value;
  item.choices = among;
  add_option(*state_, item, [&value, item](const std::string& text) {
    if (std::ranges::find(item.choices, text) != item.choices.end()) return void(value = text);
    fail(item.source(text), {.what = "unknown choice",
                             .got = printable(text),
                             .expected = item.value,
                             .hint = sys::nearest(text, item.choices)});
  });
}
void Cli::positional(const std::string& name, std::string& value, const std::string& help, bool required) {
  Item item{.spellings = {upper(name)}, .help = help, .initial = value, .positional = true, .required = required};
  add_option(*state_, item, [&value](const std::string& text) { value = text; });
}
void Cli::rest(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  state_->items.push_back({.spellings = {upper(name)}, .help = help, .positional = true, .repeated = true});
  state_->app.add_option(name, values);
}
void Cli::says(const std::string& initial) { state_->items.back().initial = initial; }
void Cli::rare(bool on) { state_->rare = on; }
void Cli::prints(const std::string& word, const std::string& meaning) { state_->prints.emplace_back(word, meaning); }
std::vector<std::pair<std::string, std::string>> Cli::words() const {
  std::vector<std::pair<std::string, std::string>> words;
  for (const Item& item : state_->items) {
    if (item.long_name().empty()) continue;
    const CLI::Option* option = state_->app.get_option(item.long_name());
    words.emplace_back(item.long_name(), option->count() > 0 ? option->results().back() : "");
  }
  return words;
}
bool Cli::given(const std::string& name) const { return state_->app.get_option("--" + name)->count() > 0; }

namespace {

std::vector<Page> all_pages() {
  std::vector<Page> pages;
  for (int i = 0; i < kCommandCount; ++i) {
    Cli::State state;
    Cli cli(state);
    kCommands[i].setup(cli);
    pages.push_back({&kCommands[i], state.items, state.prints});
  }
  return pages;
}

// What CLI11 refused, in our words. Unknown options come first: they may be why an argument is missing.
[[noreturn]] void refuse(const Command& command, const Cli::State& state, const CLI::ParseError& error) {
  const std::string help = fmt::format("braid {} --help", command.name);
  std::vector<std::string> known{"--help"};
  for (const Item& item : state.items) {
    if (!item.positional) known.insert(known.end(), item.spellings.begin(), item.spellings.end());
  }
  const std::vector<std::string> left = state.app.remaining();
  for (const std::string& word : left) {
    if (word.size() < 2 || word[0] != '-') continue;
    const bool model = word == "-m" && !state.items.empty() && state.items[0].spellings[0] == "MODEL";  // llama.cpp's
    const std::string near = model ? "the model as an argument" : sys::nearest(word.substr(0, word.find('=')), known);
    fail(command.name, {.what = "unknown option", .got = printable(word), .hint = near.empty() ? help : near});
  }
  const std::string text = command.name == std::string_view("run") ? "-p TEXT" : help;
  if (!left.empty()) fail(command.name, {.what = "one argument too many", .got = printable(left[0]), .hint = text});
  const std::string said = printable(error.what()), option = said.substr(0, said.find(':'));
  if (error.get_name() == "ArgumentMismatch") fail(option, {.what = "lacks its value", .hint = help});
  if (error.get_name() == "ConversionError") {  // of a flag, "...: --json = maybe": CLI11 converts nothing else
    const std::string name = said.substr(option.size() + 2, said.find(" = ") - option.size() - 2),
                      value = said.substr(said.find(" = ") + 3);
    fail(item_of(name, "", "").source(value), {.what = "is not true or false", .got = value, .hint = help});
  }
  fail(command.name, {.what = said, .hint = help});
}

int run_command(const Command& command, int argc, char** argv) {
  Cli::State state{.words = {argv, argv + argc}};
  Cli cli(state);
  const Action action = command.setup(cli);
  try {
    state.app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", help_text({&command, state.items, state.prints}));
    return 0;
  } catch (const CLI::ParseError& error) {
    refuse(command, state, error);
  }
  check_variables(&all_pages, command.name == std::string_view("bench") && cli.given("tune"));
  note_a_folder_named_tiny(argc, argv);
  return action();
}

int parse_and_run(int argc, char** argv) {
  std::vector<char*> given(argv, argv + argc);
  char help[] = "--help";
  // `braid help WORDS` and `braid --help WORDS` are `braid WORDS --help`.
  if (argc > 1 && (std::strcmp(argv[1], "help") == 0 || (argc > 2 && std::strcmp(argv[1], help) == 0))) {
    given.erase(given.begin() + 1);
    given.push_back(help);
    argv = given.data();
  }
  const std::string first = argc > 1 ? argv[1] : "", second = argc > 2 ? argv[2] : "", where = "command line";
  std::vector<std::string> known{"--help", "--version", "--completion", "help"};
  for (int i = 0; i < kCommandCount; ++i) {
    const std::string name = kCommands[i].name;
    const int n = group_of(kCommands[i]).empty() ? 1 : 2;
    if (name == (n == 1 ? first : first + " " + second)) return run_command(kCommands[i], argc - n, argv + n);
    known.push_back(name);
  }
  if (names_group(first) && (second == "--help" || second == "-h")) return fmt::print("{}", overview(first)), 0;
  if (names_group(first) && second.empty())
    fail(first,
         {.what = "lacks its subcommand", .expected = subcommands_of(first), .hint = "braid " + first + " --help"});
  if (first.empty()) fail(where, {.what = "no subcommand", .hint = "braid --help"});
  if (first == "--help" || first == "-h") return fmt::print("{}", overview()), 0;
  if (first == "--version" && argc > 2) fail(where, {.what = "one argument too many", .got = printable(second)});
  if (first == "--version") return fmt::print("{}", version_text()), 0;
  if (first == "--man") return fmt::print("{}", man_page(all_pages())), 0;
  if (first == "--completion") return fmt::print("{}", completion_script(second, all_pages())), 0;
  const std::string asked = names_group(first) ? first + " " + second : first;
  const std::string near = sys::nearest(asked, known), page = names_group(first) ? first + " --help" : "--help";
  fail(where, {.what = first[0] == '-' ? "unknown option" : "unknown subcommand",
               .got = printable(asked),
               .hint = "braid " + (near.empty() ? page : near)});
}

int report(const std::string& text, int code) {
  std::fflush(stdout);
  std::fputs(fmt::format("braid: {}\n", text).c_str(), stderr);  // which does not throw where nobody reads
  return code;
}

// A command may take SIGINT over; until then it ends the process. Where the caller ignores it (nohup) it stays ignored.
void set_signals() {
  std::signal(SIGPIPE, SIG_DFL);  // `braid ... | head` ends quietly
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its limit is an error of the write, which cleans up
  if (std::signal(SIGINT, [](int) { std::_Exit(130); }) == SIG_IGN) std::signal(SIGINT, SIG_IGN);
}

}  // namespace

int run_main(int argc, char** argv) {
  sys::occupy_standard_streams();
  set_signals();
  try {
    const int code = parse_and_run(argc, argv);
    if (code > 128) return code;  // stopped by a signal, and perhaps nobody reads any more
    if (std::fflush(stdout) != 0)
      return report(fmt::format("[standard output] cannot write; got {}", std::strerror(errno)), 1);
    if (std::ferror(stdout)) return report("[standard output] cannot write", 1);  // why is no longer known
    return code;
  } catch (const Error& e) {
    const bool said = e.fault() == Fault::bad_input && comm::first_rank_spoke();
    return said ? e.exit_code() : report(e.what(), e.exit_code());
  } catch (const std::bad_alloc&) {
    return report("[memory] out of memory; try a smaller model, context, batch, or a larger accumulate", 1);
  } catch (const std::system_error& e) {
    // Longer output than stdio's buffer fails in the middle, in fmt.
    if (std::ferror(stdout)) return report("[standard output] cannot write; got " + e.code().message(), 1);
    return report("[system] " + printable(e.what(), 2000), 1);
  } catch (const std::exception& e) {
    return report("[bug] " + printable(e.what(), 2000), 70);
  }
}

}  // namespace braid::apps
