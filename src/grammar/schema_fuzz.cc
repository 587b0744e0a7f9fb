// Any text as a schema, a regular expression or the parameters of a function (by its first byte): what compiles gives
// answers that end and, where they are JSON, can be read.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "grammar/grammar_fixture.h"
#include "grammar/tool_calls.h"
#include "io/json.h"
#include "sys/error.h"

namespace {

using namespace braid;

// Draws from the input itself; false: the answer did not end within its tokens.
bool draw(const std::shared_ptr<const grammar::Constraint>& constraint, std::string_view input, std::string& text) {
  grammar::Matcher matcher(constraint);
  const grammar::TokenTrie& trie = constraint->trie();
  for (int64_t left = 200, i = 0; left > 0; --left, ++i) {
    if (matcher.finished()) return true;
    std::vector<float> logits(static_cast<size_t>(trie.size()), 0);
    matcher.mask(logits, left);
    std::vector<int32_t> ids;
    for (size_t id = 0; id < logits.size(); ++id) {
      if (std::isfinite(logits[id])) ids.push_back(static_cast<int32_t>(id));
    }
    if (ids.empty()) std::abort();
    const auto choice = static_cast<size_t>(static_cast<uint8_t>(input[static_cast<size_t>(i) % input.size()])) * 31 +
                        static_cast<size_t>(i);
    const int32_t id = ids[choice % ids.size()];
    if (std::find(trie.ends().begin(), trie.ends().end(), id) != trie.ends().end()) {
      if (!matcher.complete()) std::abort();
      return true;
    }
    if (!matcher.accept(trie.bytes(id))) std::abort();
    text += trie.bytes(id);
  }
  return matcher.complete();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 4096) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const char kind = static_cast<char>(data[0]);
  try {
    if (kind == 'r') {
      std::string text;
      (void)draw(grammar::regex_of(input), input, text);
      return 0;
    }
    (void)io::Json::parse(input, "fuzz");
    const auto schema = nlohmann::ordered_json::parse(input, nullptr, false);
    const auto constraint = grammar::constraint_of([&](grammar::Builder& b) {
      if (kind == 'x') return grammar::tool_calls(b, {{"f", schema}}, {.form = grammar::CallForm::xml}, "fuzz");
      return grammar::json_schema(b, schema, "fuzz");
    });
    std::string text;
    if (draw(constraint, input, text) && kind != 'x' && !nlohmann::json::accept(text)) std::abort();
  } catch (const Error& e) {
    if (e.fault() != Fault::bad_input) std::abort();
  }
  return 0;
}
