// Schemas that combine others (allOf, $ref beside further keywords, anyOf beside further keywords) as alternatives that
// combine none.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace braid::grammar {

// As JSON Schema compares values: whatever the order of keys, and 1 is 1.0.
bool same_value(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);

class SchemaMerger {
 public:
  // `root` is a checked schema and must outlive this.
  SchemaMerger(const nlohmann::ordered_json& root, std::string_view where) : root_(root), where_(where) {}

  // The schema that a $ref points to. Error when there is none.
  const nlohmann::ordered_json& target(const std::string& reference) const;
  // A value is valid if it is so under one of them. Each is false, or an object without $ref, anyOf, oneOf and allOf;
  // nor has it patternProperties: all its keys are those of the pattern then.
  // Error where that takes too much, or where keywords cannot be combined.
  std::vector<nlohmann::ordered_json> alternatives(const nlohmann::ordered_json& schema, int depth = 0);

 private:
  nlohmann::ordered_json merged(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);
  void name_pattern(nlohmann::ordered_json& schema) const;

  const nlohmann::ordered_json& root_;
  std::string_view where_;
  int merges_ = 0;
};

}  // namespace braid::grammar
