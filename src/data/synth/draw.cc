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

}  // namespace braid::synth
