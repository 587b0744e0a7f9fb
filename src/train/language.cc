#include "train/language.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/group.h"
#include "core/integers.h"
#include "data/shuffle.h"
#include "io/atomic_file.h"
#include "io/json.h"
#include "io/safetensors_write.h"
#include "models/count.h"
#include "models/cut.h"
#include "models/save.h"
#include "prune/write.h"
#include "sys/error.h"
#include "sys/memory.h"
#include "sys/parallel.h"
#include "train/balance.h"
#include "train/distill.h"
#include "train/origin.h"
#include "train/rehearsal.h"
#include "train/weight_hash.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

// One name per step of the prediction block, if there are several.
constexpr std::array<const char*, models::kMtpSteps> kMtpNames = {"mtp_loss_1", "mtp_loss_2", "mtp_loss_3",
                                                                  "mtp_loss_4"};

double at_least_one(int64_t n) { return static_cast<double>(std::max<int64_t>(1, n)); }

}  // namespace

Language::Language(const Recipe& recipe, Ctx& ctx, Mesh* mesh, const data::Reading& reading)
    : recipe_(recipe),
      mesh_(mesh),
      trained_(std::make_shared<Trained>(numerics_of(recipe).products, mesh ? mesh->parted() : models::Parted{})),
      draws_{.seed = static_cast<uint64_t>(recipe.seed)} {
  const models::Config config = config_of(recipe);
  check_trainable(config);
  if (recipe.optimizer.keep_zeros && recipe.lora.rank > 0)
    fail("optimizer.keep_zeros", {.what = "cannot be used with adapters, which fill zeros in", .hint = "lora.rank=0"});
  if (mesh) check_node_limit(recipe, config, mesh->expert_nodes());
  open_data(config, reading);  // first: a run that cannot read its data leaves no files behind
  need_positions(recipe, config, held_out_ ? std::max(length(), held_out_->length()) : length());
  flops_ = train::flops_per_token(config, length());
  const int64_t available = mesh ? mesh->available_memory() : sys::memory_available();
  models::Stage stage;
  if (mesh && mesh->pipe()) stage = stage_of(recipe, config, length(), mesh->stage());
  const models::Config staged = models::stage_config(config, stage);
  const models::Config own =
      mesh && mesh->divides_model() ? models::cut_config(staged, mesh->cut(), mesh->expert_cut()) : staged;
  const StateShares shares = state_shares(recipe, own, mesh ? mesh->ranks() : 1);
  const double copies = copies_of(recipe);
  if (recipe.lora.rank == 0)
    need_memory(recipe, copies * state_bytes(recipe, shares.values(), shares).sum(), 0, available);
  const io::ModelPath path = io::find_model(recipe.config ? origin(ctx.threads).string() : recipe.init);
  origin_ = path.folder;
  models::MasterWeights& masters = trained_->masters;
  reserve_map(recipe, config, masters);
  models::MasterWeights::Loaded keep_own;
  if (mesh && mesh->divides_weights()) {
    keep_own = [&](const models::MasterTensor& t) {
      for (const Range& others : mesh->others(masters, t)) masters.drop_values(others);
    };
  }
  trained_->model = recipe.lora.rank == 0 ? masters.load(path, recipe.loss.mtp_steps, mesh ? mesh->cut() : Cut{},
                                                         mesh ? mesh->expert_cut() : ExpertCut{}, stage, keep_own)
                                          : masters.adapt(path, adapter_spec(recipe), draws_.seed);
  draw_map(masters, draws_.seed);
  if (mesh && mesh->divides_model() && mesh->first())  // its arrays are used where this rank writes alone
    whole_.emplace(masters.products(), models::Parted{.values = true, .grads = true}).own_whole(path);
  if (mesh) mesh->divide(masters, ctx.threads);
  models::Model& model = *trained_->model;
  model.dropout = config.dropout;
  if (model.config().cut.hidden_ranks > 1 && (config.dropout.residual > 0 || config.dropout.embedding > 0))
    fail("parallel.grid", {.what = "y cannot be used with dropout", .hint = "dropout=0"});
  precision_.emplace(recipe.precision, model.params(), static_cast<uint64_t>(recipe.seed), precision_parts(recipe));
  if (!nn::is_low_precision(recipe.precision)) precision_.reset();
  modes_ = context_modes(recipe.parallel, model.config());
  if (!recipe.nest.budgets.empty()) nested_.emplace(recipe, path, masters, model);
  for (size_t b = 0; nested_ && b < nested_->count(); ++b) nested_->model(b).dropout = config.dropout;
  if (config.loop) loop_ = loop_of(recipe, *config.loop);
  make_plans(config, ctx);
  task_ = make_task(recipe, config, path, masters.beside(), ctx);
  need_memory(recipe,
              copies * (state_bytes(recipe, static_cast<double>(masters.trained()), shares).sum() +
                        (nested_ ? nested_->bytes() : 0)),
              copies * static_cast<double>(passes_ ? passes_->bytes() : plan_->arena.bytes), available);
  if (rollouts_) {
    const auto write = [this](const fs::path& folder) { this->write(this->masters().values(), folder); };
    rollouts_->start(this->model(), write, ctx.threads);
  }
  tape_.drop = [this](Cost, size_t node) { return plan_->drops(node); };
}

void Language::make_plans(const models::Config& config, Ctx& ctx) {
  models::Model& model = *trained_->model;
  const int64_t rows = mesh_ ? (this->rows() + mesh_->shares() - 1) / mesh_->shares() : this->rows();
  const std::vector<Chunk> chunks = chunks_of(model.config().stage);
  for (const Chunk& chunk : chunks) plans_.push_back(rehearse(recipe_, model, ctx, rows, length(), 0, mesh_, &chunk));
  for (size_t b = 0; nested_ && b < nested_->count(); ++b)
    plans_.push_back(rehearse(recipe_, nested_->model(b), ctx, rows, length()));
  for (int64_t steps = 1; chunks.empty() && !nested_ && steps <= (loop_ ? loop_->backward_steps : 1); ++steps)
    plans_.push_back(rehearse(recipe_, model, ctx, rows, length(), loop_ ? steps : 0, mesh_));
  plan_ = &plans_.back();
  for (StepPlan& plan : plans_) plan_ = nested_ && plan.arena.bytes > plan_->arena.bytes ? &plan : plan_;
  if (chunks.empty()) return;
  passes_.emplace(recipe_, model, *mesh_->pipe(), ctx, plans_);
  // Routers of other stages are seen there: their numbers come with the sums over all.
  const auto count = [this](int number, const models::LayerSpec& layer) {
    for (const models::PartSpec& part : layer.parts) {
      if (const auto* moe = std::get_if<nn::MoeSpec>(&part.block))
        routers_.layers[number].resize(moe->experts, recipe_.loss.quantile > 0);
    }
  };
  int number = 0;
  for (const models::LayerSpec& layer : config.layers) count(number++, layer);
  if (!config.mtp || recipe_.loss.mtp_scale == 0) return;
  for (const models::LayerSpec& layer : config.mtp->layers) count(number++, layer);
}

// Random weights are written by one rank.
fs::path Language::origin(int threads) const {
  if (!mesh_ || mesh_->first()) make_origin(recipe_, threads);
  if (mesh_) mesh_->barrier();
  return origin_folder(recipe_);
}

void Language::open_data(const models::Config& config, const data::Reading& reading) {
  const int64_t vocabulary = config.vocab;
  const fs::path language = language_folder(recipe_);
  if (generates(recipe_)) {
    rollouts_.emplace(recipe_, language, vocabulary, mesh_ ? mesh_->data() : nullptr);
    need_rows(recipe_, rows(), mesh_ ? mesh_->shares() : 1);
    return;
  }
  data::DataSpec spec = data_spec(recipe_);
  spec.reading = reading;
  data_ = data::open(spec, language, vocabulary);
  const int64_t shares = mesh_ ? mesh_->shares() : 1;
  need_rows(recipe_, data_->rows(), shares);
  if (recipe_.eval.every == 0) return;
  if (recipe_.eval.data.empty() || data::is_generated(spec.kind)) {
    spec.held_out = true;
  } else {
    spec.path = recipe_.eval.data;
    spec.blend.clear();
    spec.validation = 0;
  }
  spec.goldfish.k = 0;
  spec.thoughts = {};
  spec.once = true;
  held_out_ = data::open(spec, language, vocabulary);
  need_rows(recipe_, held_out_->rows(), shares);
}

// The content of the data, so that another file under the same name is noticed, and the model's config.
Facts Language::facts() const {
  Facts facts;
  const io::Json config = io::Json::read(origin_ / "config.json");
  for (const auto& [key, value] : config.raw().items()) facts.emplace_back("model." + key, value.dump());
  // Adapters are checkpointed without their base model, and tasks may compare with the model at the start.
  if (trained_->masters.adapters() || rates_answers(recipe_))
    facts.emplace_back(kModel, fmt::format("\"{:016x}\"", sample_hash(origin_)));
  if (data_) {
    facts.emplace_back("steps per epoch", std::to_string(data_->steps_per_epoch()));
    facts.emplace_back(kContent, fmt::format("\"{}\"", content_of(*data_, sys::default_threads())));
  }
  if (nested_) facts.emplace_back("nested.json", nlohmann::json(nested_->file()).dump());
  if (!recipe_.distill.teacher.empty()) {
    const fs::path teacher = io::find_model(recipe_.distill.teacher).weights;
    facts.emplace_back(kTeacher, fmt::format("\"{:016x}\"", model_hash(teacher)));
  }
  return facts;
}

Language::Totals Language::totals_of(const data::Batch& batch) {
  Totals totals{.main = batch.trained, .tokens = std::ssize(batch.ids)};
  for (const Seq& s : batch.seqs.seqs) {
    const auto first = batch.targets.begin() + s.start;
    totals.samples += std::any_of(first, first + s.len, [](int32_t target) { return target != data::kMasked; }) ? 1 : 0;
  }
  for (size_t step = 0; step < totals.mtp.size(); ++step)
    totals.mtp[step] = models::Model::mtp_targets(batch.seqs, batch.targets.data(), static_cast<int64_t>(step));
  return totals;
}

int64_t Language::draw(int64_t step, bool held_out) {
  if (!held_out) {
    if (precision_) precision_->begin_step(step);
    draws_.step = static_cast<uint64_t>(step);
    routers_.clear();
  }
  if (loop_) {
    depth_ = held_out ? Depth{.steps = loop_->steps} : draw_depth(*loop_, recipe_.loop.sigma, draws_.seed, step);
    plan_ = &plans_[static_cast<size_t>(std::max<int64_t>(depth_.backward, 1) - 1)];
  }
  if (nested_ && !held_out) budget_ = nested_->draw(step);
  rollouts_ ? rollouts_->draw(step, batch_) : (held_out ? held_out_ : data_)->batch(step, batch_);
  held_out_batch_ = held_out;
  totals_ = totals_of(batch_);
  return std::ssize(batch_.rows) - 1;
}

nn::Run Language::run_of(Ctx& ctx, const data::Batch& part, TokenShares& shares, bool backward) {
  shares.divide(part.seqs, mesh_, modes_);
  nn::Run run{.ctx = ctx, .seqs = shares.own(part.seqs), .state = no_state_, .numerics = numerics_of(recipe_)};
  if (precision_) run.precision = &*precision_;
  shares.put(run, mesh_);
  ask_routers(recipe_.loss, totals_.tokens, routers_);
  routers_.rows = part.rows;
  routers_.everyone = mesh_ ? mesh_->data() : nullptr;
  if (backward) run.routers = &routers_;
  if (backward) run.draws = &draws_;
  return run;
}

// The steps of the loop before those with gradients, outside the plan: their number differs from step to step. The
// layers before the loop run once more in the pass itself.
void Language::run_undifferentiated(nn::Run& run, const data::Batch& part) {
  models::Model& model = *trained_->model;
  const Shape shape{std::ssize(part.ids), model.config().hidden};
  starts_.resize(static_cast<size_t>(shape.count()));
  nn::Loop loop{.steps = depth_.steps, .start = Tensor(run.ctx.arena, DType::f32, shape)};
  const uint64_t key = data::mix(draws_.seed, depth_.backward > 0 ? draws_.step + 1 : 0);
  fill_starts(*loop_, key, part.seqs, loop.start.mut());
  run.loop = &loop;
  nn::RouterWatch* routers = std::exchange(run.routers, nullptr);  // they balance what is trained
  const int64_t before = depth_.steps - depth_.backward;
  const Tensor state = before > 0 ? model.loop_state(run, integers(run.ctx.arena, part.ids), before) : loop.start;
  std::memcpy(starts_.data(), state.view().data, starts_.size() * sizeof(float));
  run.loop = nullptr;
  run.routers = routers;
}

void Language::run(Ctx& ctx, int64_t begin, int64_t end, bool backward, Sums& sums) {
  const bool whole = begin == 0 && end == std::ssize(batch_.rows) - 1;
  if (!whole) data::take_rows(batch_, begin, end, part_);
  const data::Batch& part = whole ? batch_ : part_;
  const TaskPart rows{.rows = part, .whole = batch_, .held_out = held_out_batch_};
  if (task_) task_->look(ctx, rows);
  nn::Run run = run_of(ctx, part, shares_, backward);
  if (recipe_.policy.replay_routes) {
    rollouts_->routes_of(part.row_ids, routes_);
    replay_ = {.replay = &routes_};
    run.probe = &replay_;
  }
  if (loop_) run_undifferentiated(run, part);
  ctx.tape = backward ? &tape_ : nullptr;
  if (backward) ctx.arena.begin_pass(plan_->arena);
  {
    const Tensor ids = integers(ctx.arena, part.ids), targets = integers(ctx.arena, part.targets);
    nn::Loop loop;
    if (loop_) {
      loop = {.steps = depth_.steps,
              .first = depth_.steps - depth_.backward,
              .start = Tensor(ctx.arena, DType::f32, {std::ssize(part.ids), trained_->model->config().hidden})};
      std::memcpy(loop.start.mut().data, starts_.data(), starts_.size() * sizeof(float));
      run.loop = &loop;
    }
    models::Model& model = current();
    task_ ? task_->run(run, model, ids, targets, rows, sums)
          : predict(run, model.forward(run, ids), ids, targets, part, sums);
  }
  if (backward) tape_.backward(ctx);
  tape_.clear();
  if (backward) ctx.arena.end_pass();
  ctx.tape = nullptr;
}

// All stages have the same sums, though only the last adds to them.
void Language::run_parts(Ctx& ctx, std::span<const Range> parts, bool backward, Sums& sums) {
  if (nested_) return run_budgets(ctx, parts, backward, sums);
  if (!passes_) return Objective::run_parts(ctx, parts, backward, sums);
  name_losses(sums);
  const auto run = [&](Ctx& c, const data::Batch& part, TokenShares& shares) {
    return run_of(c, part, shares, backward);
  };
  const auto losses = [&](nn::Run& r, const Tensor& x, const Tensor& ids, const Tensor& targets,
                          const data::Batch& part) { predict(r, x, ids, targets, part, sums); };
  passes_->run(ctx, batch_, parts, backward, {run, losses});
}

// A step trains one model; held out are all of them, each by itself and together.
void Language::run_budgets(Ctx& ctx, std::span<const Range> parts, bool backward, Sums& sums) {
  if (backward) {
    use_budget(budget_, ctx.threads, static_cast<int64_t>(draws_.step));
    Objective::run_parts(ctx, parts, true, sums);
    nested_->add_gradients(budget_, ctx.threads);
    return;
  }
  for (size_t b = 0; b < nested_->count(); ++b) {
    use_budget(b, ctx.threads, {});
    Sums own;
    Objective::run_parts(ctx, parts, false, own);
    if (nested_->is_routed(b)) sums.add(nested_->metric("cost", b), nested_->cost(), 1);
    for (const Sums::Sum& s : own.all()) {
      sums.add(s.name, s.sum, s.count);
      sums.add(nested_->metric(s.name, b), s.sum, s.count);
    }
  }
}

void Language::use_budget(size_t budget, int threads, std::optional<int64_t> step) {
  budget_ = budget;
  plan_ = &plans_[budget];
  routers_.layers.clear();  // of other sizes
  nested_->take_values(budget, threads, step);
  flops_ = train::flops_per_token(current().config(), length());
}

void Language::name_losses(Sums& sums) const {
  const LossRecipe& loss = recipe_.loss;
  sums.add("loss", 0, 0);
  if (loss.z > 0) sums.add("z_loss", 0, 0);
  for (size_t i = 0; loss.mtp_scale > 0 && i < static_cast<size_t>(loss.mtp_steps); ++i) sums.add(kMtpNames[i], 0, 0);
}

void Language::predict(nn::Run& run, const Tensor& x, const Tensor& ids, const Tensor& targets, const data::Batch& part,
                       Sums& sums) {
  const LossRecipe& loss = recipe_.loss;
  const Totals own_totals = totals_of(part);
  const auto counted = [by_sample = loss.mean == "sample"](const Totals& t) { return by_sample ? t.samples : t.main; };
  models::Model::LossOptions options{.main_weight = 1.0 / at_least_one(counted(totals_)),
                                     .by_sample = loss.mean == "sample",
                                     .z = static_cast<float>(loss.z)};
  // The mean over the steps of the mean over the targets of each (docs/internals/train.md, Prediction loss).
  for (size_t i = 0; i < static_cast<size_t>(loss.mtp_steps) && totals_.mtp[i] > 0; ++i)
    options.mtp_weight[i] = loss.mtp_scale / static_cast<double>(loss.mtp_steps * totals_.mtp[i]);
  models::Model::LossSums own{.main = sums["loss"].sum};
  if (loss.z > 0) own.z = sums["z_loss"].sum;
  const size_t steps = loss.mtp_scale > 0 ? static_cast<size_t>(loss.mtp_steps) : 0;
  for (size_t i = 0; i < steps; ++i) own.mtp[i] = sums[kMtpNames[i]].sum;
  current().loss(run, x, ids, targets, options, own);
  const bool counts = !run.context || run.context->ranks->rank() == 0;  // for all that have tokens of these rows
  const auto put = [&sums, counts](const char* name, double sum, double more) {
    Sums::Sum& to = sums[name];
    to.sum = sum;
    to.count += counts ? more : 0;
  };
  put("loss", own.main, static_cast<double>(counted(own_totals)));
  if (loss.z > 0) put("z_loss", own.z, static_cast<double>(counted(own_totals)));
  for (size_t i = 0; i < steps; ++i) put(kMtpNames[i], own.mtp[i], static_cast<double>(own_totals.mtp[i]));
}

// The factor of z_loss, held out of each budget too, and the mean of the prediction block's steps. Of a budget there is
// no such mean: its name would be that of a step.
void Language::complete(Sums& sums) {
  const LossRecipe& loss = recipe_.loss;
  if (loss.z > 0) {
    sums["z_loss"].sum *= loss.z;
    for (size_t b = 0; nested_ && held_out_batch_ && b < nested_->count(); ++b)
      sums[nested_->metric("z_loss", b)].sum *= loss.z;
  }
  if (loss.mtp_scale == 0) return;
  double mean = 0;
  for (size_t i = 0; i < static_cast<size_t>(loss.mtp_steps); ++i)
    mean += sums.mean(kMtpNames[i]) / static_cast<double>(loss.mtp_steps);
  sums["mtp_loss"].sum = mean;
}

// What the routers did in this step, and the moves of their selection biases.
void Language::finish(bool updated, Sums& sums) {
  if (rollouts_) rollouts_->report(sums);
  const LossRecipe& loss = recipe_.loss;
  if (nested_) finish_budget(updated, sums);
  if (loop_) sums["loop_steps"].sum = static_cast<double>(depth_.steps);
  if (mesh_ && !routers_.layers.empty()) share_routers(*mesh_, routers_);
  add_metrics(loss, totals_.tokens, routers_, sums);
  if (updated) move_biases(loss, routers_, trained_->masters);
}

void Language::finish_budget(bool updated, Sums& sums) {
  sums["budget"].sum = nested_->share(budget_);
  if (recipe_.nest.router) sums["cost"].sum = nested_->is_routed(budget_) ? nested_->cost() : 1;
  if (!updated) return nested_->forget();
  const double lr =
      learning_rate(recipe_.schedule, recipe_.optimizer.lr, static_cast<int64_t>(draws_.step), recipe_.steps);
  nested_->learn(budget_, lr, [this](std::span<double> slopes) {
    if (mesh_) mesh_->add_up(slopes);
  });
}

void Language::write(std::span<const float> values, const fs::path& folder) {
  models::save_model(whole(), values, origin_, folder);
  write_sizes(folder);
}

void Language::lay_out(const fs::path& folder) {
  models::lay_out_model(whole(), origin_, folder);
  write_sizes(folder);
}

void Language::write_sizes(const fs::path& folder) const {
  if (nested_) io::write_text_file(folder / prune::kNestedFile, nested_->sizes_file());
}

fs::path Language::weights_in(const fs::path& folder) const { return models::weights_in(trained_->masters, folder); }

void Language::write_state(const fs::path& folder) const {
  if (rollouts_) rollouts_->write_state(folder);
  if (nested_) nested_->write_state(folder);
}

void Language::read_state(const fs::path& folder) {
  if (rollouts_) rollouts_->read_state(folder);
  if (nested_) nested_->read_state(folder);
}

std::vector<std::string> Language::results() const {
  return nested_ ? nested_->describe_sizes() : std::vector<std::string>();
}

std::vector<std::string> Language::notes() const {
  if (data_) return {data_->notes().begin(), data_->notes().end()};
  return {};
}

void Language::write_batch(const fs::path& path) const {
  const int64_t tokens = std::ssize(batch_.ids);
  io::SafetensorsWriter file(path, {{"ids", DType::i32, {tokens}}, {"targets", DType::i32, {tokens}}});
  file.write("ids", view_of(batch_.ids.data(), {tokens}));
  file.write("targets", view_of(batch_.targets.data(), {tokens}));
  file.finish();
}

}  // namespace braid::train
