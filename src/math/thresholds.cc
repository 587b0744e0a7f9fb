#include "math/thresholds.h"

#include <array>
#include <charconv>

#include "sys/env.h"
#include "sys/error.h"
#include "sys/profile.h"

namespace braid {

std::span<const Threshold> threshold_table() {
  static constexpr std::array<Threshold, 5> kTable = {{
      {"panel_stream_rows", &Thresholds::panel_stream_rows, 2, "w as a stream", "blocks of w"},
      {"panel_few_rows", &Thresholds::panel_few_rows, 512, "blocks of 48 rows of w", "of 144"},
      {"panel_task_rows", &Thresholds::panel_task_rows, 512, "tasks of 48 rows of w", "of 144"},
      {"codes_few_rows", &Thresholds::codes_few_rows, 4, "codes read in place", "unpacked into strips"},
      {"codes_task_rows", &Thresholds::codes_task_rows, 512, "two tasks a thread", "tasks of 128 rows of w"},
  }};
  return kTable;
}

Thresholds thresholds_of(const std::map<std::string, std::string>& choices, Thresholds t, const std::string& where) {
  for (const Threshold& threshold : threshold_table()) {
    const auto found = choices.find(threshold.name);
    if (found == choices.end()) continue;
    const std::string& text = found->second;
    int64_t value = -1;
    const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc{} || stop != text.data() + text.size() || value < 0 || value > threshold.most)
      fail(where, {.what = fmt::format("{} is not a number of rows that it may be", threshold.name),
                   .got = printable(text),
                   .expected = fmt::format("0 to {}", threshold.most),
                   .hint = "leaving it out"});
    t.*threshold.value = value;
  }
  return t;
}

const Thresholds& thresholds() {
  static const Thresholds t =
      thresholds_of(sys::env().forced_rows, thresholds_of(sys::env().profile_rows, {}, printable(sys::profile_path())));
  return t;
}

}  // namespace braid
