#include "train/mesh.h"

#include <algorithm>
#include <numeric>

#include "sys/error.h"

namespace braid::train {
namespace {

View flat(std::span<const float> array) { return view_of(array.data(), {std::ssize(array)}); }
MutView mut_flat(std::span<float> array) { return mut_view_of(array.data(), {std::ssize(array)}); }
// FP64 travels as its bits.
MutView bits_of(std::span<double> values) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::i64, {std::ssize(values)}};
}

std::vector<double> numbers_of(const Sums& sums) {
  std::vector<double> numbers;
  for (const Sums::Sum& sum : sums.all()) numbers.insert(numbers.end(), {sum.sum, sum.count});
  return numbers;
}

// All ranks have the same names, in the same order.
void set(Sums& sums, std::span<const double> numbers) {
  size_t at = 0;
  for (const Sums::Sum& sum : sums.all()) {
    Sums::Sum& to = sums[sum.name];
    to.sum = numbers[at++];
    to.count = numbers[at++];
  }
}

[[noreturn]] void refuse(const char* key, const char* what, std::string hint) {
  fail(key, {.what = what, .hint = std::move(hint)});
}

// A word of the recipe that excludes another axis.
using Rules = std::vector<std::pair<bool, const char*>>;
void check_rules(const char* key, const Rules& rules) {
  for (const auto& [set, other] : rules) {
    if (set) fail(key, {.what = fmt::format("cannot be used with {}", other), .hint = fmt::format("{}=1", key)});
  }
}

void check_division(const ParallelRecipe& p, int ranks) {
  const char* key = p.cp > 1 ? "parallel.cp" : "parallel.tp";
  const int64_t model = p.tp * p.cp;
  if (ranks % model == 0) return;
  fail(key, {.what = "does not divide the number of ranks",
             .got = p.cp > 1 && p.tp > 1 ? fmt::format("tp {} x cp {}", p.tp, p.cp) : std::to_string(model),
             .expected = fmt::format("a divisor of {}", ranks),
             .hint = fmt::format("--ranks {}", (ranks + model - 1) / model * model)});
}

// What computes with whole models, or whole sequences, alone.
void check_axes(const Recipe& recipe, int ranks) {
  const ParallelRecipe& p = recipe.parallel;
  check_division(p, ranks);
  if (p.tp == 1 && p.sp) refuse("parallel.sp", "divides the tokens among the ranks of a model", "parallel.tp=2");
  const bool task =
      !recipe.distill.teacher.empty() || recipe.preference.kind != "none" || recipe.policy.advantage != "none";
  const Rules both = {{p.exact, "parallel.exact"},
                      {task, "[distill], [preference] or [policy]"},
                      {recipe.lora.rank > 0, "lora.rank"},
                      {recipe.precision != "none", "precision.recipe"},
                      {recipe.exact, "exact"}};
  const Rules parts = {{recipe.loss.z > 0, "loss.z"},
                       {recipe.log.hash_every > 0, "log.hash_every"},
                       {recipe.optimizer.kind == "muon", "optimizer.kind = \"muon\""}};
  if (p.tp > 1) check_rules("parallel.tp", both);
  if (p.tp > 1) check_rules("parallel.tp", parts);
  if (p.cp > 1) check_rules("parallel.cp", both);
}

}  // namespace

void check_mesh(const Recipe& recipe, int ranks) {
  const ParallelRecipe& p = recipe.parallel;
  check_axes(recipe, ranks);
  if (ranks == 1) {
    if (p.zero > 0) refuse("parallel.zero", "there is one rank, with nobody to share state with", "--ranks 2");
    return;
  }
  if (recipe.objective != "language")
    refuse("--ranks", "graphs are trained on one rank", "one rank, or objective = \"language\"");
  if (!recipe.distill.cache.empty())
    refuse("distill.cache", "ranks would write the same files", "a cache that one rank filled, or none");
  if (p.zero > 0 && p.exact) refuse("parallel.exact", "sums all gradients on every rank", "parallel.zero=0");
  if (p.zero > 0 && recipe.lora.rank > 0)
    refuse("parallel.zero", "adapters are too small to be divided", "parallel.zero=0");
  const int64_t shares = ranks / (p.tp * p.cp);
  if (recipe.batch > 0 && recipe.batch < shares * recipe.accumulate) {
    fail("batch", {.what = "has too few sequences for every rank and part",
                   .got = std::to_string(recipe.batch),
                   .expected = fmt::format("at least {} ranks x {} parts", shares, recipe.accumulate),
                   .hint = "fewer --ranks"});
  }
}

// Consecutive ranks: tp, then cp, then the shares of a batch.
Mesh::Mesh(const Recipe& recipe, comm::Group& world)
    : recipe_(recipe.parallel),
      whole_tensors_(recipe.optimizer.kind == "muon"),
      world_(world),
      tensor_(world.split(world.rank() / static_cast<int>(recipe.parallel.tp))),
      context_(world.split(world.rank() / static_cast<int>(recipe.parallel.tp * recipe.parallel.cp) *
                               static_cast<int>(recipe.parallel.tp) +
                           world.rank() % static_cast<int>(recipe.parallel.tp))),
      data_(world.split(world.rank() % static_cast<int>(recipe.parallel.tp))) {
  check_mesh(recipe, world.size());
}

Range Mesh::rows(int64_t rows) const {
  const int64_t share = data_.rank() / context_.size(), begin = rows * share / shares();
  return {begin, rows * (share + 1) / shares() - begin};
}

// Equal parts; where matrices must stay whole, a cut inside a tensor moves to its end.
std::vector<int64_t> Mesh::counts(const models::MasterWeights& masters) const {
  constexpr int64_t kAlign = 32;  // elements, as tensors are
  const int64_t size = masters.size(), ranks = data_.size(),
                part = (size + ranks * kAlign - 1) / (ranks * kAlign) * kAlign;
  std::vector<int64_t> ends;
  for (int64_t rank = 1; rank <= ranks; ++rank) ends.push_back(std::min(size, rank * part));
  if (whole_tensors_) {
    for (int64_t& end : ends) {
      for (const models::MasterTensor& t : masters.tensors()) {
        if (t.offset < end && end < t.offset + t.count()) end = t.offset + t.count();
      }
    }
    ends.back() = size;
  }
  std::adjacent_difference(ends.begin(), ends.end(), ends.begin());
  return ends;
}

Range Mesh::own(const models::MasterWeights& masters) const {
  if (!divides_state()) return {0, masters.size()};
  const std::vector<int64_t> list = counts(masters);
  const auto rank = static_cast<size_t>(data_.rank());
  return {std::accumulate(list.begin(), list.begin() + data_.rank(), int64_t{0}), list[rank]};
}

// With `exact` the ranks compute one after the other: each continues the sums of the one before it, as parts of a batch
// do, so that the result has the bits of one rank.
void Mesh::begin_gradients(models::MasterWeights& masters, Sums& sums) {
  if (!recipe_.exact || first()) return;
  const int before = world_.rank() - 1;
  for (const std::span<float> array : masters.gradient_arrays()) world_.recv(mut_flat(array), before).wait();
  receive(sums, before);
}

// Rank by rank: the receiver, which has not computed yet, does not know the names.
void Mesh::send(const Sums& sums, int peer) {
  std::string names;
  for (const Sums::Sum& sum : sums.all()) names += std::string(sum.name) + '\n';
  const auto size = std::ssize(names);
  std::vector<double> numbers = numbers_of(sums);
  world_.send(view_of(&size, {1}), peer).wait();
  world_.send(view_of(reinterpret_cast<const uint8_t*>(names.data()), {size}), peer).wait();
  world_.send(bits_of(numbers), peer).wait();
}

void Mesh::receive(Sums& sums, int peer) {
  int64_t size = 0;
  world_.recv(mut_view_of(&size, {1}), peer).wait();
  std::string names(static_cast<size_t>(size), ' ');
  world_.recv(mut_view_of(reinterpret_cast<uint8_t*>(names.data()), {size}), peer).wait();
  for (size_t at = 0; at < names.size();) {
    const size_t end = names.find('\n', at);
    sums[*names_.insert(names.substr(at, end - at)).first];
    at = end + 1;
  }
  std::vector<double> numbers(2 * sums.all().size());
  world_.recv(bits_of(numbers), peer).wait();
  set(sums, numbers);
}

void Mesh::end_gradients(models::MasterWeights& masters, Sums& sums, int threads) {
  if (!recipe_.exact) {
    masters.sum_uses(threads);
    for (const models::MasterTensor& t : masters.tensors()) {
      if (!t.partial) continue;
      const std::span<float> grad =
          masters.grads().subspan(static_cast<size_t>(t.offset), static_cast<size_t>(t.count()));
      tensor_.all_reduce(flat(grad), mut_flat(grad)).wait();
    }
    const std::vector<int64_t> parts = counts(masters);
    const std::span<float> grads = masters.grads();
    if (divides_state()) {
      const Range mine = own(masters);
      const auto part = grads.subspan(static_cast<size_t>(mine.begin), static_cast<size_t>(mine.count));
      data_.reduce_scatter(flat(grads), mut_flat(part), comm::Reduction::sum, parts).wait();
    } else {
      data_.all_reduce(flat(grads), mut_flat(grads)).wait();
    }
    return add_up(sums);
  }
  const int rank = world_.rank(), last = world_.size() - 1;
  if (rank < last) {
    for (const std::span<float> array : masters.gradient_arrays()) world_.send(flat(array), rank + 1).wait();
    send(sums, rank + 1);
  }
  for (const std::span<float> array : masters.gradient_arrays()) world_.broadcast(mut_flat(array), last).wait();
  std::vector<double> numbers = numbers_of(sums);
  world_.broadcast(bits_of(numbers), last).wait();
  set(sums, numbers);
  masters.sum_uses(threads);
}

namespace {

// In the order of ranks, by every rank: there is no collective for FP64.
void add_up_in(comm::Group& group, std::span<double> values) {
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<double> all(values.size() * ranks);
  group.all_gather(bits_of(values), bits_of(all)).wait();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 0;
    for (size_t rank = 0; rank < ranks; ++rank) values[i] += all[rank * values.size() + i];
  }
}

}  // namespace

void Mesh::add_up(std::span<double> values) { add_up_in(data_, values); }

void Mesh::add_up(Sums& sums) {
  std::vector<double> numbers = numbers_of(sums);
  add_up(numbers);
  set(sums, numbers);
}

double Mesh::add_up_all(double value) {
  add_up_in(world_, {&value, 1});
  return value;
}

// All ranks that share a batch have the same gradients, unless their optimisers have parts.
double Mesh::add_up_norm(double squares) {
  if (divides_state()) return add_up_all(squares);
  if (tensor_.size() > 1) add_up_in(tensor_, {&squares, 1});
  return squares;
}

void Mesh::gather_weights(models::MasterWeights& masters, int threads) {
  if (!divides_state()) return;
  const Range mine = own(masters);
  const std::span<float> values = masters.values();
  const auto part = values.subspan(static_cast<size_t>(mine.begin), static_cast<size_t>(mine.count));
  data_.all_gather(flat(part), mut_flat(values), counts(masters)).wait();
  masters.round(threads);
}

// The parts of an array, on the first of the ranks that share a batch.
std::vector<float> Mesh::joined(const models::MasterWeights& masters, std::span<const float> own) {
  std::vector<float> whole;
  if (data_.rank() > 0) {
    if (!own.empty()) data_.send(flat(own), 0).wait();
    return whole;
  }
  whole.resize(static_cast<size_t>(masters.size()));
  int64_t at = 0;
  const std::vector<int64_t> parts = counts(masters);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const auto part = std::span(whole).subspan(static_cast<size_t>(at), static_cast<size_t>(parts[rank]));
    if (rank == 0) std::copy(own.begin(), own.end(), part.begin());
    if (rank > 0 && !part.empty()) data_.recv(mut_flat(part), static_cast<int>(rank)).wait();
    at += parts[rank];
  }
  return whole;
}

// The first model's ranks have all of it. Each says what it has of a tensor that is cut.
std::vector<float> Mesh::assemble(const models::MasterWeights& masters, const models::MasterWeights& whole,
                                  std::span<const float> array, bool part) {
  std::vector<float> own, all;
  if (part) own = joined(masters, array);
  if (part) array = own;
  if (data_.rank() > 0) return all;
  if (first()) all.resize(static_cast<size_t>(whole.size()));
  for (size_t i = 0; i < masters.tensors().size(); ++i) {
    const models::MasterTensor& t = masters.tensors()[i];
    const auto held = array.subspan(static_cast<size_t>(t.offset), static_cast<size_t>(t.count()));
    if (!first()) {
      if (t.held.empty()) continue;
      std::vector<int64_t> ranges;
      for (const Range& r : t.held) ranges.insert(ranges.end(), {r.begin, r.count});
      tensor_.send(view_of(ranges.data(), {std::ssize(ranges)}), 0).wait();
      tensor_.send(flat(held), 0).wait();
      continue;
    }
    const auto to = std::span(all).subspan(static_cast<size_t>(whole.tensors()[i].offset));
    models::put_held(t, held, to);
    for (int rank = 1; rank < tensor_.size() && !t.held.empty(); ++rank) {
      models::MasterTensor other = t;
      std::vector<int64_t> ranges(2 * t.held.size());
      tensor_.recv(mut_view_of(ranges.data(), {std::ssize(ranges)}), rank).wait();
      for (size_t k = 0; k < other.held.size(); ++k) other.held[k] = {ranges[2 * k], ranges[2 * k + 1]};
      std::vector<float> values(static_cast<size_t>(other.count()));
      tensor_.recv(mut_flat(values), rank).wait();
      models::put_held(other, values, to);
    }
  }
  return all;
}

}  // namespace braid::train
