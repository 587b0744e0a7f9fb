#include "train/group_exchange.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "sys/error.h"
#include "sys/interrupt.h"
#include "train/objective.h"

namespace braid::train {
namespace {

constexpr io::JsonLimits kTextLimits{.bytes = int64_t{1} << 30, .values = int64_t{1} << 24};  // texts of answers

enum class Outcome : int64_t { done, interrupted, failed };

// What a rank tells the others: groups, or how they failed. `sizes` of what follows in `bytes`.
struct Parcel {
  Outcome outcome = Outcome::done;
  Fault fault{};
  std::array<int64_t, 5> sizes{};  // text, ids, routes, logprobs, trainer
  std::vector<std::byte> bytes{};
};
constexpr size_t kHead = 7;  // numbers before the bytes
using Head = std::array<int64_t, kHead>;

Head head_of(const Parcel& p) {
  Head head{static_cast<int64_t>(p.outcome), static_cast<int64_t>(p.fault)};
  std::copy(p.sizes.begin(), p.sizes.end(), head.begin() + 2);
  return head;
}

int64_t bytes_in(const Head& head) {
  int64_t bytes = head[2];
  for (size_t i = 3; i < kHead; ++i) bytes += head[i] * 4;
  return bytes;
}

Parcel packed(std::vector<Group> groups) {
  TokenArrays tokens;
  const std::string text = state_of({.groups = std::move(groups)}, tokens)
                               .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  Parcel p;
  size_t at = 0;
  const auto put = [&](const auto& list) {
    p.sizes[at++] = std::ssize(list);
    const auto bytes = std::as_bytes(std::span(list));
    p.bytes.insert(p.bytes.end(), bytes.begin(), bytes.end());
  };
  put(text);
  put(tokens.ids);
  put(tokens.routes);
  put(tokens.logprobs);
  put(tokens.trainer);
  return p;
}

Parcel failed(Outcome outcome, Fault fault, std::string_view message) {
  const auto bytes = std::as_bytes(std::span(message));
  return {.outcome = outcome, .fault = fault, .sizes = {std::ssize(message)}, .bytes = {bytes.begin(), bytes.end()}};
}

Parcel outcome_of(sys::FunctionRef<std::vector<Group>()> work) {
  try {
    return packed(work());
  } catch (const sys::Interrupted&) {
    return {.outcome = Outcome::interrupted};
  } catch (const Error& e) {
    return failed(Outcome::failed, e.fault(), e.what());
  }
}

std::string text_of(const Head& head, const std::byte* bytes) {
  return {reinterpret_cast<const char*>(bytes), static_cast<size_t>(head[2])};
}

std::vector<Group> unpacked(const Head& head, const std::byte* bytes, int64_t vocabulary) {
  const std::string text = text_of(head, bytes);
  bytes += text.size();
  TokenArrays tokens;
  size_t at = 3;
  const auto take = [&](auto& list) {
    list.resize(static_cast<size_t>(head[at++]));
    const size_t count = list.size() * sizeof(list[0]);
    if (count > 0) std::memcpy(list.data(), bytes, count);
    bytes += count;
  };
  take(tokens.ids);
  take(tokens.routes);
  take(tokens.logprobs);
  take(tokens.trainer);
  return rollouts_of(io::Json::parse(text, "answers of a rank", kTextLimits), tokens, vocabulary).groups;
}

}  // namespace

std::vector<Group> GroupExchange::all(sys::FunctionRef<std::vector<Group>()> work) {
  if (!ranks_) return work();
  Parcel own = outcome_of(work);
  const auto ranks = static_cast<size_t>(ranks_->size());
  const Head head = head_of(own);
  std::vector<int64_t> numbers(ranks * kHead);
  ranks_->all_gather(view_of(head.data(), {std::ssize(head)}), mut_view_of(numbers.data(), {std::ssize(numbers)}))
      .wait();
  std::vector<Head> heads(ranks);
  std::vector<int64_t> counts;
  int64_t sum = 0;
  for (size_t r = 0; r < ranks; ++r) {
    std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>(r * kHead), kHead, heads[r].begin());
    sum += counts.emplace_back(bytes_in(heads[r]));
  }
  std::vector<std::byte> bytes(static_cast<size_t>(sum));
  const View sent(own.bytes.data(), DType::u8, {std::ssize(own.bytes)});
  ranks_->all_gather(sent, MutView(bytes.data(), DType::u8, {sum}), counts).wait();
  for (const Head& h : heads) {
    if (h[0] == static_cast<int64_t>(Outcome::interrupted)) throw sys::Interrupted();
  }
  std::vector<Group> groups;
  const std::byte* at = bytes.data();
  for (size_t r = 0; r < ranks; at += counts[r++]) {
    if (heads[r][0] == static_cast<int64_t>(Outcome::failed))
      throw CommonError(static_cast<Fault>(heads[r][1]), text_of(heads[r], at));
    for (Group& g : unpacked(heads[r], at, vocabulary_)) groups.push_back(std::move(g));
  }
  return groups;
}

}  // namespace braid::train
