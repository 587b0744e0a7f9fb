#include "apps/cli_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "apps/cli.h"
#include "apps/split.h"
#include "apps/version.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

constexpr const char* kSummary = "Braid: train, quantise and run hybrid Mamba-Transformer MoE language models.";
// Of the man page. tests/help_test.py runs them in order; words in capitals stand for what the reader has.
constexpr const char* kExamples[] = {
    "braid chat MODEL",
    "braid run --chat \"What is 17 + 25?\"",
    "echo \"What is 17 + 25?\" | braid chat",
    "braid info nemotron-3-nano-30b-a3b",
    "braid convert tiny tiny.gguf --type q8_0",
    "braid bench tiny.gguf -p 64 -n 16 -r 1",
    "braid quantize MODEL OUT --format nvfp4",
    "braid train RECIPE.toml optimizer.lr=1e-4 --resume auto",
    "braid eval MODEL --text FILE --kl BASE",
};
constexpr size_t kWidth = 80;     // columns of a page
constexpr size_t kLabelMax = 26;  // a longer label stands on a line of its own

// "-n, --tokens N"; without a short name the long one is indented to stand under the others.
std::string label_of(const Item& item) {
  std::string text = fmt::format("{}", fmt::join(item.spellings, ", "));
  if (!item.positional && text.starts_with("--")) text = "    " + text;
  if (item.repeated) text += "...";
  if (item.value.empty()) return text;
  const std::string whole = text + " " + item.value, brief = text + " T";
  return !item.choices.empty() && whole.size() > kLabelMax && brief.size() <= kLabelMax ? brief : whole;
}

// Choices that do not fit into the left column are printed at the start of the text.
std::string text_of(const Item& item) {
  const std::string words = item.choices.empty() || label_of(item).ends_with(item.value)
                                ? item.help
                                : fmt::format("{}: {}", item.value, item.help);
  return item.initial.empty() ? words : fmt::format("{} [{}]", words, item.initial);
}

// Two aligned columns; the right one wraps between words.
std::string columns(const Rows& rows) {
  size_t left = 0;
  for (const auto& [label, text] : rows) {
    if (label.size() <= kLabelMax) left = std::max(left, label.size());
  }
  const std::string indent(left + 4, ' ');
  std::string out;
  for (const auto& [label, text] : rows) {
    std::string line = fmt::format("  {:<{}}", label, left + 2);
    if (label.size() > left) {
      out += line + "\n";
      line = indent;
    }
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find(' ', begin), text.size());
      const bool first = line.size() <= indent.size();
      if (!first && line.size() + 1 + (end - begin) > kWidth) {
        out += line + "\n";
        line = indent;
      } else if (!first) {
        line += ' ';
      }
      line += text.substr(begin, end - begin);
      begin = end + 1;
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string usage_of(const Page& page) {
  std::string text = fmt::format("braid {}", page.command->name);
  for (const Item& item : page.items) {
    if (!item.positional) continue;
    const std::string name = item.repeated ? item.spellings[0] + "..." : item.spellings[0];
    text += item.required ? fmt::format(" {}", name) : fmt::format(" [{}]", name);
  }
  return text + " [options]";
}

// roff takes a dash for a hyphen, a backslash for an escape, and a dot that begins a line for a request.
std::string roff(const std::string& text) {
  std::string out;
  for (char ch : text) {
    if (ch == '-' || ch == '\\') out += '\\';
    out += ch == '\\' ? 'e' : ch;
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

}  // namespace

Item item_of(const std::string& names, const std::string& value, const std::string& help) {
  Item item{.help = help};
  const size_t space = names.find(' ');
  item.value = space == std::string::npos ? value : names.substr(space + 1);
  item.spellings = split(names.substr(0, space));
  return item;
}

std::string Item::long_name() const {
  for (const std::string& name : spellings) {
    if (name.starts_with("--")) return name;
  }
  return "";
}

std::string Item::variable() const {
  std::string name = long_name();
  if (name.empty()) return name;
  std::replace(name.begin(), name.end(), '-', '_');
  return "BRAID_" + upper(name.substr(2));
}
std::string Item::source(const std::string& text) const {
  if (long_name().empty()) return spellings[0];
  const char* set = std::getenv(variable().c_str());
  return set && text == set ? variable() : long_name();
}

Take checked(Take take, const Item& item, const std::vector<Item>& options, const std::vector<std::string>& words) {
  return [take = std::move(take), item, &options, &words](const std::string& text) {
    const auto is = [&](const Item& other) { return !other.positional && other.long_name() == text; };
    const bool apart = std::ranges::find(words, text) != words.end();  // not --stop=--json, nor a variable's
    if (!item.positional && !text.empty() && apart && std::ranges::any_of(options, is))
      fail(item.long_name(), {.what = "lacks its value", .got = text, .expected = item.value});
    take(text);
  };
}

std::string upper(std::string name) {
  for (char& ch : name) ch = ch >= 'a' && ch <= 'z' ? static_cast<char>(ch - 'a' + 'A') : ch;
  return name;
}

std::string group_of(const Command& command) {
  const std::string name = command.name;
  const size_t space = name.find(' ');
  return space == name.npos ? "" : name.substr(0, space);
}

bool names_group(const std::string& word) {
  return std::any_of(kCommands, kCommands + kCommandCount,
                     [&](const Command& command) { return !word.empty() && group_of(command) == word; });
}

std::string subcommands_of(const std::string& group) {
  std::string list;
  for (int i = 0; i < kCommandCount; ++i) {
    if (group_of(kCommands[i]) == group)
      list += (list.empty() ? "" : ", ") + std::string(kCommands[i].name).substr(group.size() + 1);
  }
  return list;
}

std::string overview(const std::string& group) {
  Rows rows;
  for (int i = 0; i < kCommandCount; ++i) {
    const std::string own = group_of(kCommands[i]);
    const Group* listed = std::find_if(kGroups, kGroups + kGroupCount, [&](const Group& g) { return g.name == own; });
    if (own == group || (group.empty() && listed == kGroups + kGroupCount))
      rows.emplace_back(kCommands[i].name, kCommands[i].summary);
    else if (group.empty() && (rows.empty() || rows.back().first != own))
      rows.emplace_back(own, fmt::format("{}: {}", listed->summary, subcommands_of(own)));
  }
  if (!group.empty()) return fmt::format("usage: braid {} <subcommand> [options]\n\n{}", group, columns(rows));
  return fmt::format("{}\n\nusage: braid <subcommand> [options], --help for its options\n\n{}\n{}", kSummary,
                     columns(rows),
                     columns({{"--version, --man", "commit, compiler, CPU class; a man page of everything"},
                              {"--completion SHELL", "completions for bash, zsh or fish"},
                              {"docs/*.md", "pages of the source tree; tools/site makes a site"}}));
}

std::string help_text(const Page& page) {
  Rows arguments, options;
  std::string example;
  std::string rare;
  for (const Item& item : page.items) {
    if (item.rare) {
      rare += (rare.empty() ? "" : ", ") + item.long_name();
      continue;
    }
    (item.positional ? arguments : options).emplace_back(label_of(item), text_of(item));
    if (example.empty() && !item.positional && !item.long_name().empty())
      example = fmt::format("Options are variables: {} is {}. ", item.long_name(), item.variable());
  }
  arguments.insert(arguments.end(), options.begin(), options.end());
  const std::string more = rare.empty() ? "" : columns({{"--man", rare}});
  const std::string prints = page.prints.empty() ? "" : "\nprints:\n" + columns(page.prints);
  return fmt::format("{}\n\nusage: {}\n\n{}{}{}\n{}See docs/{}.md.\n", page.command->summary, usage_of(page),
                     columns(arguments), more, prints, example, page.command->page);
}

std::string man_page(const std::vector<Page>& pages) {
  std::string out = fmt::format(
      ".TH BRAID 1 \"\" \"braid {}\"\n.SH NAME\nbraid \\- one engine for hybrid language models\n", build().version);
  out += fmt::format(".SH SYNOPSIS\n.B braid\n.I subcommand\n[options]\n.SH DESCRIPTION\n{}\n.SH SUBCOMMANDS\n",
                     roff(kSummary));
  for (const Page& page : pages) {
    out += fmt::format(".SS {}\n{}\n", roff(usage_of(page)), roff(page.command->summary));
    for (const Item& item : page.items) {
      const std::string label = label_of(item);
      out += fmt::format(".TP\n.B {}\n{}\n", roff(label.substr(label.find_first_not_of(' '))), roff(text_of(item)));
    }
    if (!page.prints.empty()) out += ".P\nPrints:\n";
    for (const auto& [word, meaning] : page.prints) out += fmt::format(".TP\n.B {}\n{}\n", roff(word), roff(meaning));
  }
  out += ".SH EXAMPLES\n.nf\n";
  for (const char* example : kExamples) out += roff(example) + "\n";
  out += ".fi\n";
  out +=
      ".SH ENVIRONMENT\nEvery long option is also a variable: \\-\\-ctx\\-size is BRAID_CTX_SIZE. The option "
      "wins.\n";
  out +=
      ".SH EXIT STATUS\n0 success; 1 bad input or environment; 2 a run that failed; 70 a bug; 130 Ctrl\\-C, 143 "
      "SIGTERM, 129 SIGHUP.\n";
  return out;
}

}  // namespace braid::apps
