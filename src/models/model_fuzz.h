// What the fuzz targets of whole models do with one: load it and read a few tokens.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "core/integers.h"
#include "io/model_path.h"
#include "models/load.h"
#include "sys/check.h"
#include "sys/error.h"

namespace braid::models {

// More bytes make inputs slow, and find nothing more.
inline constexpr size_t kFuzzedBytes = size_t{256} << 10;

inline void write_fuzzed(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  CHECK(out.flush().good(), "writing {}", file.string());
}

// Logits of up to five tokens, of which nothing is expected but their number, or an Error of one line.
inline void load_and_read(const io::ModelPath& path) {
  try {
    const auto model = load_model(path);
    const Config& config = model->config();
    if (config.loop) return;  // the steps of which are the engine's to choose
    std::vector<int32_t> ids;
    while (std::ssize(ids) < (config.positions_max > 0 ? std::min<int64_t>(5, config.positions_max) : 5))
      ids.push_back(static_cast<int32_t>(7 * std::ssize(ids) % config.vocab));
    Arena arena;
    Ctx ctx{.arena = arena};
    const SeqMap seqs = SeqMap::one(std::ssize(ids));
    nn::StateView state;
    nn::Run run{.ctx = ctx, .seqs = seqs, .state = state, .numerics = Numerics::serving(DType::bf16)};
    const Tensor logits = model->logits(run, model->forward(run, integers(arena, ids)));
    CHECK(logits.dim(0) == std::ssize(ids) && logits.dim(1) == config.vocab, "{} logits", to_string(logits.shape()));
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos, "{}", error.what());
  }
}

}  // namespace braid::models
