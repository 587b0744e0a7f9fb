#include "train/hidden_states.h"

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "core/tape.h"
#include "kernels/hidden_loss/hidden_loss.h"
#include "sys/check.h"

namespace braid::train {
namespace {

// Parameters of a model whose head is a further use of its embedding do not list it.
Param& head_of(models::Model& model) {
  const std::vector<Param*> params = model.params();
  const auto has = [](ParamRole role) { return [role](const Param* p) { return p->role == role; }; };
  auto found = std::find_if(params.begin(), params.end(), has(ParamRole::head));
  if (found == params.end()) found = std::find_if(params.begin(), params.end(), has(ParamRole::embedding));
  CHECK(found != params.end(), "a model of {} parameters without a head", params.size());
  return **found;
}

Tensor read_by_head(nn::Run& run, models::Model& model, const Tensor& x) {
  return nn::converted(run, model.final_hidden(run, x), run.numerics.products);
}

// The stream after every layer, from the first.
template <class Seen>
Tensor layer_by_layer(nn::Run& run, models::Model& model, const Tensor& ids, Seen&& seen) {
  Tensor x;
  for (int64_t i = 0; i < std::ssize(model.config().layers); ++i) {
    x = model.forward(run, ids, x, {i, 1});
    seen(i + 1, x);
  }
  return x;
}

}  // namespace

void reserve_map(models::MasterWeights& masters, int64_t teacher, int64_t student, int64_t layers) {
  masters.reserve_beside({.name = "distill.hidden_map", .shape = {teacher, student}}, layers);
}

void draw_map(models::MasterWeights& masters, uint64_t seed) {
  constexpr uint32_t kStream = 0x70726f6a;  // "proj": no other op draws with it
  if (masters.beside().empty()) return;
  const models::MasterTensor& tensor = masters.tensor_of(masters.beside()[0]);
  const float scale = 1 / std::sqrt(static_cast<float>(tensor.shape[1]));
  float* values = masters.values().data() + tensor.offset;
  for (int64_t i = 0; i < tensor.count(); ++i)
    values[i] =
        scale * normal4({.seed = seed, .stream = kStream}, static_cast<uint64_t>(i / 4))[static_cast<size_t>(i % 4)];
  masters.round({tensor.offset, tensor.count()}, 1);
}

std::vector<int64_t> matched_layers(int64_t student, int64_t teacher) {
  std::vector<int64_t> ends;
  for (int64_t i = 1; i <= student; ++i)
    ends.push_back(std::max<int64_t>(1, (2 * i * teacher + student) / (2 * student)));
  return ends;
}

Tensor hidden_loss(nn::Run& run, const Tensor& x, const Tensor& y, const Tensor& token_weight, Param* map) {
  const Tensor own = map ? nn::linear(run, nn::converted(run, x, run.numerics.products), *map) : x;
  const Tensor loss(run.ctx.arena, DType::f32, {x.dim(0)});
  HiddenLoss op{.y = y.view(), .token_weight = token_weight.view(), .loss = loss.mut()};
  if (!run.ctx.tape) {
    op.x = own.view();
    braid::run(run.ctx, op);
    return loss;
  }
  const Tensor dx(run.ctx.arena, DType::f32, own.shape());
  taped(
      run.ctx, "hidden_loss", {.in = {own, token_weight}, .out = {loss, dx}, .saved = {dx}, .once = true},
      [x = Ref(own), y = Ref(y), weight = Ref(token_weight), loss = Ref(loss), dx = Ref(dx)](Ctx& c) {
        braid::run(
            c, HiddenLoss{
                   .x = x.view(), .y = y.view(), .token_weight = weight.view(), .loss = loss.mut(), .dx = dx.mut()});
      },
      [x = Ref(own), dx = Ref(dx)](Ctx& c, Tape& tape) { tape.add_grad(c, x, tape.handle(dx)); });
  return loss;
}

HiddenLosses distill_with_states(nn::Run& run, models::Model& model, const Tensor& ids, const Tensor& targets,
                                 const Tensor& token_weight, const nn::Teacher& teacher, const HiddenGoal& goal) {
  HiddenLosses losses;
  const Tensor x = layer_by_layer(run, model, ids, [&](int64_t layers, const Tensor& stream) {
    const Tensor& wanted = goal.states[static_cast<size_t>(layers - 1)];
    Param* map = goal.maps.empty() ? nullptr : &goal.maps[static_cast<size_t>(layers - 1)];
    losses.layers.push_back(hidden_loss(run, stream, wanted, goal.token_weight, map));
  });
  losses.head = nn::distill_loss(run, read_by_head(run, model, x), head_of(model), targets, token_weight, teacher);
  return losses;
}

std::vector<Tensor> states_of(nn::Run& run, models::Model& model, const Tensor& ids, std::span<const int64_t> ends,
                              Tensor& head_input) {
  std::vector<Tensor> states;
  const Tensor x = layer_by_layer(run, model, ids, [&](int64_t layers, const Tensor& stream) {
    for (const int64_t end : ends) {
      if (end == layers) states.push_back(stream);
    }
  });
  head_input = read_by_head(run, model, x);
  return states;
}

}  // namespace braid::train
