#include "train/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace braid::train {
namespace {

std::string told_by(comm::Group& world, int rank, std::string text) {
  int64_t size = std::ssize(text);
  world.broadcast(mut_view_of(&size, {1}), rank).wait();
  text.resize(static_cast<size_t>(size));
  if (size > 0) world.broadcast(mut_view_of(reinterpret_cast<uint8_t*>(text.data()), {size}), rank).wait();
  return text;
}

}  // namespace

std::string told_by_first(comm::Group& world, std::string text) { return told_by(world, 0, std::move(text)); }

std::optional<Told> first_told(comm::Group& world, const std::string& own) {
  const int64_t has = own.empty() ? 0 : 1;
  std::vector<int64_t> all(static_cast<size_t>(world.size()));
  world.all_gather(view_of(&has, {1}), mut_view_of(all.data(), {std::ssize(all)})).wait();
  const auto found = std::find(all.begin(), all.end(), 1);
  if (found == all.end()) return std::nullopt;
  const auto rank = static_cast<int>(found - all.begin());
  return Told{rank, told_by(world, rank, own)};
}

std::optional<Error> first_error(comm::Group& world, const std::optional<Error>& own) {
  const auto told =
      first_told(world, own ? fmt::format("{}{}", static_cast<char>(own->fault()), own->what()) : std::string());
  if (!told) return std::nullopt;
  std::string text = told->text.substr(1);
  if (told->rank > 0 && text.starts_with('[')) text.insert(1, fmt::format("rank {}: ", told->rank));
  return Error(static_cast<Fault>(told->text[0]), text);
}

void agree(comm::Group& world, const std::optional<Error>& own) {
  const auto error = first_error(world, own);
  if (!error) return;
  if (world.rank() > 0) {
    try {
      world.barrier().wait();
    } catch (const Error&) {
    }
  }
  throw Error(*error);
}

}  // namespace braid::train
