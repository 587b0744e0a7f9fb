// BF16 against golden values: the divergence KL(golden || BF16) of the next-token distributions, in nats per position.
// The median must be small. The mean is another matter: if two experts score alike, BF16 may choose the other one,
// and a few positions then dominate it; so the mean is taken with the golden choices of the routers replayed.
#include <fmt/format.h>

#include "support/golden.h"

namespace braid {
namespace {

constexpr double kDivergenceBound = 1e-3;

// log-softmax of a row, in FP64.
std::vector<double> log_probabilities(std::span<const float> row) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (float v : row) top = std::max(top, static_cast<double>(v));
  for (float v : row) sum += std::exp(static_cast<double>(v) - top);
  std::vector<double> out;
  for (float v : row) out.push_back(static_cast<double>(v) - top - std::log(sum));
  return out;
}

std::vector<double> divergences(std::span<const float> logits, const View& golden) {
  const auto vocab = static_cast<size_t>(golden.dim(1));
  std::vector<double> list;
  for (int64_t t = 0; t < golden.dim(0); ++t) {
    const auto p = log_probabilities({golden.as<float>(t), vocab}),
               q = log_probabilities(logits.subspan(static_cast<size_t>(t) * vocab, vocab));
    double sum = 0;
    for (size_t i = 0; i < vocab; ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
    list.push_back(sum);
  }
  return list;
}

double median(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  return list[list.size() / 2];
}
double mean(const std::vector<double>& list) {
  double sum = 0;
  for (double v : list) sum += v;
  return sum / static_cast<double>(list.size());
}

class Bf16 : public testing::TestWithParam<GoldenFolder> {};

TEST_P(Bf16, StaysNearTheGoldenDistribution) {
  const io::Safetensors file(GetParam().path / "golden.safetensors");
  const auto ids = token_ids(file.need("ids@0"));
  const View golden = file.need("logits@0");
  const auto open = [] { return open_folder(GetParam().path, {.numerics = Numerics::serving(DType::bf16)}); };
  const auto free = divergences(prefill(*open(), 0, ids).logits, golden);
  EXPECT_LE(median(free), kDivergenceBound);

  nn::Routes routes;
  for (const io::StoredTensor& t : file.tensors()) {
    if (t.name.starts_with("router.") && t.name.ends_with("@0"))
      routes[std::stoi(t.name.substr(std::string_view("router.").size()))] = token_ids(t.view);
  }
  const bool mixture = open()->config().pattern().find('E') != std::string::npos;
  std::string replayed = mixture ? "no golden choices to replay" : "no router";
  if (!mixture) {
    EXPECT_LE(mean(free), kDivergenceBound);
  } else if (!routes.empty()) {
    nn::Probe probe{.replay = &routes};
    const auto forced = divergences(prefill(*open(), 0, ids, &probe).logits, golden);
    EXPECT_LE(mean(forced), kDivergenceBound);
    EXPECT_LE(median(forced), kDivergenceBound);
    replayed = fmt::format("replayed: median {:.1e}, mean {:.1e}", median(forced), mean(forced));
  }
  fmt::print("{}: KL median {:.1e}, mean {:.1e}; {}\n", GetParam().label, median(free), mean(free), replayed);
}

INSTANTIATE_TEST_SUITE_P(Folders, Bf16, testing::ValuesIn(all_folders()), label_of);

}  // namespace
}  // namespace braid
