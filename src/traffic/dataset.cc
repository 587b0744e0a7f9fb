#include "traffic/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "io/ordered_json.h"
#include "sys/error.h"
#include "sys/read.h"

namespace braid::traffic {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kTokensMax = 1 << 24;

// mt19937_64 is specified to the bit; the library's distributions are not.
class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(bits_() % static_cast<uint64_t>(n)); }
  int64_t near(int64_t n, double ratio) {
    const auto least = static_cast<int64_t>(std::floor(static_cast<double>(n) * (1 - ratio))),
               most = static_cast<int64_t>(std::ceil(static_cast<double>(n) * (1 + ratio)));
    return std::max<int64_t>(least + below(most - least + 1), 1);
  }

 private:
  std::mt19937_64 bits_;
};

// Ids that are text by themselves: no special tokens, no parts of characters.
std::vector<int32_t> plain_ids(const text::Tokenizer& tokenizer) {
  std::vector<int32_t> out;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string bytes = tokenizer.bytes_of(id);
    const bool letters = !bytes.empty() && std::ranges::all_of(bytes, [](char ch) { return ch >= ' ' && ch < 0x7f; });
    if (letters && !tokenizer.is_special(id)) out.push_back(id);
  }
  if (out.empty()) fail("tokenizer", {.what = "has no token of plain text to draw prompts from"});
  return out;
}

// Token by token the text would merge differently: it is cut, or drawn on, until its own encoding has the length.
std::string text_of(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids, Random& random, int64_t tokens) {
  std::vector<int32_t> drawn;
  std::string text;
  for (int attempt = 0; attempt < 8; ++attempt) {
    while (std::ssize(drawn) < tokens) drawn.push_back(ids[static_cast<size_t>(random.below(std::ssize(ids)))]);
    drawn.resize(static_cast<size_t>(tokens));
    text = tokenizer.decode(drawn, false);
    drawn = tokenizer.encode(text, false);
    if (std::ssize(drawn) == tokens) break;
  }
  return text;
}

}  // namespace

std::vector<Prompt> random_prompts(const text::Tokenizer& tokenizer, const RandomPrompts& o) {
  Random random(o.seed);
  const std::vector<int32_t> ids = plain_ids(tokenizer);
  const std::string prefix = o.prefix_tokens > 0 ? text_of(tokenizer, ids, random, o.prefix_tokens) + " " : "";
  std::vector<Prompt> out;
  for (int64_t i = 0; i < o.count; ++i) {
    const int64_t input = random.near(o.input_tokens, o.range_ratio),
                  output = random.near(o.output_tokens, o.range_ratio);
    out.push_back({.content = prefix + text_of(tokenizer, ids, random, input), .output_tokens = output});
  }
  return out;
}

std::vector<Prompt> file_prompts(const std::filesystem::path& file, int64_t count, int64_t output_tokens) {
  const std::string name = printable(file.string());
  constexpr const char* kExpected = "{\"prompt\": text} or {\"messages\": [...]} in every line";
  std::vector<Prompt> read;
  sys::for_each_line(file, [&](const std::string& line, int64_t number) {
    if (std::ssize(read) == count) return;
    const std::string where = fmt::format("{}:{}", name, number);
    const ordered_json row = io::parse_ordered(line, where, kExpected);
    const bool text = row.is_object() && row.contains("prompt") && row["prompt"].is_string();
    const bool chat = row.is_object() && row.contains("messages") && row["messages"].is_array();
    if (!text && !chat) fail(where, {.what = "not a prompt", .got = printable(line, 40), .expected = kExpected});
    const bool limited = row.contains("output_tokens");
    if (limited && (!row["output_tokens"].is_number_unsigned() || row["output_tokens"] > kTokensMax))
      fail(where, {.what = "output_tokens is not a number of tokens",
                   .got = printable(row["output_tokens"].dump(-1, ' ', true), 40),
                   .expected = fmt::format("0 to {}", kTokensMax)});
    read.push_back({.content = text ? row["prompt"] : row["messages"],
                    .output_tokens = limited ? row["output_tokens"].get<int64_t>() : output_tokens});
  });
  if (read.empty()) fail(name, {.what = "no prompts in this file", .expected = kExpected});
  for (size_t i = 0; std::ssize(read) < count; ++i) read.push_back(read[i]);
  return read;
}

}  // namespace braid::traffic
