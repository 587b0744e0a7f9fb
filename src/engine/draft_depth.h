// How many drafted tokens a pass verifies, chosen for the most tokens a second: from what passes of so many rows took,
// and from how likely each draft is accepted. Both are measured all the time, so that no draft is verified where that
// does not pay. Seconds come from outside: everything here is arithmetic.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace braid::engine {

// The share of successes among recent trials.
class Rate {
 public:
  // `weight`: the trials that `expected` counts as.
  double value(double expected, double weight) const { return (hits_ + weight * expected) / (trials_ + weight); }
  void note(bool hit) {
    constexpr double kDecay = 0.97;  // a memory of about 33 trials
    hits_ = kDecay * hits_ + (hit ? 1 : 0);
    trials_ = kDecay * trials_ + 1;
  }

 private:
  double hits_ = 0, trials_ = 0;
};

// What a sequence could have verified: the probabilities that its first, its first two, ... drafts are all accepted.
struct Offer {
  std::vector<double> odds{};
  double token_seconds = 0;  // that making one of its drafts takes
};

class DepthChooser {
 public:
  // Tokens to verify of each offer, for a pass that reads one more token of each of `sequences`. A sequence with drafts
  // takes one slot, of `slots` in all.
  // `always`: as many as there are slots for, the most likely ones.
  std::vector<int64_t> choose(std::span<const Offer> offers, int64_t sequences, int64_t slots, bool always = false);
  // A pass over `sequences` that verified `drafts` took so long.
  void note(int64_t sequences, int64_t drafts, double seconds);
  // What such a pass would take; 0 while none without drafts was measured.
  double seconds(int64_t sequences, int64_t drafts) const;

 private:
  struct Mean {
    double seconds = 0;
    int64_t count = 0, pass = 0;  // of its last measurement
  };
  struct Batch {
    std::map<int64_t, Mean> means{};  // by drafts
    int64_t passes = 0;
  };
  bool ready(int64_t sequences) const;

  std::map<int64_t, Batch> batches_;  // by sequences
};

}  // namespace braid::engine
