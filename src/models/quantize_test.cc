// A quantised folder: its files, compared with the values of the original folder.
#include "models/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>

#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "models/load.h"
#include "support/models.h"
#include "sys/read.h"

namespace braid::models {
namespace {

constexpr const char* kMixerInProj = "backbone.layers.0.mixer.in_proj.weight";       // [222, 32]
constexpr const char* kUp = "backbone.layers.1.mixer.experts.3.up_proj.weight";      // [20, 32]
constexpr const char* kDown = "backbone.layers.1.mixer.experts.3.down_proj.weight";  // [32, 20]: no rows of sixteens

constexpr auto go_on = [](int64_t, int64_t) { return true; };

class Quantize : public FolderTest {
 protected:
  Quantize() { write(hybrid(), tensors_of(hybrid())); }

  std::filesystem::path out() const { return folder_ / "out"; }
  QuantReport quantize(const QuantRecipe& recipe, bool strict = false) const {
    return quantize_model(io::find_model(folder_.string()), recipe, out(), {.strict = strict, .threads = 3}, go_on);
  }
  std::string refusal_of(const QuantRecipe& recipe, bool strict = false) const {
    return error_of([&] { quantize(recipe, strict); });
  }
  static QuantRecipe one(const std::string& role, QuantFormat format, ScaleSearch scales = ScaleSearch::max) {
    return {.name = "test", .rules = {{.roles = {role}, .format = format, .scales = scales}}};
  }
  io::Safetensors before() const { return io::Safetensors(folder_ / "model.safetensors"); }
  io::Safetensors after() const { return io::Safetensors(out()); }
};

double value(const View& view, int64_t i) { return element(view, i); }

// By the definition alone: value (r, c) of a matrix of NVFP4.
double nvfp4_value(const io::Safetensors& files, const std::string& name, int64_t r, int64_t c) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const View codes = files.need(name), scales = files.need(name + "_scale");
  const int byte = codes.as<uint8_t>(r)[c / 2], code = c % 2 ? byte >> 4 : byte & 15;
  const double magnitude = kMagnitudes[code & 7] * element(scales, r * scales.dim(1) + c / 16);
  return (code & 8 ? -magnitude : magnitude) * element(files.need(name + "_scale_2"), 0);
}

double squared_error(const io::Safetensors& before, const io::Safetensors& after, const std::string& name) {
  const View values = before.need(name);
  double sum = 0;
  for (int64_t r = 0; r < values.dim(0); ++r) {
    for (int64_t c = 0; c < values.dim(1); ++c)
      sum += std::pow(value(values, r * values.dim(1) + c) - nvfp4_value(after, name, r, c), 2);
  }
  return sum;
}

TEST_F(Quantize, Nvfp4IsWithinHalfAStepOfEveryValue) {
  const QuantReport report = quantize(one("mamba_in", QuantFormat::nvfp4));
  ASSERT_EQ(report.groups.size(), 1u);
  EXPECT_EQ(report.groups[0].bytes, 222 * (16 + 2) + 4);
  const io::Safetensors from = before(), to = after();
  const View values = from.need(kMixerInProj), scales = to.need(std::string(kMixerInProj) + "_scale");
  double square = 0;
  for (int64_t r = 0; r < 222; ++r) {
    for (int64_t c = 0; c < 32; ++c) {
      const double v = value(values, r * 32 + c), q = nvfp4_value(to, kMixerInProj, r, c);
      const double scale =
          element(scales, r * 2 + c / 16) * element(to.need(std::string(kMixerInProj) + "_scale_2"), 0);
      // The widest gap is from 4 to 6; a scale rounded down by 1/16 puts the largest value that much beyond 6.
      EXPECT_LE(std::fabs(v - q), 1.001 * scale) << r << " " << c;
      square += v * v;
    }
  }
  EXPECT_NEAR(report.groups[0].error, std::sqrt(squared_error(from, to, kMixerInProj) / square), 1e-6);
}

// Readers make one product of q, k and v, and of gate and up, with the largest of their scales of whole tensors.
TEST_F(Quantize, MatricesThatReadersJoinHaveOneScale) {
  const nlohmann::json config = dense("llama");
  write("config.json", config.dump());
  const auto specs = tensors_of(config);
  io::SafetensorsWriter file(folder_ / "model.safetensors", specs);
  std::mt19937 random(1);
  int64_t step = 0;
  const auto is_zero = [](const std::string& name) { return name.ends_with("v_proj.weight"); };
  for (const io::TensorSpec& spec : file.order()) {  // each matrix with another largest value, one all zeros
    std::vector<std::byte> bytes(static_cast<size_t>(spec.bytes()));
    const MutView values(bytes.data(), spec.dtype, spec.shape);
    const double most = is_zero(spec.name) ? 0 : static_cast<double>(++step) / 1024;
    for (int64_t i = 0; i < values.count(); ++i)
      set_element(values, i, most * (static_cast<double>(random() % 64) - 32));
    file.write(spec.name, bytes);
  }
  file.finish();
  for (const QuantFormat format : {QuantFormat::nvfp4, QuantFormat::fp8}) {
    QuantOptions options{.threads = 2};
    for (const io::TensorSpec& spec : specs)
      options.input_amax[spec.name] = is_zero(spec.name) ? 0 : static_cast<float>(spec.name.size());
    const QuantRecipe recipe{.name = "test", .rules = {{.format = format}}};
    quantize_model(io::find_model(folder_.string()), recipe, out(), options, go_on);
    const io::Safetensors from = before(), to = after();
    const bool fp4 = format == QuantFormat::nvfp4;
    for (const std::vector<std::string>& group :
         {std::vector<std::string>{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
          {"mlp.gate_proj", "mlp.up_proj"},
          {"self_attn.o_proj"}}) {
      double amax = 0, inputs = 0;
      for (const std::string& module : group) {
        const std::string name = "model.layers.1." + module + ".weight";
        const View values = from.need(name);
        for (int64_t i = 0; i < values.count(); ++i) amax = std::max(amax, std::fabs(value(values, i)));
        inputs = std::max(inputs, static_cast<double>(name.size()));
      }
      const double largest = fp4 ? 6 * 448 : 448;
      for (const std::string& module : group) {
        const std::string name = "model.layers.1." + module;
        const double global = element(to.need(name + (fp4 ? ".weight_scale_2" : ".weight_scale")), 0);
        EXPECT_NEAR(global, amax / largest, 1e-6 * global) << module;
        EXPECT_NEAR(element(to.need(name + ".input_scale"), 0), inputs / largest, 1e-6) << module;
        const View values = from.need(name + ".weight"), codes = to.need(name + ".weight");
        double error = 0, square = 0;
        for (int64_t i = 0; i < values.count(); ++i) {
          const double q = fp4 ? nvfp4_value(to, name + ".weight", i / values.dim(1), i % values.dim(1))
                               : element(codes, i) * global;
          error += std::pow(value(values, i) - q, 2);
          square += std::pow(value(values, i), 2);
        }
        EXPECT_LE(error, (fp4 ? 0.015 : 0.001) * square) << module;
      }
    }
    std::filesystem::remove_all(out());
  }
}

TEST_F(Quantize, WhatNoRuleFitsKeepsItsBytesAndTheModelLoads) {
  quantize(one("mamba_in", QuantFormat::nvfp4));
  const io::Safetensors from = before(), to = after();
  EXPECT_EQ(to.tensors().size(), from.tensors().size() + 2);
  for (const io::StoredTensor& tensor : from.tensors()) {
    if (tensor.name == kMixerInProj) continue;
    const View copy = to.need(tensor.name);
    ASSERT_EQ(copy.bytes(), tensor.view.bytes()) << tensor.name;
    EXPECT_TRUE(std::equal(copy.data, copy.data + copy.bytes(), tensor.view.data)) << tensor.name;
  }
  const auto model = load_model(io::find_model(out().string()));
  EXPECT_EQ(model->params().size(), tensors_of(hybrid()).size());
  EXPECT_NE(refusal_of(one("mamba_in", QuantFormat::nvfp4)).find("already exists"), std::string::npos);
}

TEST_F(Quantize, ASearchOfScalesNeverLoses) {
  double errors[3] = {};
  for (const ScaleSearch search : {ScaleSearch::max, ScaleSearch::four_over_six, ScaleSearch::mse}) {
    quantize(one("mamba_in", QuantFormat::nvfp4, search));
    errors[static_cast<size_t>(search)] = squared_error(before(), after(), kMixerInProj);
    std::filesystem::remove_all(out());
  }
  EXPECT_LT(errors[1], 0.95 * errors[0]);
  EXPECT_LT(errors[2], 0.95 * errors[0]);
}

TEST_F(Quantize, Fp8HoldsAnyWidthAndNvfp4ThatOfSixteens) {
  const QuantReport report =
      quantize({.name = "test",
                .rules = {{.roles = {"mamba_out"}, .format = QuantFormat::fp8}, {.format = QuantFormat::nvfp4}}});
  EXPECT_EQ(after().need("backbone.layers.2.mixer.q_proj.weight").dtype, DType::u8);
  for (const char* whole : {kUp, kDown}) EXPECT_EQ(after().need(whole).dtype, DType::bf16) << whole;  // one module
  EXPECT_EQ(after().need("backbone.layers.0.mixer.out_proj.weight").dtype, DType::f8_e4m3);
  for (const char* kept : {"backbone.embeddings.weight", "lm_head.weight", "backbone.layers.1.mixer.gate.weight"})
    EXPECT_EQ(after().need(kept).dtype, DType::bf16) << kept;
  EXPECT_TRUE(report.notes.empty());
  const auto misfit = [&](const char* name) {
    const auto found = std::ranges::find_if(report.misfits, [&](const auto& m) { return m.starts_with(name); });
    return found == report.misfits.end() ? "" : *found;
  };
  EXPECT_NE(misfit(kDown).find("has rows of 20 values"), std::string::npos) << misfit(kDown);
  EXPECT_NE(misfit(kUp).find("is in one module with"), std::string::npos) << misfit(kUp);
  const auto group = [&](const std::string& role) {
    return *std::ranges::find_if(report.unfit, [&](const QuantGroup& g) { return g.role == role; });
  };
  EXPECT_EQ(group("expert_down").tensors, 8);
  EXPECT_EQ(group("expert_down").values, 8 * 32 * 20);
  EXPECT_EQ(group("expert_down").bytes, 2 * 8 * 32 * 20);
  EXPECT_NE(group("expert_down").why.find("fp8 holds them"), std::string::npos);
  EXPECT_EQ(group("expert_up").why, "is in one module with expert_down");
  EXPECT_NE(misfit(kUp).find("down_proj.weight, which has rows of 20 values"), std::string::npos) << misfit(kUp);
  const io::Safetensors source = before(), to = after();
  const View from = source.need("backbone.layers.0.mixer.out_proj.weight");
  const View codes = to.need("backbone.layers.0.mixer.out_proj.weight");
  const double scale = element(to.need("backbone.layers.0.mixer.out_proj.weight_scale"), 0);
  for (int64_t i = 0; i < from.count(); ++i) {
    const double v = value(from, i);
    EXPECT_LE(std::fabs(v - element(codes, i) * scale), std::max(v / 16, scale * 0x1p-10))
        << i;  // half of 2^-3, or of 2^-9
  }
}

Param in_proj_of(const OpenFolder& folder) {
  nn::ParamRequest request;
  request.name = kMixerInProj;
  request.role = ParamRole::mamba_in;
  request.shape = {222, 32};
  return folder.source->get(request);
}

// By the definition of pack-quantized alone: value (r, c), its bits anywhere in the stream of its row.
double packed_value(const io::Safetensors& files, const std::string& name, int bits, int64_t r, int64_t c) {
  const View codes = files.need(name + "_packed"), scales = files.need(name + "_scale");
  uint32_t code = 0;
  for (int bit = 0; bit < bits; ++bit) {
    const int64_t at = c * bits + bit;
    const auto word = static_cast<uint32_t>(codes.as<int32_t>(r)[at / 32]);
    code |= (word >> at % 32 & 1) << bit;
  }
  return (static_cast<double>(code) - (1 << (bits - 1))) * element(scales, r * scales.dim(1) + c / 32);
}

TEST_F(Quantize, IntegersAreWithinAStepAndLoadAsTheirDefinition) {
  for (const auto& [format, bits] : {std::pair{QuantFormat::int3, 3}, {QuantFormat::int4, 4}, {QuantFormat::int8, 8}}) {
    for (const ScaleSearch search : {ScaleSearch::max, ScaleSearch::mse}) {
      const QuantReport report = quantize(one("mamba_in", format, search));
      const io::Safetensors from = before(), to = after();
      const std::string name = kMixerInProj;
      EXPECT_EQ(to.find(name), nullptr);
      const View shape = to.need(name + "_shape"), scales = to.need(name + "_scale"), values = from.need(name);
      EXPECT_EQ(element(shape, 0), 222);
      EXPECT_EQ(element(shape, 1), 32);
      EXPECT_EQ(report.groups.at(0).bytes, 222 * (32 * bits / 8 + 2) + 16);
      const OpenFolder folder = open_folder(io::find_model(out().string()));
      const Param param = in_proj_of(folder);
      EXPECT_EQ(param.name, name);
      EXPECT_EQ(param.value.spec.format, Format::ggml);
      const std::vector<double> decoded = decode(param.value);
      double error = 0, square = 0;
      for (int64_t i = 0; i < values.count(); ++i) {
        const double v = value(values, i), q = packed_value(to, name, bits, i / 32, i % 32);
        ASSERT_EQ(decoded[static_cast<size_t>(i)], q) << bits << " bits, value " << i;
        // Half a step, and where the peak has the sign of no code, a whole one.
        if (search == ScaleSearch::max) {
          EXPECT_LE(std::fabs(v - q), 1.01 * std::fabs(element(scales, i / 32))) << i;
        }
        error += std::pow(v - q, 2);
        square += v * v;
      }
      EXPECT_NEAR(report.groups.at(0).error, std::sqrt(error / square), 1e-6);
      std::filesystem::remove_all(out());
    }
  }
}

TEST_F(Quantize, Mxfp4LoadsAsItsDefinition) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  double errors[2] = {};
  for (const ScaleSearch search : {ScaleSearch::max, ScaleSearch::mse}) {
    errors[search == ScaleSearch::mse] = quantize(one("mamba_in", QuantFormat::mxfp4, search)).groups.at(0).error;
    const io::Safetensors to = after();
    const View codes = to.need(std::string(kMixerInProj) + "_packed"),
               scales = to.need(std::string(kMixerInProj) + "_scale");
    const OpenFolder folder = open_folder(io::find_model(out().string()));
    const Param param = in_proj_of(folder);
    const std::vector<double> decoded = decode(param.value);
    for (int64_t i = 0; i < 222 * 32; ++i) {
      const int code = codes.as<uint8_t>()[i / 2] >> i % 2 * 4 & 15;
      const double v = kMagnitudes[code & 7] * std::exp2(scales.as<uint8_t>()[i / 32] - 127);
      ASSERT_EQ(decoded[static_cast<size_t>(i)], code & 8 ? -v : v) << i;
    }
    std::filesystem::remove_all(out());
  }
  EXPECT_LT(errors[1], errors[0]);
}

TEST_F(Quantize, SearchedScalesOfIntegersAreBetter) {
  const double first = quantize(one("mamba_in", QuantFormat::int4)).groups.at(0).error;
  std::filesystem::remove_all(out());
  EXPECT_LT(quantize(one("mamba_in", QuantFormat::int4, ScaleSearch::mse)).groups.at(0).error, 0.97 * first);
}

TEST_F(Quantize, MetadataOfCompressedTensors) {
  quantize({.name = "test",
            .rules = {{.roles = {"mamba_in"}, .format = QuantFormat::int4},
                      {.roles = {"head"}, .format = QuantFormat::int8}}});
  EXPECT_FALSE(std::filesystem::exists(out() / "hf_quant_config.json"));
  const auto config = nlohmann::json::parse(sys::read_file(out() / "config.json")).at("quantization_config");
  EXPECT_EQ(config.at("quant_method"), "compressed-tensors");
  EXPECT_EQ(config.at("format"), "pack-quantized");
  const auto& groups = config.at("config_groups");
  EXPECT_EQ(groups.at("group_0").at("targets"), nlohmann::json::array({"lm_head"}));
  EXPECT_EQ(groups.at("group_0").at("weights").at("num_bits"), 8);
  EXPECT_EQ(groups.at("group_1").at("weights").at("group_size"), 32);
  EXPECT_EQ(groups.at("group_1").at("targets"), nlohmann::json::array({R"(re:.*layers\.0\.mixer\.in_proj$)"}));
  EXPECT_NE(std::ranges::find(config.at("ignore"), "re:.*embeddings$"), config.at("ignore").end());
}

// FP8 keys and values: their scales are copied, so the folder says that it has them.
TEST_F(Quantize, MetadataKeepsTheCacheAndNamesConvolutions) {
  nlohmann::json config = hybrid();
  config["quantization_config"] = {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}, {"kv_cache_quant_algo", "FP8"}};
  write("config.json", config.dump());
  for (const QuantFormat format : {QuantFormat::nvfp4, QuantFormat::int4}) {
    quantize(one("mamba_in", format));
    const auto written = nlohmann::json::parse(sys::read_file(out() / "config.json")).at("quantization_config");
    const bool modelopt = format == QuantFormat::nvfp4;
    if (modelopt) {
      EXPECT_EQ(written.at("kv_cache_quant_algo"), "FP8");
      const auto other = nlohmann::json::parse(sys::read_file(out() / "hf_quant_config.json")).at("quantization");
      EXPECT_EQ(other.at("kv_cache_quant_algo"), "FP8");
      EXPECT_NE(std::ranges::find(other.at("exclude_modules"), "backbone.layers.0.mixer.conv1d"),
                other.at("exclude_modules").end());
    }
    const char* conv = modelopt ? "backbone.layers.0.mixer.conv1d" : R"(re:.*layers\.0\.mixer\.conv1d$)";
    EXPECT_NE(std::ranges::find(written.at("ignore"), conv), written.at("ignore").end());
    EXPECT_EQ(load_config(io::find_model(out().string())).kv_cache, DType::f8_e4m3);
    std::filesystem::remove_all(out());
  }
  write("config.json", hybrid().dump());
  quantize(one("mamba_in", QuantFormat::nvfp4));
  EXPECT_FALSE(load_config(io::find_model(out().string())).kv_cache);
}

TEST_F(Quantize, ValuesThatHalfPrecisionCannotScaleAreRefused) {
  auto specs = tensors_of(hybrid());
  for (io::TensorSpec& spec : specs) {
    if (spec.name == kMixerInProj) spec.dtype = DType::f32;
  }
  io::SafetensorsWriter file(folder_ / "model.safetensors", specs);
  for (const io::TensorSpec& spec : file.order()) {
    std::vector<std::byte> bytes(static_cast<size_t>(spec.bytes()));
    if (spec.name == kMixerInProj) set_element(MutView(bytes.data(), spec.dtype, spec.shape), 77, 1e6);
    file.write(spec.name, bytes);
  }
  file.finish();
  EXPECT_NE(refusal_of(one("mamba_in", QuantFormat::int4)).find("int4 cannot hold"), std::string::npos);
  EXPECT_EQ(refusal_of(one("mamba_in", QuantFormat::mxfp4)), "");
}

// A copy of a folder of which the experts of layer 1 are in stacks, under another spelling of "backbone.".
void write_stacked(const io::Safetensors& from, const nlohmann::json& config, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  io::write_text_file(folder / "config.json", config.dump());
  std::map<std::string, std::vector<std::byte>> bytes;
  std::vector<io::TensorSpec> specs;
  const auto add = [&](const std::string& name, DType dtype, const Shape& shape) -> std::vector<std::byte>& {
    specs.push_back({name.starts_with("backbone.") ? "model." + name.substr(9) : name, dtype, shape});
    return bytes[specs.back().name];
  };
  for (const io::StoredTensor& t : from.tensors()) {
    if (t.name.find(".experts.") == std::string::npos)
      add(t.name, t.view.dtype, t.view.shape).assign(t.view.data, t.view.data + t.view.bytes());
  }
  const std::string experts = "backbone.layers.1.mixer.experts.";
  for (const std::string leaf : {"up_proj", "down_proj"}) {
    auto& all = add(experts + leaf, DType::bf16, {8, 32, 32});
    for (int e = 0; e < 8; ++e) {
      const View one = from.need(fmt::format("{}{}.{}.weight", experts, e, leaf));
      all.insert(all.end(), one.data, one.data + one.bytes());
    }
  }
  io::SafetensorsWriter file(folder / "model.safetensors", specs);
  for (const io::TensorSpec& spec : file.order()) file.write(spec.name, bytes.at(spec.name));
  file.finish();
}

// Experts in stacks become the tensors that the same experts one by one do, byte for byte.
TEST_F(Quantize, StacksOfExpertsAreWrittenOneByOne) {
  nlohmann::json config = hybrid();
  config["moe_intermediate_size"] = 32;
  write(config, tensors_of(config));
  const std::filesystem::path stacked = folder_ / "stacked";
  write_stacked(before(), config, stacked);
  const auto written = [&](const std::filesystem::path& model, const QuantRecipe& recipe, const char* name) {
    QuantOptions options{.threads = 2};
    for (int e = 0; e < 8; ++e) {
      const auto amax = static_cast<float>(1 + e);
      options.input_amax[fmt::format("backbone.layers.1.mixer.experts.{}.up_proj.weight", e)] = amax;
      options.input_amax[fmt::format("model.layers.1.mixer.experts.up_proj[{}]", e)] = amax;
    }
    return quantize_model(io::find_model(model.string()), recipe, folder_ / name, options, go_on);
  };
  for (const QuantFormat format : {QuantFormat::nvfp4, QuantFormat::fp8, QuantFormat::int4}) {
    const std::filesystem::path apart = folder_ / "apart", of_stacks = folder_ / "of-stacks";
    const QuantReport a = written(folder_, one("expert_*", format), "apart"),
                      b = written(stacked, one("expert_*", format), "of-stacks");
    EXPECT_EQ(a.bytes(), b.bytes());
    EXPECT_EQ(a.values(), b.values());
    EXPECT_TRUE(b.unfit.empty());
    const io::Safetensors x(apart), y(of_stacks);
    ASSERT_EQ(x.tensors().size(), y.tensors().size());
    for (const io::StoredTensor& t : x.tensors()) {
      const View same = y.need(t.name.starts_with("backbone.") ? "model." + t.name.substr(9) : t.name);
      ASSERT_TRUE(same.dtype == t.view.dtype && same.bytes() == t.view.bytes()) << t.name;
      EXPECT_TRUE(std::equal(same.data, same.data + same.bytes(), t.view.data)) << t.name;
    }
    EXPECT_EQ(load_model(io::find_model(of_stacks.string()))->params().size(), tensors_of(config).size());
    std::filesystem::remove_all(apart);
    std::filesystem::remove_all(of_stacks);
  }
  // A stack that stays is a module of its own in the metadata.
  written(stacked, one("expert_up", QuantFormat::fp8), "half");
  EXPECT_NE(io::Safetensors(folder_ / "half").find("model.layers.1.mixer.experts.down_proj"), nullptr);
  const auto ignored = nlohmann::json::parse(sys::read_file(folder_ / "half" / "config.json"))
                           .at("quantization_config")
                           .at("ignore")
                           .get<std::vector<std::string>>();
  EXPECT_EQ(std::ranges::count(ignored, "model.layers.1.mixer.experts"), 1);
  EXPECT_NO_THROW(load_model(io::find_model((folder_ / "half").string())));
}

TEST_F(Quantize, StrictRefusesWhatDoesNotFit) {
  const std::string text = refusal_of(one("expert_down", QuantFormat::nvfp4), true);
  EXPECT_NE(text.find("experts.0.down_proj"), std::string::npos) << text;
  EXPECT_NE(text.find("multiple of 16"), std::string::npos) << text;
  EXPECT_NE(refusal_of(one("expert_down", QuantFormat::nvfp4)).find("fp8 holds them"), std::string::npos);
}

TEST_F(Quantize, LayersBeforeAttentionAreKept) {
  QuantRecipe recipe = one("expert_up", QuantFormat::nvfp4);  // M E * -: the experts come before attention
  recipe.rules.insert(recipe.rules.begin(), QuantRule{.roles = {"expert_*"}, .before_attention = true});
  EXPECT_NE(refusal_of(recipe).find("no matrix"), std::string::npos);
  recipe.rules[0].roles = {"mamba_in"};
  EXPECT_EQ(refusal_of(recipe), "");
}

TEST_F(Quantize, AQuantisedFolderIsSource) {
  quantize(one("mamba_in", QuantFormat::nvfp4));
  const auto again = folder_ / "again";
  quantize_model(io::find_model(out().string()), one("mamba_in", QuantFormat::nvfp4), again, {.threads = 2}, go_on);
  const io::Safetensors first = after(), second(again);
  ASSERT_EQ(second.tensors().size(), first.tensors().size());
  double apart = 0, square = 0;
  for (int64_t r = 0; r < 222; ++r) {
    for (int64_t c = 0; c < 32; ++c) {
      apart += std::pow(nvfp4_value(first, kMixerInProj, r, c) - nvfp4_value(second, kMixerInProj, r, c), 2);
      square += std::pow(nvfp4_value(first, kMixerInProj, r, c), 2);
    }
  }
  EXPECT_LT(apart, 1e-4 * square);
}

TEST_F(Quantize, WhatStaysQuantisedIsNamedInTheMetadataOrRefused) {
  quantize(one("mamba_in", QuantFormat::fp8));
  const io::ModelPath source = io::find_model(out().string());
  const QuantReport report = quantize_model(source, one("expert_up", QuantFormat::nvfp4), folder_ / "both", {}, go_on);
  const auto config = nlohmann::json::parse(sys::read_file(folder_ / "both" / "config.json")).at("quantization_config");
  EXPECT_EQ(config.at("quant_algo"), "MIXED_PRECISION");
  EXPECT_EQ(config.at("quantized_layers").at("backbone.layers.0.mixer.in_proj").at("quant_algo"), "FP8");
  const io::Safetensors from = before();
  int64_t values = 0;
  for (const io::StoredTensor& tensor : from.tensors()) values += tensor.view.count();
  EXPECT_EQ(report.values(), values);
  EXPECT_NE(error_of([&] {
              quantize_model(source, one("expert_up", QuantFormat::int4), folder_ / "x", {}, go_on);
            }).find("quantised already"),
            std::string::npos);
  std::filesystem::remove_all(out());
  quantize(one("mamba_in", QuantFormat::int4));
  for (const QuantFormat other : {QuantFormat::nvfp4, QuantFormat::int8}) {
    EXPECT_NE(error_of([&] {
                quantize_model(io::find_model(out().string()), one("expert_up", other), folder_ / "x", {}, go_on);
              }).find("in_proj.weight_packed is quantised already"),
              std::string::npos);
  }
  EXPECT_EQ(error_of([&] {
              quantize_model(io::find_model(out().string()), one("mamba_in", QuantFormat::int8), folder_ / "x", {},
                             go_on);
            }),
            "");
}

class QuantizeRefuses : public Quantize, public testing::WithParamInterface<double> {};
INSTANTIATE_TEST_SUITE_P(NotFinite, QuantizeRefuses,
                         testing::Values(std::numeric_limits<double>::infinity(),
                                         std::numeric_limits<double>::quiet_NaN()));

TEST_P(QuantizeRefuses, AValueThatIsNotFinite) {
  nlohmann::json config = hybrid();
  auto specs = tensors_of(config);
  for (io::TensorSpec& spec : specs) {
    if (spec.name == kMixerInProj) spec.dtype = DType::f16;  // which the folder's writer keeps as raw bytes
  }
  io::SafetensorsWriter file(folder_ / "model.safetensors", specs);
  for (const io::TensorSpec& spec : file.order()) {
    std::vector<std::byte> bytes(static_cast<size_t>(spec.bytes()));
    if (spec.name == kMixerInProj) set_element(MutView(bytes.data(), spec.dtype, spec.shape), 77, GetParam());
    file.write(spec.name, bytes);
  }
  file.finish();
  EXPECT_NE(refusal_of(one("mamba_in", QuantFormat::nvfp4)).find("not finite"), std::string::npos);
}

TEST_F(Quantize, RecipesOfFiles) {
  const auto read = [&](const std::string& text) { return quant_recipe(write("recipe.toml", text).string()); };
  const QuantRecipe recipe = read(R"(
[[rule]]
roles = ["mamba_*"]
layers = [0, 5]
before_attention = true
format = "fp8"
[[rule]]
roles = ["head"]
format = "nvfp4"
scales = "four-over-six"
)");
  ASSERT_EQ(recipe.rules.size(), 2u);
  EXPECT_EQ(recipe.rules[0].layers, (std::vector<int64_t>{0, 5}));
  EXPECT_TRUE(recipe.rules[0].before_attention);
  EXPECT_EQ(recipe.rules[1].scales, ScaleSearch::four_over_six);
  for (const auto& [bad, says] : {std::pair<const char*, const char*>{"[[rule]]\nformat = \"int5\"", "int5"},
                                  {"[[rule]]\nformat = \"int4\"\n[[rule]]\nformat = \"fp8\"", "two layouts"},
                                  {"[[rule]]\nroles = [\"expert_*\"]", "format"},
                                  {"[[rule]]\nformat = \"fp8\"\nrole = \"head\"", "role"},
                                  {"[[rule]]\nformat = \"fp8\"\nroles = [\"embedings\"]", "embedings"},
                                  {"[[rule]]\nformat = \"nvfp4\"\nscales = \"best\"", "best"},
                                  {"[[rule]]\nformat = \"int4\"\nscales = \"four-over-six\"", "NVFP4"},
                                  {"[[rule]]\nformat = \"fp8\"\nscales = \"mse\"", "fp8 has none"},
                                  {"[[rule]]\nformat = \"bf16\"\nscales = \"mse\"", "bf16 has none"},
                                  {"rules = 1", "rules"},
                                  {"", "no rule"}}) {
    const std::string error = error_of([&, text = bad] { read(text); });
    EXPECT_NE(error.find(says), std::string::npos) << bad << "\n" << error;
  }
  EXPECT_NE(error_of([&] { quant_recipe("nano"); }).find("nano-nvfp4"), std::string::npos);
}

// The prediction block, which no released file quantises, is quantised only by rules with "mtp".
TEST_F(Quantize, ThePredictionBlockIsQuantisedWhereARuleSaysSo) {
  nlohmann::json config = hybrid();
  config["num_nextn_predict_layers"] = 1;
  config["mtp_layers_block_type"] = {"attention", "moe"};
  write(config, tensors_of(config));
  const std::string shared = "mtp.layers.1.mixer.shared_experts.up_proj.weight", joined = "mtp.layers.0.eh_proj.weight",
                    router = "mtp.layers.1.mixer.gate.weight",
                    own = "backbone.layers.1.mixer.shared_experts.up_proj.weight";
  for (const std::string& name : quant_recipe_names()) {
    QuantRecipe recipe = quant_recipe(name);
    quantize(recipe);
    EXPECT_EQ(after().find(recipe.compressed() ? own + "_packed" : own + "_scale") != nullptr, true) << name;
    for (const io::StoredTensor& tensor : after().tensors())
      EXPECT_TRUE(!tensor.name.starts_with("mtp.") || tensor.view.dtype == DType::bf16) << name << " " << tensor.name;
    std::filesystem::remove_all(out());
  }
  QuantRecipe all{.name = "test", .rules = {{.mtp = true, .format = QuantFormat::fp8}}};
  const QuantReport report = quantize(all);
  EXPECT_EQ(after().need(shared).dtype, DType::f8_e4m3);
  EXPECT_EQ(after().need(joined).dtype, DType::f8_e4m3);
  EXPECT_EQ(after().need(router).dtype, DType::bf16);
  int64_t bytes = 0, values = 0;  // what the report says is what the files have, but for scales in the number of values
  const io::Safetensors files = after();
  for (const io::StoredTensor& tensor : files.tensors()) {
    bytes += tensor.view.bytes();
    if (!tensor.name.ends_with("_scale")) values += tensor.view.count();
  }
  EXPECT_EQ(report.bytes(), bytes);
  EXPECT_EQ(report.values(), values);
  const auto model = load_model(io::find_model(out().string()));
  EXPECT_EQ(model->mtp_steps(), 1);
  EXPECT_EQ(model->params().size(), tensors_of(config).size());
}

TEST_F(Quantize, BuiltInRecipesAreThoseOfTheReleases) {
  const auto formats = [](const char* recipe, ParamRole role, int layer, bool mtp = false) {
    TensorSpec tensor;
    tensor.role = role;
    tensor.layer = layer;
    tensor.mtp = mtp;
    const QuantRecipe r = quant_recipe(recipe);
    const QuantRule* rule = r.find(tensor, "MEM*E");
    return rule ? rule->format : QuantFormat::bf16;
  };
  EXPECT_EQ(formats("nano-nvfp4", ParamRole::mamba_in, 0), QuantFormat::nvfp4);
  EXPECT_EQ(formats("nano-nvfp4", ParamRole::mamba_in, 2), QuantFormat::bf16);
  EXPECT_EQ(formats("nano-nvfp4", ParamRole::q, 3), QuantFormat::bf16);
  EXPECT_EQ(formats("nano-nvfp4", ParamRole::head, -1), QuantFormat::bf16);
  EXPECT_EQ(formats("super-nvfp4", ParamRole::mamba_out, 2), QuantFormat::fp8);
  EXPECT_EQ(formats("super-nvfp4", ParamRole::expert_up, 1), QuantFormat::nvfp4);
  EXPECT_EQ(formats("super-nvfp4", ParamRole::latent_in, 1), QuantFormat::bf16);
  EXPECT_EQ(formats("lightning-nvfp4", ParamRole::head, -1), QuantFormat::nvfp4);
  EXPECT_EQ(formats("lightning-nvfp4", ParamRole::up, 1), QuantFormat::nvfp4);
  EXPECT_EQ(formats("lightning-nvfp4", ParamRole::router, 1), QuantFormat::bf16);
  for (const ParamRole role : {ParamRole::up, ParamRole::down, ParamRole::expert_up, ParamRole::q, ParamRole::mtp_in})
    EXPECT_EQ(formats("super-nvfp4", role, 5, true), QuantFormat::bf16);
}

}  // namespace
}  // namespace braid::models
