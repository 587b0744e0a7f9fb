#include "nn/layer_passes.h"

#include "core/tape.h"
#include "nn/run.h"

namespace braid::nn {
namespace {

// A node without values: it is not recomputed, and a backward pass calls it between those of its neighbours.
template <class Forward, class Backward>
void mark(Run& run, const char* name, Forward forward, Backward backward) {
  if (!run.layers) return;
  taped(
      run.ctx, name, {.in = {}, .out = {}, .trains = true, .once = true},
      [forward](Ctx& ctx) {
        if (!ctx.dry) forward();
      },
      [backward](Ctx& ctx, Tape&) {
        if (!ctx.dry) backward();
      });
}

}  // namespace

void enter_layer(Run& run, int64_t layer) {
  LayerPasses* passes = run.layers;
  mark(
      run, "enter layer", [=] { passes->begin(layer, false); }, [=] { passes->end(layer, true); });
}

void leave_layer(Run& run, int64_t layer) {
  LayerPasses* passes = run.layers;
  mark(
      run, "leave layer", [=] { passes->end(layer, false); }, [=] { passes->begin(layer, true); });
}

}  // namespace braid::nn
