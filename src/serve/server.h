// The HTTP server: routes, keys, health and metrics. Its threads parse, wait and write; the worker computes.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/language_model.h"
#include "serve/asked.h"

namespace braid::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                     // 0: any that is free
  std::vector<std::string> origins{};  // other origins whose pages may use the server; *: all
  std::string key{};                   // that requests must have (Bearer or x-api-key); empty: none
  int64_t parallel = 4, queue = 100;   // requests that are answered at a time, and that may wait; others get 429
  std::string cache_file{};            // where cached prefixes are kept from one process to the next; empty: nowhere
  // The longest silence of a stream, queued or reading a prompt or generating what is not shown yet: clients take a
  // connection without a byte in five seconds for dead.
  std::chrono::milliseconds silence_max{4000};
  std::function<void(const std::string&)> log{};       // a line for the operator, from any thread
  std::function<void(const std::string&)> requests{};  // a line for each request that is over (request_log.h), likewise
};

class Server {
 public:
  // Binds the port, and answers 503 until `load` has been called. Error when the port cannot be had.
  explicit Server(ServerOptions options);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();  // ends what is running

  int port() const;
  int64_t active() const;  // requests that are answered, or wait
  // From now on requests are answered, by this model, which must outlive the server. Returns what to tell
  // the user: that the file of cached prefixes was ignored, or that the template renders no plain chat.
  std::vector<std::string> load(engine::LanguageModel& model, Defaults defaults, engine::DraftOptions drafts = {});
  // Ends what is running, after `grace` at most.
  void stop(std::chrono::milliseconds grace);
  // After `stop`: writes the file of cached prefixes, if there is one. Error when that fails.
  void save_cache();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::serve
