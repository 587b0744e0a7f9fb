// Which texts a schema allows, case by case.
#include "grammar/json_schema.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/grammar_fixture.h"
#include "support/error_of.h"

namespace braid::grammar {
namespace {

struct SchemaCase {
  const char* schema;
  std::vector<const char*> allowed, refused;
};

void expect_cases(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& c : cases) {
    const auto constraint = schema_of(c.schema);
    for (const char* text : c.allowed) EXPECT_TRUE(matches(constraint, text)) << c.schema << "  " << text;
    for (const char* text : c.refused) EXPECT_FALSE(matches(constraint, text)) << c.schema << "  " << text;
  }
}

TEST(JsonSchema, Numbers) {
  expect_cases(
      {{R"({"type": "integer"})",
        {"0", "-7", "123456789012345"},
        {"01", "1.5", "1234567890123456", "", "-", "\"1\"", "1 "}},
       {R"({"type": "number"})", {"0", "-7.25", "1e5", "2.5E-07", "-0.5"}, {"1.", ".5", "1e", "1e999", "+1", "NaN"}},
       {R"({"type": "integer", "minimum": -12, "maximum": 105})",
        {"-12", "-1", "0", "9", "10", "99", "100", "105"},
        {"-13", "-20", "106", "200", "1000", "-0", "110"}},
       {R"({"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 12})", {"10", "11"}, {"9", "12", "1", "100"}},
       {R"({"type": "integer", "multipleOf": 7, "minimum": 1})",
        {"7", "14", "700", "77777777777777"},
        {"0", "1", "8", "15"}},
       {R"({"type": "integer", "minimum": 5.5})", {"6", "10"}, {"5", "-6"}},
       {R"({"type": "number", "minimum": 0.25, "maximum": 1.5})",
        {"0.25", "0.3", "1", "1.0", "1.5", "1.50", "1.4999", "0.9"},
        {"0", "0.2", "0.24999", "1.51", "1.6", "2", "-1", "10"}},
       {R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})",
        {"0.5", "0.0001", "0.999"},
        {"0", "0.0", "1", "1.0", "-0.5"}},
       {R"({"type": "number", "maximum": -2.5})", {"-2.5", "-3", "-100.25"}, {"-2", "-2.4", "0", "2.5"}},
       {R"({"type": "number", "multipleOf": 0.25})", {"0.25", "-1.5", "3", "2.75"}, {"0.1", "0.125", "2.755"}},
       // 0.3 / 0.1 is not 3 in doubles, and validators divide.
       {R"({"type": "number", "multipleOf": 0.1})",
        {"0", "0.1", "0.2", "-0.5", "3", "99.9", "1234567"},
        {"0.3", "0.6", "-0.7", "0.15", "123456.5"}},
       {R"({"type": "number", "multipleOf": 0.01, "exclusiveMinimum": 9.99})",
        {"10", "20.5", "250"},
        {"9.99", "0.5", "19.99"}},
       {R"({"type": "number", "multipleOf": 0.3, "maximum": 1.2})", {"0.3", "-3", "1.2"}, {"0.1", "1", "1.5"}},
       {R"({"type": "integer", "multipleOf": 0.5})", {"7", "-2"}, {"0.5"}},
       {R"({"type": "integer", "multipleOf": 1.5})", {"3", "-6"}, {"1", "1.5"}}});
}

TEST(JsonSchema, StringsAndConstants) {
  expect_cases(
      {{R"({"type": "string", "format": "regexp", "contentMediaType": "application/json", "contentEncoding": "base64",
           "contentSchema": {"not": 5}})",
        {R"("(a")"},
        {"5"}},
       {R"({"type": "string", "minLength": 2, "maxLength": 3})",
        {R"("ab")", R"("aäb")", R"("\n\u00e4")", R"("\ud83d\ude00b")", "\"\xf0\x9f\x98\x80!\""},
        {R"("a")", R"("abcd")", R"("\ud83d\ude00")", R"("\ud83dab")", R"("\q1")", "\"a\nb\""}},
       {R"({"type": "string", "pattern": "^[a-c]{2}\\d$"})",
        {R"("ab1")", R"("cc9")"},
        {R"("ab")", R"("abc")", R"("ad1")"}},
       {R"({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3, "minLength": 2})",
        {R"("ab")", R"("abc")"},
        {R"("a")", R"("abcd")"}},
       {R"({"type": "string", "pattern": "^\"[^x]\\\\$"})", {R"("\"y\\")", R"("\"\n\\")"}, {R"("\"x\\")", R"("y")"}},
       {R"({"type": "string", "format": "date"})",
        {R"("2024-02-28")", R"("1999-12-31")"},
        {R"("2024-02-30")", R"("2024-13-01")", R"("2024-1-1")"}},
       {R"({"type": "string", "format": "date-time"})",
        {R"("2024-02-28T23:59:59Z")", R"("2024-02-28T00:00:00.123+02:00")"},
        {R"("2024-02-28")"}},
       {R"({"type": "string", "format": "uuid"})",
        {R"("01234567-89ab-cdef-0123-456789abcdef")"},
        {R"("0123456789ab")"}},
       {R"({"type": "string", "format": "email"})",
        {R"("jo.doe@example.org")", R"("a@b-c.de")"},
        {R"("a@b")", R"("@b.de")"}},
       {R"({"type": "string", "format": "uuid4"})",
        {R"("01234567-89ab-4def-8123-456789abcdef")"},
        {R"("01234567-89ab-3def-8123-456789abcdef")", R"("01234567-89ab-4def-0123-456789abcdef")"}},
       {R"({"type": "string", "format": "ipv6interface"})", {R"("1:2:3:4:5:6:7:8/128")"}, {R"("1:2:3:4:5:6:7:8/129")"}},
       {R"({"type": "string", "format": "multi-host-uri", "minLength": 1})",
        {R"("postgres://user:pass@localhost:5432/app")"},
        {R"("postgres:app")"}},
       {R"({"type": "string", "format": "fancy"})", {R"("")", R"("any text")"}, {"5"}},
       {R"({"enum": ["a", "ab", 1, null, [1, 2], {"k": true}]})",
        {R"("a")", R"("ab")", "1", "null", "[1,2]", R"({"k":true})"},
        {R"("b")", "2", R"("abc")"}},
       {R"({"enum": ["a", 1, 2.5], "type": ["string", "integer"]})", {R"("a")", "1"}, {"2.5"}},
       {R"({"const": "x"})", {R"("x")"}, {R"("y")"}},
       {R"({"type": ["boolean", "null"]})", {"true", "false", "null"}, {"0"}}});
}

TEST(JsonSchema, ObjectsAndArrays) {
  expect_cases(
      {{R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "required": ["a"], "additionalProperties": false})",
        {R"({"a":1})", R"({"a": 1, "b": null})", "{\n  \"a\": 1,\n  \"b\": null\n}"},
        {"{}", R"({"b":null})", R"({"b":null,"a":1})", R"({"a":1,"c":2})", R"({"a":1,})", R"({"a":1,"a":1})",
         R"({ "a":1})", "{\"a\":  1}"}},
       {R"({"type": "object", "properties": {"a": {"type": "integer"}, "ab": {}}, "additionalProperties": {"type": "boolean"}})",
        {"{}", R"({"a":1})", R"({"x":true})", R"({"a":1,"abc":true,"":false})", R"({"ab":"x","ä":true})"},
        {R"({"a":true})", R"({"x":1})", R"({"x":true,"a":true})", R"({"\u0061":true})", R"({"x":true,"ab":true})"}},
       {R"({"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2, "minProperties": 1})",
        {R"({"a":1})", R"({"a":1,"b":2})"},
        {"{}", R"({"a":1,"b":2,"c":3})", R"({"a":"1"})"}},
       {R"({"type": "object", "additionalProperties": {"type": "integer"}, "propertyNames": {"enum": ["x", "y"]}})",
        {"{}", R"({"y":1})"},
        {R"({"z":1})"}},
       {R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"a":1})"}},
       // Keys of one pattern, as pydantic writes dict[constr(pattern=...), int], with other limits on keys or without.
       {R"({"type": "object", "patternProperties": {"^[a-c]{2}$": {"type": "integer"}}})",
        {"{}", R"({"ab":1})", R"({"ab":1,"cc":2})"},
        {R"({"ab":"x"})", R"({"abc":1})", R"({"x":1})", R"({"x":"y"})"}},
       {R"({"patternProperties": {"[a-c]+": {"type": "integer"}}, "additionalProperties": false, "minProperties": 1, "propertyNames": {"maxLength": 2}})",
        {R"({"ab":1})"},
        {"{}", "5", R"({"abc":1})", R"({"ab":true})"}},
       {R"({"allOf": [{"type": "object", "patternProperties": {"a": {"type": "number"}}, "additionalProperties": false}, {"additionalProperties": {"type": "integer"}}]})",
        {R"({"a":1})"},
        {R"({"a":1.5})", R"({"b":1})"}},
       {R"({"type": "object", "patternProperties": {}, "properties": {"a": {}}})", {R"({"a":1})"}, {R"({"b":1})"}},
       {R"({"type": "object"})", {"{}", R"({"a":[1,{"b":null}]})"}, {"[]"}},
       {R"({"type": "object", "required": ["r"]})", {R"({"r":[]})", R"({"r":1,"s":2})"}, {"{}", R"({"s":2,"r":1})"}},
       {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
        {"[1]", "[1,2, 3]", "[\n  1,\n  2\n]"},
        {"[]", "[1,2,3,4]", "[1,]", "[\"a\"]"}},
       {R"({"type": "array"})", {"[]", R"([1,"a",[null]])"}, {"{}"}},
       {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
       {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2})",
        {R"([1,"a"])"},
        {"[1]", "[]", R"([1,"a",2])", R"(["a",1])"}},
       {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]})",
        {"[]", "[1]", R"([1,"a"])"},
        {R"([1,"a",2])"}},
       {R"({"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "null"}, "maxItems": 3, "minItems": 2})",
        {"[1,null]", "[1,null,null]"},
        {"[1]", "[1,null,null,null]", "[null,1]"}}});
}

TEST(JsonSchema, ItemsThatDiffer) {
  expect_cases(
      {{R"({"type": "array", "items": {"$ref": "#/$defs/c"}, "uniqueItems": true, "$defs": {"c": {"enum": ["r", "g", "b"]}}})",
        {"[]", R"(["r"])", R"(["g","b"])", R"(["r", "g", "b"])"},
        {R"(["r","r"])", R"(["b","g"])", R"(["r","g","b","r"])", "[", R"(["x"])"}},
       {R"({"items": {"enum": [1, 1.0, "a", null]}, "uniqueItems": true, "minItems": 1, "maxItems": 2, "type": "array"})",
        {"[1]", R"([1,"a"])", R"(["a",null])"},
        {"[]", "[1,1.0]", R"([1,"a",null])"}},
       {R"({"type": "array", "items": {"enum": [{"a": 1, "b": 2}, {"b": 2, "a": 1.0}, 3]}, "uniqueItems": true})",
        {R"([{"a":1,"b":2},3])"},
        {R"([{"a":1,"b":2},{"b":2,"a":1.0}])"}},
       {R"({"type": "array", "items": {"type": ["boolean", "null"]}, "uniqueItems": true, "minItems": 3})",
        {"[true,false,null]"},
        {"[true,false]"}},
       {R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "maxItems": 1})",
        {"[]", R"(["any"])"},
        {R"(["a","b"])"}},
       {R"({"type": "array", "items": {"type": "null"}, "uniqueItems": false})", {"[null,null]"}, {"[1]"}},
       {R"({"properties": {"a": {}, "b": {}}, "required": ["a"], "minProperties": 1, "maxProperties": 2})",
        {R"({"a":1})", R"({"a":1,"b":2})"},
        {R"({"b":2})"}}});
}

TEST(JsonSchema, CombinedAndRecursive) {
  expect_cases(
      {{R"({"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]}, {"type": "object", "properties": {"k": {"const": "s"}}, "required": ["k"]}]})",
        {"5", R"({"k":1})", R"({"k":"s"})"},
        {"{}", R"({"k":2})", "true"}},
       {R"({"oneOf": [{"type": "null"}, {"type": "boolean"}]})", {"null", "true"}, {"1"}},
       {R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "null"}, "a": {"minimum": 5}}, "required": ["b"]}]})",
        {R"({"a":5,"b":null})"},
        {R"({"a":4,"b":null})", R"({"a":5})"}},
       {R"({"type": "object", "properties": {"t": {"type": "string"}}, "anyOf": [{"required": ["t"]}, {"properties": {"u": {"type": "integer"}}, "required": ["u"]}]})",
        {R"({"t":""})", R"({"t":"","u":1})", R"({"u":1})"},
        {"{}"}},
       {R"({"$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v", "next"]}}, "$ref": "#/$defs/n"})",
        {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
        {R"({"v":1})", R"({"v":1,"next":1})"}},
       {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]", "[[]"}},
       {R"({"properties": {"d": {"$ref": "#/$defs/D", "description": "x", "default": 1}}, "required": ["d"], "$defs": {"D": {"type": "integer"}}})",
        {R"({"d":1})"},
        {R"({"d":"1"})"}},
       {"true", {"1", "[]", R"({"a":{}})"}, {"", "nul"}},
       {R"({"title": "any"})", {"1", "[]"}, {"x"}}});
}

TEST(JsonSchema, NamesWhatItDoesNotSupport) {
  using support::error_of;
  const auto says = [](const char* schema) { return error_of([&] { (void)schema_of(schema); }); };
  EXPECT_EQ(
      says(R"({"properties": {"a/b": {"items": {"contains": {}}}}})"),
      "[test] the keyword \"contains\" at /properties/a~1b/items/contains is not supported; try a schema without it");
  for (const auto& [schema, part] : std::vector<std::pair<const char*, const char*>>{
           {R"({"type": "text"})", "no such type at /type"},
           {R"({"type": []})", "/type"},
           {R"({"uniqueItems": true})", "uniqueItems"},
           {R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})", "\"uniqueItems\""},
           {R"({"uniqueItems": 1})", "/uniqueItems"},
           {R"({"type": "object", "additionalProperties": {}, "minProperties": 2})", "\"minProperties\" above 1"},
           {R"({"properties": {"a": {}, "b": {}}, "maxProperties": 1})", "\"maxProperties\" below"},
           {R"({"properties": {"a": {}}, "propertyNames": {"maxLength": 2}})", "\"propertyNames\" beside"},
           {R"({"type": "string", "format": "json-pointer"})", "json-pointer"},
           {R"({"type": "string", "format": "regex"})", "got regex"},
           {R"({"patternProperties": {"a": {}, "b": {}}})", "\"patternProperties\" with more than one"},
           {R"({"patternProperties": {"a": {}}, "additionalProperties": {}})", "\"patternProperties\" beside"},
           {R"({"patternProperties": {"a": {}}, "properties": {"b": {}}})", "\"patternProperties\" beside"},
           {R"({"patternProperties": {"a": {}}, "required": ["a"]})", "\"patternProperties\" beside"},
           {R"({"patternProperties": {"a": {"type": "odd"}}})", "/patternProperties/a/type"},
           {R"({"patternProperties": 5})", "/patternProperties"},
           {R"-({"patternProperties": {"(?=a)": {}}})-", "look-around"},
           {R"-({"type": "string", "pattern": "(?=a)"})-", "look-around"},
           {R"({"type": "string", "pattern": "^a+b$", "maxLength": 5})", "maxLength"},
           {R"({"minLength": -1})", "/minLength"},
           {R"({"multipleOf": 0})", "/multipleOf"},
           {R"({"type": "integer", "multipleOf": 1001})", "multipleOf"},
           {R"({"type": "number", "multipleOf": 0.1, "minimum": 0.3, "maximum": 0.3})", "no text satisfies"},
           {R"({"$ref": "#/nowhere"})", "$ref"},
           {R"({"$ref": "http://x"})", "$ref"},
           {R"({"enum": []})", "/enum"},
           {R"({"enum": ["a"], "pattern": "b"})", "pattern"},
           {R"({"type": "integer", "minimum": 5, "maximum": 3})", "no text satisfies"},
           {R"({"type": "integer", "minimum": 5, "exclusiveMaximum": 6, "multipleOf": 10})", "no text satisfies"},
           {R"({"$ref": "#"})", "no text satisfies"},
           {R"({"anyOf": [{"$ref": "#"}], "type": "object"})", "refers to itself"},
           {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "no text satisfies"},
           {"5", "neither an object"}})
    EXPECT_NE(says(schema).find(part), std::string::npos) << schema << "\n" << says(schema);
}

}  // namespace
}  // namespace braid::grammar
