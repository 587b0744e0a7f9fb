#include "train/families.h"

#include <algorithm>
#include <numeric>

namespace braid::train {
namespace {

// In the order of their elements.
std::vector<const models::MasterTensor*> tensors_in(const models::MasterWeights& masters, const Range& elements) {
  std::vector<const models::MasterTensor*> tensors;
  for (const models::MasterTensor& t : masters.tensors()) {
    if (t.offset >= elements.begin && t.offset < elements.begin + elements.count) tensors.push_back(&t);
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
  return tensors;
}

std::vector<Family> runs_of(const models::MasterWeights& masters, const Range& elements, comm::Group* ranks,
                            bool by_layer) {
  if (!by_layer) return {{.elements = elements, .ranks = ranks}};
  std::vector<Family> list;
  for (const LayerRun& run : runs_of_layers(masters, elements))
    list.push_back({.elements = run.elements, .ranks = ranks, .layer = run.layer});
  return list;
}

// Equal parts. A cut moves to the end of a tensor that stays whole: a router's bias, since its mean is taken off it.
std::vector<int64_t> equal_ends(const models::MasterWeights& masters, const Range& of, int64_t ranks) {
  constexpr int64_t kAlign = 32;  // elements, as tensors are
  const auto [begin, size] = of;
  const int64_t part = (size + ranks * kAlign - 1) / (ranks * kAlign) * kAlign;
  std::vector<int64_t> ends;
  for (int64_t rank = 1; rank <= ranks; ++rank) ends.push_back(std::min(size, rank * part));
  for (const models::MasterTensor& t : masters.tensors()) {
    if (t.role != ParamRole::router_bias) continue;
    for (int64_t& end : ends) {
      if (t.offset < begin + end && begin + end < t.offset + t.count()) end = t.offset + t.count() - begin;
    }
  }
  return ends;
}

// Whole tensors. They are counted as on one rank: ranks that hold parts of them cut at the same ones.
std::vector<int64_t> ends_of_tensors(const models::MasterWeights& masters, const Range& of, int64_t ranks) {
  const std::vector<const models::MasterTensor*> tensors = tensors_in(masters, of);
  int64_t total = 0, passed = 0;
  for (const auto* t : tensors) total += t->shape.count();
  std::vector<int64_t> ends;
  for (const auto* t : tensors) {
    passed += t->shape.count();
    while (std::ssize(ends) < ranks && passed * ranks >= total * (std::ssize(ends) + 1))
      ends.push_back(t->offset + t->count() - of.begin);
  }
  ends.resize(static_cast<size_t>(ranks), of.count);
  return ends;
}

void divide(const models::MasterWeights& masters, bool whole_tensors, Family& family) {
  const int64_t ranks = family.ranks->size();
  family.counts = (whole_tensors ? ends_of_tensors : equal_ends)(masters, family.elements, ranks);
  std::vector<int64_t>& ends = family.counts;
  ends.back() = family.elements.count;
  std::adjacent_difference(ends.begin(), ends.end(), ends.begin());
  const auto mine = family.counts.begin() + family.ranks->rank();
  family.own = {std::accumulate(family.counts.begin(), mine, family.elements.begin), *mine};
}

}  // namespace

std::vector<LayerRun> runs_of_layers(const models::MasterWeights& masters, const Range& elements) {
  const int64_t end = elements.begin + elements.count;
  std::vector<LayerRun> list = {{.elements = elements}};
  const std::vector<const models::MasterTensor*> tensors = tensors_in(masters, elements);
  if (!tensors.empty()) list[0].layer = tensors[0]->layer;
  for (const models::MasterTensor* t : tensors) {
    if (t->layer == list.back().layer) continue;
    list.back().elements.count = t->offset - list.back().elements.begin;
    list.push_back({.elements = {t->offset, end - t->offset}, .layer = t->layer});
  }
  return list;
}

std::vector<Family> families_of(const models::MasterWeights& masters, const FamilyRules& rules) {
  const int64_t begin = masters.experts_begin(), end = masters.size();
  std::vector<Family> list = runs_of(masters, {0, begin}, rules.data, rules.by_layer);
  if (rules.replicas) {
    const std::vector<Family> experts = runs_of(masters, {begin, end - begin}, rules.replicas, rules.by_layer);
    list.insert(list.end(), experts.begin(), experts.end());
  }
  for (Family& family : list) {
    if (family.ranks == rules.data) family.copies = rules.copies;
    divide(masters, rules.whole_tensors, family);
  }
  return list;
}

}  // namespace braid::train
