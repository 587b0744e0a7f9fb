// A checkpoint that ranks write together has the bytes of one that a single rank writes, whatever they divide; nothing
// of the model travels for it, and each rank reads back what is its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "comm/inproc.h"
#include "io/atomic_folder.h"
#include "models/load.h"
#include "models/save.h"
#include "support/data.h"
#include "support/error_of.h"
#include "support/folder.h"
#include "sys/read.h"
#include "train/agreement.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/running_mean.h"
#include "train/stage_passes.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

// Weights alone.
class WeightsObjective final : public Objective {
 public:
  WeightsObjective(models::MasterWeights& masters, const models::MasterWeights* whole, fs::path origin)
      : masters_(masters), whole_(whole), origin_(std::move(origin)) {}
  models::MasterWeights& masters() override { return masters_; }
  const models::MasterWeights& whole() override { return whole_ ? *whole_ : masters_; }
  std::vector<Param*> params() override { return {}; }
  int64_t draw(int64_t, bool) override { return 0; }
  bool holds_out() const override { return false; }
  int64_t tokens() const override { return 0; }
  void run(Ctx&, int64_t, int64_t, bool, Sums&) override {}
  void finish(bool, Sums&) override {}
  void write(std::span<const float> values, const fs::path& folder) override {
    models::save_model(whole(), values, origin_, folder);
  }
  void lay_out(const fs::path& folder) override { models::lay_out_model(whole(), origin_, folder); }
  fs::path weights_in(const fs::path& folder) const override { return folder; }
  void write_batch(const fs::path&) const override {}
  Facts facts() const override { return {}; }

 private:
  models::MasterWeights& masters_;
  const models::MasterWeights* whole_;
  fs::path origin_;
};

// Four arrays that tell every element of every tensor from all others.
constexpr int kArrays = 4;
using Whole = std::array<std::vector<float>, kArrays>;

Whole whole_arrays(const models::MasterWeights& masters) {
  Whole arrays;
  for (int k = 0; k < kArrays; ++k) {
    std::vector<float>& array = arrays[static_cast<size_t>(k)];
    array.resize(static_cast<size_t>(masters.size()));
    for (const models::MasterTensor& t : masters.tensors()) {
      for (int64_t i = 0; i < t.count(); ++i)
        array[static_cast<size_t>(t.offset + i)] =
            static_cast<float>(k + 1) + 1e-6f * static_cast<float>(t.offset % 9973 + 7 * i);
    }
  }
  return arrays;
}

class SharedCheckpointTest : public support::FolderTest {
 protected:
  SharedCheckpointTest() : one_(DType::f32) {
    recipe_.out = (folder_ / "one").string();
    recipe_.steps = 9;
    recipe_.accumulate = 4;
    recipe_.checkpoint.every = 1;
  }

  // What a rank of a mesh has of the arrays.
  struct RankArrays {
    std::vector<float> values, first, second, mean;
    std::vector<Range> own, kept;

    Arrays of(const models::MasterWeights& masters) {
      return {masters, {values, kept}, {first, own, true}, {second, own, true}, {mean, kept, true}};
    }
  };
  static std::vector<float> part(const models::MasterWeights& masters, const models::MasterWeights& one,
                                 const std::vector<float>& whole) {
    std::vector<float> own(static_cast<size_t>(masters.size()));
    for (const models::MasterTensor& t : masters.tensors())
      models::take_held(t, std::span(whole).subspan(static_cast<size_t>(one.tensor(t.name).offset)),
                        std::span(own).subspan(static_cast<size_t>(t.offset)));
    return own;
  }
  static std::vector<float> packed(const std::vector<float>& array, const std::vector<Range>& own) {
    const auto parts = parts_of(array, own);
    return {parts.begin(), parts.end()};
  }
  static RankArrays arrays_of(const models::MasterWeights& masters, const models::MasterWeights& one,
                              const Whole& whole, Mesh& mesh) {
    RankArrays a;
    a.own = mesh.own(masters);
    a.kept = mesh.divides_weights() ? a.own : std::vector<Range>{{0, masters.size()}};
    a.values = part(masters, one, whole[0]);
    if (mesh.divides_weights()) {  // what other ranks have is not there
      std::vector<float> kept(a.values.size(), -1.0f);
      for (const Range& r : a.own)
        std::copy_n(&a.values[static_cast<size_t>(r.begin)], r.count, &kept[static_cast<size_t>(r.begin)]);
      a.values = kept;
    }
    a.first = packed(part(masters, one, whole[1]), a.own);
    a.second = packed(part(masters, one, whole[2]), a.own);
    a.mean = packed(part(masters, one, whole[3]), a.kept);
    return a;
  }

  static std::map<std::string, std::string> files_of(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file())
        files[entry.path().lexically_relative(folder).string()] = sys::read_file(entry.path());
    }
    return files;
  }

  void write_one(DType dtype) {
    recipe_.dtype = dtype == DType::bf16 ? "bf16" : "f32";
    models::MasterWeights masters(dtype);
    const auto model = masters.load(model_);
    one_.own_whole(model_);
    ASSERT_EQ(masters.size(), one_.size());
    Whole by_load = whole_arrays(one_);
    whole_ = by_load;
    // The tensors of a loaded model may be in another order.
    for (auto& array : by_load) array = part(masters, one_, array);
    WeightsObjective objective(masters, nullptr, model_.folder);
    Checkpoints one(recipe_, objective);
    one.save({masters, {by_load[0]}, {by_load[1]}, {by_load[2]}, {by_load[3]}}, progress_, recipe_, facts_);
    want_ = files_of(folder_ / "one" / "checkpoints" / "step-00000003");
    ASSERT_GE(want_.size(), 6u);
  }

  // Saves on such ranks, and loads on each.
  void expect_same(int ranks, const std::function<void(Recipe&)>& divide) {
    Recipe recipe = recipe_;
    recipe.out = (folder_ / "many").string();
    fs::remove_all(recipe.out);
    divide(recipe);
    std::string name;
    for (const auto& [word, value] : changed_words(recipe)) {
      if (word.starts_with("parallel") || word.starts_with("optimizer")) name += word + " " + value + " ";
    }
    comm::run_in_process(ranks, {.per_node = ranks}, [&](comm::Group& world) { rank(world, recipe, name); });
    const auto got = files_of(folder_ / "many" / "checkpoints" / "step-00000003");
    for (const auto& [file, bytes] : want_) EXPECT_TRUE(got.contains(file) && got.at(file) == bytes) << name << file;
    EXPECT_EQ(got.size(), want_.size()) << name;
    EXPECT_TRUE(fs::exists(folder_ / "many" / "model.safetensors")) << name;
  }

  void rank(comm::Group& world, const Recipe& recipe, const std::string& name) {
    Mesh mesh(recipe, world);
    const DType dtype = recipe.dtype == "bf16" ? DType::bf16 : DType::f32;
    models::MasterWeights masters(dtype, mesh.parted());
    models::Stage stage;
    if (mesh.pipe()) stage = stage_of(recipe, models::load_config(model_), 8, mesh.stage());
    const auto model = masters.load(model_, 1, mesh.cut(), mesh.expert_cut(), stage);
    std::optional<models::MasterWeights> whole;
    if (mesh.divides_model() && mesh.first()) whole.emplace(dtype, models::Parted{true, true}).own_whole(model_);
    WeightsObjective objective(masters, whole ? &*whole : nullptr, model_.folder);
    const Checkpoints checkpoints(recipe, objective, mesh.first());
    mesh.barrier();
    RankArrays arrays = arrays_of(masters, one_, whole_, mesh);
    const int64_t before = mesh.bytes_sent();
    const auto written = mesh.written(masters, objective.whole());
    const auto folder = checkpoints.begin(world, arrays.of(masters), progress_, recipe_, facts_);
    ASSERT_EQ(folder->blind(), -1) << name;
    const int64_t begun = mesh.bytes_sent();
    checkpoints.write_parts(*folder, arrays.of(masters), written);
    EXPECT_EQ(mesh.bytes_sent(), begun) << name;
    agree(world, std::nullopt);
    checkpoints.finish(*folder);
    // Names of tensors as hashes, a token, the name of the folder: a hundredth of the model.
    EXPECT_LT(mesh.bytes_sent() - before, int64_t{100} * 1000) << name;
    mesh.barrier();

    RankArrays again = arrays;
    for (auto* array : {&again.values, &again.first, &again.second, &again.mean})
      std::fill(array->begin(), array->end(), -1.0f);
    checkpoints.load(folder_ / "one" / "checkpoints" / "step-00000003", again.of(masters));
    expect_elements(again, arrays, masters, name);
    mesh.barrier();
  }

  // Not what lies between tensors.
  static void expect_elements(RankArrays& got, RankArrays& want, const models::MasterWeights& masters,
                              const std::string& name) {
    const Arrays a = got.of(masters), b = want.of(masters);
    const std::pair<const ArrayPart*, const ArrayPart*> pairs[] = {
        {&a.values, &b.values}, {&a.first, &b.first}, {&a.second, &b.second}, {&a.mean, &b.mean}};
    for (const auto& [x, y] : pairs) {
      for (const models::MasterTensor& t : masters.tensors()) {
        for (const Range& own : x->own) {
          const Range of = common(own, {t.offset, t.count()});
          const auto u = x->at(of.count > 0 ? of : Range{own.begin, 0}),
                     v = y->at(of.count > 0 ? of : Range{own.begin, 0});
          ASSERT_TRUE(std::equal(u.begin(), u.end(), v.begin(), v.end())) << name << t.name;
        }
      }
    }
  }

  const io::ModelPath model_ = io::find_model(support::data("hf/nemotron-h-latent-mtp"));
  Recipe recipe_;
  models::MasterWeights one_;
  Whole whole_;
  std::map<std::string, std::string> want_;
  Progress progress_{.step = 3, .tokens = 7, .updates = 2, .skipped = 1, .losses = {1, 2}, .norms = {3}};
  Facts facts_ = {{"content of the data", "\"one\""}};
};

TEST_F(SharedCheckpointTest, HasTheBytesOfOneRank) {
  write_one(DType::f32);
  for (const int64_t zero : {0, 1, 2, 3}) {
    if (zero > 0) expect_same(3, [&](Recipe& r) { r.parallel.zero = zero; });
    expect_same(4, [&](Recipe& r) { r.parallel.zero = zero, r.parallel.tp = 2; });
    expect_same(8, [&](Recipe& r) { r.parallel.zero = zero, r.parallel.tp = 4; });  // pairs share keys and groups
    expect_same(4, [&](Recipe& r) { r.parallel.zero = zero, r.parallel.ep = 2, r.parallel.etp = 2; });
    expect_same(8, [&](Recipe& r) { r.parallel.zero = zero, r.parallel.tp = 2, r.parallel.ep = 4; });
    expect_same(4, [&](Recipe& r) { r.parallel.zero = zero, r.parallel.pp = 2; });
    expect_same(8,
                [&](Recipe& r) { r.parallel.zero = zero, r.parallel.pp = 2, r.parallel.tp = 2, r.parallel.sp = true; });
  }
  expect_same(2, [](Recipe& r) { r.parallel.tp = 2; });
  expect_same(8, [](Recipe& r) { r.parallel.tp = 8; });
  expect_same(8, [](Recipe& r) { r.parallel.tp = 4, r.parallel.sp = true, r.parallel.ep = 8; });
  expect_same(4, [](Recipe& r) { r.parallel.cp = 2, r.parallel.zero = 1; });
  expect_same(4, [](Recipe& r) { r.parallel.zero = 1, r.parallel.tp = 2, r.optimizer.kind = "muon"; });
  for (const char* grid : {"2,1,2,1", "1,1,2,2", "1,2,2,1", "2,2,1,2", "2,2,2,1", "4,2,1,1", "4,1,2,1"})
    expect_same(std::string_view("2,2,1,2 2,2,2,1 4,2,1,1 4,1,2,1").find(grid) != std::string_view::npos ? 8 : 4,
                [&](Recipe& r) { r.parallel.grid = grid; });
}

TEST_F(SharedCheckpointTest, RoundedWeightsToo) {
  write_one(DType::bf16);
  expect_same(4, [](Recipe& r) { r.parallel.tp = 2, r.parallel.zero = 3; });
  expect_same(2, [](Recipe& r) { r.parallel.pp = 2; });
}

// One rank that cannot write is named by all, and what was there stays.
TEST_F(SharedCheckpointTest, OneRankFailsForAll) {
  const fs::path out = folder_ / "out", path = out / "step";
  fs::create_directories(path);
  write("out/step/old", "old");
  std::vector<std::string> errors(3);
  const std::string first = support::error_of([&] {
    comm::run_in_process(3, {.per_node = 3}, [&](comm::Group& world) {
      SharedFolder folder(world, out, path);
      folder.lay_out([](const fs::path& place) { fs::create_directories(place / "made"); });
      EXPECT_TRUE(fs::exists(folder.place() / "made"));
      std::optional<Error> problem;
      if (world.rank() == 2)
        problem = Error(Fault::environment, "[x/y] cannot be written; got No space left on device");
      errors[static_cast<size_t>(world.rank())] = support::error_of([&] { agree(world, problem); });
      throw Error(Fault::environment, errors[static_cast<size_t>(world.rank())]);
    });
  });
  EXPECT_EQ(first, "[rank 2: x/y] cannot be written; got No space left on device");
  for (const std::string& error : errors) EXPECT_EQ(error, first);
  EXPECT_EQ(std::distance(fs::directory_iterator(out), {}), 1);
  EXPECT_EQ(sys::read_file(path / "old"), "old");
}

TEST_F(SharedCheckpointTest, ARankThatSeesOtherFiles) {
  comm::run_in_process(3, {.per_node = 3}, [&](comm::Group& world) {
    const fs::path out = folder_ / (world.rank() == 1 ? "elsewhere" : "out");
    fs::create_directories(out);
    EXPECT_EQ(SharedFolder(world, out, out / "step").blind(), 1);
    world.barrier().wait();
  });
  EXPECT_TRUE(fs::is_empty(folder_ / "out"));
}

}  // namespace
}  // namespace braid::train
