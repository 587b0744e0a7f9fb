#include "environments/environment.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "environments/built_in.h"
#include "environments/command.h"
#include "sys/error.h"
#include "sys/nearest.h"
#include "text/trimmed.h"

namespace braid::environments {
namespace {

constexpr std::string_view kCommand = "command:";

class TableEntry final : public Environment {
 public:
  explicit TableEntry(const BuiltIn& row) : row_(row) {}
  int64_t levels() const override { return row_.levels; }
  Problem problem(synth::Draw& draw, int64_t level) override { return row_.problem(draw, level); }
  // A cut answer is not the one that was asked for, though it may look like it.
  Verdict judge(const Problem& problem, const Answer& answer) override {
    return {.reward = answer.cut ? 0 : row_.reward(problem, std::string(text::trimmed(answer.text)))};
  }

 private:
  const BuiltIn& row_;
};

}  // namespace

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const BuiltIn& row : built_in()) list.emplace_back(row.name);
  return list;
}

std::unique_ptr<Environment> make(const std::string& name, double seconds, const std::string& where) {
  if (name.starts_with(kCommand) && !text::trimmed(std::string_view(name).substr(kCommand.size())).empty())
    return std::make_unique<Command>(name.substr(kCommand.size()), seconds);
  for (const BuiltIn& row : built_in()) {
    if (name == row.name) return std::make_unique<TableEntry>(row);
  }
  const std::vector<std::string> known = names();
  fail(where, {.what = "no such environment",
               .got = printable(name),
               .expected = fmt::format("{}, or command:LINE", fmt::join(known, ", ")),
               .hint = sys::nearest(name, known)});
}

}  // namespace braid::environments
