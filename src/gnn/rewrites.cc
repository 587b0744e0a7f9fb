#include "gnn/rewrites.h"

#include <fmt/format.h>

#include <algorithm>

#include "sys/error.h"

namespace braid::gnn {

std::span<const RewriteName> rewrite_names() {
  static constexpr RewriteName kNames[] = {
      {"postpone", &Rewrites::postpone, "products and scores on nodes, not on edges"},
      {"order", &Rewrites::order, "the product before or after the aggregation, by cost"},
      {"fuse", &Rewrites::fuse, "messages of edges stay in registers"},
      {"recompute", &Rewrites::recompute, "values of edges are computed again for the backward pass"},
      {"first", &Rewrites::first, "no gradient of the features"},
  };
  return kNames;
}

Rewrites rewrites_without(std::span<const std::string> names, std::string_view where) {
  Rewrites rewrites;
  const auto known = rewrite_names();
  for (const std::string& name : names) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const RewriteName& r) { return r.name == name; });
    if (found == known.end())
      fail(where, {.what = "is not a rewrite",
                   .got = printable(name),
                   .expected = "postpone, order, fuse, recompute or first"});
    rewrites.*(found->on) = false;
  }
  return rewrites;
}

}  // namespace braid::gnn
