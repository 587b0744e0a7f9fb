// Tool calls in the text of an answer, in the forms that models write (docs/internals/families.md):
//   Nemotron 3   <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>
//   Qwen, Hermes <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>
//   Nano 2       <TOOLCALL>[{"name": NAME, "arguments": {...}}, ...]</TOOLCALL>
//   Llama 3      {"name": NAME, "parameters": {...}}, alone or after <|python_tag|>, further ones after a semicolon
// One parser reads them while they are generated. A call exists once its name is known; what does not become one stays
// text. From its name on its arguments are passed on as they come: JSON without the white space between values, or the
// values of Nemotron's form, which are text: those that the schema calls strings, or strings or null, piece by piece,
// others when they are complete, as numbers, booleans or objects where they are JSON, whose strings may hold the form's
// own tags. A parameter that the schema does not have is text, unless it is `null`, as in vLLM's reader. Missing
// closing tags are tolerated at the end of a line. Since any answer in JSON looks like Llama 3's form, that one is read
// only where `bare` says that the model writes it, at the beginning of the answer, and only as calls of functions that
// are offered.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_call.h"
#include "text/quotes.h"

namespace braid::text {

struct AnswerPiece {
  enum class Kind : uint8_t {
    content,    // more of the text of the answer
    call,       // a call begins: `text` is its name
    arguments,  // more of its arguments; all of a call together are a JSON object, unless it is cut or not JSON
    end         // of the call
  };
  Kind kind = Kind::content;
  std::string text{};
  bool complete = true;  // of an end: the arguments are whole
};

class ToolCallStream {
 public:
  // `tools` is an array, or null: of it the types of parameters are read, and with `bare` the names. White space beside
  // calls is dropped. Copies share the tools.
  explicit ToolCallStream(const nlohmann::ordered_json& tools, bool bare = false);
  // Pieces do not depend on how the text is divided, except in how their own text is.
  std::vector<AnswerPiece> push(std::string_view text);
  // `cut`: the text was not complete, so that a call without its end is none.
  std::vector<AnswerPiece> finish(bool cut);

 private:
  enum class State : uint8_t { start, content, opened, name, parameters, key, value, list, object, after, broken };
  bool step();  // false: more text is needed
  bool read_start();
  void open_bare(size_t n);
  bool read_content();
  bool read_opened();
  bool read_name();
  bool read_parameters();
  bool read_key();
  bool read_value();
  bool read_list();
  bool read_object();
  bool read_after();
  bool read_broken();

  void take(size_t n);  // off the front of what is held
  void put(AnswerPiece::Kind kind, std::string_view text);
  void put_content(std::string_view text);
  void put_value(std::string_view text);
  void put_text(std::string_view text);
  bool is_plain_text() const;
  bool in_string() const { return json_value_ && quotes_.inside; }
  void watch_strings(std::string_view text);
  bool read_again();
  void put_json(char ch);
  void not_a_call();
  void begin_call(const std::string& name);
  void end_parameter();
  void end_function();
  void end_call(bool complete, State next);

  std::shared_ptr<const nlohmann::ordered_json> tools_;  // names and parameters, of any number of answers
  std::vector<AnswerPiece> out_;
  State state_;
  std::string held_;     // not read yet
  std::string raw_;      // read since the opening tag, while there is no call: it may stay text
  std::string spaces_;   // at the end of the content: dropped before a call
  size_t kind_ = 0;      // of the tag
  bool called_ = false;  // a call has begun
  bool inside_ = false;  // a call has begun and not ended

  // Nemotron's form.
  std::string name_, value_;
  std::set<std::string> keys_;  // a second value of one is dropped
  // `nullable` and `unknown`: null or a string, and what has come may be the beginning of either.
  enum class Value : uint8_t { string, nullable, unknown, other, dropped } value_kind_ = Value::other;
  bool value_begun_ = false;
  Quotes quotes_;                      // of a value that may be JSON
  bool json_value_ = false;            // it may: it begins as JSON does, and no string of it holds a line break
  size_t passed_ = std::string::npos;  // in it, the first tag that was read over, since it is in a string
  // The others.
  JsonCall json_;
  bool in_list_ = false;
};

struct ToolCall {
  std::string name;
  std::string arguments;  // an object, if the call is complete and is JSON
  bool complete = true;
};

struct ParsedAnswer {
  std::string content;
  std::vector<ToolCall> calls;
};

// Of a whole answer: what the pieces of a stream add up to.
ParsedAnswer parse_tool_calls(std::string_view text, const nlohmann::ordered_json& tools, bool cut = false,
                              bool bare = false);

}  // namespace braid::text
