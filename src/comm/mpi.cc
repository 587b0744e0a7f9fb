#include "comm/mpi.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "comm/mpi_library.h"
#include "comm/mpi_native.h"
#include "sys/error.h"

namespace braid::comm {
namespace {

struct MpiStatus {
  int source = 0, tag = 0, error = 0, cancelled = 0;
  size_t bytes = 0;
};
constexpr int kTruncated = 15;
constexpr int kThreadsTakeTurns = 2;              // MPI_THREAD_SERIALIZED
constexpr int64_t kPieceMost = int64_t{1} << 30;  // counts are int: longer messages go in pieces of one tag

struct Library {
  int (*init_thread)(int*, char***, int, int*) = nullptr;
  int (*finalize)() = nullptr;
  int (*comm_rank)(MpiHandle, int*) = nullptr;
  int (*comm_size)(MpiHandle, int*) = nullptr;
  int (*set_error_handler)(MpiHandle, MpiHandle) = nullptr;
  int (*send)(const void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*) = nullptr;
  int (*recv)(void*, int, MpiHandle, int, int, MpiHandle, MpiHandle*) = nullptr;
  int (*test)(MpiHandle*, int*, MpiStatus*) = nullptr;
  int (*cancel)(MpiHandle*) = nullptr;
  int (*free_request)(MpiHandle*) = nullptr;
  int (*all_reduce)(const void*, void*, int, MpiHandle, MpiHandle, MpiHandle) = nullptr;
  MpiHandle world = nullptr, byte = nullptr, integer = nullptr, most = nullptr, errors_return = nullptr;
  void* handle = nullptr;
};

Library load_library() {
  // Its plug-ins look for its symbols among the global ones. It stays loaded until the process ends.
  void* library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    fail_environment(
        "mpi",
        {.what = "Open MPI is not installed", .got = printable(dlerror()), .hint = "apt-get install openmpi-bin"});
  Library mpi{.handle = library};
  load_symbol(library, "MPI_Init_thread", mpi.init_thread);
  load_symbol(library, "MPI_Finalize", mpi.finalize);
  load_symbol(library, "MPI_Comm_rank", mpi.comm_rank);
  load_symbol(library, "MPI_Comm_size", mpi.comm_size);
  load_symbol(library, "MPI_Comm_set_errhandler", mpi.set_error_handler);
  load_symbol(library, "MPI_Isend", mpi.send);
  load_symbol(library, "MPI_Irecv", mpi.recv);
  load_symbol(library, "MPI_Test", mpi.test);
  load_symbol(library, "MPI_Cancel", mpi.cancel);
  load_symbol(library, "MPI_Request_free", mpi.free_request);
  load_symbol(library, "MPI_Allreduce", mpi.all_reduce);
  load_symbol(library, "ompi_mpi_comm_world", mpi.world);
  load_symbol(library, "ompi_mpi_byte", mpi.byte);
  load_symbol(library, "ompi_mpi_int", mpi.integer);
  load_symbol(library, "ompi_mpi_op_max", mpi.most);
  load_symbol(library, "ompi_mpi_errors_return", mpi.errors_return);
  return mpi;
}

// 31 bits: 7 of the group, 1 of the kind, 16 of the call and 7 of the lane (group.cc). Messages of calls that are 65536
// apart are never in flight together.
int tag_of(uint64_t tag) {
  const uint64_t group = tag >> 40, kind = tag >> 39 & 1, call = tag >> 8 & 0xffff, lane = tag & 0x7f;
  if (group > 127) fail_environment("mpi", {.what = "too many groups", .expected = "at most 128 of one world"});
  return static_cast<int>(group << 24 | kind << 23 | call << 7 | lane);
}

class MpiTransport final : public Transport {
 public:
  // `compares`: what a message is checked by travels in front of it; all ranks say the same.
  MpiTransport(const Library& mpi, bool compares) : mpi_(mpi), native_(mpi.handle, mpi.world), compares_(compares) {
    mpi_.comm_rank(mpi_.world, &rank_);
    mpi_.comm_size(mpi_.world, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void send(Message& m) override { start(m, true); }
  void recv(Message& m) override { start(m, false); }
  void progress(std::chrono::microseconds patience) override;
  void forget() noexcept override;
  std::byte* window(uint64_t, int, int64_t) override { return nullptr; }
  bool has_native() const override { return true; }
  void join(uint32_t context, std::span<const int> members) override { native_.join(context, members); }
  void native(const NativeCall& call, Message& message) override;

 private:
  struct Piece {
    MpiHandle request = nullptr;
    bool sends = false, done = false, is_check = false;
  };
  struct Open {
    Message* message = nullptr;
    std::vector<Piece> pieces{};
    std::unique_ptr<MpiNative::Held> held{};  // of a collective of the library's own
  };
  void start(Message& m, bool sends);
  void start_piece(Open& open, Piece piece, std::byte* data, int64_t bytes);
  bool test(Open& open);

  Library mpi_;
  MpiNative native_;
  bool compares_;
  int rank_ = 0, size_ = 1;
  pid_t parent_ = getppid();
  std::vector<Open> open_;
  std::vector<Open> given_up_;  // a collective cannot be cancelled, and its copies stay where they are
};

void MpiTransport::start(Message& m, bool sends) {
  Open& open = open_.emplace_back();
  open.message = &m;
  if (compares_) {
    uint64_t& check = sends ? m.check : m.got_check;
    start_piece(open, {.sends = sends, .is_check = true}, reinterpret_cast<std::byte*>(&check), sizeof check);
  }
  int64_t at = 0;
  do {
    const int64_t n = std::min<int64_t>(kPieceMost, m.bytes - at);
    start_piece(open, {.sends = sends}, m.data + at, n);
    at += n;
  } while (at < m.bytes);
}

void MpiTransport::start_piece(Open& open, Piece piece, std::byte* data, int64_t bytes) {
  const Message& m = *open.message;
  const int tag = tag_of(m.tag), n = static_cast<int>(bytes);
  check_mpi(piece.sends ? mpi_.send(data, n, mpi_.byte, m.peer, tag, mpi_.world, &piece.request)
                        : mpi_.recv(data, n, mpi_.byte, m.peer, tag, mpi_.world, &piece.request),
            piece.sends ? "MPI_Isend" : "MPI_Irecv");
  open.pieces.push_back(piece);
}

void MpiTransport::native(const NativeCall& call, Message& m) {
  auto held = std::make_unique<MpiNative::Held>();
  const MpiHandle request = native_.start(call, *held);
  m.done = call.blocks;
  if (call.blocks) return;
  Open& open = open_.emplace_back();
  open.message = &m;
  open.pieces.push_back({.request = request, .sends = true});
  open.held = std::move(held);
}

bool MpiTransport::test(Open& open) {
  bool all = true;
  for (Piece& piece : open.pieces) {
    if (piece.done) continue;
    MpiStatus status;
    int done = 0;
    const int code = mpi_.test(&piece.request, &done, &status);
    if (code == kTruncated || (done != 0 && status.error == kTruncated)) {
      open.message->got_bytes = open.message->bytes + 1;  // more than were expected
      piece.done = true;
      continue;
    }
    check_mpi(code, "MPI_Test");
    piece.done = done != 0;
    if (done != 0 && !piece.sends && !piece.is_check) open.message->got_bytes += static_cast<int64_t>(status.bytes);
    all = all && piece.done;
  }
  return all;
}

// MPI has nothing to sleep on: look, and give the core away in between.
void MpiTransport::progress(std::chrono::microseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (int looks = 0;; ++looks) {
    if (getppid() != parent_) fail_environment("mpi", {.what = "mpirun has ended"});
    const size_t before = open_.size();
    std::erase_if(open_, [&](Open& open) {
      if (!test(open)) return false;
      if (open.held) open.held->finish();
      if (!compares_) open.message->got_check = open.message->check;
      open.message->done = true;
      return true;
    });
    if (open_.size() != before || open_.empty() || std::chrono::steady_clock::now() >= end) return;
    if (looks > 100) usleep(looks > 1000 ? 200 : 0);
  }
}

void MpiTransport::forget() noexcept {
  for (Open& open : open_) {
    if (open.held) {
      given_up_.push_back(std::move(open));
      continue;
    }
    for (Piece& piece : open.pieces) {
      if (piece.done) continue;
      if (!piece.sends) mpi_.cancel(&piece.request);
      mpi_.free_request(&piece.request);
    }
  }
  open_.clear();
}

// Algorithms depend on it, so that a rank may not follow its own view. No group can say so yet.
int agreed_per_node(const Library& mpi, int per_node) {
  const int own[2] = {per_node, -per_node};
  int most[2] = {};
  check_mpi(mpi.all_reduce(own, most, 2, mpi.integer, mpi.most, mpi.world), "MPI_Allreduce");
  return most[0] == -most[1] ? per_node : 1;
}

}  // namespace

void run_under_mpi(const Options& options, const std::function<void(Group& world)>& body) {
  const Library mpi = load_library();
  if (!std::getenv("OMPI_COMM_WORLD_SIZE"))
    fail_environment("mpi", {.what = "this process was not started by mpirun", .hint = "mpirun -np 4 braid ..."});
  int provided = 0;
  check_mpi(mpi.init_thread(nullptr, nullptr, kThreadsTakeTurns, &provided), "MPI_Init_thread");
  if (provided < kThreadsTakeTurns)
    fail_environment("mpi", {.what = "this library lets one thread alone send (MPI_THREAD_SERIALIZED is missing)",
                             .hint = "Debian's openmpi-bin"});
  check_mpi(mpi.set_error_handler(mpi.world, mpi.errors_return), "MPI_Comm_set_errhandler");
  {
    Options agreed = options;
    agreed.per_node = agreed_per_node(mpi, options.per_node);
    Group world(std::make_unique<MpiTransport>(mpi, options.compare_calls), agreed);
    body(world);
    world.barrier().wait();  // nobody finalizes while another still sends
  }
  check_mpi(mpi.finalize(), "MPI_Finalize");
}

bool first_rank_spoke() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (!rank || std::atoi(rank) == 0) return false;
  const auto initialized = reinterpret_cast<int (*)(int*)>(dlsym(RTLD_DEFAULT, "MPI_Initialized"));
  int begun = 0;
  // A signal ends the wait.
  return (!initialized || initialized(&begun) != kMpiSuccess || begun == 0) && sleep(5) > 0;
}

int ranks_of_mpirun() {
  const char* text = std::getenv("OMPI_COMM_WORLD_SIZE");
  return text ? std::atoi(text) : 0;
}

int local_ranks_of_mpirun() {
  const char* text = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const int local = text ? std::atoi(text) : 0;
  return local > 0 ? local : ranks_of_mpirun();
}

}  // namespace braid::comm
