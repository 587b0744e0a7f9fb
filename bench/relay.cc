// Two network interfaces (TUN) and a delay between them: what is sent into one leaves the other so many microseconds
// later, in order. bench/netns.py moves the interfaces into two network namespaces, compiles this and runs it.
//
// usage: relay INTERFACE INTERFACE DELAY_US BITS_PER_US (0: no limit)
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Packet {
  Clock::time_point due;
  std::string bytes;
};

int open_interface(const char* name) {
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) == 0) return fd;
  std::perror(name);
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int fds[2] = {open_interface(argv[1]), open_interface(argv[2])};
  const auto delay = std::chrono::nanoseconds(static_cast<int64_t>(std::atof(argv[3]) * 1e3));
  const double bits_per_ns = std::atof(argv[4]) / 1e3;
  std::puts("ready");
  std::fflush(stdout);
  std::deque<Packet> queues[2];
  Clock::time_point free[2];  // when the link has sent all that it was given
  std::vector<char> buffer(1 << 16);
  for (;;) {
    auto next = Clock::now() + std::chrono::seconds(1);
    for (const auto& queue : queues) {
      if (!queue.empty()) next = std::min(next, queue.front().due);
    }
    pollfd ready[2] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}};
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(next - Clock::now());
    const timespec wait{left.count() > 0 ? left.count() / 1'000'000'000 : 0,
                        left.count() > 0 ? left.count() % 1'000'000'000 : 0};
    ppoll(ready, 2, &wait, nullptr);
    for (int side = 0; side < 2; ++side) {
      for (ssize_t n = 0; (n = read(fds[side], buffer.data(), buffer.size())) > 0;) {
        const auto now = Clock::now();
        const double ns = bits_per_ns > 0 ? 8 * static_cast<double>(n) / bits_per_ns : 0;
        free[side] = std::max(free[side], now) + std::chrono::nanoseconds(static_cast<int64_t>(ns));
        queues[side].push_back({free[side] + delay, std::string(buffer.data(), static_cast<size_t>(n))});
      }
    }
    for (int side = 0; side < 2; ++side) {
      while (!queues[side].empty() && queues[side].front().due <= Clock::now()) {
        const std::string& bytes = queues[side].front().bytes;
        if (write(fds[1 - side], bytes.data(), bytes.size()) < 0) {
        }  // an interface that is not up yet loses packets, as networks do
        queues[side].pop_front();
      }
    }
  }
}
