#include "comm/mpi_native.h"

#include <cstring>

#include "sys/check.h"

namespace braid::comm {
namespace {

void* in_place() { return reinterpret_cast<void*>(1); }  // MPI_IN_PLACE

// inout = op(in, inout), MPI's user-defined operation.
template <DType type, Reduction op>
void combine_for_mpi(void* in, void* inout, int* count, MpiHandle*) {
  combine(type, op, static_cast<std::byte*>(inout), static_cast<const std::byte*>(in), *count);
}

template <DType type>
constexpr std::array<void (*)(void*, void*, int*, MpiHandle*), 3> kCombiners = {combine_for_mpi<type, Reduction::sum>,
                                                                                combine_for_mpi<type, Reduction::max>,
                                                                                combine_for_mpi<type, Reduction::min>};

void list(const Blocks& blocks, std::vector<int>& counts, std::vector<int>& places) {
  for (int b = 0; b < blocks.blocks(); ++b) {
    counts.push_back(static_cast<int>(blocks.count(b)));
    places.push_back(static_cast<int>(blocks.at(b)));
  }
}

}  // namespace

MpiNative::MpiNative(void* library, MpiHandle world) : world_(world) {
  const auto load = [library](const char* name, auto& to) { load_symbol(library, name, to); };
  load("MPI_Comm_group", mpi_.comm_group);
  load("MPI_Group_incl", mpi_.group_incl);
  load("MPI_Comm_create_group", mpi_.comm_create_group);
  load("MPI_Comm_set_errhandler", mpi_.set_error_handler);
  load("MPI_Type_contiguous", mpi_.type_contiguous);
  load("MPI_Type_commit", mpi_.type_commit);
  load("MPI_Op_create", mpi_.op_create);
  load("MPI_Ibcast", mpi_.ibcast), load("MPI_Bcast", mpi_.bcast);
  load("MPI_Ireduce", mpi_.ireduce), load("MPI_Reduce", mpi_.reduce);
  load("MPI_Iallreduce", mpi_.iallreduce), load("MPI_Allreduce", mpi_.allreduce);
  load("MPI_Iallgather", mpi_.iallgather), load("MPI_Allgather", mpi_.allgather);
  load("MPI_Iallgatherv", mpi_.iallgatherv), load("MPI_Allgatherv", mpi_.allgatherv);
  load("MPI_Ireduce_scatter", mpi_.ireduce_scatter), load("MPI_Reduce_scatter", mpi_.reduce_scatter);
  load("MPI_Ialltoallv", mpi_.ialltoallv), load("MPI_Alltoallv", mpi_.alltoallv);
  load("MPI_Ialltoall", mpi_.ialltoall), load("MPI_Alltoall", mpi_.alltoall);
  load("ompi_mpi_errors_return", errors_return_);
  load("ompi_mpi_float", float_);
  load("ompi_mpi_int32_t", int32_), load("ompi_mpi_int64_t", int64_), load("ompi_mpi_uint8_t", uint8_);
  load("ompi_mpi_op_sum", own_[0]), load("ompi_mpi_op_max", own_[1]), load("ompi_mpi_op_min", own_[2]);
  check_mpi(mpi_.comm_group(world_, &world_group_), "MPI_Comm_group");
  check_mpi(mpi_.type_contiguous(2, uint8_, &half_), "MPI_Type_contiguous");
  check_mpi(mpi_.type_commit(&half_), "MPI_Type_commit");
  for (size_t op = 0; op < 3; ++op) {
    const auto make = [&](auto* combiner, MpiHandle& to) {
      check_mpi(mpi_.op_create(combiner, 1, &to), "MPI_Op_create");  // 1: operands may change places
    };
    make(kCombiners<DType::f32>[op], ours_[0][op]);
    make(kCombiners<DType::bf16>[op], ours_[1][op]);
    make(kCombiners<DType::f16>[op], ours_[2][op]);
  }
  comms_[0] = world_;
}

void MpiNative::Held::finish() const {
  if (result) std::memcpy(result, bytes.data(), bytes.size());
}

void MpiNative::join(uint32_t context, std::span<const int> members) {
  MpiHandle group = nullptr, comm = nullptr;
  check_mpi(mpi_.group_incl(world_group_, static_cast<int>(members.size()), members.data(), &group), "MPI_Group_incl");
  check_mpi(mpi_.comm_create_group(world_, group, static_cast<int>(context), &comm), "MPI_Comm_create_group");
  check_mpi(mpi_.set_error_handler(comm, errors_return_), "MPI_Comm_set_errhandler");
  comms_[context] = comm;
}

// Types of which nothing is reduced are moved as others of their size.
MpiHandle MpiNative::type_of(DType type) const {
  if (type == DType::f32) return float_;
  switch (size_of(type)) {
    case 8:
      return int64_;
    case 4:
      return int32_;
    case 2:
      return half_;
    default:
      return uint8_;
  }
}

MpiHandle MpiNative::op_of(DType type, Reduction reduction) const {
  const auto op = static_cast<size_t>(reduction);
  if (type == DType::bf16) return ours_[1][op];
  if (type == DType::f16) return ours_[2][op];
  return type == DType::f32 && reduction != Reduction::sum ? ours_[0][op] : own_[op];
}

// What MPI means by "in place" is ours of reduce, all-reduce and all-gather alone. Where the library would write its
// result over what others still need, it writes, or reads, a copy.
MpiNative::Buffers MpiNative::buffers_of(const NativeCall& call, Held& held) {
  const Problem& p = call.problem;
  const auto comm = comms_.find(call.context);
  CHECK(comm != comms_.end(), "group {} was not joined", call.context);
  Buffers b{.in = call.in, .out = call.out, .type = type_of(call.type), .comm = comm->second};
  if (p.op == Op::reduce || p.op == Op::all_reduce || p.op == Op::reduce_scatter)
    b.op = op_of(call.type, call.reduction);
  if (p.in_place && (p.op == Op::all_reduce || p.op == Op::all_gather)) b.in = in_place();
  if (p.in_place && p.op == Op::reduce && p.rank == p.root) b.in = in_place();
  if (p.op == Op::all_to_all && p.in_place) {
    held.bytes.assign(call.in, call.in + p.blocks.total() * p.element);
    b.in = held.bytes.data();
  }
  if (p.op == Op::reduce_scatter) {
    const int64_t bytes = p.blocks.count(p.rank) * p.element;
    if (call.out < call.in + p.blocks.total() * p.element && call.in < call.out + bytes) {
      held.bytes.resize(static_cast<size_t>(bytes));
      held.result = call.out;
      b.out = held.bytes.data();
    }
  }
  return b;
}

int MpiNative::run(const NativeCall& call, const Buffers& b, Held& h, MpiHandle* request) {
  const Problem& p = call.problem;
  const auto count = static_cast<int>(p.blocks.count(0)), total = static_cast<int>(p.blocks.total());
  const bool waits = call.blocks;
  list(p.blocks, h.counts, h.places);
  if (p.op == Op::all_to_all) list(p.received, h.received, h.received_places);
  switch (p.op) {
    case Op::broadcast:
      return waits ? mpi_.bcast(b.out, total, b.type, p.root, b.comm)
                   : mpi_.ibcast(b.out, total, b.type, p.root, b.comm, request);
    case Op::reduce:
      return waits ? mpi_.reduce(b.in, b.out, total, b.type, b.op, p.root, b.comm)
                   : mpi_.ireduce(b.in, b.out, total, b.type, b.op, p.root, b.comm, request);
    case Op::all_reduce:
      return waits ? mpi_.allreduce(b.in, b.out, total, b.type, b.op, b.comm)
                   : mpi_.iallreduce(b.in, b.out, total, b.type, b.op, b.comm, request);
    case Op::all_gather: {
      const int own = h.counts[static_cast<size_t>(p.rank)];
      if (p.blocks.even())
        return waits ? mpi_.allgather(b.in, count, b.type, b.out, count, b.type, b.comm)
                     : mpi_.iallgather(b.in, count, b.type, b.out, count, b.type, b.comm, request);
      return waits ? mpi_.allgatherv(b.in, own, b.type, b.out, h.counts.data(), h.places.data(), b.type, b.comm)
                   : mpi_.iallgatherv(b.in, own, b.type, b.out, h.counts.data(), h.places.data(), b.type, b.comm,
                                      request);
    }
    case Op::reduce_scatter:
      return waits ? mpi_.reduce_scatter(b.in, b.out, h.counts.data(), b.type, b.op, b.comm)
                   : mpi_.ireduce_scatter(b.in, b.out, h.counts.data(), b.type, b.op, b.comm, request);
    case Op::all_to_all:
      if (p.uniform)
        return waits ? mpi_.alltoall(b.in, count, b.type, b.out, count, b.type, b.comm)
                     : mpi_.ialltoall(b.in, count, b.type, b.out, count, b.type, b.comm, request);
      return waits ? mpi_.alltoallv(b.in, h.counts.data(), h.places.data(), b.type, b.out, h.received.data(),
                                    h.received_places.data(), b.type, b.comm)
                   : mpi_.ialltoallv(b.in, h.counts.data(), h.places.data(), b.type, b.out, h.received.data(),
                                     h.received_places.data(), b.type, b.comm, request);
    default:
      break;
  }
  CHECK(false, "no native {}", name_of(p.op));
  return 0;
}

MpiHandle MpiNative::start(const NativeCall& call, Held& held) {
  const Buffers buffers = buffers_of(call, held);
  MpiHandle request = nullptr;
  check_mpi(run(call, buffers, held, &request), name_of(call.problem.op));
  if (call.blocks) held.finish();
  return request;
}

}  // namespace braid::comm
