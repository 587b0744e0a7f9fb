#include "comm/tcp.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "comm/frames.h"
#include "comm/processes.h"
#include "sys/check.h"
#include "sys/error.h"

namespace braid::comm {
namespace {

constexpr int kStartSeconds = 60;  // others may start later

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

int checked(int result, const char* what) {
  if (result < 0) fail_environment("comm tcp", {.what = fmt::format("{} failed", what), .got = std::strerror(errno)});
  return result;
}

sockaddr_in loopback() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A socket that listens there; on port 0 on a free one, which the address then has.
Socket listener(int backlog, sockaddr_in* address) {
  Socket s(checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  const int on = 1;
  checked(setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), "setsockopt");
  socklen_t length = sizeof(*address);
  checked(bind(s.fd(), reinterpret_cast<sockaddr*>(address), length), "bind");
  checked(listen(s.fd(), backlog), "listen");
  checked(getsockname(s.fd(), reinterpret_cast<sockaddr*>(address), &length), "getsockname");
  return s;
}

class Tcp final : public Transport {
 public:
  // `processes`: of this machine, started together; null: nobody knows why a peer ends.
  Tcp(std::vector<Socket> peers, Processes* processes, int rank)
      : peers_(std::move(peers)), processes_(processes), rank_(rank), writers_(peers_.size()), ended_(peers_.size()) {
    for (int peer = 0; peer < size(); ++peer) readers_.emplace_back(peer, mailbox_);
  }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  void send(Message& m) override {
    writers_[static_cast<size_t>(m.peer)].add(m);
    write_to(static_cast<size_t>(m.peer));
  }
  void recv(Message& m) override { mailbox_.recv(m); }
  void progress(std::chrono::microseconds patience) override;
  void forget() noexcept override {
    mailbox_.forget();
    for (FrameWriter& writer : writers_) writer.forget();
    for (FrameReader& reader : readers_) reader.forget();
  }
  std::byte* window(uint64_t, int, int64_t) override { return nullptr; }

 private:
  bool write_to(size_t peer);
  bool read_from(size_t peer);

  std::vector<Socket> peers_;
  void look() {
    if (processes_) processes_->look();
  }

  Processes* processes_;
  int rank_;
  Mailbox mailbox_;
  std::vector<FrameWriter> writers_;
  std::deque<FrameReader> readers_;
  std::vector<std::optional<int>> ended_;  // by which error, 0 where the peer closed the connection
};

bool Tcp::write_to(size_t peer) {
  bool moved = false;
  while (!writers_[peer].empty()) {
    const auto bytes = writers_[peer].pending();
    const ssize_t n = ::send(peers_[peer].fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n < 0) {
      look();  // why it is gone, if that is known
      fail_environment("comm tcp",
                       {.what = fmt::format("nothing can be sent to rank {}", peer), .got = std::strerror(errno)});
    }
    writers_[peer].sent(static_cast<size_t>(n));
    moved = true;
  }
  return moved;
}

bool Tcp::read_from(size_t peer) {
  bool moved = false;
  while (!ended_[peer]) {
    const auto room = readers_[peer].room();
    const ssize_t n = ::recv(peers_[peer].fd(), room.data(), room.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n <= 0) {
      ended_[peer] = n < 0 ? errno : 0;
      break;
    }
    readers_[peer].got(static_cast<size_t>(n));
    moved = true;
  }
  return moved;
}

void Tcp::progress(std::chrono::microseconds patience) {
  bool moved = false;
  std::vector<pollfd> waiting;
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (static_cast<int>(peer) == rank_) continue;
    moved |= read_from(peer);
    moved |= write_to(peer);
    const auto events = static_cast<short>(POLLIN | (writers_[peer].empty() ? 0 : POLLOUT));
    if (!ended_[peer]) waiting.push_back({peers_[peer].fd(), events, 0});
  }
  if (moved) return;
  look();
  for (int peer = 0; peer < size(); ++peer) {
    if (!ended_[static_cast<size_t>(peer)] || !mailbox_.waits_for(peer)) continue;
    for (int tries = 0; processes_ && tries < 100; ++tries) {  // why it ended is known soon
      usleep(10'000);
      look();
    }
    if (const int error = *ended_[static_cast<size_t>(peer)]; error != 0)
      fail_environment("comm tcp", {.what = fmt::format("rank {} was lost", peer), .got = std::strerror(error)});
    fail_environment("comm tcp", {.what = fmt::format("rank {} closed its connection", peer)});
  }
  const auto ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(patience).count());
  if (patience.count() > 0) poll(waiting.data(), waiting.size(), ms);
}

using Clock = std::chrono::steady_clock;

// Seconds within which a call on this socket returns; 0: none.
void limit_waits(const Socket& s, int seconds) {
  const timeval limit{.tv_sec = seconds, .tv_usec = 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    checked(setsockopt(s.fd(), SOL_SOCKET, option, &limit, sizeof(limit)), "setsockopt");
}

Socket connected_to(const sockaddr_in& to, int rank, Clock::time_point end) {
  Socket s(checked(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  limit_waits(s, kStartSeconds);
  while (connect(s.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) < 0) {
    const bool early = errno == ECONNREFUSED || errno == EHOSTUNREACH || errno == ENETUNREACH;
    if (!early || Clock::now() >= end) checked(-1, "connect");
    usleep(100'000);
  }
  const auto me = static_cast<uint32_t>(rank);
  if (::send(s.fd(), &me, sizeof(me), MSG_NOSIGNAL) != sizeof(me)) checked(-1, "send");
  limit_waits(s, 0);
  return s;
}

// A round's small messages are not to wait for each other's acknowledgements; and a machine that vanished without a
// word is noticed half a minute after the last byte, unless bytes to it are on their way: for those the system's own
// limit counts. (TCP_USER_TIMEOUT would shorten that, but also end a connection whose peer computes for so long.)
void set_options(const Socket& s) {
  const std::tuple<int, int, int> options[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                                               {SOL_SOCKET, SO_KEEPALIVE, 1},
                                               {IPPROTO_TCP, TCP_KEEPIDLE, 10},
                                               {IPPROTO_TCP, TCP_KEEPINTVL, 5},
                                               {IPPROTO_TCP, TCP_KEEPCNT, 4}};
  for (const auto& [level, name, value] : options)
    checked(setsockopt(s.fd(), level, name, &value, sizeof(value)), "setsockopt");
}

// Each rank connects to those before it, sends its number, and accepts those after it. A connection that sends nothing
// within a second, or the number of no rank that is missing, is closed.
std::vector<Socket> connect_all(int rank, const Socket& listening, std::span<const sockaddr_in> addresses) {
  std::vector<Socket> peers(addresses.size());
  const Clock::time_point end = Clock::now() + std::chrono::seconds(kStartSeconds);
  for (int peer = 0; peer < rank; ++peer)
    peers[static_cast<size_t>(peer)] = connected_to(addresses[static_cast<size_t>(peer)], rank, end);
  for (size_t missing = addresses.size() - static_cast<size_t>(rank) - 1; missing > 0;) {
    pollfd ready{listening.fd(), POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) != 1)
      fail_environment("comm tcp", {.what = fmt::format("a rank did not connect within {} s", kStartSeconds)});
    Socket s(checked(accept4(listening.fd(), nullptr, nullptr, SOCK_CLOEXEC), "accept"));
    limit_waits(s, 1);
    uint32_t who = 0;
    if (::recv(s.fd(), &who, sizeof(who), MSG_WAITALL) != sizeof(who) || who >= addresses.size() ||
        who <= static_cast<uint32_t>(rank) || peers[who].fd() >= 0)
      continue;
    limit_waits(s, 0);
    peers[who] = std::move(s);
    --missing;
  }
  for (const Socket& s : peers) {
    if (s.fd() >= 0) set_options(s);
  }
  return peers;
}

sockaddr_in address_of(const std::string& host) {
  const size_t colon = host.rfind(':');
  const std::string name = host.substr(0, colon);
  int port = 0;
  if (colon != std::string::npos) {
    const char* end = host.data() + host.size();
    const auto [rest, error] = std::from_chars(host.data() + colon + 1, end, port);
    if (error != std::errc() || rest != end) port = 0;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (port < 1 || port > 65535 || inet_pton(AF_INET, name.c_str(), &address.sin_addr) != 1)
    fail("--hosts", {.what = "is not an address of a rank", .got = printable(host), .expected = "10.0.0.1:4000, ..."});
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

}  // namespace

void run_over_hosts(const Place& place, const Options& options, const std::function<void(Group& world)>& body) {
  std::vector<sockaddr_in> addresses;
  addresses.reserve(place.hosts.size());
  for (const std::string& host : place.hosts) addresses.push_back(address_of(host));
  CHECK(place.rank >= 0 && place.rank < static_cast<int>(addresses.size()), "rank {}", place.rank);
  const Socket listening = listener(static_cast<int>(addresses.size()), &addresses[static_cast<size_t>(place.rank)]);
  Group world(std::make_unique<Tcp>(connect_all(place.rank, listening, addresses), nullptr, place.rank), options);
  body(world);
  world.barrier().wait();  // nobody closes while another still reads
}

namespace {
std::string machine_of(const std::string& host) { return host.substr(0, host.rfind(':')); }
}  // namespace

int ranks_beside(const Place& place) {
  const std::string own = machine_of(place.hosts[static_cast<size_t>(place.rank)]);
  return static_cast<int>(std::count_if(place.hosts.begin(), place.hosts.end(),
                                        [&](const std::string& host) { return machine_of(host) == own; }));
}

int node_ranks_of(const std::vector<std::string>& hosts) {
  std::vector<int> runs;
  std::set<std::string> seen;
  std::string last;
  for (const std::string& host : hosts) {
    const std::string name = machine_of(host);
    if (!runs.empty() && name == last) {
      ++runs.back();
      continue;
    }
    if (!seen.insert(name).second) return 0;
    runs.push_back(1);
    last = name;
  }
  const bool equal = std::all_of(runs.begin(), runs.end(), [&](int n) { return n == runs[0]; });
  return equal && !runs.empty() ? runs[0] : 0;
}

void run_over_loopback(int size, const Options& options, const std::function<void(Group& world)>& body) {
  std::vector<sockaddr_in> addresses(static_cast<size_t>(size));
  std::vector<Socket> listening;
  listening.reserve(addresses.size());
  for (sockaddr_in& address : addresses) {
    address = loopback();
    listening.push_back(listener(size, &address));
  }
  Processes processes;
  processes.run(
      size,
      [&](int rank) {
        std::vector<Socket> peers = connect_all(rank, listening[static_cast<size_t>(rank)], addresses);
        Group world(std::make_unique<Tcp>(std::move(peers), &processes, rank), options);
        body(world);
      },
      [] {});  // those that wait look every few milliseconds
}

}  // namespace braid::comm
