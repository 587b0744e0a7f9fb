#include "serve/cors.h"

#include <algorithm>

#include "sys/error.h"

namespace braid::serve {

std::vector<std::string> origins_of(const std::string& list) {
  std::vector<std::string> out;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string origin = list.substr(at, end - at);
    const size_t scheme = origin.find("://");
    const bool rest = scheme != origin.npos && scheme > 0 && scheme + 3 < origin.size() &&
                      origin.find('/', scheme + 3) == origin.npos;
    const bool plain = std::ranges::all_of(origin, [](char c) { return c > ' ' && c < 0x7f; });
    if (origin != "*" && !(rest && plain))
      fail("--cors", {.what = "not an origin",
                      .got = printable(origin),
                      .expected = "https://HOST, http://HOST:PORT, a list of them with commas, or *"});
    out.push_back(origin);
    at = end + 1;
  }
  return out;
}

bool allows_origin(const std::vector<std::string>& origins, const std::string& origin) {
  return std::ranges::any_of(origins, [&](const std::string& o) { return o == "*" || o == origin; });
}

// The origin itself in place of *, and the headers that were asked for: * does not include Authorization.
void set_cors_headers(const httplib::Request& request, httplib::Response& response) {
  response.set_header("Access-Control-Allow-Origin", request.get_header_value("Origin"));
  response.set_header("Vary", "Origin");
  response.set_header("Access-Control-Expose-Headers", "Retry-After");
  if (!is_preflight(request)) return;
  response.set_header("Access-Control-Allow-Methods", "GET, POST");
  response.set_header("Access-Control-Max-Age", "600");
  const std::string wanted = request.get_header_value("Access-Control-Request-Headers");
  if (!wanted.empty()) response.set_header("Access-Control-Allow-Headers", wanted);
}

bool is_preflight(const httplib::Request& request) {
  return request.method == "OPTIONS" && request.has_header("Origin") &&
         request.has_header("Access-Control-Request-Method");
}

}  // namespace braid::serve
