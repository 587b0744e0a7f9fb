// Open MPI's own collectives. Sums of F32 and everything of integers are done by its operations and types; MPI has
// neither BF16 nor F16, and its largest and smallest of floats do not say what becomes of NaN: these are user-defined
// operations that call combine() (reduction.h), so that they have the rounding and the NaNs of every other algorithm.
#pragma once
#include <array>
#include <map>
#include <span>
#include <vector>

#include "comm/mpi_library.h"
#include "comm/native.h"

namespace braid::comm {

class MpiNative {
 public:
  MpiNative(void* library, MpiHandle world);

  // What a call reads and writes until it is over.
  struct Held {
    std::vector<int> counts{}, places{}, received{}, received_places{};
    std::vector<std::byte> bytes{};  // in place of what the library would overwrite
    std::byte* result = nullptr;     // where `bytes` go in the end; null: nowhere

    void finish() const;
  };

  // The members make it for every group, in the same order.
  void join(uint32_t context, std::span<const int> members);
  // The request; null: the call is over.
  MpiHandle start(const NativeCall& call, Held& held);

 private:
  struct Functions;
  struct Buffers {
    const void* in = nullptr;
    void* out = nullptr;
    MpiHandle type = nullptr, op = nullptr, comm = nullptr;
  };
  Buffers buffers_of(const NativeCall& call, Held& held);
  MpiHandle type_of(DType type) const;
  MpiHandle op_of(DType type, Reduction reduction) const;
  int run(const NativeCall& call, const Buffers& b, Held& held, MpiHandle* request);

  // As MPI declares them; the last argument of those that do not block is the request.
  struct Functions {
    int (*comm_group)(MpiHandle, MpiHandle*) = nullptr;
    int (*group_incl)(MpiHandle, int, const int*, MpiHandle*) = nullptr;
    int (*comm_create_group)(MpiHandle, MpiHandle, int, MpiHandle*) = nullptr;
    int (*set_error_handler)(MpiHandle, MpiHandle) = nullptr;
    int (*type_contiguous)(int, MpiHandle, MpiHandle*) = nullptr;
    int (*type_commit)(MpiHandle*) = nullptr;
    int (*op_create)(void (*)(void*, void*, int*, MpiHandle*), int, MpiHandle*) = nullptr;

    int (*ibcast)(void*, int, MpiHandle, int, MpiHandle, MpiHandle*) = nullptr;
    int (*bcast)(void*, int, MpiHandle, int, MpiHandle) = nullptr;
    int (*ireduce)(const void*, void*, int, MpiHandle, MpiHandle, int, MpiHandle, MpiHandle*) = nullptr;
    int (*reduce)(const void*, void*, int, MpiHandle, MpiHandle, int, MpiHandle) = nullptr;
    int (*iallreduce)(const void*, void*, int, MpiHandle, MpiHandle, MpiHandle, MpiHandle*) = nullptr;
    int (*allreduce)(const void*, void*, int, MpiHandle, MpiHandle, MpiHandle) = nullptr;
    int (*iallgather)(const void*, int, MpiHandle, void*, int, MpiHandle, MpiHandle, MpiHandle*) = nullptr;
    int (*allgather)(const void*, int, MpiHandle, void*, int, MpiHandle, MpiHandle) = nullptr;
    int (*iallgatherv)(const void*, int, MpiHandle, void*, const int*, const int*, MpiHandle, MpiHandle,
                       MpiHandle*) = nullptr;
    int (*allgatherv)(const void*, int, MpiHandle, void*, const int*, const int*, MpiHandle, MpiHandle) = nullptr;
    int (*ireduce_scatter)(const void*, void*, const int*, MpiHandle, MpiHandle, MpiHandle, MpiHandle*) = nullptr;
    int (*reduce_scatter)(const void*, void*, const int*, MpiHandle, MpiHandle, MpiHandle) = nullptr;
    int (*ialltoallv)(const void*, const int*, const int*, MpiHandle, void*, const int*, const int*, MpiHandle,
                      MpiHandle, MpiHandle*) = nullptr;
    int (*alltoallv)(const void*, const int*, const int*, MpiHandle, void*, const int*, const int*, MpiHandle,
                     MpiHandle) = nullptr;
    int (*ialltoall)(const void*, int, MpiHandle, void*, int, MpiHandle, MpiHandle, MpiHandle*) = nullptr;
    int (*alltoall)(const void*, int, MpiHandle, void*, int, MpiHandle, MpiHandle) = nullptr;
  };

  Functions mpi_;
  MpiHandle world_ = nullptr, world_group_ = nullptr, errors_return_ = nullptr;
  MpiHandle float_ = nullptr, half_ = nullptr, int32_ = nullptr, int64_ = nullptr, uint8_ = nullptr;
  std::array<MpiHandle, 3> own_{};                  // its operations, by Reduction
  std::array<std::array<MpiHandle, 3>, 3> ours_{};  // F32, BF16, F16
  std::map<uint32_t, MpiHandle> comms_;             // by context
};

}  // namespace braid::comm
