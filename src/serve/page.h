// The chat page, whose files are part of the program (src/serve/page, cmake/BraidEmbed.cmake).
#pragma once
#include <span>
#include <string_view>

namespace braid::serve {

struct PageFile {
  std::string_view name;  // "index.html"
  std::string_view bytes;
};

std::span<const PageFile> page_files();

}  // namespace braid::serve
