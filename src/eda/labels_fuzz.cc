// Any bytes are recipes or a table of what they led to, or give an Error; accepted ones are sound.
#include <cstdint>
#include <string_view>

#include "eda/labels.h"
#include "sys/check.h"
#include "sys/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const eda::Recipe& recipe : eda::parse_recipes(text, "input")) {
      for (const uint8_t step : recipe) CHECK(step < eda::kSteps.size(), "step {}", step);
    }
  } catch (const Error&) {
  }
  try {
    const std::vector<eda::Outcome> outcomes = eda::parse_outcomes(text, "input", 3);
    for (const eda::Outcome& o : outcomes)
      CHECK(o.same >= 0 && o.same < 3 && outcomes[static_cast<size_t>(o.same)].same == o.same, "same {}", o.same);
  } catch (const Error&) {
  }
  return 0;
}
