// Any bytes parse as a file of cached prefixes or give an Error; an accepted tree is one that can be restored. The
// first eight bytes of the input are not of the file: when they are zero, the checksum is made right, so that what it
// hides is reached.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "engine/prefix_file.h"
#include "io/checksum.h"
#include "sys/check.h"
#include "sys/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace braid;
  if (size < 8) return 0;
  const bool repaired = std::all_of(data, data + 8, [](uint8_t byte) { return byte == 0; });
  const auto input = std::as_bytes(std::span(data, size)).subspan(8);
  std::vector<std::byte> file(input.begin(), input.end());
  if (repaired && file.size() >= 8) {
    io::Checksum sum;
    sum.update(std::span(file).first(file.size() - 8));
    const uint64_t value = sum.value();
    std::memcpy(file.data() + file.size() - 8, &value, 8);
  }
  try {
    const engine::PrefixFileKind kind{
        .fingerprint = 7, .page_bytes = 16, .slot_bytes = 8, .width = 2, .vocab = 100, .context = 300};
    const engine::PrefixFile parsed = engine::parse_prefix_file(file, kind, "input");
    for (const engine::PrefixFile::Node& n : parsed.nodes) {
      CHECK(n.end == n.begin + std::ssize(n.ids) && n.end <= kind.context, "[{}, {})", n.begin, n.end);
      CHECK(n.refs.size() == static_cast<size_t>((n.end + 63) / 64 - n.begin / 64), "{} pages", n.refs.size());
      for (const int32_t page : n.refs) CHECK((page + 1) * kind.page_bytes <= std::ssize(parsed.pages), "{}", page);
      CHECK((n.slot + 1) * kind.slot_bytes <= std::ssize(parsed.slots), "slot {}", n.slot);
      CHECK((n.row + 1) * kind.width * 4 <= std::ssize(parsed.rows), "row {}", n.row);
    }
  } catch (const Error&) {
  }
  return 0;
}
