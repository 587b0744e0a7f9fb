#include "text/tool_calls.h"

#include <algorithm>
#include <utility>

#include "io/schema_types.h"
#include "text/partial_tag.h"
#include "text/trimmed.h"

namespace braid::text {
namespace {

using nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

constexpr std::string_view kSpaces = " \t\r\n";
// Llama 3's form ends where the answer does: its end is a token that answers do not contain.
constexpr std::string_view kTags[] = {"<tool_call>", "<TOOLCALL>", "<|python_tag|>"};
constexpr std::string_view kEnds[] = {"</tool_call>", "</TOOLCALL>", "<|eom_id|>"};
constexpr size_t kBare = 2;
constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
// Where a value ends without its closing tag: at the next tag, on a line of its own.
constexpr std::string_view kNextLine[] = {"\n<parameter=", "\n</function>", "\n</tool_call>", "\n</TOOLCALL>"};
constexpr std::string_view kNull = "null";
constexpr size_t kNameMax = 1024;

// Discarded where it is not JSON, or nested so deeply that writing it again would exhaust the stack.
ordered_json parse(std::string_view text) {
  constexpr int64_t kNestingMax = 64;
  int64_t depth = 0;
  Quotes quotes;
  for (const char ch : text) {
    quotes.push(ch);
    if (!quotes.inside) depth += (ch == '[' || ch == '{') - (ch == ']' || ch == '}');
    if (depth > kNestingMax) return ordered_json::value_t::discarded;
  }
  return ordered_json::parse(text, nullptr, false);
}

// The function of this name; null: none.
const ordered_json* function_of(const ordered_json& tools, const std::string& name) {
  for (const ordered_json& tool : tools) {
    const ordered_json& f = tool.contains("function") ? tool["function"] : tool;
    if (f.is_object() && f.contains("name") && f["name"] == name) return &f;
  }
  return nullptr;
}

// What is read of them: descriptions may be as long as a conversation.
ordered_json names_and_parameters(const ordered_json& tools) {
  ordered_json out = ordered_json::array();
  for (const ordered_json& tool : tools) {
    const ordered_json& f = tool.contains("function") ? tool["function"] : tool;
    if (!f.is_object() || !f.contains("name")) continue;
    ordered_json kept = {{"name", f["name"]}};
    if (f.contains("parameters")) kept["parameters"] = f["parameters"];
    out.push_back(std::move(kept));
  }
  return out;
}

io::ParameterForm form_of(const ordered_json& tools, const std::string& name, const std::string& key) {
  const ordered_json* f = function_of(tools, name);
  return f && f->contains("parameters") ? io::parameter_form((*f)["parameters"], key) : io::ParameterForm::unknown;
}

// JSON without the spaces between its parts. Its numbers keep their digits, which a double may have no room for.
std::string compact(std::string_view json) {
  std::string out;
  Quotes quotes;
  for (const char ch : json) {
    const bool inside = quotes.inside;
    quotes.push(ch);
    if (inside || quotes.inside || kSpaces.find(ch) == kSpaces.npos) out += ch;
  }
  return out;
}

// A value of Nemotron's form that the schema does not call a string. Models that write Python spell it their way.
std::string json_of(std::string_view text) {
  const std::string_view word = trimmed(text);
  if (word == "True") return "true";
  if (word == "False") return "false";
  if (word == "None") return "null";
  if (!parse(text).is_discarded()) return compact(text);
  return ordered_json(std::string(text)).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

ToolCallStream::ToolCallStream(const ordered_json& tools, bool bare)
    : tools_(std::make_shared<const ordered_json>(names_and_parameters(tools))),
      state_(bare ? State::start : State::content) {}

void ToolCallStream::take(size_t n) { held_.erase(0, n); }

void ToolCallStream::put(Kind kind, std::string_view text) {
  const bool joins = !out_.empty() && out_.back().kind == kind && kind != Kind::call && kind != Kind::end;
  if (joins)
    out_.back().text += text;
  else if (!text.empty() || kind == Kind::call || kind == Kind::end)
    out_.push_back({kind, std::string(text)});
}

void ToolCallStream::put_content(std::string_view text) {
  const size_t last = text.find_last_not_of(kSpaces);
  if (last == text.npos) {
    spaces_ += text;
    return;
  }
  put(Kind::content, spaces_);
  put(Kind::content, text.substr(0, last + 1));
  spaces_ = text.substr(last + 1);
}

void ToolCallStream::not_a_call() {
  put_content(std::exchange(raw_, ""));
  state_ = State::content;
}

void ToolCallStream::begin_call(const std::string& name) {
  put(Kind::call, name);
  raw_.clear();
  spaces_.clear();
  called_ = inside_ = true;
}

void ToolCallStream::end_call(bool complete, State next) {
  put(Kind::end, "");
  out_.back().complete = complete;
  inside_ = false;
  state_ = next;
}

// An answer that may be a call without any tag.
bool ToolCallStream::read_start() {
  const size_t first = held_.find_first_not_of(kSpaces);
  if (first == held_.npos) return false;
  if (held_[first] != '{') return state_ = State::content, true;
  open_bare(first + 1);
  return true;
}

// The first `n` bytes of what is held end with a brace that may open a call.
void ToolCallStream::open_bare(size_t n) {
  kind_ = kBare;
  raw_ = held_.substr(0, n);
  take(n);
  json_ = {};
  json_.push('{');
  in_list_ = false;
  state_ = State::object;
}

bool ToolCallStream::read_content() {
  size_t at = held_.npos, partial = 0;
  for (size_t k = 0; k < std::size(kTags); ++k) {
    if (const size_t found = held_.find(kTags[k]); found < at) at = found, kind_ = k;
    partial = std::max(partial, partial_tag(held_, kTags[k]));
  }
  if (at == held_.npos) {
    put_content(std::string_view(held_).substr(0, held_.size() - partial));
    take(held_.size() - partial);
    return false;
  }
  put_content(std::string_view(held_).substr(0, at));
  take(at + kTags[kind_].size());
  raw_ = kTags[kind_];
  in_list_ = false;
  state_ = State::opened;
  return true;
}

bool ToolCallStream::read_opened() {
  const size_t first = held_.find_first_not_of(kSpaces);
  if (first == held_.npos) return false;
  const std::string_view text = std::string_view(held_).substr(first);
  if (text.size() < kFunction.size() && kFunction.starts_with(text)) return false;
  if (text.starts_with(kFunction)) {
    raw_ += held_.substr(0, first + kFunction.size());
    take(first + kFunction.size());
    name_.clear();
    state_ = State::name;
    return true;
  }
  const char opening = text[0];
  if (opening != '{' && opening != '[') return not_a_call(), true;
  raw_ += held_.substr(0, first);
  take(first);
  json_ = {};
  state_ = opening == '{' ? State::object : State::list;
  return true;
}

bool ToolCallStream::read_name() {
  const size_t end = held_.find('>');
  if (end == held_.npos && held_.size() <= kNameMax) return false;
  const std::string name(trimmed(std::string_view(held_).substr(0, end)));
  if (end == held_.npos || name.empty()) return not_a_call(), true;
  take(end + 1);
  name_ = name;
  keys_.clear();
  begin_call(name_);
  state_ = State::parameters;
  return true;
}

// Between the values of a call: whatever is not a tag is dropped.
bool ToolCallStream::read_parameters() {
  const std::string_view tags[] = {kParameter, kFunctionEnd, kEnds[kind_]};
  size_t at = held_.npos, which = 0, partial = 0;
  for (size_t k = 0; k < std::size(tags); ++k) {
    if (const size_t found = held_.find(tags[k]); found < at) at = found, which = k;
    partial = std::max(partial, partial_tag(held_, tags[k]));
  }
  if (at == held_.npos) return take(held_.size() - partial), false;
  take(which == 2 ? at : at + tags[which].size());
  if (which == 0)
    state_ = State::key;
  else
    end_function();
  return true;
}

void ToolCallStream::end_function() {
  put(Kind::arguments, keys_.empty() ? "{}" : "}");
  end_call(true, State::after);
}

bool ToolCallStream::read_key() {
  const size_t end = held_.find('>');
  if (end == held_.npos && held_.size() <= kNameMax) return false;
  if (end == held_.npos) return end_call(false, State::broken), true;
  const std::string key(trimmed(std::string_view(held_).substr(0, end)));
  take(end + 1);
  const io::ParameterForm form = form_of(*tools_, name_, key);
  value_kind_ = form == io::ParameterForm::text            ? Value::string
                : form == io::ParameterForm::optional_text ? Value::nullable
                : form == io::ParameterForm::unknown       ? Value::unknown
                                                           : Value::other;
  const bool first = keys_.empty();
  if (!keys_.insert(key).second) {
    value_kind_ = Value::dropped;
  } else {
    std::string opening = first ? "{\"" : ",\"";
    append_json_escaped(key, opening);
    put(Kind::arguments, opening + (value_kind_ == Value::string ? "\":\"" : "\":"));
  }
  value_.clear();
  value_begun_ = json_value_ = false;
  quotes_ = {};
  passed_ = value_.npos;
  state_ = State::value;
  return true;
}

void ToolCallStream::watch_strings(std::string_view text) {
  for (const char ch : text) {
    if (value_.empty() && value_kind_ != Value::unknown)
      json_value_ = ch == '"' || (value_kind_ == Value::other && (ch == '{' || ch == '['));
    if (in_string() && ch == '\n') json_value_ = false;
    if (json_value_) quotes_.push(ch);
    value_ += ch;
  }
}

// The value was no JSON after all: it ends at the first tag that was read over. false: there is none.
bool ToolCallStream::read_again() {
  if (passed_ == value_.npos) return false;
  held_.insert(0, value_, passed_);
  value_.resize(std::exchange(passed_, value_.npos));
  json_value_ = false;
  return true;
}

// A value without the line breaks next to its tags.
void ToolCallStream::put_value(std::string_view text) {
  if (!text.empty() && !std::exchange(value_begun_, true) && text.starts_with('\n')) text.remove_prefix(1);
  if (value_kind_ == Value::string || value_kind_ == Value::dropped) return put_text(text);
  watch_strings(text);
  if (is_plain_text()) {
    value_kind_ = Value::string;
    put(Kind::arguments, "\"");
    put_text(value_);
  }
}

// What may be null or text can only be text.
bool ToolCallStream::is_plain_text() const {
  const bool may_be_null = kNull.starts_with(value_);
  return (value_kind_ == Value::unknown && !may_be_null) ||
         (value_kind_ == Value::nullable && !may_be_null && !value_.starts_with('"'));
}

void ToolCallStream::put_text(std::string_view text) {
  if (value_kind_ != Value::string) return;
  std::string escaped;
  append_json_escaped(text, escaped);
  put(Kind::arguments, escaped);
}

bool ToolCallStream::read_value() {
  const std::string_view text = held_;
  size_t end = text.find(kParameterEnd), next = end == text.npos ? end : end + kParameterEnd.size();
  size_t waiting = partial_tag(text, kParameterEnd);
  for (const std::string_view tag : kNextLine) {
    if (const size_t found = text.find(tag); found < end) end = next = found;
    waiting = std::max(waiting, partial_tag(text, tag));
  }
  if (end == text.npos) {
    size_t certain = text.size() - waiting;
    if (certain > 0 && text[certain - 1] == '\n') --certain;  // it may be the last, which belongs to the tag
    put_value(text.substr(0, certain));
    take(certain);
    return !json_value_ && read_again();
  }
  const bool on_its_line = next == end || (end > 0 && text[end - 1] == '\n');
  const size_t length = on_its_line && next > end ? end - 1 : end;
  put_value(text.substr(0, length));
  take(length);
  if (in_string() && !on_its_line) {
    passed_ = std::min(passed_, value_.size());
    put_value("<");
    take(1);
    return true;
  }
  if ((in_string() || !json_value_) && read_again()) return true;
  take(next - length);
  end_parameter();
  state_ = State::parameters;
  return true;
}

void ToolCallStream::end_parameter() {
  if (value_kind_ == Value::string) put(Kind::arguments, "\"");
  if (value_kind_ != Value::string && value_kind_ != Value::dropped) put(Kind::arguments, json_of(value_));
}

// Between the calls of a list.
bool ToolCallStream::read_list() {
  const size_t first = held_.find_first_not_of(kSpaces);
  if (first == held_.npos) return false;
  const char ch = held_[first];
  const size_t read = ch == '{' ? first : first + 1;
  if (!raw_.empty()) raw_ += held_.substr(0, read);
  take(read);
  if (ch == '{') {
    json_ = {};
    in_list_ = true;
    state_ = State::object;
  } else if (ch == ']') {
    if (!raw_.empty()) return not_a_call(), true;
    state_ = State::after;
  } else if (ch != ',' && ch != '[') {
    if (!raw_.empty()) return not_a_call(), true;
    state_ = State::broken;
  }
  return true;
}

void ToolCallStream::put_json(char ch) {
  bool good = json_.push(ch);
  if (kind_ == kBare && !inside_ && good)
    good = !json_.foreign() && (!json_.known() || function_of(*tools_, json_.name()));
  if (!inside_ && good && json_.known()) begin_call(json_.name());
  if (inside_) put(Kind::arguments, json_.take_arguments());
  if (good) return;
  if (inside_)
    end_call(json_.arguments_whole(), State::broken);
  else if (raw_.empty())  // an earlier call of the list was sent
    state_ = State::broken;
  else
    not_a_call();
}

bool ToolCallStream::read_object() {
  for (size_t i = 0; i < held_.size();) {
    if (!raw_.empty()) raw_ += held_[i];
    put_json(held_[i++]);
    if (state_ == State::object && json_.done()) end_call(true, in_list_ ? State::list : State::after);
    if (state_ != State::object) return take(i), true;
  }
  held_.clear();
  return false;
}

// The closing tag, or the next call, or the rest of the answer, where the tag is missing.
bool ToolCallStream::read_after() {
  const size_t first = held_.find_first_not_of(kSpaces);
  if (first == held_.npos) return false;
  const std::string_view text = std::string_view(held_).substr(first);
  for (const std::string_view tag : {kEnds[kind_], kFunctionEnd}) {
    if (text.size() < tag.size() && tag.starts_with(text)) return false;
    if (!text.starts_with(tag)) continue;
    take(first + tag.size());
    if (tag == kEnds[kind_]) state_ = State::content;
    return true;
  }
  if (kind_ == kBare && text[0] == ';') {
    const size_t next = text.find_first_not_of(kSpaces, 1);
    if (next == text.npos) return false;
    if (text[next] == '{') {
      open_bare(first + next + 1);
      return true;
    }
  }
  state_ = State::content;
  return true;
}

// The rest of a call that cannot be read is dropped.
bool ToolCallStream::read_broken() {
  const size_t end = held_.find(kEnds[kind_]);
  if (end == held_.npos) return take(held_.size() - partial_tag(held_, kEnds[kind_])), false;
  take(end + kEnds[kind_].size());
  state_ = State::content;
  return true;
}

bool ToolCallStream::step() {
  switch (state_) {
    case State::start:
      return read_start();
    case State::content:
      return read_content();
    case State::opened:
      return read_opened();
    case State::name:
      return read_name();
    case State::parameters:
      return read_parameters();
    case State::key:
      return read_key();
    case State::value:
      return read_value();
    case State::list:
      return read_list();
    case State::object:
      return read_object();
    case State::after:
      return read_after();
    case State::broken:
      return read_broken();
  }
  return false;
}

std::vector<AnswerPiece> ToolCallStream::push(std::string_view text) {
  held_ += text;
  while (step()) {
  }
  return std::exchange(out_, {});
}

std::vector<AnswerPiece> ToolCallStream::finish(bool cut) {
  if (!raw_.empty()) not_a_call();
  if (state_ == State::value && !cut && in_string() && read_again()) {
    while (step()) {
    }
  }
  if (state_ == State::value && !cut) {
    put_value(held_.ends_with('\n') ? std::string_view(held_).substr(0, held_.size() - 1) : held_);
    end_parameter();
  }
  const bool values = state_ == State::value || state_ == State::parameters || state_ == State::key;
  if (values && !cut)
    end_function();
  else if (inside_)
    end_call(state_ == State::object && json_.arguments_whole(), State::broken);
  if (state_ == State::content || state_ == State::start) put_content(held_);
  if (!called_) put(Kind::content, spaces_);
  held_.clear();
  return std::exchange(out_, {});
}

ParsedAnswer parse_tool_calls(std::string_view text, const ordered_json& tools, bool cut, bool bare) {
  ToolCallStream stream(tools, bare);
  std::vector<AnswerPiece> pieces = stream.push(text);
  for (AnswerPiece& last : stream.finish(cut)) pieces.push_back(std::move(last));
  ParsedAnswer out;
  for (const AnswerPiece& piece : pieces) {
    if (piece.kind == Kind::content) out.content += piece.text;
    if (piece.kind == Kind::call) out.calls.push_back({piece.text, ""});
    if (piece.kind == Kind::arguments) out.calls.back().arguments += piece.text;
    if (piece.kind == Kind::end) out.calls.back().complete = piece.complete;
  }
  return out;
}

}  // namespace braid::text
