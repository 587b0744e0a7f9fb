// Any text is a table of timed calls or gives a one-line Error; a selector that learns from it chooses an algorithm
// that does the call.
#include <cstdint>
#include <string_view>

#include "comm/selector.h"
#include "comm/sim.h"
#include "sys/check.h"
#include "sys/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  try {
    const auto calls = comm::read_times("input", {reinterpret_cast<const char*>(data), size});
    if (calls.size() > 200) return 0;
    for (const comm::Learner learner : {comm::Learner::svm, comm::Learner::costs}) {
      const comm::Selector selector(calls, learner);
      for (const comm::TimedCall& call : calls) {
        const comm::Problem problem = comm::problem_of({.op = call.op, .type = DType::u8, .count = call.bytes}, 0,
                                                       call.nodes * call.per_node, call.per_node);
        CHECK(selector.choose(problem).refuses(problem) == nullptr, "{}", call.algorithm);
      }
    }
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos, "{}", error.what());
  }
  return 0;
}
