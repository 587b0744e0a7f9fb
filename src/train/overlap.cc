#include "train/overlap.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "sys/error.h"

namespace braid::train {
namespace {

// Of these all-reduces every element is the sum in one order, wherever it is in a vector of whatever length; the last
// two have the same one (comm/algorithm.h).
constexpr std::array<std::string_view, 4> kOneOrder = {"linear", "binomial", "recursive", "rabenseifner"};

bool by_halves(std::string_view name) { return name == "recursive" || name == "rabenseifner"; }

std::vector<int64_t> meets(const Family& family, const Range& elements, Range* own) {
  std::vector<int64_t> counts;
  int64_t at = family.elements.begin;
  for (size_t rank = 0; rank < family.counts.size(); at += family.counts[rank++]) {
    const int64_t begin = std::clamp(at, elements.begin, elements.begin + elements.count),
                  end = std::clamp(at + family.counts[rank], elements.begin, elements.begin + elements.count);
    counts.push_back(end - begin);
    if (static_cast<int>(rank) == family.ranks->rank()) *own = {begin, end - begin};
  }
  return counts;
}

std::string algorithm_of(const Family& family, bool divides) {
  const comm::Algorithm& a =
      divides ? family.ranks->chosen(comm::Op::reduce_scatter, comm::Blocks::of_counts(family.counts), DType::f32)
              : family.ranks->chosen(comm::Op::all_reduce, comm::Blocks::equal(family.elements.count, 1), DType::f32);
  const bool one_order = std::find(kOneOrder.begin(), kOneOrder.end(), a.name) != kOneOrder.end();
  if (a.make && (divides || one_order)) return a.name;
  fail("parallel.overlap",
       {.what = "sums layer by layer, and the algorithm for all layers at once adds up in another order then",
        .got = a.name,
        .expected = a.make ? "linear, binomial, recursive or rabenseifner" : "an algorithm of Braid's own",
        .hint = a.make ? "parallel.zero=1" : "another parallel.collectives"});
}

}  // namespace

void Waits::wait(comm::Handle& handle) {
  const auto begin = std::chrono::steady_clock::now();
  handle.wait();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Overlap::Overlap(models::MasterWeights& masters, const Family& family, bool divides, int64_t parts, Waits& waits)
    : masters_(masters),
      family_(family),
      divides_(divides),
      parts_(parts),
      waits_(waits),
      algorithm_(algorithm_of(family, divides)) {
  for (const LayerRun& run : runs_of_layers(masters, family.elements))
    (run.layer < 0 ? rest_ : layers_[run.layer]).push_back(run.elements);
  family.ranks->drive(true);
}

void Overlap::end(int64_t layer, bool backward) {
  const auto found = layers_.find(layer);
  if (!backward || found == layers_.end() || ++passes_[layer] < parts_) return;
  for (const Range& run : found->second) start(run);
}

void Overlap::start(const Range& run) {
  const std::span<float> grads = elements(masters_.grads(), run);
  if (divides_) {
    Range own;
    const std::vector<int64_t> counts = meets(family_, run, &own);
    started_.push_back(family_.ranks->reduce_scatter(flat(grads), mut_flat(elements(masters_.grads(), own)),
                                                     comm::Reduction::sum, counts, algorithm_));
    return;
  }
  std::string_view name = algorithm_;
  const char* of_size = family_.ranks->chosen(comm::Op::all_reduce, comm::Blocks::equal(run.count, 1), DType::f32).name;
  if (by_halves(name) && by_halves(of_size)) name = of_size;
  started_.push_back(family_.ranks->all_reduce(flat(grads), mut_flat(grads), comm::Reduction::sum, name));
}

void Overlap::finish() {
  for (const Range& run : rest_) start(run);
  for (comm::Handle& handle : started_) waits_.wait(handle);
  started_.clear();
}

}  // namespace braid::train
