// braid tokenize: text in, token ids out. With --jsonl a line of JSON is a request and a line of JSON its answer, in
// both directions, so that another program can hold one process open.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "io/json.h"
#include "sys/error.h"
#include "sys/read.h"
#include "text/tokenizer.h"

namespace braid::apps {
namespace {

struct TokenizeArgs {
  std::string model, prompt, file;
  bool has_prompt = false, has_file = false;
  bool no_special = false, json = false, jsonl = false, show = false;
};

std::string input_of(const TokenizeArgs& o) {
  if (o.has_prompt && o.has_file)
    fail("tokenize", {.what = "both --prompt and --file are given", .expected = "one of them"});
  if (o.has_prompt) return o.prompt;
  return o.has_file ? sys::read_file(o.file) : sys::read_standard_input();
}

nlohmann::json answer(const text::Tokenizer& tokenizer, const io::Json& request, bool no_special) {
  const std::optional<std::string> text = request.string_of({"text"});
  const std::optional<io::Json> ids = request.get({"ids"});
  if (text.has_value() == ids.has_value()) request.refuse("asks for nothing, or for two things", R"("text" or "ids")");
  if (text) return {{"ids", tokenizer.encode(*text, !no_special)}};
  std::vector<int32_t> tokens;
  for (const io::Json& id : ids->items()) {
    tokens.push_back(static_cast<int32_t>(id.as_int({.min = 0, .max = tokenizer.vocab_size() - 1})));
  }
  return {{"text", tokenizer.decode(tokens, request.bool_of({"skip_special"}).value_or(false))}};
}

void answer_lines(const text::Tokenizer& tokenizer, bool no_special) {
  sys::for_each_line("-", [&](const std::string& line, int64_t number) {
    const io::Json request = io::Json::parse(line, fmt::format("line {}", number));
    // ASCII: readers that split at every Unicode line end see one line too.
    fmt::print("{}\n", answer(tokenizer, request, no_special).dump(-1, ' ', true));
    std::fflush(stdout);  // the reader waits for this line
  });
}

// What each token adds to the text. A character of several tokens is the last one's.
std::vector<std::string> pieces_of(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  text::StreamDecoder decoder(tokenizer, false);
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  for (const int32_t id : ids) pieces.push_back(decoder.push(id));
  if (!pieces.empty()) pieces.back() += decoder.finish();
  return pieces;
}

std::string dumped(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void print(const TokenizeArgs& o, const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  const std::vector<std::string> pieces = o.show ? pieces_of(tokenizer, ids) : std::vector<std::string>{};
  if (o.json) {
    nlohmann::json out = {{"ids", ids}};
    if (o.show) out["pieces"] = pieces;
    fmt::print("{}\n", dumped(out));
  } else if (o.show) {  // a token per line, its piece as a JSON string
    for (size_t i = 0; i < ids.size(); ++i) fmt::print("{}\t{}\n", ids[i], dumped(pieces[i]));
  } else {
    fmt::print("{}\n", fmt::join(ids, ","));
  }
}

int tokenize(const TokenizeArgs& o) {
  if (o.jsonl && (o.has_prompt || o.has_file))
    fail("tokenize", {.what = "--jsonl reads its lines from standard input",
                      .got = o.has_prompt ? "--prompt as well" : "--file as well"});
  if (o.jsonl && (o.show || o.json))
    fail("tokenize", {.what = "--jsonl answers with ids alone", .got = o.show ? "--show as well" : "--json as well"});
  const std::filesystem::path named(o.model);
  const text::Tokenizer tokenizer =
      text::Tokenizer::load(named.extension() == ".json" ? named : find_tokenizer(o.model));
  if (o.jsonl)
    answer_lines(tokenizer, o.no_special);
  else
    print(o, tokenizer, tokenizer.encode(input_of(o), !o.no_special));
  return 0;
}

}  // namespace

Action setup_tokenize(Cli& cli) {
  auto o = std::make_shared<TokenizeArgs>();
  cli.positional("MODEL", o->model,
                 "a folder, a GGUF file, a tokenizer.json, org/name of the Hugging Face cache, or tiny");
  cli.option("-p,--prompt TEXT", o->prompt, "the text; without it and -f, standard input");
  cli.option("-f,--file FILE", o->file, "read the text from FILE");
  cli.flag("--no-special", o->no_special, "only the text's own tokens: no BOS, no EOS");
  cli.flag("--show", o->show, "a token per line: its id and its piece of the text");
  cli.flag("--json", o->json, "print one JSON object: ids, and with --show pieces");
  cli.flag("--jsonl", o->jsonl, R"(answer lines {"text": ...} or {"ids": [...], "skip_special": true})");
  return [o, cli]() mutable {
    o->has_prompt = cli.given("prompt");
    o->has_file = cli.given("file");
    return tokenize(*o);
  };
}

}  // namespace braid::apps
