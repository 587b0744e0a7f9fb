// Trains small models on a corpus in which some documents, the canaries, are repeated, and measures what they recall
// (repro_goldfish.cc).
#pragma once
#include <cstdint>
#include <string>

namespace braid::apps {

struct GoldfishStudy {
  std::string dir = "goldfish";  // exists
  int64_t canaries = 200, repeats = 50, background = 10000, length = 32, threads = 0;
};

// What a model is trained on. Every arm has as many targets: what is left out is made up for by more background.
struct GoldfishArm {
  const char* name;
  int64_t k;
  bool by_position = false, canaries = true;
};

struct GoldfishOutcome {
  double exact = 0, rouge = 0;        // of canaries: share that is continued whole, mean ROUGE-L
  double unseen_rouge = 0, loss = 0;  // of documents that no model saw; in nats per token
};

// Documents of 512 held-out rows, which all arms share.
void write_held_out(const GoldfishStudy& study);
// Stops at a signal (sys/interrupt.h), with what there is so far.
GoldfishOutcome train_arm(const GoldfishStudy& study, const GoldfishArm& arm);

}  // namespace braid::apps
