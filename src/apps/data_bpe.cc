// braid data bpe: trains a byte-level BPE vocabulary on text.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/result.h"
#include "apps/split.h"
#include "io/atomic_file.h"
#include "report/progress.h"
#include "sys/error.h"
#include "sys/mapped_file.h"
#include "text/bpe_trainer.h"

namespace braid::apps {
namespace {

struct DataBpeArgs {
  std::vector<std::string> files;
  std::string out = "tokenizer.json", special, added, pieces = "nemotron";
  int64_t vocabulary = 4096, count_min = 2;
  bool json = false;
};

void add_words(const std::string& list, bool special, text::BpeTrainerOptions& options) {
  if (list.empty()) return;
  for (const std::string& word : split(list)) options.added.push_back({word, special});
}

int data_bpe(const DataBpeArgs& o) {
  if (o.files.empty()) fail("data bpe", {.what = "no text", .expected = "one file or more"});
  io::check_new_file(o.out);
  text::BpeTrainerOptions options{.vocabulary = o.vocabulary, .count_min = o.count_min};
  options.pieces = o.pieces == "gpt2"    ? text::kGpt2Pieces
                   : o.pieces == "signs" ? text::kSignPieces
                                         : text::kNemotronPieces;
  add_words(o.special, true, options);
  add_words(o.added, false, options);
  text::BpeTrainer trainer(std::move(options));
  for (const std::string& path : o.files) {
    const sys::MappedFile file(path);
    report::Progress progress("reading " + printable(path), std::ssize(file.bytes()));
    trainer.add({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, printable(path),
                [&](int64_t bytes) { progress.at(bytes); });
  }
  text::BpeTrainer::Trained trained;
  {
    report::Progress progress("merging", o.vocabulary);
    trained = trainer.train([&](int64_t tokens) { progress.at(tokens); });
  }
  io::write_text_file(o.out, trained.json);
  print_result(
      o.json,
      {{"file", o.out}, {"tokens", trained.tokens}, {"merges", trained.merges}, {"pieces", trainer.distinct_pieces()}},
      fmt::format("{}: {} tokens, {} of them merges of {} different pieces", printable(o.out), trained.tokens,
                  trained.merges, trainer.distinct_pieces()));
  return 0;
}

}  // namespace

Action setup_data_bpe(Cli& cli) {
  auto o = std::make_shared<DataBpeArgs>();
  cli.rest("TEXT", o->files, "files of text");
  cli.option("--vocab", o->vocabulary, "total tokens: added ones, the 256 bytes, merges");
  cli.option("-o,--out FILE", o->out, "file to write");
  cli.option("--special WORDS", o->special, "control tokens, comma-separated: <|im_start|>,<|im_end|>");
  cli.option("--added WORDS", o->added, "whole tokens that are text: <think>,</think>");
  cli.choice("--pieces", o->pieces, {"nemotron", "gpt2", "signs"},
             "how text is cut before merging; nemotron: each digit alone; signs: each digit and capital alone");
  cli.option("--count-min", o->count_min, "pairs seen less often are not merged");
  cli.flag("--json", o->json, "print the result as a JSON object");
  return [o] { return data_bpe(*o); };
}

}  // namespace braid::apps
