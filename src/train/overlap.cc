#include "train/overlap.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "sys/error.h"

namespace braid::train {
namespace {

// Of these all-reduces every element is the sum in one order, wherever it is in a vector of whatever length.
constexpr std::array<std::string_view, 4> kOneOrder = {"linear", "binomial", "recursive", "rabenseifner"};

// Kinds of ranks that sum a unit's gradients, in turn: those that have parts of its block, those that divide the state,
// and those that have the same part of it.
enum Stage { kPartial, kScatter, kCopies, kStages };

// What every rank of the family has of some elements.
std::vector<int64_t> meets(const Family& family, const Range& elements) {
  std::vector<int64_t> counts;
  int64_t at = family.elements.begin;
  for (const int64_t count : family.counts) {
    counts.push_back(common({at, count}, elements).count);
    at += count;
  }
  return counts;
}

std::string own_algorithm(const comm::Algorithm& a, bool any_order) {
  const bool one_order = std::find(kOneOrder.begin(), kOneOrder.end(), a.name) != kOneOrder.end();
  if (a.make && (any_order || one_order)) return a.name;
  fail("parallel.overlap",
       {.what = "sums layer by layer, and the algorithm for all layers at once adds up in another order then",
        .got = a.name,
        .expected = a.make ? "linear, binomial, recursive or rabenseifner" : "an algorithm of Braid's own",
        .hint = a.make ? "parallel.zero=1" : "another parallel.collectives"});
}

std::string all_reduce_of(const comm::Group& ranks, int64_t count) {
  return own_algorithm(ranks.chosen(comm::Op::all_reduce, comm::Blocks::equal(count, 1), DType::f32), false);
}

}  // namespace

void Waits::wait(comm::Handle& handle) {
  const auto begin = std::chrono::steady_clock::now();
  handle.wait();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Overlap::Overlap(models::MasterWeights& masters, const Family& family, std::span<const PartialSum> partial,
                 const Rules& rules, Waits& waits)
    : masters_(masters), family_(family), rules_(rules), waits_(waits) {
  const auto of_layer = [this](int layer) -> Unit& { return layer < 0 ? rest_ : layers_[layer]; };
  for (const LayerRun& run : runs_of_layers(masters, family.elements)) of_layer(run.layer).runs.push_back(run.elements);
  for (const PartialSum& sum : partial) of_layer(sum.layer).partial.push_back(&sum);
  const comm::Group& ranks = *family.ranks;
  if (rules.divides) {
    const comm::Blocks blocks = comm::Blocks::of_counts(family.counts);
    sums_ = own_algorithm(ranks.chosen(comm::Op::reduce_scatter, blocks, DType::f32), true);
    gathers_ = ranks.chosen(comm::Op::all_gather, blocks, DType::f32).name;
  } else if (ranks.size() > 1) {
    sums_ = all_reduce_of(ranks, family.elements.count);
  }
  if (family.copies) copies_ = all_reduce_of(*family.copies, own(family.elements).count);
  family.ranks->drive(true);
}

void Overlap::begin(int64_t layer, bool backward) {
  const auto found = layers_.find(layer);
  if (backward || found == layers_.end() || !found->second.old) return;
  ask_for(found->second);
  if (const auto next = std::next(found); next != layers_.end()) ask_for(next->second);
  arrive(found->second);
}

void Overlap::end(int64_t layer, bool backward) {
  const auto found = layers_.find(layer);
  if (!backward || found == layers_.end() || ++passes_[layer] < rules_.parts) return;
  Sum sum{.unit = &found->second};
  start(sum);
  // What the sums of layers above have been waiting for was under way during the passes of this one.
  for (Sum& before : under_way_) start(before);
  under_way_.push_back(std::move(sum));
}

void Overlap::begin_passes() {
  passes_.clear();
  if (!rest_.old) return;
  ask_for(rest_);
  if (!layers_.empty()) ask_for(layers_.begin()->second);
  arrive(rest_);
}

void Overlap::finish() {
  under_way_.push_back({.unit = &rest_});
  for (bool more = true; more;) {
    more = false;
    for (Sum& sum : under_way_) more = start(sum) || more;
  }
  for (Sum& sum : under_way_) {
    for (comm::Handle& handle : sum.started) waits_.wait(handle);
  }
  under_way_.clear();
}

bool Overlap::has(const Unit& unit, int stage) const {
  if (stage == kPartial) return !unit.partial.empty();
  if (stage == kScatter) return rules_.divides || family_.ranks->size() > 1;
  return family_.copies != nullptr;
}

// The next of its stages, once the one before is over; false: there is none.
bool Overlap::start(Sum& sum) {
  while (sum.next < kStages && !has(*sum.unit, sum.next)) ++sum.next;
  if (sum.next == kStages) return false;
  for (comm::Handle& handle : sum.started) waits_.wait(handle);
  sum.started.clear();
  const int stage = sum.next++;
  if (stage == kScatter) start_scatter(sum);
  if (stage == kCopies) start_copies(sum);
  if (stage != kPartial) return true;
  for (const PartialSum* partial : sum.unit->partial) {
    const std::span<float> grads = elements(masters_.grads(), partial->elements);
    sum.started.push_back(partial->ranks->all_reduce(flat(grads), mut_flat(grads)));
  }
  return true;
}

void Overlap::start_scatter(Sum& sum) {
  for (const Range& run : sum.unit->runs) {
    const std::span<float> grads = elements(masters_.grads(), run), mine = elements(masters_.grads(), own(run));
    if (rules_.divides) {
      sum.started.push_back(
          family_.ranks->reduce_scatter(flat(grads), mut_flat(mine), comm::Reduction::sum, meets(family_, run), sums_));
    } else {
      sum.started.push_back(family_.ranks->all_reduce(flat(grads), mut_flat(grads), comm::Reduction::sum, sums_));
    }
  }
}

void Overlap::start_copies(Sum& sum) {
  for (const Range& run : sum.unit->runs) {
    const std::span<float> mine = elements(masters_.grads(), own(run));
    if (mine.empty()) continue;  // on all copies
    sum.started.push_back(family_.copies->all_reduce(flat(mine), mut_flat(mine), comm::Reduction::sum, copies_));
  }
}

void Overlap::gather_later() {
  if (!rules_.divides) return;
  rest_.old = true;
  for (auto& [layer, unit] : layers_) unit.old = true;
}

void Overlap::gather_rest() {
  ask_for(rest_), arrive(rest_);
  for (auto& [layer, unit] : layers_) ask_for(unit), arrive(unit);
}

void Overlap::ask_for(Unit& unit) {
  if (!unit.old || !unit.arriving.empty()) return;
  for (const Range& run : unit.runs)
    unit.arriving.push_back(family_.ranks->all_gather(flat(elements(masters_.values(), own(run))),
                                                      mut_flat(elements(masters_.values(), run)), meets(family_, run),
                                                      gathers_));
}

void Overlap::arrive(Unit& unit) {
  if (!unit.old) return;
  for (comm::Handle& handle : unit.arriving) handle.wait();
  unit.arriving.clear();
  for (const Range& run : unit.runs) masters_.round(run, rules_.threads);
  unit.old = false;
}

}  // namespace braid::train
