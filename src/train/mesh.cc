#include "train/mesh.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>

#include "models/cut.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/machine.h"
#include "sys/memory.h"
#include "train/assembly.h"
#include "train/origin.h"

namespace braid::train {
namespace {

// FP64 travels as its bits.
MutView bits_of(std::span<double> values) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::i64, {std::ssize(values)}};
}

std::vector<double> numbers_of(const Sums& sums) {
  std::vector<double> numbers;
  for (const Sums::Sum& sum : sums.all()) numbers.insert(numbers.end(), {sum.sum, sum.count});
  return numbers;
}

// Ranks exchange numbers alone, so all need the same names in the same order: of others the sums would be mixed up, or
// the ranks wait for each other for ever.
void check_names(comm::Group& group, const Sums& sums) {
  std::string names;
  for (const Sums::Sum& sum : sums.all()) names += std::string(sum.name) + '\n';
  const auto own = std::bit_cast<int64_t>(std::hash<std::string>()(names));
  std::vector<int64_t> all(static_cast<size_t>(group.size()));
  group.all_gather(view_of(&own, {1}), mut_view_of(all.data(), {std::ssize(all)})).wait();
  CHECK(std::ranges::count(all, own) == std::ssize(all), "rank {} of {} has the sums {}, another rank has others",
        group.rank(), group.size(), printable(names));
}

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

struct Axis {
  const char* word;
  int64_t size;
};

// Runs of as many ranks as the axes make together.
void check_divides(std::initializer_list<Axis> axes, int ranks) {
  int64_t size = 1;
  std::vector<Axis> used;
  for (const Axis& axis : axes) {
    size *= axis.size;
    if (axis.size > 1) used.push_back(axis);
  }
  if (ranks % size == 0) return;
  std::string got = std::to_string(size);
  if (used.size() > 1) {
    got.clear();
    for (const Axis& axis : used) got += fmt::format("{}{} {}", got.empty() ? "" : " x ", axis.word, axis.size);
  }
  fail(fmt::format("parallel.{}", used[0].word), {.what = "does not divide the number of ranks",
                                                  .got = got,
                                                  .expected = fmt::format("a divisor of {}", ranks),
                                                  .hint = fmt::format("--ranks {}", (ranks + size - 1) / size * size)});
}

bool trains_a_task(const Recipe& recipe) {
  return !recipe.distill.teacher.empty() || recipe.preference.kind != "none" || recipe.policy.advantage != "none";
}

void check_grid_alone(const ParallelRecipe& p) {
  if (p.grid.empty()) return;
  const std::pair<bool, const char*> others[] = {{p.tp > 1, "tp"},    {p.sp, "sp"},     {p.cp > 1, "cp"},
                                                 {p.pp > 1, "pp"},    {p.ep > 1, "ep"}, {p.etp > 1, "etp"},
                                                 {p.zero > 0, "zero"}};
  for (const auto& [set, word] : others) {
    if (set)
      refuse("parallel.grid",
             "divides all there is: x is tp, z is zero; it cannot be used with tp, sp, cp, pp, ep, etp or zero",
             fmt::format("no parallel.{}", word));
  }
}

// What computes with whole models, matrices or sequences alone.
void check_parts(const Recipe& recipe) {
  const ParallelRecipe& p = recipe.parallel;
  if (!p.divides_model() && p.cp == 1 && p.grid.empty()) return;
  const bool cuts_blocks = p.axes().model() > 1, cuts_layers = cuts_blocks || p.divides_experts();
  const std::pair<bool, const char*> rules[] = {{p.exact, "parallel.exact"},
                                                {trains_a_task(recipe), "[distill], [preference] or [policy]"},
                                                {!recipe.nest.budgets.empty(), "nest.budgets"},
                                                {recipe.lora.rank > 0, "lora.rank"},
                                                {recipe.precision != "none", "precision.recipe"},
                                                {cuts_blocks && recipe.loss.z > 0, "loss.z"},
                                                {p.divides_model() && recipe.log.hash_every > 0, "log.hash_every"},
                                                {(cuts_layers || p.cp > 1) && recipe.exact, "exact"}};
  const std::string key = !p.grid.empty() ? "parallel.grid"
                          : p.tp > 1      ? "parallel.tp"
                          : p.cp > 1      ? "parallel.cp"
                          : p.ep > 1      ? "parallel.ep"
                          : p.pp > 1      ? "parallel.pp"
                                          : "parallel.etp";
  for (const auto& [set, other] : rules) {
    if (set)
      fail(key, {.what = fmt::format("cannot be used with {}", other),
                 .hint = p.grid.empty() ? key + "=1" : "no parallel.grid"});
  }
}

// What reads all weights at once.
void check_whole_weights(const Recipe& recipe) {
  if (!recipe.nest.budgets.empty() && recipe.parallel.zero > 1)
    refuse("parallel.zero", "a step of nested models reads all weights and gradients", "parallel.zero=1");
  if (!recipe.nest.budgets.empty() && recipe.parallel.exact)
    refuse("parallel.exact", "a nested model sums its own gradients first", "parallel.exact=false");
  if (recipe.parallel.zero < 3) return;
  const std::pair<bool, const char*> rules[] = {{trains_a_task(recipe), "[distill], [preference] or [policy]"},
                                                {recipe.precision != "none", "precision.recipe"},
                                                {recipe.log.hash_every > 0, "log.hash_every"}};
  for (const auto& [set, other] : rules) {
    if (set)
      fail("parallel.zero", {.what = fmt::format("= 3 cannot be used with {}", other), .hint = "parallel.zero=2"});
  }
}

// Of the ranks that share experts; a rank's part of an expert stays with the others.
void check_nodes(const ParallelRecipe& p) {
  if (p.dispatcher != ParallelRecipe{}.dispatcher && !p.divides_experts())
    refuse("parallel.dispatcher", "ranks do not share the experts of a layer", "parallel.ep=2");
  if (p.node_ranks == 0 && p.node_limit == 0) return;
  if (!p.divides_experts())
    refuse(p.node_ranks > 0 ? "parallel.node_ranks" : "parallel.node_limit",
           "ranks do not share the experts of a layer", "parallel.ep=2");
  if (p.node_ranks == 0 || (p.ep * p.etp % p.node_ranks == 0 && p.node_ranks % p.etp == 0)) return;
  fail("parallel.node_ranks",
       {.what = "does not cut the ranks that share experts into equal nodes of whole experts",
        .got = std::to_string(p.node_ranks),
        .expected = fmt::format("a divisor of ep x etp = {}, and a multiple of etp = {}", p.ep * p.etp, p.etp)});
}

// Muon's matrices are put together from parts of one side (divided_matrices.h).
void check_muon(const Recipe& recipe) {
  const ParallelRecipe& p = recipe.parallel;
  const bool muon = recipe.optimizer.kind == "muon";
  const char* other = muon ? "optimizer.kind=adamw" : "optimizer.kind=muon";
  if (!p.muon.empty() && !muon) refuse("parallel.muon", "the optimiser is AdamW, which divides", other);
  if (!p.muon.empty() && p.axes().x == 1) refuse("parallel.muon", "ranks do not divide matrices", "parallel.tp=2");
  if (!muon) return;
  if (recipe.objective == "graph" && p.axes().x > 1)
    refuse("parallel.grid", "cannot be used with optimizer.kind = muon in a graph network", other);
  if (p.axes().y > 1) refuse("parallel.grid", "y divides both sides of a matrix, which Muon does not read", other);
  if (p.divides_experts() && p.etp > 1) refuse("parallel.etp", "cannot be used with optimizer.kind = muon", other);
}

void check_virtual_stages(const Recipe& recipe) {
  const ParallelRecipe& p = recipe.parallel;
  if (p.virtual_stages == 1) return;
  if (p.pp == 1) refuse("parallel.virtual_stages", "there is one stage", "parallel.pp=2");
  const int64_t parts = recipe.accumulate, groups = std::max((parts + p.pp / 2) / p.pp, int64_t{1});
  if (parts % p.pp == 0) return;
  fail("accumulate", {.what = "virtual stages take the parts of a batch in groups of parallel.pp",
                      .got = std::to_string(parts),
                      .expected = fmt::format("a multiple of {}", p.pp),
                      .hint = fmt::format("accumulate={}", groups * p.pp)});
}

// Ranks of a graph are those of a grid of three axes, and of nothing else.
void check_graph_grid(const Recipe& recipe, int ranks) {
  const ParallelRecipe& p = recipe.parallel;
  const auto shape = graph_grid(p.grid);
  if (recipe.objective != "graph") {
    if (shape) refuse("parallel.grid", "has the three axes of a graph", "x,y,z,d");
    return;
  }
  if (!p.grid.empty() && !shape) refuse("parallel.grid", "of a graph has three axes", "x,y,z");
  if (ranks == 1 && p.grid.empty()) return;
  if (!shape)
    refuse("--ranks", "of a graph are those of a grid",
           fmt::format("parallel.grid=\"1,1,{}\", or what braid plan graph finds", ranks));
  const auto [x, y, z] = *shape;
  if (x * y * z != ranks)
    fail("parallel.grid", {.what = "does not make the number of ranks",
                           .got = fmt::format("{} x {} x {} = {}", x, y, z, x * y * z),
                           .expected = std::to_string(ranks),
                           .hint = fmt::format("--ranks {}", x * y * z)});
  if (recipe.graph.task != "node")
    fail("parallel.grid", {.what = "does not divide graph.task = " + recipe.graph.task, .expected = "node"});
  if (recipe.graph.sample > 0)
    fail("graph.sample",
         {.what = "does not go with parallel.grid, whose batch is the whole graph", .hint = "leaving it out"});
  if (!recipe.graph.rewrites_off.empty())
    fail("graph.rewrites_off", {.what = "is for one rank: a grid computes in one way", .hint = "without it"});
  const std::string &model = recipe.graph.model, &aggregate = recipe.graph.aggregate;
  if (model != "gcn" && model != "sage")
    fail("parallel.grid", {.what = fmt::format("does not divide {}", model), .expected = "gcn or sage"});
  if (model == "sage" && (aggregate == "max" || aggregate == "min"))
    fail("parallel.grid", {.what = "does not divide a " + aggregate, .expected = "graph.aggregate mean or add"});
}

// What sums gradients otherwise, or reads them in another order.
void check_overlap(const Recipe& recipe, int ranks) {
  const ParallelRecipe& p = recipe.parallel;
  if (!p.overlap) return;
  if (ranks == 1) refuse("parallel.overlap", "there is one rank, whose gradients are sums already", "--ranks 2");
  const std::pair<bool, const char*> others[] = {{recipe.objective == "graph", "objective = \"graph\""},
                                                 {p.grid.empty() && p.tp > 1, "parallel.tp"},
                                                 {p.cp > 1, "parallel.cp"},
                                                 {p.pp > 1, "parallel.pp"},
                                                 {p.divides_experts(), "parallel.ep or etp"},
                                                 {p.zero > 2, "parallel.zero = 3"},
                                                 {p.exact, "parallel.exact"},
                                                 {recipe.lora.rank > 0, "lora.rank"},
                                                 {!recipe.nest.budgets.empty(), "nest.budgets"},
                                                 {trains_a_task(recipe), "[distill], [preference] or [policy]"}};
  for (const auto& [set, other] : others) {
    if (set)
      fail("parallel.overlap",
           {.what = fmt::format("cannot be used with {}", other), .hint = "parallel.overlap=false"});
  }
}

}  // namespace

void check_mesh(const Recipe& recipe, int ranks) {
  const ParallelRecipe& p = recipe.parallel;
  check_graph_grid(recipe, ranks);
  check_grid_alone(p);
  if (!p.grid.empty()) check_grid(p.axes(), ranks);
  check_divides({{"pp", p.pp}, {"cp", p.cp}, {"tp", p.tp}}, ranks);
  check_divides({{"pp", p.pp}, {"ep", p.divides_experts() ? p.ep : 1}, {"etp", p.divides_experts() ? p.etp : 1}},
                ranks);
  for (const auto& [key, word] :
       {std::pair("parallel.cp_attention", p.cp_attention), {"parallel.cp_mamba", p.cp_mamba}}) {
    if (p.cp == 1 && !word.empty()) refuse(key, "ranks do not divide sequences", "parallel.cp=2");
  }
  if (p.tp == 1 && p.sp) refuse("parallel.sp", "divides the tokens among the ranks of a model", "parallel.tp=2");
  check_virtual_stages(recipe);
  check_muon(recipe);
  check_nodes(p);
  check_parts(recipe);
  check_overlap(recipe, ranks);
  if (ranks == 1) {
    if (p.zero > 0) refuse("parallel.zero", "there is one rank, with nobody to share state with", "--ranks 2");
    return;
  }
  if (!recipe.distill.cache.empty())
    refuse("distill.cache", "ranks would write the same files", "a cache that one rank filled, or none");
  if (p.exact && recipe.loss.global_aux > 0)
    refuse("parallel.exact", "has ranks compute one after the other, but loss.global_aux counts on all at a time",
           "loss.seq_aux");
  if (p.zero > 0 && p.exact) refuse("parallel.exact", "sums all gradients on every rank", "parallel.zero=0");
  check_whole_weights(recipe);
  if (p.zero > 0 && recipe.lora.rank > 0)
    refuse("parallel.zero", "adapters are too small to be divided", "parallel.zero=0");
  if (recipe.batch > 0) need_rows(recipe, recipe.batch, p.shares(ranks));
}

void check_cut(const Recipe& recipe) {
  const ParallelRecipe& p = recipe.parallel;
  const Grid axes = p.axes();
  const ExpertCut experts =
      p.divides_experts() ? ExpertCut{.ep = {.ranks = p.ep}, .etp = {.ranks = p.etp}} : ExpertCut();
  const models::Config whole = config_of(recipe);
  const auto divides = [&](int64_t ranks) {
    bool any = ranks == 1;
    const Cut cut{.ranks = ranks, .sequence = p.sp, .hidden_ranks = axes.y};
    models::Config own = models::cut_config(whole, cut, experts);
    models::each_part(own, [&](const models::PartSpec& part) { any = any || part.cut; });
    return any;
  };
  if (divides(axes.x)) return;
  int64_t fewer = axes.x - 1;
  while (!divides(fewer)) --fewer;
  fail(p.grid.empty() ? "parallel.tp" : "parallel.grid",
       {.what = "divides no block of the model, of which all ranks would compute the same",
        .got = std::to_string(axes.x),
        .expected = "a divisor of the heads, or of the channels, of some block",
        .hint = p.grid.empty() ? fmt::format("parallel.tp={}", fewer) : fmt::format("x = {}", fewer)});
}

namespace {

// Consecutive ranks, tp (or x, then y) innermost, then cp, then the shares of a batch, then pp, are a run; the ranks of
// a stage with one place in its runs are a line.
int run_of(const comm::Group& world, int64_t size) { return world.rank() / static_cast<int>(size); }
int line_of(const ParallelRecipe& p, const comm::Group& world, int64_t size) {
  const int runs = static_cast<int>(size), ranks = std::max(1, world.size() / static_cast<int>(p.pp));
  return world.rank() / ranks * runs + world.rank() % runs;
}

// Among the ranks that have the whole model together.
int place_of(const comm::Group& world, const Grid& axes) { return world.rank() % static_cast<int>(axes.model()); }

// Ranks of an expert group that is one: of a node; where nodes are uneven nothing asks for it.
int node_size(const ParallelRecipe& p, const comm::Group& experts) {
  const int64_t size = p.node_ranks > 0 ? p.node_ranks : experts.per_node();
  return size > 0 && size < experts.size() ? static_cast<int>(size) : experts.size();
}

nn::Dispatcher dispatcher_of(const std::string& word) {
  if (word == "allgather") return nn::Dispatcher::allgather;
  return word == "node" ? nn::Dispatcher::node : nn::Dispatcher::alltoall;
}

}  // namespace

Mesh::Mesh(const Recipe& recipe, comm::Group& world)
    : recipe_(recipe.parallel),
      parts_(recipe.accumulate),
      axes_(recipe_.axes()),
      whole_tensors_(recipe.optimizer.kind == "muon"),
      world_(world),
      tensor_(world.split(run_of(world, axes_.x))),
      context_(world.split(run_of(world, axes_.model() * recipe_.cp) * static_cast<int>(axes_.model()) +
                           place_of(world, axes_))),
      data_(world.split(line_of(recipe_, world, axes_.model()))),
      batch_(world.split(place_of(world, axes_))),
      hidden_(world.split(run_of(world, axes_.model()) * tensor_.size() + tensor_.rank())),
      state_(data_.split(recipe_.grid.empty() ? 0 : run_of(data_, axes_.z))),
      copies_(data_.split(state_.rank())),
      pipe_(world.split(data_.rank() * static_cast<int>(axes_.model()) + place_of(world, axes_))),
      ends_(pipe_.split(pipe_.rank() == pipe_.size() - 1 ? 0 : pipe_.rank())),
      experts_(world.split(run_of(world, recipe_.experts_over()))),
      replicas_(world.split(line_of(recipe_, world, recipe_.experts_over()))),
      node_(experts_.split(run_of(experts_, node_size(recipe_, experts_)))),
      aligned_(experts_.split(experts_.rank() % node_size(recipe_, experts_))),
      expert_ranks_{.all = &experts_,
                    .node = &node_,
                    .aligned = &aligned_,
                    .parts = recipe_.etp,
                    .dispatcher = dispatcher_of(recipe_.dispatcher)} {
  check_mesh(recipe, world.size());
  if (whole_tensors_ && tensor_.size() > 1) matrices_.emplace(tensor_, recipe_.muon == "duplicate");
  const bool uneven = recipe_.node_ranks == 0 && experts_.per_node() == 0;
  if (uneven && (expert_ranks_.dispatcher == nn::Dispatcher::node || recipe_.node_limit > 0))
    refuse(recipe_.node_limit > 0 ? "parallel.node_limit" : "parallel.dispatcher",
           "the ranks that share experts are unevenly many on their nodes",
           recipe_.node_limit > 0 ? "parallel.node_ranks" : "\"alltoall\"");
}

std::map<std::string, int64_t> Mesh::bytes_by_axis() const {
  const std::pair<const char*, const comm::Group*> groups[] = {
      {"tp", &tensor_}, {"y", &hidden_}, {"cp", &context_}, {"ep", &experts_},   {"ep", &node_}, {"ep", &aligned_},
      {"dp", &state_},  {"dp", &data_},  {"d", &copies_},   {"edp", &replicas_}, {"pp", &pipe_}, {"pp", &ends_}};
  std::map<std::string, int64_t> sent = {{"rest", bytes_sent()}};
  for (const auto& [axis, group] : groups) {
    const int64_t bytes = group->own_traffic().bytes[0] + group->own_traffic().bytes[1];
    sent[axis] += bytes;
    sent["rest"] -= bytes;
  }
  return sent;
}

int64_t Mesh::available_memory() {
  // The process itself and what collectives buffer, which no plan counts: 27 to 37 MiB where ranks train models/tiny.
  constexpr int64_t kRankBytes = int64_t{32} << 20;
  const int64_t free = sys::memory_available(),
                machine = std::bit_cast<int64_t>(std::hash<std::string>()(sys::machine_id()));
  std::vector<int64_t> all(static_cast<size_t>(world_.size()));
  world_.all_gather(view_of(&machine, {1}), mut_view_of(all.data(), {std::ssize(all)})).wait();
  return std::max<int64_t>(0, free / std::ranges::count(all, machine) - kRankBytes);
}

ExpertCut Mesh::expert_cut() const {
  if (!recipe_.divides_experts()) return {};
  return {.ep = {.rank = experts_.rank() / recipe_.etp, .ranks = recipe_.ep},
          .etp = {.rank = experts_.rank() % recipe_.etp, .ranks = recipe_.etp}};
}

Range Mesh::rows(int64_t rows) const {
  const int64_t share = data_.rank() / context_.size(), begin = rows * share / shares();
  return {begin, rows * (share + 1) / shares() - begin};
}

std::span<const Family> Mesh::families(const models::MasterWeights& masters) {
  if (families_.empty()) {
    families_ = families_of(masters, {.data = &state_,
                                      .copies = copies_.size() > 1 ? &copies_ : nullptr,
                                      .replicas = recipe_.divides_experts() ? &replicas_ : nullptr,
                                      .whole_tensors = whole_tensors_,
                                      .by_layer = recipe_.zero > 1});
  }
  return families_;
}

std::span<const PartialSum> Mesh::partial_sums(const models::MasterWeights& masters) {
  if (partial_sums_) return *partial_sums_;
  partial_sums_.emplace();
  for (const models::MasterTensor& t : masters.tensors()) {
    if (t.partial) partial_sums_->push_back({{t.offset, t.count()}, &tensor_, t.layer});
    if (t.ends) partial_sums_->push_back({{t.offset, t.count()}, &ends_, t.layer});
    if (t.shared.empty()) continue;
    const auto ranks = static_cast<int>(t.sharers);
    if (!sharers_.contains(ranks)) sharers_.emplace(ranks, tensor_.split(tensor_.rank() / ranks));
    for (const Range& r : t.shared)
      partial_sums_->push_back({{t.offset + r.begin, r.count}, &sharers_.at(ranks), t.layer});
  }
  return *partial_sums_;
}

std::vector<Range> Mesh::own(const models::MasterWeights& masters) {
  if (!divides_state()) return {{0, masters.size()}};
  std::vector<Range> ranges;
  for (const Family& family : families(masters)) ranges.push_back(family.own);
  return ranges;
}

void Mesh::divide(models::MasterWeights& masters, int threads) {
  const std::span<const PartialSum> partial = partial_sums(masters);
  if (recipe_.zero > 1) {
    const LayerShards::Rules rules{.weights = divides_weights(), .overlap = recipe_.overlap, .threads = threads};
    shards_.emplace(masters, families(masters), partial, rules, waits_);
  } else if (recipe_.overlap) {
    const Overlap::Rules rules{.divides = divides_state(), .parts = parts_, .threads = threads};
    overlap_.emplace(masters, families(masters)[0], partial, rules, waits_);
  }
}

std::vector<Range> Mesh::others(const models::MasterWeights& masters, const models::MasterTensor& tensor) {
  std::vector<Range> list;
  for (const Family& family : families(masters)) {
    for (const Range& r : others_of(family)) {
      const Range both = common(r, {tensor.offset, tensor.count()});
      if (both.count > 0) list.push_back(both);
    }
  }
  return list;
}

void Mesh::begin_passes() {
  if (overlap_) overlap_->begin_passes();
  if (shards_) shards_->begin_passes();
}

void Mesh::end_passes() {
  if (overlap_) overlap_->end_passes();
  if (shards_) shards_->end_passes();
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

void Mesh::sum_gradients(models::MasterWeights& masters) {
  const auto all_reduce = [&](comm::Group& group, std::span<float> x) {
    comm::Handle handle = group.all_reduce(flat(x), mut_flat(x));
    waits_.wait(handle);
  };
  for (const PartialSum& sum : partial_sums(masters)) {
    if (!is_summed(sum.layer)) all_reduce(*sum.ranks, elements(masters.grads(), sum.elements));
  }
  for (const Family& family : families(masters)) {
    if (is_summed(family.layer)) continue;
    const std::span<float> grads = elements(masters.grads(), family.elements);
    std::span<float> summed = grads;
    if (divides_state()) {
      summed = elements(masters.grads(), family.own);
      comm::Handle handle =
          family.ranks->reduce_scatter(flat(grads), mut_flat(summed), comm::Reduction::sum, family.counts);
      waits_.wait(handle);
    } else {
      all_reduce(*family.ranks, grads);
    }
    if (family.copies) all_reduce(*family.copies, summed);
    for (const Range& others : others_of(family)) {
      if (shards_) masters.drop_grads(others);
    }
  }
}

void Mesh::end_gradients(models::MasterWeights& masters, Sums& sums, int threads) {
  if (!recipe_.exact) {
    masters.sum_uses(threads);
    overlap_ ? overlap_->finish() : sum_gradients(masters);
    return add_up(sums);
  }
  const int rank = world_.rank(), last = world_.size() - 1;
  if (rank < last) {
    for (const std::span<float> array : masters.gradient_arrays()) world_.send(flat(array), rank + 1).wait();
    send(sums, rank + 1);
  }
  for (const std::span<float> array : masters.gradient_arrays()) world_.broadcast(mut_flat(array), last).wait();
  check_names(world_, sums);
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

void Mesh::add_up(std::span<double> values) { add_up_in(batch_, values); }

void Mesh::add_up(std::span<int32_t> values) {
  const MutView all = mut_view_of(values.data(), {std::ssize(values)});
  batch_.all_reduce(all, all).wait();
}

void Mesh::add_up(Sums& sums) {
  check_names(batch_, sums);
  std::vector<double> numbers = numbers_of(sums);
  add_up(numbers);
  set(sums, numbers);
}

double Mesh::add_up_all(double value) {
  add_up_in(world_, {&value, 1});
  return value;
}

// Ranks that sum their gradients have the same, unless their optimisers have parts: then one of them counts.
double Mesh::squared_norm(const models::MasterWeights& masters, sys::FunctionRef<double(const Range&)> squares) {
  double sum = 0;
  for (const Family& family : families(masters)) {
    if (family.copies && family.copies->rank() > 0) continue;
    if (divides_state() || family.ranks->rank() == 0) sum += squares(family.elements);
  }
  return add_up_all(sum);
}

void Mesh::gather_weights(models::MasterWeights& masters, int threads) {
  if (!divides_state() || divides_weights()) return;
  if (overlap_) return overlap_->gather_later();
  for (const Family& family : families(masters)) {
    const std::span<float> part = elements(masters.values(), family.own);
    family.ranks->all_gather(flat(part), mut_flat(elements(masters.values(), family.elements)), family.counts).wait();
  }
  masters.round(threads);
}

// The parts of an array, on the first rank of every family.
std::vector<float> Mesh::joined(const models::MasterWeights& masters, std::span<const float> own) {
  const std::span<const Family> all = families(masters);
  const bool joins = std::any_of(all.begin(), all.end(), [](const Family& f) { return f.ranks->rank() == 0; });
  std::vector<float> whole(joins ? static_cast<size_t>(masters.size()) : 0);
  for (const Family& family : all) {
    const std::vector<int64_t>& parts = family.counts;
    const auto mine = own.first(static_cast<size_t>(parts[static_cast<size_t>(family.ranks->rank())]));
    own = own.subspan(mine.size());
    if (family.ranks->rank() > 0) {
      if (!mine.empty()) family.ranks->send(flat(mine), 0).wait();
      continue;
    }
    Range at{family.elements.begin, 0};
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      at = {at.begin + at.count, parts[rank]};
      const std::span<float> part = elements(std::span(whole), at);
      if (rank == 0) std::copy(mine.begin(), mine.end(), part.begin());
      if (rank > 0 && !part.empty()) family.ranks->recv(mut_flat(part), static_cast<int>(rank)).wait();
    }
  }
  return whole;
}

std::vector<float> Mesh::assemble(const models::MasterWeights& masters, const models::MasterWeights& whole,
                                  std::span<const float> array, bool part) {
  std::vector<float> all;
  if (part) all = joined(masters, array);
  if (part) array = all;
  if (!divides_model()) return first() ? std::vector<float>(array.begin(), array.end()) : std::vector<float>();
  return assemble_tensors(world_, held(masters), array, whole);
}

namespace {

bool has(const Family& family, const models::MasterTensor& t) {
  return t.offset >= family.elements.begin && t.offset < family.elements.begin + family.elements.count;
}

}  // namespace

std::vector<models::MasterTensor> Mesh::held(const models::MasterWeights& masters) {
  std::vector<models::MasterTensor> list;
  for (const Family& family : families(masters)) {
    if (family.ranks->rank() > 0) continue;
    for (const models::MasterTensor& t : masters.tensors()) {
      if (has(family, t)) list.push_back(t);
    }
  }
  return list;
}

// The first family that holds a part writes it, each of its ranks the elements that are its own: of what several parts
// share, those of the first.
std::span<const TensorElements> Mesh::written(const models::MasterWeights& masters,
                                              const models::MasterWeights& whole) {
  if (written_) return *written_;
  const std::vector<uint8_t> firsts = first_holders(world_, held(masters));
  auto next = firsts.begin();
  double elements = 0;
  written_.emplace();
  for (const Family& family : families(masters)) {
    std::vector<const models::MasterTensor*> tensors;
    for (const models::MasterTensor& t : masters.tensors()) {
      if (has(family, t)) tensors.push_back(&t);
    }
    if (tensors.empty()) continue;
    std::vector<uint8_t> writes(tensors.size());
    if (family.ranks->rank() == 0) {
      std::copy_n(next, writes.size(), writes.begin());
      next += std::ssize(writes);
    }
    family.ranks->broadcast(mut_view_of(writes.data(), {std::ssize(writes)}), 0).wait();
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (writes[i] == 0) continue;
      for (const Range& r : tensors[i]->first_held()) {
        const Range of = common(family.own, {tensors[i]->offset + r.begin, r.count});
        if (of.count == 0) continue;
        written_->push_back({tensors[i], of});
        elements += static_cast<double>(of.count);
      }
    }
  }
  elements = add_up_all(elements);
  CHECK(!first() || elements == static_cast<double>(whole.trained()), "ranks hold {} of {} elements", elements,
        whole.trained());
  return *written_;
}

}  // namespace braid::train
