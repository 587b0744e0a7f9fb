// Zeros lie where a matrix as products read it has them, however the files lay it out: experts in a stack as experts
// one by one, and GPT-2's matrices transposed. Norms of inputs are those of the rows that reach a matrix.
#include "prune/sparsify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "io/safetensors.h"
#include "models/load.h"
#include "prune/input_norms.h"
#include "prune/prune_support.h"
#include "support/error_of.h"
#include "support/models.h"

namespace braid::prune {
namespace {

namespace fs = std::filesystem;

class SparsifyTest : public models::FolderTest {
 protected:
  data::DataSpec ids() const {
    const fs::path path = folder_ / "ids.safetensors";
    std::vector<int64_t> values;
    for (int64_t i = 0; i < 4 * 65; ++i) values.push_back(philox({.seed = 3}, static_cast<uint64_t>(i))[0] % 50);
    io::SafetensorsWriter file(path, {{"batches", DType::i64, {4, 1, 65}}});
    file.write("batches", std::as_bytes(std::span(values)));
    file.finish();
    return {.kind = "ids", .path = path.string()};
  }
  SparseReport prune(const SparseOptions& options, const std::string& out) const {
    return sparsify_model(io::find_model((folder_ / "model").string()), ids(), folder_ / out, options,
                          [](const char*, int64_t, int64_t) { return true; });
  }
  // Whether it came to its end, when a signal comes at a stage.
  bool prune_until(const char* stopped, const std::string& out) const {
    const auto stage = [&](const char* name, int64_t, int64_t) { return std::string(name) != stopped; };
    return sparsify_model(io::find_model((folder_ / "model").string()), ids(), folder_ / out,
                          {.spec = {.pattern = masks::Pattern::unstructured, .density = 0.5},
                           .score = WeightScore::magnitude,
                           .samples = 4},
                          stage)
        .whole;
  }
  // A folder with these tensors, random values a function of their places; the first of `infinite` is that.
  void make(const nlohmann::json& config, const std::vector<io::TensorSpec>& specs,
            const std::string& infinite = "") const {
    fs::create_directories(folder_ / "model");
    io::write_text_file(folder_ / "model" / "config.json", config.dump());
    io::SafetensorsWriter file(folder_ / "model", specs);
    for (const io::TensorSpec& spec : file.order()) {
      std::vector<std::byte> bytes = bytes_of(spec.name, spec.shape);
      if (spec.name == infinite)
        set_element(MutView(bytes.data(), DType::bf16, spec.shape), 0, std::numeric_limits<double>::infinity());
      file.write(spec.name, bytes);
    }
    file.finish();
  }
  static std::vector<std::byte> bytes_of(const std::string& name, const Shape& shape) {
    std::vector<std::byte> bytes(static_cast<size_t>(2 * shape.count()));
    const MutView values(bytes.data(), DType::bf16, shape);
    const auto seed = std::hash<std::string>()(name);
    for (int64_t i = 0; i < shape.count(); ++i)
      set_element(values, i, 0.01 + static_cast<double>(uniform(philox({.seed = seed}, static_cast<uint64_t>(i))[0])));
    return bytes;
  }
};

// Inputs that are infinite order no weights: the matrix is named, and nothing is chosen by them.
TEST_F(SparsifyTest, InputsThatAreNotFiniteAreNamed) {
  const nlohmann::json config = models::hybrid();
  std::vector<io::TensorSpec> specs;
  for (const models::TensorSpec& t : inventory(models::read(config))) specs.push_back({t.name, DType::bf16, t.shape});
  make(config, specs, "backbone.layers.0.norm.weight");
  const SparseOptions options{.spec = {.pattern = masks::Pattern::unstructured, .density = 0.5}};
  EXPECT_NE(support::error_of([&] { prune(options, "out"); }).find("are not finite on the calibration data"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "out" / "config.json"));
}

TEST_F(SparsifyTest, ASignalStopsTheLosses) {
  const nlohmann::json config = models::hybrid();
  std::vector<io::TensorSpec> specs;
  for (const models::TensorSpec& t : inventory(models::read(config))) specs.push_back({t.name, DType::bf16, t.shape});
  make(config, specs);
  EXPECT_FALSE(prune_until("measuring loss", "stopped"));
  EXPECT_TRUE(prune_until("nothing", "whole"));
}

// Experts of one matrix, as values of a stack and each as a tensor.
TEST_F(SparsifyTest, StacksArePrunedAsTheirExperts) {
  const nlohmann::json config = models::hybrid();
  for (const WeightScore score : {WeightScore::magnitude, WeightScore::activations}) {
    const SparseOptions options{.spec = {.pattern = masks::Pattern::unstructured, .density = 0.4}, .score = score};
    std::map<std::string, std::vector<std::string>> stacks;
    std::vector<io::TensorSpec> single, stacked;
    for (const models::TensorSpec& t : inventory(models::read(config))) {
      single.push_back({t.name, DType::bf16, t.shape});
      if (t.stack.empty()) {
        stacked.push_back(single.back());
        continue;
      }
      std::vector<std::string>& names = stacks[t.stack];
      if (names.empty()) stacked.push_back({t.stack, DType::bf16, {t.experts, t.shape[0], t.shape[1]}});
      names.push_back(t.name);
    }
    ASSERT_FALSE(stacks.empty());
    make(config, single);
    const SparseReport one = prune(options, "one");
    const io::Safetensors ones(folder_ / "one"), before(folder_ / "model");
    {  // the same values in stacks
      fs::create_directories(folder_ / "stacked");
      io::write_text_file(folder_ / "stacked" / "config.json", config.dump());
      io::SafetensorsWriter file(folder_ / "stacked", stacked);
      for (const io::TensorSpec& spec : file.order()) {
        if (!stacks.contains(spec.name)) {
          file.write(spec.name, before.need(spec.name));
          continue;
        }
        for (const std::string& name : stacks[spec.name]) file.write(spec.name, before.need(name));
      }
      file.finish();
    }
    const SparseReport all = sparsify_model(io::find_model((folder_ / "stacked").string()), ids(), folder_ / "all",
                                            options, [](const char*, int64_t, int64_t) { return true; });
    EXPECT_EQ(all.child_loss, one.child_loss);
    EXPECT_NE(one.child_loss, one.parent_loss);
    const io::Safetensors alls(folder_ / "all");
    for (const auto& [stack, names] : stacks) {
      const View whole = alls.need(stack);
      for (size_t e = 0; e < names.size(); ++e) {
        const View part = ones.need(names[e]);
        EXPECT_EQ(std::memcmp(whole.data + static_cast<int64_t>(e) * part.bytes(), part.data,
                              static_cast<size_t>(part.bytes())),
                  0)
            << names[e];
        int64_t zeros = 0;
        for (int64_t i = 0; i < part.count(); ++i) zeros += element(part, i) == 0;
        EXPECT_EQ(zeros, part.count() - std::llround(0.4 * static_cast<double>(part.count())));
      }
    }
    for (const char* made : {"model", "one", "stacked", "all"}) fs::remove_all(folder_ / made);
  }
}

// [inputs, outputs] in the files: two of four inputs of every output stay, and they are the largest.
TEST_F(SparsifyTest, TransposedMatricesArePrunedAlongTheirInputs) {
  nlohmann::json config = {{"model_type", "gpt2"}, {"architectures", {"GPT2LMHeadModel"}},
                           {"vocab_size", 50},     {"n_embd", 32},
                           {"n_layer", 1},         {"n_head", 4},
                           {"n_positions", 128},   {"layer_norm_epsilon", 1e-5}};
  make(config, tensors_of(config));
  const SparseReport report =
      prune({.spec = {.pattern = masks::Pattern::two_four}, .score = WeightScore::magnitude}, "out");
  EXPECT_TRUE(report.misfits.empty());
  const io::Safetensors was(folder_ / "model"), is(folder_ / "out");
  int pruned = 0;
  for (const models::TensorSpec& t : inventory(models::read(config))) {
    const View from = was.need(t.name), to = is.need(t.name);
    if (!t.transposed) {
      EXPECT_EQ(std::memcmp(from.data, to.data, static_cast<size_t>(from.bytes())), 0) << t.name;
      continue;
    }
    ++pruned;
    const int64_t inputs = t.shape[0], outputs = t.shape[1];
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t first = 0; first < inputs; first += 4) {
        double kept_least = 10, zero_most = 0;
        int zeros = 0;
        for (int64_t i = first; i < first + 4; ++i) {
          const double v = element(from, i * outputs + o);
          const bool zero = element(to, i * outputs + o) == 0;
          zeros += zero;
          (zero ? zero_most : kept_least) = zero ? std::max(zero_most, v) : std::min(kept_least, v);
        }
        ASSERT_EQ(zeros, 2) << t.name;
        ASSERT_GE(kept_least, zero_most) << t.name;
      }
    }
  }
  EXPECT_EQ(pruned, 4);  // c_attn, c_proj twice, c_fc
}

// Keeps all rows that reach q, and an expert's.
class Recorder final : public nn::Observer {
 public:
  std::vector<std::vector<float>> q, expert;
  int layer_of_q = -1, layer_of_experts = -1;
  void product(const Param& w, const View& x, const View&) override {
    if (w.role != ParamRole::q) return;
    layer_of_q = w.layer;
    for (int64_t t = 0; t < x.dim(0); ++t) nn::read_row(x, t, q.emplace_back(static_cast<size_t>(x.dim(1))));
  }
  void norm(const Param&, const View&, const View&, const View&) override {}
  void experts(Ctx&, const nn::ExpertsSeen& seen) override {
    layer_of_experts = seen.up[0].layer;
    for (int64_t t = 0; t < seen.x.dim(0); ++t) {
      const int32_t* chosen = seen.experts.as<int32_t>(t);
      if (std::find(chosen, chosen + seen.experts.dim(1), 2) == chosen + seen.experts.dim(1)) continue;
      nn::read_row(seen.x, t, expert.emplace_back(static_cast<size_t>(seen.x.dim(1))));
    }
  }
};

void expect_norms(const std::vector<float>& got, const std::vector<std::vector<float>>& rows) {
  ASSERT_FALSE(rows.empty());
  for (size_t c = 0; c < got.size(); ++c) {
    double sum = 0;
    for (const std::vector<float>& row : rows) sum += static_cast<double>(row[c]) * static_cast<double>(row[c]);
    EXPECT_NEAR(got[c], std::sqrt(sum / static_cast<double>(rows.size())), 1e-5);
  }
}

TEST_F(SparsifyTest, NormsAreOfTheRowsThatReachAMatrix) {
  const nlohmann::json config = models::hybrid();
  write(config, tensors_of(config));
  const auto model = load();
  Arena arena;
  Ctx ctx{.arena = arena};
  InputNorms norms;
  Recorder recorder;
  for (const data::Batch& row : random_rows(50, 3, 20)) {
    for (nn::Observer* observer : {static_cast<nn::Observer*>(&norms), static_cast<nn::Observer*>(&recorder)}) {
      const RowPass pass{.ctx = ctx, .observer = observer};
      pass(*model, row, 1, false);
    }
  }
  ParamInfo q, up;
  q.role = ParamRole::q;
  q.layer = recorder.layer_of_q;
  up.role = ParamRole::expert_up;
  up.layer = recorder.layer_of_experts;
  expect_norms(norms.of(q, -1, 32), recorder.q);
  expect_norms(norms.of(up, 2, 32), recorder.expert);
  q.role = ParamRole::qkv;  // a fused matrix reads what its parts do
  expect_norms(norms.of(q, -1, 32), recorder.q);
  q.layer = 77;  // that no pass used
  EXPECT_EQ(norms.of(q, -1, 3), (std::vector<float>{1, 1, 1}));
}

}  // namespace
}  // namespace braid::prune
