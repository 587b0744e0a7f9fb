// Reads the instance of a choice from JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "compress/choice.h"

namespace braid::compress {
namespace {

// The numbers of a list, of which there must be `count`.
std::vector<double> costs(const io::Json& json, int64_t count) {
  const std::vector<io::Json> items = json.items();
  if (std::ssize(items) != count) json.refuse("has another length than limits", fmt::format("a list of {}", count));
  std::vector<double> out;
  for (const io::Json& item : items) {
    const double cost = item.as_number({.min = -kLargest, .max = kLargest});
    if (cost < 0)
      item.refuse("is negative", "0 or more", "add a constant to the costs of the whole layer and to the limit");
    out.push_back(cost);
  }
  return out;
}

}  // namespace

Instance read_instance(const io::Json& json) {
  Instance instance;
  const io::Json limits = json.need({"limits"}), layers = json.need({"layers"});
  for (const io::Json& limit : limits.items())
    instance.limits.push_back(limit.as_number({.min = -kLargest, .max = kLargest}));
  const int64_t count = std::ssize(instance.limits);
  if (count < 1 || count > kLimitsMax) limits.refuse("has a wrong length", fmt::format("1 to {} limits", kLimitsMax));
  const std::vector<io::Json> rows = layers.items();
  if (rows.empty() || std::ssize(rows) > kLayersMax)
    layers.refuse("has a wrong length", fmt::format("1 to {} layers", kLayersMax));
  int64_t variants = 0;
  for (const io::Json& row : rows) {
    std::vector<Variant>& layer = instance.layers.emplace_back();
    if (!row.is_array()) row.refuse("is not a list", "a list of variants");
    if (row.raw().empty()) row.refuse("has no variant", "at least one");
    variants += static_cast<int64_t>(row.raw().size());
    if (variants > kVariantsMax)
      row.refuse("has too many variants", fmt::format("at most {} in all layers", kVariantsMax));
    for (const io::Json& variant : row.items()) {
      const double score = variant.need({"score"}).as_number({.min = -kLargest, .max = kLargest});
      layer.push_back({.score = score, .cost = costs(variant.need({"cost"}), count)});
    }
  }
  return instance;
}

}  // namespace braid::compress
