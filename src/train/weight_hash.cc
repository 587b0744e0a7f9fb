#include "train/weight_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "data/shuffle.h"
#include "sys/mapped_file.h"
#include "sys/parallel.h"
#include "sys/read.h"
#include "train/manifest.h"

namespace braid::train {
namespace {

constexpr int64_t kPart = int64_t{1} << 18;

// The finaliser of SplitMix64: every bit of the input affects every bit of the result.
uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

uint64_t weight_hash(std::span<const float> values, int threads) {
  const int64_t n = std::ssize(values), parts = (n + kPart - 1) / kPart;
  std::vector<uint64_t> hashes(static_cast<size_t>(parts));
  sys::parallel_tasks(threads, parts, [&](int64_t p) {
    uint64_t hash = static_cast<uint64_t>(p) + 1;
    const int64_t end = std::min(n, (p + 1) * kPart);
    for (int64_t i = p * kPart; i < end; ++i)
      hash = (hash ^ std::bit_cast<uint32_t>(values[static_cast<size_t>(i)])) * 0x9e3779b97f4a7c15u;
    hashes[static_cast<size_t>(p)] = mixed(hash);
  });
  uint64_t all = static_cast<uint64_t>(n);
  for (const uint64_t hash : hashes) all = mixed(all ^ hash);
  return all;
}

uint64_t model_hash(const std::filesystem::path& weights) {
  uint64_t hash = sample_hash(weights);
  const std::filesystem::path config = weights / "config.json";
  if (!std::filesystem::is_regular_file(config)) return hash;
  for (const char c : sys::read_file(config)) hash = mixed(hash ^ static_cast<uint8_t>(c));
  return hash;
}

uint64_t sample_hash(const std::filesystem::path& path) {
  constexpr size_t kSamples = 4096, kWord = sizeof(uint64_t);
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_regular_file(path)) {
    files.push_back(path);
  } else {
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  uint64_t hash = 0;
  for (const auto& name : files) {
    const sys::MappedFile file(name);
    const std::span<const std::byte> bytes = file.bytes();
    hash = data::mix(hash, bytes.size());
    const size_t words = bytes.size() / kWord, stride = std::max<size_t>(1, words / kSamples);
    for (size_t i = 0; i < words; i += stride) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i * kWord, kWord);
      hash = data::mix(hash, word);
    }
  }
  return hash;
}

std::string content_of(const data::Loader& data, int threads) {
  const int64_t epoch = data.steps_per_epoch();
  uint64_t hash = 0;
  for (const int64_t step : {int64_t{0}, epoch / 3, epoch / 2, std::max<int64_t>(0, epoch - 2)}) {
    const data::Batch batch = data.batch(step);
    for (const std::vector<int32_t>* list : {&batch.ids, &batch.targets}) {
      for (const int32_t id : *list) hash = data::mix(hash, static_cast<uint64_t>(int64_t{id} + 1));
    }
    for (const data::Rating& rating : batch.ratings) hash = data::mix(hash, std::bit_cast<uint64_t>(rating.reward));
    for (const float logprob : batch.logprobs) hash = data::mix(hash, std::bit_cast<uint32_t>(logprob));
  }
  const uint64_t files = data.content(threads);
  return files == 0 ? fmt::format("{:016x}", hash) : fmt::format("{}{:016x}", kAllOfFiles, data::mix(hash, files));
}

}  // namespace braid::train
