// Any bytes as a template: it parses and renders within small limits, or fails with a TemplateError.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/template.h"

namespace {

const nlohmann::ordered_json& variables() {
  static const auto kVariables = nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "é漢🙂 <b>"},
                 {"role": "assistant", "content": null, "tool_calls": [{"name": "add", "arguments": {"x": 1, "y": 2.5}}]}],
    "tools": [{"name": "add", "parameters": {"type": "object", "required": []}}],
    "add_generation_prompt": true, "bos_token": "<s>", "n": 3})");
  return kVariables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const braid::text::Limits limits{.steps = 20'000, .bytes = 4 << 20, .output_bytes = 1 << 20, .depth = 300};
  try {
    braid::text::ChatTemplate::parse(source, "fuzz").render(variables(), std::tm{}, limits);
  } catch (const braid::text::TemplateError&) {
  }
  return 0;
}
