// Schemas that combine others (allOf, $ref beside further keywords, anyOf beside further keywords) as alternatives that
// combine none.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/one_of.h"

namespace braid::grammar {

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
  // Whether propertyNames are what was made of patternProperties.
  static bool is_named_pattern(const nlohmann::ordered_json& names);
  // The schemas of a oneOf with what keeps each from satisfying another (one_of.h); null: as they are.
  nlohmann::ordered_json exclusive(const nlohmann::ordered_json& list);

 private:
  void charge(const nlohmann::ordered_json& copied);
  nlohmann::ordered_json merged(nlohmann::ordered_json a, const nlohmann::ordered_json& b);
  Ways product(Ways all, const Ways& factor);
  Ways one_of_them(const Ways& others, const nlohmann::ordered_json& schema, int depth);
  WaysOf ways_of();
  void name_pattern(nlohmann::ordered_json& schema) const;

  const nlohmann::ordered_json& root_;
  std::string_view where_;
  int merges_ = 0;
  int64_t copied_ = 0;
  bool compares_ = false;  // what a schema allows, or more: reads oneOf as anyOf, and keeps patternProperties
  std::unique_ptr<SchemaMerger> probe_;
  TextSteps text_steps_;
};

}  // namespace braid::grammar
