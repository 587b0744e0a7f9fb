#include "engine/prefix_file.h"

#include <cstring>
#include <set>
#include <utility>

#include "engine/state_pool.h"
#include "io/checksum.h"
#include "sys/error.h"

namespace braid::engine {
namespace {

// Parts of a file, in their order. Counts come from the file: what they ask for is compared with what is left before
// anything is allocated.
class Parts {
 public:
  Parts(std::span<const std::byte> file, const std::string& where) : left_(file), where_(where) {}

  std::span<const std::byte> take(int64_t count, int64_t bytes_each, const char* what) {
    const auto most = static_cast<int64_t>(left_.size());
    if (count < 0 || (bytes_each > 0 && count > most / bytes_each)) short_of(what);
    const int64_t bytes = count * bytes_each, padded = (bytes + 7) / 8 * 8;
    if (padded > most) short_of(what);
    const auto part = left_.first(static_cast<size_t>(bytes));
    left_ = left_.subspan(static_cast<size_t>(padded));
    return part;
  }
  template <class Num>
  std::vector<Num> take_all(int64_t count, const char* what) {
    const auto part = take(count, sizeof(Num), what);
    std::vector<Num> values(static_cast<size_t>(count));
    if (!part.empty()) std::memcpy(values.data(), part.data(), part.size());
    return values;
  }
  bool empty() const { return left_.empty(); }
  [[noreturn]] void refuse(const char* what, const std::string& got, const std::string& expected) const {
    fail(where_, {.what = what, .got = got, .expected = expected});
  }

 private:
  [[noreturn]] void short_of(const char* what) const { refuse("the file is too short", "less", what); }

  std::span<const std::byte> left_;
  const std::string& where_;
};

void check_kind(const PrefixFileHeader& h, const PrefixFileKind& kind, const Parts& parts) {
  if (h.version != kPrefixFileVersion)
    parts.refuse("another version of the format", std::to_string(h.version), std::to_string(kPrefixFileVersion));
  if (h.fingerprint == kind.fingerprint && h.coded != kind.coded)
    parts.refuse("its states are in another form (--snapshots)", h.coded ? "int8" : "f32", kind.coded ? "int8" : "f32");
  if (h.fingerprint != kind.fingerprint || h.page_tokens != kPageTokens || h.page_bytes != kind.page_bytes ||
      h.slot_bytes != kind.slot_bytes || h.width != kind.width) {
    parts.refuse("written with another model or other number formats", fmt::format("{:016x}", h.fingerprint),
                 fmt::format("{:016x}", kind.fingerprint));
  }
}

void check_checksum(std::span<const std::byte> file, const Parts& parts) {
  uint64_t stored = 0;
  if (file.size() < sizeof stored || file.size() % 8 != 0)
    parts.refuse("the file was cut", fmt::format("{} bytes", file.size()), "a multiple of 8");
  std::memcpy(&stored, file.data() + file.size() - sizeof stored, sizeof stored);
  io::Checksum sum;
  sum.update(file.first(file.size() - sizeof stored));
  if (sum.value() != stored)
    parts.refuse("damaged: the checksum is wrong", fmt::format("{:016x}", sum.value()), fmt::format("{:016x}", stored));
}

void check_node(const PrefixFile::Node& n, const PrefixFileHeader& h, const PrefixFileKind& kind, const Parts& parts) {
  const auto check = [&](bool good, const char* what, int64_t got) {
    if (!good) parts.refuse(what, std::to_string(got), "a tree");
  };
  check(n.end <= kind.context, "a path is longer than the context", n.end);
  check(n.references == (n.end + kPageTokens - 1) / kPageTokens - n.begin / kPageTokens, "wrong pages of an edge",
        n.references);
  for (const int32_t id : n.ids) check(id >= 0 && id < kind.vocab, "not a token id", id);
  for (const int32_t page : n.refs) check(page >= 0 && page < h.pages, "no such page", page);
  const bool has_slot = n.used > 0 && kind.slot_bytes > 0;
  check(has_slot ? n.slot >= 0 && n.slot < h.slots : n.slot == -1, "no such slot", n.slot);
  check(n.row == -1 || (n.used > 0 && n.row >= 0 && n.row < h.rows), "no such row", n.row);
}

}  // namespace

PrefixFile parse_prefix_file(std::span<const std::byte> file, const PrefixFileKind& kind, const std::string& where) {
  Parts parts(file, where);
  const auto magic = parts.take(1, std::ssize(kPrefixFileMagic), "a header");
  if (std::memcmp(magic.data(), kPrefixFileMagic.data(), magic.size()) != 0)
    parts.refuse("not a file of cached prefixes", "another", std::string(kPrefixFileMagic));
  const auto h = parts.take_all<PrefixFileHeader>(1, "a header")[0];
  check_kind(h, kind, parts);
  check_checksum(file, parts);

  if (h.pages > h.references)
    parts.refuse("pages without an edge", std::to_string(h.pages), std::to_string(h.references));
  const auto nodes = parts.take_all<PrefixFileNode>(h.nodes, "nodes");
  const auto tokens = parts.take_all<int32_t>(h.tokens, "tokens"),
             refs = parts.take_all<int32_t>(h.references, "pages");
  PrefixFile out;
  out.rows = parts.take(h.rows, h.width * size_of(DType::f32), "rows");
  out.pages = parts.take(h.pages, h.page_bytes, "pages");
  out.slots = parts.take(h.slots, h.slot_bytes, "slots");
  out.page_count = h.pages;
  (void)parts.take(1, sizeof(uint64_t), "a checksum");
  if (!parts.empty()) parts.refuse("more bytes than its header counts", "more", "the end");

  size_t token = 0, ref = 0;
  std::set<uint64_t> used;
  std::set<std::pair<int64_t, int32_t>> edges;  // by parent and first token
  for (const PrefixFileNode& n : nodes) {
    PrefixFile::Node& node = out.nodes.emplace_back(PrefixFile::Node{n});
    const auto index = std::ssize(out.nodes) - 1;
    if (n.parent < -1 || n.parent >= index) parts.refuse("not a tree", std::to_string(n.parent), "an earlier node");
    node.begin = n.parent < 0 ? 0 : out.nodes[static_cast<size_t>(n.parent)].end;
    if (n.tokens < 1 || n.tokens > std::ssize(tokens) - static_cast<int64_t>(token) || n.references < 0 ||
        n.references > std::ssize(refs) - static_cast<int64_t>(ref))
      parts.refuse("not a tree", fmt::format("{} tokens, {} pages", n.tokens, n.references), "those of an edge");
    node.end = node.begin + n.tokens;
    const auto copy = [](const std::vector<int32_t>& all, size_t& from, int64_t count) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(from);
      from += static_cast<size_t>(count);
      return std::vector<int32_t>(first, first + static_cast<std::ptrdiff_t>(count));
    };
    node.ids = copy(tokens, token, n.tokens);
    node.refs = copy(refs, ref, n.references);
    check_node(node, h, kind, parts);
    if (!edges.emplace(n.parent, node.ids[0]).second) parts.refuse("not a tree", "two edges alike", "one");
    if (n.used > 0 && !used.insert(n.used).second) parts.refuse("two snapshots were used at once", "two", "one");
  }
  return out;
}

}  // namespace braid::engine
