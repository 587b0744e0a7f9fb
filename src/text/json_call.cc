#include "text/json_call.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace braid::text {
namespace {

constexpr std::string_view kMembers[] = {"name", "arguments", "parameters", "type", "id"};

}  // namespace

bool JsonCall::begin_value(char ch) {
  member_.clear();
  in_value_ = true;
  if ((key_ != "arguments" && key_ != "parameters") || state_ != Arguments::none) {
    if (key_ == "arguments" || key_ == "parameters") key_.clear();  // a second one is dropped
    return true;
  }
  if (ch == 'n') return key_.clear(), true;  // null: none
  state_ = ch == '{' ? Arguments::open : Arguments::text;
  return ch == '{' || ch == '"';
}

bool JsonCall::end_value() {
  in_value_ = false;
  const bool is_arguments = key_ == "arguments" || key_ == "parameters";
  if (is_arguments && std::exchange(state_, Arguments::whole) == Arguments::text) {
    const auto text = nlohmann::json::parse(member_, nullptr, false);
    if (!text.is_string()) return false;
    JsonScanner inner;
    for (const char ch : text.get_ref<const std::string&>()) {
      if (!inner.push(ch, arguments_)) return false;
    }
    if (arguments_.empty())
      arguments_ = "{}";
    else if (!inner.done())
      return false;
    return arguments_[0] == '{';
  }
  if (key_ == "name" && name_.empty()) {
    const auto text = nlohmann::json::parse(member_, nullptr, false);
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) return false;
    name_ = text.get<std::string>();
  }
  return true;
}

bool JsonCall::push(char ch) {
  const bool outer = scanner_.depth() == 1 && !scanner_.in_string();
  if (scanner_.depth() == 0 && ch != '{') return false;
  std::string added;
  if (!scanner_.push(ch, added)) return false;
  if (added.empty()) return true;
  if (outer && !in_value_ && ch == ':') {
    const auto key = nlohmann::json::parse(member_, nullptr, false);
    if (!key.is_string()) return false;
    key_ = key.get<std::string>();
    foreign_ = foreign_ || std::ranges::find(kMembers, key_) == std::end(kMembers);
    in_value_ = true;
    member_.clear();
    return true;
  }
  if (outer && (ch == ',' || ch == '}')) {
    const bool good = !in_value_ || end_value();
    member_.clear();
    return good && (!done() || !name_.empty());
  }
  if (scanner_.depth() == 1 && member_.empty() && !in_value_ && ch == '{') return true;  // the call's own
  if (in_value_ && member_.empty() && !begin_value(added[0])) return false;
  const bool passed_on = in_value_ && state_ == Arguments::open && (key_ == "arguments" || key_ == "parameters");
  (passed_on ? arguments_ : member_) += added;
  if (passed_on) member_ = " ";  // not empty: the value has begun
  return true;
}

std::string JsonCall::take_arguments() {
  if (state_ == Arguments::none && done()) {
    state_ = Arguments::whole;
    arguments_ = "{}";
  }
  return state_ == Arguments::text ? "" : std::exchange(arguments_, "");
}

}  // namespace braid::text
