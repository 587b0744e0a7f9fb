// Layouts for answers: the published finding, and formulas of a dense model by hand.
#include "layout/serving.h"

#include <gtest/gtest.h>

#include "layout/layout_fixture.h"

namespace braid::layout {
namespace {

// Llama-3.1-70B's shape.
Model llama_70b() {
  models::Config config = models::read_config(*models::find_preset("llama-3.1-8b"));
  config.hidden = 8192;
  models::LayerSpec layer = config.layers[0];
  for (models::PartSpec& part : layer.parts) {
    if (auto* a = std::get_if<nn::AttentionSpec>(&part.block)) a->hidden = 8192, a->heads = 64;
    if (auto* m = std::get_if<nn::MlpSpec>(&part.block)) m->hidden = 8192, m->width = 28672;
  }
  config.layers.assign(80, layer);
  return {std::move(config), {}, 4096};
}

// arXiv 2511.09557, section 2: over nodes of Perlmutter stages between nodes read prompts faster, and tensor
// parallelism over all ranks writes answers faster. Two nodes: the model has eight heads of keys.
TEST(Serving, StagesReadPromptsAndTensorParallelismWritesAnswers) {
  const Model model = llama_70b();
  const Machine machine = machine_of("perlmutter", 8);
  const Answers task{.ranks = 8, .batch = 8, .prompt = 2048, .answer = 128};
  const ServingCost all = serving_cost(model, machine, task, {.tp = 8}),
                    hybrid = serving_cost(model, machine, task, {.tp = 4, .pp = 2});
  EXPECT_LT(hybrid.prompts, all.prompts);
  EXPECT_LT(all.token, hybrid.token);
  Answers writes = task;
  writes.answer = 4096;
  EXPECT_LT(all.all(writes), hybrid.all(writes));
}

// Without depth a token reads every weight once: the model's formula, W / (P bandwidth).
TEST(Serving, AShortTokenReadsTheWeights) {
  const Model model = llama_70b();
  Machine machine = machine_of("dgx-h100", 8);
  machine.links.launch_us = 0;
  machine.links.node = {0, 0, 1e9};
  machine.links.copy_gb_per_s = machine.links.reduce_gb_per_s = 1e12;
  const ServingCost cost = serving_cost(model, machine, {.ranks = 8, .prompt = 1, .answer = 1}, {.tp = 8});
  const double layers = 80.0 * (8192.0 * 8192 * 2 + 8192.0 * 1024 * 2 + 3 * 8192.0 * 28672), head = 128256.0 * 8192;
  EXPECT_NEAR(cost.token / (2 * (layers + head) / 8 / 3350e9), 1, 0.01);
  EXPECT_NEAR(cost.weights / (2 * (layers + 2 * head) / 8), 1, 0.001);
}

TEST(Serving, FoundLayoutsFitAndAreInOrder) {
  const Model model = model_of("nemotron-3-nano-30b-a3b", 4096);
  const Machine machine = machine_of("dgx-h100", 8);
  const Answers task{.ranks = 8, .batch = 64, .prompt = 8192, .answer = 1024};
  const Served served = find_serving(model, machine, task);
  ASSERT_GT(served.fitting.size(), 3u);
  for (size_t i = 1; i < served.fitting.size(); ++i) {
    EXPECT_LE(served.fitting[i - 1].all(task), served.fitting[i].all(task));
    EXPECT_LE(served.fitting[i].memory(), 80e9);
  }
}

}  // namespace
}  // namespace braid::layout
