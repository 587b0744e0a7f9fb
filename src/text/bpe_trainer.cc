#include "text/bpe_trainer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>
#include <utility>

#include "sys/error.h"
#include "sys/utf8.h"
#include "text/byte_alphabet.h"

namespace braid::text {

const std::string_view kGpt2Pieces = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kNemotronPieces =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view kSignPieces = R"( ?\p{Lu}?\p{Ll}+|\p{L}|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using nlohmann::ordered_json;

constexpr size_t kPieceBytesMax = size_t{1} << 30;

ordered_json pre_tokenizer_json(const std::string& pieces) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"}, {"pattern", {{"Regex", pieces}}}, {"behavior", "Isolated"}, {"invert", false}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}};
}

// The letters of all bytes, sorted: their order in the vocabulary.
std::vector<std::string> sorted_letters(std::array<int32_t, 256>& rank_of_byte) {
  std::vector<std::pair<std::string, size_t>> letters(256);  // UTF-8 sorts as its characters do
  for (size_t byte = 0; byte < 256; ++byte) {
    const char ch = static_cast<char>(byte);
    append_spelling({&ch, 1}, letters[byte].first);
    letters[byte].second = byte;
  }
  std::ranges::sort(letters);
  std::vector<std::string> out;
  for (const auto& [letter, byte] : letters) {
    rank_of_byte[byte] = static_cast<int32_t>(out.size());
    out.push_back(letter);
  }
  return out;
}

// The pieces as strings of symbols, and the words in which each pair occurs.
class Merger {
 public:
  struct Pair {
    int64_t count = 0;
    std::vector<int32_t> words;  // that contained it; some may not any more
  };
  struct Candidate {
    int64_t count;
    uint64_t pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }

  void add_word(std::vector<int32_t> symbols, int64_t count) {
    const auto word = static_cast<int32_t>(words_.size());
    for (size_t i = 0; i + 1 < symbols.size(); ++i) change(key(symbols[i], symbols[i + 1]), word, count);
    words_.push_back({std::move(symbols), count});
  }
  void queue_all() {
    for (const auto& [pair, entry] : pairs_) queue_.push({entry.count, pair});
    risen_.clear();
  }

  // The most common pair, on a tie the smallest; count 0 when none is left. Counts in the queue may be stale, but never
  // too low.
  Candidate top() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const int64_t count = pairs_[best.pair].count;
      if (count == best.count) return best;
      if (count > 0) queue_.push({count, best.pair});
    }
    return {0, 0};
  }

  void merge(uint64_t pair, int32_t merged) {
    const std::vector<int32_t> words = std::move(pairs_[pair].words);
    pairs_.erase(pair);
    for (const int32_t word : words) merge_in(word, pair, merged);
    std::sort(risen_.begin(), risen_.end());
    risen_.erase(std::unique(risen_.begin(), risen_.end()), risen_.end());
    for (const uint64_t risen : risen_) {
      if (const int64_t count = pairs_[risen].count; count > 0) queue_.push({count, risen});
    }
    risen_.clear();
  }

 private:
  struct Word {
    std::vector<int32_t> symbols;
    int64_t count;
  };

  void change(uint64_t pair, int32_t word, int64_t by) {
    Pair& entry = pairs_[pair];
    entry.count += by;
    if (by < 0) return;
    if (entry.words.empty() || entry.words.back() != word) entry.words.push_back(word);
    risen_.push_back(pair);
  }

  void merge_in(int32_t index, uint64_t pair, int32_t merged) {
    const auto left = static_cast<int32_t>(pair >> 32), right = static_cast<int32_t>(pair & 0xffffffff);
    auto& [symbols, count] = words_[static_cast<size_t>(index)];
    size_t written = 0;
    for (size_t at = 0; at < symbols.size(); ++at) {
      if (symbols[at] != left || at + 1 == symbols.size() || symbols[at + 1] != right) {
        symbols[written++] = symbols[at];
        continue;
      }
      if (written > 0) {
        const int32_t before = symbols[written - 1];
        if (key(before, left) != pair) change(key(before, left), index, -count);
        change(key(before, merged), index, count);
      }
      if (at + 2 < symbols.size()) {
        const int32_t after = symbols[at + 2];
        if (key(right, after) != pair) change(key(right, after), index, -count);
        change(key(merged, after), index, count);
      }
      symbols[written++] = merged;
      ++at;
    }
    symbols.resize(written);
  }

  std::vector<Word> words_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<uint64_t> risen_;  // pairs whose count rose since they were queued
};

}  // namespace

BpeTrainer::BpeTrainer(BpeTrainerOptions options) : options_(std::move(options)) {
  const std::string json = pre_tokenizer_json(options_.pieces).dump();
  pre_tokenizer_ = PreTokenizer::read(io::Json::parse(json, "pieces"));
  const int64_t least = 256 + std::ssize(options_.added);
  if (options_.vocabulary < least || options_.vocabulary > kVocabularyMax) {
    fail("--vocab", {.what = "out of range",
                     .got = std::to_string(options_.vocabulary),
                     .expected = fmt::format("{} (bytes and added tokens) to {}", least, kVocabularyMax)});
  }
  for (size_t i = 0; i < options_.added.size(); ++i) {
    const std::string& content = options_.added[i].content;
    const auto same = [&](const BpeTrainerOptions::Added& other) { return other.content == content; };
    if (content.empty() || sys::utf8_valid_prefix(content) != content.size() ||
        std::ranges::count_if(options_.added, same) > 1) {
      fail(options_.added[i].special ? "--special" : "--added",
           {.what = "an added token is empty, not UTF-8 or duplicated", .got = printable(content)});
    }
    finder_.add({.id = static_cast<int32_t>(i), .content = content, .special = options_.added[i].special}, content);
  }
  finder_.finish();
}

void BpeTrainer::add(std::string_view text, const std::string& where, const Progress& progress) {
  if (const size_t valid = sys::utf8_valid_prefix(text); valid != text.size()) {
    fail(where, {.what = fmt::format("the text is not UTF-8 at byte {}", valid),
                 .got = printable(text.substr(valid, 4)),
                 .hint = "iconv -t utf-8"});
  }
  PreTokenizer::Scratch scratch(pre_tokenizer_);
  int64_t bytes = 0;
  finder_.split(text, [&](std::string_view part, size_t offset, int32_t id) {
    if (id >= 0) return;
    pre_tokenizer_.split(part, offset == 0, scratch, [&](std::string_view piece) {
      if (piece.size() > kPieceBytesMax) fail(where, {.what = "a piece of the text is longer than 1 GiB"});
      progress(bytes += std::ssize(piece));
      const auto known = pieces_.find(piece);
      if (known != pieces_.end()) {
        ++known->second;
      } else {
        pieces_.emplace(piece, 1);
      }
    });
  });
}

// The file up to its vocabulary and merges, which are too large for a JSON document in memory.
std::string BpeTrainer::head() const {
  ordered_json added = ordered_json::array();
  for (size_t i = 0; i < options_.added.size(); ++i) {
    added.push_back({{"id", i},
                     {"content", options_.added[i].content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", options_.added[i].special}});
  }
  const ordered_json json{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", pre_tokenizer_json(options_.pieces)},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false}}}};
  std::string text = json.dump(2);
  text.resize(text.rfind("\n  }"));
  return text;
}

BpeTrainer::Trained BpeTrainer::train(const Progress& progress) const {
  if (pieces_.empty()) fail("data bpe", {.what = "there is no text to learn from", .hint = "more files"});
  std::vector<std::string> tokens;  // by id, as written in the file
  for (const BpeTrainerOptions::Added& added : options_.added) tokens.push_back(added.content);
  const auto first_byte = static_cast<int32_t>(tokens.size());
  std::array<int32_t, 256> rank_of_byte{};
  for (std::string& letter : sorted_letters(rank_of_byte)) tokens.push_back(std::move(letter));
  std::unordered_map<std::string, int32_t> ids;
  for (size_t i = 0; i < tokens.size(); ++i) ids.emplace(tokens[i], static_cast<int32_t>(i));

  Merger merger;
  for (const auto& [piece, count] : pieces_) {
    std::vector<int32_t> symbols;
    for (const char ch : piece) symbols.push_back(first_byte + rank_of_byte[static_cast<unsigned char>(ch)]);
    merger.add_word(std::move(symbols), count);
  }
  merger.queue_all();

  std::string merges;
  int64_t merge_count = 0;
  while (std::ssize(tokens) < options_.vocabulary) {
    const Merger::Candidate best = merger.top();
    if (best.count < std::max<int64_t>(options_.count_min, 1)) break;
    const std::string left = tokens[best.pair >> 32], right = tokens[best.pair & 0xffffffff];
    merges += fmt::format("{}\n      {}", merge_count++ == 0 ? "" : ",", nlohmann::json(left + " " + right).dump());
    // Different merges that give the same string share one token.
    const auto [token, fresh] = ids.emplace(left + right, static_cast<int32_t>(tokens.size()));
    if (fresh) tokens.push_back(left + right);
    merger.merge(best.pair, token->second);
    progress(std::ssize(tokens));
  }

  std::string out = head() + ",\n    \"vocab\": {";
  for (size_t i = 0; i < tokens.size(); ++i) {
    out += fmt::format("{}\n      {}: {}", i == 0 ? "" : ",", nlohmann::json(tokens[i]).dump(), i);
  }
  out += "\n    },\n    \"merges\": [" + merges + (merge_count == 0 ? "]" : "\n    ]") + "\n  }\n}\n";
  return {.json = std::move(out), .tokens = std::ssize(tokens), .merges = merge_count};
}

}  // namespace braid::text
