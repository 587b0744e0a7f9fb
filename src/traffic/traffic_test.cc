// Metrics against sums by hand, streams cut anywhere, prompts of the lengths that were asked for.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "traffic/client.h"
#include "traffic/dataset.h"
#include "traffic/metrics.h"

namespace braid::traffic {
namespace {

TEST(Traffic, SummariesAreNumpys) {
  // numpy.percentile([4, 1, 3, 2], [50, 99]) is 2.5 and 3.97; numpy.std is sqrt(1.25).
  const Summary s = summary_of({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(s.mean, 2.5);
  EXPECT_DOUBLE_EQ(s.median, 2.5);
  EXPECT_DOUBLE_EQ(s.p99, 3.97);
  EXPECT_DOUBLE_EQ(s.deviation, std::sqrt(1.25));
  EXPECT_EQ(summary_of({}).p99, 0);
}

TEST(Traffic, ReportsCountWhatIsWhole) {
  const Sample samples[] = {
      {.sent = 0, .ended = 1, .arrivals = {0.25, 0.5, 1}, .prompt_tokens = 10, .cached_tokens = 4, .output_tokens = 4},
      {.sent = 0.5, .ended = 2.5, .arrivals = {2.4}, .prompt_tokens = 20, .output_tokens = 1},
      {.sent = 0.6, .ended = 0.7, .error = "429"}};
  const Report r = report_of(samples, {{"ttft", 300}, {"tpot", 250}});
  EXPECT_EQ(r.completed, 2);
  EXPECT_EQ(r.failed, 1);
  EXPECT_EQ(r.good, 1);  // the second has no TPOT, and a TTFT of 1.9 s
  EXPECT_DOUBLE_EQ(r.seconds, 2.5);
  EXPECT_EQ(r.input_tokens, 30);
  EXPECT_EQ(r.cached_tokens, 4);
  EXPECT_EQ(r.output_tokens, 5);
  EXPECT_NEAR(r.ttft.mean, (250 + 1900) / 2.0, 1e-9);
  EXPECT_NEAR(r.tpot.mean, 750 / 3.0, 1e-9);
  EXPECT_NEAR(r.itl.mean, 375, 1e-9);
  EXPECT_NEAR(r.e2el.median, 1500, 1e-9);
  EXPECT_EQ(r.running_peak, 3);
  EXPECT_DOUBLE_EQ(r.output_peak, 4);  // of three pieces
  EXPECT_EQ(report_of(samples, {{"tpot", 249}}).good, 1);
  EXPECT_EQ(json_of(r)["failed"], 1);
}

TEST(Traffic, ThePeakCountsTokens) {
  // 12 tokens in two pieces, the first with three quarters of the text; a second apart and more.
  Sample s{.sent = 0, .ended = 4, .arrivals = {1, 3}, .sizes = {30, 10}, .prompt_tokens = 1, .output_tokens = 12};
  EXPECT_DOUBLE_EQ(report_of({&s, 1}, {}).output_peak, 9);
  s.arrivals = {0.1, 0.2};
  s.ended = 0.25;  // shorter than a second: not below the mean
  EXPECT_DOUBLE_EQ(report_of({&s, 1}, {}).output_peak, 48);
}

TEST(Traffic, GoalsAreRead) {
  EXPECT_EQ(read_goals("ttft:500 tpot:50.5").at("tpot"), 50.5);
  EXPECT_TRUE(read_goals("").empty());
  for (const char* bad : {"ttft", "ttft:", "ttft:-1", "itl:5", "ttft:5x"})
    EXPECT_TRUE(support::error_of([&] { read_goals(bad); }).starts_with("[--goodput]")) << bad;
}

TEST(Traffic, StreamsAreReadWhereverTheyAreCut) {
  const std::string stream =
      ": ping\n\nevent: x\ndata: {\"choices\":[{\"text\":\"a\"}]}\r\n\r\n"
      "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
      "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"b\"}}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,"
      "\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\ndata: [DONE]\n\n";
  for (size_t step = 1; step < stream.size(); ++step) {
    StreamReader reader;
    int texts = 0, done = 0;
    int64_t prompt = 0, cached = 0, output = 0;
    for (size_t at = 0; at < stream.size(); at += step) {
      for (const auto& e : reader.push(std::string_view(stream).substr(at, step))) {
        texts += e.text > 0;
        done += e.done;
        EXPECT_EQ(e.error, "");
        if (e.prompt_tokens >= 0) prompt = e.prompt_tokens, cached = e.cached_tokens, output = e.output_tokens;
      }
    }
    ASSERT_EQ(texts, 2) << step;
    ASSERT_EQ(done, 1);
    ASSERT_EQ(prompt, 7);
    ASSERT_EQ(cached, 3);
    ASSERT_EQ(output, 2);
  }
  StreamReader reader;
  EXPECT_NE(reader.push("data: {\"error\": {\"message\": \"late\"}}\n").at(0).error.find("late"), std::string::npos);
  EXPECT_NE(reader.push("data: nonsense\n").at(0).error, "");
}

// A socket that takes connections, as the kernel does, and never answers.
class SilentServer {
 public:
  SilentServer() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    socklen_t size = sizeof at;
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;
  ~SilentServer() { close(socket_); }
  const std::string& url() const { return url_; }

 private:
  int socket_;
  std::string url_;
};

// Of requests that are due in minutes, and of those that nobody answers.
TEST(Traffic, AStopDoesNotWait) {
  const SilentServer server;
  const std::vector<Prompt> prompts(3, Prompt{.content = "a"});
  for (const double rate : {0.001, 0.0}) {
    int asked = 0;
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<Sample> samples =
        send_all({.url = server.url()}, prompts, {.rate = rate}, [&](int64_t) { return ++asked < 20; });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << rate;
    EXPECT_EQ(samples[0].error, "stopped") << rate;
  }
}

TEST(Traffic, RandomPromptsHaveTheirLengths) {
  const text::Tokenizer tokenizer = text::Tokenizer::load(support::shipped_tiny());
  const RandomPrompts options{.count = 40, .input_tokens = 50, .output_tokens = 9, .range_ratio = 0.5, .seed = 3};
  const std::vector<Prompt> prompts = random_prompts(tokenizer, options);
  ASSERT_EQ(prompts.size(), 40u);
  std::set<size_t> lengths;
  for (const Prompt& p : prompts) {
    const size_t n = tokenizer.encode(p.content.get<std::string>(), false).size();
    EXPECT_GE(n, 23u);
    EXPECT_LE(n, 77u);
    EXPECT_GE(p.output_tokens, 4);
    EXPECT_LE(p.output_tokens, 14);
    lengths.insert(n);
  }
  EXPECT_GT(lengths.size(), 10u);
  EXPECT_EQ(random_prompts(tokenizer, options)[7].content, prompts[7].content);
  const auto alike = random_prompts(tokenizer, {.count = 2, .input_tokens = 8, .prefix_tokens = 30});
  EXPECT_EQ(alike[0].content.get<std::string>().substr(0, 40), alike[1].content.get<std::string>().substr(0, 40));
  EXPECT_NE(alike[0].content, alike[1].content);
}

TEST(Traffic, FilesOfPrompts) {
  const support::Folder folder;
  const auto file = folder.path() / "prompts.jsonl";
  const auto write = [&](const char* text) { std::ofstream(file) << text; };
  write("{\"prompt\": \"a\", \"output_tokens\": 3}\n\n{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}\n");
  const auto prompts = file_prompts(file, 5, 8);
  ASSERT_EQ(prompts.size(), 5u);
  EXPECT_EQ(prompts[0].output_tokens, 3);
  EXPECT_EQ(prompts[1].output_tokens, 8);
  EXPECT_TRUE(prompts[3].content.is_array());
  EXPECT_EQ(prompts[4].content, "a");
  for (const char* bad : {"{\"prompt\": 5}", "[]", "{", "", "{\"prompt\": \"a\", \"output_tokens\": -3}"}) {
    write(bad);
    EXPECT_NE(support::error_of([&] { file_prompts(file, 5, 8); }).find("prompts.jsonl"), std::string::npos) << bad;
  }
  write("{\"prompt\": \"a\"}\n{\n");
  const std::string error = support::error_of([&] { file_prompts(file, 5, 8); });
  EXPECT_NE(error.find("prompts.jsonl:2] is not valid JSON at column 2; got the end of the text; expected {\"prompt\""),
            error.npos)
      << error;
}

}  // namespace
}  // namespace braid::traffic
