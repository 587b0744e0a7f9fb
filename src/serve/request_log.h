// What the log says of one request: a line once it is over. It never holds a prompt or an answer.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace braid::serve {

// Written by the thread that handles the request.
struct RequestRecord {
  using Clock = std::chrono::steady_clock;
  Clock::time_point begun = Clock::now();
  // Of a request for answers; the times in milliseconds since it was handed to the worker; -1: not so far.
  bool answers = false;
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  int64_t queue_ms = -1, first_token_ms = -1;
  const char* finish = "";  // of the answer that ended last
};

// TIME CLIENT METHOD PATH STATUS prompt=N cached=N completion=N queue_ms=N first_ms=N total_ms=N finish=WORD, in UTC;
// of a request that is not for answers the total time alone. A finish of `left` is that of a client that went away.
std::string log_line(const RequestRecord& record, const std::string& client, const std::string& method,
                     const std::string& path, int status);

}  // namespace braid::serve
