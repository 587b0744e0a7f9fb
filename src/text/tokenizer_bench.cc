// How fast a tokenizer loads, encodes and decodes on one core.
//   BRAID_BENCH_TOKENIZER=FOLDER BRAID_BENCH_TEXT=FILE text_bench --benchmark_filter=Tokenizer
// Zero bytes in the file separate documents, which are encoded one by one. tools/oracle/tokenizer_peers.py runs this
// and other libraries on the same text and stores all figures.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

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

struct Corpus {
  std::string text;
  std::vector<std::string_view> documents;
};

void read_corpus(const std::string& path, Corpus& corpus) {
  const sys::MappedFile file(path);
  corpus.text.assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::string_view rest = corpus.text;
  for (size_t end = 0; end != rest.npos; rest.remove_prefix(end == rest.npos ? 0 : end + 1)) {
    end = rest.find('\0');
    corpus.documents.push_back(rest.substr(0, end));
  }
}

void TokenizerEncode(benchmark::State& state) {
  const std::string folder = setting(state, "BRAID_BENCH_TOKENIZER");
  const std::string path = setting(state, "BRAID_BENCH_TEXT");
  if (folder.empty() || path.empty()) return;
  const Tokenizer tokenizer = Tokenizer::load(folder);
  Corpus corpus;
  read_corpus(path, corpus);
  size_t tokens = 0;
  for ([[maybe_unused]] auto iteration : state) {
    tokens = 0;
    for (const std::string_view document : corpus.documents) tokens += tokenizer.encode(document, false).size();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(corpus.text.size()));
  state.counters["tokens"] = static_cast<double>(tokens);
}

void TokenizerDecode(benchmark::State& state) {
  const std::string folder = setting(state, "BRAID_BENCH_TOKENIZER");
  const std::string path = setting(state, "BRAID_BENCH_TEXT");
  if (folder.empty() || path.empty()) return;
  const Tokenizer tokenizer = Tokenizer::load(folder);
  Corpus corpus;
  read_corpus(path, corpus);
  const std::vector<int32_t> ids = tokenizer.encode(corpus.text, false);
  for ([[maybe_unused]] auto iteration : state) benchmark::DoNotOptimize(tokenizer.decode(ids, false).size());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(corpus.text.size()));
}

BENCHMARK(TokenizerLoad)->Unit(benchmark::kMillisecond);
BENCHMARK(TokenizerEncode)->Unit(benchmark::kMillisecond);
BENCHMARK(TokenizerDecode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace braid::text
