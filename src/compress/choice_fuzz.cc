// Any text is an instance or gives a one-line Error; so does the choice, which lies within the limits and its bound.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "compress/choice.h"
#include "sys/check.h"
#include "sys/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  try {
    const compress::Instance instance = compress::read_instance(
        io::Json::parse({reinterpret_cast<const char*>(data), size}, "input", {.bytes = 1 << 16, .values = 4096}));
    const compress::Choice choice = compress::choose(instance, "input", {.width = 64});
    CHECK(choice.bound <= choice.score, "bound {}, score {}", choice.bound, choice.score);
    const std::vector<double> costs = compress::costs_of(instance, choice.variants);
    for (size_t k = 0; k < costs.size(); ++k) {
      double largest = 0;
      for (const auto& layer : instance.layers)
        largest += std::ranges::max(layer, {}, [k](const auto& v) { return v.cost[k]; }).cost[k];
      CHECK(costs[k] <= instance.limits[k] + 3e-12 * largest, "cost {}, limit {}", costs[k], instance.limits[k]);
    }
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos, "{}", error.what());
  }
  return 0;
}
