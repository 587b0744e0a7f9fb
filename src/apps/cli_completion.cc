// Completions for bash, zsh and fish from the option tables: subcommands, their options, the words of a choice, and
// file names everywhere else.
#include <fmt/format.h>

#include "apps/cli.h"
#include "apps/cli_pages.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

std::string join(const std::vector<std::string>& words, const char* with = " ") {
  return fmt::format("{}", fmt::join(words, with));
}

// Inside single quotes of a shell; `special` gets a backslash.
std::string quoted(const std::string& text, const std::string& special = "") {
  std::string out;
  for (char ch : text) {
    if (ch == '\'') {
      out += "'\\''";
      continue;
    }
    if (special.find(ch) != std::string::npos) out += '\\';
    out += ch;
  }
  return out;
}

// Commands of two words complete by their first: a shell's case takes the options of all of them for one.
std::string first_word(const Page& page) {
  const std::string name = page.command->name;
  return name.substr(0, name.find(' '));
}

std::string bash(const std::vector<Page>& pages) {
  std::string commands, words, choices;
  for (const Page& page : pages) {
    commands += fmt::format("{} ", first_word(page));
    words += fmt::format("    {}) words='--help", first_word(page));
    for (const Item& item : page.items) {
      if (item.positional) continue;
      words += " " + join(item.spellings);
      for (const std::string& name : item.spellings) {
        if (!item.choices.empty())
          choices += fmt::format("    {}:{}) words='{}' ;;\n", first_word(page), name, join(item.choices));
      }
    }
    words += "' ;;\n";
  }
  return fmt::format(R"(# braid --completion bash
_braid() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words=
  case $COMP_CWORD:${{COMP_WORDS[1]}}:$word in
    1:*) words='{}--help --version --completion' ;;
    *:--completion:*) words='bash zsh fish' ;;
    *:-*) case ${{COMP_WORDS[1]}} in
{}    esac ;;
    *) case ${{COMP_WORDS[1]}}:${{COMP_WORDS[COMP_CWORD-1]}} in
{}    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _braid braid
)",
                     commands, words, choices);
}

std::string zsh(const std::vector<Page>& pages) {
  std::string commands, cases;
  for (const Page& page : pages) {
    commands += fmt::format("    '{}:{}'\n", first_word(page), quoted(page.command->summary));
    cases += fmt::format("    {}) _arguments \\\n", first_word(page));
    for (const Item& item : page.items) {
      if (item.positional) continue;
      const std::string value = item.value.empty() ? "" : ":" + quoted(item.value, ":\\") + ":";
      const std::string among = item.choices.empty() ? "_files" : "(" + join(item.choices) + ")";
      for (const std::string& name : item.spellings) {
        cases += fmt::format("      '({}){}[{}]{}{}' \\\n", join(item.spellings), name, quoted(item.help, "[]:\\"),
                             value, value.empty() ? "" : among);
      }
    }
    cases += "      '--help[this page]' '*:file:_files' ;;\n";
  }
  return fmt::format(R"(#compdef braid
# braid --completion zsh
_braid() {{
  local -a commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe subcommand commands
    return
  fi
  local chosen=$words[2]
  shift words
  (( CURRENT-- ))
  case $chosen in
{}  esac
}}
if [ "$funcstack[1]" = _braid ]; then _braid "$@"; else compdef _braid braid; fi
)",
                     commands, cases);
}

std::string fish(const std::vector<Page>& pages) {
  std::string out = "# braid --completion fish\n";
  for (const Page& page : pages) {
    const std::string name = first_word(page);
    out += fmt::format("complete -c braid -n __fish_use_subcommand -f -a {} -d '{}'\n", name,
                       quoted(page.command->summary));
    for (const Item& item : page.items) {
      if (item.positional) continue;
      out += fmt::format("complete -c braid -n '__fish_seen_subcommand_from {}'", name);
      for (const std::string& spelling : item.spellings) {
        out += spelling.starts_with("--") ? " -l " + spelling.substr(2) : " -s " + spelling.substr(1);
      }
      if (!item.choices.empty()) {
        out += fmt::format(" -x -a '{}'", join(item.choices));
      } else if (!item.value.empty()) {
        out += " -r";
      }
      out += fmt::format(" -d '{}'\n", quoted(item.help));
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<Page>& pages) {
  if (shell == "bash") return bash(pages);
  if (shell == "zsh") return zsh(pages);
  if (shell == "fish") return fish(pages);
  fail("--completion", {.what = "unknown shell", .got = printable(shell), .expected = "bash, zsh or fish"});
}

}  // namespace braid::apps
