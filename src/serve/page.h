// The chat page, whose files are part of the program (src/serve/page, cmake/BraidEmbed.cmake).
#pragma once
#include <span>
#include <string_view>

namespace braid::serve {

struct PageFile {
  const char* path;  // "/" or "/page/app.js"
  const char* type;  // "text/html; charset=utf-8"
  const char* etag;  // of the bytes, in its quotes
  std::string_view bytes;
};

std::span<const PageFile> page_files();

}  // namespace braid::serve
