#include "comm/nccl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/native.h"
#include "comm/nccl_library.h"
#include "comm/nccl_place.h"
#include "sys/check.h"
#include "sys/error.h"

namespace braid::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kNcclSpins = 2000;  // looks before the thread sleeps in between
constexpr int64_t kNcclGrain = 64 << 10;
constexpr std::chrono::milliseconds kNcclFarewell{10'000};  // for what the other ranks still have to say at the end

NcclOp nccl_op(Reduction op) {
  return op == Reduction::sum ? NcclOp::sum : op == Reduction::max ? NcclOp::max : NcclOp::min;
}

NcclType nccl_type(DType type) {
  switch (type) {
    case DType::f32:
      return NcclType::f32;
    case DType::bf16:
      return NcclType::bf16;
    case DType::f16:
      return NcclType::f16;
    case DType::i32:
      return NcclType::i32;
    case DType::i64:
      return NcclType::i64;
    case DType::u8:
      return NcclType::u8;
    default:
      CHECK(false, "a reduction of {}", braid::name_of(type));
  }
  return NcclType::u8;
}

// Where a call's input and result lie in its buffer, in bytes. One vector is both wherever NCCL works in place.
struct StagedBytes {
  int64_t in_at = 0, in = 0, out_at = 0, out = 0, total = 0;
};

StagedBytes staged_bytes(const Problem& p) {
  const int64_t all = p.blocks.total() * p.element;
  StagedBytes s{.in = all, .out = all, .total = all};
  const auto own = [&](int64_t& at, int64_t& bytes) {
    at = p.blocks.at(p.rank) * p.element;
    bytes = p.blocks.count(p.rank) * p.element;
  };
  if (p.op == Op::broadcast) (p.rank == p.root ? s.out : s.in) = 0;
  if (p.op == Op::reduce && p.rank != p.root) s.out = 0;
  if (p.op == Op::all_gather) own(s.in_at, s.in);
  if (p.op == Op::reduce_scatter) own(s.out_at, s.out);
  if (p.op == Op::all_to_all) {
    s.out_at = all;
    s.out = p.received.total() * p.element;
    s.total = s.out_at + s.out;
  }
  return s;
}

struct NcclComm {
  NcclHandle handle = nullptr;
  CudaHandle stream = nullptr;
  std::string ranks{};  // "ranks 0, 1", for errors
};

// Memory of the GPU and of the host, of one size.
struct Staging {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
  CudaHandle event = nullptr;
  bool taken = false;
};

class NcclTransport final : public Transport {
 public:
  NcclTransport(std::unique_ptr<Transport> inner, const std::string& file, std::chrono::milliseconds timeout);
  ~NcclTransport() override;
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void send(Message& m) override { inner_->send(m); }
  void recv(Message& m) override { inner_->recv(m); }
  std::byte* window(uint64_t key, int rank, int64_t bytes) override { return inner_->window(key, rank, bytes); }
  void progress(std::chrono::microseconds patience) override;
  void forget() noexcept override;
  bool has_native() const override { return true; }
  void join(uint32_t context, std::span<const int> members) override;
  void native(const NativeCall& call, Message& message) override;

 private:
  struct Flight {
    NativeCall call;
    Message* message = nullptr;  // null: given up
    NcclComm* comm = nullptr;
    StagedBytes bytes{};
    Staging* staging = nullptr;
    bool launched = false;  // NCCL has put it on the stream, and the copy of its result is behind it
  };
  void use_gpu() const { cuda_.check_cuda(cuda_.set_device(device_), "cudaSetDevice"); }
  NcclUniqueId share_id(uint32_t context, std::span<const int> members);
  void wait_until_ready(const NcclComm& comm, const char* what);
  bool start_waiting();
  Staging* staging_of(int64_t bytes);
  void start(Flight& flight);
  int run(const Flight& flight) const;
  int run_blocks(const Flight& flight) const;
  bool launch(Flight& flight);
  bool advance(Flight& flight);
  bool advance_all();
  void check(int code, const NcclComm& comm, const Problem& problem) const;
  void say_goodbye() noexcept;

  std::unique_ptr<Transport> inner_;
  NcclLibrary cuda_;
  std::chrono::milliseconds timeout_;
  int device_ = 0;
  std::map<uint32_t, NcclComm> comms_;  // by context
  std::array<Staging, 2> staging_{};    // the copies of a call overlap the work of another
  int64_t staging_bytes_ = 0;
  std::deque<Flight> waiting_, flying_;  // in the order of their start
  int looks_ = 0;                        // since a call began or ended
  bool failed_ = false;
};

NcclTransport::NcclTransport(std::unique_ptr<Transport> inner, const std::string& file,
                             std::chrono::milliseconds timeout)
    : inner_(std::move(inner)), cuda_(file), timeout_(timeout) {
  device_ = nccl_place(*inner_, cuda_, timeout_);
  use_gpu();
  std::vector<int> all(static_cast<size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  try {
    join(0, all);
  } catch (...) {
    say_goodbye();
    throw;
  }
}

NcclTransport::~NcclTransport() { say_goodbye(); }

// Communicators end together, or, where somebody failed, at once.
void NcclTransport::say_goodbye() noexcept {
  const bool aborts = failed_ || !flying_.empty() || !waiting_.empty() || std::uncaught_exceptions() > 0;
  cuda_.set_device(device_);
  for (auto& [context, comm] : comms_) {
    if (!comm.handle) continue;
    int state = aborts ? kNcclSuccess : cuda_.finalize(comm.handle);
    const auto end = Clock::now() + kNcclFarewell;
    while (!aborts && (state == kNcclSuccess || state == kNcclInProgress)) {
      if (cuda_.async_error(comm.handle, &state) != kNcclSuccess || state != kNcclInProgress) break;
      if (Clock::now() > end) break;
      usleep(100);
    }
    !aborts&& state == kNcclSuccess ? cuda_.destroy(comm.handle) : cuda_.abort(comm.handle);
  }
  for (auto& [context, comm] : comms_) {
    if (comm.stream) cuda_.stream_destroy(comm.stream);
  }
  for (Staging& s : staging_) {
    if (s.event) cuda_.event_destroy(s.event);
    if (s.device) cuda_.free(s.device);
    if (s.host) cuda_.free_host(s.host);
    s = {};
  }
  comms_.clear();
}

// The id that the member of the lowest rank makes.
NcclUniqueId NcclTransport::share_id(uint32_t context, std::span<const int> members) {
  NcclUniqueId id;
  std::deque<Message> messages;
  const auto message_with = [&](int peer) -> Message& {
    return messages.emplace_back(nccl_message(peer, context, NcclLane::id, id));
  };
  const int root = *std::min_element(members.begin(), members.end());
  if (rank() != root) {
    inner_->recv(message_with(root));
  } else {
    if (const int code = cuda_.get_unique_id(&id); code != kNcclSuccess)
      fail_environment("comm nccl", {.what = fmt::format("NCCL cannot begin a group of {}", std::ssize(members)),
                                     .got = cuda_.nccl_text(code, nullptr),
                                     .hint = "NCCL_DEBUG=WARN"});
    for (const int peer : members) {
      if (peer != root) inner_->send(message_with(peer));
    }
  }
  nccl_finish(*inner_, messages, timeout_);
  return id;
}

void NcclTransport::join(uint32_t context, std::span<const int> members) {
  use_gpu();
  const NcclUniqueId id = share_id(context, members);
  NcclComm& comm = comms_[context];
  comm.ranks = fmt::format("rank{} {}", members.size() == 1 ? "" : "s", fmt::join(members, ", "));
  cuda_.check_cuda(cuda_.stream_create(&comm.stream, kOwnStream), "cudaStreamCreateWithFlags");
  const auto place = std::find(members.begin(), members.end(), rank()) - members.begin();
  NcclConfig config;
  const int code =
      cuda_.init_rank(&comm.handle, static_cast<int>(members.size()), id, static_cast<int>(place), &config);
  if (code != kNcclSuccess && code != kNcclInProgress) {
    failed_ = true;
    fail_environment("comm nccl", {.what = fmt::format("NCCL cannot connect {}", comm.ranks),
                                   .got = cuda_.nccl_text(code, comm.handle),
                                   .hint = "NCCL_DEBUG=WARN"});
  }
  wait_until_ready(comm, "connect");
}

void NcclTransport::wait_until_ready(const NcclComm& comm, const char* what) {
  const auto end = Clock::now() + timeout_;
  for (int state = kNcclInProgress;;) {
    const int code = cuda_.async_error(comm.handle, &state);
    if (code == kNcclSuccess && state == kNcclSuccess) return;
    const bool late = Clock::now() > end;
    if (code != kNcclSuccess || state != kNcclInProgress || late) {
      failed_ = true;
      fail_environment("comm nccl", {.what = fmt::format("NCCL cannot {} {}", what, comm.ranks),
                                     .got = late ? fmt::format("nothing for {:g} s", seconds_of(timeout_))
                                                 : cuda_.nccl_text(code != kNcclSuccess ? code : state, comm.handle),
                                     .hint = "NCCL_DEBUG=WARN"});
    }
    inner_->progress(std::chrono::microseconds(0));  // a peer may be gone
    usleep(100);
  }
}

void NcclTransport::check(int code, const NcclComm& comm, const Problem& problem) const {
  if (code == kNcclSuccess || code == kNcclInProgress) return;
  fail_environment(fmt::format("comm {} native", name_of(problem.op)),
                   {.what = fmt::format("NCCL failed among {}", comm.ranks),
                    .got = cuda_.nccl_text(code, comm.handle),
                    .hint = "NCCL_DEBUG=WARN"});
}

void NcclTransport::native(const NativeCall& call, Message& message) {
  const auto comm = comms_.find(call.context);
  CHECK(comm != comms_.end(), "group {} was not joined", call.context);
  const StagedBytes bytes = staged_bytes(call.problem);
  if (bytes.total == 0) {
    message.done = true;
    return;
  }
  waiting_.push_back({.call = call, .message = &message, .comm = &comm->second, .bytes = bytes});
  use_gpu();
  start_waiting();
  while (call.blocks && !message.done) progress(std::chrono::microseconds(0));
}

// In the order of the calls. Two are started one after the other where NCCL is still connecting for the first.
bool NcclTransport::start_waiting() {
  bool moved = false;
  while (!waiting_.empty() && (flying_.empty() || flying_.back().launched)) {
    Staging* staging = staging_of(waiting_.front().bytes.total);
    if (!staging) break;
    flying_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    flying_.back().staging = staging;
    start(flying_.back());
    moved = true;
  }
  return moved;
}

// Null: none is free. To allocate waits for the GPU, whose work may wait for a rank that waits for messages of this
// one; so buffers grow when nothing is in flight.
Staging* NcclTransport::staging_of(int64_t bytes) {
  if (bytes > staging_bytes_) {
    if (!flying_.empty()) return nullptr;
    const int64_t grown = (std::max(bytes, staging_bytes_ * 3 / 2) + kNcclGrain - 1) / kNcclGrain * kNcclGrain;
    staging_bytes_ = 0;
    for (Staging& s : staging_) {
      if (s.device) cuda_.free(std::exchange(s.device, nullptr));
      if (s.host) cuda_.free_host(std::exchange(s.host, nullptr));
      const auto allocate = [&](int code, const char* where) {
        if (code != kCudaSuccess)
          fail_environment("comm nccl", {.what = fmt::format("no {} bytes {} for a collective", grown, where),
                                         .got = cuda_.cuda_text(code)});
      };
      void* memory = nullptr;
      allocate(cuda_.malloc(&memory, static_cast<size_t>(grown)), "on the GPU");
      s.device = static_cast<std::byte*>(memory);
      allocate(cuda_.host_alloc(&memory, static_cast<size_t>(grown), kPinnedForAll), "of pinned memory");
      s.host = static_cast<std::byte*>(memory);
      if (!s.event) cuda_.check_cuda(cuda_.event_create(&s.event, kEventUntimed), "cudaEventCreateWithFlags");
    }
    staging_bytes_ = grown;
  }
  for (Staging& s : staging_) {
    if (!s.taken) {
      s.taken = true;
      return &s;
    }
  }
  return nullptr;
}

void NcclTransport::start(Flight& f) {
  const StagedBytes& b = f.bytes;
  if (b.in > 0) {
    const std::byte* from = f.call.problem.op == Op::broadcast ? f.call.out : f.call.in;
    std::memcpy(f.staging->host + b.in_at, from, static_cast<size_t>(b.in));
    cuda_.check_cuda(cuda_.copy_async(f.staging->device + b.in_at, f.staging->host + b.in_at, static_cast<size_t>(b.in),
                                      kToDevice, f.comm->stream),
                     "cudaMemcpyAsync");
  }
  check(run(f), *f.comm, f.call.problem);
  launch(f);
}

// What is only moved is bytes to NCCL.
int NcclTransport::run(const Flight& f) const {
  const Problem& p = f.call.problem;
  std::byte* const data = f.staging->device;
  const NcclHandle comm = f.comm->handle;
  const CudaHandle stream = f.comm->stream;
  const auto count = static_cast<size_t>(p.blocks.total()), bytes = count * static_cast<size_t>(p.element);
  switch (p.op) {
    case Op::broadcast:
      return cuda_.broadcast(data, data, bytes, NcclType::u8, p.root, comm, stream);
    case Op::reduce:
      return cuda_.reduce(data, data, count, nccl_type(f.call.type), nccl_op(f.call.reduction), p.root, comm, stream);
    case Op::all_reduce:
      return cuda_.all_reduce(data, data, count, nccl_type(f.call.type), nccl_op(f.call.reduction), comm, stream);
    case Op::all_gather:
      if (!p.blocks.even()) return run_blocks(f);
      return cuda_.all_gather(data + f.bytes.in_at, data, static_cast<size_t>(f.bytes.in), NcclType::u8, comm, stream);
    case Op::reduce_scatter:
      if (!p.blocks.even()) return run_blocks(f);
      return cuda_.reduce_scatter(data, data + f.bytes.out_at, static_cast<size_t>(p.blocks.count(p.rank)),
                                  nccl_type(f.call.type), nccl_op(f.call.reduction), comm, stream);
    case Op::all_to_all:
      return run_blocks(f);
    default:
      break;
  }
  CHECK(false, "no native {}", name_of(p.op));
  return 0;
}

// Uneven blocks, which NCCL has no calls for: a broadcast or a reduction of each, or messages; one launch in all.
int NcclTransport::run_blocks(const Flight& f) const {
  const Problem& p = f.call.problem;
  const NcclHandle comm = f.comm->handle;
  const CudaHandle stream = f.comm->stream;
  int worst = cuda_.group_start();
  if (worst != kNcclSuccess) return worst;
  const auto note = [&](int code) {
    if (code != kNcclSuccess && code != kNcclInProgress && (worst == kNcclSuccess || worst == kNcclInProgress))
      worst = code;
  };
  for (int b = 0; b < p.size; ++b) {
    std::byte* const block = f.staging->device + p.blocks.at(b) * p.element;
    const auto count = static_cast<size_t>(p.blocks.count(b)), bytes = count * static_cast<size_t>(p.element);
    if (count > 0 && p.op == Op::all_gather) note(cuda_.broadcast(block, block, bytes, NcclType::u8, b, comm, stream));
    if (count > 0 && p.op == Op::reduce_scatter)
      note(cuda_.reduce(block, block, count, nccl_type(f.call.type), nccl_op(f.call.reduction), b, comm, stream));
    if (p.op != Op::all_to_all) continue;
    const int64_t received = p.received.count(b) * p.element;
    if (count > 0) note(cuda_.send(block, bytes, NcclType::u8, b, comm, stream));
    if (received > 0)
      note(cuda_.recv(f.staging->device + f.bytes.out_at + p.received.at(b) * p.element, static_cast<size_t>(received),
                      NcclType::u8, b, comm, stream));
  }
  note(cuda_.group_end());
  return worst;
}

// Whether NCCL has put it on the stream; before that, it may still be connecting.
bool NcclTransport::launch(Flight& f) {
  const StagedBytes& b = f.bytes;
  int state = kNcclSuccess;
  const int code = cuda_.async_error(f.comm->handle, &state);
  check(code != kNcclSuccess ? code : state, *f.comm, f.call.problem);
  if (f.launched) return true;
  if (state == kNcclInProgress) return false;
  if (b.out > 0)
    cuda_.check_cuda(cuda_.copy_async(f.staging->host + b.out_at, f.staging->device + b.out_at,
                                      static_cast<size_t>(b.out), kToHost, f.comm->stream),
                     "cudaMemcpyAsync");
  cuda_.check_cuda(cuda_.event_record(f.staging->event, f.comm->stream), "cudaEventRecord");
  f.launched = true;
  return true;
}

// True when it is over: once.
bool NcclTransport::advance(Flight& f) {
  if (!launch(f)) return false;
  const StagedBytes& b = f.bytes;
  const int ready = cuda_.event_query(f.staging->event);
  if (ready == kCudaNotReady) return false;
  cuda_.check_cuda(ready, name_of(f.call.problem.op));
  if (!f.message) return true;
  if (b.out > 0) std::memcpy(f.call.out, f.staging->host + b.out_at, static_cast<size_t>(b.out));
  f.message->done = true;
  return true;
}

bool NcclTransport::advance_all() {
  bool moved = false;
  for (auto f = flying_.begin(); f != flying_.end();) {
    if (!advance(*f)) {
      ++f;
      continue;
    }
    f->staging->taken = false;
    f = flying_.erase(f);
    moved = true;
  }
  return start_waiting() || moved;
}

// Events of a GPU wake nobody, and messages of `inner` may have arrived: look at both, and return soon.
void NcclTransport::progress(std::chrono::microseconds patience) {
  if (flying_.empty() && waiting_.empty()) return inner_->progress(patience);
  use_gpu();
  inner_->progress(std::chrono::microseconds(0));
  try {
    if (advance_all()) {
      looks_ = 0;
      return;
    }
  } catch (...) {
    failed_ = true;
    throw;
  }
  if (patience.count() == 0) return;
  if (++looks_ > kNcclSpins)
    usleep(50);
  else
    sched_yield();
}

// What NCCL has begun cannot be taken back: it ends in our own memory.
void NcclTransport::forget() noexcept {
  inner_->forget();
  failed_ = failed_ || !waiting_.empty() || !flying_.empty();
  waiting_.clear();
  for (Flight& f : flying_) f.message = nullptr;
}

}  // namespace

void check_nccl(const std::string& file) { const NcclLibrary library(file); }

std::unique_ptr<Transport> over_nccl(std::unique_ptr<Transport> inner, const std::string& file,
                                     std::chrono::milliseconds timeout) {
  return std::make_unique<NcclTransport>(std::move(inner), file, timeout);
}

}  // namespace braid::comm
