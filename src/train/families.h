// How ranks divide the elements of the masters among themselves: families of elements that the same ranks have, which
// sum their gradients, and of which each of these has a part of its own to update.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/group.h"
#include "core/param.h"
#include "models/master_weights.h"

namespace braid::train {

struct Family {
  Range elements{};
  comm::Group* ranks = nullptr;
  comm::Group* copies = nullptr;  // ranks that have the same part, whose sums it adds up; null: none
  int layer = -1;                 // whose they are (MasterTensor::layer)
  std::vector<int64_t> counts{};  // elements of every rank's part, consecutive
  Range own{};                    // this rank's
};

// Elements of which several ranks compute a part of the gradient each, beside those that have other tokens.
struct PartialSum {
  Range elements{};
  comm::Group* ranks = nullptr;
  int layer = -1;  // MasterTensor::layer
};

struct FamilyRules {
  comm::Group* data = nullptr;      // the ranks that have the same elements, or of these those that divide them
  comm::Group* copies = nullptr;    // then the others that have the same part
  comm::Group* replicas = nullptr;  // those that have the same experts, where these are others
  bool whole_tensors = false;       // a part has whole tensors; of routers' biases always
  bool by_layer = false;            // a layer is a family of its own, and so are its experts
};

// Consecutive elements of one layer; the padding behind a tensor is its.
struct LayerRun {
  Range elements{};
  int layer = -1;
};
std::vector<LayerRun> runs_of_layers(const models::MasterWeights& masters, const Range& elements);

// In the order of their elements, all of which are in one family.
std::vector<Family> families_of(const models::MasterWeights& masters, const FamilyRules& rules);

// What two ranges have in common; its count may be 0.
inline Range common(const Range& a, const Range& b) {
  const int64_t begin = std::max(a.begin, b.begin), end = std::min(a.begin + a.count, b.begin + b.count);
  return {begin, std::max<int64_t>(0, end - begin)};
}

// Elements of an array.
inline View flat(std::span<const float> array) { return view_of(array.data(), {std::ssize(array)}); }
inline MutView mut_flat(std::span<float> array) { return mut_view_of(array.data(), {std::ssize(array)}); }
inline std::span<float> elements(std::span<float> array, const Range& range) {
  return array.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.count));
}

}  // namespace braid::train
