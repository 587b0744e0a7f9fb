// The parts of linear_bench. For *_bench.cc only.
#pragma once

namespace braid {

void add_training_products();  // linear_train_bench.cc

}  // namespace braid
