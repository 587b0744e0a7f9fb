// Which of some prompts a text resembles, by the words that they share: |A and B| / |A or B| over their sets of words
// and numbers, in lower case (Jaccard). Keeps what is trained apart from what is tested.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace braid::synth {

class Prompts {
 public:
  explicit Prompts(std::span<const std::string> prompts);

  // The largest similarity of `text` to any prompt: 0 to 1.
  double nearest(std::string_view text) const;

 private:
  std::unordered_map<std::string, std::vector<uint32_t>> where_;  // by word, the prompts that contain it
  std::vector<int64_t> sizes_;                                    // distinct words of each prompt
};

constexpr double kNear = 0.6;

}  // namespace braid::synth
