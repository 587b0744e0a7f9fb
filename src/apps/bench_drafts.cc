#include "apps/bench_drafts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "core/philox.h"
#include "engine/scheduler.h"
#include "io/ordered_json.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

constexpr int64_t kDrafts = 4;  // of one step

using Ids = std::vector<int32_t>;

std::vector<Ids> random_prompts(const DraftBench& bench, int64_t vocab) {
  std::vector<Ids> prompts(static_cast<size_t>(bench.sequences));
  for (size_t s = 0; s < prompts.size(); ++s) {
    for (int64_t i = 0; i < std::max<int64_t>(bench.prompt, 1); ++i)
      prompts[s].push_back(
          static_cast<int32_t>(philox({.seed = s}, static_cast<uint64_t>(i))[0] % static_cast<uint64_t>(vocab)));
  }
  return prompts;
}

struct Answers {
  std::vector<Ids> texts{};        // prompts included
  std::vector<double> logprobs{};  // of the tokens, if asked for
  double tokens_per_second = 0;
  int64_t drafted = 0, accepted = 0;
};

Answers answer(engine::Scheduler& scheduler, const std::vector<Ids>& prompts, int64_t tokens, bool logprobs = false) {
  Answers out{.texts = prompts};
  std::vector<std::vector<double>> by_prompt(prompts.size());
  double seconds = 0;
  int64_t generated = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    engine::Request request{.prompt = prompts[i],
                            .generate = {.tokens_max = tokens, .ignore_eos = true, .logprobs = logprobs ? 0 : -1}};
    request.on_end = [&, i](engine::Generated answer, int64_t) {
      out.texts[i].insert(out.texts[i].end(), answer.ids.begin(), answer.ids.end());
      for (const auto& token : answer.logprobs) by_prompt[i].push_back(token[0].logprob);
      seconds = std::max(seconds, answer.timings.generate_seconds);
      generated += answer.timings.generated_tokens - 1;  // the first is from the prompt's pass
      out.drafted += answer.timings.drafted_tokens;
      out.accepted += answer.timings.accepted_tokens;
    };
    scheduler.submit(std::move(request));
  }
  while (!scheduler.idle()) scheduler.pass();
  for (const std::vector<double>& values : by_prompt)
    out.logprobs.insert(out.logprobs.end(), values.begin(), values.end());
  out.tokens_per_second = static_cast<double>(generated) / seconds;
  return out;
}

// The known continuation of a text; each token is right with this probability.
engine::DraftOptions drafts_from(const std::vector<Ids>& texts, int64_t percent, int64_t vocab) {
  return {.tokens_max = kDrafts, .source = [&texts, percent, vocab](std::span<const int32_t> text, int64_t most) {
            Ids out;
            const auto known = std::ranges::find_if(texts, [&](const Ids& t) {
              return t.size() > text.size() && std::ranges::equal(text, std::span(t).first(text.size()));
            });
            for (size_t i = text.size(); known != texts.end() && i < known->size() && std::ssize(out) < most; ++i) {
              const bool right = philox({.seed = 7}, i)[0] % 100 < static_cast<uint64_t>(percent);
              out.push_back(right ? (*known)[i] : static_cast<int32_t>(((*known)[i] + 1) % vocab));
            }
            return out;
          }};
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Answers with as many drafts as there are, whether they pay or not, and the largest difference of a log-probability.
nlohmann::ordered_json all_verified(engine::Runner& runner, const DraftBench& bench, const std::vector<Ids>& prompts,
                                    engine::DraftOptions drafts) {
  drafts.always = true;
  engine::Scheduler plain(runner), drafting(runner, std::move(drafts));
  const Answers want = answer(plain, prompts, bench.generate, true),
                got = answer(drafting, prompts, bench.generate, true);
  if (got.texts != want.texts) fail("bench", {.what = "drafts changed a text: a bug"});
  double most = 0;
  for (size_t i = 0; i < want.logprobs.size(); ++i)
    most = std::max(most, std::fabs(got.logprobs[i] - want.logprobs[i]));
  return {{"drafted", got.drafted}, {"accepted", got.accepted}, {"logprob_difference", most}};
}

nlohmann::ordered_json measured(engine::Runner& runner, const DraftBench& bench, const std::vector<Ids>& prompts,
                                const std::vector<Ids>& texts, engine::DraftOptions drafts) {
  const nlohmann::ordered_json verified = all_verified(runner, bench, prompts, drafts);
  engine::Scheduler plain(runner), drafting(runner, std::move(drafts));
  std::vector<double> without, with, ratios;
  Answers last;
  for (int64_t r = 0; r <= bench.repetitions; ++r) {
    const double before = answer(plain, prompts, bench.generate).tokens_per_second;
    last = answer(drafting, prompts, bench.generate);
    if (last.texts != texts) fail("bench", {.what = "drafts changed a text: a bug"});
    if (r == 0) continue;  // warms up
    without.push_back(before);
    with.push_back(last.tokens_per_second);
    ratios.push_back(last.tokens_per_second / before);
  }
  return {{"sequences", bench.sequences}, {"generated", bench.generate}, {"tokens_per_second", median(without)},
          {"with_drafts", median(with)},  {"ratio", median(ratios)},     {"drafted", last.drafted},
          {"accepted", last.accepted},    {"all_verified", verified}};
}

}  // namespace

int bench_drafts(engine::Runner& runner, const DraftBench& bench) {
  const int64_t vocab = runner.config().vocab;
  const std::vector<Ids> prompts = random_prompts(bench, vocab);
  engine::Scheduler first(runner);
  const std::vector<Ids> texts = answer(first, prompts, bench.generate).texts;
  const auto print = [&](nlohmann::ordered_json line, engine::DraftOptions drafts) {
    line.update(measured(runner, bench, prompts, texts, std::move(drafts)));
    fmt::print("{}\n", io::dumped(line));
  };
  for (const int64_t percent : bench.percent) print({{"right_percent", percent}}, drafts_from(texts, percent, vocab));
  if (bench.model) print({{"drafts", "model"}}, {.model = bench.model, .tokens_max = kDrafts});
  return 0;
}

}  // namespace braid::apps
