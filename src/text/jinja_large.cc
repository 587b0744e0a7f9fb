#include "text/jinja_large.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace braid::text::jinja {
namespace {

constexpr int64_t kLimb = 1'000'000'000;
constexpr size_t kLimbDigits = 9;
constexpr size_t kDigitsMax = 4300;  // sys.int_info.default_max_str_digits

struct Whole {
  bool negative = false;
  std::vector<int64_t> limbs;  // the lowest first, without zeros at the end
};

Whole checked(Whole w) {
  while (!w.limbs.empty() && w.limbs.back() == 0) w.limbs.pop_back();
  if (w.limbs.size() * kLimbDigits > kDigitsMax + kLimbDigits)
    raise_type(fmt::format("ValueError: an integer of more than {} digits", kDigitsMax));
  return w;
}

Whole read(const std::string& text) {
  Whole w{.negative = text.starts_with('-'), .limbs = {}};
  const size_t first = w.negative;
  for (size_t end = text.size(); end > first;) {
    const size_t from = end - std::min(kLimbDigits, end - first);
    w.limbs.push_back(std::strtoll(text.substr(from, end - from).c_str(), nullptr, 10));
    end = from;
  }
  return checked(std::move(w));
}

std::string print(const Whole& w) {
  if (w.limbs.empty()) return "0";
  std::string text = fmt::format("{}{}", w.negative ? "-" : "", w.limbs.back());
  for (size_t i = w.limbs.size() - 1; i-- > 0;) text += fmt::format("{:09}", w.limbs[i]);
  return text;
}

bool smaller(const Whole& a, const Whole& b) {  // in magnitude
  if (a.limbs.size() != b.limbs.size()) return a.limbs.size() < b.limbs.size();
  return std::lexicographical_compare(a.limbs.rbegin(), a.limbs.rend(), b.limbs.rbegin(), b.limbs.rend());
}

Whole sum(Whole a, Whole b) {
  if (smaller(a, b)) std::swap(a, b);
  const int64_t sign = a.negative == b.negative ? 1 : -1;
  a.limbs.push_back(0);
  int64_t carry = 0;
  for (size_t i = 0; i < a.limbs.size(); ++i) {
    int64_t& limb = a.limbs[i];
    limb += carry + (i < b.limbs.size() ? sign * b.limbs[i] : 0);
    carry = limb < 0 ? -1 : limb / kLimb;
    limb -= carry * kLimb;
  }
  return checked(std::move(a));
}

Whole product(const Whole& a, const Whole& b) {
  Whole w{.negative = a.negative != b.negative, .limbs = std::vector<int64_t>(a.limbs.size() + b.limbs.size())};
  for (size_t i = 0; i < a.limbs.size(); ++i) {
    int64_t carry = 0;
    for (size_t j = 0; j < b.limbs.size() || carry > 0; ++j) {
      int64_t& limb = w.limbs[i + j];
      const int64_t all = limb + carry + (j < b.limbs.size() ? a.limbs[i] * b.limbs[j] : 0);
      carry = all / kLimb;
      limb = all % kLimb;
    }
  }
  return checked(std::move(w));
}

}  // namespace

std::string large_binary(std::string_view op, const std::string& a, const std::string& b) {
  const Whole x = read(a);
  Whole y = read(b);
  if (op == "*") return print(product(x, y));
  if (op == "-") y.negative = !y.negative;
  return print(sum(x, std::move(y)));
}

std::string large_power(const std::string& base, int64_t exponent) {
  Whole result{.negative = false, .limbs = {1}}, square = read(base);
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = product(result, square);
    if (exponent > 1) square = product(square, square);
  }
  return print(result);
}

}  // namespace braid::text::jinja
