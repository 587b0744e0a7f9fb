// Completions for bash, zsh and fish from the option tables: subcommands, their options, the words of a choice, and
// file names everywhere else.
#include <fmt/format.h>

#include <algorithm>

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

// The second word of a command of two, otherwise the only one.
std::string last_word(const Page& page) {
  const std::string name = page.command->name;
  return name.substr(name.find(' ') + 1);
}

// Commands of two words by their first, in the order of the table.
using Groups = std::vector<std::pair<std::string, std::vector<const Page*>>>;
Groups groups_of(const std::vector<Page>& pages) {
  Groups groups;
  for (const Page& page : pages) {
    const std::string group = group_of(*page.command);
    if (group.empty()) continue;
    if (groups.empty() || groups.back().first != group) groups.push_back({group, {}});
    groups.back().second.push_back(&page);
  }
  return groups;
}

std::string verbs_of(const std::vector<const Page*>& members) {
  std::vector<std::string> verbs;
  verbs.reserve(members.size());
  for (const Page* page : members) verbs.push_back(last_word(*page));
  return join(verbs);
}

// "bench" is a command, and the first word of another.
bool is_command(const std::vector<Page>& pages, const std::string& word) {
  return std::ranges::any_of(pages, [&](const Page& page) { return page.command->name == word; });
}

// The possible first words of a command line.
std::vector<std::pair<std::string, std::string>> first_words(const std::vector<Page>& pages) {
  std::vector<std::pair<std::string, std::string>> words;  // and what they are
  for (const Page& page : pages) {
    const std::string group = group_of(*page.command);
    if (group.empty()) {
      words.emplace_back(page.command->name, page.command->summary);
    } else if (!is_command(pages, group) && (words.empty() || words.back().first != group)) {
      words.emplace_back(group, "its subcommands: braid " + group + " --help");
    }
  }
  return words;
}

std::string bash(const std::vector<Page>& pages) {
  std::string commands, groups, seconds, words, choices;
  for (const auto& [word, summary] : first_words(pages)) commands += word + " ";
  for (const auto& [group, members] : groups_of(pages)) {
    const std::string verbs = verbs_of(members);
    groups += fmt::format(
        "    {}) [[ ' {} ' == *\" ${{COMP_WORDS[2]}} \"* ]] && ((COMP_CWORD > 2)) && command=\"$command "
        "${{COMP_WORDS[2]}}\" ;;\n",
        group, verbs);
    if (is_command(pages, group))
      seconds += fmt::format("    2:{}:[!-]*|2:{}:) words='{} --help' ;;\n", group, group, verbs);
    else
      seconds += fmt::format("    2:{}:*) words='{} --help' ;;\n", group, verbs);
  }
  for (const Page& page : pages) {
    words += fmt::format("    '{}') words='--help", page.command->name);
    for (const Item& item : page.items) {
      if (item.positional) continue;
      words += " " + join(item.spellings);
      for (const std::string& name : item.spellings) {
        if (!item.choices.empty())
          choices += fmt::format("    '{}:{}') words='{}' ;;\n", page.command->name, name, join(item.choices));
      }
    }
    words += "' ;;\n";
  }
  return fmt::format(R"(# braid --completion bash
_braid() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words= command=${{COMP_WORDS[1]}}
  case $command in
{}  esac
  case $COMP_CWORD:$command:$word in
    1:*) words='{}--help --version --completion' ;;
{}    *:--completion:*) words='bash zsh fish' ;;
    *:-*) case $command in
{}    esac ;;
    *) case $command:${{COMP_WORDS[COMP_CWORD-1]}} in
{}    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _braid braid
)",
                     groups, commands, seconds, words, choices);
}

std::string zsh(const std::vector<Page>& pages) {
  std::string commands, groups, cases;
  for (const auto& [word, summary] : first_words(pages)) {
    commands += fmt::format("    '{}:{}'\n", word, quoted(summary, ":"));
  }
  for (const auto& [group, members] : groups_of(pages)) {
    groups += fmt::format("    {})\n      local -a verbs=(\n", group);
    for (const Page* page : members) {
      groups += fmt::format("        '{}:{}'\n", last_word(*page), quoted(page->command->summary, ":"));
    }
    groups += fmt::format(
        "      )\n      if (( CURRENT == 2 )); then\n        _describe subcommand verbs\n{}"
        "      elif [[ ' {} ' == *\" $words[2] \"* ]]; then\n        chosen=\"$chosen $words[2]\"\n"
        "        shift words\n        (( CURRENT-- ))\n      fi ;;\n",
        is_command(pages, group) ? "" : "        return\n", verbs_of(members));
  }
  for (const Page& page : pages) {
    cases += fmt::format("    '{}') _arguments \\\n", page.command->name);
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
  case $chosen in
{}  esac
}}
if [ "$funcstack[1]" = _braid ]; then _braid "$@"; else compdef _braid braid; fi
)",
                     commands, groups, cases);
}

std::string fish(const std::vector<Page>& pages) {
  std::string out = "# braid --completion fish\n";
  for (const auto& [word, summary] : first_words(pages)) {
    out += fmt::format("complete -c braid -n __fish_use_subcommand -f -a {} -d '{}'\n", word, quoted(summary));
  }
  for (const auto& [group, members] : groups_of(pages)) {
    for (const Page* page : members) {
      out += fmt::format(
          "complete -c braid -n '__fish_seen_subcommand_from {}; and not __fish_seen_subcommand_from {}' "
          "-f -a {} -d '{}'\n",
          group, verbs_of(members), last_word(*page), quoted(page->command->summary));
    }
  }
  for (const Page& page : pages) {
    const std::string group = group_of(*page.command);
    std::string seen = (group.empty() ? "" : "__fish_seen_subcommand_from " + group + "; and ") +
                       "__fish_seen_subcommand_from " + last_word(page);
    for (const auto& [word, members] : groups_of(pages)) {
      if (word == page.command->name) seen += "; and not __fish_seen_subcommand_from " + verbs_of(members);
    }
    for (const Item& item : page.items) {
      if (item.positional) continue;
      out += fmt::format("complete -c braid -n '{}'", seen);
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
