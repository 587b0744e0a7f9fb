#include "comm/nccl_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "sys/error.h"
#include "sys/machine.h"

namespace braid::comm {
namespace {

constexpr int kGpusMost = 32;  // of a machine
constexpr int kBusIdBytes = 16;

// What a rank says of its machine.
struct NcclSeat {
  std::array<char, 64> machine{};
  std::array<char, 192> error{};
  int32_t gpus = 0;
  std::array<std::array<char, kBusIdBytes>, kGpusMost> gpu{};  // "0000:1b:00.0": numbers are a process's own
};

void copy_text(const std::string& text, std::span<char> to) {
  const size_t n = std::min(text.size(), to.size() - 1);
  std::memcpy(to.data(), text.data(), n);
  to[n] = 0;
}

NcclSeat own_seat(const NcclLibrary& library) {
  NcclSeat seat;
  copy_text(sys::machine_id(), seat.machine);
  int gpus = 0;
  if (const int code = library.device_count(&gpus); code != kCudaSuccess) {
    copy_text(library.cuda_text(code), seat.error);
    return seat;
  }
  seat.gpus = std::min(gpus, kGpusMost);
  for (int g = 0; g < seat.gpus; ++g) {
    const int code = library.bus_id(seat.gpu[static_cast<size_t>(g)].data(), kBusIdBytes, g);
    if (code != kCudaSuccess) copy_text(library.cuda_text(code), seat.error);
  }
  if (seat.gpus == 0) copy_text("none is visible", seat.error);
  return seat;
}

// Error as nccl_place.
std::vector<int32_t> placed(const std::vector<NcclSeat>& seats) {
  std::vector<int32_t> devices;
  std::map<std::string, int> ranks_of, owner_of;
  for (const NcclSeat& seat : seats) ++ranks_of[seat.machine.data()];
  std::map<std::string, int> next;
  for (size_t r = 0; r < seats.size(); ++r) {
    const NcclSeat& seat = seats[r];
    if (seat.error[0] != 0)
      fail_environment(
          "comm nccl",
          {.what = fmt::format("rank {} has no GPU", r),
           .got = printable(seat.error.data()),
           .hint = "nvidia-smi, which says what the driver sees, or a transport without NCCL: shm, tcp, mpi"});
    const std::string machine = seat.machine.data();
    const int device = next[machine]++ % seat.gpus;
    const auto [owner, fresh] =
        owner_of.emplace(machine + seat.gpu[static_cast<size_t>(device)].data(), static_cast<int>(r));
    if (!fresh)
      fail_environment("comm nccl",
                       {.what = fmt::format("ranks {} and {} would share GPU {}, which NCCL refuses", owner->second, r,
                                            seat.gpu[static_cast<size_t>(device)].data()),
                        .got = fmt::format("{} ranks on a machine, and {} GPU{} for rank {}", ranks_of[machine],
                                           seat.gpus, seat.gpus == 1 ? "" : "s", r),
                        .expected = "a GPU per rank",
                        .hint = fmt::format("{} rank{} there (--nodes 1 --gpus {}), or a transport without NCCL: shm, "
                                            "tcp, mpi",
                                            seat.gpus, seat.gpus == 1 ? "" : "s", seat.gpus)});
    devices.push_back(device);
  }
  return devices;
}

}  // namespace

void nccl_finish(Transport& transport, std::deque<Message>& messages, std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (const Message& m : messages) {
    while (!m.done) {
      transport.progress(std::chrono::microseconds(10'000));
      if (m.done || std::chrono::steady_clock::now() < end) continue;
      const int peer = m.peer;
      transport.forget();
      fail_environment("comm nccl", {.what = fmt::format("nothing from rank {} for {:g} s", peer, seconds_of(timeout)),
                                     .hint = fmt::format("the log of rank {}", peer)});
    }
  }
}

int nccl_place(Transport& transport, const NcclLibrary& library, std::chrono::milliseconds timeout) {
  std::vector<NcclSeat> seats(static_cast<size_t>(transport.size()));
  const int rank = transport.rank();
  NcclSeat& own = seats[static_cast<size_t>(rank)];
  own = own_seat(library);
  std::deque<Message> messages;
  int32_t device = 0;
  if (rank != 0) {
    transport.send(messages.emplace_back(nccl_message(0, 0, NcclLane::seat, own)));
    transport.recv(messages.emplace_back(nccl_message(0, 0, NcclLane::device, device)));
    nccl_finish(transport, messages, timeout);
    return device;
  }
  for (int r = 1; r < transport.size(); ++r)
    transport.recv(messages.emplace_back(nccl_message(r, 0, NcclLane::seat, seats[static_cast<size_t>(r)])));
  nccl_finish(transport, messages, timeout);
  messages.clear();
  std::vector<int32_t> devices = placed(seats);
  for (int r = 1; r < transport.size(); ++r)
    transport.send(messages.emplace_back(nccl_message(r, 0, NcclLane::device, devices[static_cast<size_t>(r)])));
  nccl_finish(transport, messages, timeout);
  return devices[0];
}

}  // namespace braid::comm
