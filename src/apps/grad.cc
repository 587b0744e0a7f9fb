// braid grad: the loss of a few tokens and its gradient for every stored tensor, for comparison with other programs.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/model_args.h"
#include "apps/result.h"
#include "io/safetensors_write.h"
#include "models/family.h"
#include "models/master_weights.h"
#include "models/presets.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

struct GradArgs {
  std::string model, dtype = "f32", out;
  bool json = false;
  std::vector<int64_t> ids;
  double mtp_scale = 0;
  int64_t threads = 0;
};

Tensor integers(Arena& arena, const std::vector<int64_t>& values, size_t begin) {
  const Tensor t(arena, DType::i32, {std::ssize(values) - 1});
  for (int64_t i = 0; i < t.dim(0); ++i)
    t.mut().as<int32_t>()[i] = static_cast<int32_t>(values[begin + static_cast<size_t>(i)]);
  return t;
}

// Mean loss of predicting every next token, the prediction block's times its scale included. A model of recurrent depth
// takes the steps of its config from a state of zeros, all of them with gradients.
double backward(models::Model& model, models::MasterWeights& masters, const GradArgs& o) {
  Arena arena;
  Tape tape;
  Ctx ctx{.arena = arena};
  if (o.threads > 0) ctx.threads = static_cast<int>(o.threads);
  ctx.tape = &tape;
  const SeqMap seqs = SeqMap::one(std::ssize(o.ids) - 1);
  nn::StateView state;
  nn::Run run{.ctx = ctx,
              .seqs = seqs,
              .state = state,
              .numerics = Numerics::training(o.dtype == "f32" ? DType::f32 : DType::bf16)};
  const Tensor ids = integers(arena, o.ids, 0), targets = integers(arena, o.ids, 1);
  nn::Loop loop;
  if (const auto& spec = model.config().loop) {
    loop = {.steps = spec->steps, .start = Tensor(arena, DType::f32, {seqs.tokens(), model.config().hidden})};
    std::memset(loop.start.mut().data, 0, static_cast<size_t>(loop.start.view().bytes()));
    run.loop = &loop;
  }
  const bool mtp = model.mtp_steps() > 0 && o.mtp_scale > 0 && seqs.tokens() > 1;
  const models::Model::LossOptions options{
      .main_weight = 1.0 / static_cast<double>(seqs.tokens()),
      .mtp_weight = {mtp ? o.mtp_scale / static_cast<double>(seqs.tokens() - 1) : 0.0}};
  models::Model::LossSums sums;
  masters.zero_grads(ctx.threads);
  model.loss(run, ids, targets, options, sums);
  tape.backward(ctx);
  masters.sum_uses(ctx.threads);
  tape.clear();
  return sums.main * options.main_weight + sums.mtp[0] * options.mtp_weight[0];
}

int grad_command(const GradArgs& o) {
  if (o.ids.size() < 2) fail("grad", {.what = "at least two tokens are needed", .hint = "--ids 1,2,3"});
  if (o.out.empty()) fail("grad", {.what = "no output is named", .hint = "-o G.safetensors"});
  io::check_tensor_file(o.out);
  models::MasterWeights masters(o.dtype == "f32" ? DType::f32 : DType::bf16);
  const auto model = masters.load(models::find_weights(o.model));
  for (const int64_t id : o.ids) {
    if (id < 0 || id >= model->config().vocab)
      fail("token ids", {.what = "no such token",
                         .got = std::to_string(id),
                         .expected = fmt::format("0 to {}", model->config().vocab - 1)});
  }
  const auto loss = static_cast<float>(backward(*model, masters, o));
  std::vector<io::TensorSpec> specs = {{.name = "loss", .dtype = DType::f32, .shape = {1}}};
  for (const models::MasterTensor& t : masters.tensors())
    specs.push_back({.name = t.name, .dtype = DType::f32, .shape = t.shape});
  io::SafetensorsWriter writer(o.out, std::move(specs));
  std::vector<float> values;
  for (const io::TensorSpec& spec : writer.order()) {
    if (spec.name == "loss") {
      writer.write("loss", view_of(&loss, {1}));
      continue;
    }
    values.resize(static_cast<size_t>(spec.shape.count()));
    models::to_stored(masters.tensor(spec.name), masters.grads(), false, DType::f32,
                      std::as_writable_bytes(std::span(values)));
    writer.write(spec.name, view_of(values.data(), spec.shape));
  }
  writer.finish();
  print_result(o.json, {{"loss", loss}, {"gradients", masters.tensors().size()}, {"file", o.out}},
               fmt::format("loss {:.6f}, {} gradients in {}", loss, masters.tensors().size(), printable(o.out)));
  return 0;
}

}  // namespace

Action setup_grad(Cli& cli) {
  auto o = std::make_shared<GradArgs>();
  cli.positional("model", o->model, "a folder, a GGUF file, org/name of the Hugging Face cache, or tiny");
  cli.option("--ids", o->ids, "token ids: 1,2,3");
  cli.option("-o,--output G.safetensors", o->out, "loss [1], and every gradient in F32 under its tensor's name");
  cli.option("--mtp-scale", o->mtp_scale, "weight of the multi-token prediction loss; 0: off");
  cli.choice("--dtype", o->dtype, {"f32", "bf16"}, "dtype of the operands of matrix products");
  cli.option("-t,--threads", o->threads, "0: one per core");
  cli.flag("--json", o->json, "print the result as a JSON object");
  return [o] { return grad_command(*o); };
}

}  // namespace braid::apps
