#include "apps/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <new>
#include <optional>

#include "sys/error.h"

namespace braid::apps {

struct Cli::State {
  CLI::App* app = nullptr;
  const Command* command = nullptr;
  std::optional<Cli> cli;
  Action action;
};

namespace {

std::string variable_of(const std::string& names) {
  std::string name = names.substr(names.rfind("--") + 2);
  for (char& ch : name) ch = ch == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(ch)));
  return "BRAID_" + name;
}

CLI::Option* with_env(CLI::Option* option, const std::string& names) {
  if (names.find("--") != std::string::npos) option->envname(variable_of(names));
  return option;
}

}  // namespace

void Cli::flag(const std::string& names, bool& value, const std::string& help) {
  with_env(state_->app->add_flag(names, value, help), names);
}
void Cli::option(const std::string& names, int64_t& value, const std::string& help) {
  with_env(state_->app->add_option(names, value, help), names)->capture_default_str();
}
void Cli::option(const std::string& names, double& value, const std::string& help) {
  with_env(state_->app->add_option(names, value, help), names)->capture_default_str();
}
void Cli::option(const std::string& names, std::string& value, const std::string& help) {
  with_env(state_->app->add_option(names, value, help), names);
}
void Cli::option(const std::string& names, std::vector<int64_t>& value, const std::string& help) {
  with_env(state_->app->add_option(names, value, help), names)->delimiter(',');
}
void Cli::choice(const std::string& names, std::string& value, const std::vector<std::string>& among, const std::string& help) {
  with_env(state_->app->add_option(names, value, help), names)->check(CLI::IsMember(among));
}
void Cli::positional(const std::string& name, std::string& value, const std::string& help, bool required) {
  state_->app->add_option(name, value, help)->required(required);
}
void Cli::rest(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  state_->app->add_option(name, values, help);
}
bool Cli::given(const std::string& name) const { return state_->app->get_option("--" + name)->count() > 0; }

namespace {

int report(const char* text, int code) {
  fmt::print(stderr, "braid: {}\n", text);
  return code;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Braid trains, compresses, quantises and serves hybrid Mamba-Transformer MoE language models.", "braid");
  app.set_version_flag("--version", BRAID_VERSION);
  app.require_subcommand(1);
  std::vector<Cli::State> states(static_cast<size_t>(kCommandCount));
  for (int i = 0; i < kCommandCount; ++i) {
    Cli::State& state = states[static_cast<size_t>(i)];
    state.command = &kCommands[i];
    state.app = app.add_subcommand(kCommands[i].name, kCommands[i].summary);
    state.cli.emplace(state);
    state.action = kCommands[i].setup(*state.cli);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    fail("command line", {.what = e.what(), .hint = "braid --help"});
  }
  for (const Cli::State& state : states) {
    if (state.app->parsed()) return state.action();
  }
  return 1;
}

}  // namespace

int run_main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);  // `braid ... | head` ends quietly
  try {
    return parse_and_run(argc, argv);
  } catch (const Error& e) {
    return report(e.what(), e.exit_code());
  } catch (const std::bad_alloc&) {
    return report("[memory] out of memory; try a smaller model, context or batch", 1);
  } catch (const std::exception& e) {
    return report(printable(e.what(), 2000).c_str(), 70);
  }
}

}  // namespace braid::apps
