#include "comm/call.h"

#include <fmt/format.h>

#include <utility>

#include "comm/algorithm.h"
#include "comm/cells.h"
#include "comm/native.h"
#include "sys/error.h"

namespace braid::comm {

Call::Call(Player player, CallSite site, Transport& transport, Traffic& traffic)
    : player_(std::move(player)), site_(std::move(site)), transport_(transport), traffic_(traffic) {
  over_ = !player_.next();
  if (!over_) post_round();
}

Call::Call(const NativeCall& native, CallSite site, Transport& transport, Traffic& traffic)
    : player_({}, native.type, native.reduction), site_(std::move(site)), transport_(transport), traffic_(traffic) {
  transport_.native(native, open_.emplace_back().message);
}

bool Call::advance() {
  while (!over_) {
    bool all = true;
    for (Open& open : open_) {
      if (open.cells.own && !open.cells.done) advance_cells(open);
      if (!open.done()) {
        all = false;
      } else if (!std::exchange(open.counted, true)) {
        ++steps_;
        accept(open);
      }
    }
    if (!all) return false;
    player_.finish_round();
    open_.clear();
    over_ = !player_.next();
    if (!over_) post_round();
  }
  return true;
}

Call::Missing Call::missing() const {
  for (const bool receiving : {true, false}) {
    for (const Open& open : open_) {
      if (!open.done() && open.transfer && (open.transfer->kind == Transfer::Kind::recv) == receiving)
        return {open.transfer->peer, receiving};
    }
  }
  return {};
}

// Receives first, so that a message that is there already goes straight to its place.
void Call::post_round() {
  for (const Transfer::Kind kind : {Transfer::Kind::recv, Transfer::Kind::send}) {
    for (const Transfer& t : player_.round().transfers()) {
      if (t.kind == kind) post(t);
    }
  }
}

void Call::post(const Transfer& t) {
  Open& open = open_.emplace_back();
  open.transfer = &t;
  const int peer = site_.members[static_cast<size_t>(t.peer)];
  const int64_t wire = t.slot >= 0 ? cells::wire_bytes(player_.bytes(t)) : player_.bytes(t);
  if (t.kind == Transfer::Kind::send) {
    const size_t level = peer / site_.per_node == transport_.rank() / site_.per_node ? 0 : 1;
    for (Traffic* traffic : {&traffic_, site_.traffic.get()}) {
      if (!traffic) continue;
      traffic->bytes[level] += wire;
      ++traffic->messages[level];
    }
  }
  if (t.slot >= 0) {
    const uint64_t key = cells::key_of(site_.context, site_.window);
    open.cells.number = site_.cell_base + t.cell_number + 1;
    open.cells.own = transport_.window(key, transport_.rank(), site_.window.bytes());
    open.cells.peer = transport_.window(key, peer, site_.window.bytes());
    if (open.cells.own) {
      ++cells_open_;
      return;
    }
  }
  open.message = {.peer = peer, .tag = site_.tag | t.lane, .bytes = wire, .check = site_.check};
  post_message(t, open);
}

void Call::post_message(const Transfer& t, Open& open) {
  const bool sends = t.kind == Transfer::Kind::send, whole = t.slot < 0 && t.ranges == 1;
  if (!whole) open.staging.resize(static_cast<size_t>(open.message.bytes));
  if (sends) {
    if (t.slot >= 0)
      cells::store(open.staging.data(), {}, 0, open.cells.number,
                   {player_.source(t), static_cast<size_t>(player_.bytes(t))});
    else if (!whole)
      player_.gather(t, open.staging.data());
    // A transport only reads what it sends.
    open.message.data = whole ? const_cast<std::byte*>(player_.source(t)) : open.staging.data();
    return transport_.send(open.message);
  }
  open.message.data = whole ? player_.target(t) : open.staging.data();
  transport_.recv(open.message);
}

void Call::advance_cells(Open& open) {
  const Transfer& t = *open.transfer;
  const auto bytes = static_cast<size_t>(player_.bytes(t));
  Cells& c = open.cells;
  if (t.kind == Transfer::Kind::send) {
    if (!cells::may_store(c.own, site_.window, t.slot, c.number)) return;
    cells::store(c.peer, site_.window, t.slot, c.number, {player_.source(t), bytes});
  } else {
    if (!cells::take(c.own, site_.window, t.slot, c.number, {player_.target(t), bytes}, &c.taken)) return;
    cells::say_taken(c.own, c.peer, site_.window, t.slot, c.number);
  }
  c.done = true;
  --cells_open_;
}

// What arrived is compared with what was expected before anything is made of it.
void Call::accept(Open& open) {
  if (!open.transfer) return;
  const Transfer& t = *open.transfer;
  if (open.cells.own || t.kind == Transfer::Kind::send) return;
  const Message& m = open.message;
  if (site_.compare && m.got_check != m.check) {
    const auto other = static_cast<Op>(m.got_check & 7), own = static_cast<Op>(m.check & 7);
    fail(fmt::format("comm {}", site_.where),
         {.what = fmt::format("rank {} makes another call", t.peer),
          .got = other == own ? fmt::format("{} with other arguments, or after other calls", name_of(other))
                              : name_of(other),
          .expected = name_of(own)});
  }
  if (m.got_bytes != m.bytes)
    fail(fmt::format("comm {}", site_.where), {.what = fmt::format("a message from rank {} has another size", t.peer),
                                               .got = fmt::format("{} bytes", m.got_bytes),
                                               .expected = fmt::format("{}", m.bytes)});
  if (t.slot >= 0) {
    int64_t taken = 0;
    if (!cells::take(open.staging.data(), {}, 0, open.cells.number,
                     {player_.target(t), static_cast<size_t>(player_.bytes(t))}, &taken))
      fail(fmt::format("comm {}", site_.where), {.what = fmt::format("cells from rank {} have another number", t.peer),
                                                 .expected = fmt::format("{}", open.cells.number)});
  } else if (t.ranges != 1) {
    player_.scatter(t, open.staging.data());
  }
}

}  // namespace braid::comm
