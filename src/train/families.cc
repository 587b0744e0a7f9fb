#include "train/families.h"

#include <algorithm>
#include <numeric>

namespace braid::train {
namespace {

std::vector<Family> runs_of(const models::MasterWeights& masters, const Range& elements, comm::Group* ranks,
                            bool by_layer) {
  if (!by_layer) return {{.elements = elements, .ranks = ranks}};
  std::vector<Family> list;
  for (const LayerRun& run : runs_of_layers(masters, elements))
    list.push_back({.elements = run.elements, .ranks = ranks, .layer = run.layer});
  return list;
}

// Equal parts. A cut moves to the end of a tensor that stays whole: a router's bias, since its mean is taken off it,
// and all of them where the optimiser reads matrices.
void divide(const models::MasterWeights& masters, bool whole_tensors, Family& family) {
  constexpr int64_t kAlign = 32;  // elements, as tensors are
  const auto [begin, size] = family.elements;
  const int64_t ranks = family.ranks->size(), part = (size + ranks * kAlign - 1) / (ranks * kAlign) * kAlign;
  std::vector<int64_t>& ends = family.counts;
  for (int64_t rank = 1; rank <= ranks; ++rank) ends.push_back(std::min(size, rank * part));
  for (const models::MasterTensor& t : masters.tensors()) {
    if (!whole_tensors && t.role != ParamRole::router_bias) continue;
    for (int64_t& end : ends) {
      if (t.offset < begin + end && begin + end < t.offset + t.count()) end = t.offset + t.count() - begin;
    }
  }
  ends.back() = size;
  std::adjacent_difference(ends.begin(), ends.end(), ends.begin());
  const auto mine = family.counts.begin() + family.ranks->rank();
  family.own = {std::accumulate(family.counts.begin(), mine, begin), *mine};
}

}  // namespace

std::vector<LayerRun> runs_of_layers(const models::MasterWeights& masters, const Range& elements) {
  const int64_t end = elements.begin + elements.count;
  std::vector<LayerRun> list = {{.elements = elements}};
  std::vector<const models::MasterTensor*> tensors;
  for (const models::MasterTensor& t : masters.tensors()) {
    if (t.offset >= elements.begin && t.offset < end) tensors.push_back(&t);
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
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
