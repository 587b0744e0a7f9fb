// What people and shells read about the command line, all made from one table of items per subcommand: help pages,
// shell completions and the man page.
#pragma once
#include <charconv>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "sys/error.h"

namespace braid::apps {

struct Command;

// One flag, option or positional argument of a subcommand.
struct Item {
  std::vector<std::string> spellings{};  // "-n", "--tokens"; of a positional its name: "MODEL"
  std::string value{};                   // what stands for the argument: "N", "FILE", "f32|bf16"; empty for a flag
  std::string help{};
  std::string initial{};  // the default as text; empty when there is none worth printing
  std::vector<std::string> choices{};
  bool positional = false, required = false, repeated = false, rare = false;

  std::string long_name() const;                      // first spelling with two dashes, or empty
  std::string variable() const;                       // BRAID_TOKENS, or empty without a long name
  std::string source(const std::string& text) const;  // of a value, for error lines: the variable if it holds just this
};

using Rows = std::vector<std::pair<std::string, std::string>>;  // a label and what it means

struct Page {
  const Command* command = nullptr;
  std::vector<Item> items;
  Rows prints;  // words of its output
};

// "-n,--tokens N" -> spellings and the name of the value, which is `value` where none is given.
Item item_of(const std::string& names, const std::string& value, const std::string& help);

// `take` of an option's value, which is not itself one of the options: it was left out then.
using Take = std::function<void(const std::string&)>;
Take checked(Take take, const Item& item, const std::vector<Item>& options, const std::vector<std::string>& words);

// The number that is all of an option's text. Error naming the option.
template <class Number>
Number number_of(const Item& item, const std::string& text, const char* expected) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc{} || stop != end)
    fail(item.source(text), {.what = "not a value for this option", .got = printable(text), .expected = expected});
  return value;
}

std::string upper(std::string name);                   // ASCII
std::string subcommands_of(const std::string& group);  // "show, tokenize, bpe"
std::string overview(const std::string& group = "");   // braid --help, and braid <group> --help
std::string help_text(const Page& page);               // braid <command> --help: at most 80 columns wide
std::string man_page(const std::vector<Page>& pages);
std::string completion_script(const std::string& shell, const std::vector<Page>& pages);  // bash, zsh or fish

}  // namespace braid::apps
