#include "comm/sim.h"

#include <cmath>
#include <deque>
#include <memory>
#include <queue>
#include <unordered_map>
#include <utility>

#include "comm/cells.h"
#include "core/philox.h"
#include "sys/check.h"

namespace braid::comm {
namespace {

struct Flight {
  int from = 0, to = 0;
  uint64_t key = 0;  // receiver, sender and lane
  int64_t wire = 0;
  std::vector<std::byte> data{};
  double arrival = 0;
};

// What is reserved, in virtual time, until when.
struct Port {
  double free_us = 0;
  // When a use of `us` that may begin at `at` begins.
  double reserve(double at, double us) {
    const double begin = std::max(at, free_us);
    free_us = begin + us;
    return begin;
  }
};

struct Ports {
  explicit Ports(size_t n) : out(n), in(n) {}
  std::vector<Port> out, in;
};

class Simulation {
 public:
  Simulation(const Cluster& cluster, std::vector<Player>& players, const Groups& groups)
      : cluster_(cluster),
        players_(players),
        groups_(groups),
        ranks_(players.size()),
        node_ports_(players.size()),
        cards_(static_cast<size_t>(cluster.nodes * cluster.nics)),
        uplinks_(static_cast<size_t>(cluster.rack_nodes > 0 ? cluster.nodes / cluster.rack_nodes + 1 : 1)) {}

  SimResult run(std::span<const double> start_us);

 private:
  // Waiting for messages of the current round.
  struct Rank {
    std::vector<std::unique_ptr<Flight>> arrived;  // beside round().transfers(); null: not there or sent by this rank
    int missing = 0;
    double sent_us = 0;  // when its own messages have left
    bool playing = false;
  };
  struct Event {
    double us = 0;
    int64_t number = 0;  // the order of making breaks ties
    enum class Kind { begin, head, arrive } kind = Kind::begin;
    int rank = 0;
    Flight* flight = nullptr;
    bool operator>(const Event& other) const { return us != other.us ? us > other.us : number > other.number; }
  };

  void at(double us, Event::Kind kind, int rank, Flight* flight = nullptr) {
    events_.push({us, made_++, kind, rank, flight});
  }
  uint64_t key_of(int to, int from, const Transfer& t) const {
    const uint64_t lane = t.slot >= 0 ? 128 + static_cast<uint64_t>(t.slot) : t.lane;
    return (static_cast<uint64_t>(to) * ranks_.size() + static_cast<uint64_t>(from)) * 256 + lane;
  }
  int peer_of(int rank, const Transfer& t) const { return groups_.member(rank, t.peer); }
  size_t card_of(int rank) const {
    const int node = rank / cluster_.gpus, gpu = rank % cluster_.gpus;
    return static_cast<size_t>(node * cluster_.nics + gpu * cluster_.nics / cluster_.gpus);
  }
  Ports& ports(int level) { return level == 0 ? node_ports_ : cards_; }
  size_t port_of(int level, int rank) const { return level == 0 ? static_cast<size_t>(rank) : card_of(rank); }
  const Link& link(int level) const { return level == 0 ? cluster_.node : cluster_.network; }

  void begin(int rank, double us);
  double launch(int rank, const Transfer& t, double us);
  void head(std::unique_ptr<Flight> flight, double us);
  void arrive(std::unique_ptr<Flight> flight);
  bool take(int rank, std::unique_ptr<Flight>& flight);
  void finish(int rank, double us);

  const Cluster& cluster_;
  std::vector<Player>& players_;
  Groups groups_;
  std::vector<Rank> ranks_;
  Ports node_ports_, cards_, uplinks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::unordered_map<uint64_t, std::deque<std::unique_ptr<Flight>>> early_;
  std::unordered_map<uint64_t, double> heads_;  // with jitter: by key, of the last message
  int64_t made_ = 0;
  uint64_t launched_ = 0;
  SimResult result_;
};

// The round's messages leave one after the other, and what has come already is taken.
void Simulation::begin(int rank, double us) {
  Player& player = players_[static_cast<size_t>(rank)];
  Rank& self = ranks_[static_cast<size_t>(rank)];
  if (!player.next()) {
    result_.finish_us[static_cast<size_t>(rank)] = us;
    result_.us = std::max(result_.us, us);
    return;
  }
  const auto& transfers = player.round().transfers();
  self.arrived.clear();
  self.arrived.resize(transfers.size());
  self.missing = 0;
  self.sent_us = us;
  self.playing = true;
  double now = us;
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& t = transfers[i];
    if (t.kind == Transfer::Kind::send) {
      now += link(level_of(cluster_, rank, peer_of(rank, t))).overhead_us;
      self.sent_us = std::max(self.sent_us, launch(rank, t, now));
      continue;
    }
    const auto early = early_.find(key_of(rank, peer_of(rank, t), t));
    if (early == early_.end()) {
      ++self.missing;
      continue;
    }
    self.arrived[i] = std::move(early->second.front());
    early->second.pop_front();
    if (early->second.empty()) early_.erase(early);
  }
  self.sent_us = std::max(self.sent_us, now);
  if (self.missing == 0) finish(rank, us);
}

// Gives when the message has left.
double Simulation::launch(int rank, const Transfer& t, double us) {
  Player& player = players_[static_cast<size_t>(rank)];
  const int peer = peer_of(rank, t);
  auto flight = std::make_unique<Flight>();
  flight->from = rank;
  flight->to = peer;
  flight->key = key_of(peer, rank, t);
  flight->wire = t.slot >= 0 ? cells::wire_bytes(player.bytes(t)) : player.bytes(t);
  if (player.moves()) {
    flight->data.resize(static_cast<size_t>(player.bytes(t)));
    player.gather(t, flight->data.data());
  }
  const int level = level_of(cluster_, rank, peer);
  result_.bytes[static_cast<size_t>(level)] += flight->wire;
  ++result_.messages[static_cast<size_t>(level)];
  const double on_wire = static_cast<double>(flight->wire) / (link(level).gb_per_s * 1e3);
  double begins = ports(level).out[port_of(level, rank)].reserve(us, on_wire);
  const double left = begins + on_wire;
  double latency = link(level).latency_us;
  if (level == 2) {
    // Both racks' uplinks carry the message, at the rate of all their cards over the taper.
    const double shared = on_wire * cluster_.taper / (cluster_.rack_nodes * cluster_.nics);
    for (const auto& [side, who] : {std::pair(&uplinks_.out, rank), std::pair(&uplinks_.in, peer)})
      begins = (*side)[static_cast<size_t>(who / cluster_.gpus / cluster_.rack_nodes)].reserve(begins, shared);
    latency += cluster_.rack_latency_us;
  }
  double head = begins + latency;
  if (cluster_.jitter > 0) {
    const auto draw = philox({.seed = cluster_.seed, .stream = 0x73696d}, launched_++)[0];
    latency *= 1 - cluster_.jitter * std::log(static_cast<double>(uniform(draw)));
    // Messages of a lane arrive in order: none overtakes the one before it.
    double& last = heads_[flight->key];
    head = last = std::max(last, begins + latency);
  }
  at(head, Event::Kind::head, peer, flight.release());
  return left;
}

void Simulation::head(std::unique_ptr<Flight> flight, double us) {
  const int level = level_of(cluster_, flight->from, flight->to);
  const double on_wire = static_cast<double>(flight->wire) / (link(level).gb_per_s * 1e3);
  flight->arrival = ports(level).in[port_of(level, flight->to)].reserve(us, on_wire) + on_wire;
  const double arrival = flight->arrival;
  const int to = flight->to;
  at(arrival, Event::Kind::arrive, to, flight.release());
}

void Simulation::arrive(std::unique_ptr<Flight> flight) {
  const int rank = flight->to;
  const double us = flight->arrival;
  Rank& self = ranks_[static_cast<size_t>(rank)];
  if (!self.playing || !take(rank, flight)) {
    early_[flight->key].push_back(std::move(flight));
    return;
  }
  if (--self.missing == 0) finish(rank, us);
}

// The first message of the round that waits for this one.
bool Simulation::take(int rank, std::unique_ptr<Flight>& flight) {
  const auto& transfers = players_[static_cast<size_t>(rank)].round().transfers();
  Rank& self = ranks_[static_cast<size_t>(rank)];
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].kind == Transfer::Kind::send || self.arrived[i]) continue;
    if (key_of(rank, peer_of(rank, transfers[i]), transfers[i]) != flight->key) continue;
    self.arrived[i] = std::move(flight);
    return true;
  }
  return false;
}

// All messages are there: the receiver handles them in the order of arrival, then the local steps run.
void Simulation::finish(int rank, double us) {
  Player& player = players_[static_cast<size_t>(rank)];
  Rank& self = ranks_[static_cast<size_t>(rank)];
  const auto& transfers = player.round().transfers();
  std::vector<std::pair<double, double>> handled;  // arrival, overhead
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (!self.arrived[i]) continue;
    const int flight_peer = self.arrived[i]->from;
    CHECK(self.arrived[i]->wire ==
              (transfers[i].slot >= 0 ? cells::wire_bytes(player.bytes(transfers[i])) : player.bytes(transfers[i])),
          "a message of {} bytes from {} to {}", self.arrived[i]->wire, self.arrived[i]->from, rank);
    if (player.moves()) player.scatter(transfers[i], self.arrived[i]->data.data());
    handled.emplace_back(self.arrived[i]->arrival, link(level_of(cluster_, rank, flight_peer)).overhead_us);
  }
  std::sort(handled.begin(), handled.end());
  double now = self.sent_us;
  for (const auto& [arrival, overhead] : handled) now = std::max(now, arrival) + overhead;
  const int64_t copied = player.copied_bytes(), reduced = player.reduced_bytes();
  player.finish_round();
  now += static_cast<double>(player.copied_bytes() - copied) / (cluster_.copy_gb_per_s * 1e3) +
         static_cast<double>(player.reduced_bytes() - reduced) / (cluster_.reduce_gb_per_s * 1e3);
  self.playing = false;
  self.arrived.clear();
  at(std::max(now, us), Event::Kind::begin, rank);
}

SimResult Simulation::run(std::span<const double> start_us) {
  result_.finish_us.assign(players_.size(), 0);
  for (size_t r = 0; r < players_.size(); ++r)
    at((start_us.empty() ? 0 : start_us[r]) + cluster_.launch_us, Event::Kind::begin, static_cast<int>(r));
  while (!events_.empty()) {
    const Event e = events_.top();
    events_.pop();
    if (e.kind == Event::Kind::begin)
      begin(e.rank, e.us);
    else if (e.kind == Event::Kind::head)
      head(std::unique_ptr<Flight>(e.flight), e.us);
    else
      arrive(std::unique_ptr<Flight>(e.flight));
  }
  for (const Rank& rank : ranks_) CHECK(!rank.playing, "a rank waits for a message that nobody sent");
  CHECK(early_.empty(), "messages were sent that nobody received");
  return result_;
}

}  // namespace

Problem problem_of(const Request& request, int rank, int ranks, int per_node) {
  Problem p{.op = request.op, .rank = rank, .size = ranks, .per_node = per_node, .root = request.root};
  p.element = size_of(request.type);
  p.uniform = request.uniform;
  if (request.op == Op::all_gather || request.op == Op::reduce_scatter)
    p.blocks = Blocks::divided(request.count, ranks);
  else if (request.op == Op::all_to_all)
    p.blocks = p.received = Blocks::equal(request.count / ranks, ranks);
  else if (request.op != Op::barrier)
    p.blocks = Blocks::equal(request.count, 1);
  return p;
}

SimResult simulate(const Cluster& cluster, std::vector<Player>& players, std::span<const double> start_us) {
  CHECK(std::ssize(players) == cluster.ranks(), "{} players for {} ranks", players.size(), cluster.ranks());
  return Simulation(cluster, players, {.size = cluster.ranks()}).run(start_us);
}

SimResult simulate(const Cluster& cluster, const Request& request) {
  return simulate(cluster, request, {.size = cluster.ranks()});
}

int members_per_node(const Cluster& cluster, const Groups& groups) {
  // Most groups are regular, and plans ask for many of them.
  if (groups.stride % cluster.gpus == 0) return 1;
  if (cluster.gpus % groups.stride == 0) {
    const int most = cluster.gpus / groups.stride;
    if (groups.size <= most) return groups.size;
    return groups.size % most == 0 ? most : 0;
  }
  int first = 1;
  while (first < groups.size && groups.member(0, first) / cluster.gpus == 0) ++first;
  if (groups.size % first != 0) return 0;
  for (int i = 0; i < groups.size; ++i) {
    const bool begins = i % first == 0;
    if (i > 0 && begins == (groups.member(0, i) / cluster.gpus == groups.member(0, i - 1) / cluster.gpus)) return 0;
  }
  return first;
}

SimResult simulate(const Cluster& cluster, const Request& request, const Groups& groups) {
  CHECK(cluster.ranks() % (groups.size * groups.stride) == 0, "groups of {}, {} apart, of {} ranks", groups.size,
        groups.stride, cluster.ranks());
  const int per_node = members_per_node(cluster, groups);
  const Algorithm& algorithm = algorithm_for(problem_of(request, 0, groups.size, per_node), request.algorithm);
  std::vector<Player> players;
  players.reserve(static_cast<size_t>(cluster.ranks()));
  for (int r = 0; r < cluster.ranks(); ++r)
    players.emplace_back(algorithm.make(problem_of(request, groups.place(r), groups.size, per_node)), request.type,
                         request.reduction);
  return Simulation(cluster, players, groups).run({});
}

SimResult simulate_shift(const Cluster& cluster, int64_t bytes, int distance) {
  const int ranks = cluster.ranks();
  std::vector<Player> players;
  for (int r = 0; r < ranks; ++r) {
    Schedule schedule;
    const int to = (r + distance) % ranks, from = (r + ranks - distance % ranks) % ranks;
    schedule.once([=](Round& out) {
      out.send(to, Range{Space::in, 0, bytes});
      out.recv(from, Range{Space::out, 0, bytes});
    });
    players.emplace_back(std::move(schedule), DType::u8, Reduction::sum);
  }
  return simulate(cluster, players);
}

}  // namespace braid::comm
