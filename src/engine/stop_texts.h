// The end of an answer before any of some texts ("stop"): text passes through up to the first of them, which is left
// out unless it is asked for. What may be its beginning is held back.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/reasoning.h"

namespace braid::engine {

class StopTexts {
 public:
  // `shown`: the text that was found is passed through, too.
  explicit StopTexts(std::vector<std::string> stops, bool shown = false) : stops_(std::move(stops)), shown_(shown) {}
  bool found() const { return found_; }
  const std::string& which() const { return which_; }  // was found

  std::string push(std::string_view text) {
    if (found_) return "";
    held_ += text;
    size_t end = held_.size(), partial = 0;
    for (const std::string& stop : stops_) {
      if (const size_t at = held_.find(stop); at < end) end = at, found_ = true, which_ = stop;
      partial = std::max(partial, partial_tag(held_, stop));
    }
    std::string out = held_.substr(0, found_ ? end : held_.size() - partial);
    held_.erase(0, out.size());
    if (found_ && shown_) out += which_;
    return out;
  }
  std::string finish() { return found_ ? "" : std::exchange(held_, ""); }

 private:
  std::vector<std::string> stops_;
  std::string held_, which_;
  bool found_ = false, shown_;
};

}  // namespace braid::engine
