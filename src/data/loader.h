// The entry point of this module: a [data] table becomes a Loader, and a Loader returns the batch of any step. A batch
// is a pure function of (specification, seed, step), so a run resumes from its step counter.
//
// Kinds, in the order of kKinds:
//   text     plain text: a file, or a folder of *.txt and *.md files; a document ends with the file, or at the
//            end-of-text token
//   jsonl    one document per line: {"text": ...}, or {"messages": [...], "tools": [...]} through the chat template
//            with loss on the assistant's turns (chat.h); both kinds of lines may be mixed
//   indexed  Megatron's PREFIX.bin and PREFIX.idx, or a .bin of llm.c
//   ids      I64 tensor `batches` [N, B, T+1] of a safetensors file: step s reads batches[s % N], whole
//   preference, rollouts    answers to prompts, in pairs or rated: a row is a pair or an answer (answers.h)
//   markov, pcfg, modular, recall, hops    generated, of known entropy (generated.h)
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/batch.h"
#include "data/generated.h"
#include "data/goldfish.h"
#include "data/language.h"
#include "data/reading.h"
#include "data/source.h"
#include "data/thoughts.h"

namespace braid::data {

extern const std::vector<std::string> kKinds;

struct BlendPart {
  std::string path;
  double weight = 1;
};

struct DataSpec {
  std::string kind{};  // one of kKinds; empty: by the path
  std::string path{};
  std::vector<BlendPart> blend{};  // instead of `path`: several, in these proportions of rows
  int64_t batch = 0;               // rows per step; 0: as many as `ids` has
  int64_t length = 0;              // tokens per row at most; 0: as many as `ids` has, or the longest pair or answer
  uint64_t seed = 0;
  double validation = 0;  // share of the documents that training never sees, in [0, 1)
  bool held_out = false;  // read that share, in order, instead of the rest
  bool once = false;      // rows after the first epoch have no targets, where there is an end: none counts twice
  bool shuffle = true;    // false: rows in the order of the data
  bool rated = false;     // answers must have rewards, those of rollouts at least two to a group
  Goldfish goldfish{};
  ThoughtRules thoughts{};  // of conversations
  GeneratorSpec generator{};
  Reading reading{};  // may be empty
};

class Loader {
 public:
  // The batch of step 0, 1, ...; the memory of `out` is reused. Error on a token id outside the vocabulary.
  void batch(int64_t step, Batch& out) const;
  Batch batch(int64_t step) const {
    Batch out;
    batch(step, out);
    return out;
  }

  int64_t rows() const { return rows_; }  // of a step
  int64_t length() const { return rules_.length; }
  // Until every part was read; the smaller ones of a blend come again, in their proportion. 0: endless.
  int64_t rows_per_epoch() const;
  int64_t steps_per_epoch() const;  // rounded up: the first step of the second epoch may begin with a row of the first;
                                    // 0: endless
  std::optional<double> entropy_floor() const;  // of a single generated source
  // A hash of all that files say, in one pass over them on so many threads; 0 where all is generated. Not of how rows
  // are made of it.
  uint64_t content(int threads) const;
  std::span<const std::string> notes() const { return notes_; }  // for the user, a line each

 private:
  friend class Opener;
  static constexpr uint64_t kWhole = uint64_t{1} << 32;
  struct Part {
    std::string where{};
    std::unique_ptr<const Source> source{};
    uint64_t share = kWhole;  // of what earlier parts leave, in units of 2^-32
  };
  int64_t rows_ = 0;
  uint64_t seed_ = 0;
  bool held_out_ = false, once_ = false, shuffle_ = true;
  RowRules rules_;
  std::vector<Part> parts_;
  std::vector<std::string> notes_;
};

// Is this a kind that reads no files?
bool is_generated(const std::string& kind);

// Is a part of it of this kind? Error if nothing says of which kind a part is.
bool has_kind(const DataSpec& spec, std::string_view kind);

// Is every row a pair of answers, or an answer?
bool has_answers(const DataSpec& spec);

// Does a file say how many rows a batch has?
bool has_batches(const DataSpec& spec);

// Does it need a tokenizer?
bool reads_text(const DataSpec& spec);

// Error on an unknown kind, a missing or malformed file, a folder without documents, ids outside the vocabulary.
// `language` is used during the call only.
Loader open(const DataSpec& spec, const Language& language);
// The same with the files of a model folder (language.h), which are read only if the data is text.
Loader open(const DataSpec& spec, const std::filesystem::path& folder, int64_t vocabulary);

}  // namespace braid::data
