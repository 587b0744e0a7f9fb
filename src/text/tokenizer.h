// Text to token ids and back, as a tokenizer.json in Hugging Face's format specifies: byte-level BPE (GPT-2, Llama 3,
// Qwen, Tekken and with it Nemotron) and SentencePiece-like BPE with byte fallback (Llama 2). The ids are those of
// Hugging Face's own library. A Tokenizer is immutable: several threads may use one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/token_decoder.h"

namespace braid::text {

class Tokenizer {
 public:
  // A folder with a tokenizer.json, or that file itself. Error names the file and what is wrong in it.
  static Tokenizer load(const std::filesystem::path& folder_or_file);
  // The text of a tokenizer.json; messages start with `where`.
  static Tokenizer parse(std::string_view json, const std::string& where);

  // `add_special`: with the tokens that the post-processor adds, usually BOS. Added tokens in the text become their ids
  // either way. Error when the text is not UTF-8 or longer than 1 GiB.
  std::vector<int32_t> encode(std::string_view text, bool add_special) const;
  // What that puts before a text: BOS, or nothing.
  const std::vector<int32_t>& opening() const { return before_; }
  // The same ids, faster for texts that have parts between added tokens in common, as the turns of a conversation do:
  // `memo` has the ids of the parts seen so far. A memo belongs to one tokenizer, and to one thread at a time.
  using Memo = std::unordered_map<std::string, std::vector<int32_t>>;
  std::vector<int32_t> encode(std::string_view text, bool add_special, Memo& memo) const;
  // Always valid UTF-8. Ids without a token are skipped, and with `skip_special` special tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  int32_t vocab_size() const;                                        // one above the largest id
  std::optional<int32_t> token_to_id(std::string_view token) const;  // spelled as in tokenizer.json
  std::optional<std::string> id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;
  bool is_added(int32_t id) const { return added(id) != nullptr; }  // special, or matched in texts as a whole
  // What a token adds to the middle of a text: perhaps a part of a character. Empty for an id without a token.
  std::string bytes_of(int32_t id) const;

 private:
  friend class StreamDecoder;
  friend class TokenizerReader;
  Tokenizer() = default;
  const AddedToken* added(int32_t id) const;
  std::optional<std::string> decoded(int32_t id) const;  // the spelling that the decoder gets
  std::vector<int32_t> encode(std::string_view text, bool add_special, Memo* memo) const;

  std::vector<AddedToken> added_;  // sorted by id
  AddedTokenFinder raw_finder_, normalized_finder_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  std::vector<int32_t> before_, after_;  // what the post-processor adds
  TokenDecoder decoder_;
};

// Text while it is generated: push() returns the characters that are final, finish() the rest. All pieces together
// equal Tokenizer::decode (except for a run of <0xNN> bytes that is not UTF-8). The Tokenizer must outlive it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special);
  std::string push(int32_t id);
  std::string finish();  // and resets

 private:
  const Tokenizer* tokenizer_;
  TokenDecoder::Stream stream_;
  bool skip_special_;
};

}  // namespace braid::text
