// A test double of NCCL and of the CUDA runtime in one library, for tests without a GPU: "device" memory is the host's
// under addresses that nobody can read, streams are threads, ranks are threads or processes that meet in shared memory.
// It is stricter than the real ones: whatever a program may not rely on fails. Buffers have to lie inside allocations
// of their kind, descriptions of a collective have to be equal on all ranks, groups balanced, GPUs and buffers of
// messages different, and while a communicator is in progress nothing may be asked of it but its state. The first call
// of each is (0.5 ms) in progress. cudaMalloc and its kind wait for all streams of the GPU, as the real ones may.
//   FAKE_NCCL_GPUS=n       visible GPUs (8)
//   FAKE_NCCL_FAIL=NAME    this function gives an error
//   FAKE_NCCL_ASYNC=NAME   this collective fails after it was taken
//   FAKE_NCCL_HANG=NAME    this collective never ends
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kRanksMost = 8;
constexpr int64_t kAreaBytes = int64_t{16} << 20, kPairBytes = int64_t{4} << 20;
constexpr uintptr_t kDeviceBit = uintptr_t{1} << 62;  // no address of x86-64: what reads it ends with SIGSEGV
enum Code {
  success,
  cuda_error,
  system_error,
  internal_error,
  invalid_argument,
  invalid_usage,
  remote_error,
  in_progress
};
enum Cuda { cuda_success = 0, cuda_invalid = 1, cuda_no_device = 100, cuda_not_ready = 600 };

bool is_set_to(const char* variable, const char* name) {
  const char* value = std::getenv(variable);
  return value && std::strcmp(value, name) == 0;
}
bool fails(const char* name) { return is_set_to("FAKE_NCCL_FAIL", name); }

void nap() { usleep(20); }

// --- the machine ---

struct Stream {
  int device = 0;
  std::mutex mutex{};
  std::condition_variable changed{};
  std::deque<std::function<void()>> work{};
  bool busy = false, ends = false;
  std::thread thread{};

  explicit Stream(int on) : device(on), thread([this] { run(); }) {}
  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ends || !work.empty(); });
      if (work.empty()) return;
      const std::function<void()> next = std::move(work.front());
      work.pop_front();
      busy = true;
      lock.unlock();
      next();
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
  void add(std::function<void()> next) {
    const std::lock_guard lock(mutex);
    work.push_back(std::move(next));
    changed.notify_all();
  }
  void drain() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return work.empty() && !busy; });
  }
  void end() {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    changed.notify_all();
    thread.join();
  }
};

struct Event {
  std::atomic<int> open{0};  // records that the stream has not reached
};

enum class Kind : uint8_t { device, pinned };
struct Block {
  Kind kind = Kind::device;
  int64_t bytes = 0;
};

struct Machine {
  std::mutex mutex{};
  std::map<uintptr_t, Block> blocks{};
  std::map<void*, std::shared_ptr<Stream>> streams{};
  std::map<void*, std::shared_ptr<Event>> events{};

  bool holds(const void* at, int64_t bytes, Kind kind) {
    const std::lock_guard lock(mutex);
    const auto place = reinterpret_cast<uintptr_t>(at);
    auto block = blocks.upper_bound(place);
    if (block == blocks.begin()) return false;
    --block;
    return block->second.kind == kind &&
           place + static_cast<uintptr_t>(bytes) <= block->first + static_cast<uintptr_t>(block->second.bytes);
  }
  std::shared_ptr<Stream> stream(void* handle) {
    const std::lock_guard lock(mutex);
    const auto found = streams.find(handle);
    return found == streams.end() ? nullptr : found->second;
  }
  std::shared_ptr<Event> event(void* handle) {
    const std::lock_guard lock(mutex);
    const auto found = events.find(handle);
    return found == events.end() ? nullptr : found->second;
  }
  void drain(int device) {
    std::vector<std::shared_ptr<Stream>> all;
    {
      const std::lock_guard lock(mutex);
      for (const auto& [handle, s] : streams) all.push_back(s);
    }
    for (const auto& s : all) {
      if (s->device == device) s->drain();
    }
  }
};
Machine& machine() {
  static Machine m;
  return m;
}
int& device() {
  static thread_local int d = 0;
  return d;
}
std::byte* real(const void* p) { return reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(p) & ~kDeviceBit); }

int allocate(void** to, size_t bytes, Kind kind) {
  machine().drain(device());
  const auto place = reinterpret_cast<uintptr_t>(std::malloc(bytes)) | (kind == Kind::device ? kDeviceBit : 0);
  std::memset(real(reinterpret_cast<void*>(place)), 0xff, bytes);
  const std::lock_guard lock(machine().mutex);
  machine().blocks[place] = {kind, static_cast<int64_t>(bytes)};
  *to = reinterpret_cast<void*>(place);
  return cuda_success;
}

int release(void* p, Kind kind) {
  machine().drain(device());
  const std::lock_guard lock(machine().mutex);
  const auto block = machine().blocks.find(reinterpret_cast<uintptr_t>(p));
  if (block == machine().blocks.end() || block->second.kind != kind) return cuda_invalid;
  machine().blocks.erase(block);
  std::free(real(p));
  return cuda_success;
}

// --- arithmetic, in FP64 and by rank ---

double from_half(uint16_t h) {
  const int exponent = h >> 10 & 31, mantissa = h & 1023;
  const double sign = h & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}
uint16_t to_half(double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  x = std::fabs(x);
  if (std::isnan(x)) return 0x7e00;
  if (x >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  const int exponent = x > 0 ? std::max(std::ilogb(x), -14) : -14;
  const auto scaled = static_cast<int>(std::nearbyint(std::ldexp(x, 10 - exponent)));  // carries into the exponent
  return static_cast<uint16_t>(sign | (scaled < 1024 ? scaled : ((exponent + 14) << 10) + scaled));
}
double from_bfloat(uint16_t b) {
  const uint32_t bits = static_cast<uint32_t>(b) << 16;
  float f = 0;
  std::memcpy(&f, &bits, sizeof f);
  return static_cast<double>(f);
}
uint16_t to_bfloat(double x) {
  const auto f = static_cast<float>(x);
  uint32_t bits = 0;
  std::memcpy(&bits, &f, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class Num>
Num at(const std::byte* p, int64_t i) {
  Num x;
  std::memcpy(&x, p + i * static_cast<int64_t>(sizeof x), sizeof x);
  return x;
}
template <class Num>
void put(std::byte* p, int64_t i, Num x) {
  std::memcpy(p + i * static_cast<int64_t>(sizeof x), &x, sizeof x);
}

template <class Num>
Num combined(int op, Num a, Num b) {
  if (op == 0) return static_cast<Num>(a + b);
  return op == 2 ? std::max(a, b) : std::min(a, b);
}

template <class Num, class Wide, class Read, class Write>
void reduce_as(const std::vector<const std::byte*>& in, std::byte* out, int64_t count, int op, Read read, Write write) {
  for (int64_t i = 0; i < count; ++i) {
    Wide x = read(at<Num>(in[0], i));
    for (size_t r = 1; r < in.size(); ++r) x = combined<Wide>(op, x, read(at<Num>(in[r], i)));
    put<Num>(out, i, write(x));
  }
}

int64_t size_of_type(int type) {
  constexpr std::array<int, 10> kSizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes[static_cast<size_t>(type)];
}
bool reduces_type(int type) { return type == 1 || type == 2 || type == 4 || type == 6 || type == 7 || type == 9; }

void reduce_all(const std::vector<const std::byte*>& in, std::byte* out, int64_t count, int type, int op) {
  const auto same = [](auto x) { return x; };
  const auto wrapped32 = [](uint64_t x) { return static_cast<uint32_t>(x); };
  if (type == 7) reduce_as<float, double>(in, out, count, op, same, [](double x) { return static_cast<float>(x); });
  if (type == 6) reduce_as<uint16_t, double>(in, out, count, op, from_half, to_half);
  if (type == 9) reduce_as<uint16_t, double>(in, out, count, op, from_bfloat, to_bfloat);
  if (type == 1)
    reduce_as<uint8_t, uint64_t>(in, out, count, op, same, [](uint64_t x) { return static_cast<uint8_t>(x); });
  if (type == 2 && op == 0) reduce_as<uint32_t, uint64_t>(in, out, count, op, same, wrapped32);
  if (type == 2 && op != 0) reduce_as<int32_t, int32_t>(in, out, count, op, same, same);
  if (type == 4 && op == 0) reduce_as<uint64_t, uint64_t>(in, out, count, op, same, same);
  if (type == 4 && op != 0) reduce_as<int64_t, int64_t>(in, out, count, op, same, same);
}

// --- communicators ---

enum class Op : int { broadcast = 1, reduce, all_reduce, all_gather, reduce_scatter, send, recv };

// What all ranks say alike of a collective.
struct Description {
  Op op = Op::broadcast;
  int type = 0, reduction = 0, root = 0;
  int64_t count = 0;
  bool operator==(const Description&) const = default;
};
struct Operation {
  Description what{};
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

struct Pair {
  std::atomic<int> full{0};
  int64_t bytes = 0;
};
struct Shared {
  std::atomic<int> ranks{0}, joined{0}, aborted{0}, arrived{0}, generation{0};
  std::array<std::atomic<int>, kRanksMost> taken{};
  std::array<int, kRanksMost> gpu{};
  std::array<Description, kRanksMost> said{};
  std::array<std::array<Pair, kRanksMost>, kRanksMost> pairs{};
};
constexpr int64_t kAreasAt = int64_t{1} << 16;
constexpr int64_t kPairsAt = kAreasAt + kRanksMost * kAreaBytes;
constexpr int64_t kSharedBytes = kPairsAt + kRanksMost * kRanksMost * kPairBytes;  // sparse
static_assert(sizeof(Shared) <= kAreasAt);

struct Comm {
  Shared* shared = nullptr;
  int rank = 0, size = 0, on = 0;
  std::atomic<int> state{in_progress};
  std::atomic<bool> aborted{false}, first{true}, finalized{false};
  std::thread helper{};
  std::string last{};

  ~Comm() {
    if (helper.joinable()) helper.join();
    if (shared) munmap(shared, static_cast<size_t>(kSharedBytes));
  }
  std::byte* area(int r) { return reinterpret_cast<std::byte*>(shared) + kAreasAt + r * kAreaBytes; }
  std::byte* pair(int from, int to) {
    return reinterpret_cast<std::byte*>(shared) + kPairsAt + (from * kRanksMost + to) * kPairBytes;
  }
  bool gone() const { return aborted || shared->aborted != 0; }
  void fail(int code, const std::string& why) {
    last = why;
    state = code;
    shared->aborted = 1;
  }
  // False: somebody aborted.
  bool meet() {
    const int generation = shared->generation;
    if (shared->arrived.fetch_add(1) + 1 == size) {
      shared->arrived = 0;
      ++shared->generation;
      return true;
    }
    while (shared->generation == generation) {
      if (gone()) return false;
      nap();
    }
    return true;
  }
};

struct Comms {
  std::mutex mutex{};
  std::map<void*, std::shared_ptr<Comm>> all{};
};
Comms& comms() {
  static Comms c;
  return c;
}
std::shared_ptr<Comm> comm_of(void* handle) {
  const std::lock_guard lock(comms().mutex);
  const auto found = comms().all.find(handle);
  return found == comms().all.end() ? nullptr : found->second;
}

struct Group {
  int depth = 0;
  void* comm = nullptr;
  void* stream = nullptr;
  std::vector<Operation> operations{};
};
Group& group() {
  static thread_local Group g;
  return g;
}

void collective(Comm& c, const Operation& o) {
  const Description& d = o.what;
  const int64_t block = d.count * size_of_type(d.type);
  const int64_t sent = d.op == Op::reduce_scatter ? block * c.size : block;
  c.shared->said[static_cast<size_t>(c.rank)] = d;
  if (d.op != Op::broadcast || c.rank == d.root) std::memcpy(c.area(c.rank), real(o.in), static_cast<size_t>(sent));
  if (!c.meet()) return;
  for (int r = 0; r < c.size; ++r) {
    if (!(c.shared->said[static_cast<size_t>(r)] == d))
      return c.fail(invalid_usage, "ranks make different collectives");
  }
  std::vector<const std::byte*> in;
  in.reserve(kRanksMost);
  for (int r = 0; r < c.size; ++r) in.push_back(c.area(r) + (d.op == Op::reduce_scatter ? c.rank * block : 0));
  std::byte* const out = real(o.out);
  if (d.op == Op::broadcast) std::memcpy(out, c.area(d.root), static_cast<size_t>(block));
  if (d.op == Op::all_reduce || d.op == Op::reduce_scatter || (d.op == Op::reduce && c.rank == d.root))
    reduce_all(in, out, d.count, d.type, d.reduction);
  for (int r = 0; d.op == Op::all_gather && r < c.size; ++r)
    std::memcpy(out + r * block, c.area(r), static_cast<size_t>(block));
  c.meet();
}

bool wait_for(Comm& c, const Pair& pair, int full) {
  while (pair.full != full) {
    if (c.gone()) return false;
    nap();
  }
  return true;
}

void exchange(Comm& c, const Operation& o) {
  const int64_t bytes = o.what.count * size_of_type(o.what.type);
  const int from = o.what.op == Op::send ? c.rank : o.what.root, to = o.what.op == Op::send ? o.what.root : c.rank;
  Pair& pair = c.shared->pairs[static_cast<size_t>(from)][static_cast<size_t>(to)];
  if (!wait_for(c, pair, o.what.op == Op::send ? 0 : 1)) return;
  if (o.what.op == Op::send) {
    std::memcpy(c.pair(from, to), real(o.in), static_cast<size_t>(bytes));
    pair.bytes = bytes;
    pair.full = 1;
    return;
  }
  if (pair.bytes != bytes) return c.fail(invalid_usage, "a message has another size");
  std::memcpy(real(o.out), c.pair(from, to), static_cast<size_t>(bytes));
  pair.full = 0;
}

const char* name_of(Op op) {
  constexpr std::array<const char*, 8> kNames = {
      "", "ncclBroadcast", "ncclReduce", "ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv"};
  return kNames[static_cast<size_t>(op)];
}

void run(Comm& c, const std::vector<Operation>& operations) {
  for (const Operation& o : operations) {
    if (is_set_to("FAKE_NCCL_ASYNC", name_of(o.what.op))) return c.fail(remote_error, "a peer has gone");
    while (is_set_to("FAKE_NCCL_HANG", name_of(o.what.op)) && !c.gone()) nap();
  }
  for (const Operation& o : operations) {
    if (!c.gone() && o.what.op < Op::send) collective(c, o);
  }
  for (const Op op : {Op::send, Op::recv}) {  // messages of a group are in flight together
    for (const Operation& o : operations) {
      if (!c.gone() && o.what.op == op) exchange(c, o);
    }
  }
}

// Whether a message of a group is received into bytes of another that is sent: NCCL leaves open what is sent then.
bool overlap(const std::vector<Operation>& operations) {
  for (const Operation& sent : operations) {
    for (const Operation& got : operations) {
      if (sent.what.op != Op::send || got.what.op != Op::recv) continue;
      if (sent.in < got.out + got.what.count * size_of_type(got.what.type) &&
          got.out < sent.in + sent.what.count * size_of_type(sent.what.type))
        return true;
    }
  }
  return false;
}

int launch(void* handle, void* stream_handle, std::vector<Operation> operations) {
  const std::shared_ptr<Comm> c = comm_of(handle);
  const std::shared_ptr<Stream> stream = machine().stream(stream_handle);
  if (!c || !stream || stream->device != c->on) return invalid_argument;
  if (c->state != success || overlap(operations)) return invalid_usage;
  const auto work = [c, operations = std::move(operations)] { run(*c, operations); };
  if (!c->first.exchange(false)) {
    stream->add(work);
    return success;
  }
  c->state = in_progress;
  if (c->helper.joinable()) c->helper.join();
  c->helper = std::thread([c = c.get(), stream, work] {
    usleep(500);
    stream->add(work);
    c->state = success;
  });
  return in_progress;
}

int enqueue(const Operation& o, void* handle, void* stream) {
  if (fails(name_of(o.what.op))) return system_error;
  const std::shared_ptr<Comm> c = comm_of(handle);
  if (!c || o.what.type < 0 || o.what.type > 9 || o.what.root < 0 || o.what.root >= c->size) return invalid_argument;
  if (o.what.count <= 0 || (o.what.op < Op::send && !reduces_type(o.what.type))) return invalid_argument;
  const Op op = o.what.op;
  const int64_t block = o.what.count * size_of_type(o.what.type), whole = block * c->size;
  const int64_t in = op == Op::recv ? 0 : op == Op::reduce_scatter ? whole : block;
  const bool writes = op != Op::send && (op != Op::reduce || c->rank == o.what.root);
  const int64_t out = !writes ? 0 : op == Op::all_gather ? whole : block;
  if (std::max(in, out) > (op >= Op::send ? kPairBytes : kAreaBytes)) return internal_error;
  if (in > 0 && !machine().holds(o.in, in, Kind::device)) return invalid_argument;
  if (out > 0 && !machine().holds(o.out, out, Kind::device)) return invalid_argument;
  Group& g = group();
  if (g.depth == 0) return launch(handle, stream, {o});
  if (g.comm && (g.comm != handle || g.stream != stream)) return invalid_usage;
  g.comm = handle;
  g.stream = stream;
  g.operations.push_back(o);
  return success;
}

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};
struct UniqueId {
  char bytes[128];
};

void connect(Comm& c) {
  Shared& s = *c.shared;
  ++s.joined;
  while (s.joined < c.size) {
    if (c.gone()) return;
    nap();
  }
  for (int r = 0; r < c.size; ++r) {
    if (r != c.rank && s.gpu[static_cast<size_t>(r)] == c.on) return c.fail(invalid_usage, "Duplicate GPU detected");
  }
  if (s.ranks != c.size) return c.fail(invalid_argument, "ranks of different numbers");
  c.meet();
  c.state = success;
}

}  // namespace

extern "C" {

int cudaGetDeviceCount(int* count) {
  const char* set = std::getenv("FAKE_NCCL_GPUS");
  *count = set ? std::atoi(set) : 8;
  return *count > 0 ? cuda_success : cuda_no_device;
}
int cudaSetDevice(int d) {
  int count = 0;
  cudaGetDeviceCount(&count);
  if (d < 0 || d >= count) return 101;
  device() = d;
  return cuda_success;
}
int cudaDeviceGetPCIBusId(char* to, int bytes, int d) {
  std::snprintf(to, static_cast<size_t>(bytes), "0000:%02x:00.0", d + 16);
  return cuda_success;
}
int cudaMalloc(void** to, size_t bytes) { return fails("cudaMalloc") ? 2 : allocate(to, bytes, Kind::device); }
int cudaFree(void* p) { return release(p, Kind::device); }
int cudaHostAlloc(void** to, size_t bytes, unsigned) { return allocate(to, bytes, Kind::pinned); }
int cudaFreeHost(void* p) { return release(p, Kind::pinned); }
const char* cudaGetErrorString(int code) {
  return code == cuda_no_device ? "no CUDA-capable device is detected"
         : code == 2            ? "out of memory"
         : code == 0            ? "no error"
                                : "invalid argument";
}
int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* handle) {
  const auto n = static_cast<int64_t>(bytes);
  const auto stream = machine().stream(handle);
  const bool up = kind == 1;
  if (!stream || (kind != 1 && kind != 2) || !machine().holds(to, n, up ? Kind::device : Kind::pinned) ||
      !machine().holds(from, n, up ? Kind::pinned : Kind::device))
    return cuda_invalid;
  stream->add([=] { std::memcpy(real(to), real(from), bytes); });
  return cuda_success;
}
int cudaStreamCreateWithFlags(void** to, unsigned) {
  auto stream = std::make_shared<Stream>(device());
  const std::lock_guard lock(machine().mutex);
  machine().streams[*to = stream.get()] = stream;
  return cuda_success;
}
int cudaStreamDestroy(void* handle) {
  const auto stream = machine().stream(handle);
  if (!stream) return cuda_invalid;
  {
    const std::lock_guard lock(machine().mutex);
    machine().streams.erase(handle);
  }
  stream->end();
  return cuda_success;
}
int cudaEventCreateWithFlags(void** to, unsigned) {
  auto event = std::make_shared<Event>();
  const std::lock_guard lock(machine().mutex);
  machine().events[*to = event.get()] = event;
  return cuda_success;
}
int cudaEventDestroy(void* handle) {
  const std::lock_guard lock(machine().mutex);
  return machine().events.erase(handle) == 1 ? cuda_success : cuda_invalid;
}
int cudaEventRecord(void* handle, void* stream_handle) {
  const auto event = machine().event(handle);
  const auto stream = machine().stream(stream_handle);
  if (!event || !stream) return cuda_invalid;
  ++event->open;
  stream->add([event] { --event->open; });
  return cuda_success;
}
int cudaEventQuery(void* handle) {
  const auto event = machine().event(handle);
  return !event ? cuda_invalid : event->open == 0 ? cuda_success : cuda_not_ready;
}

int ncclGetUniqueId(UniqueId* id) {
  if (fails("ncclGetUniqueId")) return system_error;
  const int file = memfd_create("fake_nccl", 0);  // nothing is left of it when its ranks have ended
  if (file < 0 || ftruncate(file, kSharedBytes) != 0) return system_error;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->bytes, sizeof id->bytes, "/proc/%d/fd/%d", getpid(), file);
  return success;
}
int ncclCommInitRankConfig(void** to, int ranks, UniqueId id, int rank, Config* config) {
  if (fails("ncclCommInitRankConfig")) return system_error;
  if (!config || config->magic != 0xcafebeef || config->size < 20 || config->version < 21400 || config->blocking != 0)
    return invalid_argument;
  if (ranks < 1 || ranks > kRanksMost || rank < 0 || rank >= ranks) return invalid_argument;
  id.bytes[sizeof id.bytes - 1] = 0;
  const int file = open(id.bytes, O_RDWR | O_CLOEXEC);
  if (file < 0) return system_error;
  void* memory =
      mmap(nullptr, static_cast<size_t>(kSharedBytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  close(file);
  if (memory == MAP_FAILED) return system_error;
  auto c = std::make_shared<Comm>();
  c->shared = static_cast<Shared*>(memory);  // zeros
  c->rank = rank;
  c->size = ranks;
  c->on = device();
  c->shared->gpu[static_cast<size_t>(rank)] = c->on;
  if (c->shared->taken[static_cast<size_t>(rank)].exchange(1) != 0) return invalid_usage;
  int none = 0;
  c->shared->ranks.compare_exchange_strong(none, ranks);
  c->helper = std::thread([c = c.get()] { connect(*c); });
  const std::lock_guard lock(comms().mutex);
  comms().all[*to = c.get()] = c;
  return in_progress;
}
int ncclCommGetAsyncError(void* handle, int* state) {
  const auto c = comm_of(handle);
  if (!c) return invalid_argument;
  *state = c->state;
  return success;
}
int ncclCommFinalize(void* handle) {
  const auto c = comm_of(handle);
  if (!c || group().depth != 0) return invalid_usage;
  if (c->state != success) return invalid_usage;
  c->state = in_progress;
  c->finalized = true;
  if (c->helper.joinable()) c->helper.join();
  c->helper = std::thread([c = c.get()] { c->state = c->meet() ? success : remote_error; });
  return in_progress;
}
int ncclCommDestroy(void* handle) {
  const auto c = comm_of(handle);
  if (!c || !c->finalized || c->state != success) return invalid_usage;
  c->helper.join();
  const std::lock_guard lock(comms().mutex);
  comms().all.erase(handle);
  return success;
}
int ncclCommAbort(void* handle) {
  const auto c = comm_of(handle);
  if (!c) return invalid_argument;
  c->aborted = true;
  c->shared->aborted = 1;
  if (c->helper.joinable()) c->helper.join();
  const std::lock_guard lock(comms().mutex);
  comms().all.erase(handle);
  return success;
}
const char* ncclGetErrorString(int code) {
  constexpr std::array<const char*, 8> kTexts = {"no error",
                                                 "unhandled cuda error",
                                                 "unhandled system error",
                                                 "internal error",
                                                 "invalid argument",
                                                 "invalid usage",
                                                 "remote process exited or there was a network error",
                                                 "in progress"};
  return kTexts[static_cast<size_t>(code)];
}
const char* ncclGetLastError(void* handle) {
  const auto c = comm_of(handle);
  return c ? c->last.c_str() : "";
}
int ncclGroupStart() { return ++group().depth > 0 ? success : invalid_usage; }
int ncclGroupEnd() {
  Group& g = group();
  if (g.depth == 0) return invalid_usage;
  if (--g.depth > 0) return success;
  const Group whole = std::exchange(g, {});
  return whole.operations.empty() ? success : launch(whole.comm, whole.stream, whole.operations);
}
int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, void* comm, void* stream) {
  const Description what{Op::broadcast, type, 0, root, static_cast<int64_t>(count)};
  return enqueue({what, static_cast<const std::byte*>(in), static_cast<std::byte*>(out)}, comm, stream);
}
int ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, void* comm, void* stream) {
  const Description what{Op::reduce, type, op, root, static_cast<int64_t>(count)};
  return enqueue({what, static_cast<const std::byte*>(in), static_cast<std::byte*>(out)}, comm, stream);
}
int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, void* comm, void* stream) {
  const Description what{Op::all_reduce, type, op, 0, static_cast<int64_t>(count)};
  return enqueue({what, static_cast<const std::byte*>(in), static_cast<std::byte*>(out)}, comm, stream);
}
int ncclAllGather(const void* in, void* out, size_t count, int type, void* comm, void* stream) {
  const Description what{Op::all_gather, type, 0, 0, static_cast<int64_t>(count)};
  return enqueue({what, static_cast<const std::byte*>(in), static_cast<std::byte*>(out)}, comm, stream);
}
int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, void* comm, void* stream) {
  const Description what{Op::reduce_scatter, type, op, 0, static_cast<int64_t>(count)};
  return enqueue({what, static_cast<const std::byte*>(in), static_cast<std::byte*>(out)}, comm, stream);
}
int ncclSend(const void* in, size_t count, int type, int peer, void* comm, void* stream) {
  const Description what{Op::send, type, 0, peer, static_cast<int64_t>(count)};
  return enqueue({what, static_cast<const std::byte*>(in), nullptr}, comm, stream);
}
int ncclRecv(void* out, size_t count, int type, int peer, void* comm, void* stream) {
  const Description what{Op::recv, type, 0, peer, static_cast<int64_t>(count)};
  return enqueue({what, nullptr, static_cast<std::byte*>(out)}, comm, stream);
}

// What was made and not freed.
int fake_nccl_left() {
  const std::lock_guard one(machine().mutex), two(comms().mutex);
  return static_cast<int>(machine().blocks.size() + machine().streams.size() + machine().events.size() +
                          comms().all.size());
}
}
