#include "apps/model_args.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>

#include "apps/bench_report.h"
#include "apps/cli_pages.h"
#include "apps/zeros_arg.h"
#include "codec/codec.h"
#include "io/placeholder.h"
#include "sys/error.h"
#include "sys/machine.h"
#include "sys/read.h"
#include "sys/utf8.h"
#include "text/gguf_vocabulary.h"

namespace braid::apps {

std::filesystem::path find_tokenizer(const std::string& argument) {
  std::error_code none;
  return std::filesystem::exists(argument, none) ? std::filesystem::path(argument) : io::find_model(argument).folder;
}

void need_tokenizer(const io::ModelPath& model, const char* hint) {
  if (model.is_gguf() || text::has_tokenizer(model.folder) || io::has_incomplete_download(model.folder)) return;
  fail(printable(model.folder.string()),
       {.what = "has no tokenizer", .expected = "tokenizer.json in it", .hint = hint});
}

void check_utf8(const char* flag, const std::string& text) {
  const size_t valid = sys::utf8_valid_prefix(text);
  if (valid == text.size()) return;
  fail(flag, {.what = fmt::format("is not UTF-8 at byte {}", valid), .got = printable(text.substr(valid, 4))});
}

void check_range(const char* flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  fail(flag, {.what = "out of range", .got = std::to_string(value), .expected = fmt::format("{} to {}", low, high)});
}

void refuse_unread(const char* beside, std::initializer_list<std::pair<const char*, bool>> given) {
  for (const auto& [flag, is_given] : given) {
    if (is_given) fail(flag, {.what = fmt::format("does nothing with {}", beside), .hint = "leaving it out"});
  }
}

namespace {
std::optional<DType> cache_dtype(const std::string& name) {
  if (name == "f32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  if (name == "f16") return DType::f16;
  if (name == "fp8") return DType::f8_e4m3;
  return name == "int8" ? std::optional(DType::i8) : std::nullopt;
}
}  // namespace

void ModelArgs::declare(Cli& cli) {
  cli.positional("model", model, "a folder, a GGUF file, org/name of the Hugging Face cache, or tiny", false);
  declare_types(cli);
  cli.option("--adapter FOLDER", adapter, "a LoRA adapter as PEFT and braid train write it");
  cli.option("-c,--ctx-size", context, "context in tokens; 0: what model and memory allow");
  cli.option("--chunk", chunk, "prompt tokens of one pass");
  cli.option("-t,--threads", threads, "0: one per core");
  cli.flag("--exact", exact, "same bits however a sequence is cut into passes");
}

void ModelArgs::declare_types(Cli& cli) {
  cli.choice("--dtype", dtype, {"f32", "bf16"}, "dtype of the operands of matrix products");
  cli.choice("--activations", activations, {"auto", "bf16", "int8"}, "with NVFP4, INT4-8, GGUF");
  cli.choice("--kv-cache-dtype", kv, {"auto", "f32", "bf16", "fp8", "int8"}, "KV; auto: by model");
  cli.rare();
  cli.choice("--mamba-ssm-cache-dtype", ssm, {"f32", "bf16", "f16", "int8"}, "of Mamba states; stochastically rounded");
  cli.choice("--zeros", zeros, {"auto", "skip", "multiply"}, "of pruned weights in groups; auto: what is faster");
  cli.rare(false);
}

engine::RunnerOptions ModelArgs::runner_options() const {
  check_range("--ctx-size", context, 0, int64_t{1} << 30);
  check_range("--chunk", chunk, 1, 1 << 20);
  check_range("--threads", threads, 0, 1024);
  Numerics numerics = Numerics::serving(dtype == "f32" ? DType::f32 : DType::bf16, exact);
  numerics.int8 = activations == "int8" || (activations == "auto" && dtype != "f32" && !exact);
  numerics.kv = cache_dtype(kv);
  numerics.ssm = cache_dtype(ssm).value();
  if (numerics.int8 && dtype == "f32") {
    fail("--activations", {.what = "--dtype f32 rounds no activations",
                           .got = activations,
                           .expected = "bf16",
                           .hint = "either option without the other"});
  }
  if (exact && numerics.kv) {
    fail("--kv-cache-dtype", {.what = "--exact keeps keys and values as training has them",
                              .got = kv,
                              .expected = "auto",
                              .hint = "either option without the other"});
  }
  if (exact && numerics.ssm != DType::f32) {
    fail("--mamba-ssm-cache-dtype", {.what = "--exact keeps states as training has them",
                                     .got = ssm,
                                     .expected = "f32",
                                     .hint = "either option without the other"});
  }
  return {.numerics = numerics,
          .context = context,
          .chunk = chunk,
          .threads = static_cast<int>(threads),
          .zeros = zeros_of(zeros, exact, !adapter.empty()),
          .adapter = adapter,
          .ranks = ranks};
}

engine::LanguageModel ModelArgs::open(const engine::RunnerOptions& options) const {
  engine::LanguageModel lm(model, options);
  if (activations == "int8" && !on_bytes(lm.runner(), false) && !(ranks && !ranks->first()))
    fmt::print(stderr, "note: --activations int8 changes nothing: {}\n",
               sys::machine().amx ? "on CPUs with tiles products take BF16"
                                  : "it is for weights in NVFP4, integers or types of GGUF, on CPUs with AVX2");
  return lm;
}

std::string numbers_of(engine::Runner& runner) {
  std::map<std::string, int64_t> bytes;
  for (const Param* p : runner.model().params()) {
    const QuantSpec& spec = p->value.spec;
    const std::string name = codec_of(spec.format).dense ? name_of(runner.options().numerics.products) : name_of(spec);
    bytes[name] += p->value.bytes();
  }
  std::string most =
      std::max_element(bytes.begin(), bytes.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
  std::transform(most.begin(), most.end(), most.begin(), [](unsigned char c) { return std::toupper(c); });
  return most;
}

void SamplingArgs::declare(Cli& cli) {
  cli.option("--temp", temperature, "temperature; 0: greedy");
  cli.option("--top-k", top_k, "keep the k most likely tokens; 0: all");
  cli.option("--top-p", top_p, "keep the most likely tokens up to this mass");
  cli.option("--min-p", min_p, "drop tokens below this part of the best one");
  cli.option("--repeat-penalty", repeat_penalty, "over 1: tokens seen before count less");
  cli.option("--seed", seed, "of the random numbers");
}

void SamplingArgs::declare_penalties(Cli& cli) {
  cli.option("--presence-penalty", presence_penalty, "subtracted from logits of tokens in the answer");
  cli.option("--frequency-penalty", frequency_penalty, "subtracted once per occurrence in the answer");
}

engine::SamplingOptions SamplingArgs::resolve(const Cli& cli, const io::ModelPath& path) const {
  engine::SamplingOptions s = engine::sampling_of(path, {});
  if (cli.given("temp")) s.temperature = temperature;
  if (cli.given("top-k")) s.top_k = top_k;
  if (cli.given("top-p")) s.top_p = top_p;
  if (cli.given("min-p")) s.min_p = min_p;
  if (cli.given("repeat-penalty")) s.repeat_penalty = repeat_penalty;
  s.presence_penalty = presence_penalty;
  s.frequency_penalty = frequency_penalty;
  check_range("--seed", seed, 0, INT64_MAX);
  s.seed = static_cast<uint64_t>(seed);
  const auto check = [&](const std::string& name, double value, double low, double high, bool low_itself = true) {
    if (std::isfinite(value) && (low_itself ? value >= low : value > low) && value <= high) return;
    fail(cli.given(name) ? "--" + name : fmt::format("{} of the model", name),
         {.what = "out of range",
          .got = fmt::format("{}", value),
          .expected = fmt::format("{}{} to {}", low_itself ? "" : "above ", low, high)});
  };
  check("temp", s.temperature, 0, 100);
  check("top-k", static_cast<double>(s.top_k), 0, 1 << 24);
  check("top-p", s.top_p, 0, 1, false);
  check("min-p", s.min_p, 0, 1);
  check("repeat-penalty", s.repeat_penalty, 0, 100, false);
  check("presence-penalty", s.presence_penalty, -100, 100);
  check("frequency-penalty", s.frequency_penalty, -100, 100);
  return s;
}

void DraftArgs::declare(Cli& cli) {
  cli.choice("--draft", source, {"auto", "off", "ngram", "mtp"}, "tokens guessed ahead");
  cli.option("--draft-model FOLDER", model, "a smaller model that drafts");
  cli.option("--draft-max", most, "of them verified in a step");
}

void DraftArgs::reserve(engine::RunnerOptions& options, int64_t parallel) const {
  check_range("--draft-max", most, 0, engine::kDraftMax);
  constexpr int64_t kAnswers = 16;  // that have drafts at a time: states are large
  if (source != "off" && most > 0) options.spare_slots += std::min(parallel, kAnswers);
}

std::optional<engine::DraftModel> DraftArgs::load(engine::RunnerOptions& options) const {
  if (model.empty()) return std::nullopt;
  if (source != "auto" && source != "ngram")
    fail("--draft-model", {.what = fmt::format("drafts together with n-grams, not with --draft {}", source),
                           .got = printable(model),
                           .hint = "--draft auto"});
  return engine::load_draft_model(model, options);
}

engine::DraftOptions DraftArgs::resolve(engine::LanguageModel& lm,
                                        const std::optional<engine::DraftModel>& draft) const {
  if (const engine::Ranks* ranks = lm.runner().options().ranks; ranks && ranks->division().pp > 1 && source == "mtp")
    fail("--draft", {.what = "the last stage alone has the prediction block", .got = "mtp with --pp", .hint = "ngram"});
  const bool block = engine::has_prediction_block(lm.runner().config());
  if (source == "mtp" && !block)
    fail("--draft", {.what = "this model has no multi-token prediction block", .got = source, .hint = "ngram"});
  if (draft) engine::check_same_tokens(lm, *draft);
  return {.ngram = source == "auto" || source == "ngram",
          .mtp = block && source == "mtp",
          .model = draft ? draft->runner.get() : nullptr,
          .tokens_max = source == "off" ? 0 : most};
}

bool typed(const Cli& cli, const std::string& name) {
  return cli.given(name) && std::getenv(item_of("--" + name, "", "").variable().c_str()) == nullptr;
}

std::vector<int32_t> token_ids(const char* flag, const std::vector<int64_t>& ids, int64_t vocab) {
  std::vector<int32_t> out;
  for (int64_t id : ids) {
    check_range(flag, id, 0, vocab - 1);
    out.push_back(static_cast<int32_t>(id));
  }
  return out;
}

std::optional<bool> think_switch(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text == "on");
}

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

std::optional<std::string> prompt_text(const std::string& text, const std::string& file) {
  if (!text.empty()) return text;
  if (!file.empty()) return sys::read_file(file);
  if (isatty(STDIN_FILENO)) return std::nullopt;
  return sys::read_standard_input();
}

std::optional<std::string> prompt_text(engine::Ranks* ranks, const std::string& text, const std::string& file) {
  if (!ranks) return prompt_text(text, file);
  std::string all = ranks->agreed(ranks->first() ? prompt_text(text, file).value_or("") : "");
  return all.empty() ? std::nullopt : std::optional(std::move(all));
}

}  // namespace braid::apps
