// Sends the requests of a load test at their times, and notes when each piece of an answer arrives. One thread for
// every request in flight; the server may be any that speaks OpenAI's HTTP interface with streams.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "traffic/dataset.h"

namespace braid::traffic {

struct Target {
  std::string url = "http://127.0.0.1:8080";  // scheme, host and port; https is not available
  std::string key{};                          // sent as a bearer token; empty: none
  std::string model{};                        // the field of that name
  bool chat = false;                          // /v1/chat/completions; otherwise /v1/completions
  bool ignore_eos = false;                    // generate the whole length
  double temperature = 0;
};

struct Pace {
  double rate = 0;          // requests per second on average; 0: all at once
  double burstiness = 1;    // shape of the gamma distribution of the gaps: 1 is Poisson, less is burstier
  int64_t concurrency = 0;  // requests in flight at most; 0: as many as there are, up to 1,024
  uint64_t seed = 0;
};

// What happened to one request. Times in seconds since the first request was due.
struct Sample {
  double sent = 0, ended = 0;
  std::vector<double> arrivals{};  // of every piece of text
  std::vector<int64_t> sizes{};    // their bytes
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  std::string error{};  // empty: the answer is whole
};

// `progress` receives the number of requests that have ended, and false stops: what has not begun is not sent,
// and what is in flight ends.
std::vector<Sample> send_all(const Target& target, std::span<const Prompt> prompts, const Pace& pace,
                             const std::function<bool(int64_t)>& progress);

// The pieces of a stream of server-sent events, as they come. Public for its test.
class StreamReader {
 public:
  struct Event {
    int64_t text = 0;   // bytes of text for the answer
    bool done = false;  // the stream is complete
    int64_t prompt_tokens = -1, cached_tokens = -1, output_tokens = -1;
    std::string error{};
  };
  // The events that `bytes` complete.
  std::vector<Event> push(std::string_view bytes);

 private:
  std::string held_;
};

}  // namespace braid::traffic
