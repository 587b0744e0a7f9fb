#include "models/config.h"

namespace braid::models {

char letter_of(const BlockSpec& spec) {
  constexpr char kLetters[] = {'M', '*', '-', 'E', 'L'};
  return kLetters[spec.index()];
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
