// Reading JSON from elsewhere: config.json, tokenizer_config.json, index files. Sizes, depth and counts are capped,
// Python's dialect (bare NaN and Infinity, transformers 5's {"__float__": "Infinity"}) is read, and every typed getter
// knows the file and the path of its value, so that a wrong entry is named:
//   [config.json] hidden_size is not a whole number; got "many"; expected an integer from 1 to 65536
#pragma once
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid::io {

struct JsonLimits {
  int64_t bytes = int64_t{32} << 20;
  int64_t depth = 64;
  int64_t values = int64_t{4} << 20;  // bounds the memory of [[],[],...]; the largest vocabularies have 0.3 M
  int64_t string_bytes = int64_t{16} << 20;
  int64_t keys = int64_t{4} << 20;  // of one object
  bool digits = false;  // integers beyond 64 bits keep their digits (ordered_json.h), as doubles they lose them
};

struct IntRange {
  int64_t min = std::numeric_limits<int64_t>::min(), max = std::numeric_limits<int64_t>::max();
};
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
};

// Spellings of one key, in order of preference: the first that is present and not null counts.
using Keys = std::initializer_list<std::string_view>;

// One value of a document: cheap to copy; all values of a document share ownership of it.
class Json {
 public:
  // Error when the text is not JSON (with line, if there are several, and column) or exceeds a limit. `name` is what
  // messages call the document.
  static Json parse(std::string_view text, std::string name, const JsonLimits& limits = {});
  static Json read(const std::filesystem::path& path, const JsonLimits& limits = {});

  bool is_object() const;
  bool is_array() const;
  bool is_string() const;

  // Members by key: nullopt when all spellings are absent or null; Error when the value has another type or is out of
  // range.
  std::optional<Json> get(Keys keys) const;
  std::optional<int64_t> int_of(Keys keys, IntRange range = {}) const;
  std::optional<double> number_of(Keys keys, NumberRange range = {}) const;
  std::optional<bool> bool_of(Keys keys) const;
  std::optional<std::string> string_of(Keys keys) const;
  Json need(Keys keys) const;  // Error naming the key when it is absent

  // The value itself; Error when it has another type.
  int64_t as_int(IntRange range = {}) const;
  double as_number(NumberRange range = {}) const;  // NaN is in no range but the default one
  bool as_bool() const;
  const std::string& as_string() const;
  std::vector<Json> items() const;                            // of an array
  std::vector<std::pair<std::string, Json>> members() const;  // of an object, sorted by key

  const std::string& document() const;               // its name or path
  const std::string& path() const { return path_; }  // "quantization_config.ignore[3]", empty at the root
  const nlohmann::json& raw() const { return *node_; }

  // An error about this value, for checks that a getter cannot make.
  [[noreturn]] void refuse(std::string what, std::string expected, std::string hint = {}) const;

 private:
  struct Document;
  Json(std::shared_ptr<const Document> document, const nlohmann::json* node, std::string path);
  Json child(std::string_view key, const nlohmann::json& node) const;

  std::shared_ptr<const Document> document_;
  const nlohmann::json* node_;
  std::string path_;
};

}  // namespace braid::io
