// Any text parses or gives a one-line Error; every getter on every value returns or does the same.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/json.h"
#include "io/ordered_json.h"
#include "sys/check.h"
#include "sys/error.h"

namespace {

using braid::io::Json;

template <class Work>
void answers_or_refuses(Work work) {
  try {
    work();
  } catch (const braid::Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos, "{}", error.what());
  }
}

void visit(const Json& value) {  // as deep as the document's limit
  answers_or_refuses([&] { value.as_int({1, 65536}); });
  answers_or_refuses([&] { value.as_number({.min = 0, .max = 1}); });
  answers_or_refuses([&] { value.as_bool(); });
  answers_or_refuses([&] { value.as_string(); });
  answers_or_refuses([&] { value.int_of({"hidden_size", "n_embd"}, {.min = 1}); });
  if (value.is_array()) {
    for (const Json& item : value.items()) visit(item);
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.members()) visit(member);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const braid::io::JsonLimits limits{.bytes = 1 << 20, .depth = 16, .values = 4096, .string_bytes = 4096};
  answers_or_refuses([&] { visit(Json::parse(text, "input", limits)); });
  answers_or_refuses([&] {
    const auto value = braid::io::parse_ordered(text, "input", {}, limits);
    CHECK(value == nlohmann::ordered_json::parse(text, nullptr, false), "another value than the library's");
  });
  return 0;
}
