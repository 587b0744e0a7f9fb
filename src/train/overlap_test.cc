// What travels during the passes, in which order: a transport that notes every message, and delivers none before the
// test says so, takes the place of the other ranks.
#include "train/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "comm/transport.h"

namespace braid::train {
namespace {

// The first of two ranks. Of the other one's messages, which are zeros, as many arrive as `open` says.
class Gate final : public comm::Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void send(comm::Message& message) override { message.done = true; }
  void recv(comm::Message& message) override {
    waiting_.push_back(&message);
    ++asked;
  }
  void progress(std::chrono::microseconds) override {
    if (waiting_.empty() || arrived >= open) return std::this_thread::yield();
    comm::Message& message = *waiting_.front();
    waiting_.erase(waiting_.begin());
    std::fill_n(message.data, message.bytes, std::byte{});
    message.got_bytes = message.bytes;
    message.done = true;
    ++arrived;
  }
  void forget() noexcept override { waiting_.clear(); }
  std::byte* window(uint64_t, int, int64_t) override { return nullptr; }

  std::atomic<int64_t> asked = 0, arrived = 0, open = 0;  // messages

 private:
  std::vector<comm::Message*> waiting_{};
};

// Layers 0 to 2 of a matrix each between a table and a norm, on one of two ranks that divide the state, and of two that
// have the same part of it.
class OverlapOrder : public testing::Test {
 protected:
  static constexpr int64_t kLayers = 3;

  // `owns`: the rank's part of the state is all of it; or nothing.
  Overlap& make(bool owns) {
    std::vector<models::MasterTensor> tensors;
    for (int layer = -1; layer <= static_cast<int>(kLayers); ++layer) {
      tensors.push_back({.name = std::to_string(layer),
                         .role = ParamRole::up,
                         .shape = {4, 32},
                         .layer = layer < kLayers ? layer : -1});
    }
    masters_.own(tensors);
    const int64_t size = masters_.size();
    family_ = {.elements = {0, size},
               .ranks = &z_,
               .copies = &d_,
               .counts = {owns ? size : 0, owns ? 0 : size},
               .own = {0, owns ? size : 0}};
    return overlap_.emplace(masters_, family_, std::span<const PartialSum>(), Overlap::Rules{.divides = true}, waits_);
  }

  static comm::Group group(Gate*& gate) {
    auto owned = std::make_unique<Gate>();
    gate = owned.get();
    return {std::move(owned), {.timeout = std::chrono::seconds(20), .per_node = 2, .compare_calls = false}};
  }

  Gate *over_z_ = nullptr, *over_d_ = nullptr;
  comm::Group z_ = group(over_z_), d_ = group(over_d_);
  models::MasterWeights masters_{DType::f32};
  Family family_{};
  Waits waits_{};
  std::optional<Overlap> overlap_{};
};

// The sum of a layer over z is on its way during the pass of the layer below, that over d, which needs it, during the
// next one; a rank waits for neither before.
TEST_F(OverlapOrder, GradientsTravelDuringThePassesOfLayersBelow) {
  Overlap& overlap = make(true);
  overlap.begin_passes();
  overlap.begin(2, true);
  EXPECT_EQ(over_z_->asked, 0);
  overlap.end(2, true);
  EXPECT_EQ(over_z_->asked, 1);
  overlap.begin(1, true);
  EXPECT_EQ(over_z_->arrived + over_d_->asked, 0);
  over_z_->open = 1;
  overlap.end(1, true);
  EXPECT_EQ(over_z_->arrived, 1);
  EXPECT_EQ(over_z_->asked, 2);
  EXPECT_EQ(over_d_->asked, 1);
  overlap.begin(0, true);
  over_z_->open = 2;
  overlap.end(0, true);
  EXPECT_EQ(over_z_->asked, 3);
  EXPECT_EQ(over_d_->asked, 2);
  EXPECT_EQ(over_d_->arrived, 0);
  over_z_->open = over_d_->open = 1000;
  overlap.finish();
  EXPECT_EQ(over_z_->arrived, kLayers + 2);
  EXPECT_EQ(over_d_->arrived, kLayers + 2);
}

// Those of the next layer are on their way during the pass of one that has all of its own, once a step.
TEST_F(OverlapOrder, WeightsOfTheNextLayerTravelDuringThePassOfOne) {
  Overlap& overlap = make(false);
  overlap.gather_later();
  EXPECT_EQ(over_z_->asked, 0);
  constexpr int64_t kRest = 2;  // runs of elements of no layer
  over_z_->open = kRest;
  overlap.begin_passes();
  EXPECT_EQ(over_z_->arrived, kRest);
  EXPECT_EQ(over_z_->asked, kRest + 1);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    over_z_->open = kRest + layer + 1;
    overlap.begin(layer, false);
    EXPECT_EQ(over_z_->arrived, kRest + layer + 1);
    EXPECT_EQ(over_z_->asked, kRest + std::min(layer + 2, kLayers));
    overlap.end(layer, false);
  }
  overlap.end_passes();
  overlap.begin_passes();
  overlap.begin(0, false);
  EXPECT_EQ(over_z_->asked, kRest + kLayers);
}

}  // namespace
}  // namespace braid::train
