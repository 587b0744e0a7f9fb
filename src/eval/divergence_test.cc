// Divergence of two models, against sums over whole distributions in double.
#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "models/load.h"
#include "models/quantize.h"
#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::eval {
namespace {

const std::filesystem::path kBase = std::filesystem::path(support::data()) / "hf" / "nemotron-h-latent-mtp";

engine::Runner runner(const std::filesystem::path& folder, int64_t chunk) {
  return {models::load_model({"test", folder, folder}),
          {.numerics = Numerics::serving(DType::f32), .context = 64, .chunk = chunk}};
}

constexpr auto go_on = [](int64_t) { return true; };

class AQuantisedModel : public support::FolderTest {
 protected:
  AQuantisedModel() {
    models::quantize_model({"base", kBase, kBase}, models::quant_recipe("nvfp4"), folder_ / "q", {.threads = 2},
                           [](int64_t, int64_t) { return true; });
    for (int32_t i = 0; i < 50; ++i) ids_.push_back((i * 37 + i * i * 5) % 90);
  }
  // Probabilities of the token after the first t of a window.
  std::vector<double> probabilities(const std::filesystem::path& folder, int64_t begin, int64_t t) const {
    auto r = runner(folder, 64);
    const auto text = std::span(ids_).subspan(static_cast<size_t>(begin), static_cast<size_t>(t));
    const Tensor logits = r.prefill(0, text, [](const Tensor&) {});
    std::vector<double> p;
    double sum = 0;
    for (int64_t v = 0; v < logits.dim(1); ++v) {
      p.push_back(std::exp(static_cast<double>(logits.view().as<float>()[v])));
      sum += p.back();
    }
    for (double& v : p) v /= sum;
    return p;
  }
  std::vector<int32_t> ids_;
};

TEST_F(AQuantisedModel, DivergesAsSumsOverAllTokensSay) {
  const auto windows = plan_windows(50, 20, 0);  // two windows; 9 of 20 tokens are scored
  double kl = 0, largest = 0, loss = 0, base_loss = 0;
  int64_t same = 0, n = 0;
  for (const Window& w : windows) {
    for (int64_t t = w.first; t < w.end; ++t, ++n) {
      const auto q = probabilities(folder_ / "q", w.begin, t - w.begin), p = probabilities(kBase, w.begin, t - w.begin);
      double sum = 0;
      for (size_t v = 0; v < p.size(); ++v) sum += p[v] * std::log(p[v] / q[v]);
      kl += sum;
      largest = std::max(largest, sum);
      const auto target = static_cast<size_t>(ids_[static_cast<size_t>(t)]);
      loss -= std::log(q[target]);
      base_loss -= std::log(p[target]);
      same += std::max_element(p.begin(), p.end()) - p.begin() == std::max_element(q.begin(), q.end()) - q.begin();
    }
  }
  ASSERT_GT(kl, 1e-4);
  for (const int64_t chunk : {7, 64}) {
    auto model = runner(folder_ / "q", chunk), base = runner(kBase, chunk);
    const Divergence d = divergence(model, base, ids_, windows, {}, go_on);
    const auto count = static_cast<double>(n);
    EXPECT_EQ(d.model.tokens, n);
    EXPECT_EQ(std::ssize(d.kl), n);
    EXPECT_EQ(d.same_top, same);
    EXPECT_NEAR(d.mean_kl(), kl / count, 1e-4 * kl / count + 1e-7);
    EXPECT_NEAR(static_cast<double>(d.kl_at(1)), largest, 1e-3 * largest);
    EXPECT_NEAR(d.ratio(), std::exp((loss - base_loss) / count), 1e-5);
    EXPECT_GT(d.ratio_error, 0);
  }
}

// Of two signs of an infinite weight, one gives a token no probability and leaves the losses finite.
TEST_F(AQuantisedModel, ADivergenceThatIsNotFiniteIsAnError) {
  for (const double sign : {1, -1}) {
    const auto folder = folder_ / (sign > 0 ? "plus" : "minus");
    std::filesystem::create_directory(folder);
    std::filesystem::copy(kBase / "config.json", folder);
    const io::Safetensors from(kBase);
    std::vector<io::TensorSpec> specs;
    for (const io::StoredTensor& t : from.tensors()) specs.push_back({t.name, t.view.dtype, t.view.shape});
    io::SafetensorsWriter file(folder / "model.safetensors", specs);
    for (const io::TensorSpec& spec : file.order()) {
      const View view = from.need(spec.name);
      std::vector<std::byte> bytes(view.data, view.data + view.bytes());
      if (spec.name == "lm_head.weight")
        set_element(MutView(bytes.data(), spec.dtype, spec.shape), 3 * spec.shape[1], sign * HUGE_VAL);
      file.write(spec.name, bytes);
    }
    file.finish();
    auto model = runner(folder, 64), base = runner(kBase, 64);
    const std::vector<int32_t> ids = {5, 6, 7, 8};
    EXPECT_NE(
        support::error_of([&] { divergence(model, base, ids, plan_windows(4, 4, 0), {}, go_on); }).find("not finite"),
        std::string::npos);
  }
}

TEST_F(AQuantisedModel, AModelDoesNotDivergeFromItself) {
  auto one = runner(kBase, 64), two = runner(kBase, 64);
  const Divergence d = divergence(one, two, ids_, plan_windows(50, 20, 5), {}, go_on);
  EXPECT_EQ(d.kl_at(1), 0);
  EXPECT_EQ(d.same_top_share(), 1);
  EXPECT_EQ(d.ratio(), 1);
  EXPECT_EQ(d.ratio_error, 0);
}

}  // namespace
}  // namespace braid::eval
