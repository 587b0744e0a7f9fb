// A model whose weights were pruned in groups of rows: which products skip the zeros, that their answers stay near
// those of the products that multiply by all of them, and that they keep the row contract.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/grouped_rows.h"
#include "core/philox.h"
#include "engine/language_model.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "models/zero_groups.h"
#include "support/data.h"
#include "support/folder.h"

namespace braid::engine {
namespace {

namespace fs = std::filesystem;

const fs::path kWhole = support::data("tiny-chat");

// Whether element (r, c) of a matrix of a layer stays.
using StaysAt = std::function<bool(int64_t r, int64_t c)>;
// A third of the columns, which differ between odd rows and even ones.
bool in_groups(int64_t r, int64_t c) { return (c + r % 2) % 3 == 0; }
bool anywhere(int64_t r, int64_t c) {
  return philox({.seed = static_cast<uint64_t>(r)}, static_cast<uint64_t>(c))[0] % 3 == 0;
}

void write_pruned(const support::Folder& into, const StaysAt& stays) {
  for (const auto& entry : fs::directory_iterator(kWhole)) {
    if (entry.path().filename() != "model.safetensors")
      fs::copy_file(entry.path(), into.path() / entry.path().filename());
  }
  const io::Safetensors from(kWhole);
  std::vector<io::TensorSpec> specs;
  for (const io::StoredTensor& t : from.tensors()) specs.push_back({t.name, t.view.dtype, t.view.shape});
  io::SafetensorsWriter writer(into.path() / "model.safetensors", specs);
  for (const io::TensorSpec& spec : writer.order()) {
    const View view = from.need(spec.name);
    std::vector<std::byte> bytes(view.data, view.data + view.bytes());
    const MutView values(bytes.data(), view.dtype, view.shape);
    const bool pruned = spec.shape.rank == 2 && spec.name.find("layers.") != spec.name.npos;
    for (int64_t i = 0; pruned && i < values.count(); ++i) {
      if (!stays(i / spec.shape[1], i % spec.shape[1])) set_element(values, i, 0);
    }
    writer.write(spec.name, bytes);
  }
  writer.finish();
}

RunnerOptions zeros_options(models::Zeros zeros, bool exact = false, DType products = DType::bf16) {
  return {.numerics = Numerics::serving(products, exact), .context = 64, .sequences = 2, .threads = 2, .zeros = zeros};
}

struct GroupCount {
  int64_t params = 0;
  bool others = false;  // of parameters that linear does not multiply by
};
GroupCount grouped_of(LanguageModel& model) {
  GroupCount found;
  for (const Param* p : model.runner().model().params()) {
    if (!p->value.groups) continue;
    ++found.params;
    found.others |= p->experts > 0 || p->role == ParamRole::embedding || p->role == ParamRole::router;
    EXPECT_EQ(p->value.groups->rows, p->value.rows);
    EXPECT_EQ(p->value.groups->cols, p->value.cols);
  }
  return found;
}

const std::vector<int32_t> kPromptIds = {5, 6, 7, 8, 9, 30, 31, 32, 11};

std::vector<float> floats_in(const Tensor& t) {
  const auto* v = t.view().as<float>();
  return {v, v + t.view().count()};
}

// Logits of the last token, and of two steps after it.
std::vector<std::vector<float>> logits_after(Runner& runner, int64_t sequence) {
  std::vector<std::vector<float>> out;
  out.push_back(floats_in(runner.prefill(sequence, kPromptIds, [](const Tensor&) {})));
  for (const int32_t id : {12, 40}) out.push_back(floats_in(runner.step(sequence, id)));
  return out;
}

class ZerosTest : public testing::Test {
 protected:
  support::Folder folder_;
};

// In FP32: operands that are rounded to BF16 would hide in which order a sum was taken.
TEST_F(ZerosTest, AreSkippedWhereGroupsShareThem) {
  write_pruned(folder_, in_groups);
  const std::string path = folder_.path().string();
  LanguageModel skips(path, zeros_options(models::Zeros::skipped, false, DType::f32)),
      all(path, zeros_options(models::Zeros::multiplied, false, DType::f32));
  const GroupCount found = grouped_of(skips);
  EXPECT_GT(found.params, 4);
  EXPECT_FALSE(found.others);
  EXPECT_EQ(grouped_of(all).params, 0);
  const auto own = logits_after(skips.runner(), 0), plain = logits_after(all.runner(), 0);
  bool differ = false;
  for (size_t i = 0; i < own.size(); ++i) {
    double error = 0, size = 0;
    for (size_t k = 0; k < own[i].size(); ++k) {
      error += std::pow(own[i][k] - plain[i][k], 2), size += std::pow(plain[i][k], 2);
      differ |= own[i][k] != plain[i][k];
    }
    EXPECT_LT(std::sqrt(error / size), 1e-4) << "pass " << i;
  }
  EXPECT_TRUE(differ) << "as if nothing were skipped";
}

// Bits depend neither on batch mates nor on threads.
TEST_F(ZerosTest, KeepTheRowContract) {
  write_pruned(folder_, in_groups);
  LanguageModel model(folder_.path().string(), zeros_options(models::Zeros::skipped));
  Runner& runner = model.runner();
  const auto alone = logits_after(runner, 0);
  runner.reset(0);
  runner.ctx().threads = 1;
  runner.prefill(0, kPromptIds, [](const Tensor&) {});
  const std::vector<int32_t> other = {3, 4, 5};
  runner.prefill(1, other, [](const Tensor&) {});
  const std::vector<int32_t> next = {12, 8};
  const std::vector<Piece> steps = {{.sequence = 0, .tokens = 1, .phase = Phase::step},
                                    {.sequence = 1, .tokens = 1, .phase = Phase::step}};
  const Tensor logits = runner.logits(runner.forward(next, steps));
  EXPECT_EQ(floats_in(logits.slice(0, 0, 1)), alone[1]);
}

// Below the density that pays the default skips, and never where bits are those of training, nor where zeros lie
// anywhere or nowhere.
TEST_F(ZerosTest, TheDefaultSkipsWhatPays) {
  {
    write_pruned(folder_, in_groups);
    LanguageModel model(folder_.path().string(), zeros_options(models::Zeros::automatic, false, DType::f32));
    EXPECT_EQ(grouped_of(model).params > 0, models::density_most(DType::f32, Format::bf16) > 0.37);
    LanguageModel exact(folder_.path().string(), zeros_options(models::Zeros::skipped, true));
    EXPECT_EQ(grouped_of(exact).params, 0);
  }
  const support::Folder whole;
  write_pruned(whole, [](int64_t, int64_t) { return true; });
  LanguageModel none(whole.path().string(), zeros_options(models::Zeros::skipped));
  EXPECT_EQ(grouped_of(none).params, 0);
  const support::Folder scattered;
  write_pruned(scattered, anywhere);
  LanguageModel unstructured(scattered.path().string(), zeros_options(models::Zeros::skipped));
  EXPECT_EQ(grouped_of(unstructured).params, 0);
}

TEST_F(ZerosTest, ReportsCountMatrices) {
  write_pruned(folder_, in_groups);
  LanguageModel model(folder_.path().string(), zeros_options(models::Zeros::multiplied));
  const models::ZeroGroups found = models::skip_zeros(model.runner().model(), models::Zeros::skipped, DType::bf16, 2);
  EXPECT_EQ(found.grouped, grouped_of(model).params);
  EXPECT_GE(found.scanned, found.grouped);
  EXPECT_GE(found.matrices, found.scanned);
  EXPECT_NEAR(static_cast<double>(found.stored) / static_cast<double>(found.values), 1.0 / 3, 0.04);
  EXPECT_LT(found.bytes, found.own / 2);
  EXPECT_NE(models::summary(found).find("skip theirs"), std::string::npos);
}

}  // namespace
}  // namespace braid::engine
