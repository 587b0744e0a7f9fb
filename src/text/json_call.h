// A call written as {"name": NAME, "arguments": {...}} ("parameters" in some models), byte by byte while it arrives.
#pragma once
#include <string>

#include "text/json_scanner.h"

namespace braid::text {

class JsonCall {
 public:
  // False: this is not a call, or no longer JSON.
  bool push(char ch);
  bool done() const { return scanner_.done(); }

  // The call can be named: its name is known, and its arguments have begun, or there are none.
  bool known() const { return !name_.empty() && (state_ == Arguments::open || state_ == Arguments::whole || done()); }
  const std::string& name() const { return name_; }
  // It has a member that calls have not: what a JSON object says that is no call.
  bool foreign() const { return foreign_; }
  // What has been added to the arguments since the last call; once `known`.
  std::string take_arguments();
  bool arguments_whole() const { return state_ == Arguments::whole || done(); }

 private:
  bool begin_value(char ch);
  bool end_value();

  enum class Arguments { none, text, open, whole };  // text: a string that holds the JSON
  JsonScanner scanner_;
  std::string member_;  // the key, then the value, of what is being read
  std::string key_, name_, arguments_;
  bool in_value_ = false, foreign_ = false;
  Arguments state_ = Arguments::none;
};

}  // namespace braid::text
