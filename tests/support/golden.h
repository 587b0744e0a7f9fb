// Shared by the tests of whole models: the folders that come with golden values, and the results of a run over a
// prompt. A folder holds a model as Hugging Face stores it and golden.safetensors (tests/data/README.md). The small
// copies in tests/data/hf are always there; $BRAID_FIXTURES/hf may name more.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/runner.h"
#include "io/model_path.h"
#include "io/safetensors.h"
#include "models/load.h"
#include "support/data.h"
#include "support/folder.h"

namespace braid {

struct GoldenFolder {
  std::string label;  // for the name of a test
  std::filesystem::path path;
};
inline void PrintTo(const GoldenFolder& folder, std::ostream* out) { *out << folder.path.string(); }

inline std::vector<GoldenFolder> golden_folders_in(const std::filesystem::path& root, const std::string& prefix) {
  std::vector<GoldenFolder> list;
  if (!std::filesystem::is_directory(root)) return list;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    if (!std::filesystem::exists(entry.path() / "golden.safetensors")) continue;
    std::string label = prefix + entry.path().filename().string();
    for (char& c : label) {
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    }
    list.push_back({std::move(label), entry.path()});
  }
  std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.label < b.label; });
  return list;
}

inline std::vector<GoldenFolder> own_folders() {
  return golden_folders_in(std::filesystem::path(support::data()) / "hf", "own_");
}

inline std::vector<GoldenFolder> all_folders() {
  std::vector<GoldenFolder> list = own_folders();
  if (const std::string fixtures = support::fixtures(); !fixtures.empty()) {
    const auto more = golden_folders_in(std::filesystem::path(fixtures) / "hf", "fixture_");
    list.insert(list.end(), more.begin(), more.end());
  }
  return list;
}

// Those whose matrices are not quantised.
inline std::vector<GoldenFolder> unquantised_folders() {
  std::vector<GoldenFolder> list = all_folders();
  std::erase_if(list, [](const GoldenFolder& f) {
    return f.label.find("nvfp4") != std::string::npos || f.label.find("fp8") != std::string::npos;
  });
  return list;
}

inline std::string label_of(const testing::TestParamInfo<GoldenFolder>& info) { return info.param.label; }

inline std::unique_ptr<engine::Runner> open_folder(const std::filesystem::path& folder,
                                                   const engine::RunnerOptions& options) {
  return std::make_unique<engine::Runner>(models::load_model(io::find_model(folder.string())), options);
}

inline std::vector<int32_t> token_ids(const View& v) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < v.count(); ++i) ids.push_back(static_cast<int32_t>(element(v, i)));
  return ids;
}

inline void append(std::vector<float>& to, const Tensor& t) {
  const auto* values = t.view().as<float>();
  to.insert(to.end(), values, values + t.view().count());
}

// States of the Mamba layers of a sequence under the names and in the layout of golden files: conv.I [C, W-1], ssm.I
// [H, P, N].
using States = std::map<std::string, std::vector<float>>;
inline States states_of(engine::Runner& runner, int64_t sequence) {
  const int64_t slot = runner.slot(sequence);
  States out;
  for (const auto& [layer, index] : runner.model().mamba_layers()) {
    const nn::BlockState& block = runner.state().blocks[static_cast<size_t>(index)];
    const View conv = block.conv.slice(0, slot, 1), ssm = block.ssm.slice(0, slot, 1);
    const int64_t columns = conv.dim(1), channels = conv.dim(2);
    auto& c = out["conv." + std::to_string(layer)];
    for (int64_t i = 0; i < channels; ++i) {
      for (int64_t j = 0; j < columns; ++j) c.push_back(conv.as<float>()[j * channels + i]);
    }
    out["ssm." + std::to_string(layer)].assign(ssm.as<float>(), ssm.as<float>() + ssm.count());
  }
  return out;
}

// The results of a pass over a prompt.
struct Pass {
  std::vector<float> logits, final;  // [T, V], [T, D]
  States states;
};

inline Pass prefill(engine::Runner& runner, int64_t sequence, std::span<const int32_t> ids,
                    nn::Probe* probe = nullptr) {
  Pass out;
  runner.prefill(
      sequence, ids,
      [&](const Tensor& x) {
        append(out.logits, runner.logits(x));
        append(out.final, runner.final_hidden(x));
      },
      probe);
  out.states = states_of(runner, sequence);
  return out;
}

inline Pass step_through(engine::Runner& runner, int64_t sequence, std::span<const int32_t> ids) {
  Pass out;
  for (int32_t id : ids) append(out.logits, runner.step(sequence, id));
  out.states = states_of(runner, sequence);
  return out;
}

// Largest absolute difference; infinite if the lengths differ or a value is NaN.
inline double worst(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double off = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    if (!(off <= worst)) worst = std::isnan(off) ? std::numeric_limits<double>::infinity() : off;
  }
  return worst;
}
inline double worst(std::span<const float> got, const View& want) {
  return worst(got, std::span<const float>(want.as<float>(), static_cast<size_t>(want.count())));
}

}  // namespace braid
