// This computer, for `braid info --machine`.
#pragma once

namespace braid::apps {

void print_machine(bool json);  // measures the roofs: about a second

}  // namespace braid::apps
