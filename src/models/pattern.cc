#include "models/pattern.h"

#include <array>
#include <utility>

namespace braid::models {
namespace {

constexpr size_t kLayersMax = 1024;

constexpr std::array<std::pair<const char*, char>, 7> kBlockNames = {{{"mamba", 'M'},
                                                                      {"linear_attention", 'M'},
                                                                      {"attention", '*'},
                                                                      {"full_attention", '*'},
                                                                      {"moe", 'E'},
                                                                      {"mlp", '-'},
                                                                      {"mamba2", 'M'}}};

char letter_of_name(const io::Json& name) {
  for (const auto& known : kBlockNames) {
    if (name.as_string() == known.first) return known.second;
  }
  name.refuse("unknown kind of layer", "mamba or linear_attention, attention or full_attention, moe, mlp");
}

}  // namespace

std::optional<std::string> read_pattern(const io::Json& json, io::Keys keys, const char* blocks_key) {
  std::string letters;
  if (const auto blocks = json.get({blocks_key})) {
    for (const io::Json& block : blocks->items()) letters += letter_of_name(block.need({"block_type"}));
    if (letters.empty() || letters.size() > kLayersMax) blocks->refuse("no usable number of layers", "1 to 1024");
    return letters;
  }
  const auto list = json.get(keys);
  if (!list) return std::nullopt;
  if (list->is_string()) {
    letters = list->as_string();
    if (letters.find_first_not_of("M*-E") != std::string::npos)
      list->refuse("unknown pattern letter", "only M (Mamba-2), * (attention), - (feed-forward), E (experts)");
  } else {
    for (const io::Json& name : list->items()) letters += letter_of_name(name);
  }
  if (letters.empty() || letters.size() > kLayersMax) list->refuse("no usable number of layers", "1 to 1024");
  return letters;
}

std::optional<std::string> read_layer_pattern(const io::Json& json) {
  return read_pattern(json, {"layers_block_type", "hybrid_override_pattern", "layer_types"}, "block_configs");
}

}  // namespace braid::models
