#include "models/config.h"

namespace braid::models {

char letter_of(const BlockSpec& spec) {
  constexpr char kLetters[] = {'M', '*', '-', 'E', 'L'};
  return kLetters[spec.index()];
}

const PartSpec* block_of(const Config& config, const ParamInfo& info) {
  const auto depth = static_cast<int>(config.layers.size());
  if (info.part < 0 || (info.mtp && !config.mtp)) return nullptr;
  const LayerSpec& layer = info.mtp ? config.mtp->layers.at(static_cast<size_t>(info.layer - depth))
                                    : config.layers.at(static_cast<size_t>(info.layer));
  const auto part = static_cast<size_t>(info.part);
  return part < layer.parts.size() ? &layer.parts[part] : nullptr;
}

std::string Config::pattern() const {
  std::string text;
  for (const LayerSpec& layer : layers) {
    for (const PartSpec& part : layer.parts) text += letter_of(part.block);
    if (layer.parts.empty()) text += '.';
  }
  return text;
}

}  // namespace braid::models
