#include "train/checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "io/atomic_file.h"
#include "io/atomic_folder.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "io/tensor_files.h"
#include "models/stored_rows.h"
#include "sys/check.h"
#include "sys/error.h"
#include "train/agreement.h"
#include "train/log.h"
#include "train/recipe_paths.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPrefix = "step-";
constexpr std::string_view kMean = "ema.";

fs::path folder_of(const fs::path& out) { return out / "checkpoints"; }

std::optional<int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const std::string digits = name.starts_with(kPrefix) ? name.substr(std::string_view(kPrefix).size()) : "";
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoll(digits);
}

// Does the model's own file lose bits of this master, or all of it?
bool loses_bits(const models::MasterWeights& masters, const models::MasterTensor& tensor) {
  if (tensor.beside) return true;
  return !masters.adapters() && (masters.products() == DType::bf16 || tensor.plus != 0);
}

struct ArrayKind {
  std::string_view prefix;
  const ArrayPart* part;
  bool only_lost;  // only of tensors whose bits the model's file loses
};

std::vector<ArrayKind> kinds_of(const Arrays& a) {
  std::vector<ArrayKind> kinds = {{"m.", &a.first, false}, {"v.", &a.second, false}, {"master.", &a.values, true}};
  if (!a.mean.array.empty()) kinds.push_back({kMean, &a.mean, false});
  return kinds;
}

// A tensor of state.safetensors.
struct StateTensor {
  io::TensorSpec spec;
  const ArrayPart* part;
  const models::MasterTensor* tensor;
};

// Those of `masters`, the whole model's.
std::vector<StateTensor> state_of(const models::MasterWeights& masters, const Arrays& arrays) {
  std::vector<StateTensor> list;
  for (const ArrayKind& kind : kinds_of(arrays)) {
    for (const models::MasterTensor& t : masters.tensors()) {
      if (kind.only_lost && !loses_bits(masters, t)) continue;
      list.push_back({{std::string(kind.prefix) + t.name, DType::f32, t.shape}, kind.part, &t});
    }
  }
  return list;
}

std::vector<io::TensorSpec> specs_of(const std::vector<StateTensor>& list) {
  std::vector<io::TensorSpec> specs;
  specs.reserve(list.size());
  for (const StateTensor& t : list) specs.push_back(t.spec);
  return specs;
}

void write_state(const fs::path& path, const Arrays& arrays) {
  const std::vector<StateTensor> list = state_of(arrays.masters, arrays);
  io::SafetensorsWriter writer(path, specs_of(list));  // all of one type: the order is kept
  std::vector<std::byte> bytes;
  for (const StateTensor& t : list) {
    bytes.resize(static_cast<size_t>(t.spec.bytes()));
    models::to_stored(*t.tensor, t.part->array, false, DType::f32, bytes);
    writer.write(t.spec.name, bytes);
  }
  writer.finish();
}

// Some elements of a tensor to their places in `files`, under a name that begins with `prefix`.
void write_elements(io::TensorFiles& files, std::string_view prefix, const ArrayPart& part, bool value,
                    const TensorElements& of) {
  const io::TensorFiles::Place& place = files.need(std::string(prefix) + of.tensor->name);
  CHECK(place.shape == of.tensor->shape, "{} of {}", of.tensor->name, to_string(place.shape));
  models::put_stored(*of.tensor, of.within(), part.at(of.elements), value, place.dtype,
                     [&](int64_t at, std::span<const std::byte> bytes) { files.write(place, at, bytes); });
}

void write_model(const fs::path& weights, const ArrayPart& values, std::span<const TensorElements> written) {
  io::TensorFiles files(weights);
  for (const TensorElements& w : written) {
    if (!w.tensor->beside) write_elements(files, "", values, true, w);
  }
  files.flush();
}

const View& need(const io::Safetensors& file, const std::string& name, const models::MasterTensor& tensor,
                 const std::string& where) {
  const View* view = file.find(name);
  if (!view) {
    fail(where, {.what = tensor.beside ? fmt::format("has no {}, which this recipe trains beside the model", name)
                                       : "is a checkpoint of another model: it has no " + name,
                 .hint = "the recipe it was written with, training/recipe.toml"});
  }
  if (view->shape != tensor.shape || view->dtype != DType::f32) {
    fail(where, {.what = "is a checkpoint of another shape: tensor " + name,
                 .got = fmt::format("{} {}", name_of(view->dtype), to_string(view->shape)),
                 .expected = "F32 " + to_string(tensor.shape)});
  }
  return *view;
}

std::span<const std::byte> bytes_of(const View& view) { return {view.data, static_cast<size_t>(view.bytes())}; }

std::vector<Range> ranges_of(const ArrayPart& part) {
  return part.own.empty() ? std::vector<Range>{{0, std::ssize(part.array)}} : part.own;
}

// From a file, what `part` has of a tensor.
void take(const View& stored, bool value, const models::MasterTensor& tensor, const ArrayPart& part) {
  for (const Range& own : ranges_of(part)) {
    const TensorElements of{&tensor, common(own, {tensor.offset, tensor.count()})};
    if (of.elements.count > 0) models::take_stored(tensor, of.within(), bytes_of(stored), value, part.at(of.elements));
  }
}

// `lost`: the file of weights lacks bits of it.
const View& weight_of(bool lost, const io::Safetensors& weights, const io::Safetensors& state,
                      const models::MasterTensor& tensor, const fs::path& folder) {
  const std::string where = printable(folder.string());
  return lost ? need(state, "master." + tensor.name, tensor, where) : need(weights, tensor.name, tensor, where);
}

// The entry of `out` that a log at this path creates.
std::string first_of(const fs::path& path) { return path.empty() ? "" : path.lexically_normal().begin()->string(); }

std::string state_text(const Progress& p, const Recipe& recipe) {
  const nlohmann::ordered_json state = {{"step", p.step},       {"tokens", p.tokens},    {"updates", p.updates},
                                        {"skipped", p.skipped}, {"dtype", recipe.dtype}, {"losses", p.losses},
                                        {"norms", p.norms}};
  return state.dump(1) + "\n";
}

void write_words(const fs::path& folder, const Progress& progress, const Recipe& recipe, const Facts& manifest) {
  io::write_text_file(folder / "state.json", state_text(progress, recipe));
  io::write_text_file(folder / "manifest.json", manifest_text(manifest));
  io::write_text_file(folder / "recipe.toml", to_toml(with_absolute_paths(recipe), false));
}

}  // namespace

std::span<float> ArrayPart::at(const Range& elements) const {
  if (!packed) return train::elements(array, elements);
  int64_t before = 0;
  for (const Range& r : own) {
    if (r.begin <= elements.begin && elements.begin + elements.count <= r.begin + r.count)
      return train::elements(array, {before + elements.begin - r.begin, elements.count});
    before += r.count;
  }
  CHECK(false, "no elements {} to {}", elements.begin, elements.begin + elements.count);
}

namespace {

std::vector<fs::path> list_steps(const fs::path& out, bool complete) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder_of(out), none)) {
    const auto step = step_of(entry.path());
    if (step && io::is_complete(entry.path()) == complete) found.emplace_back(*step, entry.path());
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  paths.reserve(found.size());
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

}  // namespace

std::vector<fs::path> list_checkpoints(const fs::path& out) { return list_steps(out, true); }
std::vector<fs::path> list_incomplete(const fs::path& out) { return list_steps(out, false); }

namespace {

// A file where the folder is to be, or one above it.
void refuse_file(const fs::path& out) {
  std::error_code none;
  for (fs::path at = out; !at.empty(); at = at.parent_path()) {
    if (fs::exists(at, none) && !fs::is_directory(at, none))
      fail("out", {.what = "is to be a folder, and a file is in its place",
                   .got = printable(at.string()),
                   .hint = "another out"});
    if (fs::exists(at, none) || at == at.parent_path()) return;
  }
}

}  // namespace

void check_out(const Recipe& recipe) {
  if (recipe.out.empty()) return;  // another check reports it
  const fs::path out(recipe.out);
  refuse_file(out);
  check_logs(out, recipe.log);
  if (!list_checkpoints(out).empty()) return;
  const std::string own[] = {"checkpoints",
                             "loss.csv",
                             "loss.svg",
                             "rollouts.jsonl",
                             first_of(recipe.log.jsonl),
                             first_of(recipe.log.tensorboard)};
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(out, none)) {
    const std::string name = entry.path().filename().string();
    const bool known = std::find(std::begin(own), std::end(own), name) != std::end(own) || name.starts_with(".") ||
                       name.starts_with("bad-batch-") || (name == "init" && io::is_complete(entry.path()));
    if (known) continue;
    if (const auto incomplete = list_incomplete(out); !incomplete.empty())
      fail(printable(incomplete.back().string()), {.what = "is incomplete, and no other checkpoint is there",
                                                   .expected = "a folder with the file DONE, which is written last",
                                                   .hint = "copying it again, or another out"});
    fail(printable(recipe.out), {.what = fmt::format("holds {}, which does not belong to a run", printable(name)),
                                 .expected = "a new folder, an empty one, or one with the checkpoints of a run",
                                 .hint = "another out"});
  }
}

void check_merge(const Recipe& recipe) {
  const int64_t every = recipe.checkpoint.every;
  const int64_t made = every > 0 ? (recipe.steps + every - 1) / every : 1;
  if (recipe.checkpoint.merge <= made) return;
  fail("checkpoint.merge", {.what = "the run makes fewer checkpoints",
                            .got = std::to_string(recipe.checkpoint.merge),
                            .expected = fmt::format("at most {}", made),
                            .hint = "a smaller checkpoint.every"});
}

Checkpoints::Checkpoints(const Recipe& recipe, Objective& objective, bool writes)
    : out_(recipe.out), recipe_(recipe.checkpoint), steps_(recipe.steps), objective_(objective), writes_(writes) {
  if (!writes) return;
  std::error_code failed;
  fs::create_directories(folder_of(out_), failed);
  if (failed) fail_environment(printable(out_.string()), {.what = "cannot be created", .got = failed.message()});
  io::sweep_remnants(folder_of(out_));
  io::sweep_remnants(out_);
}

fs::path Checkpoints::path_of(int64_t step) const { return folder_of(out_) / fmt::format("{}{:08}", kPrefix, step); }

void Checkpoints::save(const Arrays& arrays, const Progress& progress, const Recipe& recipe,
                       const Facts& manifest) const {
  const fs::path path = path_of(progress.step);
  io::AtomicFolder folder(path);
  objective_.write(arrays.values.array, folder.place());
  const fs::path training = folder.place() / "training";
  fs::create_directories(training);
  write_state(training / "state.safetensors", arrays);
  write_words(training, progress, recipe, manifest);
  objective_.write_state(training);
  folder.commit();
  publish(path);
  remove_old();
}

std::unique_ptr<SharedFolder> Checkpoints::begin(comm::Group& world, const Arrays& arrays, const Progress& progress,
                                                 const Recipe& recipe, const Facts& manifest) const {
  auto folder = std::make_unique<SharedFolder>(world, out_, path_of(progress.step));
  if (folder->blind() >= 0) return folder;
  folder->lay_out([&](const fs::path& place) {
    objective_.lay_out(place);
    const fs::path training = place / "training";
    fs::create_directories(training);
    io::lay_out_safetensors(training / "state.safetensors", specs_of(state_of(objective_.whole(), arrays)));
    write_words(training, progress, recipe, manifest);
    objective_.write_state(training);
  });
  return folder;
}

void Checkpoints::write_parts(const SharedFolder& folder, const Arrays& arrays,
                              std::span<const TensorElements> written) const {
  write_model(objective_.weights_in(folder.place()), arrays.values, written);
  io::TensorFiles state(folder.place() / "training" / "state.safetensors");
  for (const ArrayKind& kind : kinds_of(arrays)) {
    for (const TensorElements& w : written) {
      if (!kind.only_lost || loses_bits(arrays.masters, *w.tensor))
        write_elements(state, kind.prefix, *kind.part, false, w);
    }
  }
  state.flush();
}

void Checkpoints::finish(SharedFolder& folder) const {
  if (!writes_) return;
  folder.commit();
  publish(folder.path());
  remove_old();
}

// A model in out/name: `prepare` is called on the first rank, then `write` on all. False: not all of them see `out`.
bool Checkpoints::share(comm::Group& world, const char* name, sys::FunctionRef<void()> prepare,
                        sys::FunctionRef<void(const fs::path& weights)> write) const {
  SharedFolder folder(world, out_, out_ / name);
  if (folder.blind() >= 0) return false;
  folder.lay_out([&](const fs::path& place) {
    objective_.lay_out(place);
    prepare();
  });
  std::optional<Error> problem;
  try {
    write(objective_.weights_in(folder.place()));
  } catch (const Error& error) {
    problem = error;
  }
  agree(world, problem);
  folder.commit();
  return true;
}

bool Checkpoints::write_shared(comm::Group& world, const ArrayPart& values, std::span<const TensorElements> written,
                               const char* name) const {
  return share(
      world, name, [] {}, [&](const fs::path& weights) { write_model(weights, values, written); });
}

bool Checkpoints::owns(const fs::path& folder) const {
  std::error_code ignored;
  return fs::equivalent(folder / "..", folder_of(out_), ignored);
}

// The files of the newest model are also in `out`, as hard links.
void Checkpoints::publish(const fs::path& checkpoint) const {
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const fs::path name = entry.path().filename();
    if (!entry.is_regular_file() || name == "DONE") continue;
    const fs::path target = out_ / name, temporary = out_ / ("." + name.string() + ".part");
    std::error_code failed, ignored;
    if (fs::equivalent(entry.path(), target, ignored)) continue;
    fs::remove(temporary, ignored);
    fs::create_hard_link(entry.path(), temporary, failed);
    if (failed) fs::copy_file(entry.path(), temporary, failed);
    if (!failed) fs::rename(temporary, target, failed);
    if (!failed) continue;
    fs::remove(temporary, ignored);
    fail_environment(printable(target.string()), {.what = "cannot be published", .got = failed.message()});
  }
}

void Checkpoints::remove_old() const {
  const auto all = list_checkpoints(out_), regular = list_regular();
  const auto among_last = [](const std::vector<fs::path>& list, int64_t count, const fs::path& path) {
    return std::find(list.end() - std::min(count, std::ssize(list)), list.end(), path) != list.end();
  };
  for (const fs::path& path : all) {
    if (recipe_.keep_every > 0 && *step_of(path) % recipe_.keep_every == 0) continue;
    if (among_last(all, recipe_.keep, path) || among_last(regular, std::max(recipe_.keep, recipe_.merge), path))
      continue;
    io::remove_folder(path);
  }
}

std::vector<fs::path> Checkpoints::list_regular() const {
  std::vector<fs::path> list = list_checkpoints(out_);
  std::erase_if(list, [&](const fs::path& path) {
    const int64_t step = *step_of(path);
    return step == 0 || (step != steps_ && (recipe_.every == 0 || step % recipe_.every != 0));
  });
  return list;
}

// Of the same step, the one set aside last is kept.
void Checkpoints::set_aside_after(int64_t step) const {
  for (const fs::path& path : list_checkpoints(out_)) {
    if (*step_of(path) <= step) continue;
    const fs::path aside = folder_of(out_) / fmt::format("left-{:08}", *step_of(path));
    if (fs::exists(aside)) io::remove_folder(aside);
    std::error_code failed;
    fs::rename(path, aside, failed);
    if (failed) fail_environment(printable(path.string()), {.what = "cannot be renamed", .got = failed.message()});
  }
}

std::vector<fs::path> Checkpoints::last_regular(int64_t count) const {
  std::vector<fs::path> all = list_regular();
  if (std::ssize(all) < count) {
    fail("checkpoint.merge", {.what = "there are fewer checkpoints to merge",
                              .got = std::to_string(all.size()),
                              .expected = std::to_string(count),
                              .hint = "a smaller checkpoint.every"});
  }
  all.erase(all.begin(), all.end() - count);
  return all;
}

void Checkpoints::merge(const models::MasterWeights& masters, int64_t count) const {
  const auto all = last_regular(count);
  std::vector<float> mean(static_cast<size_t>(masters.size()));
  std::vector<float> one(mean.size());
  for (const fs::path& folder : all) {
    const io::Safetensors weights(objective_.weights_in(folder)), state(folder / "training" / "state.safetensors");
    for (const models::MasterTensor& t : masters.tensors()) {
      const bool lost = loses_bits(masters, t);
      models::from_stored(t, bytes_of(weight_of(lost, weights, state, t, folder)), !lost, one);
    }
    const auto weight = 1.0f / static_cast<float>(all.size());
    for (size_t j = 0; j < mean.size(); ++j) mean[j] += weight * one[j];
  }
  write(mean, "merged");
}

// The mean of what is this rank's: it reads nothing else of the checkpoints, which the first rank names.
bool Checkpoints::merge_shared(comm::Group& world, std::span<const TensorElements> written, int64_t count) const {
  std::string names;
  const auto list = [&] {
    for (const fs::path& path : last_regular(count)) names += path.filename().string() + '\n';
  };
  return share(world, "merged", list, [&](const fs::path& to) {
    ArrayPart mean{.packed = true};
    int64_t size = 0, largest = 0;
    for (const TensorElements& w : written) {
      mean.own.push_back(w.elements);
      size += w.elements.count;
      largest = std::max(largest, w.elements.count);
    }
    std::vector<float> sums(static_cast<size_t>(size)), one(static_cast<size_t>(largest));
    mean.array = sums;
    const auto weight = 1.0f / static_cast<float>(count);
    std::istringstream checkpoints(told_by_first(world, names));
    for (std::string name; std::getline(checkpoints, name);) {
      const fs::path folder = folder_of(out_) / name;
      const io::Safetensors weights(objective_.weights_in(folder)), state(folder / "training" / "state.safetensors");
      auto sum = sums.begin();
      for (const TensorElements& w : written) {
        const std::span<float> values = elements(one, {0, w.elements.count});
        const bool lost = loses_bits(objective_.masters(), *w.tensor);
        const View& view = weight_of(lost, weights, state, *w.tensor, folder);
        models::take_stored(*w.tensor, w.within(), bytes_of(view), !lost, values);
        for (const float value : values) *sum++ += weight * value;
      }
    }
    write_model(to, mean, written);
  });
}

void Checkpoints::write(std::span<const float> values, const char* name) const {
  io::AtomicFolder folder(out_ / name);
  objective_.write(values, folder.place());
  folder.commit();
}

bool Checkpoints::is_readable(const fs::path& folder) const {
  try {
    for (const char* name : {"state.json", "manifest.json"}) {
      if (const fs::path file = folder / "training" / name; fs::exists(file)) io::Json::read(file);
    }
    const io::Safetensors weights(objective_.weights_in(folder)), state(folder / "training" / "state.safetensors");
    return true;
  } catch (const Error&) {
    return false;
  }
}

void Checkpoints::refuse(const Error& error, const fs::path& folder) const {
  if (!io::is_complete(folder) || is_readable(folder)) throw error;
  const auto all = list_checkpoints(out_);
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    if (is_readable(*at))
      throw Error(error.fault(), fmt::format("{}; try --resume {}", error.what(), printable(at->string())));
  }
  throw error;
}

void check_checkpoint(const fs::path& folder) {
  if (io::is_complete(folder)) return;
  std::error_code none;
  const auto own = list_checkpoints(folder);
  if (!own.empty())
    fail(printable(folder.string()), {.what = "is the folder of a run, not one of its checkpoints",
                                      .hint = "--resume " + printable(own.back().string())});
  fail(printable(folder.string()), {.what = !fs::exists(folder, none)         ? "no such checkpoint"
                                            : !fs::is_directory(folder, none) ? "is a file, not a checkpoint"
                                                                              : "is not a complete checkpoint",
                                    .expected = "a folder with the file DONE, as in out/checkpoints/step-00000100",
                                    .hint = "--resume auto, for the latest of out"});
}

std::vector<std::string> manifest_differences(const fs::path& folder, const Facts& manifest) {
  check_checkpoint(folder);
  const fs::path file = folder / "training" / "manifest.json";
  if (!fs::exists(file)) return {"it has no training/manifest.json to compare, so it may belong to any run"};
  const io::Json stored = io::Json::read(file);
  if (!stored.is_object()) stored.refuse("is not a manifest", "an object with one member per word");
  return differences(stored, manifest);
}

Progress Checkpoints::load(const fs::path& folder, const Arrays& arrays) const {
  const std::string where = printable(folder.string());
  const io::Json state = io::Json::read(folder / "training" / "state.json");
  const std::string dtype = arrays.masters.products() == DType::bf16 ? "bf16" : "f32";
  if (const io::Json stored = state.need({"dtype"}); stored.as_string() != dtype)
    stored.refuse("is not the recipe's", "dtype = " + dtype);
  const io::Safetensors weights(objective_.weights_in(folder)), moments(folder / "training" / "state.safetensors");
  const bool has_mean = std::any_of(moments.tensors().begin(), moments.tensors().end(),
                                    [](const io::StoredTensor& t) { return t.name.starts_with(kMean); });
  for (const ArrayKind& kind : kinds_of(arrays)) {
    if (kind.prefix == kMean && !has_mean) {  // [ema] was added: it starts from the weights, which are loaded before it
      for (const Range& own : ranges_of(*kind.part)) {
        const std::span<float> from = arrays.values.at(own);
        std::copy(from.begin(), from.end(), kind.part->at(own).begin());
      }
      continue;
    }
    for (const models::MasterTensor& t : arrays.masters.tensors()) {
      const bool value = kind.only_lost && !loses_bits(arrays.masters, t);
      const View& view =
          value ? need(weights, t.name, t, where) : need(moments, std::string(kind.prefix) + t.name, t, where);
      take(view, value, t, *kind.part);
    }
  }
  for (const Range& own : ranges_of(arrays.values)) objective_.masters().round(own, 1);
  constexpr io::IntRange kCount{0, int64_t{1} << 60};
  Progress progress{.step = state.need({"step"}).as_int(kCount),
                    .tokens = state.need({"tokens"}).as_int(kCount),
                    .updates = state.need({"updates"}).as_int(kCount),
                    .skipped = state.need({"skipped"}).as_int(kCount),
                    .losses = {},
                    .norms = {}};
  for (const io::Json& loss : state.need({"losses"}).items()) progress.losses.push_back(loss.as_number());
  for (const io::Json& norm : state.need({"norms"}).items()) progress.norms.push_back(norm.as_number());
  objective_.read_state(folder / "training");
  if (progress.step > steps_) {
    fail(printable(folder.string()), {.what = "is past the last step of the recipe",
                                      .got = fmt::format("step {}", progress.step),
                                      .expected = fmt::format("at most steps = {}", steps_),
                                      .hint = "a larger steps, which counts from the beginning of the run"});
  }
  return progress;
}

// Of another folder's run `out` has none, whatever else it holds.
void Checkpoints::check_merge_after(const fs::path& folder, int64_t step) const {
  const bool own = owns(folder);
  int64_t count = own ? 0 : step == steps_;
  for (const fs::path& path : own ? list_regular() : std::vector<fs::path>()) count += *step_of(path) <= step;
  if (step < steps_) count += 1 + (recipe_.every > 0 ? (steps_ - 1) / recipe_.every - step / recipe_.every : 0);
  if (recipe_.merge <= std::max<int64_t>(count, 1)) return;
  fail("checkpoint.merge", {.what = fmt::format("the run that goes on from step {} ends with fewer checkpoints in {}",
                                                step, printable(out_.string())),
                            .got = std::to_string(recipe_.merge),
                            .expected = fmt::format("at most {}", std::max<int64_t>(count, 1)),
                            .hint = own ? "checkpoint.merge=0" : "out, the folder of the run that is resumed"});
}

void Checkpoints::go_on_from(const fs::path& folder, int64_t step) const {
  if (!writes_) return;
  check_merge_after(folder, step);
  set_aside_after(step);
  // A run may have ended between saving and publishing, and with no step left that would publish.
  const auto all = list_checkpoints(out_);
  std::error_code ignored;
  if (!all.empty() && fs::equivalent(all.back(), folder, ignored)) publish(folder);
}

}  // namespace braid::train
