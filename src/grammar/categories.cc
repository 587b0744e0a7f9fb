#include "grammar/categories.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

namespace braid::grammar {
namespace {

struct LongName {
  std::string_view name, category;
};

// Aliases of PropertyValueAliases.txt.
constexpr LongName kLongNames[] = {
    {"Letter", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"Dash_Punctuation", "Pd"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"Format", "Cf"},
    {"Unassigned", "Cn"},
};

// By the two letters of a category; without surrogates.
std::map<std::string, CharSet> all_categories() {
  std::map<std::string, CharSet> out;
  for (char32_t ch = 0; ch <= kCharMax; ++ch) {
    const std::string name = utf8proc_category_string(static_cast<utf8proc_int32_t>(ch));
    if (name == "Cs") continue;
    CharSet& set = out[name];
    if (!set.empty() && set.back().last + 1 == ch)
      set.back().last = ch;
    else
      set.push_back({ch, ch});
  }
  return out;
}

}  // namespace

std::optional<CharSet> category(std::string_view name) {
  static const std::map<std::string, CharSet> all = all_categories();
  const auto alias = std::ranges::find(kLongNames, name, &LongName::name);
  if (alias != std::end(kLongNames)) name = alias->category;
  if (name.empty() || name.size() > 2) return std::nullopt;
  CharSet out;
  for (const auto& [key, set] : all) {
    if (key.starts_with(name)) out.insert(out.end(), set.begin(), set.end());
  }
  if (out.empty()) return std::nullopt;
  return normalized(std::move(out));
}

}  // namespace braid::grammar
