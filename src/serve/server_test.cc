// The server on a socket, before it has a model: how the length of a body is told, and what is refused unread.
#include "serve/server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/language_model.h"
#include "serve/chunk_framing.h"
#include "serve/connection.h"
#include "support/data.h"

namespace braid::serve {
namespace {

int connected_to(int port) {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(s, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return s;
}

// Everything that comes back until the server closes the connection; `watch` sees it grow.
std::string answer_to(
    int port, const std::string& request,
    const std::function<void(const std::string&)>& watch = [](const std::string&) {}) {
  const int s = connected_to(port);
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  EXPECT_EQ(send(s, request.data(), request.size(), MSG_NOSIGNAL), std::ssize(request));
  std::string out;
  char buffer[4096];
  for (ssize_t n = 0; (n = recv(s, buffer, sizeof buffer, 0)) > 0;) {
    out.append(buffer, static_cast<size_t>(n));
    watch(out);
  }
  close(s);
  return out;
}

std::string post(const std::string& headers, const std::string& body = "") {
  return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n" + body;
}

int64_t answers_in(const std::string& text) {
  int64_t count = 0;
  for (size_t at = 0; (at = text.find("HTTP/1.1 ", at)) != text.npos; ++at) ++count;
  return count;
}

struct Case {
  std::string headers, body;
  const char *status, *says;
};

TEST(Server, TheLengthOfABodyIsToldOnce) {
  Server server({.port = 0});
  const std::string next = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string last = "Connection: close\r\n";
  const Case cases[] = {
      {"", "", "411", "the length of the body is not given"},
      {"", next, "411", "the length of the body is not given"},
      {"Content-Length: 2\r\nContent-Length: 3\r\n", "{}", "400", "given twice"},
      {"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n", "400", "given twice"},
      {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n", "400", "given twice"},
      {"Content-Length: -1\r\n", "", "400", "not a number"},
      {"Content-Length: +2\r\n", "{}", "400", "not a number"},
      {"Content-Length: 0x2\r\n", "{}", "400", "not a number"},
      {"Content-Length: 99999999999999999999\r\n", "", "400", "not a number"},
      {"Transfer-Encoding: gzip, chunked\r\n", "", "400", "except as chunked"},
      {"Content-Length: 33554433\r\n", "", "413", "larger than"},
      // Bodies that are read: only then does the server say that it has no model yet.
      {last + "Content-Length: 2\r\n", "{}", "503", "being loaded"},
      {last + "Content-Length: 0\r\n", "", "503", "being loaded"},
      {last + "Transfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n", "503", "being loaded"},
  };
  for (const Case& c : cases) {
    const std::string got = answer_to(server.port(), post(c.headers, c.body));
    EXPECT_TRUE(got.starts_with("HTTP/1.1 " + std::string(c.status))) << c.headers << got;
    EXPECT_NE(got.find(c.says), got.npos) << c.headers << got;
    EXPECT_EQ(answers_in(got), 1) << c.headers << got;  // what follows may be the rest of the body
  }
  EXPECT_EQ(answers_in(answer_to(server.port(), next + post(last + "Content-Length: 2\r\n", "{}"))), 2);
}

// One answer, and the end of the connection: what a body holds that is not read, or not to its end, is no request.
TEST(Server, NoRequestIsLookedForInABody) {
  Server server({.port = 0});
  const std::string hidden = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                    length = "Content-Length: " + std::to_string(hidden.size()) + "\r\n",
                    chunks = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", hidden.size(), hidden);
  for (const std::string method : {"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"}) {
    for (const std::string path : {"/health", "/v1/completions"}) {
      const std::string head = method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n";
      for (const std::string& request :
           {head + length + "\r\n" + hidden, head + "Transfer-Encoding: chunked\r\n\r\n" + chunks}) {
        const std::string got = answer_to(server.port(), request);
        EXPECT_TRUE(got.starts_with("HTTP/1.1 400")) << request << got;
        EXPECT_EQ(answers_in(got), 1) << request << got;
      }
    }
  }
  const std::string parts =
      "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + std::string(40'000, 'A') + "\r\n" + hidden;
  for (const std::string type :
       {"multipart/form-data; boundary=x", "Multipart/Form-Data;boundary=x", "multipart/mixed"}) {
    const std::string got = answer_to(
        server.port(),
        post("Content-Type: " + type + "\r\nContent-Length: " + std::to_string(parts.size()) + "\r\n", parts));
    EXPECT_TRUE(got.starts_with("HTTP/1.1 415")) << type << got;
    EXPECT_EQ(answers_in(got), 1) << type << got;
  }
  EXPECT_EQ(answers_in(answer_to(server.port(), "GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" +
                                                    post("Connection: close\r\nContent-Length: 2\r\n", "{}"))),
            2);
}

TEST(Server, ChunksAreFramedWhereverTheyAreCut) {
  const std::string good = "2;a=b\r\n{}\r\n00A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", bad = "2\r\n{}0\r\n\r\n";
  for (size_t step = 1; step <= good.size(); ++step) {
    const auto framed = [&](const std::string& body) {
      ChunkFraming framing;
      for (size_t at = 0; at < body.size(); at += step) {
        if (!framing.take(std::string_view(body).substr(at, step))) return false;
      }
      return true;
    };
    EXPECT_TRUE(framed(good)) << step;
    EXPECT_FALSE(framed(bad)) << step;
  }
}

// 200 KB a second for a writer that expects 1 MB: that some are taken every few milliseconds does not help.
TEST(Connection, AClientThatReadsTooSlowlyIsGivenUp) {
  using namespace std::chrono_literals;
  const auto written = [](size_t bytes, std::chrono::milliseconds pause) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    const int buffer_bytes = 16384;  // so that a few reads make room
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    Crowd crowd;
    Connection connection(ends[0], crowd, WritePatience(500ms, 1e6));
    std::thread reader([&] {
      std::array<char, 4096> buffer{};
      while (recv(ends[1], buffer.data(), buffer.size(), 0) > 0) {
        if (pause > 0ms) std::this_thread::sleep_for(pause);
      }
    });
    const std::string text(bytes, 'x');
    const ssize_t sent = connection.write(text.data(), text.size());
    shutdown(ends[0], SHUT_RDWR);
    reader.join();
    close(ends[0]);
    close(ends[1]);
    return sent;
  };
  EXPECT_EQ(written(4 << 20, 20ms), -1);
  EXPECT_EQ(written(4 << 20, 0ms), 4 << 20);
}

// Half-sent requests hold the threads one crowd after the other, and a request that comes last waits for all of them.
TEST(Connection, ACrowdOfHalfSentRequestsIsGoneInSeconds) {
  using namespace std::chrono_literals;
  for (const size_t all : {65, 250, 1000, 10000}) {
    Crowd crowd{.held = all, .threads = 64};
    auto waited = 0ms, before = 0ms;
    for (; crowd.waits(); crowd.held -= std::min(crowd.held.load(), crowd.threads)) {
      EXPECT_GE(crowd.patience(), std::max(before, 100ms));  // which an honest client keeps to
      before = crowd.patience();
      waited += before;
    }
    EXPECT_EQ(crowd.patience(), 0ms);  // nobody waits
    EXPECT_LE(waited, all < 1000 ? 5s : 25s) << all;
  }
}

TEST(Connection, WhatIsReadBuysTimeAgain) {
  using Seconds = WritePatience::Seconds;
  WritePatience patience(Seconds(30), 1024);
  for (int i = 0; i < 1000; ++i) {  // at the rate: for ever
    EXPECT_GT(patience.left(), Seconds(29)) << i;
    patience.wait(Seconds(1));
    patience.take(1024);
  }
  patience.take(1 << 30);  // but not for later
  for (int i = 0; i < 29; ++i) patience.wait(Seconds(1)), patience.take(1);
  EXPECT_GT(patience.left(), Seconds(0));
  patience.wait(Seconds(2));
  EXPECT_LT(patience.left(), Seconds(0));
  patience.renew();
  EXPECT_EQ(patience.left(), Seconds(30));
}

TEST(Server, AnExceptionEndsOneConnection) {
  std::atomic<int> thrown = 0;
  Server server({.port = 0, .requests = [&](const std::string&) {
                   if (++thrown <= 40) throw std::runtime_error("the log is full");
                 }});
  const std::string health = "GET /health HTTP/1.1\r\nHost: localhost\r\n", last = "Connection: close\r\n\r\n";
  // As many as threads that could end with it would do.
  for (int i = 0; i < 40; ++i) EXPECT_EQ(answers_in(answer_to(server.port(), health + "\r\n" + health + last)), 1);
  EXPECT_EQ(answers_in(answer_to(server.port(), health + "\r\n" + health + last)), 2);
}

// While the thread that computes is held up, a stream that waits for its turn and one that has begun get comments; so
// does one whose tokens show nothing.
TEST(Server, AStreamIsNeverSilent) {
  using namespace std::chrono_literals;
  std::atomic<bool> held = false;
  engine::LanguageModel model(support::data("tiny-chat"),
                              {.context = 256, .sequences = 1, .memory = 16 << 20, .spare_slots = 1, .threads = 1});
  Server server({.port = 0, .parallel = 1, .silence_max = 40ms});
  const auto hold = [&](std::span<const int32_t>, int64_t) {
    if (!held.exchange(true)) std::this_thread::sleep_for(600ms);
    return std::vector<int32_t>{};
  };
  Defaults defaults;
  defaults.model = "tiny";
  server.load(model, defaults, {.tokens_max = 1, .source = hold});
  const auto ask = [&](const std::string& path, const std::string& body) {
    return answer_to(server.port(), "POST " + path +
                                        " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " +
                                        std::to_string(body.size()) + "\r\n\r\n" + body);
  };
  const auto comments = [](const std::string& text) {
    int64_t count = 0;
    for (size_t at = 0; (at = text.find("\n: ", at)) != text.npos; ++at) ++count;
    return count;
  };
  std::string running, queued;
  std::thread first([&] {
    running = ask("/v1/completions", R"({"prompt": "Hi", "max_tokens": 8, "ignore_eos": true, "stream": true})");
  });
  while (!held) std::this_thread::sleep_for(1ms);
  std::thread second([&] {
    queued =
        ask("/v1/messages", R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "stream": true})");
  });
  first.join();
  second.join();
  EXPECT_GE(comments(running), 3) << running;
  EXPECT_GE(comments(queued), 3) << queued;
  EXPECT_NE(running.find("[DONE]"), running.npos) << running;
  EXPECT_NE(queued.find("message_stop"), queued.npos) << queued;
}

// A stream that waits for its turn has what its form begins with, not a silence: with comments an hour apart nothing
// else could come before the thread that computes goes on. Until the model is there, health says that it is not.
TEST(Server, AStreamBeginsAtOnce) {
  using namespace std::chrono_literals;
  std::atomic<bool> held = false, begun = false, late = false;
  engine::LanguageModel model(support::data("tiny-chat"),
                              {.context = 256, .sequences = 1, .memory = 16 << 20, .spare_slots = 1, .threads = 1});
  Server server({.port = 0, .parallel = 1, .silence_max = 1h});
  const std::string health = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  const std::string loading = answer_to(server.port(), health);
  EXPECT_TRUE(loading.starts_with("HTTP/1.1 503")) << loading;
  EXPECT_NE(loading.find("being loaded"), loading.npos) << loading;
  const auto hold = [&](std::span<const int32_t>, int64_t) {
    held = true;
    for (int i = 0; i < 3000 && !begun && !late; ++i) std::this_thread::sleep_for(1ms);
    if (!begun) late = true;  // it fails, but does not hang
    return std::vector<int32_t>{};
  };
  Defaults defaults;
  defaults.model = "tiny";
  server.load(model, defaults, {.tokens_max = 1, .source = hold});
  EXPECT_TRUE(answer_to(server.port(), health).starts_with("HTTP/1.1 200"));
  const auto request = [](const std::string& path, const std::string& body) {
    return "POST " + path +
           " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
  };
  const std::string turn = R"([{"role": "user", "content": "Hi"}])";
  for (const auto& [path, body, first] :
       {std::array<std::string, 3>{
            "/v1/responses", R"({"stream": true, "max_output_tokens": 4, "input": )" + turn + "}", "response.created"},
        {"/v1/chat/completions", R"({"stream": true, "max_tokens": 4, "messages": )" + turn + "}",
         "\"role\":\"assistant\""}}) {
    held = begun = late = false;
    std::thread running([&] {
      (void)answer_to(server.port(),
                      request("/v1/completions", R"({"prompt": "Hi", "max_tokens": 8, "ignore_eos": true})"));
    });
    while (!held) std::this_thread::sleep_for(1ms);
    bool early = false;
    const std::string got =
        answer_to(server.port(), request(path, body), [&, &first = first](const std::string& so_far) {
          if (so_far.find(first) == so_far.npos || begun.exchange(true)) return;
          early = !late;
        });
    running.join();
    EXPECT_TRUE(early) << got;
    EXPECT_NE(got.find(first), got.npos) << got;
  }
}

// The socket of this process that listens to the port.
int listening_to(int port) {
  for (int fd = 0; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    sockaddr_in address{};
    size = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 && ntohs(address.sin_port) == port)
      return fd;
  }
  return -1;
}

TEST(Server, ListensAgainAfterAnErrorOfAccept) {
  std::atomic<int> told = 0;
  Server server({.port = 0, .log = [&](const std::string&) { ++told; }});
  const std::string request = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(answers_in(answer_to(server.port(), request)), 1);
    const int fd = listening_to(server.port());
    ASSERT_GE(fd, 0);
    ASSERT_EQ(shutdown(fd, SHUT_RDWR), 0);  // accept fails from here on
    for (int tries = 0; tries < 1000 && told < i; ++tries) usleep(10'000);
    ASSERT_EQ(told, i);
    for (int tries = 0; tries < 1000 && listening_to(server.port()) < 0; ++tries) usleep(10'000);
  }
  EXPECT_EQ(answers_in(answer_to(server.port(), request)), 1);
}

TEST(Server, EachRequestIsLogged) {
  std::mutex mutex;
  std::vector<std::string> lines;
  {
    Server server({.port = 0, .requests = [&](const std::string& line) {
                     const std::lock_guard lock(mutex);
                     lines.push_back(line);
                   }});
    (void)answer_to(server.port(), "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + post("", ""));
    (void)answer_to(server.port(), "GET /%0Anone%20/\xff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  }
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[0].find(" 127.0.0.1 GET /health 503 total_ms="), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find(" POST /v1/completions 411 total_ms="), std::string::npos) << lines[1];
  for (const std::string& line : lines) {
    EXPECT_EQ(std::ranges::count(line, ' '), 5) << line;
    EXPECT_EQ(line.find('\n'), line.npos) << line;
  }
}

}  // namespace
}  // namespace braid::serve
