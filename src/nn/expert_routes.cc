#include "nn/expert_routes.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "sys/parallel.h"

namespace braid::nn {
namespace {

// Few messages matter less than that nobody forwards: what is sent can be counted.
constexpr const char* kDirect = "linear";

View elements_of(const View& v) { return {v.data, v.dtype, {v.count()}}; }
MutView elements_of(const MutView& v) { return {v.data, v.dtype, {v.count()}}; }
template <class Num>
View elements_of(std::span<const Num> list) {
  return view_of(list.data(), {std::ssize(list)});
}
template <class Num>
MutView elements_of(std::vector<Num>& list) {
  return mut_view_of(list.data(), {std::ssize(list)});
}

int64_t sum(std::span<const int64_t> list) { return std::accumulate(list.begin(), list.end(), int64_t{0}); }

std::vector<int64_t> times(std::span<const int64_t> counts, int64_t factor) {
  std::vector<int64_t> list(counts.begin(), counts.end());
  for (int64_t& n : list) n *= factor;
  return list;
}

// Slots of `chosen` whose expert is among `experts`, by expert, those of one in their order, added to `slots`; their
// number by expert.
std::vector<int32_t> sort_slots(std::span<const int32_t> chosen, const Range& experts, std::vector<int32_t>& slots) {
  std::vector<int32_t> counts(static_cast<size_t>(experts.count));
  const auto among = [&](int32_t e) { return e >= experts.begin && e < experts.begin + experts.count; };
  const auto of = [&](int32_t e) { return static_cast<size_t>(e - experts.begin); };
  for (const int32_t e : chosen) {
    if (among(e)) ++counts[of(e)];
  }
  std::vector<size_t> next(counts.size(), slots.size());
  for (size_t e = 1; e < next.size(); ++e) next[e] = next[e - 1] + static_cast<size_t>(counts[e - 1]);
  slots.resize(counts.empty() ? slots.size() : next.back() + static_cast<size_t>(counts.back()));
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (among(chosen[i])) slots[next[of(chosen[i])]++] = static_cast<int32_t>(i);
  }
  return counts;
}

// Row i of `to` is row at(i) of `from`.
template <class At>
void pick_rows(int threads, const View& from, const MutView& to, At&& at) {
  const int64_t bytes = to.count() == 0 ? 0 : to.bytes() / to.dim(0);
  sys::parallel_for(threads, to.dim(0), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(to.data + i * bytes, from.data + at(i) * bytes, static_cast<size_t>(bytes));
  });
}

void exchange(comm::Group& group, const View& in, const MutView& out, std::span<const int64_t> sent,
              std::span<const int64_t> received, int64_t width) {
  group.all_to_all(elements_of(in), elements_of(out), times(sent, width), times(received, width)).wait();
}

}  // namespace

ExpertRoutes::ExpertRoutes(Ctx& ctx, const ExpertRanks& ranks, const View& chosen, int64_t experts)
    : ranks_(ranks), tokens_(chosen.dim(0)), slots_of_token_(chosen.dim(1)) {
  const int64_t size = ranks.all->size(), shares = size / ranks.parts;
  CHECK(size % ranks.parts == 0 && experts % shares == 0, "{} experts in {} parts on {} ranks", experts, ranks.parts,
        size);
  CHECK(chosen.count() <= std::numeric_limits<int32_t>::max(), "{} slots", chosen.count());
  each_ = experts / shares;
  if (ctx.dry) {
    rows_ = chosen.count() * ranks.parts;
    return;
  }
  const std::span<const int32_t> list(chosen.as<int32_t>(), static_cast<size_t>(chosen.count()));
  const std::vector<int32_t> counts = sort_slots(list, {0, experts}, slots_);
  CHECK(std::ssize(slots_) == std::count_if(list.begin(), list.end(), [](int32_t e) { return e != -1; }),
        "a token chose none of {} experts", experts);
  position_.assign(list.size(), -1);
  for (size_t i = 0; i < slots_.size(); ++i) position_[static_cast<size_t>(slots_[i])] = static_cast<int32_t>(i);
  shares_ = {0};
  for (int64_t share = 0; share < shares; ++share) {
    const auto first = counts.begin() + share * each_;
    shares_.push_back(std::accumulate(first, first + each_, shares_.back()));
    for (int64_t part = 0; part < ranks.parts; ++part) sent_.push_back(shares_.back() - shares_.end()[-2]);
  }
  if (ranks.dispatcher == Dispatcher::allgather) {
    gather_chosen(list);
  } else {
    // Of each rank, for each of its experts: how many rows will come.
    std::vector<int32_t> sent_counts, received_counts(static_cast<size_t>(size * each_));
    for (int64_t rank = 0; rank < size; ++rank) {
      const auto first = counts.begin() + rank / ranks.parts * each_;
      sent_counts.insert(sent_counts.end(), first, first + each_);
    }
    ranks.all
        ->all_to_all(elements_of(std::span<const int32_t>(sent_counts)), elements_of(received_counts), {}, {}, kDirect)
        .wait();
    for (int64_t rank = 0; rank < size; ++rank) {
      received_.push_back(0);
      for (int64_t e = 0; e < each_; ++e) {
        const int32_t n = received_counts[static_cast<size_t>(rank * each_ + e)];
        arriving_.insert(arriving_.end(), static_cast<size_t>(n), static_cast<int32_t>(e));
        received_.back() += n;
      }
    }
  }
  rows_ = std::ssize(arriving_);
  if (ranks.dispatcher == Dispatcher::node) meet_at_nodes(list);
}

// Every rank's tokens and their choices, from which this one finds its rows.
void ExpertRoutes::gather_chosen(std::span<const int32_t> chosen) {
  gathered_.resize(static_cast<size_t>(ranks_.all->size()));
  ranks_.all->all_gather(view_of(&tokens_, {1}), elements_of(gathered_), {}, kDirect).wait();
  std::vector<int32_t> all(static_cast<size_t>(sum(gathered_) * slots_of_token_));
  ranks_.all->all_gather(elements_of(chosen), elements_of(all), times(gathered_, slots_of_token_)).wait();
  int64_t first = 0;
  for (const int64_t tokens : gathered_) {
    const auto of_rank = std::span<const int32_t>(all).subspan(static_cast<size_t>(first * slots_of_token_),
                                                               static_cast<size_t>(tokens * slots_of_token_));
    std::vector<int32_t> slots;
    const std::vector<int32_t> counts = sort_slots(of_rank, experts_of(share()), slots);
    for (const int32_t slot : slots) picked_.push_back(static_cast<int32_t>(first + slot / slots_of_token_));
    for (size_t e = 0; e < counts.size(); ++e)
      arriving_.insert(arriving_.end(), static_cast<size_t>(counts[e]), static_cast<int32_t>(e));
    received_.push_back(std::ssize(slots));
    first += tokens;
  }
}

// Which tokens go to which node, and which come from them.
void ExpertRoutes::meet_at_nodes(std::span<const int32_t> chosen) {
  const int64_t per_node = ranks_.node->size(), nodes = ranks_.aligned->size(), k = slots_of_token_;
  std::vector<int32_t> sent_choices;
  for (int64_t node = 0; node < nodes; ++node) {
    const int64_t first = experts_of(node * per_node / ranks_.parts).begin;
    const Range last = experts_of(((node + 1) * per_node - 1) / ranks_.parts);
    const size_t before = to_nodes_.rows.size();
    for (int64_t t = 0; t < tokens_; ++t) {
      const auto own = chosen.subspan(static_cast<size_t>(t * k), static_cast<size_t>(k));
      const bool goes =
          std::any_of(own.begin(), own.end(), [&](int32_t e) { return e >= first && e < last.begin + last.count; });
      if (!goes) continue;
      to_nodes_.rows.push_back(static_cast<int32_t>(t));
      sent_choices.insert(sent_choices.end(), own.begin(), own.end());
    }
    to_nodes_.counts.push_back(static_cast<int64_t>(to_nodes_.rows.size() - before));
  }
  from_nodes_.resize(static_cast<size_t>(nodes));
  ranks_.aligned
      ->all_to_all(elements_of(std::span<const int64_t>(to_nodes_.counts)), elements_of(from_nodes_), {}, {}, kDirect)
      .wait();
  std::vector<int32_t> received_choices(static_cast<size_t>(sum(from_nodes_) * k));
  exchange(*ranks_.aligned, elements_of(std::span<const int32_t>(sent_choices)), elements_of(received_choices),
           to_nodes_.counts, from_nodes_, k);
  forward(received_choices, from_nodes_);
}

// Which of the tokens that came from the nodes go to which rank of this one, and where theirs will be.
void ExpertRoutes::forward(std::span<const int32_t> chosen, std::span<const int64_t> from_nodes) {
  const int64_t per_node = ranks_.node->size(), k = slots_of_token_, first = ranks_.all->rank() - ranks_.node->rank();
  for (int64_t peer = 0; peer < per_node; ++peer) {
    const Range experts = experts_of((first + peer) / ranks_.parts);
    const size_t before = onward_.rows.size();
    int64_t token = 0;
    for (const int64_t tokens : from_nodes) {
      std::vector<int32_t> slots;
      sort_slots(chosen.subspan(static_cast<size_t>(token * k), static_cast<size_t>(tokens * k)), experts, slots);
      for (const int32_t slot : slots) onward_.rows.push_back(static_cast<int32_t>(token + slot / k));
      token += tokens;
    }
    onward_.counts.push_back(static_cast<int64_t>(onward_.rows.size() - before));
  }
  landed_.resize(received_.size());
  int64_t at = 0;
  for (int64_t peer = 0; peer < per_node; ++peer) {
    const int64_t before = at;
    for (int64_t source = peer; source < std::ssize(received_); source += per_node) {
      landed_[static_cast<size_t>(source)] = at;
      at += received_[static_cast<size_t>(source)];
    }
    forwarded_.push_back(at - before);
  }
}

int64_t ExpertRoutes::sent_rows(const Ctx& ctx) const {
  return (ctx.dry ? tokens_ * slots_of_token_ : std::ssize(slots_)) * ranks_.parts;
}

namespace {

// The slot of each row that leaves: those of a share for each of its parts.
template <class Of>
void each_sent(std::span<const int64_t> shares, int64_t parts, Of&& of) {
  int64_t row = 0;
  for (size_t share = 0; share + 1 < shares.size(); ++share) {
    for (int64_t part = 0; part < parts; ++part) {
      for (int64_t i = shares[share]; i < shares[share + 1]; ++i) of(row++, i);
    }
  }
}

}  // namespace

void ExpertRoutes::send(Ctx& ctx, const View& x, const MutView& rows) const {
  const int64_t width = x.dim(1);
  if (ranks_.dispatcher == Dispatcher::node) return send_through_nodes(ctx, x, rows);
  if (ranks_.dispatcher == Dispatcher::allgather) {
    const Tensor all(ctx.arena, x.dtype, {ctx.dry ? tokens_ * ranks_.all->size() : sum(gathered_), width});
    if (ctx.dry) return;
    ranks_.all->all_gather(elements_of(x), elements_of(all.mut()), times(gathered_, width)).wait();
    return pick_rows(ctx.threads, all.view(), rows, [&](int64_t i) { return picked_[static_cast<size_t>(i)]; });
  }
  const Tensor out(ctx.arena, x.dtype, {sent_rows(ctx), width});
  if (ctx.dry) return;
  std::vector<int32_t> tokens(static_cast<size_t>(sent_rows(ctx)));
  each_sent(shares_, ranks_.parts, [&](int64_t row, int64_t i) {
    tokens[static_cast<size_t>(row)] = static_cast<int32_t>(slots_[static_cast<size_t>(i)] / slots_of_token_);
  });
  pick_rows(ctx.threads, x, out.mut(), [&](int64_t i) { return tokens[static_cast<size_t>(i)]; });
  exchange(*ranks_.all, out.view(), rows, sent_, received_, width);
}

void ExpertRoutes::send_through_nodes(Ctx& ctx, const View& x, const MutView& rows) const {
  const int64_t width = x.dim(1), nodes = ranks_.aligned->size();
  const Tensor out(ctx.arena, x.dtype, {ctx.dry ? tokens_ * nodes : std::ssize(to_nodes_.rows), width}),
      met(ctx.arena, x.dtype, {ctx.dry ? tokens_ * nodes : sum(from_nodes_), width}),
      onward(ctx.arena, x.dtype, {ctx.dry ? rows_ : std::ssize(onward_.rows), width}),
      landed(ctx.arena, x.dtype, {rows_, width});
  if (ctx.dry) return;
  pick_rows(ctx.threads, x, out.mut(), [&](int64_t i) { return to_nodes_.rows[static_cast<size_t>(i)]; });
  exchange(*ranks_.aligned, out.view(), met.mut(), to_nodes_.counts, from_nodes_, width);
  pick_rows(ctx.threads, met.view(), onward.mut(), [&](int64_t i) { return onward_.rows[static_cast<size_t>(i)]; });
  exchange(*ranks_.node, onward.view(), landed.mut(), onward_.counts, forwarded_, width);
  int64_t row = 0;
  for (size_t source = 0; source < received_.size(); ++source) {
    const int64_t first = row, from = landed_[source];
    row += received_[source];
    pick_rows(ctx.threads, landed.view(), rows.slice(0, first, received_[source]), [&](int64_t i) { return from + i; });
  }
}

void ExpertRoutes::send_slots(Ctx& ctx, const View& x, const MutView& rows) const {
  const Tensor out(ctx.arena, DType::f32, {sent_rows(ctx), 1});
  if (ctx.dry) return;
  each_sent(shares_, ranks_.parts, [&](int64_t row, int64_t i) {
    out.mut().as<float>()[row] = x.as<float>()[slots_[static_cast<size_t>(i)]];
  });
  exchange(*ranks_.all, out.view(), rows, sent_, received_, 1);
}

void ExpertRoutes::back(const View& rows, const MutView& landing) const {
  exchange(*ranks_.all, rows, landing, received_, sent_, rows.dim(1));
}

namespace {

// Where the row of a slot lies among those that came back, for each part: `parts` rows, `stride` apart.
struct BackRows {
  std::span<const int64_t> shares;
  int64_t parts;

  // position: of the slot among those sorted by expert.
  std::pair<int64_t, int64_t> of(int64_t position) const {
    const auto next = std::upper_bound(shares.begin(), shares.end(), position);
    const int64_t begin = *(next - 1), count = *next - begin;
    return {begin * parts + position - begin, count};
  }
};

}  // namespace

void ExpertRoutes::add_up(Ctx& ctx, const View& rows, const MutView& y) const {
  constexpr int64_t kCols = 128;
  const int64_t width = y.dim(1), k = slots_of_token_;
  const Tensor landing(ctx.arena, DType::f32, {sent_rows(ctx), width});
  if (ctx.dry) return;
  back(rows, landing.mut());
  const BackRows all{shares_, ranks_.parts};
  const auto add_block = [&](int64_t t, int64_t col, int64_t n) {
    float total[kCols] = {};
    for (int64_t j = 0; j < k; ++j) {
      const int32_t position = position_[static_cast<size_t>(t * k + j)];
      if (position < 0) continue;
      auto [row, stride] = all.of(position);
      for (int64_t part = 0; part < ranks_.parts; ++part, row += stride) {
        const float* from = landing.view().as<float>(row) + col;
        for (int64_t i = 0; i < n; ++i) total[i] += from[i];
      }
    }
    if (y.dtype == DType::f32) {
      std::copy_n(total, n, y.as<float>(t) + col);
    } else {
      std::transform(total, total + n, y.as<Bf16>(t) + col, [](float v) { return to_bf16(v); });
    }
  };
  sys::parallel_for(ctx.threads, tokens_, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t col = 0; col < width; col += kCols) add_block(t, col, std::min(kCols, width - col));
    }
  });
}

void ExpertRoutes::add_up_slots(Ctx& ctx, const View& rows, const MutView& y) const {
  const Tensor landing(ctx.arena, DType::f32, {sent_rows(ctx), 1});
  if (ctx.dry) return;
  back(rows, landing.mut());
  const BackRows all{shares_, ranks_.parts};
  for (int64_t slot = 0; slot < y.count(); ++slot) {
    const int32_t position = position_[static_cast<size_t>(slot)];
    float sum = 0;
    auto [row, stride] = position < 0 ? std::pair<int64_t, int64_t>() : all.of(position);
    for (int64_t part = 0; position >= 0 && part < ranks_.parts; ++part, row += stride)
      sum += landing.view().as<float>()[row];
    y.as<float>()[slot] = sum;
  }
}

}  // namespace braid::nn
