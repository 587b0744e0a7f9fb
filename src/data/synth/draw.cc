#include "data/synth/draw.h"

#include <algorithm>

#include "sys/check.h"

namespace braid::synth {

std::string fill(std::string_view form, std::initializer_list<Slot> slots) {
  std::string out;
  for (size_t at = 0; at < form.size();) {
    if (form[at] != '{') {
      out += form[at++];
      continue;
    }
    const size_t end = form.find('}', at);
    CHECK(end != form.npos, "{}", form);
    const std::string_view name = form.substr(at + 1, end - at - 1);
    bool known = false;
    for (const Slot& s : slots) {
      if (s.name != name) continue;
      out += s.value;
      known = true;
    }
    CHECK(known, "{} in {}", name, form);
    at = end + 1;
  }
  return out;
}

std::vector<std::string_view> entries(std::string_view list) {
  std::vector<std::string_view> out;
  while (!list.empty()) {
    const size_t end = std::min(list.find('|'), list.size());
    out.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return out;
}

bool held_out(std::string_view problem) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, then a finaliser: the low bits of FNV alone are weak
  for (const char ch : problem) hash = (hash ^ static_cast<unsigned char>(ch)) * 0x100000001b3;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  return ((hash >> 40) & 15) == 0;
}

}  // namespace braid::synth
