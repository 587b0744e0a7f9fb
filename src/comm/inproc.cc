#include "comm/inproc.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "comm/mailbox.h"
#include "sys/error.h"

namespace braid::comm {
namespace {

// What the ranks of a process share.
struct Hub {
  explicit Hub(int size) : boxes(static_cast<size_t>(size)) {}
  struct Box {
    std::mutex mutex;
    std::condition_variable arrived;
    std::vector<Mail> mail;
    std::string broken;  // why nothing more will come
  };
  std::deque<Box> boxes;
  std::mutex windows_mutex;
  std::map<std::pair<uint64_t, int>, std::vector<std::byte>> windows;

  void break_all(const std::string& why) {
    for (Box& box : boxes) {
      const std::lock_guard lock(box.mutex);
      if (box.broken.empty()) box.broken = why;
      box.arrived.notify_one();
    }
  }
};

class InProcess final : public Transport {
 public:
  InProcess(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hub_->boxes.size()); }

  void send(Message& m) override {
    Hub::Box& box = hub_->boxes[static_cast<size_t>(m.peer)];
    Mail mail{rank_, m.tag, m.check, std::vector<std::byte>(m.data, m.data + m.bytes)};
    const std::lock_guard lock(box.mutex);
    box.mail.push_back(std::move(mail));
    box.arrived.notify_one();
    m.done = true;
  }

  void recv(Message& m) override { mailbox_.recv(m); }

  void progress(std::chrono::microseconds patience) override {
    std::vector<Mail> mail;
    {
      Hub::Box& box = hub_->boxes[static_cast<size_t>(rank_)];
      std::unique_lock lock(box.mutex);
      if (patience.count() > 0)
        box.arrived.wait_for(lock, patience, [&] { return !box.mail.empty() || !box.broken.empty(); });
      mail.swap(box.mail);
      if (mail.empty() && !box.broken.empty())
        fail_environment("comm", {.what = fmt::format("rank {} cannot go on", rank_), .got = box.broken});
    }
    for (Mail& letter : mail) mailbox_.arrive(std::move(letter));
  }

  void forget() noexcept override { mailbox_.forget(); }

  std::byte* window(uint64_t key, int rank, int64_t bytes) override {
    std::byte*& window = windows_[{key, rank}];
    if (window) return window;
    const std::lock_guard lock(hub_->windows_mutex);
    auto& memory = hub_->windows[{key, rank}];
    if (memory.empty()) memory.resize(static_cast<size_t>(bytes));
    return window = memory.data();
  }

 private:
  std::shared_ptr<Hub> hub_;  // shared by the ranks, and by the thread that started them
  int rank_;
  Mailbox mailbox_;
  std::map<std::pair<uint64_t, int>, std::byte*> windows_;
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

void run_in_process(int size, const Options& options, const std::function<void(Group& world)>& body) {
  const auto hub = std::make_shared<Hub>(size);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Group world(std::make_unique<InProcess>(hub, rank), options);
        body(world);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) {
          first = std::current_exception();
          hub->break_all(fmt::format("rank {} ended: {}", rank, text_of(first)));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

Group self_group() { return {std::make_unique<InProcess>(std::make_shared<Hub>(1), 0), {}}; }

}  // namespace braid::comm
