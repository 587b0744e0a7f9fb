#include "train/hidden_states.h"

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "core/tape.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "kernels/adamw/adamw.h"
#include "kernels/hidden_loss/hidden_loss.h"
#include "sys/check.h"
#include "sys/error.h"

namespace braid::train {
namespace {

constexpr const char* kProjectionFile = "projection.safetensors";

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

Projection::Projection(int64_t teacher, int64_t student, int64_t uses, uint64_t seed)
    : uses_(static_cast<size_t>(uses)) {
  constexpr uint32_t kStream = 0x70726f6a;  // "proj": no other op draws with it
  const auto count = static_cast<size_t>(teacher * student);
  values_.resize(count);
  const float scale = 1 / std::sqrt(static_cast<float>(student));
  for (size_t i = 0; i < count; ++i)
    values_[i] = scale * normal4({.seed = seed, .stream = kStream}, static_cast<uint64_t>(i / 4))[i % 4];
  for (std::vector<float>* zeros : {&first_, &second_}) zeros->resize(count);
  gradients_.resize(count * uses_.size());
  for (size_t i = 0; i < uses_.size(); ++i) {
    uses_[i].value = dense_weight(view_of(values_.data(), {teacher, student}));
    uses_[i].grad = mut_view_of(gradients_.data() + i * count, {teacher, student});
  }
}

void Projection::step(const OptimizerRecipe& recipe, double lr) {
  Ctx ctx{.arena = arena_, .threads = 1};
  const Shape flat{std::ssize(values_)};
  for (size_t i = values_.size(); i < gradients_.size(); ++i) gradients_[i % values_.size()] += gradients_[i];
  run(ctx, AdamwStep{.g = view_of(gradients_.data(), flat),
                     .w = mut_view_of(values_.data(), flat),
                     .m = mut_view_of(first_.data(), flat),
                     .v = mut_view_of(second_.data(), flat),
                     .step = ++updates_,
                     .lr = lr,
                     .beta1 = recipe.beta1,
                     .beta2 = recipe.beta2,
                     .eps = recipe.eps});
}

void Projection::zero_gradients() { std::fill(gradients_.begin(), gradients_.end(), 0.0f); }

void Projection::write(const std::filesystem::path& folder) const {
  io::SafetensorsWriter file(folder / kProjectionFile, {{"updates", DType::i64, {1}},
                                                        {"w", DType::f32, shape()},
                                                        {"m", DType::f32, shape()},
                                                        {"v", DType::f32, shape()}});
  file.write("updates", view_of(&updates_, {1}));
  file.write("w", view_of(values_.data(), shape()));
  file.write("m", view_of(first_.data(), shape()));
  file.write("v", view_of(second_.data(), shape()));
  file.finish();
}

void Projection::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kProjectionFile;
  const io::Safetensors file(path);
  const auto load = [&](const char* name, std::vector<float>& to) {
    const View from = file.need(name);
    if (from.dtype != DType::f32 || from.shape != shape())
      fail(printable(path.string()), {.what = fmt::format("{} is the map between other widths", name),
                                      .expected = fmt::format("F32, {} x {}", shape()[0], shape()[1])});
    std::copy_n(from.as<float>(), to.size(), to.begin());
  };
  load("w", values_);
  load("m", first_);
  load("v", second_);
  const View updates = file.need("updates");
  if (updates.dtype != DType::i64 || updates.count() != 1 || *updates.as<int64_t>() < 0)
    fail(printable(path.string()), {.what = "updates is not a count", .expected = "one I64, 0 or more"});
  updates_ = *updates.as<int64_t>();
}

std::vector<int64_t> matched_layers(int64_t student, int64_t teacher) {
  std::vector<int64_t> ends;
  for (int64_t i = 1; i <= student; ++i)
    ends.push_back(std::max<int64_t>(1, (2 * i * teacher + student) / (2 * student)));
  return ends;
}

Tensor hidden_loss(nn::Run& run, const Tensor& x, const Tensor& y, const Tensor& token_weight, Param* map) {
  const Tensor own = map ? nn::linear(run, x, *map) : x;
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
    Param* map = goal.projection ? &goal.projection->use(layers - 1) : nullptr;
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
