// How fast a tokenizer loads, encodes and decodes on one core.
//   BRAID_BENCH_TOKENIZER=FOLDER BRAID_BENCH_TEXT=FILE text_bench --benchmark_filter=Tokenizer
// tools/oracle/tokenizer_peers.py runs this beside Hugging Face's library on the same text and stores both.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

#include "sys/mapped_file.h"
#include "text/tokenizer.h"

namespace braid::text {
namespace {

// The value of a variable; empty (and the benchmark skipped) when it is not set.
std::string setting(benchmark::State& state, const char* name) {
  const char* value = std::getenv(name);
  if (!value) state.SkipWithError((std::string(name) + " is not set").c_str());
  return value ? value : "";
}

void TokenizerLoad(benchmark::State& state) {
  const std::string folder = setting(state, "BRAID_BENCH_TOKENIZER");
  if (folder.empty()) return;
  for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(Tokenizer::load(folder).vocab_size());
}

void TokenizerEncode(benchmark::State& state) {
  const std::string folder = setting(state, "BRAID_BENCH_TOKENIZER");
  const std::string path = setting(state, "BRAID_BENCH_TEXT");
  if (folder.empty() || path.empty()) return;
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const sys::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  size_t tokens = 0;
  for ([[maybe_unused]] auto iteration : state) tokens = tokenizer.encode(text, false).size();
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.counters["tokens"] = static_cast<double>(tokens);
}

void TokenizerDecode(benchmark::State& state) {
  const std::string folder = setting(state, "BRAID_BENCH_TOKENIZER");
  const std::string path = setting(state, "BRAID_BENCH_TEXT");
  if (folder.empty() || path.empty()) return;
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const sys::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const std::vector<int32_t> ids = tokenizer.encode(text, false);
  for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(tokenizer.decode(ids, false).size());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

BENCHMARK(TokenizerLoad)->Unit(benchmark::kMillisecond);
BENCHMARK(TokenizerEncode)->Unit(benchmark::kMillisecond);
BENCHMARK(TokenizerDecode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace braid::text
