#include "comm/same_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "sys/error.h"

namespace braid::comm {

std::string text_of(Group& world, int root, std::string text) {
  auto size = std::ssize(text);
  const auto bytes = [](void* data, int64_t n) { return MutView(static_cast<std::byte*>(data), DType::u8, {n}); };
  world.broadcast(bytes(&size, sizeof size), root).wait();
  text.resize(static_cast<size_t>(size));
  if (size > 0) world.broadcast(bytes(text.data(), size), root).wait();
  return text;
}

namespace {

std::string joined(const Words& words) {
  std::string all;
  for (const auto& [word, value] : words) all += word + '\t' + value + '\n';
  return all;
}

// The first line of each that the other has not in its place.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  const auto at = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const size_t begin = at == 0 ? 0 : a.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  const auto line = [begin](const std::string& text) {
    std::string one = begin < text.size() ? text.substr(begin, text.find('\n', begin) - begin) : "nothing";
    const size_t tab = one.find('\t');
    return tab == std::string::npos ? one : fmt::format("{} = {}", one.substr(0, tab), one.substr(tab + 1));
  };
  return {line(a), line(b)};
}

}  // namespace

void check_same_words(Group& world, const Words& words) {
  const std::string own = joined(words), first = text_of(world, 0, own);
  int64_t other = own == first ? world.size() : world.rank();
  const MutView one(reinterpret_cast<std::byte*>(&other), DType::i64, {1});
  world.all_reduce(one, one, Reduction::min).wait();
  if (other == world.size()) return;
  const std::string theirs = text_of(world, static_cast<int>(other), own);
  const auto [there, here] = first_difference(theirs, first);
  fail("ranks", {.what = "were started with different options",
                 .got = fmt::format("{} on rank {}", printable(there, 100), other),
                 .expected = fmt::format("{}, as on rank 0", printable(here, 100))});
}

}  // namespace braid::comm
