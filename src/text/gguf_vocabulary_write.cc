#include "text/gguf_vocabulary_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "io/json.h"
#include "sys/error.h"
#include "sys/mapped_file.h"
#include "text/gguf_splittings.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace braid::text {
namespace {

// ---- how text is split ----------------------------------------------------------------------------------------------

// The patterns of a tokenizer.json, each applied to the pieces of the one before; nullopt if it splits by other means
// than patterns, or not into bytes.
std::optional<std::vector<std::string>> patterns_of(const io::Json& json) {
  const auto pre = json.get({"pre_tokenizer"});
  if (!pre) return std::nullopt;
  const auto list = pre->get({"pretokenizers"});
  const std::vector<io::Json> steps = list ? list->items() : std::vector<io::Json>{*pre};
  std::vector<std::string> patterns;
  bool bytes = false;
  for (const io::Json& step : steps) {
    const std::string type = step.string_of({"type"}).value_or("");
    if (type == "ByteLevel") {
      bytes = true;
      if (step.bool_of({"use_regex"}).value_or(true)) patterns.emplace_back(kGpt2Pattern);
    } else if (type == "Split" && step.need({"pattern"}).get({"Regex"})) {
      patterns.push_back(step.need({"pattern"}).need({"Regex"}).as_string());
    } else if (type == "Digits" && step.bool_of({"individual_digits"}).value_or(false)) {
      patterns.emplace_back(kDigitPattern);
    } else {
      return std::nullopt;
    }
  }
  return bytes ? std::optional(std::move(patterns)) : std::nullopt;
}

// Prefers a name with the tokenizer's ignore_merges.
const char* name_of(const std::vector<std::string>& patterns, bool ignore_merges) {
  const char* name = nullptr;
  for (const GgufSplitting& splitting : gguf_splittings()) {
    const auto end = std::find(splitting.patterns.begin(), splitting.patterns.end(), nullptr);
    if (!std::equal(patterns.begin(), patterns.end(), splitting.patterns.begin(), end)) continue;
    if (splitting.ignore_merges == ignore_merges) return splitting.name;
    if (!name) name = splitting.name;
  }
  return name;
}

// Merges stay inside pieces, so pieces that are too long do less harm than those that are too short.
const char* nearest_name(const std::vector<std::string>& patterns) {
  const std::string all = fmt::format("{}", fmt::join(patterns, "|"));
  const auto has = [&](std::string_view part) { return all.find(part) != std::string::npos; };
  if (has(R"([^\r\n\p{L}\p{N}]?)")) return has(R"(\p{N}{1,3})") ? "smaug-bpe" : "qwen2";
  return has(R"(\p{N}+)") ? "gpt-2" : "starcoder";
}

// How a SentencePiece-like tokenizer.json marks spaces; nullopt if it is not one.
struct SpaceMarks {
  bool at_start = false;  // before the text, too
};
std::optional<SpaceMarks> space_marks_of(const io::Json& json) {
  constexpr std::string_view kMark = "\u2581";
  if (!json.need({"model"}).bool_of({"byte_fallback"}).value_or(false)) return std::nullopt;
  if (const auto pre = json.get({"pre_tokenizer"})) {
    const bool metaspace =
        pre->string_of({"type"}) == "Metaspace" && pre->string_of({"replacement"}).value_or("") == kMark;
    if (!metaspace || pre->bool_of({"split"}).value_or(true)) return std::nullopt;
    return SpaceMarks{pre->string_of({"prepend_scheme"}).value_or("always") != "never"};
  }
  const auto normalizer = json.get({"normalizer"});
  if (!normalizer) return std::nullopt;
  const auto list = normalizer->get({"normalizers"});
  SpaceMarks marks;
  bool replaces = false;
  for (const io::Json& step : list ? list->items() : std::vector<io::Json>{*normalizer}) {
    const std::string type = step.string_of({"type"}).value_or("");
    if (type == "Prepend" && step.string_of({"prepend"}) == kMark) {
      marks.at_start = true;
    } else if (type == "Replace" && step.string_of({"content"}) == kMark &&
               step.need({"pattern"}).string_of({"String"}) == " ") {
      replaces = true;
    } else {
      return std::nullopt;
    }
  }
  return replaces ? std::optional(marks) : std::nullopt;
}

// ---- the vocabulary -------------------------------------------------------------------------------------------------

void add_id(GgufVocabulary& to, const GgufVocabularyOptions& options, const char* key, std::optional<int64_t> id) {
  if (id && *id < options.size) to.fields.emplace_back(key, static_cast<uint32_t>(*id));
}

// The token before a text, and those at which an answer ends.
void add_ids(GgufVocabulary& to, const GgufVocabularyOptions& options, std::optional<int64_t> bos,
             const std::vector<int64_t>& ends) {
  constexpr const char* kEnds[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                   "tokenizer.ggml.eom_token_id"};
  add_id(to, options, "tokenizer.ggml.bos_token_id", bos);
  for (size_t i = 0; i < std::min(ends.size(), std::size(kEnds)); ++i) add_id(to, options, kEnds[i], ends[i]);
}

class VocabularyWriter {
 public:
  VocabularyWriter(const std::filesystem::path& folder, const GgufVocabularyOptions& options)
      : options_(options),
        json_(io::Json::read(folder / "tokenizer.json")),
        model_(json_.need({"model"})),
        config_(TokenizerConfig::load(folder)) {
    Tokenizer::load(folder);  // throws its own Error if it is malformed
    const sys::MappedFile file(folder / "tokenizer.json");
    text_.assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  }

  GgufVocabulary result() && {
    read_tokens();
    const bool bpe = model_.string_of({"type"}).value_or("BPE") == "BPE";
    const auto patterns = bpe ? patterns_of(json_) : std::nullopt;
    const auto marks = bpe ? space_marks_of(json_) : std::nullopt;
    if (patterns) {
      add("tokenizer.ggml.model", std::string("gpt2"));
      add_splitting(*patterns);
      add("tokenizer.ggml.tokens", tokens_);
      add("tokenizer.ggml.token_type", kinds_);
      add("tokenizer.ggml.merges", merges());
      add_special();
    } else if (marks) {
      add_pieces(marks->at_start);
      if (json_.get({"pre_tokenizer"}) && marks->at_start)
        note(
            "llama.cpp puts a space before every text and after special tokens; this tokenizer only before a text that "
            "has none");
      add_special();
    } else {
      add("tokenizer.ggml.model", std::string("no_vocab"));
      add_special();
      note("llama.cpp supports no tokenizer of this kind: there the file works with token ids only");
    }
    add_templates();
    add("tokenizer.huggingface.json", std::move(text_));
    return std::move(out_);
  }

 private:
  void add(std::string key, io::GgufField value) { out_.fields.emplace_back(std::move(key), std::move(value)); }
  void note(std::string text) { out_.notes.push_back(std::move(text)); }

  void put(int64_t id, const std::string& token, GgufToken::Type kind) {
    if (id < 0 || id >= options_.size)
      fail(json_.document(), {.what = "token " + printable(token) + " has no row in the embedding",
                              .got = std::to_string(id),
                              .expected = fmt::format("below {}", options_.size)});
    tokens_[static_cast<size_t>(id)] = token;
    kinds_[static_cast<size_t>(id)] = kind;
    ids_.insert_or_assign(token, id);
  }
  void read_tokens() {
    for (int64_t id = 0; id < options_.size; ++id) tokens_.push_back(fmt::format("[PAD{}]", id));
    kinds_.assign(tokens_.size(), GgufToken::unused);
    for (const auto& [token, id] : model_.need({"vocab"}).members()) put(id.as_int(), token, GgufToken::normal);
    const auto added = json_.get({"added_tokens"});
    if (!added) return;
    for (const io::Json& token : added->items())
      put(token.need({"id"}).as_int(), token.need({"content"}).as_string(),
          token.bool_of({"special"}).value_or(false) ? GgufToken::control : GgufToken::user_defined);
  }

  // Either "a b" or ["a", "b"].
  std::vector<std::string> merges() const {
    std::vector<std::string> list;
    for (const io::Json& merge : model_.need({"merges"}).items()) {
      if (merge.is_string()) {
        list.push_back(merge.as_string());
      } else {
        const auto pair = merge.items();
        if (pair.size() != 2) merge.refuse("not a pair", "two tokens");
        list.push_back(pair[0].as_string() + " " + pair[1].as_string());
      }
    }
    return list;
  }

  // As SentencePiece: the earlier a piece is merged, the higher its score.
  void add_pieces(bool space_prefix) {
    constexpr float kNeverMerged = -1e9f;
    std::vector<float> scores(tokens_.size(), kNeverMerged);
    float score = 0;
    for (std::string merge : merges()) {
      merge.erase(merge.find(' '), 1);
      const auto id = ids_.find(merge);
      if (id == ids_.end()) continue;
      float& found = scores[static_cast<size_t>(id->second)];
      if (found == kNeverMerged) found = score--;
    }
    const auto unk = model_.string_of({"unk_token"});
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const std::string& token = tokens_[id];
      if (token.size() == 6 && token.starts_with("<0x") && token.ends_with(">") && kinds_[id] == GgufToken::normal)
        kinds_[id] = GgufToken::byte;
      if (unk == token) kinds_[id] = GgufToken::unknown;
    }
    add("tokenizer.ggml.model", std::string("llama"));
    add("tokenizer.ggml.tokens", tokens_);
    add("tokenizer.ggml.scores", std::move(scores));
    add("tokenizer.ggml.token_type", kinds_);
    add("tokenizer.ggml.add_space_prefix", space_prefix);
  }

  void add_splitting(const std::vector<std::string>& patterns) {
    const char* name = name_of(patterns, model_.bool_of({"ignore_merges"}).value_or(false));
    if (!name) {
      name = nearest_name(patterns);
      note(fmt::format("llama.cpp does not know how this tokenizer splits text; the file names the nearest, {}", name));
    }
    add("tokenizer.ggml.pre", std::string(name));
  }

  void add_special() {
    const auto id_of = [&](const std::optional<std::string>& token) {
      const auto found = token ? ids_.find(*token) : ids_.end();
      return found == ids_.end() ? std::nullopt : std::optional(found->second);
    };
    const auto bos = id_of(config_.bos_token);
    // The tokenizer's own first, then the others.
    std::vector<int64_t> ends = options_.ends;
    if (const auto eos = id_of(config_.eos_token)) {
      std::erase(ends, *eos);
      ends.insert(ends.begin(), *eos);
    }
    add_ids(out_, options_, bos ? bos : options_.bos, ends);
    add_id(out_, options_, "tokenizer.ggml.unknown_token_id", id_of(config_.unk_token));
    add_id(out_, options_, "tokenizer.ggml.padding_token_id", id_of(config_.pad_token));
    add_around();
  }

  // Whether a BOS goes before a text, and an EOS after it.
  void add_around() {
    bool before = false, after = false;
    const auto processor = json_.get({"post_processor"});
    const auto list = processor ? processor->get({"processors"}) : std::nullopt;
    std::vector<io::Json> steps = list ? list->items() : std::vector<io::Json>();
    if (processor && !list) steps.push_back(*processor);
    for (const io::Json& step : steps) {
      const auto single = step.get({"single"});
      if (!single || !single->is_array()) continue;
      const auto pieces = single->items();
      if (pieces.empty()) continue;
      before |= pieces.front().get({"SpecialToken"}).has_value();
      after |= pieces.back().get({"SpecialToken"}).has_value();
    }
    add("tokenizer.ggml.add_bos_token", before);
    add("tokenizer.ggml.add_eos_token", after);
  }

  void add_templates() {
    if (config_.chat_template) add("tokenizer.chat_template", *config_.chat_template);
    std::vector<std::string> names;
    for (const NamedTemplate& named : config_.named_templates) {
      if (named.name == "default") continue;
      names.push_back(named.name);
      add("tokenizer.chat_template." + named.name, named.source);
    }
    if (!names.empty()) add("tokenizer.chat_templates", std::move(names));
  }

  const GgufVocabularyOptions& options_;
  io::Json json_, model_;
  TokenizerConfig config_;
  std::string text_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> kinds_;
  std::map<std::string, int64_t> ids_;
  GgufVocabulary out_;
};

}  // namespace

GgufVocabulary gguf_vocabulary(const std::filesystem::path& folder, const GgufVocabularyOptions& options) {
  if (std::filesystem::exists(folder / "tokenizer.json")) return VocabularyWriter(folder, options).result();
  GgufVocabulary none{{{"tokenizer.ggml.model", std::string("no_vocab")}},
                      {"the folder has no tokenizer.json: the file works with token ids only"}};
  add_ids(none, options, options.bos, options.ends);
  return none;
}

}  // namespace braid::text
