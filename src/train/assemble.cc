#include "train/assemble.h"

#include <map>
#include <string>

namespace braid::train {
namespace {

// What a rank sends: tensors with the places that it has of them.
struct Held {
  std::vector<models::MasterTensor> tensors;

  static Held of(const models::MasterWeights& masters) {
    Held held;
    for (const models::MasterTensor& t : masters.tensors()) {
      if (t.counted) held.tensors.push_back(t);
    }
    return held;
  }
  void send(comm::Group& ranks) const {
    std::string names;
    std::vector<int64_t> places;
    for (const models::MasterTensor& t : tensors) {
      names += t.name + '\n';
      places.insert(places.end(), {t.rows, t.cols, t.by_cols ? 1 : 0, std::ssize(t.held)});
      for (const Range& r : t.held) places.insert(places.end(), {r.begin, r.count});
    }
    const int64_t sizes[] = {std::ssize(names), std::ssize(places)};
    ranks.send(view_of(sizes, {2}), 0).wait();
    ranks.send(view_of(reinterpret_cast<const uint8_t*>(names.data()), {sizes[0]}), 0).wait();
    ranks.send(view_of(places.data(), {sizes[1]}), 0).wait();
  }
  static Held receive(comm::Group& ranks, int rank, const std::map<std::string, const models::MasterTensor*>& whole) {
    int64_t sizes[2] = {0, 0};
    ranks.recv(mut_view_of(sizes, {2}), rank).wait();
    std::string names(static_cast<size_t>(sizes[0]), ' ');
    std::vector<int64_t> places(static_cast<size_t>(sizes[1]));
    ranks.recv(mut_view_of(reinterpret_cast<uint8_t*>(names.data()), {sizes[0]}), rank).wait();
    ranks.recv(mut_view_of(places.data(), {sizes[1]}), rank).wait();
    Held held;
    auto next = places.begin();
    for (size_t at = 0, end = 0; at < names.size(); at = end + 1) {
      end = names.find('\n', at);
      models::MasterTensor& t = held.tensors.emplace_back(*whole.at(names.substr(at, end - at)));
      t.rows = *next++;
      t.cols = *next++;
      t.by_cols = *next++ != 0;
      t.held.resize(static_cast<size_t>(*next++));
      for (Range& r : t.held) {
        r.begin = *next++;
        r.count = *next++;
      }
    }
    return held;
  }
};

}  // namespace

std::vector<float> assemble(comm::Group& ranks, const models::MasterWeights& masters,
                            const models::MasterWeights& whole, std::span<const float> array) {
  const Held own = Held::of(masters);
  const auto values_of = [&](const models::MasterTensor& t) {
    return array.subspan(static_cast<size_t>(t.offset), static_cast<size_t>(t.count()));
  };
  if (ranks.rank() > 0) {
    own.send(ranks);
    for (const models::MasterTensor& t : own.tensors) {
      const std::span<const float> values = values_of(t);
      ranks.send(view_of(values.data(), {std::ssize(values)}), 0).wait();
    }
    return {};
  }
  std::map<std::string, const models::MasterTensor*> places;
  for (const models::MasterTensor& t : whole.tensors()) places.emplace(t.name, &t);
  std::vector<float> all(static_cast<size_t>(whole.size())), values;
  const auto place_of = [&](const std::string& name) {
    return std::span(all).subspan(static_cast<size_t>(places.at(name)->offset));
  };
  for (const models::MasterTensor& t : own.tensors) models::put_held(t, values_of(t), place_of(t.name));
  for (int rank = 1; rank < ranks.size(); ++rank) {
    for (const models::MasterTensor& t : Held::receive(ranks, rank, places).tensors) {
      values.resize(static_cast<size_t>(t.count()));
      ranks.recv(mut_view_of(values.data(), {t.count()}), rank).wait();
      models::put_held(t, values, place_of(t.name));
    }
  }
  return all;
}

}  // namespace braid::train
