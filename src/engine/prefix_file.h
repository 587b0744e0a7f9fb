// The file in which a PrefixCache survives a restart of its process. Little-endian, every part padded to 8 bytes:
//
//   "BRAIDPFX", PrefixFileHeader
//   PrefixFileNode [nodes]         parents before their children; -1 is the root, which is not written
//   i32 [tokens]                   of the edges, one after another
//   i32 [page references]          of the edges, one after another: which of the pages
//   f32 [rows, width]
//   u8  [pages, bytes of a page]   keys and values, block after block as the pool stores them
//   u8  [slots, bytes of a slot]   recurrent states, likewise, or coded (coded_snapshot.h)
//   u64                            io::Checksum of all before it
//
// The pages, slots and rows of a file fit one model, one choice of number formats and one version of this format only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace braid::engine {

constexpr std::string_view kPrefixFileMagic = "BRAIDPFX";
constexpr uint32_t kPrefixFileVersion = 2;

// What a reader expects.
struct PrefixFileKind {
  uint64_t fingerprint = 0;  // engine/fingerprint.h
  int64_t coded = 0;         // whether recurrent states are in INT8
  int64_t page_bytes = 0, slot_bytes = 0, width = 0;
  int64_t vocab = 0, context = 0;  // ids and positions are below them
};

struct PrefixFileHeader {
  uint32_t version = kPrefixFileVersion, page_tokens = 0;
  uint64_t fingerprint = 0;
  int64_t coded = 0;
  int64_t page_bytes = 0, slot_bytes = 0, width = 0;
  int64_t nodes = 0, tokens = 0, references = 0, rows = 0, pages = 0, slots = 0;
};

struct PrefixFileNode {
  int64_t parent = -1, tokens = 0, references = 0;
  uint64_t used = 0;  // PrefixCache::Node::used; 0: no snapshot
  int64_t slot = -1, row = -1;
};

// Views of the bytes of a file.
struct PrefixFile {
  struct Node : PrefixFileNode {
    int64_t begin = 0, end = 0;          // positions of the edge
    std::vector<int32_t> ids{}, refs{};  // its tokens and its pages
  };
  std::vector<Node> nodes{};
  std::span<const std::byte> rows{}, pages{}, slots{};
  int64_t page_count = 0;
};

// Error, naming what is wrong, when the file is of another kind or version, cut short or damaged.
PrefixFile parse_prefix_file(std::span<const std::byte> file, const PrefixFileKind& kind, const std::string& where);

}  // namespace braid::engine
