// braid data tokenize: text into a corpus of token ids, in Megatron's format.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <filesystem>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/result.h"
#include "data/read_text.h"
#include "io/token_file.h"
#include "report/progress.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"

namespace braid::apps {
namespace {

struct DataTokenizeArgs {
  bool json = false;
  std::string input, out, tokenizer, end;
};

int data_tokenize(const DataTokenizeArgs& o) {
  if (o.out.empty()) fail("data tokenize", {.what = "no output is named", .hint = "-o PREFIX"});
  if (o.tokenizer.empty()) fail("data tokenize", {.what = "no tokenizer", .hint = "--tokenizer FOLDER"});
  const data::LanguageFiles files(find_tokenizer(o.tokenizer));
  data::Language language = files.language();
  if (!o.end.empty()) {
    language.end_of_text = files.tokenizer().token_to_id(o.end);
    if (!language.end_of_text) fail("--end", {.what = "the vocabulary has no such token", .got = printable(o.end)});
  }
  const std::string kind = data::kind_of(o.input);
  if (kind != "text" && kind != "jsonl")
    fail(printable(o.input),
         {.what = "is not text", .got = kind, .expected = "text files, or lines of JSON with 'text'"});
  sys::catch_requests_to_stop();  // before there is a file to remove
  sys::end_at_second_interrupt();
  io::TokenFileWriter writer(o.out, language.vocabulary);
  report::Progress progress("tokens", 0);
  const auto add = [&](std::span<const int32_t> ids, std::span<const uint8_t> trained, bool) {
    if (!trained.empty()) {
      fail(printable(o.input), {.what = "has conversations, and this format cannot say which tokens are trained",
                                .hint = "data.kind = \"jsonl\", which reads it as it is"});
    }
    writer.add(ids);
    progress.at(writer.tokens());
    if (sys::caught_signal() != 0) throw sys::Interrupted();
  };
  try {
    kind == "jsonl" ? data::read_jsonl(o.input, language, add) : data::read_text(o.input, language, add);
  } catch (const sys::Interrupted&) {  // the writer removes its files
    return 128 + sys::caught_signal();
  }
  writer.finish();
  progress.wipe();
  print_result(o.json, {{"prefix", o.out}, {"tokens", writer.tokens()}, {"documents", writer.documents()}},
               fmt::format("{}: {} in {}{}", printable(o.out), report::counted(writer.tokens(), "token"),
                           report::counted(writer.documents(), "document"),
                           language.end_of_text ? "" : ", without end-of-text tokens"));
  return 0;
}

}  // namespace

Action setup_data_tokenize(Cli& cli) {
  auto o = std::make_shared<DataTokenizeArgs>();
  cli.positional("IN", o->input, "a text file, a .jsonl with 'text', or a folder of them");
  cli.option("-o,--out PREFIX", o->out, "writes PREFIX.bin and PREFIX.idx");
  cli.option("--tokenizer MODEL", o->tokenizer,
             "a folder, a GGUF file, a tokenizer.json, org/name of the Hugging Face cache, or tiny");
  cli.option("--end TOKEN", o->end, "token that ends a document; default: the folder's eos_token");
  cli.flag("--json", o->json, "print the result as a JSON object");
  return [o] { return data_tokenize(*o); };
}

}  // namespace braid::apps
