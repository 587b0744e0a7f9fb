#include "serve/request_log.h"

#include <fmt/format.h>

#include <ctime>

#include "sys/error.h"

namespace braid::serve {
namespace {

std::string utc_now() {
  using std::chrono::system_clock;
  const system_clock::time_point now = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, ms);
}

// A word of a line: nothing that a client sends begins another word or line.
std::string word(const std::string& text) {
  std::string out;
  for (const char ch : printable(text, 100)) out += ch == ' ' ? std::string("\\x20") : std::string(1, ch);
  return out.empty() ? "-" : out;
}

std::string milliseconds(int64_t ms) { return ms < 0 ? "-" : std::to_string(ms); }

}  // namespace

std::string log_line(const RequestRecord& record, const std::string& client, const std::string& method,
                     const std::string& path, int status) {
  const auto total = std::chrono::duration_cast<std::chrono::milliseconds>(RequestRecord::Clock::now() - record.begun);
  std::string line = fmt::format("{} {} {} {} {}", utc_now(), word(client), word(method), word(path), status);
  if (record.answers)
    line += fmt::format(" prompt={} cached={} completion={} queue_ms={} first_ms={}", record.prompt_tokens,
                        record.cached_tokens, record.completion_tokens, milliseconds(record.queue_ms),
                        milliseconds(record.first_token_ms));
  line += fmt::format(" total_ms={}", total.count());
  if (record.answers) line += fmt::format(" finish={}", *record.finish ? record.finish : "left");
  return line;
}

}  // namespace braid::serve
