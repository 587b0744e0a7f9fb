// Tests: what follows `is`.
#include <fmt/format.h>

#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_unicode.h"

namespace braid::text::jinja {
namespace {

Value is_defined(Args& a) { return !a[0].is(Kind::undefined); }
Value is_undefined(Args& a) { return a[0].is(Kind::undefined); }
Value is_none(Args& a) { return a[0].is(Kind::none); }
Value is_boolean(Args& a) { return a[0].is(Kind::boolean); }
Value is_true(Args& a) { return a[0].is(Kind::boolean) && a[0].boolean(); }
Value is_false(Args& a) { return a[0].is(Kind::boolean) && !a[0].boolean(); }
Value is_integer(Args& a) { return a[0].is(Kind::integer) || a[0].is(Kind::large); }
Value is_float(Args& a) { return a[0].is(Kind::real); }
Value is_number(Args& a) { return a[0].is_number(); }
Value is_string(Args& a) { return a[0].is(Kind::text); }
Value is_mapping(Args& a) { return a[0].is(Kind::dict); }
Value is_callable(Args& a) { return a[0].is(Kind::callable) || a[0].is(Kind::undefined); }
Value is_escaped(Args& a) { return a[0].is(Kind::text) && a[0].text().safe; }
Value is_sameas(Args& a) { return a[0].same(a[1]); }
Value is_in(Args& a) { return contains(a[1], a[0]); }

// A length and indices: in Python an undefined value has both, a dict too.
Value is_sequence(Args& a) {
  const Value& v = a[0];
  const bool indexed = v.is(Shape::list) || v.is(Shape::tuple) || v.is(Shape::range);
  return indexed || v.is(Kind::text) || v.is(Kind::dict) || v.is(Kind::undefined);
}

Value is_iterable(Args& a) {
  const Value& v = a[0];
  return v.is(Kind::text) || v.is(Kind::sequence) || v.is(Kind::dict) || v.is(Kind::undefined) || v.is(Kind::loop);
}

// str.islower and str.isupper: at least one cased character, and none of the other case.
Value all_cased(const Args& a, bool (*wanted)(char32_t)) {
  const std::string s = a.printed(0);
  bool any = false;
  for (size_t pos = 0; pos < s.size();) {
    const char32_t c = next_point(s, pos);
    if (is_cased(c) && !wanted(c)) return false;
    any |= is_cased(c);
  }
  return any;
}
Value is_lower_text(Args& a) { return all_cased(a, is_lower); }
Value is_upper_text(Args& a) { return all_cased(a, is_upper); }

bool remainder_is(const Value& v, const Value& by, int64_t wanted) { return equal(binary("%", v, by), Value(wanted)); }
Value is_odd(Args& a) { return remainder_is(a[0], int64_t{2}, 1); }
Value is_even(Args& a) { return remainder_is(a[0], int64_t{2}, 0); }
Value is_divisible(Args& a) { return remainder_is(a[0], a[1], 0); }

Value is_filter(Args& a) { return a[0].is(Kind::text) && find_filter(a[0].str()) != nullptr; }
Value is_test(Args& a) { return a[0].is(Kind::text) && find_test(a[0].str()) != nullptr; }

Value is_eq(Args& a) { return compare("==", a[0], a[1]); }
Value is_ne(Args& a) { return compare("!=", a[0], a[1]); }
Value is_lt(Args& a) { return compare("<", a[0], a[1]); }
Value is_le(Args& a) { return compare("<=", a[0], a[1]); }
Value is_gt(Args& a) { return compare(">", a[0], a[1]); }
Value is_ge(Args& a) { return compare(">=", a[0], a[1]); }

constexpr Builtin kTests[] = {
    {"defined", "value", is_defined},
    {"undefined", "value", is_undefined},
    {"none", "value", is_none},
    {"boolean", "value", is_boolean},
    {"true", "value", is_true},
    {"false", "value", is_false},
    {"integer", "value", is_integer},
    {"float", "value", is_float},
    {"number", "value", is_number},
    {"string", "value", is_string},
    {"mapping", "value", is_mapping},
    {"sequence", "value", is_sequence},
    {"iterable", "value", is_iterable},
    {"callable", "value", is_callable},
    {"escaped", "value", is_escaped},
    {"sameas", "value other", is_sameas},
    {"in", "value seq", is_in},
    {"lower", "value", is_lower_text},
    {"upper", "value", is_upper_text},
    {"odd", "value", is_odd},
    {"even", "value", is_even},
    {"divisibleby", "value num", is_divisible},
    {"filter", "value", is_filter},
    {"test", "value", is_test},
    {"==", "a b", is_eq},
    {"eq", "a b", is_eq},
    {"equalto", "a b", is_eq},
    {"!=", "a b", is_ne},
    {"ne", "a b", is_ne},
    {"<", "a b", is_lt},
    {"lt", "a b", is_lt},
    {"lessthan", "a b", is_lt},
    {"<=", "a b", is_le},
    {"le", "a b", is_le},
    {">", "a b", is_gt},
    {"gt", "a b", is_gt},
    {"greaterthan", "a b", is_gt},
    {">=", "a b", is_ge},
    {"ge", "a b", is_ge},
};

}  // namespace

const Builtin* find_test(std::string_view name) { return find_row(kTests, name); }

}  // namespace braid::text::jinja
