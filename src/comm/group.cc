#include "comm/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/native.h"
#include "comm/nccl.h"
#include "comm/same_words.h"
#include "comm/selector.h"
#include "sys/error.h"

namespace braid::comm {
namespace {

constexpr int kSpins = 200;    // looks at cells before the core is given to somebody else
constexpr int kYields = 2000;  // looks before the thread sleeps in between: its peers may have no core
constexpr std::chrono::microseconds kPatience{50'000}, kDriverPause{50};

uint64_t mixed(uint64_t hash, uint64_t value) {  // FNV-1a over whole words, then folded
  hash = (hash ^ value) * 0x100000001b3u;
  return hash ^ hash >> 29;
}

// Ranks of a node in a group, if all its nodes are equal runs of consecutive ranks.
int nodes_of(const std::vector<int>& members, int per_node) {
  size_t first = 1;
  while (first < members.size() && members[first] / per_node == members[0] / per_node) ++first;
  if (members.size() % first != 0) return 0;
  std::vector<int> seen;
  for (size_t i = 0; i < members.size(); ++i) {
    const int node = members[i] / per_node;
    if (i % first == 0) {
      if (std::find(seen.begin(), seen.end(), node) != seen.end()) return 0;
      seen.push_back(node);
    }
    if (node != seen.back()) return 0;
  }
  return static_cast<int>(first);
}

}  // namespace

Engine::Engine(std::unique_ptr<Transport> transport, const Options& options)
    : transport_(std::move(transport)), options_(options) {}

Engine::~Engine() {
  if (!driver_.joinable()) return;
  {
    const auto lock = hold();
    ending_ = true;
  }
  wake_.notify_one();
  driver_.join();
}

// Signals are for the thread that the process began with.
void Engine::drive(bool on) {
  {
    const auto lock = hold();
    driving_ = on;
    if (on && !driver_.joinable()) {
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      driver_ = std::thread([this] { drive_calls(); });
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
  }
  wake_.notify_one();
}

// Sleeps without the lock: a call may be made meanwhile.
void Engine::drive_calls() {
  auto lock = hold();
  while (!ending_) {
    if (!driving_ || active_.empty() || failure_) {
      wake_.wait(lock);
      continue;
    }
    const int64_t before = steps_;
    try {
      transport_->progress(std::chrono::microseconds(0));
      advance_all();
    } catch (...) {
      failure_ = std::current_exception();
      continue;
    }
    const bool moved = steps_ != before;
    lock.unlock();
    moved ? std::this_thread::yield() : std::this_thread::sleep_for(kDriverPause);
    lock.lock();
  }
}

const Algorithm& Group::chosen(Op op, const Blocks& blocks, DType type) const {
  const Problem p = problem(op, blocks, type);
  const Selector* selector = engine_->selector.get();
  return selector ? selector->choose(p) : algorithm_for(p, {});
}

void Engine::start(const std::shared_ptr<Call>& call) {
  if (call->advance()) return;
  active_.push_back(call);
  if (driving_) wake_.notify_one();
}

void Engine::advance_all() {
  steps_ = 0;
  for (const auto& call : active_) {
    call->advance();
    steps_ += call->steps();
  }
  std::erase_if(active_, [](const std::shared_ptr<Call>& call) { return call->over(); });
}

bool Engine::poll(const Call& call) {
  const auto lock = hold();
  if (call.over()) return true;
  if (failure_) std::rethrow_exception(failure_);
  transport_->progress(std::chrono::microseconds(0));
  advance_all();
  return call.over();
}

// Cells wake nobody, so a rank that waits for some looks for them, and now and then lets another thread run.
void Engine::wait(Call& call) {
  const auto lock = hold();
  auto last = std::chrono::steady_clock::now();
  int64_t seen = -1;
  for (int looks = 0; !call.over(); ++looks) {
    if (failure_) std::rethrow_exception(failure_);
    const bool polling = std::any_of(active_.begin(), active_.end(), [](const auto& c) { return c->polls(); });
    transport_->progress(polling ? std::chrono::microseconds(0) : kPatience);
    advance_all();
    if (call.over()) return;
    if (polling && looks % kSpins == kSpins - 1) {
      if (looks < kYields)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (std::exchange(seen, steps_) != steps_)
      last = std::chrono::steady_clock::now(), looks = 0;
    else if (std::chrono::steady_clock::now() - last > options_.timeout)
      time_out(call);
  }
}

void Engine::time_out(const Call& call) {
  const Call::Missing missing = call.missing();
  const double seconds = std::chrono::duration<double>(options_.timeout).count();
  if (missing.peer < 0)
    fail_environment(fmt::format("comm {}", call.where()),
                     {.what = fmt::format("the library has not finished among ranks {} for {:g} s",
                                          fmt::join(call.members(), ", "), seconds),
                      .hint = "the logs of the other ranks: one may have ended, or make other calls"});
  fail_environment(
      fmt::format("comm {}", call.where()),
      {.what = missing.receiving ? fmt::format("nothing from rank {} for {:g} s", missing.peer, seconds)
                                 : fmt::format("rank {} has taken nothing for {:g} s", missing.peer, seconds),
       .hint = fmt::format("the log of rank {}: it may have ended, or make other calls", missing.peer)});
}

void Engine::give_up(const Call& call) noexcept {
  const auto lock = hold();
  if (call.over()) return;
  transport_->forget();
  std::erase_if(active_, [&](const std::shared_ptr<Call>& c) { return c.get() == &call; });
}

Handle::~Handle() {
  if (call_) engine_->give_up(*call_);
}
void Handle::wait() { engine_->wait(*call_); }
bool Handle::done() { return engine_->poll(*call_); }

Group::Group(std::unique_ptr<Transport> transport, const Options& options) {
  if (!options.nccl.empty()) transport = over_nccl(std::move(transport), options.nccl, options.timeout);
  members_.resize(static_cast<size_t>(transport->size()));
  std::iota(members_.begin(), members_.end(), 0);
  rank_ = transport->rank();
  per_node_ = nodes_of(members_, options.per_node);
  engine_ = std::make_shared<Engine>(std::move(transport), options);
}

Group::Group(std::shared_ptr<Engine> engine, std::vector<int> members, int rank, uint32_t context)
    : engine_(std::move(engine)), members_(std::move(members)), rank_(rank), context_(context) {
  per_node_ = nodes_of(members_, engine_->options().per_node);
}

// Groups that have a rank in common get different numbers: each takes the largest that a rank of the old group has
// left.
Group Group::split(int colour, int key) {
  const int64_t mine[3] = {colour, key, engine_->contexts};
  std::vector<int64_t> all(members_.size() * 3);
  all_gather(view_of(mine, {3}), mut_view_of(all.data(), {std::ssize(all)})).wait();
  std::vector<int> chosen;
  for (int r = 0; r < size(); ++r) {
    const auto* row = &all[static_cast<size_t>(r) * 3];
    if (row[0] == colour) chosen.push_back(r);
    engine_->contexts = std::max(engine_->contexts, static_cast<uint32_t>(row[2]));
  }
  std::stable_sort(chosen.begin(), chosen.end(), [&](int a, int b) {
    return all[static_cast<size_t>(a) * 3 + 1] < all[static_cast<size_t>(b) * 3 + 1];
  });
  const auto place = std::find(chosen.begin(), chosen.end(), rank_) - chosen.begin();
  std::vector<int> members;
  members.reserve(chosen.size());
  for (const int r : chosen) members.push_back(members_[static_cast<size_t>(r)]);
  {
    const auto lock = engine_->hold();
    engine_->transport().join(engine_->contexts, members);
  }
  return {engine_, std::move(members), static_cast<int>(place), engine_->contexts++};
}

void Group::choose_by(std::string_view where, std::string times) {
  times = text_of(*this, 0, std::move(times));
  engine_->selector = std::make_shared<const Selector>(read_times(where, times), Learner::costs);
}

Problem Group::problem(Op op, const Blocks& blocks, DType type) const {
  Problem p{.op = op, .rank = rank_, .size = size(), .per_node = per_node_, .blocks = blocks};
  p.element = size_of(type);
  p.native = engine_->transport().has_native();
  p.alone = engine_->options().alone;
  return p;
}

void Group::check_peer(int peer) const {
  CHECK(peer >= 0 && peer < size() && peer != rank_, "rank {} of {}, for rank {}", peer, size(), rank_);
}

Handle Group::start(const Problem& p, const Bytes& bytes, std::string_view name) {
  CHECK(p.root >= 0 && p.root < size(), "root {} of {} ranks", p.root, size());
  CHECK(bytes.in.contiguous() && bytes.out.contiguous(), "{}: a view has gaps", name_of(p.op));
  CHECK(bytes.in.device == Device::cpu && bytes.out.device == Device::cpu, "{}: on a GPU", name_of(p.op));
  const Selector* selector = engine_->selector.get();
  const Algorithm& algorithm = name.empty() && selector ? selector->choose(p) : algorithm_for(p, name);
  if (!algorithm.make) return start_native(p, bytes, algorithm);
  Schedule schedule = algorithm.make(p);
  uint64_t hash = mixed(history_, static_cast<uint64_t>(&algorithm - algorithms().data()));
  hash = mixed(hash, static_cast<uint64_t>(bytes.out.dtype) << 8 | static_cast<uint64_t>(bytes.op));
  hash = mixed(hash, static_cast<uint64_t>(p.root));
  // What ranks of an all-to-all exchange differs.
  hash = mixed(hash, static_cast<uint64_t>(p.op == Op::all_to_all ? 0 : p.blocks.total()));
  history_ = hash;
  CallSite site{.where = fmt::format("{} {}", name_of(p.op), algorithm.name)};
  site.tag = uint64_t{context_} << 40 | uint64_t{calls_++ & 0x7fffffff} << 8;
  site.check = hash << 3 | static_cast<uint64_t>(p.op);
  site.compare = engine_->options().compare_calls;
  site.window = schedule.window;
  uint64_t& messages = cell_messages_[cells::key_of(context_, schedule.window)];
  site.cell_base = std::exchange(messages, messages + schedule.cell_messages);
  return start(std::move(schedule), bytes, std::move(site));
}

// Of a call that fails before its handle exists nobody else makes the transport drop messages that went with it.
template <class Make>
Handle Group::begin(const Make& make) {
  const auto lock = engine_->hold();
  try {
    const std::shared_ptr<Call> call = make();
    engine_->start(call);
    return {engine_, call};
  } catch (...) {
    engine_->transport().forget();
    throw;
  }
}

Handle Group::start(Schedule schedule, const Bytes& bytes, CallSite site) {
  site.members = members_;
  site.per_node = engine_->options().per_node;
  site.context = context_;
  site.traffic = own_traffic_;
  Player player(std::move(schedule), {.in = bytes.in.data, .out = bytes.out.data},
                bytes.out ? bytes.out.dtype : bytes.in.dtype, bytes.op);
  return begin([&] {
    return std::make_shared<Call>(std::move(player), std::move(site), engine_->transport(), engine_->traffic());
  });
}

Handle Group::start_native(const Problem& p, const Bytes& bytes, const Algorithm& algorithm) {
  CallSite site{.where = fmt::format("{} {}", name_of(p.op), algorithm.name), .members = members_};
  const NativeCall native{.problem = p,
                          .context = context_,
                          .type = bytes.out ? bytes.out.dtype : bytes.in.dtype,
                          .reduction = bytes.op,
                          .in = bytes.in.data,
                          .out = bytes.out.data,
                          .blocks = algorithm.name == std::string_view("native_blocking")};
  return begin(
      [&] { return std::make_shared<Call>(native, std::move(site), engine_->transport(), engine_->traffic()); });
}

Handle Group::send(const View& x, int peer, uint16_t tag) {
  check_peer(peer);
  Schedule s;
  s.once([=](Round& out) { out.send(peer, Range{Space::in, 0, x.count()}); });
  CallSite site{.where = "send"};
  site.tag = uint64_t{context_} << 40 | uint64_t{1} << 39 | uint64_t{tag} << 8;
  return start(std::move(s), {.in = x}, std::move(site));
}

Handle Group::recv(const MutView& x, int peer, uint16_t tag) {
  check_peer(peer);
  Schedule s;
  s.once([=](Round& out) { out.recv(peer, Range{Space::out, 0, x.count()}); });
  CallSite site{.where = "recv"};
  site.tag = uint64_t{context_} << 40 | uint64_t{1} << 39 | uint64_t{tag} << 8;
  return start(std::move(s), {.out = x}, std::move(site));
}

Handle Group::barrier(std::string_view algorithm) { return start(problem(Op::barrier, {}, DType::u8), {}, algorithm); }

Handle Group::broadcast(const MutView& x, int root, std::string_view algorithm) {
  Problem p = problem(Op::broadcast, Blocks::equal(x.count(), 1), x.dtype);
  p.root = root;
  return start(p, {.out = x}, algorithm);
}

Handle Group::reduce(const View& in, const MutView& out, Reduction op, int root, std::string_view algorithm) {
  CHECK(rank_ != root || (in.count() == out.count() && in.dtype == out.dtype), "reduce: in and out differ");
  CHECK(reducible(in.dtype), "reduce of {}", braid::name_of(in.dtype));
  Problem p = problem(Op::reduce, Blocks::equal(in.count(), 1), in.dtype);
  p.root = root;
  p.in_place = in.data == out.data;
  // Ranks other than the root may pass no `out`, but its type takes part in the call.
  return start(p, {.in = in, .out = rank_ == root ? out : MutView(nullptr, in.dtype, {0}), .op = op}, algorithm);
}

Handle Group::all_reduce(const View& in, const MutView& out, Reduction op, std::string_view algorithm) {
  CHECK(in.count() == out.count() && in.dtype == out.dtype, "all_reduce: in and out differ");
  CHECK(reducible(in.dtype), "all_reduce of {}", braid::name_of(in.dtype));
  Problem p = problem(Op::all_reduce, Blocks::equal(in.count(), 1), in.dtype);
  p.in_place = in.data == out.data;
  return start(p, {.in = in, .out = out, .op = op}, algorithm);
}

Handle Group::all_gather(const View& in, const MutView& out, std::span<const int64_t> counts,
                         std::string_view algorithm) {
  const Blocks blocks = counts.empty() ? Blocks::equal(in.count(), size()) : Blocks::of_counts(counts);
  CHECK(blocks.blocks() == size() && in.count() == blocks.count(rank_) && out.count() == blocks.total() &&
            in.dtype == out.dtype,
        "all_gather: {} of {} elements for {} ranks", in.count(), out.count(), size());
  Problem p = problem(Op::all_gather, blocks, in.dtype);
  p.in_place = in.data == out.data + blocks.at(rank_) * p.element;
  return start(p, {.in = in, .out = out}, algorithm);
}

Handle Group::reduce_scatter(const View& in, const MutView& out, Reduction op, std::span<const int64_t> counts,
                             std::string_view algorithm) {
  const Blocks blocks = counts.empty() ? Blocks::equal(out.count(), size()) : Blocks::of_counts(counts);
  CHECK(blocks.blocks() == size() && out.count() == blocks.count(rank_) && in.count() == blocks.total() &&
            in.dtype == out.dtype,
        "reduce_scatter: {} of {} elements for {} ranks", out.count(), in.count(), size());
  CHECK(reducible(in.dtype), "reduce_scatter of {}", braid::name_of(in.dtype));
  return start(problem(Op::reduce_scatter, blocks, in.dtype), {.in = in, .out = out, .op = op}, algorithm);
}

Handle Group::all_to_all(const View& in, const MutView& out, std::span<const int64_t> sent,
                         std::span<const int64_t> received, std::string_view algorithm) {
  const bool uniform = sent.empty();
  CHECK(uniform == received.empty(), "all_to_all: counts of one side alone");
  Problem p =
      problem(Op::all_to_all, uniform ? Blocks::divided(in.count(), size()) : Blocks::of_counts(sent), in.dtype);
  p.received = uniform ? Blocks::divided(out.count(), size()) : Blocks::of_counts(received);
  p.uniform = uniform;
  CHECK(p.blocks.total() == in.count() && p.received.total() == out.count() && in.dtype == out.dtype &&
            (!uniform || (in.count() == out.count() && in.count() % size() == 0)),
        "all_to_all: {} and {} elements for {} ranks", in.count(), out.count(), size());
  p.in_place = in.data == out.data;
  return start(p, {.in = in, .out = out}, algorithm);
}

}  // namespace braid::comm
