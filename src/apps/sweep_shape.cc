#include "apps/sweep_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <string_view>
#include <system_error>

#include "models/config_file.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

constexpr int64_t kWidthMax = int64_t{1} << 16, kDepthMax = 1024, kShapesMax = 1000;

// Counts that grow with the width, as the families spell them. Sizes of heads, states, groups and experts' numbers
// stay.
constexpr std::array kWidths = {"hidden_size",
                                "n_embd",
                                "intermediate_size",
                                "n_inner",
                                "moe_intermediate_size",
                                "moe_shared_expert_intermediate_size",
                                "moe_latent_size",
                                "num_attention_heads",
                                "n_head",
                                "num_key_value_heads",
                                "mamba_num_heads"};
constexpr std::array kDepths = {"num_hidden_layers", "n_layer"};
constexpr std::array kPatterns = {"layers_block_type", "hybrid_override_pattern", "layer_types"};
constexpr std::array kUneven = {"block_configs", "n_layers_in_recurrent_block"};

[[noreturn]] void refuse_grid(const std::string& text) {
  fail("--grid", {.what = "is not a grid of shapes",
                  .got = printable(text),
                  .expected = "parts like 64,128x4,8, widths and depths",
                  .hint = "--grid \"64x4 128x4,8\""});
}

// One of "64,128"; empty where something else stands there.
std::vector<int64_t> positive_list(std::string_view text, int64_t most) {
  std::vector<int64_t> list;
  while (true) {
    int64_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || value < 1 || value > most) return {};
    list.push_back(value);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text.empty()) return list;
    if (text.front() != ',') return {};
    text.remove_prefix(1);
  }
}

// The first `depth` layers of a pattern that goes on and on.
nlohmann::json repeated(const nlohmann::json& pattern, int64_t depth) {
  const auto at = [&](size_t count, int64_t i) { return static_cast<size_t>(i) % count; };
  if (pattern.is_string()) {
    const auto& letters = pattern.get_ref<const std::string&>();
    std::string longer;
    for (int64_t i = 0; i < depth && !letters.empty(); ++i) longer += letters[at(letters.size(), i)];
    return longer;
  }
  nlohmann::json longer = nlohmann::json::array();
  for (int64_t i = 0; i < depth && !pattern.empty(); ++i) longer.push_back(pattern[at(pattern.size(), i)]);
  return longer;
}

}  // namespace

std::string SweepShape::name() const { return fmt::format("w{}-d{}", width, depth); }

std::vector<SweepShape> read_grid(const std::string& text) {
  std::vector<SweepShape> shapes;
  std::istringstream parts(text);
  for (std::string part; parts >> part;) {
    const size_t by = part.find('x');
    if (by == std::string::npos) refuse_grid(text);
    const std::vector<int64_t> widths = positive_list(std::string_view(part).substr(0, by), kWidthMax),
                               depths = positive_list(std::string_view(part).substr(by + 1), kDepthMax);
    if (widths.empty() || depths.empty()) refuse_grid(text);
    for (const int64_t width : widths) {
      for (const int64_t depth : depths) {
        const auto same = [&](const SweepShape& s) { return s.width == width && s.depth == depth; };
        if (std::none_of(shapes.begin(), shapes.end(), same)) shapes.push_back({width, depth});
        if (std::ssize(shapes) > kShapesMax)
          fail("--grid", {.what = "has too many shapes", .expected = fmt::format("{} at most", kShapesMax)});
      }
    }
  }
  if (shapes.empty()) refuse_grid(text);
  return shapes;
}

int64_t width_of(const io::Json& config) { return config.need({"hidden_size", "n_embd"}).as_int({1, kWidthMax}); }

int64_t depth_of(const io::Json& config) {
  for (const char* key : kPatterns) {
    if (const auto pattern = config.get({key}))
      return static_cast<int64_t>(pattern->raw().is_string() ? pattern->as_string().size() : pattern->items().size());
  }
  return config.need({"num_hidden_layers", "n_layer"}).as_int({1, kDepthMax});
}

int64_t width_step(const io::Json& config) {
  const int64_t from = width_of(config);
  const int64_t groups = config.int_of({"n_groups"}, {1, int64_t{1} << 20}).value_or(1);
  int64_t step = 1;
  for (const char* key : kWidths) {
    const auto value = config.get({key});
    if (!value) continue;
    if (value->is_array()) value->refuse("is a list, which has no other width", "a number");
    int64_t count = value->as_int({0, int64_t{1} << 30});
    // Groups of B and C have as many heads each.
    if (std::string_view(key) == "mamba_num_heads" && count % groups == 0) count /= groups;
    if (count > 0) step = std::lcm(step, from / std::gcd(from, count));
  }
  return step;
}

io::Json resized(const io::Json& config, const SweepShape& shape) {
  const int64_t from = width_of(config), step = width_step(config);
  nlohmann::json to = config.raw();
  for (const char* key : kUneven) {
    if (config.get({key}))
      fail("config.json",
           {.what = fmt::format("its {} gives layers their own shapes", key), .expected = "layers that repeat"});
  }
  for (const char* key : kWidths) {
    if (const auto value = config.get({key})) to[key] = value->as_int({0, int64_t{1} << 30}) * shape.width / from;
  }
  if (shape.width % step != 0)
    fail("--grid", {.what = "heads or channels of the config would not be whole",
                    .got = fmt::format("width {}", shape.width),
                    .expected = fmt::format("a multiple of {}", step)});
  for (const char* key : kDepths) {
    if (config.get({key})) to[key] = shape.depth;
  }
  for (const char* key : kPatterns) {
    if (config.get({key})) to[key] = repeated(to[key], shape.depth);
  }
  return io::Json::parse(models::config_text(std::move(to)), "config");
}

}  // namespace braid::apps
