// Every parameter of every family knows its role and how it may be divided. Split by 2 and by 4 and put together again,
// tensors are bit-identical; the results of partial blocks add up to the whole block's.
#include <cstring>
#include <deque>
#include <optional>
#include <set>

#include "codec/codec.h"
#include "models/blocks.h"
#include "models/family.h"
#include "models/inventory.h"
#include "models/presets.h"
#include "support/golden.h"
#include "support/models.h"

namespace braid {
namespace {

using Axis = Shard::Axis;

struct Named {
  std::string name;
  models::Config config;
};

// All folders of golden values and all published shapes.
std::vector<Named> configs() {
  std::vector<Named> list;
  for (const GoldenFolder& folder : all_folders())
    list.push_back({folder.label, models::load_config(io::find_model(folder.path.string()))});
  for (const std::string& name : models::preset_names())
    list.push_back({name, models::read_config(*models::find_preset(name))});
  const auto recurrent = std::filesystem::path(support::data()) / "huginn";
  list.push_back({"huginn", models::load_config(io::find_model(recurrent.string()))});
  // What none of these has.
  const char* linear =
      R"({"architectures":["DeciLMForCausalLM"],"vocab_size":50,"hidden_size":32,"num_attention_heads":4,
    "block_configs":[{"attention":{"replace_with_linear":true},"ffn":{"replace_with_linear":true}}]})";
  list.push_back({"linear", models::read_config(io::Json::parse(linear, "config.json"))});
  return list;
}

int64_t extent_of(const ParamInfo& info, int64_t rows, int64_t cols) {
  if (info.shard.axis == Axis::cols) return cols;
  return is_matrix(info.role) || rows > 1 ? rows : cols;
}

// How many ranks hold each row (or column), and how many a rank holds.
struct Held {
  std::vector<int> by_row{};
  std::vector<int64_t> by_rank{};
};
Held held_by(const models::TensorSpec& t, int64_t ranks, bool whole_experts) {
  Held held;
  held.by_row.resize(static_cast<size_t>(whole_experts ? t.rows() : extent_of(t, t.rows(), t.cols())));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int64_t count = 0;
    for (const Range& r : ranges_of(t, t.rows(), t.cols(), {rank, ranks, whole_experts})) {
      EXPECT_TRUE(r.begin >= 0 && r.begin + r.count <= std::ssize(held.by_row)) << t.name;
      for (int64_t i = r.begin; i < r.begin + r.count; ++i) ++held.by_row[static_cast<size_t>(i)];
      count += r.count;
    }
    held.by_rank.push_back(count);
  }
  return held;
}

// Every element of a matrix of experts, or of a stack of them, is on one rank of each pair of sizes.
TEST(Shards, ExpertsAreDividedByNumberAndByWidth) {
  int seen = 0;
  for (const Named& model : configs()) {
    for (models::TensorSpec t : models::inventory(model.config)) {
      if (t.expert != 0 || t.experts % 2 != 0 || t.shard.units % 2 != 0) continue;
      ++seen;
      for (const bool stack : {false, true}) {
        const int64_t cols = t.cols(), rows = stack ? t.rows() * t.experts : t.rows();
        t.expert = stack ? -1 : 0;
        std::vector<int> held(static_cast<size_t>(rows * cols));
        for (int64_t rank = 0; rank < 4; ++rank) {
          if (!stack && rank >= 2) continue;  // whose experts are others
          const ExpertCut cut{.ep = {.rank = rank / 2, .ranks = 2}, .etp = {.rank = rank % 2, .ranks = 2}};
          const ExpertRanges own = expert_ranges_of(t, rows, cols, cut);
          for (const Range& r : own.rows) {
            for (int64_t i = r.begin * cols; i < (r.begin + r.count) * cols; ++i) ++held[static_cast<size_t>(i)];
          }
          for (const Range& r : own.columns) {
            for (int64_t row = own.within.begin; row < own.within.begin + own.within.count; ++row) {
              for (int64_t i = r.begin; i < r.begin + r.count; ++i) ++held[static_cast<size_t>(row * cols + i)];
            }
          }
        }
        EXPECT_TRUE(std::all_of(held.begin(), held.end(), [](int n) { return n == 1; })) << t.name;
      }
      if (seen > 6) return;
    }
  }
  EXPECT_GT(seen, 0);
}

// By its name, which begins with the prefix of the block; null: of none.
const models::PartSpec* owner_of(const models::Config& config, const std::string& name) {
  const models::PartSpec* owner = nullptr;
  each_part(config, [&](const models::PartSpec& part) { owner = name.starts_with(part.prefix) ? &part : owner; });
  return owner;
}

TEST(Shards, EveryParameterDeclaresItsRole) {
  std::set<ParamRole> seen;
  for (const Named& model : configs()) {
    for (const models::TensorSpec& t : models::inventory(model.config)) {
      SCOPED_TRACE(model.name + " " + t.name);
      seen.insert(t.role);
      EXPECT_NE(t.role, ParamRole::none);
      EXPECT_NE(t.shard.axis, Axis::undeclared);
      EXPECT_EQ(t.shard.units > 0, t.shard.axis != Axis::whole);
      if (t.role == ParamRole::embedding || t.role == ParamRole::head) {
        EXPECT_EQ(t.shard.axis, Axis::rows);
        EXPECT_EQ(t.shard.units, model.config.vocab);
      }
      if (t.role != ParamRole::bias) {  // whose shape may name heads
        EXPECT_EQ(t.shape.rank > 1, is_matrix(t.role) || t.role == ParamRole::conv);
      }
      const bool outside = t.role == ParamRole::embedding || t.role == ParamRole::positions ||
                           t.role == ParamRole::head || t.name.starts_with(model.config.final_norm);
      EXPECT_EQ(t.layer < 0, outside);
      EXPECT_EQ(block_of(model.config, t), owner_of(model.config, t.name));
      EXPECT_EQ(t.of != ParamRole::none, t.role == ParamRole::bias);
      EXPECT_EQ(t.mtp, t.layer >= std::ssize(model.config.layers));
      EXPECT_EQ(t.expert >= 0, t.experts > 0);
      int64_t end = 0;
      for (const Segment& s : t.segments) {
        EXPECT_EQ(s.begin, end) << s.name;
        EXPECT_EQ(s.rows % s.units, 0) << s.name;
        end = s.begin + s.rows;
      }
      if (!t.segments.empty()) {
        EXPECT_EQ(end, extent_of(t, t.rows(), t.cols()));
      }
    }
  }
  // All roles that a family may have; graph networks are of none, and adapters are in no file of a model.
  for (int i = 1; i < static_cast<int>(ParamRole::lora_a); ++i) {
    const auto role = static_cast<ParamRole>(i);
    if (role == ParamRole::graph_map) continue;
    EXPECT_TRUE(seen.contains(role)) << name_of(role);
  }
}

TEST(Shards, RanksHoldEveryRowOnceOrAllAlike) {
  for (const Named& model : configs()) {
    for (const models::TensorSpec& t : models::inventory(model.config)) {
      for (const int64_t ranks : {2, 4}) {
        SCOPED_TRACE(fmt::format("{} {} of {}", model.name, t.name, ranks));
        const Held held = held_by(t, ranks, false);
        const bool divided = divides(t.shard, ranks);
        for (const Segment& s :
             t.segments.empty() ? std::vector<Segment>{{"", 0, std::ssize(held.by_row), t.shard.units}} : t.segments) {
          const int64_t want = !divided ? ranks : s.units < ranks ? ranks / s.units : 1;
          for (int64_t i = s.begin; i < s.begin + s.rows; ++i)
            ASSERT_EQ(held.by_row[static_cast<size_t>(i)], want) << i;
        }
        const auto [least, most] = std::minmax_element(held.by_rank.begin(), held.by_rank.end());
        EXPECT_LE(*most - *least, t.shard.uneven ? 1 : 0);
        if (t.experts == 0) continue;
        for (const int n : held_by(t, ranks, true).by_row) ASSERT_EQ(n, 1);  // each expert on one rank
      }
    }
  }
}

// Large released shapes divide as intended; NVFP4 columns are cut between blocks.
TEST(Shards, PublishedShapesDivideBy4) {
  for (const std::string& name : models::preset_names()) {
    const models::Config config = models::read_config(*models::find_preset(name));
    if (config.hidden < 2048) continue;
    for (const models::TensorSpec& t : models::inventory(config)) {
      SCOPED_TRACE(name + " " + t.name);
      EXPECT_TRUE(divides(t.shard, 4) || t.shard.axis == Axis::whole);
      if (t.shard.axis != Axis::cols) continue;
      for (int64_t rank = 0; rank < 4; ++rank) {
        for (const Range& r : ranges_of(t, t.rows(), t.cols(), {rank, 4})) EXPECT_EQ(r.begin % 16 + r.count % 16, 0);
      }
    }
  }
}

// Copies [begin, begin + count) of an axis of `from` to the same range of `to`, bit for bit.
void copy(const View& from, const MutView& to, int axis, int64_t begin, int64_t count) {
  const View a = from.slice(axis, begin, count);
  const MutView b = to.slice(axis, begin, count);
  const auto bytes = static_cast<size_t>(a.dim(1) * size_of(a.dtype));
  for (int64_t r = 0; r < a.dim(0); ++r)
    std::memcpy(b.data + r * b.stride(0) * size_of(b.dtype), a.data + r * a.stride(0) * size_of(a.dtype), bytes);
}

// Families of which the repository has no folder.
struct Made {
  const char *name, *config;
};
constexpr Made kMade[] = {
    {"llama_biases",
     R"({"model_type":"llama","vocab_size":52,"hidden_size":32,"num_hidden_layers":2,"intermediate_size":64,
      "num_attention_heads":4,"num_key_value_heads":2,"attention_bias":true,"mlp_bias":true})"},
    {"nemotron_thirds", R"({"model_type":"nemotron","vocab_size":52,"hidden_size":32,"num_hidden_layers":1,
      "intermediate_size":48,"num_attention_heads":6,"num_key_value_heads":6})"},
    {"qwen3_wide",
     R"({"model_type":"qwen3","vocab_size":52,"hidden_size":32,"num_hidden_layers":1,"intermediate_size":40,
      "num_attention_heads":8,"num_key_value_heads":4,"head_dim":12})"},
    {"qwen3_moe_dense", R"({"model_type":"qwen3_moe","vocab_size":52,"hidden_size":32,"num_hidden_layers":2,
      "intermediate_size":40,"num_attention_heads":4,"num_key_value_heads":4,"num_experts":4,"num_experts_per_tok":2,
      "moe_intermediate_size":32,"mlp_only_layers":[0]})"},
};

std::string made_label(const Made& made) { return fmt::format("made_{}", made.name); }

// Of folders by name, and of kMade: the largest of 1, 2 and 4 ranks that divide tensors of each block, in the order of
// each_part, and those whose sums are the whole block's. These are fewer where the norms of Mamba's groups would span
// ranks, and where a shared expert divides but the others do not. Channels divide by 16 where they can.
struct Expected {
  const char *name, *tensors, *sums;
};
constexpr Expected kExpected[] = {
    {"gpt2", "*4 -1 *4 -1", "*4 -1 *4 -1"},
    {"huginn", "*2 -4 *2 -4 *2 -4 *2 -4 *2 -4 *2 -4 *2 -4", "*2 -4 *2 -4 *2 -4 *2 -4 *2 -4 *2 -4 *2 -4"},
    {"llama", "*4 -1 *4 -1 *4 -1", "*4 -1 *4 -1 *4 -1"},
    {"llama_biases", "*4 -4 *4 -4", "*4 -4 *4 -4"},
    {"llama_tied", "*4 -1 *4 -1 *4 -1", "*4 -1 *4 -1 *4 -1"},
    {"nemotron", "*4 -1 *4 -1 *4 -1", "*4 -1 *4 -1 *4 -1"},
    {"nemotron_thirds", "*2 -1", "*2 -1"},
    {"nemotron_h_dense", "M2 -4 M2 M2 *4 -4 -4 -4 M2 -4", "M2 -4 M2 M2 *4 -4 -4 -4 M2 -4"},
    {"nemotron_h_fp8", "M4 E4 M4 *4 E4 M4 E4", "M2 E2 M2 *4 E2 M2 E2"},
    {"nemotron_h_groups", "M4 E4 *4 E4", "M4 E2 *4 E2"},
    {"nemotron_h_latent_mtp", "M4 E4 M4 *4 E4 M4 E4 *4 E4", "M2 E2 M2 *4 E2 M2 E2 *4 E2"},
    {"nemotron_h_legacy", "M4 E4 M4 *4 E4 -4", "M2 E2 M2 *4 E2 -4"},
    {"nemotron_h_modelopt_fp8", "M4 E4 M4 *4 E4 -4", "M2 E4 M2 *4 E4 -4"},
    {"nemotron_h_modelopt_nvfp4", "M4 E4 M4 *4 E4 -4", "M2 E4 M2 *4 E4 -4"},
    {"nemotron_h_moe", "M4 E4 M4 *4 E4 M4 E4", "M2 E2 M2 *4 E2 M2 E2"},
    {"nemotron_h_nvfp4", "M4 E1 M4 *4 E1", "M2 E1 M2 *4 E1"},
    {"nemotron_h_puzzle", "M4 E4 M4 *4 E4 E4", "M2 E4 M2 *4 E4 E4"},
    {"nemotron_nas", "*4 -4 -4 L4 -4 *4 *4 -1", "*4 -4 -4 L1 -4 *4 *4 -1"},
    {"qwen3", "*4 -1 *4 -1 *4 -1", "*4 -1 *4 -1 *4 -1"},
    {"qwen3_moe", "*4 E4 *4 -1 *4 E4", "*4 E4 *4 -1 *4 E4"},
    {"qwen3_moe_dense", "*4 -4 *4 E2", "*4 -4 *4 E2"},
    {"qwen3_wide", "*4 -4", "*4 -4"},
};

// Over its folder, or one with random weights where it is one of kMade.
class Family : public models::FolderTest, public testing::WithParamInterface<GoldenFolder> {
 protected:
  Family() {
    for (const Made& made : kMade) {
      if (made_label(made) != GetParam().label) continue;
      const auto config = nlohmann::json::parse(made.config);
      write(config, tensors_of(config));
    }
  }
  io::ModelPath path() const { return io::find_model((GetParam().path.empty() ? folder_ : GetParam().path).string()); }
  static const Expected& expected() {
    const std::string name = GetParam().label.substr(GetParam().label.find('_') + 1);
    const auto* found =
        std::find_if(std::begin(kExpected), std::end(kExpected), [&](const Expected& e) { return e.name == name; });
    CHECK(found != std::end(kExpected), "{} has no row in kExpected", name);
    return *found;
  }
};

// "M2 *4 -1": of(part, ranks) says whether a block divides.
template <class Of>
std::string by_blocks(const models::Config& config, Of&& of) {
  std::string text;
  models::each_part(config, [&](const models::PartSpec& part) {
    const int64_t ranks = of(part, 4) ? 4 : of(part, 2) ? 2 : 1;
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", letter_of(part.block), ranks);
  });
  return text;
}

// In each format: codes and scales of NVFP4 are cut at the same rows and columns.
TEST_P(Family, CutTensorsTogetherAreTheWhole) {
  const auto model = models::load_model(path());
  std::set<std::pair<const models::PartSpec*, int64_t>> divided;
  for (const Param* p : model->params()) {
    for (const int64_t ranks : {2, 4}) {
      for (const bool whole_experts : {false, true}) {
        const Weight& w = p->value;
        const bool by_cols = p->shard.axis == Axis::cols && !(whole_experts && p->experts > 0);
        const int axis = by_cols || (w.rows == 1 && !is_matrix(p->role)) ? 1 : 0;
        for (const View& part : {w.codes, w.scales}) {
          if (!part) continue;
          // Columns of codes and scales are fewer than values.
          const int64_t values = axis == 1 ? w.cols / part.dim(1) : 1;
          std::vector<std::byte> bytes(static_cast<size_t>(part.bytes()), std::byte{0xa5});
          const MutView together(bytes.data(), part.dtype, part.shape);
          for (int64_t rank = 0; rank < ranks; ++rank) {
            int64_t held = 0;
            for (const Range& r : ranges_of(*p, w.rows, w.cols, {rank, ranks, whole_experts})) {
              held += r.count;
              ASSERT_EQ(r.begin % values + r.count % values, 0) << p->name << ": a block is cut";
              copy(part, together, axis, r.begin / values, r.count / values);
            }
            if (!whole_experts && held < (axis == 1 ? w.cols : w.rows))
              divided.emplace(block_of(model->config(), *p), ranks);
          }
          EXPECT_EQ(std::memcmp(bytes.data(), part.data, bytes.size()), 0) << p->name << " of " << ranks;
        }
      }
    }
  }
  EXPECT_EQ(by_blocks(model->config(),
                      [&](const models::PartSpec& part, int64_t ranks) {
                        return divided.contains({&part, ranks});
                      }),
            expected().tensors);
}

// Parameters of a whole block, and what one rank holds of them for a block with fewer units.
class Whole final : public nn::ParamSource {
 public:
  explicit Whole(nn::ParamSource& files) : files_(files) {}
  std::map<std::string, Param> params{};
  bool has(const std::string& name) const override { return files_.has(name); }

 protected:
  Param first(const nn::ParamRequest& r) override { return params[r.name] = files_.get(r); }

 private:
  nn::ParamSource& files_;
};

class OneRank final : public nn::ParamSource {
 public:
  OneRank(const Whole& whole, const Cut& cut) : whole_(whole), cut_(cut) {}
  bool has(const std::string& name) const override { return whole_.has(name); }

 protected:
  Param first(const nn::ParamRequest& r) override {
    const Param& p = whole_.params.at(r.name);
    const Weight& w = p.value;
    const bool by_cols = p.shard.axis == Axis::cols, vector = w.rows == 1 && !is_matrix(p.role);
    std::vector<float>& values = values_.emplace_back();
    const auto ranges = ranges_of(p, w.rows, w.cols, cut_);
    const auto take = [&](int64_t row, int64_t begin, int64_t n) {
      std::vector<float> line(static_cast<size_t>(n));
      decode_row(w, row, begin, n, line.data());
      for (float& v : line) v *= w.global;
      values.insert(values.end(), line.begin(), line.end());
    };
    if (by_cols || vector) {
      for (int64_t row = 0; row < w.rows; ++row) {
        for (const Range& range : ranges) take(row, range.begin, range.count);
      }
    } else {
      for (const Range& range : ranges) {
        for (int64_t row = range.begin; row < range.begin + range.count; ++row) take(row, 0, w.cols);
      }
    }
    // Ranks are summed: only one adds a bias that all hold.
    if (p.role == ParamRole::bias && p.shard.axis == Axis::whole && cut_.rank > 0)
      std::fill(values.begin(), values.end(), 0.0f);
    EXPECT_EQ(std::ssize(values), r.rows() * r.cols()) << r.name;
    return r.param(dense_weight(view_of(values.data(), {r.rows(), r.cols()})));
  }

 private:
  const Whole& whole_;
  Cut cut_;
  std::deque<std::vector<float>> values_;
};

// The same block with what one of `ranks` holds; nullopt if it does not divide, or needs more than a sum.
std::optional<models::BlockSpec> part_of(const models::BlockSpec& whole, int64_t ranks) {
  models::BlockSpec part = whole;
  const auto heads = [&](int64_t units, int64_t shared) {
    return divides({.axis = Axis::rows, .units = units, .shared = shared}, ranks);
  };
  const auto channels = [&](int64_t width) { return heads(width % 16 == 0 ? width / 16 : width, 0); };
  if (auto* m = std::get_if<nn::Mamba2Spec>(&part)) {
    if (!heads(m->heads, m->groups) || m->groups < ranks) return {};  // else norms of groups span ranks
    m->heads /= ranks, m->groups /= ranks;
  } else if (auto* a = std::get_if<nn::AttentionSpec>(&part)) {
    if (!heads(a->heads, a->kv_heads)) return {};
    a->heads /= ranks, a->kv_heads = std::max<int64_t>(1, a->kv_heads / ranks);
  } else if (auto* f = std::get_if<nn::MlpSpec>(&part)) {
    if (!channels(f->width)) return {};
    f->width /= ranks;
  } else if (auto* e = std::get_if<nn::MoeSpec>(&part)) {
    if (!channels(e->width) || (e->shared_width > 0 && !channels(e->shared_width))) return {};
    e->width /= ranks, e->shared_width /= ranks;
  } else {
    return {};
  }
  return part;
}

Tensor output(Arena& arena, const models::Config& config, const models::PartSpec& spec, nn::ParamSource& source,
              const View& input) {
  Ctx ctx{.arena = arena};
  const SeqMap seqs = SeqMap::one(input.dim(0));
  nn::StateView state;
  nn::Run run{.ctx = ctx, .seqs = seqs, .state = state};
  const auto rope = config.rope ? std::make_shared<nn::RopeTable>(*config.rope) : nullptr;
  const auto block = build_block(spec.block, {source, *config.spelling, spec.prefix, 0}, rope);
  const Tensor x(arena, DType::f32, input.shape);
  std::memcpy(x.mut().data, input.data, static_cast<size_t>(input.bytes()));
  return block->forward(run, x);
}

TEST_P(Family, PartsOfBlocksAddUpToTheWhole) {
  const io::ModelPath path = this->path();
  const models::Config config = models::load_config(path);
  constexpr int64_t kTokens = 9;
  std::vector<float> input;
  for (int64_t i = 0; i < kTokens * config.hidden; ++i) input.push_back(std::sin(static_cast<float>(i) * 0.7f));
  const View x = view_of(input.data(), {kTokens, config.hidden});
  models::each_part(config, [&](const models::PartSpec& spec) {
    for (const int64_t ranks : {2, 4}) {
      const auto narrow = part_of(spec.block, ranks);
      if (!narrow) continue;
      Arena arena;
      const models::OpenFolder folder = models::open_folder(path);
      Whole files(*folder.source);
      const Tensor want = output(arena, config, spec, files, x);
      std::vector<double> sum(static_cast<size_t>(want.view().count()));
      for (int64_t rank = 0; rank < ranks; ++rank) {
        OneRank own(files, {rank, ranks});
        const Tensor y = output(arena, config, {*narrow, spec.norm, spec.prefix}, own, x);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += element(y.view(), static_cast<int64_t>(i));
      }
      double most = 0, scale = 0;
      for (size_t i = 0; i < sum.size(); ++i) {
        const double value = element(want.view(), static_cast<int64_t>(i));
        most = std::max(most, std::abs(sum[i] - value)), scale = std::max(scale, std::abs(value));
      }
      EXPECT_LT(most, 1e-5 * scale) << spec.prefix << " " << letter_of(spec.block) << " of " << ranks;
      EXPECT_GT(scale, 0) << spec.prefix;
    }
  });
  EXPECT_EQ(by_blocks(config, [](const models::PartSpec& part,
                                 int64_t ranks) { return part_of(part.block, ranks).has_value(); }),
            expected().sums);
}

std::vector<GoldenFolder> cut_folders() {
  std::vector<GoldenFolder> list = all_folders();
  list.push_back({"own_huginn", std::filesystem::path(support::data()) / "huginn"});
  for (const Made& made : kMade) list.push_back({made_label(made), {}});
  return list;
}

INSTANTIATE_TEST_SUITE_P(Folders, Family, testing::ValuesIn(cut_folders()), label_of);

}  // namespace
}  // namespace braid
