#include "environments/command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <utility>

#include "io/ordered_json.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::environments {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr size_t kReplyMax = size_t{1} << 20;  // bytes
constexpr int kTries = 3;                      // for a problem
constexpr const char* kEnded = "the command ended";
constexpr const char* kUnread = "the command ended without reading a line";

// null where a line is not JSON within the limits.
ordered_json parsed(const std::string& line) {
  try {
    return io::parse_ordered(line, "reply", {}, {.values = 1 << 16});
  } catch (const Error&) {
    return nullptr;
  }
}

bool is_chat(const ordered_json& messages) {
  return messages.is_array() && !messages.empty() && std::ranges::all_of(messages, [](const ordered_json& m) {
           const auto is_text = [&m](const char* key) { return m.contains(key) && m[key].is_string(); };
           return m.is_object() && is_text("role") && is_text("content");
         });
}

std::string dumped(const ordered_json& line) {
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// Waits until the socket is ready for `events`; false: not in time. Throws Interrupted soon after a signal, which may
// have come just before the wait.
bool ready(int socket, short events, Clock::time_point until) {
  constexpr int64_t kSlice = 100;  // ms
  while (true) {
    if (sys::caught_signal() != 0) throw sys::Interrupted();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waited{.fd = socket, .events = events, .revents = 0};
    const int found = poll(&waited, 1, static_cast<int>(std::min(left, kSlice)));
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) return false;
  }
}

}  // namespace

// One socket is its standard input and output: writing to a program that has ended is then an error, not a signal.
void Command::start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail_environment("rollout.environments", {.what = "no socket for a command", .got = std::strerror(errno)});
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], 0);
  posix_spawn_file_actions_adddup2(&files, ends[1], 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t ignored;  // by this process, not by commands
  sigemptyset(&ignored);
  sigaddset(&ignored, SIGPIPE);
  sigaddset(&ignored, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &ignored);
  // A group of its own, to be stopped as a whole.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  std::string shell = "sh", option = "-c";
  char* arguments[] = {shell.data(), option.data(), command_.data(), nullptr};
  const int problem = posix_spawn(&child_, "/bin/sh", &files, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  socket_ = ends[0];
  read_.clear();
  if (problem == 0) {
    fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
    return;
  }
  child_ = -1;
  stop();
  fail_environment("rollout.environments", {.what = "a command cannot be started", .got = std::strerror(problem)});
}

void Command::stop() {
  if (socket_ >= 0) close(std::exchange(socket_, -1));
  if (child_ < 0) return;
  kill(-child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
}

// Writes a line and reads one. Returns what went wrong; empty: nothing.
std::string Command::exchange(const std::string& line, std::string& reply) {
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_));
  const std::string late = fmt::format("no reply within {:g} s", seconds_);
  size_t sent = 0;
  while (sent < line.size()) {
    if (!ready(socket_, POLLOUT, until)) return late;
    const ssize_t n = send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n > 0) sent += static_cast<size_t>(n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) break;  // it has ended, and may have written something before
  }
  size_t end = 0;
  while ((end = read_.find('\n')) == std::string::npos) {
    if (read_.size() > kReplyMax) return "a reply without an end";
    if (!ready(socket_, POLLIN, until)) return late;
    char buffer[4096];
    const ssize_t n = recv(socket_, buffer, sizeof buffer, 0);
    if (n > 0) read_.append(buffer, static_cast<size_t>(n));
    // With a line left unread the other end is closed by a reset.
    if (n < 0 && errno != EAGAIN && errno != EINTR) return kUnread;
    if (n == 0) return sent < line.size() ? kUnread : kEnded;
  }
  reply = read_.substr(0, end);
  read_.erase(0, end + 1);
  return {};
}

// Whether the command has written a line that nothing asked for, which would be taken for the next reply.
bool Command::has_unasked() const {
  char byte;
  return !read_.empty() || recv(socket_, &byte, 1, MSG_PEEK) > 0;
}

Command::Reply Command::ask(const ordered_json& line) {
  constexpr const char* kUnasked = "more than one line for a question";
  if (child_ >= 0 && has_unasked()) {
    stop();  // which reply was meant for the question before is not known
    return {.error = kUnasked};
  }
  const bool has_replied = child_ >= 0;
  if (!has_replied) start();
  std::string text;
  Reply reply{.error = exchange(dumped(line), text)};
  // Some programs reply to one line and end; that this one has may show only now. One that ends over a line has failed.
  if (has_replied && reply.error == kUnread && read_.empty()) {
    stop();
    start();
    reply.error = exchange(dumped(line), text);
  }
  if (reply.error.empty()) {
    reply.object = parsed(text);
    if (!reply.object.is_object()) reply.error = "a reply that is not a JSON object: " + printable(text, 60);
    if (has_unasked()) reply.error = kUnasked;
  }
  if (!reply.error.empty()) stop();
  return reply;
}

Problem Command::problem(synth::Draw& draw, int64_t level) {
  const ordered_json line = {{"problem", {{"seed", draw.below((int64_t{1} << 31) - 1)}, {"level", level}}}};
  std::string error;
  for (int i = 0; i < kTries; ++i) {
    const Reply reply = ask(line);
    error = reply.error;
    if (!error.empty()) continue;
    Problem problem;
    const auto take = [&](const char* name, ordered_json& to) {
      if (const auto found = reply.object.find(name); found != reply.object.end()) to = *found;
    };
    take("messages", problem.messages);
    take("tools", problem.tools);
    take("secret", problem.secret);
    ordered_json prompt;
    take("prompt", prompt);
    if (prompt.is_string())
      problem.messages = ordered_json::array({ordered_json{{"role", "user"}, {"content", prompt}}});
    if (is_chat(problem.messages) && (problem.tools.is_null() || problem.tools.is_array())) return problem;
    error = "a problem without 'prompt' or 'messages' of texts";
  }
  throw Error(Fault::failed_run,
              format_message("rollout.environments",
                             {.what = fmt::format("the command {} gave no problem", printable(command_, 60)),
                              .got = fmt::format("{}, {} times", error, kTries),
                              .expected = R"(a line like {"prompt": "2 + 3 ="})"}));
}

Verdict Command::judge(const Problem& problem, const Answer& answer) {
  ordered_json question = {{"messages", problem.messages}, {"secret", problem.secret}, {"answer", answer.text}};
  question["cut"] = answer.cut;
  const Reply reply = ask({{"judge", std::move(question)}});
  if (!reply.error.empty()) return {.error = reply.error};
  const auto reward = reply.object.find("reward");
  if (reward == reply.object.end() || !reward->is_number())  // NaN is no JSON, null a library's way to write it
    return {.error = "a verdict without a reward that is a number"};
  const auto value = reward->get<double>();
  if (!std::isfinite(value)) return {.error = "a reward that is not finite"};
  if (std::abs(value) > kRewardMax) return {.error = "a reward beyond 1e9"};
  return {.reward = value};
}

}  // namespace braid::environments
