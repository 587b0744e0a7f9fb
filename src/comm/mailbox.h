// Messages that arrived before anybody asked for them, and receives that wait: what the transports that match messages
// themselves have in common. Of one rank, for one thread.
#pragma once
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "comm/transport.h"

namespace braid::comm {

struct Mail {
  int from = 0;
  uint64_t tag = 0, check = 0;
  std::vector<std::byte> data{};
};

class Mailbox {
 public:
  // Delivers what is there already, or remembers the receive.
  void recv(Message& m) {
    const auto arrived = arrived_.find({m.peer, m.tag});
    if (arrived == arrived_.end()) return waiting_[{m.peer, m.tag}].push_back(&m);
    deliver(m, arrived->second.front());
    arrived->second.pop_front();
    if (arrived->second.empty()) arrived_.erase(arrived);
  }
  // A whole message.
  void arrive(Mail mail) {
    if (Message* m = claim(mail.from, mail.tag))
      deliver(*m, mail);
    else
      arrived_[{mail.from, mail.tag}].push_back(std::move(mail));
  }
  // The receive that the next message of a sender and tag is for, no longer remembered; null: there is none.
  Message* claim(int from, uint64_t tag) {
    const auto waiting = waiting_.find({from, tag});
    if (waiting == waiting_.end()) return nullptr;
    Message* m = waiting->second.front();
    waiting->second.pop_front();
    if (waiting->second.empty()) waiting_.erase(waiting);
    return m;
  }
  // Puts a claimed receive back, as the next one.
  void unclaim(Message& m) { waiting_[{m.peer, m.tag}].push_front(&m); }
  bool waits_for(int from) const {
    const auto first = waiting_.lower_bound({from, 0});
    return first != waiting_.end() && first->first.first == from;
  }
  void forget() noexcept { waiting_.clear(); }

 private:
  static void deliver(Message& m, const Mail& mail) {
    m.got_bytes = std::ssize(mail.data);
    m.got_check = mail.check;
    if (m.got_bytes > 0) std::memcpy(m.data, mail.data.data(), static_cast<size_t>(std::min(m.bytes, m.got_bytes)));
    m.done = true;
  }

  // By sender and tag; queues are not empty.
  std::map<std::pair<int, uint64_t>, std::deque<Mail>> arrived_;
  std::map<std::pair<int, uint64_t>, std::deque<Message*>> waiting_;
};

}  // namespace braid::comm
