// A connection of the HTTP server, with limits that the library has not: on the bytes of a request's line and headers,
// on those of its body however it is sent, and on the time that all of it takes. It also tells whether the client is
// still there.
#pragma once
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "serve/chunk_framing.h"
#include "serve/request_log.h"

namespace braid::serve {

constexpr size_t kBodyMax = size_t{32} << 20;
constexpr int64_t kBodiesMax = int64_t{256} << 20;  // of all connections

// Connections that have a thread, or wait for one.
struct Crowd {
  std::atomic<size_t> held = 0;
  size_t threads = 0;
  bool waits() const { return held > threads; }
  // How long a request may take to arrive: two seconds while others wait for a thread, and the less the more they are,
  // so that a crowd of half-sent ones is gone in some seconds. Zero: nobody waits.
  std::chrono::milliseconds patience() const {
    const auto all = static_cast<int64_t>(held), served = static_cast<int64_t>(threads);
    if (all <= served) return std::chrono::milliseconds(0);
    return std::chrono::milliseconds(std::clamp<int64_t>(1000 * served / (all - served), 100, 2000));
  }
};

// How long writing may wait for a client that does not read: what it takes buys time again, at a rate, so that a few
// bytes now and then do not hold a thread for ever.
class WritePatience {
 public:
  using Seconds = std::chrono::duration<double>;
  explicit WritePatience(Seconds most, double bytes_a_second) : most_(most), rate_(bytes_a_second) {}
  Seconds left() const { return most_ - waited_; }
  void wait(Seconds time) { waited_ += time; }
  void take(size_t bytes) { waited_ = std::max(Seconds(0), waited_ - Seconds(static_cast<double>(bytes) / rate_)); }
  void renew() { waited_ = Seconds(0); }

 private:
  Seconds most_, waited_{0};
  double rate_;
};
constexpr double kReadRateLeast = 1024;  // bytes a second: some five tokens of a stream

class Connection final : public httplib::Stream {
 public:
  Connection(socket_t socket, const Crowd& crowd,
             WritePatience patience = WritePatience(std::chrono::seconds(30), kReadRateLeast));

  void begin_request();
  // Waits for the first byte of a request; false: none came.
  bool wait_for_request(std::chrono::milliseconds patience) const;
  // The client has closed its end: it has left, or only has nothing more to send.
  bool ended() const;
  // It has left: the connection is reset, or both its ends are closed.
  bool lost() const;
  // The same for a client that waits for a whole answer. What tells the two apart is whether it takes what is sent, and
  // an interim response (100) may come before any answer of HTTP/1.1; one of HTTP/1.0 counts as gone.
  bool gone();
  void set_interim(bool available) { interim_ = available; }
  // No other request is read: what follows this one in the connection may be the rest of its body.
  void close_after_this() { closing_ = true; }
  bool closing() const { return closing_; }
  // From here on, until it is taken, bytes of the request's body may be left.
  void expect_body() { body_left_ = true; }
  void take_body() { body_left_ = false; }
  bool expects_body() const { return body_left_; }
  // The body of the request is chunked: reading it fails where its framing is wrong.
  void expect_chunks() { chunks_.emplace(); }
  // Of the request that is being handled.
  RequestRecord& record() { return record_; }
  // The client's address, also when it has left; empty: it cannot be had.
  const std::string& peer() const { return peer_; }

  // Of the request that this thread handles; null outside of one.
  static Connection*& current();

  bool is_readable() const override;
  bool is_writable() const override;  // without waiting: writing does
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  ssize_t take(char* to, size_t size);
  bool wait(short events, std::chrono::milliseconds patience) const;
  bool wait_to_write();
  bool wait_for_more() const;

  socket_t socket_;
  const Crowd& crowd_;
  std::string peer_;
  std::string buffer_;  // received, not read yet: from `begin_` on
  size_t begin_ = 0;
  std::chrono::steady_clock::time_point begun_{}, deadline_{};  // of the whole request
  WritePatience patience_;                                      // with the response
  size_t head_ = 0, body_ = 0;                                  // bytes read of it
  int line_ends_ = 0;                                           // bytes of the empty line that ends the headers
  bool closing_ = false, interim_ = false, asked_ = false;      // asked_: an interim response was sent
  bool body_left_ = false;
  std::optional<ChunkFraming> chunks_;  // of a chunked body
  RequestRecord record_;
};

// Why the library could not listen there; empty: it could have.
std::string why_not_listening(const std::string& host, int port);

// The library's server on such connections, each with a thread while it is open. When others wait for one, a request
// has two seconds to arrive, and no thread waits for a next request: half-sent ones keep nobody out.
class HttpServer final : public httplib::Server {
 public:
  void set_threads(size_t count);
  // After the port is bound: a burst of connections waits to be accepted. The library lets five of them wait.
  void let_many_wait();
  // Ends what is still being written or read.
  void close_all();

 private:
  class Threads;
  bool process_and_close_socket(socket_t socket) override;

  Crowd crowd_;

  std::mutex mutex_;
  std::set<socket_t> open_;
};

}  // namespace braid::serve
