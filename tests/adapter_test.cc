// An adapter that PEFT wrote, on modules and on stacked experts (tests/data/adapter): its logits in PEFT, in Braid, and
// in the model that it was merged into.
#include "io/safetensors_write.h"
#include "models/adapter_file.h"
#include "support/data.h"
#include "support/golden.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

double difference(std::unique_ptr<models::Model> model, const io::Safetensors& golden) {
  const View ids = golden.need("ids"), want = golden.need("logits");
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < ids.count(); ++i) prompt.push_back(static_cast<int32_t>(element(ids, i)));
  engine::Runner runner(std::move(model), {.numerics = Numerics::serving(DType::f32), .context = 64, .threads = 2});
  const engine::Piece whole{.tokens = std::ssize(prompt)};
  const Tensor got = runner.logits(runner.forward(prompt, {&whole, 1}));
  double most = 0, scale = 0;
  for (int64_t i = 0; i < want.count(); ++i) {
    most = std::max(most, std::abs(element(got.view(), i) - element(want, i)));
    scale = std::max(scale, std::abs(element(want, i)));
  }
  return most / scale;
}

// The folder with its weights as F32, so that merging rounds nothing.
void write_wide(const io::ModelPath& path, const fs::path& out) {
  const io::Safetensors weights(path.weights);
  std::vector<io::TensorSpec> specs;
  for (const io::StoredTensor& t : weights.tensors()) specs.push_back({t.name, DType::f32, t.view.shape});
  io::SafetensorsWriter writer(out, std::move(specs));
  for (const io::StoredTensor& t : weights.tensors()) {
    std::vector<float> values;
    for (int64_t i = 0; i < t.view.count(); ++i) values.push_back(static_cast<float>(element(t.view, i)));
    writer.write(t.name, std::as_bytes(std::span(values)));
  }
  writer.finish();
  fs::copy_file(path.folder / "config.json", out / "config.json");
}

TEST(Adapter, LogitsMatchPeft) {
  const fs::path data(support::data()), adapter = data / "adapter";
  const io::ModelPath path = io::find_model((data / "hf" / "nemotron-h-latent-mtp").string());
  const io::Safetensors golden(adapter / "golden.safetensors");
  EXPECT_LT(difference(models::load_adapted(path, adapter, DType::f32), golden), 2e-5);
  EXPECT_GT(difference(models::load_model(path), golden), 0.1);
  const support::Folder holder;
  const fs::path& folder = holder.path();
  write_wide(path, folder / "wide");
  models::merge_adapter(io::find_model((folder / "wide").string()), adapter, folder / "merged");
  EXPECT_LT(difference(models::load_model(io::find_model((folder / "merged").string())), golden), 2e-5);
}

}  // namespace
}  // namespace braid
