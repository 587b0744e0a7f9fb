#include "train/token_shares.h"

#include <algorithm>

#include "comm/group.h"
#include "nn/sequence_parallel.h"
#include "sys/error.h"

namespace braid::train {
namespace {

template <class Spec, class Of>
bool all_of(const models::Config& config, Of&& of) {
  bool all = true;
  models::each_part(config, [&](const models::PartSpec& part) {
    const auto* spec = std::get_if<Spec>(&part.block);
    all = all && (!spec || of(*spec));
  });
  return all;
}

// Heads divide, and each rank's have keys, or groups, of their own or one that it shares with others.
bool divide(int64_t heads, int64_t shared, int64_t ranks) {
  return heads % ranks == 0 && (shared % ranks == 0 || ranks % shared == 0);
}

[[noreturn]] void refuse(const char* key, const char* what, int64_t ranks, const char* hint) {
  fail(key,
       {.what = what, .expected = fmt::format("a multiple of parallel.cp = {} in every block", ranks), .hint = hint});
}

}  // namespace

ContextModes context_modes(const ParallelRecipe& recipe, const models::Config& config) {
  if (recipe.cp == 1) return {};
  if (config.loop) fail("parallel.cp", {.what = "cannot be used with recurrent depth", .hint = "parallel.cp=1"});
  const bool attention = all_of<nn::AttentionSpec>(
                 config, [&](const auto&a) { return divide(a.heads, a.kv_heads, recipe.cp); }),
             mamba = all_of<nn::Mamba2Spec>(config, [&](const auto&m) { return divide(m.heads, m.groups, recipe.cp); });
  if (recipe.cp_attention == "alltoall" && !attention)
    refuse("parallel.cp_attention", "the heads of attention do not divide", recipe.cp, "parallel.cp_attention=ring");
  if (recipe.cp_mamba == "heads" && !mamba)
    refuse("parallel.cp_mamba", "the heads of Mamba do not divide", recipe.cp, "parallel.cp_mamba=states");
  return {.ring = recipe.cp_attention.empty() ? !attention : recipe.cp_attention == "ring",
          .states = recipe.cp_mamba.empty() ? !mamba : recipe.cp_mamba == "states"};
}

void TokenShares::divide(const SeqMap& seqs, Mesh* mesh, const ContextModes& modes, bool most) {
  if (!mesh) return;
  if (comm::Group* ranks = mesh->context()) {
    context_.ranks = ranks;
    context_.ring = modes.ring;
    context_.states = modes.states;
    nn::divide_tokens(seqs, ranks->rank(), ranks->size(), modes.order(), context_);
    if (most) nn::divide_tokens(seqs, nn::largest_share(context_), ranks->size(), modes.order(), context_);
  }
  const Cut cut = mesh->cut();
  if (!cut.sequence) return;
  nn::share_rows(own(seqs), most ? 0 : static_cast<int>(cut.rank), static_cast<int>(cut.ranks), sequence_);
}

void TokenShares::put(nn::Run& run, Mesh* mesh) const {
  if (!mesh) return;
  run.tensor = mesh->tensor();
  run.sharers = mesh->sharers();
  run.hidden = mesh->hidden();
  run.overlap = mesh->overlaps_passes();
  run.experts = mesh->experts();
  run.layers = mesh->layers();
  if (context_.ranks) run.context = &context_;
  if (mesh->cut().sequence) run.sequence = &sequence_;
}

}  // namespace braid::train
