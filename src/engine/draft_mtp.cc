#include "engine/draft_mtp.h"

#include <algorithm>
#include <cstring>
#include <variant>

namespace braid::engine {
namespace {

int32_t likeliest(const Tensor& logits, int64_t row) {
  const int64_t width = logits.dim(1);
  const float* values = logits.view().as<float>() + row * width;
  return static_cast<int32_t>(std::max_element(values, values + width) - values);
}

}  // namespace

bool has_prediction_block(const models::Config& config) {
  if (!config.mtp) return false;
  return std::ranges::none_of(config.mtp->layers, [](const models::LayerSpec& layer) {
    return std::ranges::any_of(
        layer.parts, [](const models::PartSpec& part) { return std::holds_alternative<nn::Mamba2Spec>(part.block); });
  });
}

void MtpDrafter::note(MtpState& state, const Tensor& x, int64_t first, int64_t count) {
  std::vector<int64_t> wanted;
  for (int64_t i = 0; i < count; ++i) wanted.push_back(first + i);
  const Tensor hidden = runner_.final_hidden(runner_.rows(x, wanted));
  const float* values = hidden.view().as<float>();
  state.hidden.insert(state.hidden.end(), values, values + hidden.view().count());
}

std::vector<std::vector<int32_t>> MtpDrafter::draft(std::span<const Wanted> wanted) {
  const int64_t width = runner_.config().hidden;
  std::vector<std::vector<int32_t>> drafts(wanted.size());
  std::vector<Runner::MtpPiece> pieces;
  std::vector<int32_t> ids;
  std::vector<size_t> drafting;  // of wanted
  std::vector<int64_t> last;     // rows that predict their first draft
  std::vector<float> values;
  for (size_t i = 0; i < wanted.size(); ++i) {
    MtpState& state = *wanted[i].state;
    const int64_t rows = std::min(state.unread(width), std::ssize(wanted[i].text) - 1 - state.read);
    if (rows <= 0) continue;
    const auto next = wanted[i].text.begin() + state.read + 1;
    const auto end = state.hidden.begin() + rows * width;
    // A page that others share stays as it is: the block does without these tokens.
    const bool reads = runner_.mtp_has_pages({.sequence = wanted[i].sequence,
                                              .position = state.read,
                                              .tokens = rows + std::max<int64_t>(0, wanted[i].tokens - 1)});
    if (reads) {
      ids.insert(ids.end(), next, next + rows);
      pieces.push_back({.sequence = wanted[i].sequence, .position = state.read, .tokens = rows});
      values.insert(values.end(), state.hidden.begin(), end);
    }
    state.hidden.erase(state.hidden.begin(), end);
    state.read += rows;
    if (!reads) continue;
    if (wanted[i].tokens == 0) continue;
    drafting.push_back(i);
    last.push_back(std::ssize(ids) - 1);
  }
  if (pieces.empty()) return drafts;
  Tensor hidden(runner_.ctx().arena, DType::f32, {std::ssize(ids), width});
  std::memcpy(hidden.mut().data, values.data(), values.size() * sizeof(float));
  hidden = runner_.mtp_step(ids, hidden, pieces);
  for (int64_t depth = 1; !drafting.empty(); ++depth) {
    hidden = runner_.rows(hidden, last);
    const Tensor logits = runner_.mtp_head(hidden);
    std::vector<size_t> further;
    pieces.clear();
    ids.clear();
    last.clear();
    for (size_t row = 0; row < drafting.size(); ++row) {
      const Wanted& w = wanted[drafting[row]];
      drafts[drafting[row]].push_back(likeliest(logits, static_cast<int64_t>(row)));
      if (depth == w.tokens) continue;
      further.push_back(drafting[row]);
      last.push_back(static_cast<int64_t>(row));
      ids.push_back(drafts[drafting[row]].back());
      pieces.push_back({.sequence = w.sequence, .position = w.state->read + depth - 1, .tokens = 1});
    }
    drafting = std::move(further);
    if (drafting.empty()) break;
    hidden = runner_.mtp_step(ids, runner_.rows(hidden, last), pieces);
    for (size_t i = 0; i < last.size(); ++i) last[i] = static_cast<int64_t>(i);
  }
  return drafts;
}

}  // namespace braid::engine
