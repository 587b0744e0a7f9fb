#include "engine/ranks.h"

#include "comm/same_words.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/machine.h"

namespace braid::engine {
namespace {

View flat(const View& v) { return {v.data, v.dtype, {v.count()}}; }
MutView flat_mut(const MutView& v) { return {v.data, v.dtype, {v.count()}}; }

// The bytes of one value: there is no collective for FP64.
template <class Value>
MutView bytes_of(Value& value) {
  return {reinterpret_cast<std::byte*>(&value), DType::u8, {static_cast<int64_t>(sizeof(Value))}};
}

int place(const comm::Group& world, int64_t run) { return world.rank() / static_cast<int>(run); }

}  // namespace

Ranks::Ranks(comm::Group& world, const models::Division& division)
    : world_(world),
      division_(division),
      stage_(world.split(place(world, division.stage_ranks()))),
      tensor_(world.split(place(world, division.tp))),
      pipe_(world.split(world.rank() % static_cast<int>(division.stage_ranks()))) {
  CHECK(world.size() == division.ranks(), "{} ranks for {}", world.size(), division.ranks());
  const auto own = static_cast<int64_t>(sys::machine().cpu_class);
  if (const int64_t low = least(own), high = -least(-own); low != high) {
    const auto name = [](int64_t c) { return sys::name_of(static_cast<sys::CpuClass>(c)); };
    fail_environment("ranks", {.what = "run on CPUs of different classes, whose products round differently",
                               .got = fmt::format("{} and {}", name(low), name(high)),
                               .hint = fmt::format("BRAID_CPU={} for all", name(low))});
  }
}

void Ranks::join(nn::Run& run) {
  if (tensor_.size() > 1) run.tensor = &tensor_;
  if (stage_.size() > tensor_.size()) run.stage = &stage_;
}

void Ranks::begin_pass() {
  uint8_t flag = sys::interrupted() ? 1 : 0;
  world_.broadcast(bytes_of(flag), 0).wait();
  interrupted_ = flag != 0;
}

double Ranks::agreed(double value) {
  world_.broadcast(bytes_of(value), 0).wait();
  return value;
}

std::string Ranks::agreed(std::string text) { return comm::text_of(world_, 0, std::move(text)); }

int64_t Ranks::least(int64_t value) {
  const MutView one = mut_view_of(&value, {1});
  world_.all_reduce(one, one, comm::Reduction::min).wait();
  return value;
}

Tensor Ranks::stream_in(Ctx& ctx, int64_t tokens, int64_t hidden) {
  if (pipe_.rank() == 0) return {};
  const Tensor x(ctx.arena, DType::f32, {tokens, hidden});
  pipe_.recv(flat_mut(x.mut()), pipe_.rank() - 1).wait();
  return x;
}

void Ranks::stream_out(const Tensor& x) {
  if (!last_stage()) pipe_.send(flat(x.view()), pipe_.rank() + 1).wait();
}

void Ranks::from_last_stage(const Tensor& x) {
  if (pipe_.size() > 1) pipe_.broadcast(flat_mut(x.mut()), pipe_.size() - 1).wait();
}

int64_t Ranks::total(int64_t value) {
  const MutView one = mut_view_of(&value, {1});
  world_.all_reduce(one, one).wait();
  return value;
}

}  // namespace braid::engine
