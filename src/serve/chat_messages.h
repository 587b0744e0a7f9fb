// The messages of a chat as templates take them, however clients write them.
#pragma once
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "serve/fields.h"

namespace braid::serve {

// The field `messages` as it was sent; ApiError unless it is a list of at least one.
const nlohmann::ordered_json& message_list(const Fields& f);

// The field `messages`: parts of text become one string, arguments that are text become objects, developers are the
// system, and what only Anthropic reads in it (lines that begin with x-anthropic-) is left out, since it changes with
// every request. So are calls of tools that are no functions, with what answers them; `skipped` gets their types.
nlohmann::ordered_json chat_messages(const Fields& f, std::set<std::string>& skipped);

}  // namespace braid::serve
