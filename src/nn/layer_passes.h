// What surrounds the passes of a layer where ranks divide its weights or their gradients: they are gathered before a
// pass reads them and freed after it, and gradients are summed as soon as the backward pass of the layer is over.
#pragma once
#include <cstdint>

namespace braid::nn {

struct Run;

class LayerPasses {
 public:
  virtual ~LayerPasses() = default;
  // All ranks that divide a layer call these in the same order.
  virtual void begin(int64_t layer, bool backward) = 0;
  virtual void end(int64_t layer, bool backward) = 0;
};

// Around the ops of layer `layer`: calls Run::layers, if there is one, now and from the tape.
void enter_layer(Run& run, int64_t layer);
void leave_layer(Run& run, int64_t layer);

}  // namespace braid::nn
