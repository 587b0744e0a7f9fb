// Any bytes are a circuit in AIGER or give an Error; an accepted one has gates that read what is before them, and its
// graph has sound rows.
#include <cstdint>
#include <optional>
#include <string_view>

#include "graph/aiger.h"
#include "sys/check.h"
#include "sys/error.h"

namespace {

using namespace braid;

void expect_sound(const graph::Aig& aig) {
  int64_t variables = 1 + aig.inputs;
  for (const auto& [left, right] : aig.gates) {
    CHECK(left >= 0 && left / 2 < variables && right >= 0 && right / 2 < variables, "{} {}", left, right);
    ++variables;
  }
  for (const int32_t output : aig.outputs) CHECK(output >= 0 && output / 2 < variables, "{}", output);
  try {
    graph::check(graph::nodes_of(aig).in, "input");
  } catch (const Error& error) {
    CHECK(false, "{}", error.what());
  }
}

std::optional<graph::Aig> parsed(std::string_view bytes) {
  try {
    return graph::parse_aiger(bytes, "input");
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::optional<graph::Aig> aig = parsed({reinterpret_cast<const char*>(data), size});
  if (aig) expect_sound(*aig);
  return 0;
}
