// What is left out was nothing: a model whose units along an axis are zero gives the same logits without them. The
// units to cut are drawn, at least one from every group; the layouts say where their parameters are.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "io/safetensors.h"
#include "models/config_file.h"
#include "models/count.h"
#include "models/family.h"
#include "prune/config_edit.h"
#include "prune/cut_model.h"
#include "prune/measure.h"
#include "prune/nested.h"
#include "prune/prune_support.h"
#include "prune/write.h"
#include "support/golden.h"

namespace braid::prune {
namespace {

using models::Config;

// The parameters of a folder in FP32, and the units of some labels zero.
class ZeroedSource final : public nn::ParamSource {
 public:
  ZeroedSource(nn::ParamSource& files, const Layouts& layouts, WeightStore& store)
      : files_(files), layouts_(layouts), store_(store) {}

  // By label and layer; -1 for `hidden`. Of expert_ffn, channels of all experts together.
  std::map<std::pair<Label, int>, std::vector<int64_t>> zero{};
  std::map<int, std::vector<int64_t>> unrouted{};  // experts that no token may choose, by layer

  bool has(const std::string& name) const override { return files_.has(name); }

 protected:
  Param first(const nn::ParamRequest& r) override {
    const Param p = files_.get(r);
    const View& from = p.value.codes;
    const MutView to = store_.make(DType::f32, from.shape);
    for (int64_t i = 0; i < from.count(); ++i) to.as<float>()[i] = static_cast<float>(element(from, i));
    const Layout& layout = layouts_.of(r.name);
    const int64_t blocks = layout.stack ? layout.spec.shape[0] : 1, rows = to.dim(0) / blocks;
    for (int64_t b = 0; b < blocks; ++b) {
      const MutView block = to.slice(0, b * rows, rows);
      const int64_t expert = layout.stack ? b : r.expert;
      erase(block, layout, layout.rows, expert, 0);
      erase(block, layout, layout.cols, expert, 1);
    }
    if (r.role == ParamRole::router_bias) {
      for (const int64_t e : unrouted[r.layer]) to.as<float>()[e] = -1e4f;
    }
    Param out = r.param(dense_weight(to));
    out.name = p.name;
    return out;
  }

 private:
  void erase(const MutView& block, const Layout& layout, const std::vector<Piece>& pieces, int64_t expert, int axis) {
    for (const Piece& p : pieces) {
      const auto found = zero.find({p.label, p.label == Label::hidden ? -1 : layout.spec.layer});
      if (found == zero.end()) continue;
      for (int64_t unit : found->second) {
        if (p.label == Label::expert_ffn) {
          if (unit / p.units != expert) continue;
          unit %= p.units;
        }
        fill(block.slice(axis, p.begin + unit * p.width, p.width), 0);
      }
    }
  }

  nn::ParamSource& files_;
  const Layouts& layouts_;
  WeightStore& store_;
};

// Every third unit, another one in each group.
std::vector<int64_t> drawn(int64_t groups, int64_t size, int64_t cut_each) {
  std::vector<int64_t> units;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < cut_each; ++i) units.push_back(g * size + (g + 1 + i * (size / cut_each)) % size);
  }
  return units;
}

struct Subject {
  explicit Subject(const std::filesystem::path& folder) : path(io::find_model(folder.string())) {
    nlohmann::json raw = io::Json::read(path.folder / "config.json").raw();
    // The scale of a norm is exact without it.
    for (const char* key : {"layer_norm_epsilon", "rms_norm_eps"}) {
      if (raw.contains(key)) raw[key] = 1e-12;
    }
    json = models::config_text(raw);
    config = models::read_config(io::Json::parse(json, "config.json"));
    files = models::open_folder(path);
    layouts = std::make_unique<Layouts>(config, files.source.get());
    zeroed = std::make_unique<ZeroedSource>(*files.source, *layouts, store);
    ranges = axes_of(config, {});
  }

  // The scores that a measurement gives, and those of what is cut below all others.
  void cut(Axis axis, int layer, Label label, const std::vector<int64_t>& units) {
    zero(layer, label, units);
    for (const int64_t u : units) scores.of.at({axis, layer})[static_cast<size_t>(u)] = -1;
  }
  void zero(int layer, Label label, const std::vector<int64_t>& units) {
    auto& list = zeroed->zero[{label, layer}];
    list.insert(list.end(), units.begin(), units.end());
  }

  io::ModelPath path;
  std::string json;
  Config config;
  models::OpenFolder files;
  WeightStore store;
  std::unique_ptr<Layouts> layouts;
  std::unique_ptr<ZeroedSource> zeroed;
  std::array<AxisRange, kAxes> ranges;
  Scores scores;
};

// Zeroes units of one block along an axis; their number follows from `is`.
struct Zero {
  Subject& s;
  Axis axis;
  int layer;

  void operator()(const nn::Mamba2Spec& was, const nn::Mamba2Spec& is) const {
    std::vector<int64_t> channels, heads;
    if (axis == Axis::mamba_heads)
      heads = drawn(was.groups, was.heads / was.groups, (was.heads - is.heads) / was.groups);
    const auto add = [&](int64_t h, int64_t p) { channels.push_back(h * was.head_dim + p); };
    for (const int64_t h : heads) {
      for (int64_t p = 0; p < was.head_dim; ++p) add(h, p);
    }
    if (axis == Axis::mamba_head_dim) {
      for (const int64_t p : drawn(1, was.head_dim, was.head_dim - is.head_dim)) {
        for (int64_t h = 0; h < was.heads; ++h) add(h, p);
      }
    }
    s.zero(layer, Label::inner, channels);
    for (const int64_t c : channels) s.scores.of.at({Axis::mamba_heads, layer})[static_cast<size_t>(c)] = 0;
  }
  void operator()(const nn::AttentionSpec& was, const nn::AttentionSpec& is) const {
    const int64_t per_key = was.heads / was.kv_heads, stay = is.heads / is.kv_heads;
    if (axis == Axis::heads) s.cut(Axis::heads, layer, Label::q_heads, drawn(was.kv_heads, per_key, per_key - stay));
    if (axis != Axis::kv_groups) return;
    const std::vector<int64_t> keys = drawn(1, was.kv_heads, was.kv_heads - is.kv_heads);
    s.zero(layer, Label::kv_heads, keys);
    for (const int64_t k : keys) {
      for (int64_t h = k * per_key; h < (k + 1) * per_key; ++h) {
        s.zero(layer, Label::q_heads, {h});
        s.scores.of.at({Axis::heads, layer})[static_cast<size_t>(h)] = 0;
      }
    }
  }
  void operator()(const nn::MlpSpec& was, const nn::MlpSpec& is) const {
    if (axis == Axis::ffn) s.cut(axis, layer, Label::ffn, drawn(1, was.width, was.width - is.width));
  }
  void operator()(const nn::MoeSpec& was, const nn::MoeSpec& is) const {
    if (axis == Axis::expert_ffn)
      s.cut(axis, layer, Label::expert_ffn, drawn(was.experts, was.width, was.width - is.width));
    if (axis == Axis::shared_ffn)
      s.cut(axis, layer, Label::ffn, drawn(1, was.shared_width, was.shared_width - is.shared_width));
    if (axis == Axis::latent) s.cut(axis, layer, Label::latent, drawn(1, was.latent, was.latent - is.latent));
    if (axis == Axis::experts) {
      const std::vector<int64_t> cut =
          drawn(was.n_group, was.experts / was.n_group, (was.experts - is.experts) / was.n_group);
      s.zeroed->unrouted[layer] = cut;
      for (const int64_t e : cut) s.scores.of.at({axis, layer})[static_cast<size_t>(e)] = -1;
    }
  }
  void operator()(const models::LinearSpec&, const models::LinearSpec&) const {}
};

// A layer without its outputs: nothing of it reaches the stream.
void zero_layers(Subject& s, int64_t count) {
  for (const int64_t l : drawn(1, std::ssize(s.config.layers), count)) {
    s.scores.of.at({Axis::layers, -1})[static_cast<size_t>(l)] = -1;
    const auto layer = static_cast<int>(l);
    for (const models::PartSpec& part : s.config.layers[static_cast<size_t>(l)].parts) {
      const auto all = [](int64_t n) { return drawn(1, n, n); };
      if (const auto* m = std::get_if<nn::Mamba2Spec>(&part.block)) s.zero(layer, Label::inner, all(m->inner()));
      if (const auto* a = std::get_if<nn::AttentionSpec>(&part.block)) s.zero(layer, Label::q_heads, all(a->heads));
      if (const auto* f = std::get_if<nn::MlpSpec>(&part.block)) s.zero(layer, Label::ffn, all(f->width));
      if (const auto* e = std::get_if<nn::MoeSpec>(&part.block)) {
        s.zero(layer, Label::expert_ffn, all(e->experts * e->width));
        if (e->shared_width > 0) s.zero(layer, Label::ffn, all(e->shared_width));
      }
    }
  }
}

// About three quarters.
int64_t sizes_near(const AxisRange& r) {
  const int64_t size = 3 * r.full / 4 / r.step * r.step;
  return std::clamp(size, r.least, r.full - r.step);
}

int64_t count_of(const Config& config) {
  const models::Parameters p = models::count_parameters(config);
  return p.total + p.mtp;
}

// Scaled norms are rounded to the type of the files.
void round_norms(models::Model& model, const io::ModelPath& path) {
  if (model.config().norm != models::NormKind::rms) return;  // of LayerNorm none is scaled
  const io::Safetensors files(path.weights);
  for (Param* p : model.params()) {
    if (p->role != ParamRole::norm && p->role != ParamRole::gated_norm) continue;
    if (files.need(p->name).dtype != DType::bf16) continue;
    const View& v = p->value.codes;
    auto* values = const_cast<float*>(v.as<float>());  // in the store of the model, which is this test's
    for (int64_t i = 0; i < v.count(); ++i) values[i] = to_float(to_bf16(values[i]));
  }
}

struct Case {
  GoldenFolder folder;
  Axis axis = Axis::hidden;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.folder.label << " " << name_of(c.axis); }

// Every axis of every folder, where zeros can make units superfluous.
std::vector<Case> cases() {
  std::vector<Case> list;
  for (const GoldenFolder& folder : unquantised_folders()) {
    const Config config = models::load_config(io::find_model(folder.path.string()));
    for (const AxisRange& range : axes_of(config, {})) {
      const bool layer_norm = config.norm != models::NormKind::rms;  // subtracts the mean of all channels
      const bool no_bias = config.family == "qwen3_moe";             // that excludes an expert
      const bool linear = config.family == "nemotron-nas";           // plain maps have no units
      const bool exact = !(range.axis == Axis::hidden && layer_norm) && !(range.axis == Axis::experts && no_bias) &&
                         !(range.axis == Axis::layers && linear);
      if (range.why.empty() && exact) list.push_back({folder, range.axis});
    }
  }
  return list;
}

class Exact : public testing::TestWithParam<Case> {};

TEST_P(Exact, ZeroUnitsAreNotMissed) {
  const Axis axis = GetParam().axis;
  Subject s(GetParam().folder.path);
  const AxisRange& range = s.ranges[static_cast<size_t>(axis)];
  Sizes sizes;
  sizes[axis] = sizes_near(range);
  s.scores = random_scores(s.config, 3);
  const Resizer resizer(s.config, sizes);
  if (axis == Axis::hidden) s.cut(axis, -1, Label::hidden, drawn(1, s.config.hidden, s.config.hidden - sizes[axis]));
  if (axis == Axis::layers) zero_layers(s, range.full - sizes[axis]);
  int layer = 0;
  const auto each = [&](const std::vector<models::LayerSpec>& layers) {
    for (const models::LayerSpec& l : layers) {
      for (const models::PartSpec& part : l.parts) {
        const models::BlockSpec small = resizer(part.block);
        std::visit(
            [&](const auto& was) {
              Zero{s, axis, layer}(was, std::get<std::decay_t<decltype(was)>>(small));
            },
            part.block);
      }
      ++layer;
    }
  };
  each(s.config.layers);
  if (s.config.mtp) each(s.config.mtp->layers);

  const auto parent = whole_model(s.config, *s.zeroed);
  const auto rows = random_rows(s.config.vocab, 3, 20);
  s.scores.energy = measured_scores(*parent, rows, ExpertScore::all_tokens, 1, [](int64_t) { return true; }).energy;
  const Keep keep = choose(s.config, *s.layouts, sizes, s.scores);
  const auto child = cut_model(s.config, *s.layouts, keep, sizes, *s.zeroed);
  EXPECT_LT(count_of(child->config()), count_of(s.config));
  for (const data::Batch& row : rows) EXPECT_LT(difference(logits_of(*parent, row), logits_of(*child, row)), 2e-5);

  // So it is where units lie in the order of their importance.
  Keep first = first_of(s.config, order_of(s.config, s.scores), sizes);
  scale_norms(s.config, *s.layouts, s.scores, first);
  const auto prefix = cut_model(s.config, *s.layouts, first, sizes, *s.zeroed);
  for (const data::Batch& row : rows) EXPECT_LT(difference(logits_of(*parent, row), logits_of(*prefix, row)), 2e-5);

  // As a folder it is the same model.
  const support::Folder place;
  const std::filesystem::path out = place.path() / "small";
  CutSource source(*s.zeroed, *s.layouts, keep, s.store);
  const std::string text = small_config_text(io::Json::parse(s.json, "config.json"), child->config(), keep.layers);
  const bool stacked = std::any_of(s.layouts->names().begin(), s.layouts->names().end(),
                                   [&](const std::string& name) { return s.layouts->of(name).stack; });
  ASSERT_TRUE(write_small(s.path, child->config(), source, stacked, text, out, [](int64_t, int64_t) { return true; }));
  const auto again = models::load_model(io::find_model(out.string()));
  round_norms(*child, s.path);
  for (const data::Batch& row : rows) EXPECT_LT(difference(logits_of(*child, row), logits_of(*again, row)), 2e-5);
  EXPECT_TRUE(std::filesystem::exists(out / "generation_config.json") ||
              !std::filesystem::exists(s.path.folder / "generation_config.json"));
}

// Routers that lose experts balance the others anew, if asked; those that lose none keep what they have.
TEST(Choice, TheBiasOfRoutersThatLoseExpertsIsReset) {
  Subject s(support::data("hf/nemotron-h-latent-mtp"));
  s.scores = random_scores(s.config, 5);
  const auto nonzero = [&](const Sizes& sizes, bool reset) {
    Keep keep = choose(s.config, *s.layouts, sizes, s.scores);
    keep.reset_router_bias = reset;
    const auto child = cut_model(s.config, *s.layouts, keep, sizes, *s.zeroed);
    CutSource source(*s.zeroed, *s.layouts, keep, s.store);
    int64_t values = 0, routers = 0;
    for (const models::TensorSpec& spec : models::inventory(child->config())) {
      if (spec.role != ParamRole::router_bias) continue;
      const Param bias = source.cut(spec);
      for (int64_t i = 0; i < bias.value.codes.count(); ++i) values += element(bias.value.codes, i) != 0;
      ++routers;
    }
    EXPECT_GT(routers, 0);
    return values;
  };
  Sizes fewer;
  fewer[Axis::experts] = 8;
  EXPECT_EQ(nonzero(fewer, true), 0);
  EXPECT_GT(nonzero(fewer, false), 0);
  EXPECT_GT(nonzero({}, true), 0);
}

// Even where one group has all the best heads.
TEST(Choice, MambaHeadsAreRankedInsideTheirGroups) {
  Subject s(support::data("hf/nemotron-h-latent-mtp"));  // 8 heads in 2 groups
  s.scores = random_scores(s.config, 5);
  std::vector<double>& scores = s.scores.of.at({Axis::mamba_heads, 0});
  for (size_t i = 0; i < scores.size() / 2; ++i) scores[i] += 10;
  Sizes sizes;
  sizes[Axis::mamba_heads] = 4;
  const Keep keep = choose(s.config, *s.layouts, sizes, s.scores);
  const std::vector<int64_t>& heads = keep.of_layer.at(0)[Label::mamba_heads];
  ASSERT_EQ(heads.size(), 4u);
  EXPECT_LT(heads[1], 4);
  EXPECT_GE(heads[2], 4);
}

INSTANTIATE_TEST_SUITE_P(All, Exact, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.folder.label + "_" + name_of(test.param.axis); });

}  // namespace
}  // namespace braid::prune
