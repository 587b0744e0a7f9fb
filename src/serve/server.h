// The HTTP server: routes, keys, health and metrics. Its threads parse, wait and write; the worker computes.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/language_model.h"
#include "serve/asked.h"

namespace braid::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                    // 0: any that is free
  std::string key{};                  // that requests must have (Bearer or x-api-key); empty: none
  int64_t parallel = 4, queue = 100;  // requests that are answered at a time, and that may wait; others get 429
  int64_t cached = 8;                 // prefixes that are kept for later prompts
  std::function<void(const std::string&)> log{};  // a line for whoever runs the server, from any thread
};

class Server {
 public:
  // Binds the port, and answers 503 until `load` has been called. Error when the port cannot be had.
  explicit Server(ServerOptions options);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server();  // ends what is running

  int port() const;
  // From now on requests are answered, by this model, which must outlive the server. Of its runner's
  // sequences, `cached` keep prefixes, and the others are answers at once.
  void load(engine::LanguageModel& model, Defaults defaults);
  // Ends what is running, after `grace` at most.
  void stop(std::chrono::milliseconds grace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::serve
