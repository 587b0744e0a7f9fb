// A [data] table becomes a Loader: what a path is, which documents count, how they fill rows, in which proportions.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "data/answers.h"
#include "data/ids_source.h"
#include "data/language.h"
#include "data/limits.h"
#include "data/loader.h"
#include "data/packing.h"
#include "data/read_text.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/nearest.h"
#include "text/gguf_vocabulary.h"

namespace braid::data {
namespace fs = std::filesystem;
namespace {

void check_range(const char* word, int64_t value, int64_t max) {
  if (value == 0)
    fail(word, {.what = "is 0, for the data's own, and this data has none", .expected = fmt::format("1 to {}", max)});
  if (value < 1 || value > max)
    fail(word, {.what = "is out of range", .got = std::to_string(value), .expected = fmt::format("1 to {}", max)});
}

// The kind of a part. A part of a blend may be a generated source by name, unless a file has that name.
std::string kind_for(const DataSpec& spec, const std::string& path) {
  if (!spec.kind.empty()) return spec.kind;
  return is_generated(path) && !fs::exists(path) ? path : kind_of(path);
}

// The stored value, with which `asked` must agree unless it is 0.
int64_t agree(const char* word, int64_t asked, int64_t stored, const std::string& where) {
  if (asked != 0 && asked != stored) {
    fail(where, {.what = fmt::format("the batches have a different {}", word),
                 .got = std::to_string(stored),
                 .expected = fmt::format("{} = {}", word, asked)});
  }
  return stored;
}

}  // namespace

const std::vector<std::string> kKinds{"text",   "jsonl", "indexed", "ids",    "preference", "rollouts",
                                      "markov", "pcfg",  "modular", "recall", "hops"};

class Opener {
 public:
  Opener(const DataSpec& spec, const Language& language) : spec_(spec), language_(language) {
    loader_.rows_ = spec.batch;
    loader_.seed_ = spec.seed;
    loader_.held_out_ = spec.held_out;
    loader_.once_ = spec.once;
    loader_.shuffle_ = spec.shuffle;
    loader_.rules_ = {.length = spec.length, .vocabulary = language.vocabulary, .goldfish = spec.goldfish};
  }

  Loader open() {
    check_words();
    if (spec_.blend.empty()) {
      add_part(spec_.path);
    } else {
      for (const BlendPart& part : spec_.blend) add_part(part.path);
      share_out();
    }
    check_range("batch", loader_.rows_, kRowsMax);
    if (spec_.thoughts.strip + spec_.thoughts.cut > 0 && !conversations_)
      fail("data", {.what = "strip_thoughts and cut_thoughts are about conversations, and there are none",
                    .expected = "kind = \"jsonl\""});
    return std::move(loader_);
  }

 private:
  void check_words() const {
    if (!spec_.kind.empty() && std::ranges::find(kKinds, spec_.kind) == kKinds.end()) {
      fail("data.kind", {.what = "unknown kind",
                         .got = printable(spec_.kind),
                         .expected = fmt::format("{}", fmt::join(kKinds, ", ")),
                         .hint = sys::nearest(spec_.kind, kKinds)});
    }
    if (spec_.path.empty() == spec_.blend.empty() && !is_generated(spec_.kind))
      fail("data", {.what = "no path, or a path and a blend", .expected = "'path', or tables [[data.blend]]"});
    if (!(spec_.validation >= 0 && spec_.validation < 1))
      fail("data.validation",
           {.what = "is not a fraction", .got = fmt::to_string(spec_.validation), .expected = "0 <= x < 1"});
    if (spec_.goldfish.k < 0 || spec_.goldfish.k == 1)
      fail("goldfish_k",
           {.what = "is out of range", .got = std::to_string(spec_.goldfish.k), .expected = "0 (off), 2, 3, ..."});
    if (spec_.thoughts.strip + spec_.thoughts.cut > 1)
      fail("data", {.what = "strip_thoughts and cut_thoughts are more than all conversations",
                    .got = fmt::format("{:g}", spec_.thoughts.strip + spec_.thoughts.cut),
                    .expected = "1 at most together"});
    for (const BlendPart& part : spec_.blend) {
      if (!(part.weight > 0 && std::isfinite(part.weight)))
        fail("data.blend", {.what = "a weight is not positive", .got = fmt::to_string(part.weight)});
    }
  }

  void add_part(const std::string& path) {
    const std::string kind = kind_for(spec_, path);
    Loader::Part part{.where = path.empty() ? kind : printable(path)};
    if (kind == "ids") {
      if (spec_.held_out || spec_.validation > 0)
        fail(part.where, {.what = "batches of ids are all trained on, none is held out",
                          .hint = "eval.data, another file of ids, or eval.every = 0 and data.validation = 0"});
      auto ids = std::make_unique<IdsSource>(path, language_.vocabulary);
      loader_.rows_ = agree("batch", loader_.rows_, ids->batch(), part.where);
      loader_.rules_.length = agree("length", loader_.rules_.length, ids->length(), part.where);
      part.source = std::move(ids);
    } else if (has_answers(spec_)) {
      part.source = answers(kind, path, part.where);
    } else {
      if (loader_.rules_.length == 0)
        fail("length", {.what = fmt::format("{} has rows of any length", part.where),
                        .got = "0",
                        .expected = fmt::format("1 to {} tokens", kLengthMax),
                        .hint = "length=512"});
      check_range("length", loader_.rules_.length, kLengthMax);
      if (is_generated(kind)) {
        part.source = make_generated(kind, spec_.generator, loader_.rules_, spec_.seed);
      } else {
        conversations_ = conversations_ || kind == "jsonl";
        part.source = documents(read(kind, path), part.where);
      }
    }
    loader_.parts_.push_back(std::move(part));
  }

  Corpus read(const std::string& kind, const fs::path& path) const {
    if (kind == "indexed") return Corpus(io::TokenFile(path));
    Corpus corpus;
    const auto add = [&](std::span<const int32_t> ids, std::span<const uint8_t> trained, bool continues) {
      corpus.add(ids, trained, continues);
    };
    kind == "jsonl" ? read_jsonl(path, language_, add, spec_.reading, spec_.thoughts) : read_text(path, language_, add);
    return corpus;
  }

  // Rows are as long as the longest pair or answer. None is cut, since a cut answer is another one.
  std::unique_ptr<const Source> answers(const std::string& kind, const fs::path& path, const std::string& where) {
    if (spec_.goldfish.k > 0) fail("goldfish_k", {.what = "cannot be combined with answers", .hint = "leaving it out"});
    Answers all = kind == "preference" ? read_preferences(path, language_, spec_.rated, spec_.reading)
                                       : read_rollouts(path, language_, spec_.rated, spec_.reading);
    for (int64_t i = 0; i < all.corpus.documents() && spec_.length > 0; ++i) {
      if (all.corpus.length(i) - 1 <= spec_.length) continue;
      fail(where, {.what = fmt::format("the prompt and answer of row {} do not fit", i / all.per_row),
                   .got = fmt::format("{} tokens and a last target", all.corpus.length(i) - 1),
                   .expected = fmt::format("length = {} at most", spec_.length),
                   .hint = "length = 0, the longest"});
    }
    std::vector<int64_t> chosen = chosen_of(all.groups, all.group_count(), spec_.validation, spec_.held_out);
    if (chosen.empty()) {
      fail(where, {.what = spec_.held_out ? "no row is held out" : "no row is left to train on",
                   .got = fmt::format("{} rows in {} groups", all.rows(), all.group_count()),
                   .hint = "another data.validation, the share that is held out"});
    }
    int64_t& longest = loader_.rules_.length;
    if (loader_.parts_.empty()) longest = 0;  // the word is a limit here
    for (const int64_t row : chosen) longest = std::max(longest, all.length_of(row));
    check_range("length", longest, kLengthMax);
    loader_.notes_.push_back(fmt::format("{}: {} {}, {} tokens", where, chosen.size(),
                                         all.per_row == 2 ? "pairs" : "answers",
                                         all.corpus.begin(all.corpus.documents())));
    return std::make_unique<AnswersSource>(std::move(all), std::move(chosen));
  }

  std::unique_ptr<const Source> documents(Corpus corpus, const std::string& where) {
    std::vector<int64_t> chosen = chosen_documents(corpus, spec_.validation, spec_.held_out);
    int64_t tokens = 0;
    for (const int64_t document : chosen) tokens += corpus.length(document);
    const auto count = std::ssize(chosen);
    std::unique_ptr<const Source> source;
    if (corpus.marked()) {
      auto packed = std::make_unique<PackedSource>(std::move(corpus), chosen, loader_.rules_);
      if (packed->shortened() > 0) {
        loader_.notes_.push_back(fmt::format("{}: {} of {} truncated at {} tokens", where, packed->shortened(),
                                             report::counted(count, "conversation"), loader_.rules_.length));
      }
      source = std::move(packed);
    } else {
      source = std::make_unique<StreamSource>(std::move(corpus), std::move(chosen), loader_.rules_);
    }
    if (source->rows() == 0 || tokens < 2) {
      fail(where, {.what = spec_.held_out ? "no document is held out" : "no document has a token to train",
                   .got = fmt::format("{} of {}", report::counted(count, "document"), report::counted(tokens, "token")),
                   .hint = loader_.rules_.length < 2 ? "a larger length"
                           : spec_.validation > 0    ? "another data.validation, the share that is held out"
                           : spec_.held_out ? "data.validation, a share to hold out, or eval.data, another text"
                                            : ""});
    }
    loader_.notes_.push_back(fmt::format("{}: {}, {}, {}", where, report::counted(count, "document"),
                                         report::counted(tokens, "token"), report::counted(source->rows(), "row")));
    return source;
  }

  // Turns weights into shares of what earlier parts leave.
  void share_out() {
    double left = 0;
    for (const BlendPart& part : spec_.blend) left += part.weight;
    for (size_t i = 0; i + 1 < spec_.blend.size(); ++i) {
      const double share = std::round(spec_.blend[i].weight / left * static_cast<double>(Loader::kWhole));
      loader_.parts_[i].share = std::clamp<uint64_t>(static_cast<uint64_t>(share), 1, Loader::kWhole - 1);
      left -= spec_.blend[i].weight;
    }
  }

  const DataSpec& spec_;
  const Language& language_;
  Loader loader_;
  bool conversations_ = false;  // lines of JSON may be some
};

Loader open(const DataSpec& spec, const Language& language) { return Opener(spec, language).open(); }

bool has_answers(const DataSpec& spec) { return spec.kind == "preference" || spec.kind == "rollouts"; }

bool is_generated(const std::string& kind) {
  return std::find(std::find(kKinds.begin(), kKinds.end(), "markov"), kKinds.end(), kind) != kKinds.end();
}

bool has_kind(const DataSpec& spec, std::string_view kind) {
  const auto is = [&](const std::string& path) { return kind_for(spec, path) == kind; };
  return spec.blend.empty() ? is(spec.path) : std::ranges::any_of(spec.blend, is, &BlendPart::path);
}

bool has_batches(const DataSpec& spec) { return has_kind(spec, "ids"); }

bool reads_text(const DataSpec& spec) { return has_kind(spec, "text") || has_kind(spec, "jsonl"); }

Loader open(const DataSpec& spec, const fs::path& folder, int64_t vocabulary) {
  // Answers may be given as text or as ids: a tokenizer is read if there is one.
  const bool reads = reads_text(spec) || (has_answers(spec) && !folder.empty() && text::has_tokenizer(folder));
  if (!reads) return open(spec, Language{.vocabulary = vocabulary});
  const LanguageFiles files(folder);
  return open(spec, files.language(vocabulary));
}

}  // namespace braid::data
