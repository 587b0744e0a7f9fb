#include "train/assembly.h"

#include <functional>
#include <numeric>
#include <set>
#include <string_view>

#include "sys/check.h"

namespace braid::train {
namespace {

using models::MasterTensor;
// What a rank says of a part of a tensor: its number and extent, which rows or columns, and how many ranges follow.
using Words = std::vector<int64_t>;

Words words_of(const MasterTensor& t) {
  Words words = {t.number, t.rows, t.cols, t.by_cols ? 1 : 0, t.within.begin, t.within.count, std::ssize(t.held)};
  for (const Range& r : t.held) words.insert(words.end(), {r.begin, r.count});
  return words;
}

// The part of a tensor of `whole` that the words from `at` on describe; `at` moves behind them.
MasterTensor part_of(const models::MasterWeights& whole, const Words& words, size_t& at) {
  const auto next = [&] {
    CHECK(at < words.size(), "{} words", words.size());
    return words[at++];
  };
  const int64_t number = next();
  CHECK(number >= 0 && number < std::ssize(whole.tensors()), "tensor {} of {}", number, whole.tensors().size());
  MasterTensor t = whole.tensors()[static_cast<size_t>(number)];
  t.number = number;
  t.rows = next();
  t.cols = next();
  t.by_cols = next() != 0;
  t.within.begin = next();
  t.within.count = next();
  const int64_t ranges = next();
  for (int64_t i = 0; i < ranges; ++i) {
    const int64_t begin = next();
    t.held.push_back({begin, next()});
  }
  return t;
}

std::span<const float> values_of(const MasterTensor& t, std::span<const float> array) {
  return array.subspan(static_cast<size_t>(t.offset), static_cast<size_t>(t.count()));
}

void tell_first(comm::Group& world, std::span<const MasterTensor> held, std::span<const float> array) {
  Words words;
  for (const MasterTensor& t : held) {
    const Words own = words_of(t);
    words.insert(words.end(), own.begin(), own.end());
  }
  const auto size = std::ssize(words);
  world.send(view_of(&size, {1}), 0).wait();
  world.send(view_of(words.data(), {size}), 0).wait();
  std::vector<uint8_t> wanted(held.size());
  world.recv(mut_view_of(wanted.data(), {std::ssize(wanted)}), 0).wait();
  for (size_t i = 0; i < held.size(); ++i) {
    const std::span<const float> values = values_of(held[i], array);
    if (wanted[i] != 0) world.send(view_of(values.data(), {std::ssize(values)}), 0).wait();
  }
}

std::vector<MasterTensor> hear_from(comm::Group& world, int rank, const models::MasterWeights& whole) {
  int64_t size = 0;
  world.recv(mut_view_of(&size, {1}), rank).wait();
  Words words(static_cast<size_t>(size));
  world.recv(mut_view_of(words.data(), {size}), rank).wait();
  std::vector<MasterTensor> parts;
  for (size_t at = 0; at < words.size();) parts.push_back(part_of(whole, words, at));
  return parts;
}

}  // namespace

std::vector<float> assemble_tensors(comm::Group& world, std::span<const MasterTensor> held,
                                    std::span<const float> array, const models::MasterWeights& whole) {
  if (world.rank() > 0) {
    tell_first(world, held, array);
    return {};
  }
  std::vector<float> all(static_cast<size_t>(whole.size())), values;
  std::set<Words> taken;
  const auto put = [&](const MasterTensor& t, std::span<const float> part) {
    const auto at = static_cast<size_t>(whole.tensors()[static_cast<size_t>(t.number)].offset);
    models::put_held(t, part, std::span(all).subspan(at));
  };
  for (const MasterTensor& t : held) {
    put(t, values_of(t, array));
    taken.insert(words_of(t));
  }
  for (int rank = 1; rank < world.size(); ++rank) {
    const std::vector<MasterTensor> parts = hear_from(world, rank, whole);
    std::vector<uint8_t> wanted;
    wanted.reserve(parts.size());
    for (const MasterTensor& t : parts) wanted.push_back(taken.insert(words_of(t)).second ? 1 : 0);
    world.send(view_of(wanted.data(), {std::ssize(wanted)}), rank).wait();
    for (size_t i = 0; i < parts.size(); ++i) {
      if (wanted[i] == 0) continue;
      values.resize(static_cast<size_t>(parts[i].count()));
      world.recv(mut_view_of(values.data(), {std::ssize(values)}), rank).wait();
      put(parts[i], values);
    }
  }
  return all;
}

std::vector<uint8_t> first_holders(comm::Group& world, std::span<const MasterTensor> held) {
  std::vector<int64_t> own, counts(static_cast<size_t>(world.size()));
  for (const MasterTensor& t : held) {
    const Words words = words_of(t);
    const std::string_view bytes(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t));
    own.push_back(static_cast<int64_t>(std::hash<std::string_view>()(bytes)));
  }
  const int64_t count = std::ssize(own);
  world.all_gather(view_of(&count, {1}), mut_view_of(counts.data(), {std::ssize(counts)})).wait();
  const auto before = std::accumulate(counts.begin(), counts.begin() + world.rank(), int64_t{0});
  std::vector<int64_t> all(static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0})));
  world.all_gather(view_of(own.data(), {count}), mut_view_of(all.data(), {std::ssize(all)}), counts).wait();
  const std::set<int64_t> taken(all.begin(), all.begin() + before);
  std::vector<uint8_t> first;
  first.reserve(own.size());
  for (const int64_t part : own) first.push_back(taken.contains(part) ? 0 : 1);
  return first;
}

}  // namespace braid::train
