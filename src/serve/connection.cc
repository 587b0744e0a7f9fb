#include "serve/connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

namespace braid::serve {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kHeadMax = size_t{64} << 10;
constexpr size_t kFramingMax = size_t{1} << 20;  // sizes of chunks and trailers beside the body itself
constexpr auto kHeadersMax = 5s, kRequestMax = 120s, kReadMax = 30s;

std::string address_of_peer(socket_t socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char host[NI_MAXHOST] = "";
  const auto* any = reinterpret_cast<const sockaddr*>(&address);
  const bool known = getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
                     getnameinfo(any, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0;
  return known ? host : "";
}

}  // namespace

Connection::Connection(socket_t socket, const Crowd& crowd, WritePatience patience)
    : socket_(socket), crowd_(crowd), peer_(address_of_peer(socket)), patience_(patience) {}

Connection*& Connection::current() {
  struct Handled {
    Connection* connection = nullptr;
  };
  static thread_local Handled handled;
  return handled.connection;
}

void Connection::begin_request() {
  begun_ = Clock::now();
  deadline_ = begun_ + kHeadersMax;
  head_ = body_ = 0;
  line_ends_ = 0;
  record_ = {};
  patience_.renew();
  asked_ = body_left_ = false;
  chunks_.reset();
}

bool Connection::wait(short events, std::chrono::milliseconds patience) const {
  pollfd fd{.fd = socket_, .events = events, .revents = 0};
  int found = 0;
  do found = poll(&fd, 1, static_cast<int>(patience.count()));
  while (found < 0 && errno == EINTR);
  return found > 0;
}

// For bytes of the request that has begun.
bool Connection::wait_for_more() const {
  const auto end = std::min(deadline_, Clock::now() + kReadMax);
  while (Clock::now() < end) {
    if (wait(POLLIN, 50ms)) return true;
    const auto patience = crowd_.patience();
    if (patience > 0ms && Clock::now() > begun_ + patience) return false;
  }
  return false;
}

bool Connection::wait_for_request(std::chrono::milliseconds patience) const {
  return begin_ < buffer_.size() || wait(POLLIN, patience);
}

bool Connection::ended() const {
  char byte = 0;
  const ssize_t got = recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

bool Connection::lost() const {
  pollfd fd{.fd = socket_, .events = 0, .revents = 0};
  return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
}

bool Connection::gone() {
  if (lost()) return true;
  if (!ended()) return false;
  if (!interim_) return true;
  constexpr std::string_view kInterim = "HTTP/1.1 100 Continue\r\n\r\n";
  if (std::exchange(asked_, true)) return false;
  return write(kInterim.data(), kInterim.size()) < 0;
}

bool Connection::is_readable() const { return begin_ < buffer_.size() || wait_for_more(); }

bool Connection::is_writable() const { return !lost(); }

bool Connection::wait_to_write() {
  const auto begun = Clock::now();
  const auto most = std::chrono::ceil<std::chrono::milliseconds>(patience_.left());
  const bool can = most > 0ms && wait(POLLOUT, most);
  patience_.wait(Clock::now() - begun);
  return can;
}

// The library reads heads byte by byte, so what arrives is buffered.
ssize_t Connection::take(char* to, size_t size) {
  if (begin_ == buffer_.size()) {
    if (!wait_for_more()) return -1;
    constexpr size_t kBuffer = 16384;
    buffer_.resize(kBuffer);
    begin_ = 0;
    ssize_t got = 0;
    do got = recv(socket_, buffer_.data(), kBuffer, 0);
    while (got < 0 && errno == EINTR);
    buffer_.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0) return got;
  }
  const size_t n = std::min(size, buffer_.size() - begin_);
  std::memcpy(to, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::read(char* to, size_t size) {
  constexpr int kEmptyLine = 2;  // two line feeds, carriage returns aside
  const bool head = line_ends_ < kEmptyLine;
  if (head ? head_ >= kHeadMax : body_ >= kBodyMax + kFramingMax) {
    constexpr std::string_view kTooLong =
        "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Type: application/json\r\n"
        "Content-Length: 121\r\n\r\n"
        R"({"error":{"message":"the request line and headers are too long","type":"invalid_request_error","param":null,"code":null}})";
    if (head) (void)write(kTooLong.data(), kTooLong.size());
    closing_ = true;
    return -1;
  }
  const ssize_t got = take(to, head ? 1 : size);
  if (got <= 0) return got;
  if (head) {
    ++head_;
    line_ends_ = *to == '\n' ? line_ends_ + 1 : *to == '\r' ? line_ends_ : 0;
    if (line_ends_ == kEmptyLine) deadline_ = Clock::now() + kRequestMax;
  } else {
    body_ += static_cast<size_t>(got);
    if (chunks_ && !chunks_->take({to, static_cast<size_t>(got)})) return -1;
  }
  return got;
}

ssize_t Connection::write(const char* from, size_t size) {
  size_t sent = 0;
  while (sent < size) {
    if (!wait_to_write()) return -1;
    const ssize_t n = send(socket_, from + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
    if (n <= 0) return -1;
    sent += static_cast<size_t>(n);
    patience_.take(static_cast<size_t>(n));
  }
  return static_cast<ssize_t>(size);
}

// Nothing here asks for them.
void Connection::get_remote_ip_and_port(std::string& ip, int& port) const { ip.clear(), port = 0; }
void Connection::get_local_ip_and_port(std::string& ip, int& port) const { ip.clear(), port = 0; }

std::string why_not_listening(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_flags = AI_PASSIVE;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (unknown != 0) return gai_strerror(unknown);
  std::string out;
  for (const addrinfo* a = found; a && out.empty(); a = a->ai_next) {
    const int fd = ::socket(a->ai_family, a->ai_socktype, a->ai_protocol), yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd < 0 || ::bind(fd, a->ai_addr, a->ai_addrlen) != 0 || ::listen(fd, 1) != 0) out = std::strerror(errno);
    if (fd >= 0) ::close(fd);
  }
  freeaddrinfo(found);
  return out;
}

class HttpServer::Threads final : public httplib::TaskQueue {
 public:
  explicit Threads(Crowd& crowd) : crowd_(crowd), pool_(crowd.threads) {}
  void enqueue(std::function<void()> handle) override {
    ++crowd_.held;
    pool_.enqueue([this, handle = std::move(handle)] {
      handle();
      --crowd_.held;
    });
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  Crowd& crowd_;
  httplib::ThreadPool pool_;
};

void HttpServer::set_threads(size_t count) {
  crowd_.threads = count;
  new_task_queue = [this] { return new Threads(crowd_); };
}

void HttpServer::let_many_wait() { ::listen(svr_sock_, SOMAXCONN); }

void HttpServer::close_all() {
  const std::lock_guard lock(mutex_);
  for (const socket_t socket : open_) ::shutdown(socket, SHUT_RDWR);
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  Connection connection(socket, crowd_);
  Connection::current() = &connection;
  {
    const std::lock_guard lock(mutex_);
    open_.insert(socket);
  }
  bool good = false;
  const auto next_request = [&] {
    const auto end = Clock::now() + std::chrono::seconds(keep_alive_timeout_sec_);
    while (svr_sock_ != INVALID_SOCKET && Clock::now() < end) {
      if (connection.wait_for_request(100ms)) return true;
      if (crowd_.waits()) return false;
    }
    return false;
  };
  for (size_t left = keep_alive_max_count_; left > 0 && next_request(); --left) {
    bool closed = false;
    connection.begin_request();
    try {
      good = process_request(connection, left == 1, closed, nullptr);
    } catch (...) {  // while the answer was written, where the library catches nothing: this connection alone ends
      good = false;
    }
    if (!good || closed || connection.closing()) break;
  }
  Connection::current() = nullptr;
  const std::lock_guard lock(mutex_);
  open_.erase(socket);
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  return good;
}

}  // namespace braid::serve
