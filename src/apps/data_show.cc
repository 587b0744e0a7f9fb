// braid data show: one row of a training set as the model gets it, with the trained tokens marked: in colour on a
// terminal, in brackets elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "data/loader.h"
#include "data/read_text.h"
#include "io/model_path.h"
#include "report/progress.h"
#include "report/units.h"
#include "sys/error.h"
#include "text/gguf_vocabulary.h"
#include "train/origin.h"

namespace braid::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGreen = "\033[32m";
constexpr const char* kPlain = "\033[0m";
constexpr int64_t kLength = 2048;

struct DataShowArgs {
  std::string path, model, kind;
  std::vector<std::string> overrides;
  int64_t row = 0, length = 0, vocabulary = 0, goldfish_k = 0;
  bool json = false, colour = false;
};

// A sequence's tokens: what is read, and the last target, which is only predicted.
struct Token {
  int32_t id;
  bool trained;
};
std::vector<Token> tokens_of(const data::Batch& batch, const Seq& seq) {
  std::vector<Token> tokens{{batch.ids[static_cast<size_t>(seq.start)], false}};
  for (int64_t i = seq.start; i < seq.start + seq.len; ++i) {
    const int32_t target = batch.targets[static_cast<size_t>(i)];
    if (i + 1 < seq.start + seq.len) {
      tokens.push_back({batch.ids[static_cast<size_t>(i + 1)], target != data::kMasked});
    } else if (target != data::kMasked) {
      tokens.push_back({target, true});
    }
  }
  return tokens;
}

// Text for a terminal: control characters other than white space are escaped.
std::string harmless(std::string text) {
  for (char& ch : text) {
    if ((ch >= 0 && ch < ' ' && ch != '\n' && ch != '\t') || ch == 0x7f) ch = '?';
  }
  return text;
}

void print_sequence(const std::vector<Token>& tokens, const text::Tokenizer* tokenizer, bool colour) {
  for (size_t begin = 0; begin < tokens.size();) {
    size_t end = begin;
    std::vector<int32_t> run;
    for (; end < tokens.size() && tokens[end].trained == tokens[begin].trained; ++end) run.push_back(tokens[end].id);
    std::string text = tokenizer ? tokenizer->decode(run, false) : fmt::format("{}", fmt::join(run, " "));
    if (colour) text = harmless(std::move(text));
    const bool trained = tokens[begin].trained;
    const char* open = !trained ? "" : colour ? kGreen : "[";
    const char* close = !trained ? "" : colour ? kPlain : "]";
    fmt::print("{}{}{}{}", begin == 0 || tokenizer ? "" : " ", open, text, close);
    begin = end;
  }
  fmt::print("\n");
}

nlohmann::ordered_json json_of(const data::Batch& row) {
  nlohmann::ordered_json sequences = nlohmann::ordered_json::array();
  for (const Seq& seq : row.seqs.seqs) sequences.push_back({{"start", seq.start}, {"length", seq.len}});
  return {{"ids", row.ids}, {"targets", row.targets}, {"sequences", sequences}, {"trained", row.trained}};
}

// What to show: the [data] of a recipe, or a file by itself.
struct Shown {
  data::DataSpec spec;
  fs::path model;  // a folder or a tokenizer.json; empty: none
  int64_t vocabulary = text::kTokenIdMax + int64_t{1};
};

Shown of_recipe(const DataShowArgs& o) {
  refuse_unread("a recipe, whose keys say it", {{"--kind", !o.kind.empty()},
                                                {"--length", o.length != 0},
                                                {"--vocab", o.vocabulary != 0},
                                                {"--goldfish-k", o.goldfish_k != 0}});
  const train::Recipe recipe = train::read_recipe(o.path, o.overrides);
  Shown shown{.spec = train::data_spec(recipe), .model = o.model, .vocabulary = train::config_of(recipe).vocab};
  const std::string& model = recipe.config ? recipe.tokenizer : recipe.init;
  if (o.model.empty() && !model.empty()) {
    const fs::path folder = io::find_model(model).folder;
    if (text::has_tokenizer(folder)) shown.model = folder;
  }
  return shown;
}

Shown of_file(const DataShowArgs& o) {
  if (!o.overrides.empty())
    fail("data show", {.what = "one argument too many", .got = printable(o.overrides[0]), .expected = "one file"});
  if (o.path.empty() && o.kind.empty()) fail("data show", {.what = "no file", .hint = "braid data show --help"});
  Shown shown{.spec = {.kind = o.kind, .path = o.path, .length = o.length}, .model = o.model};
  if (o.vocabulary > 0) shown.vocabulary = o.vocabulary;
  const bool sized = (o.kind.empty() ? data::kind_of(o.path) : o.kind) == "ids";
  if (!sized) shown.spec.batch = 1;
  if (!sized && o.length == 0) shown.spec.length = kLength;
  shown.spec.goldfish.k = o.goldfish_k;
  return shown;
}

int data_show(const DataShowArgs& o) {
  const Shown shown = fs::path(o.path).extension() == ".toml" ? of_recipe(o) : of_file(o);
  std::optional<data::LanguageFiles> files;
  if (!shown.model.empty()) files.emplace(find_tokenizer(shown.model));
  const data::Language language =
      files ? files->language(shown.vocabulary) : data::Language{.vocabulary = shown.vocabulary};
  const data::Loader loader = data::open(shown.spec, language);
  const int64_t generated = int64_t{1} << 40, epoch = loader.steps_per_epoch() * loader.rows();
  check_range("--row", o.row, 0, (epoch > 0 ? epoch : generated) - 1);
  const int64_t which = o.row % loader.rows();
  data::Batch row;
  data::take_rows(loader.batch(o.row / loader.rows()), which, which + 1, row);
  if (o.json) {
    fmt::print("{}\n", json_of(row).dump());
    return 0;
  }
  for (const std::string& note : loader.notes()) fmt::print("{}\n", note);
  fmt::print("row {}: {}, {} in, {}\n", o.row, report::counted(std::ssize(row.seqs.seqs), "sequence"),
             report::counted(std::ssize(row.ids), "token"), report::counted(row.trained, "target"));
  if (const auto floor = loader.entropy_floor()) fmt::print("no model goes below {:.6f} nats a target\n", *floor);
  for (size_t i = 0; i < row.seqs.seqs.size(); ++i) {
    fmt::print("--- sequence {}\n", i);
    print_sequence(tokens_of(row, row.seqs.seqs[i]), files ? &files->tokenizer() : nullptr, o.colour);
  }
  return 0;
}

}  // namespace

Action setup_data_show(Cli& cli) {
  auto o = std::make_shared<DataShowArgs>();
  cli.positional("FILE", o->path, "a recipe.toml; or text, .jsonl, .bin, .safetensors, a folder of them", false);
  cli.rest("KEY=VALUE", o->overrides, "keys of the recipe");
  cli.option("-m,--model MODEL", o->model,
             "a folder, a GGUF file, a tokenizer.json, org/name of the Hugging Face cache, or tiny: its tokenizer and "
             "chat template; of a recipe: its own");
  cli.choice("--kind", o->kind, data::kKinds, "of the data; default: guessed from the path");
  cli.option("--row", o->row, "which row of the shuffled first epoch");
  cli.option("--length", o->length, "tokens per row at most; 0: 2048, or as the file has it");
  cli.option("--vocab", o->vocabulary, "ids must be below this; 0: not checked");
  cli.option("--goldfish-k", o->goldfish_k, "leave one target in k out, as [loss] goldfish_k");
  cli.flag("--json", o->json, "ids, targets and sequences for a program");
  return [o] {
    o->colour = report::colourful(stdout);
    return data_show(*o);
  };
}

}  // namespace braid::apps
