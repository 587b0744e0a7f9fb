// What braid search prints of a search over a model's variants.
#pragma once
#include <string>

#include "puzzle/search.h"

namespace braid::apps {

// `score`: the metric's name.
void print_search(const puzzle::Report& report, const std::string& out, const std::string& score);
void print_search_json(const puzzle::Report& report, const std::string& model, const std::string& out,
                       const std::string& score);

}  // namespace braid::apps
