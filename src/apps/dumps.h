// The --dump-* options of `braid run`: what the model computed for the prompt, as NumPy and safetensors files.
#pragma once
#include <string>
#include <vector>

#include "apps/cli.h"
#include "engine/runner.h"
#include "nn/run.h"

namespace braid::apps {

struct DumpArgs {
  std::string logits, mtp, hidden, state, routes, replay;
  void declare(Cli& cli);
  // Error when a file could not be written or is there; before the model is read. Some need all layers, which ranks in
  // stages lack, some all heads, which no rank of several has.
  void check(bool stages, bool ranks) const;
};

class Dumps {
 public:
  Dumps(const DumpArgs& args, engine::Runner& runner, std::vector<int32_t> prompt);
  // Null when nothing asks for it.
  nn::Probe* probe();
  // The residual stream of one piece of the prompt, [rows, D], of the runner's only sequence. The last piece writes the
  // files, before anything is generated: a file that cannot be written is known before the first word is out.
  void note(const Tensor& x);

 private:
  void note_state();
  void write();

  DumpArgs args_;
  engine::Runner& runner_;
  std::vector<int32_t> prompt_;
  nn::Probe probe_;
  nn::Routes replay_;
  int64_t rows_ = 0;
  std::vector<float> logits_, final_;  // [T, V], [T, D]
};

}  // namespace braid::apps
