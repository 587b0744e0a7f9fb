// PrefixCache to a file and back (prefix_file.h).
#include <algorithm>
#include <cstring>

#include "engine/prefix_cache.h"
#include "io/atomic_file.h"
#include "io/checksum.h"
#include "sys/check.h"
#include "sys/error.h"
#include "sys/mapped_file.h"

namespace braid::engine {
namespace {

// Bytes to a file in large pieces, and their checksum.
class Sink {
 public:
  explicit Sink(const std::filesystem::path& path) : file_(path) {}

  void put(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    written_ += bytes.size();
    if (buffer_.size() >= kFlushBytes) flush();
  }
  template <class Num>
  void put_all(const std::vector<Num>& values) {
    put(std::as_bytes(std::span(values)));
    pad();
  }
  void pad() {
    while (written_ % 8 != 0) put(std::as_bytes(std::span("", 1)));
  }
  void commit() {
    flush();
    const uint64_t sum = sum_.value();
    file_.write(std::as_bytes(std::span(&sum, 1)));
    file_.commit();
  }

 private:
  static constexpr size_t kFlushBytes = size_t{1} << 20;
  void flush() {
    sum_.update(buffer_);
    file_.write(buffer_);
    buffer_.clear();
  }

  io::AtomicFile file_;
  io::Checksum sum_;
  std::vector<std::byte> buffer_;
  size_t written_ = 0;
};

}  // namespace

PrefixFileKind PrefixCache::kind(uint64_t fingerprint) const {
  return {.fingerprint = fingerprint,
          .coded = coded_bytes_ > 0,
          .page_bytes = pool_.page_bytes(),
          .slot_bytes = snapshot_bytes(),
          .width = runner_.config().hidden,
          .vocab = runner_.config().vocab,
          .context = runner_.options().context};
}

void PrefixCache::save(const std::filesystem::path& path, uint64_t fingerprint) const {
  PrefixFileHeader header{.page_tokens = kPageTokens,
                          .fingerprint = fingerprint,
                          .coded = coded_bytes_ > 0,
                          .page_bytes = pool_.page_bytes(),
                          .slot_bytes = snapshot_bytes(),
                          .width = runner_.config().hidden};
  std::vector<PrefixFileNode> nodes;
  std::vector<int32_t> tokens, references, pages;
  std::vector<const Node*> slots;
  std::vector<float> rows;
  std::map<int32_t, int32_t> numbers;  // of pages, in the file
  struct Visit {
    const Node* node;
    int64_t parent;
  };
  std::vector<Visit> left;
  for (const auto& child : nodes_.front().children) left.push_back({child.second, -1});
  while (!left.empty()) {
    const auto [n, parent] = left.back();
    left.pop_back();
    PrefixFileNode& out = nodes.emplace_back(PrefixFileNode{
        .parent = parent, .tokens = std::ssize(n->tokens), .references = std::ssize(n->pages), .used = n->used});
    tokens.insert(tokens.end(), n->tokens.begin(), n->tokens.end());
    for (const int32_t page : n->pages) {
      const auto number = numbers.emplace(page, static_cast<int32_t>(pages.size()));
      if (number.second) pages.push_back(page);
      references.push_back(number.first->second);
    }
    if (n->slot >= 0 || !n->coded.empty()) {
      out.slot = std::ssize(slots);
      slots.push_back(n);
    }
    if (!n->row.empty()) {
      CHECK(std::ssize(n->row) == header.width, "a row of {} in a model of {}", n->row.size(), header.width);
      out.row = header.rows++;
      rows.insert(rows.end(), n->row.begin(), n->row.end());
    }
    for (const auto& child : n->children) left.push_back({child.second, std::ssize(nodes) - 1});
  }
  header.nodes = std::ssize(nodes);
  header.tokens = std::ssize(tokens);
  header.references = std::ssize(references);
  header.pages = std::ssize(pages);
  header.slots = std::ssize(slots);

  Sink sink(path);
  sink.put(std::as_bytes(std::span(kPrefixFileMagic)));
  sink.put(std::as_bytes(std::span(&header, 1)));
  sink.put_all(nodes);
  sink.put_all(tokens);
  sink.put_all(references);
  sink.put_all(rows);
  const auto put = [&](std::span<std::byte> bytes) { sink.put(bytes); };
  for (const int32_t page : pages) pool_.for_each_part_of_page(page, put);
  sink.pad();
  for (const Node* n : slots) {
    if (n->slot >= 0) pool_.for_each_part_of_slot(n->slot, put);
    sink.put(n->coded);
  }
  sink.pad();
  sink.commit();
}

// The snapshot of a node of the file with all that leads to it; `pages` are those that have been restored. Null:
// there is no room for it.
PrefixCache::Node* PrefixCache::restore(const PrefixFile& file, size_t node, std::map<int32_t, int32_t>& pages) {
  const PrefixFile::Node& snapshot = file.nodes[node];
  std::vector<int32_t> tokens(static_cast<size_t>(snapshot.end)),
      path(static_cast<size_t>((snapshot.end + kPageTokens - 1) / kPageTokens), -1);  // pages, as numbered in the file
  for (auto at = static_cast<int64_t>(node); at >= 0; at = file.nodes[static_cast<size_t>(at)].parent) {
    const PrefixFile::Node& n = file.nodes[static_cast<size_t>(at)];
    std::ranges::copy(n.ids, tokens.begin() + static_cast<std::ptrdiff_t>(n.begin));
    for (size_t i = 0; i < n.refs.size(); ++i) {
      int32_t& page = path[static_cast<size_t>(n.begin / kPageTokens) + i];
      if (page < 0) page = n.refs[i];
    }
  }
  const auto fresh = std::ranges::count_if(path, [&](int32_t page) { return !pages.contains(page); });
  const int64_t width = snapshot.row < 0 ? 0 : runner_.config().hidden,
                bytes = fresh * pool_.page_bytes() + snapshot_bytes() + width * size_of(DType::f32) +
                        std::ssize(tokens) * size_of(DType::i32) + 2 * kNodeBytes;
  if (fresh > pool_.pages_free() || pool_.bytes_in_use() + bytes > runner_.options().memory) return nullptr;
  const auto from = [](std::span<const std::byte> all, int64_t number) {
    return [all, at = number](std::span<std::byte> part) mutable {
      std::memcpy(part.data(), all.data() + at, part.size());
      at += std::ssize(part);
    };
  };
  for (int32_t& page : path) {
    const auto known = pages.find(page);
    if (known == pages.end()) {
      const int32_t own = pool_.take_page();
      pool_.for_each_part_of_page(own, from(file.pages, page * pool_.page_bytes()));
      pages.emplace(page, own);
      page = own;
    } else {
      page = known->second;
    }
  }
  int64_t slot = -1;
  std::vector<std::byte> coded(static_cast<size_t>(coded_bytes_));
  if (coded_bytes_ > 0) {
    from(file.slots, snapshot.slot * coded_bytes_)(coded);
    pool_.refund(-coded_bytes_);
  } else if (recurrent_) {
    slot = pool_.take_slot();
    pool_.for_each_part_of_slot(slot, from(file.slots, snapshot.slot * pool_.slot_bytes()));
  }
  std::vector<float> row(static_cast<size_t>(width));
  if (width > 0)
    std::memcpy(row.data(), file.rows.data() + snapshot.row * width * size_of(DType::f32), row.size() * sizeof(float));
  pool_.refund(-width * size_of(DType::f32));
  return insert(tokens, path, slot, std::move(coded), row);
}

void PrefixCache::load(const std::filesystem::path& path, uint64_t fingerprint) {
  CHECK(by_use_.empty(), "{} snapshots before any were loaded", by_use_.size());
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return;
  const sys::MappedFile mapped(path);
  const PrefixFile file = parse_prefix_file(mapped.bytes(), kind(fingerprint), printable(path.string()));
  std::vector<size_t> order;
  for (size_t i = 0; i < file.nodes.size(); ++i) {
    if (file.nodes[i].used > 0) order.push_back(i);
  }
  std::ranges::sort(order, std::greater{}, [&](size_t i) { return file.nodes[i].used; });
  std::map<int32_t, int32_t> pages;
  clock_ = order.size();
  for (size_t i = 0; i < order.size(); ++i) {
    Node* restored = restore(file, order[i], pages);
    if (!restored) break;
    restored->used = (order.size() - i) | (file.nodes[order[i]].used & kWanted);
    by_use_[restored->used] = restored;
  }
  for (const auto& page : pages) pool_.release(page.second);
}

}  // namespace braid::engine
