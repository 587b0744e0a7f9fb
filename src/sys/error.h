// Errors and how they are reported (ARCHITECTURE.md, Errors). A function fails in one of three ways:
//   Error  the user's file, flag, request or machine: one line, exit code 1; or a run that failed, exit code 2
//   CHECK  a bug in braid: prints the values and ends the process with 70 (sys/check.h)
//   std::optional  an expected absence
#pragma once
#include <fmt/format.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace braid {

enum class Fault { bad_input, environment, failed_run };

class Error : public std::exception {
 public:
  Error(Fault fault, std::string text) : fault_(fault), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  Fault fault() const { return fault_; }
  int exit_code() const { return fault_ == Fault::failed_run ? 2 : 1; }

 private:
  Fault fault_;
  std::string text_;
};

// The one form of a message: `[where] what happened; got X; expected Y; try Z`. Empty parts are left out (not `where`).
struct Message {
  std::string what, got{}, expected{}, hint{};
};
std::string format_message(std::string_view where, const Message& m);

// One line for any bytes: UTF-8 as it is, control characters and broken UTF-8 of hostile files escaped, long text cut.
std::string printable(std::string_view text, size_t limit = 200);

[[noreturn]] inline void fail(std::string_view where, const Message& m) {
  throw Error(Fault::bad_input, format_message(where, m));
}
[[noreturn]] inline void fail_environment(std::string_view where, const Message& m) {
  throw Error(Fault::environment, format_message(where, m));
}

}  // namespace braid
