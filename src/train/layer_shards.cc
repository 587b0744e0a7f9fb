#include "train/layer_shards.h"

#include <algorithm>

namespace braid::train {

std::vector<Range> others_of(const Family& family) {
  const auto [begin, count] = family.elements;
  const int64_t end = begin + count, own_end = family.own.begin + family.own.count;
  return {{begin, family.own.begin - begin}, {own_end, end - own_end}};
}

LayerShards::LayerShards(models::MasterWeights& masters, std::span<const Family> families,
                         std::span<const PartialSum> partial, const Rules& rules, Waits& waits)
    : masters_(masters), rules_(rules), waits_(waits) {
  for (const Family& family : families) (family.layer < 0 ? rest_ : layers_[family.layer]).families.push_back(&family);
  for (const PartialSum& sum : partial) {
    if (sum.layer >= 0) layers_.at(sum.layer).partial.push_back(&sum);
  }
  for (const auto& [layer, unit] : layers_) drop(unit);
  drop(rest_);
  if (rules.overlap) families.front().ranks->drive(true);
}

void LayerShards::begin(int64_t layer, bool backward) {
  const auto found = layers_.find(layer);
  if (found == layers_.end()) return;
  gather(found->second);
  if (!backward) return;
  if (summed_ == &found->second) finish();  // of the part of the batch before this one
  set_aside(found->second);
}

void LayerShards::end(int64_t layer, bool backward) {
  const auto found = layers_.find(layer);
  if (found == layers_.end()) return;
  if (backward) sum(found->second);
  drop(found->second);
}

void LayerShards::gather(const Unit& unit) {
  if (!rules_.weights) return;
  for (const Family* f : unit.families) {
    const std::span<float> all = elements(masters_.values(), f->elements), own = elements(masters_.values(), f->own);
    f->ranks->all_gather(flat(own), mut_flat(all), f->counts).wait();
    masters_.round(f->elements, rules_.threads);
  }
}

void LayerShards::drop(const Unit& unit) {
  if (!rules_.weights) return;
  for (const Family* f : unit.families) {
    for (const Range& r : others_of(*f)) masters_.drop_values(r);
  }
}

// The backward pass adds to what is there, and all of that is summed over ranks.
void LayerShards::set_aside(const Unit& unit) {
  sums_.clear();
  for (const Family* f : unit.families) {
    const std::span<float> own = elements(masters_.grads(), f->own);
    sums_.insert(sums_.end(), own.begin(), own.end());
    masters_.drop_grads(f->own);
  }
}

void LayerShards::sum(const Unit& unit) {
  for (const PartialSum* sum : unit.partial) {
    const std::span<float> grad = elements(masters_.grads(), sum->elements);
    comm::Handle handle = sum->ranks->all_reduce(flat(grad), mut_flat(grad));
    waits_.wait(handle);
  }
  finish();
  for (const Family* f : unit.families) {
    const std::span<float> all = elements(masters_.grads(), f->elements), own = elements(masters_.grads(), f->own);
    started_.push_back(f->ranks->reduce_scatter(flat(all), mut_flat(own), comm::Reduction::sum, f->counts));
    if (!rules_.overlap) waits_.wait(started_.back());
  }
  summed_ = &unit;
  std::swap(before_, sums_);
  if (!rules_.overlap) finish();
}

void LayerShards::finish() {
  if (!summed_) return;
  for (comm::Handle& handle : started_) waits_.wait(handle);
  started_.clear();
  auto before = before_.begin();
  for (const Family* f : summed_->families) {
    for (float& g : elements(masters_.grads(), f->own)) g += *before++;
    for (const Range& r : others_of(*f)) masters_.drop_grads(r);
  }
  summed_ = nullptr;
}

}  // namespace braid::train
