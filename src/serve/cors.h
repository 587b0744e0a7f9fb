// Pages of other origins (CORS): a browser lets them read an answer only if its headers name them. Off unless origins
// are given.
#pragma once
#include <httplib.h>

#include <string>
#include <vector>

namespace braid::serve {

// The parts of a comma list of origins ("https://a.example,http://localhost:3000"), or *; Error for what is no origin.
std::vector<std::string> origins_of(const std::string& list);

// Whether a page of this origin may use the server.
bool allows_origin(const std::vector<std::string>& origins, const std::string& origin);

// What tells the browser so.
void set_cors_headers(const httplib::Request& request, httplib::Response& response);

// A browser asks first what a page may send.
bool is_preflight(const httplib::Request& request);

}  // namespace braid::serve
