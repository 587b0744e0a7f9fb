#include "data/synth/near.h"

#include <algorithm>
#include <set>

#include "data/synth/text.h"

namespace braid::synth {
namespace {

std::set<std::string> words_of(std::string_view text) {
  std::set<std::string> out;
  for (const std::string_view run : runs_of(text, is_word)) {
    std::string word(run);
    std::ranges::transform(word, word.begin(), lower);
    out.insert(std::move(word));
  }
  return out;
}

}  // namespace

Prompts::Prompts(std::span<const std::string> prompts) {
  for (const std::string& prompt : prompts) {
    const std::set<std::string> words = words_of(prompt);
    for (const std::string& word : words) where_[word].push_back(static_cast<uint32_t>(sizes_.size()));
    sizes_.push_back(std::ssize(words));
  }
}

double Prompts::nearest(std::string_view text) const {
  const std::set<std::string> words = words_of(text);
  std::vector<int64_t> shared(sizes_.size(), 0);
  for (const std::string& word : words) {
    const auto found = where_.find(word);
    if (found == where_.end()) continue;
    for (const uint32_t i : found->second) ++shared[i];
  }
  double most = 0;
  for (size_t i = 0; i < shared.size(); ++i) {
    const int64_t all = sizes_[i] + std::ssize(words) - shared[i];
    if (all > 0) most = std::max(most, static_cast<double>(shared[i]) / static_cast<double>(all));
  }
  return most;
}

}  // namespace braid::synth
