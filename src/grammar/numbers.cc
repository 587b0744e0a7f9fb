#include "grammar/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "sys/error.h"

namespace braid::grammar {
namespace {

constexpr int kDigitCount = 15, kDigitCountMax = 18, kScaleMax = 15;
constexpr int64_t kMultipleMax = 1000, kListedMax = 10'000;

int64_t power(int n) {
  int64_t out = 1;
  while (n-- > 0) out *= 10;
  return out;
}

// A bound of absolute values, as digits of the integer part and of the fraction, the latter padded to kScaleMax + 1.
struct Bound {
  int64_t whole = 0;
  std::array<int, kScaleMax + 1> fraction{};
  bool exclusive = false;
};

Bound bound_of(const Decimal& d, bool exclusive) {
  const int64_t unit = power(d.scale);
  Bound out{.whole = d.digits / unit, .exclusive = exclusive};
  int64_t rest = d.digits % unit;
  for (int i = d.scale; i-- > 0; rest /= 10) out.fraction[static_cast<size_t>(i)] = static_cast<int>(rest % 10);
  return out;
}

// Numbers without a sign from `low` to `high`, with a certain number of digits before the point.
class Digits {
 public:
  struct Options {
    Bound low, high;
    int scale = 0;         // digits after the point, at most
    int64_t multiple = 1;  // in units of 10^-multiple_scale
    int multiple_scale = 0;
  };
  Digits(Builder& b, const Options& o, StateId next) : b_(b), o_(o), next_(next) {}

  StateId of(int whole_digits) {
    length_ = whole_digits;
    scale_ = o_.scale;
    std::erase_if(known_, [](const auto& k) { return std::get<2>(k.first) || std::get<3>(k.first); });
    low_ = digits_of(o_.low, true);
    high_ = digits_of(o_.high, false);
    if (low_.empty() || high_.empty()) return b_.any_of({});
    return at(0, true, true, 0);
  }

 private:
  // The digits of a bound for numbers of this length; empty: none of them is within it.
  std::vector<int> digits_of(const Bound& bound, bool low) const {
    const int64_t least = length_ == 1 ? 0 : power(length_ - 1), most = power(length_) - 1;
    std::vector<int> out(static_cast<size_t>(length_ + kScaleMax + 1));
    const bool outside = low ? bound.whole > most : bound.whole < least;
    if (outside) return {};
    const bool loose = low ? bound.whole < least : bound.whole > most;
    int64_t whole = loose ? (low ? least : most) : bound.whole;
    for (int i = length_; i-- > 0; whole /= 10) out[static_cast<size_t>(i)] = static_cast<int>(whole % 10);
    for (size_t i = 0; i < bound.fraction.size(); ++i)
      out[static_cast<size_t>(length_) + i] = loose ? (low ? 0 : 9) : bound.fraction[i];
    return out;
  }
  // May the number end before digit `i`, the digits so far being those of the bounds?
  bool may_end(int i, bool on_low, bool on_high, int64_t rest) const {
    const auto zeros = [&](const std::vector<int>& digits) {
      return std::all_of(digits.begin() + i, digits.end(), [](int d) { return d == 0; });
    };
    const bool loose_low = o_.low.whole < (length_ == 1 ? 0 : power(length_ - 1));
    if (on_low && !loose_low && !(zeros(low_) && !o_.low.exclusive)) return false;
    if (on_high && o_.high.exclusive && zeros(high_)) return false;
    for (int missing = length_ + o_.multiple_scale - i; missing > 0; --missing) rest = rest * 10 % o_.multiple;
    return rest % o_.multiple == 0;
  }
  StateId at(int i, bool on_low, bool on_high, int64_t rest) {
    // Away from the bounds only what is left counts, for numbers of any length.
    const auto key = std::tuple(length_ - i, scale_, on_low, on_high, rest);
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    std::vector<StateId> ways;
    if (i >= length_ && may_end(i, on_low, on_high, rest)) ways.push_back(next_);
    if (i < length_ + scale_) {
      std::vector<ByteEdge> edges;
      const auto place = static_cast<size_t>(i);
      const int from = on_low ? low_[place] : (i == 0 && length_ > 1 ? 1 : 0), to = on_high ? high_[place] : 9;
      for (int d = from; d <= to; ++d) {
        const StateId after =
            at(i + 1, on_low && d == low_[place], on_high && d == high_[place], (rest * 10 + d) % o_.multiple);
        edges.push_back({static_cast<uint8_t>('0' + d), static_cast<uint8_t>('0' + d), after});
      }
      const StateId digit = b_.bytes(std::move(edges));
      ways.push_back(i == length_ ? b_.byte('.', '.', digit) : digit);
    }
    return known_[key] = b_.any_of(ways);
  }

  Builder& b_;
  const Options& o_;
  StateId next_;
  int length_ = 1, scale_ = 0;
  std::vector<int> low_, high_;
  std::map<std::tuple<int, int, bool, bool, int64_t>, StateId> known_;
};

StateId any_number(Builder& b, bool integer, StateId next) {
  const auto digits = [&](int least, int most, StateId after) {
    for (int i = most; i-- > 0;) {
      const StateId digit = b.byte('0', '9', after);
      after = i < least ? digit : b.any_of({digit, next});
    }
    return after;
  };
  StateId end = next;
  if (!integer) {
    const StateId power_of_ten = digits(1, 2, next);
    const StateId exponent =
        b.bytes({{'e', 'e', b.any_of({b.bytes({{'+', '+', power_of_ten}, {'-', '-', power_of_ten}}), power_of_ten})},
                 {'E', 'E', b.any_of({b.bytes({{'+', '+', power_of_ten}, {'-', '-', power_of_ten}}), power_of_ten})}});
    end = b.any_of({exponent, next});
    StateId fraction = end;
    for (int i = kScaleMax; i-- > 0;) {
      const StateId digit = b.byte('0', '9', fraction);
      fraction = i == 0 ? digit : b.any_of({digit, end});
    }
    end = b.any_of({b.byte('.', '.', fraction), end});
  }
  StateId whole = end;
  for (int i = kDigitCount - 1; i-- > 0;) whole = b.any_of({b.byte('0', '9', whole), end});
  const StateId unsigned_number = b.bytes({{'0', '0', end}, {'1', '9', whole}});
  return b.any_of({b.byte('-', '-', unsigned_number), unsigned_number});
}

double value_of(const Decimal& d) {
  return static_cast<double>(d.digits) / static_cast<double>(power(d.scale));  // both exact: rounded once
}

std::string text_of(int64_t digits, int scale) {
  for (; scale > 0 && digits % 10 == 0; --scale) digits /= 10;
  std::string out = std::to_string(digits < 0 ? -digits : digits);
  if (std::ssize(out) <= scale) out.insert(0, static_cast<size_t>(scale + 1) - out.size(), '0');
  if (scale > 0) out.insert(out.size() - static_cast<size_t>(scale), ".");
  return (digits < 0 ? "-" : "") + out;
}

bool within(double value, const NumberBounds& bounds) {
  const double min = bounds.min ? value_of(*bounds.min) : value, max = bounds.max ? value_of(*bounds.max) : value;
  return (bounds.min && bounds.min_exclusive ? value > min : value >= min) &&
         (bounds.max && bounds.max_exclusive ? value < max : value <= max);
}

// The multiples next to zero that are multiples in doubles too.
std::vector<std::string> listed_multiples(const NumberBounds& bounds) {
  const Decimal& step = *bounds.multiple;
  const double size = value_of(step);
  double begin = 0;
  if (bounds.min) begin = std::max(begin, std::floor(value_of(*bounds.min) / size));
  if (bounds.max) begin = std::min(begin, std::ceil(value_of(*bounds.max) / size));
  std::vector<std::string> out;
  for (int64_t i = -kListedMax; i <= kListedMax; ++i) {
    const double digits = (begin + static_cast<double>(i)) * static_cast<double>(step.digits);
    if (std::abs(digits) >= static_cast<double>(power(kDigitCount))) continue;
    const Decimal d{static_cast<int64_t>(digits), step.scale};
    const double value = value_of(d), quotient = value / size;
    const bool whole = d.digits % power(d.scale) == 0;
    if (within(value, bounds) && quotient == std::trunc(quotient) && (whole || !bounds.integer))
      out.push_back(text_of(d.digits, d.scale));
  }
  return out;
}

// Of a multiple with digits after the point.
StateId fractional_multiple(Builder& b, const NumberBounds& bounds, std::string_view where, StateId next) {
  const Decimal& step = *bounds.multiple;
  const int64_t unit = power(step.scale);
  NumberBounds whole = bounds;
  whole.integer = true;
  whole.multiple = Decimal{step.digits / std::gcd(step.digits, unit), 0};
  const double error = std::fma(value_of(step), static_cast<double>(unit), -static_cast<double>(step.digits));
  std::vector<StateId> ways;
  if (error != 0) ways.push_back(b.literals(listed_multiples(bounds), next));
  // Below half a unit in the last place of any quotient.
  const bool certain = std::ldexp(std::abs(error), 54) <= static_cast<double>(step.digits);
  if (certain && whole.multiple->digits <= kMultipleMax) ways.push_back(number(b, whole, where, next));
  return b.any_of(ways);
}

Decimal negative(const Decimal& d) { return {-d.digits, d.scale}; }

// Without a sign, from `min` (at least 0) to `max`; nullopt: open.
StateId magnitude(Builder& b, const NumberBounds& bounds, std::string_view where, StateId next) {
  Digits::Options o;
  o.low = bound_of(bounds.min.value_or(Decimal{}), bounds.min && bounds.min_exclusive);
  int length = kDigitCount;
  for (const auto& d : {bounds.min, bounds.max}) {
    if (d && d->digits / power(d->scale) >= power(kDigitCount)) length = kDigitCountMax;
  }
  if (bounds.max) {
    o.high = bound_of(*bounds.max, bounds.max_exclusive);
  } else {
    o.high.whole = power(length) - 1;
    o.high.fraction.fill(9);
  }
  int scale = bounds.integer ? 0 : kScaleMax;
  if (bounds.multiple) {
    o.multiple = bounds.multiple->digits;
    o.multiple_scale = bounds.multiple->scale;
    if (o.multiple > kMultipleMax)
      fail(where, {.what = "multipleOf is not supported with this value",
                   .expected = fmt::format("at most {} steps of its last digit", kMultipleMax)});
    scale = std::min(scale, o.multiple_scale);
  }
  std::vector<StateId> ways;
  Digits digits(b, o, next);
  for (int n = 1; n <= length; ++n) {
    o.scale = std::clamp(kDigitCount - n, 0, scale);
    ways.push_back(digits.of(n));
  }
  return b.any_of(ways);
}

}  // namespace

namespace {

// As written, of any scale. nullopt: more than 18 digits, or no number.
std::optional<Decimal> scaled_decimal(std::string_view text) {
  Decimal out;
  const bool minus = text.starts_with('-');
  if (minus) text.remove_prefix(1);
  bool point = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '.') {
      point = true;
    } else if (text[i] == 'e' || text[i] == 'E') {
      const std::string_view part = text.substr(i + (text.substr(i + 1).starts_with('+') ? 2 : 1));
      int exponent = 0;
      const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), exponent);
      if (status != std::errc{} || end != part.data() + part.size()) return std::nullopt;
      if (exponent > 400 || exponent < -400) return std::nullopt;
      out.scale -= exponent;
      break;
    } else {
      if (text[i] < '0' || text[i] > '9' || out.digits >= power(kDigitCountMax - 1)) return std::nullopt;
      out.digits = out.digits * 10 + (text[i] - '0');
      out.scale += point;
    }
  }
  if (minus) out.digits = -out.digits;
  return out;
}

}  // namespace

bool operator<(const Decimal& a, const Decimal& b) {
  return static_cast<__int128>(a.digits) * power(b.scale) < static_cast<__int128>(b.digits) * power(a.scale);
}

std::optional<Decimal> decimal_of(std::string_view text) {
  std::optional<Decimal> out = scaled_decimal(text);
  if (!out) return std::nullopt;
  for (; out->scale > 0 && out->digits % 10 == 0; --out->scale) out->digits /= 10;
  for (; out->scale < 0 && std::abs(out->digits) < power(kDigitCountMax - 1); ++out->scale) out->digits *= 10;
  if (out->scale < 0 || out->scale > kScaleMax) return std::nullopt;
  return out;
}

std::optional<Decimal> decimal_rounded(std::string_view text, bool up) {
  std::optional<Decimal> out = scaled_decimal(text);
  if (!out || out->scale <= kScaleMax) return std::nullopt;
  int64_t rest = 0;
  for (; out->scale > kScaleMax; --out->scale) {
    rest |= out->digits % 10;
    out->digits /= 10;  // toward zero
  }
  if (rest != 0 && up == (text[0] != '-')) out->digits += up ? 1 : -1;
  return out;
}

bool lies_beyond(std::string_view text, bool above) {
  double value = 0;  // far from the limit, if it is beyond what has 18 digits
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto most = static_cast<double>(power(kDigitCount) - 1);
  return end == text.data() + text.size() && status == std::errc{} && (above ? value > most : value < -most);
}

StateId number(Builder& b, const NumberBounds& bounds, std::string_view where, StateId next) {
  if (bounds.multiple && bounds.multiple->digits <= 0)
    fail(where, {.what = "multipleOf is not supported with this value", .expected = "a number above 0"});
  if (!bounds.min && !bounds.max && !bounds.multiple) return any_number(b, bounds.integer, next);
  if (const auto& step = bounds.multiple; step && step->scale > 0) {
    int64_t fives = 1;
    for (int i = 0; i < step->scale; ++i) fives *= 5;
    if (bounds.integer || step->digits % fives != 0) return fractional_multiple(b, bounds, where, next);
  }
  std::vector<StateId> ways;
  const auto is_negative = [](const std::optional<Decimal>& d) { return d && d->digits < 0; };
  if (!is_negative(bounds.max)) {  // zero and above
    NumberBounds above = bounds;
    if (is_negative(bounds.min)) above.min = std::nullopt;
    ways.push_back(magnitude(b, above, where, next));
  }
  const bool below_zero = !bounds.min || is_negative(bounds.min);
  if (below_zero) {
    NumberBounds below = bounds;
    std::swap(below.min_exclusive, below.max_exclusive);
    below.min = is_negative(bounds.max) ? std::optional(negative(*bounds.max)) : std::optional(Decimal{});
    if (!is_negative(bounds.max)) below.min_exclusive = true;  // zero has been
    below.max = bounds.min ? std::optional(negative(*bounds.min)) : std::nullopt;
    ways.push_back(b.byte('-', '-', magnitude(b, below, where, next)));
  }
  return b.any_of(ways);
}

}  // namespace braid::grammar
