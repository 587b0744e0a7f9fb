// A streamed answer as server-sent events. Each surface has its own form.
#pragma once
#include <string>
#include <vector>

#include "serve/reply.h"
#include "serve/worker.h"

namespace braid::serve {

class AnswerStream {
 public:
  virtual ~AnswerStream() = default;
  virtual std::string begin() = 0;
  // Of answer `i`: what has come, and how it ended.
  virtual std::string news(size_t i, const Reply::News& news) = 0;
  virtual std::string end(size_t i, const Outcome& outcome) = 0;
  // After the last answer has ended, or one has failed: nothing follows.
  virtual std::string finish(const std::vector<const Outcome*>& outcomes) = 0;
  virtual std::string fail(int status, const std::string& type, const std::string& message) = 0;
};

// What has come of an answer, with what came together with its error, and its end.
inline std::string told(AnswerStream& form, size_t i, const Reply::News& news, const Outcome& outcome) {
  std::string out = form.news(i, news);
  if (!news.done) return out;
  if (outcome.error.empty()) return out + form.end(i, outcome);
  const bool stopping = outcome.error == kStopping;
  return out + form.fail(stopping ? 503 : 500, stopping ? "unavailable_error" : "server_error", outcome.error);
}

}  // namespace braid::serve
