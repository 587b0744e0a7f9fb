// Ranks that answer together with one model (models/division.h). All of them run the same program on the same requests:
// the logits of a pass, and so the tokens that are drawn, have the same bits on every rank. What a rank could decide by
// its own clock, its own free memory or a signal that it received, it decides as the first rank does.
#pragma once
#include <cstdint>
#include <string>

#include "comm/group.h"
#include "core/ctx.h"
#include "core/tensor.h"
#include "models/division.h"
#include "nn/run.h"

namespace braid::engine {

class Ranks {
 public:
  // `world`, which outlives this, has Division::ranks() ranks, all of which make one at the same time. Error where they
  // run on CPUs of different classes, whose products round differently.
  Ranks(comm::Group& world, const models::Division& division);

  const models::Division& division() const { return division_; }
  int64_t rank() const { return world_.rank(); }
  bool first() const { return world_.rank() == 0; }  // who prints and writes files
  int64_t on_this_machine() const { return world_.on_this_machine(); }
  // For the blocks of this rank.
  void join(nn::Run& run);

  // At the start of a pass: from here on `interrupted` says whether the first rank had received a Ctrl-C.
  void begin_pass();
  bool interrupted() const { return interrupted_; }
  // The first rank's value; the least of all.
  double agreed(double value);
  std::string agreed(std::string text);
  int64_t least(int64_t value);

  // Of stages: the residual stream [T, D] F32 of the layers before this rank's, none on the first stage; and to the
  // next one.
  Tensor stream_in(Ctx& ctx, int64_t tokens, int64_t hidden);
  void stream_out(const Tensor& x);
  bool last_stage() const { return pipe_.rank() == pipe_.size() - 1; }
  // `x` of the last stage on all; the others give a tensor of its shape to be filled.
  void from_last_stage(const Tensor& x);

  // Bytes that this rank has sent so far; the sum of all ranks' values.
  int64_t bytes_sent() const { return world_.traffic().bytes[0] + world_.traffic().bytes[1]; }
  int64_t total(int64_t value);

 private:
  comm::Group& world_;
  models::Division division_;
  comm::Group stage_, tensor_, pipe_;
  bool interrupted_ = false;
};

}  // namespace braid::engine
