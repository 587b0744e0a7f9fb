#include "train/group_exchange.h"

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "sys/error.h"
#include "sys/interrupt.h"
#include "train/agreement.h"
#include "train/objective.h"

namespace braid::train {
namespace {

// Lengths of the lists that a rank sends, one after the other: text, ids, routes, logprobs, trainer.
using Lengths = std::array<int64_t, 5>;

template <class Lists, class Of>
void each_list(std::string& text, Lists& tokens, Of&& of) {
  of(text, 0);
  of(tokens.ids, 1);
  of(tokens.routes, 2);
  of(tokens.logprobs, 3);
  of(tokens.trainer, 4);
}

std::vector<std::byte> packed(std::vector<Group> groups, Lengths& lengths) {
  TokenArrays tokens;
  std::string text = state_of({.groups = std::move(groups)}, tokens)
                         .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::vector<std::byte> all;
  each_list(text, tokens, [&](const auto& list, size_t number) {
    lengths[number] = std::ssize(list);
    const auto bytes = std::as_bytes(std::span(list));
    all.insert(all.end(), bytes.begin(), bytes.end());
  });
  return all;
}

// Those of one rank; `bytes` moves behind them.
std::vector<Group> unpacked(std::span<const int64_t> lengths, const std::byte*& bytes, int64_t vocabulary) {
  std::string text;
  TokenArrays tokens;
  each_list(text, tokens, [&](auto& list, size_t number) {
    list.resize(static_cast<size_t>(lengths[number]));
    const size_t count = list.size() * sizeof(list[0]);
    if (count > 0) std::memcpy(list.data(), bytes, count);
    bytes += count;
  });
  return rollouts_of(io::Json::parse(text, "answers of a rank", kRolloutLimits), tokens, vocabulary).groups;
}

}  // namespace

std::vector<Group> GroupExchange::all(sys::FunctionRef<std::vector<Group>()> work) {
  if (!ranks_) return work();
  std::vector<Group> own;
  bool interrupted = false;
  std::optional<Error> problem;
  try {
    own = work();
  } catch (const sys::Interrupted&) {
    interrupted = true;
  } catch (const Error& error) {
    problem = error;
  }
  if (first_told(*ranks_, interrupted ? "interrupted" : "")) throw sys::Interrupted();
  if (const auto told = first_error(*ranks_, problem)) throw CommonError(told->fault(), told->what());

  constexpr auto kLists = static_cast<int64_t>(std::tuple_size_v<Lengths>);
  Lengths lengths{};
  const std::vector<std::byte> sent = packed(std::move(own), lengths);
  const auto ranks = static_cast<size_t>(ranks_->size());
  std::vector<int64_t> sizes(ranks), all_lengths(ranks * lengths.size());
  const int64_t size = std::ssize(sent);
  ranks_->all_gather(view_of(&size, {1}), mut_view_of(sizes.data(), {std::ssize(sizes)})).wait();
  ranks_->all_gather(view_of(lengths.data(), {kLists}), mut_view_of(all_lengths.data(), {std::ssize(all_lengths)}))
      .wait();
  std::vector<std::byte> received(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})));
  ranks_
      ->all_gather(View(sent.data(), DType::u8, {size}), MutView(received.data(), DType::u8, {std::ssize(received)}),
                   sizes)
      .wait();
  std::vector<Group> groups;
  const std::byte* at = received.data();
  for (size_t r = 0; r < ranks; ++r) {
    const auto of_rank = std::span(all_lengths).subspan(r * lengths.size(), lengths.size());
    for (Group& g : unpacked(of_rank, at, vocabulary_)) groups.push_back(std::move(g));
  }
  return groups;
}

}  // namespace braid::train
