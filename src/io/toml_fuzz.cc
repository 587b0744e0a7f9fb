// Any text parses or gives a one-line Error, as a file and as an override.
#include <cstdint>
#include <string>
#include <string_view>

#include "io/toml.h"
#include "sys/check.h"
#include "sys/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto one_line = [](const braid::Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos, "{}", error.what());
  };
  try {
    braid::io::parse_toml(text, "input");
  } catch (const braid::Error& error) {
    one_line(error);
  }
  try {
    const std::string overrides[] = {text};
    braid::io::parse_toml("a = 1\n[b]\nc = 2\n", "input", overrides);
  } catch (const braid::Error& error) {
    one_line(error);
  }
  return 0;
}
