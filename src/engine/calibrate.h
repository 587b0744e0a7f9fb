// The largest inputs of a model's matrices over a text (nn/calibration.h), from which input scales follow.
#pragma once
#include <map>
#include <span>
#include <string>

#include "engine/runner.h"
#include "sys/function_ref.h"

namespace braid::engine {

// By the names of parameters. Windows of the text, as long as the runner's context, are separate sequences. An expert
// that no token chose, or whose hidden values were all zero, gets the maximum over its layer's other experts;
// parameters outside of a pass (the prediction block) are left out. `progress` receives the tokens done and in total;
// if it returns false, measuring stops and the result is empty. Error when an input is not finite.
std::map<std::string, float> input_amax(Runner& runner, std::span<const int32_t> ids,
                                        const sys::FunctionRef<bool(int64_t, int64_t)>& progress);

}  // namespace braid::engine
