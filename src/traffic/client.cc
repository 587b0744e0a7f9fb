#include "traffic/client.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "sys/error.h"

namespace braid::traffic {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr size_t kHeldMax = 1 << 24;  // bytes of one event, and of the body of a refusal
constexpr int64_t kThreadsMax = 1024;

// When each request is due, in seconds from the first.
std::vector<double> due_times(size_t count, const Pace& pace) {
  std::vector<double> due(count, 0);
  if (pace.rate <= 0) return due;
  std::mt19937_64 bits(pace.seed);
  std::gamma_distribution<double> gap(pace.burstiness, 1 / (pace.rate * pace.burstiness));
  for (size_t i = 1; i < count; ++i) due[i] = due[i - 1] + gap(bits);
  return due;
}

std::string body_of(const Target& target, const Prompt& prompt) {
  ordered_json body = {{"model", target.model},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}},
                       {"temperature", target.temperature}};
  if (target.chat)
    body["messages"] = prompt.content.is_array()
                           ? prompt.content
                           : ordered_json::array({{{"role", "user"}, {"content", prompt.content}}});
  else
    body["prompt"] = prompt.content;
  if (prompt.output_tokens > 0) body["max_tokens"] = prompt.output_tokens;
  if (target.ignore_eos) body["ignore_eos"] = true;
  return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string what_failed(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return "no connection: there is no such host, or nothing listens there";
    case httplib::Error::Read:
      return "the server closed the connection, or sent nothing for ten minutes";
    case httplib::Error::Write:
      return "the request could not be sent";
    default:
      return httplib::to_string(error);
  }
}

std::string word_at(const ordered_json& j, const char* pointer) {
  const ordered_json::json_pointer at(pointer);
  return j.contains(at) && j[at].is_string() ? j[at].get<std::string>() : "";
}

// What an error's body says, or the body.
std::string reason_of(const std::string& body) {
  const std::string message = word_at(ordered_json::parse(body, nullptr, false), "/error/message");
  return message.empty() ? body : message;
}

void note(const std::vector<StreamReader::Event>& events, double now, bool& done, Sample& sample) {
  for (const StreamReader::Event& e : events) {
    if (e.text > 0) sample.arrivals.push_back(now), sample.sizes.push_back(e.text);
    if (e.prompt_tokens >= 0) sample.prompt_tokens = e.prompt_tokens;
    if (e.cached_tokens >= 0) sample.cached_tokens = e.cached_tokens;
    if (e.output_tokens >= 0) sample.output_tokens = e.output_tokens;
    if (!e.error.empty()) sample.error = e.error;
    done = done || e.done;
  }
}

class Sender {
 public:
  Sender(const Target& target, std::span<const Prompt> prompts, const Pace& pace)
      : target_(target), prompts_(prompts), due_(due_times(prompts.size(), pace)), samples_(prompts.size()) {}

  // Takes requests in their order until none is left.
  void work() {
    httplib::Client client(target_.url);
    client.set_read_timeout(600);
    client.set_keep_alive(true);
    if (!target_.key.empty()) client.set_bearer_token_auth(target_.key);
    if (!enter(client)) return;
    for (size_t i = next_++; i < prompts_.size() && wait_until(due_[i]); i = next_++) {
      samples_[i] = send(client, prompts_[i]);
      ++ended_;
    }
    leave(client);
  }
  int64_t ended() const { return ended_; }
  // Requests that are due later are not sent, and the connections of the others end, however long a server is silent.
  void stop() {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    waits_.notify_all();
    for (httplib::Client* client : clients_) client->stop();
  }
  std::vector<Sample> take() { return std::move(samples_); }

 private:
  bool enter(httplib::Client& client) {
    const std::lock_guard lock(mutex_);
    if (!stop_) clients_.insert(&client);
    return !stop_;
  }
  void leave(httplib::Client& client) {
    const std::lock_guard lock(mutex_);
    clients_.erase(&client);
  }
  // False: stopped.
  bool wait_until(double due) {
    std::unique_lock lock(mutex_);
    const auto at = began_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due));
    return !waits_.wait_until(lock, at, [&] { return stop_.load(); });
  }
  double now() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  Sample send(httplib::Client& client, const Prompt& prompt) {
    Sample sample;
    sample.sent = now();
    StreamReader reader;
    std::string refusal;
    bool done = false;
    int status = 0;
    httplib::Request request;
    request.method = "POST";
    request.path = target_.chat ? "/v1/chat/completions" : "/v1/completions";
    request.set_header("Content-Type", "application/json");
    request.body = body_of(target_, prompt);
    request.response_handler = [&](const httplib::Response& r) { return status = r.status, true; };
    request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
      if (status != 200)
        refusal.append(data, std::min(size, kHeldMax - std::min(refusal.size(), kHeldMax)));
      else
        note(reader.push({data, size}), now(), done, sample);
      return !stop_;
    };
    const httplib::Result result = client.send(request);
    sample.ended = now();
    if (!result)
      sample.error = stop_ ? "stopped" : what_failed(result.error());
    else if (status != 200)
      sample.error = fmt::format("{}: {}", status, printable(reason_of(refusal), 300));
    else if (!done && sample.error.empty())
      sample.error = "the stream ended early";
    return sample;
  }

  const Target& target_;
  std::span<const Prompt> prompts_;
  std::vector<double> due_;
  std::vector<Sample> samples_;
  const Clock::time_point began_ = Clock::now();
  std::atomic<size_t> next_ = 0;
  std::atomic<int64_t> ended_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable waits_;
  std::set<httplib::Client*> clients_;  // of the threads that work
};

}  // namespace

std::vector<StreamReader::Event> StreamReader::push(std::string_view bytes) {
  std::vector<Event> out;
  held_ += bytes;
  for (size_t end = held_.find('\n'); end != held_.npos; end = held_.find('\n')) {
    std::string line = held_.substr(0, end);
    held_.erase(0, end + 1);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.starts_with("data:")) continue;  // comments, names of events, the empty lines between them
    line.erase(0, line.starts_with("data: ") ? 6 : 5);
    if (line == "[DONE]") {
      out.push_back({.done = true});
      continue;
    }
    const ordered_json j = ordered_json::parse(line, nullptr, false);
    if (!j.is_object()) {
      out.push_back({.error = "an event is not a JSON object"});
      continue;
    }
    Event e;
    const auto number = [&](const char* pointer) {
      const ordered_json::json_pointer at(pointer);
      return j.contains(at) && j[at].is_number_integer() ? j[at].get<int64_t>() : int64_t{-1};
    };
    e.prompt_tokens = number("/usage/prompt_tokens");
    e.cached_tokens = number("/usage/prompt_tokens_details/cached_tokens");
    e.output_tokens = number("/usage/completion_tokens");
    for (const char* pointer : {"/choices/0/text", "/choices/0/delta/content", "/choices/0/delta/reasoning_content",
                                "/choices/0/delta/reasoning", "/choices/0/delta/tool_calls/0"}) {
      const ordered_json::json_pointer at(pointer);
      if (!j.contains(at)) continue;
      if (j[at].is_string()) e.text += std::ssize(j[at].get_ref<const std::string&>());
      if (j[at].is_object()) e.text += std::max<int64_t>(std::ssize(word_at(j[at], "/function/arguments")), 1);
    }
    if (j.contains("error")) e.error = printable(j["error"].dump(-1, ' ', true), 300);
    out.push_back(std::move(e));
  }
  if (held_.size() > kHeldMax) held_.clear(), out.push_back({.error = "an event has no end"});
  return out;
}

std::vector<Sample> send_all(const Target& target, std::span<const Prompt> prompts, const Pace& pace,
                             const std::function<bool(int64_t)>& progress) {
  const int64_t most = pace.concurrency > 0 ? std::min(pace.concurrency, kThreadsMax) : kThreadsMax;
  Sender sender(target, prompts, pace);
  std::vector<std::jthread> threads;
  for (int64_t i = 0; i < std::min(most, std::ssize(prompts)); ++i) threads.emplace_back([&] { sender.work(); });
  while (sender.ended() < std::ssize(prompts)) {
    if (!progress(sender.ended())) {
      sender.stop();
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  threads.clear();  // joins
  return sender.take();
}

}  // namespace braid::traffic
