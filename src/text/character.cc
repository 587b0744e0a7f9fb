#include "text/character.h"

#include <utf8proc.h>

namespace braid::text {

bool is_space(char32_t value) {
  if (value < 0x80) return value == ' ' || (value >= '\t' && value <= '\r');
  if (value == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(value));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_mark(char32_t value) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(value));
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool is_word(char32_t value) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(value))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // join controls, and the circled and squared letters (Other_Alphabetic among the symbols)
      return value == 0x200c || value == 0x200d || (value >= 0x24b6 && value <= 0x24e9) ||
             (value >= 0x1f130 && value <= 0x1f149) || (value >= 0x1f150 && value <= 0x1f169) ||
             (value >= 0x1f170 && value <= 0x1f189);
  }
}

}  // namespace braid::text
