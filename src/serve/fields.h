// Fields of JSON that a client sent, each with its limits.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace braid::serve {

// The object that a body holds; ApiError or Error for anything else. Whole numbers beyond 64 bits keep their digits
// (io/ordered_json.h): in schemas and arguments they are texts for the model, and no field of a request has room for
// one.
nlohmann::ordered_json parse_body(const std::string& body);

// JSON for a client; bytes that are not UTF-8 are replaced.
std::string dump(const nlohmann::ordered_json& json);

// "; got X", the end of an error: at most 80 bytes of it, and of lists and objects the word.
std::string got(const nlohmann::ordered_json& value);

uint64_t random_bits();
// "prefix" and sixteen hexadecimal digits.
std::string random_id(const char* prefix);

// The fields of one object; null counts as absent. Each refuses (ApiError, with the field as its param) what is not of
// its type or outside its limits.
class Fields {
 public:
  explicit Fields(const nlohmann::ordered_json& body) : body_(body) {}
  const nlohmann::ordered_json* find(const char* name) const;
  std::optional<double> number(const char* name, double least, double most) const;
  std::optional<int64_t> integer(const char* name, int64_t least, int64_t most) const;
  std::optional<bool> boolean(const char* name) const;
  std::optional<std::string> text(const char* name) const;
  // Only its default is available: another value must not pass in silence.
  void only(const char* name, const nlohmann::ordered_json& standard) const;
  // A text, or a list of up to 16; of 1 to 1024 bytes each.
  std::vector<std::string> stops(const char* name) const;

 private:
  const nlohmann::ordered_json& body_;
};

}  // namespace braid::serve
