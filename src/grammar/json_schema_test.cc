// Which texts a schema allows, case by case.
#include "grammar/json_schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
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
       // Bounds that have too many digits are rounded inward: 0.1 + 0.2, the least of doubles, integers of 64 bits.
       {R"({"type": "number", "minimum": 0, "maximum": 0.30000000000000004})", {"0.3", "0.30"}, {"0.300000000001"}},
       {R"({"type": "number", "minimum": 0, "exclusiveMaximum": 0.30000000000000004})", {"0.3"}, {"0.31"}},
       {R"({"type": "number", "minimum": 0.30000000000000004})", {"0.30000000000001", "1"}, {"0.3"}},
       {R"({"type": "number", "exclusiveMinimum": -0.30000000000000004})", {"-0.3", "0"}, {"-0.30000000000001"}},
       {R"({"type": "number", "maximum": -0.30000000000000004})", {"-0.30000000000001"}, {"-0.3"}},
       {R"({"type": "number", "minimum": -5e-324, "maximum": 5e-324})", {"0"}, {"0.1", "-0.00000000000001"}},
       {R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 18446744073709551615})",
        {"0", "999999999999999", "-999999999999999"},
        {"1000000000000000"}},
       {R"({"type": "number", "minimum": 0, "exclusiveMaximum": 1e300})", {"0.5", "999999999999999"}, {"1e9", "-1"}},
       // A bound beyond all numbers that are written loosens no other.
       {R"({"type": "number", "minimum": 0.5, "maximum": 0.9999999999999995})", {"0.99999999999999"}, {"1", "177"}},
       {R"({"type": "integer", "minimum": -999999999999999990, "exclusiveMinimum": -1e30, "maximum": -1e15})",
        {"-999999999999999990", "-1000000000000000"},
        {"-999999999999999991", "-999999999999999"}},
       {R"({"type": "integer", "maximum": 999999999999999990, "exclusiveMaximum": 1e30, "minimum": 1e15})",
        {"999999999999999990"},
        {"999999999999999991"}},
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

TEST(JsonSchema, CombinedArraysAndLists) {
  expect_cases(
      {{R"({"allOf": [{"type": "array", "prefixItems": [{"type": "integer"}, {}], "minItems": 2, "maxItems": 3}, {"items": {"type": ["integer", "boolean"]}}]})",
        {"[1,2]", "[1,true]", "[1,true,3]"},
        {"[true,1]", R"([1,"a"])", R"([1,true,"a"])"}},
       {R"({"allOf": [{"type": "array", "prefixItems": [{"type": "integer"}]}, {"prefixItems": [{"minimum": 5}, {"type": "null"}], "minItems": 2}]})",
        {"[5,null]"},
        {"[4,null]", "[5,1]"}},
       {R"({"allOf": [{"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}, "minItems": 3, "maxItems": 3}, {"prefixItems": [true, {"maxLength": 1}]}]})",
        {R"([1,"a","bb"])"},
        {R"([1,"aa","b"])", R"([1,1,"b"])"}},
       {R"({"allOf": [{"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true}, {"uniqueItems": false}]})",
        {"[1,2]"},
        {"[1,1]"}},
       {R"({"anyOf": [{"allOf": [{"const": 1}, {"const": 2}]}, {"const": 3}]})", {"3"}, {"1", "2"}},
       {R"({"allOf": [{"const": 1}, {"const": 1.0}]})", {"1"}, {"2"}},
       {R"({"type": "array", "uniqueItems": true, "items": {"anyOf": [{"allOf": [{"const": 1}, {"const": 2}]}, {"const": 3}]}})",
        {"[3]", "[]"},
        {"[1]"}},
       {R"({"enum": ["a", "bb", "ä", 1, null], "minLength": 2})", {R"("bb")", "1", "null"}, {R"("a")", R"("ä")"}},
       {R"({"enum": ["a1", "b", "a22"], "pattern": "^a\\d{1,2}$"})", {R"("a1")", R"("a22")"}, {R"("b")"}},
       // A pattern is searched for, as validators do, a format is the whole.
       {R"({"enum": ["foo-1", "bar", "a foo", 5], "pattern": "^foo"})",
        {R"("foo-1")", "5"},
        {R"("bar")", R"("a foo")"}},
       {R"({"enum": ["foo-1", "bar", "a foo"], "pattern": "o$|1"})", {R"("foo-1")", R"("a foo")"}, {R"("bar")"}},
       {R"({"enum": ["1.5", "x1"], "pattern": "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"})", {R"("1.5")"}, {R"("x1")"}},
       {R"({"enum": ["2024-01-01x"], "anyOf": [{"format": "date"}, {"minLength": 11}]})", {R"("2024-01-01x")"}, {}},
       {R"({"enum": ["2024-01-01", "today"], "format": "date"})", {R"("2024-01-01")"}, {R"("today")"}},
       {R"({"enum": [1, 2.5, 7, 9, "x"], "exclusiveMinimum": 1, "maximum": 7, "multipleOf": 0.5})",
        {"2.5", "7", R"("x")"},
        {"1", "9"}},
       {R"({"enum": [[1], [1, 2], {"k": 1}], "minItems": 2, "required": ["k"]})", {"[1,2]", R"({"k":1})"}, {"[1]"}},
       {R"({"allOf": [{"enum": ["a", "bb"]}, {"type": "string", "maxLength": 1}]})", {R"("a")"}, {R"("bb")"}}});
}

// No text of one alternative may satisfy another, and no alternative is lost.
TEST(JsonSchema, AlternativesThatExcludeEachOther) {
  expect_cases(
      {{R"({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})",
        {R"("a")", R"(["a"])", "[]"},
        {"1"}},
       {R"({"oneOf": [{"enum": [1, 2]}, {"const": 3}, {"type": "integer", "minimum": 4}]})", {"1", "3", "4"}, {"0"}},
       {R"({"oneOf": [{"type": "string", "maxLength": 1}, {"type": "string", "minLength": 2}]})",
        {R"("a")", R"("ab")"},
        {}},
       {R"({"oneOf": [{"type": "string", "pattern": "a+"}, {"type": "string", "pattern": "b+"}]})",
        {R"("a")", R"("b")"},
        {}},
       {R"({"oneOf": [{"type": "string", "pattern": "^[a-z]{2}$"}, {"type": "string", "pattern": "^[a-z]{3,}$"}]})",
        {R"("ab")", R"("abc")"},
        {R"("a")"}},
       {R"({"oneOf": [{"type": "string", "pattern": "^[a-z]+$", "maxLength": 2}, {"type": "string", "pattern": "^[a-z]+$", "minLength": 3}]})",
        {R"("ab")", R"("abc")"},
        {R"("")"}},
       {R"({"oneOf": [{"type": "string", "format": "date"}, {"type": "string", "pattern": "^[a-z]+$"}]})",
        {R"("2024-01-01")", R"("today")"},
        {R"("1")"}},
       // Patterns of a property that is not required: it is written.
       {R"({"oneOf": [{"type": "object", "properties": {"k": {"type": "string", "pattern": "^a+$"}}}, {"type": "object", "properties": {"k": {"type": "string", "pattern": "^b+$"}}}]})",
        {R"({"k":"a"})", R"({"k":"bb"})"},
        {"{}"}},
       // Integers next to each other that are one double.
       {R"({"oneOf": [{"type": "integer", "minimum": 9007199254740980, "maximum": 9007199254740992}, {"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740999}]})",
        {"9007199254740992", "9007199254740993"},
        {"9007199254740979", "9007199254741000"}},
       // A property tells them apart: required in one of them, or else it is written.
       {R"({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": {"type": "object", "properties": {"k": {"const": "a"}, "x": {}}, "required": ["k"]}, "b": {"type": "object", "properties": {"k": {"const": "b"}, "x": {}}, "required": ["k"]}}})",
        {R"({"k":"a"})", R"({"k":"b","x":1})"},
        {R"({"k":"c"})", "{}"}},
       {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a", "default": "a"}, "x": {"type": "null"}}}, {"type": "object", "properties": {"k": {"const": "b"}, "x": {"type": "null"}}}]})",
        {R"({"k":"a"})", R"({"k":"b","x":null})"},
        {"{}", R"({"x":null})"}},
       {R"({"oneOf": [{"type": "object", "properties": {"k": {"type": "object", "properties": {"t": {"enum": ["a", "b"]}}, "required": ["t"]}}, "required": ["k"]}, {"type": "object", "properties": {"k": {"type": "object", "properties": {"t": {"const": "c"}}, "required": ["t"]}}, "required": ["k"]}]})",
        {R"({"k":{"t":"b"}})", R"({"k":{"t":"c"}})"},
        {"{}"}},
       // Exactly one of two properties.
       {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})",
        {R"({"a":null})", R"({"b":null})", R"({"a":null,"c":null})"},
        {R"({"a":null,"b":null})", "{}", R"({"c":null})"}},
       {R"({"oneOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": false}, {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]}]})",
        {R"({"a":1})", R"({"a":1,"b":1})"},
        {"{}"}},
       // What one calls additional has other values there.
       {R"({"oneOf": [{"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": false}, {"type": "object", "additionalProperties": {"type": "integer"}}]})",
        {R"({"x":"a"})", R"({"x":1})", R"({"y":1})", "{}"},
        {R"({"y":"a"})"}},
       // Listed values are checked against properties and items too.
       {R"({"oneOf": [{"enum": [{"x": 1}, [1, "a"], [1, 1], 5]}, {"type": "object", "properties": {"x": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/n"}]}}}, {"type": "array", "items": {"type": "integer"}, "uniqueItems": true, "maxItems": 1}], "$defs": {"n": {"minimum": 2, "type": "number"}}})",
        {R"({"x":1})", R"({"x":2})", R"({"x":"a"})", R"([1,"a"])", "[1,1]", "5", "[7]"},
        {R"({"x":1.5})", "[1,2]"}},
       {R"({"oneOf": [{"enum": ["ab", "b"]}, {"type": "string", "pattern": "^[xy]"}]})",
        {R"("ab")", R"("x")"},
        {R"("a")"}},
       {R"({"oneOf": [{"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"type": "number"}}]})",
        {R"(["a"])", "[1,2]"},
        {"[]", R"(["a",1])"}}});
}

TEST(JsonSchema, RefusesAlternativesThatOverlap) {
  for (
      const char* list :
      {R"([{"type": "integer"}, {"type": "number"}])", R"([{"enum": [1, 2]}, {"enum": [2.0, 3]}])",
       R"([{"type": "integer", "maximum": 5}, {"type": "number", "minimum": 5}])",
       R"([{"type": "string"}, {"const": "a"}])",
       R"([{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}])",
       R"([{"type": "object"}, {"type": "object", "properties": {"b": {}}, "required": ["b"]}])",
       R"([{"enum": [{"x": 1}, 2.5, [1]]}, {"type": "object", "properties": {}}])",
       R"([{"enum": [{"x": 1}]}, {"type": "object", "properties": {"x": {"anyOf": [{"type": "null"}, {"minimum": 1}]}}}])",
       R"([{"enum": [[1, "a"]]}, {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}}])",
       R"([{"const": "ab"}, {"type": "string", "pattern": "b"}])",
       // What one writes has a match of the other, at any place of the text; lengths and formats count.
       R"([{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^[ab]{2}$"}])",
       R"([{"type": "string", "pattern": "^x.*z$"}, {"type": "string", "pattern": "y"}])",
       R"([{"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, {"type": "string", "pattern": "^[0-9a]+$", "minLength": 2}])",
       R"([{"type": "string", "pattern": "^\\w{3}$"}, {"type": "string", "maxLength": 3}])",
       R"([{"type": "string", "format": "date"}, {"type": "string", "pattern": "^2024-"}])",
       R"([{"type": "string", "format": "uuid"}, {"type": "string", "format": "uuid4"}])",
       R"([{"type": "array", "items": {"type": "string", "pattern": "^a+$"}, "minItems": 1}, {"type": "array", "items": {"type": "string", "pattern": "^a"}}])",
       // Keys that a pattern does not describe are allowed, though they are not written.
       R"([{"type": "object", "patternProperties": {"^x": {"type": "integer"}}}, {"type": "object", "patternProperties": {"^y": {"type": "string"}}}])",
       R"([{"type": "object", "patternProperties": {"^x": false}}, {"type": "object", "properties": {"t": {"type": "null"}}, "required": ["t"], "additionalProperties": false}])",
       R"([{"const": {"a": "s"}}, {"type": "object", "patternProperties": {"^x": {"type": "integer"}}}])",
       R"([{"type": "object", "propertyNames": {"pattern": "a"}}, {"type": "object", "propertyNames": {"maxLength": 2}}])",
       R"([{"type": "integer", "exclusiveMaximum": 9007199254740993}, {"type": "integer", "minimum": 9007199254740992}])",
       R"([{"type": "number", "exclusiveMaximum": 9007199254740993}, {"type": "number", "minimum": 9007199254740992}])",
       R"([{"const": 18446744073709551615}, {"type": "integer", "minimum": 18446744073709551615}])",
       R"([{"type": "null"}, true])"}) {
    const std::string schema = std::string(R"({"oneOf": )") + list + "}";
    const std::string inside =
        R"({"title": "t", "type": ["integer", "number", "string", "object", "array", "null"], "oneOf": )" +
        std::string(list) + "}";
    for (const std::string& one : {schema, inside}) {
      const std::string error = support::error_of([&] { (void)schema_of(one); });
      EXPECT_NE(error.find("of a oneOf hold for the same values"), std::string::npos) << one << "\n" << error;
    }
  }
}

// Patterns whose comparison would take too long, where nothing else tells the alternatives apart.
TEST(JsonSchema, RefusesPatternsThatAreTooComplexToBeCompared) {
  const std::string large = R"({"type": "string", "pattern": "^(a?b?c?){3000}$"})",
                    other = R"({"type": "string", "pattern": "^(a|b){3000}$"})";
  const std::string error = support::error_of([&] { (void)schema_of(R"({"oneOf": [)" + large + "," + other + "]}"); });
  EXPECT_NE(error.find("the alternatives 0 and 1 of a oneOf, or their patterns, are too complex to be compared"),
            std::string::npos)
      << error;
  const auto tagged = [](const char* tag, const std::string& k) {
    return fmt::format(
        R"({{"type": "object", "properties": {{"t": {{"const": "{}"}}, "k": {}}}, "required": ["t", "k"]}})", tag, k);
  };
  EXPECT_EQ(support::error_of(
                [&] { (void)schema_of(R"({"oneOf": [)" + tagged("x", large) + "," + tagged("y", other) + "]}"); }),
            "");
}

// What is compared before and after decides nothing, nor does the order.
TEST(JsonSchema, ComparesEachPairOfPatternsForItself) {
  const auto says = [](const std::vector<std::string>& ways) {
    return support::error_of([&] { (void)schema_of(fmt::format(R"({{"oneOf": [{}]}})", fmt::join(ways, ", "))); });
  };
  const auto tagged = [](const char* tag) {
    return fmt::format(
        R"({{"type": "object", "properties": {{"t": {{"const": "{0}"}}, "k": {{"type": "string", "pattern": "^([a-w]+ ?){{1,300}}{0}([a-w]+ ?){{1,300}}$"}}}}, "required": ["t", "k"]}})",
        tag);
  };
  const std::string text = R"({"const": "ab"})", searched = R"({"type": "string", "pattern": "b"})";
  for (const auto& ways : {std::vector{tagged("X"), tagged("Y"), text, searched},
                           {text, searched, tagged("X"), tagged("Y")},
                           {tagged("X"), searched, tagged("Y"), text}})
    EXPECT_NE(says(ways).find("of a oneOf hold for the same values"), std::string::npos) << says(ways);
  EXPECT_EQ(says({tagged("X"), tagged("Y"), text, R"({"type": "string", "pattern": "c"})"}), "");
  const auto pattern = [](const std::string& expression) {
    return fmt::format(R"({{"type": "string", "pattern": "{}"}})", expression);
  };
  std::vector<std::string> names;
  for (int i = 0; i < 8; ++i) names.push_back(pattern(fmt::format("^[a-z]{{1,64}}_{}$", i)));
  EXPECT_EQ(says(names), "");
  std::vector<std::string> many = names;  // as many as a oneOf may have
  for (int i = 8; i < 256; ++i) many.push_back(pattern(fmt::format("^[a-z]{{1,64}}_{}$", i)));
  EXPECT_EQ(says(many), "");
  EXPECT_EQ(says({pattern(R"(^[a-z0-9_-]{1,255}\\.png$)"), pattern(R"(^[a-z0-9_-]{1,255}\\.jpg$)")}), "");
  names.push_back(pattern("^abc_[0-9]$"));
  EXPECT_NE(says(names).find("the alternatives 0 and 8 of a oneOf hold"), std::string::npos) << says(names);
}

// However many come before.
TEST(JsonSchema, ComparesAllOfManyAlternatives) {
  for (const int last : {255, 254}) {
    std::string list;
    for (int i = 0; i < 256; ++i) {
      list += fmt::format(R"({}{{"type": "object", "properties": {{"t": {{"const": {}}})", i ? ", " : "",
                          std::min(i, last));
      for (int k = 0; k < 10; ++k) list += fmt::format(R"(, "p{}": {{"type": "string"}})", k);
      list += R"(}, "required": ["t"]})";
    }
    const std::string error = support::error_of([&] { (void)schema_of(R"({"oneOf": [)" + list + "]}"); });
    if (last == 255)
      EXPECT_EQ(error, "");
    else
      EXPECT_NE(error.find("the alternatives 254 and 255 of a oneOf hold"), std::string::npos) << error;
  }
}

// Texts of an enum that would take too long to be looked at are not taken for ones without a match.
TEST(JsonSchema, RefusesTextsThatAreTooComplexToBeMatched) {
  std::string list;
  for (int i = 0; i < 400; ++i) list += fmt::format(R"({}"{}c{}")", i ? ", " : "", std::string(3000, 'a'), i);
  const std::string error = support::error_of([&] {
    (void)schema_of(R"({"oneOf": [{"enum": [)" + list +
                    R"(]}, {"type": "string", "pattern": "^((a|aa)*b?){2,900}$"}]})");
  });
  EXPECT_NE(error.find("the alternatives 0 and 1 of a oneOf, or their patterns, are too complex"), std::string::npos)
      << error;
}

// Bounds and values at and beyond 2^53, 2^63 and 2^64 are compared as integers, never modulo 2^64 or as doubles.
TEST(JsonSchema, LargeIntegersAreComparedExactly) {
  expect_cases(
      {{R"({"enum": [-1, 5, 18446744073709551615], "minimum": 18446744073709551615})",
        {"18446744073709551615"},
        {"-1", "5"}},
       {R"({"enum": [-1, 18446744073709551615, 9223372036854775808], "maximum": -1})", {"-1"}, {"9223372036854775808"}},
       {R"({"enum": [9007199254740992, 9007199254740993], "maximum": 9007199254740992.0})",
        {"9007199254740992"},
        {"9007199254740993"}},
       {R"({"enum": [9007199254740993, 9007199254740994], "multipleOf": 2})",
        {"9007199254740994"},
        {"9007199254740993"}},
       {R"({"enum": [-9223372036854775808, 18446744073709551615, 4], "exclusiveMinimum": -9223372036854775808})",
        {"18446744073709551615", "4"},
        {"-9223372036854775808"}},
       // Those beyond 64 bits begin at -2^63 and at 2^64.
       {R"({"enum": [-10000000000000000000, -15000000000000000000, 20000000000000000000], "maximum": -1.2e19})",
        {"-15000000000000000000"},
        {"-10000000000000000000", "20000000000000000000"}},
       {R"({"enum": [-10000000000000000000, -15000000000000000000, 20000000000000000000], "minimum": -1.2e19})",
        {"-10000000000000000000", "20000000000000000000"},
        {"-15000000000000000000"}},
       {R"({"enum": [-9223372036854775809, -9223372036854775808], "minimum": -9223372036854775808})",
        {"-9223372036854775808"},
        {"-9223372036854775809"}},
       {R"({"enum": [-10000000000000000000, 1], "maximum": 10000000000000000000})", {"-10000000000000000000", "1"}, {}},
       {R"({"allOf": [{"type": "integer", "minimum": -5, "maximum": -1}, {"maximum": 18446744073709551614}]})",
        {"-5", "-1"},
        {"0", "-6"}},
       {R"({"type": "integer", "exclusiveMinimum": 90071992547409921, "minimum": 90071992547409925, "maximum": 90071992547409927})",
        {"90071992547409925", "90071992547409927"},
        {"90071992547409922", "90071992547409924", "90071992547409928"}},
       {R"({"type": "integer", "minimum": 999999999999999990, "maximum": 18446744073709551615})",
        {"999999999999999990", "999999999999999999"},
        {"0", "1000000000000000", "999999999999999989"}},
       {R"({"type": "integer", "minimum": -1e300, "maximum": -2000000000000000})",
        {"-2000000000000000", "-999999999999999999"},
        {"-1999999999999999", "0"}},
       {R"({"type": "integer", "minimum": 5, "maximum": 18446744073709551615})", {"5", "999999999999999"}, {"4", "-1"}},
       {R"({"type": "integer", "minimum": -18446744073709551615.0, "maximum": 3})", {"-999999999999999", "3"}, {"4"}}});
  const auto says = [](const std::string& schema) { return support::error_of([&] { (void)schema_of(schema); }); };
  for (const char* schema :
       {R"({"type": "integer", "minimum": 18446744073709551615})",
        R"({"type": "integer", "minimum": 9223372036854775808})",
        R"({"type": "integer", "maximum": -9223372036854775808})", R"({"type": "number", "exclusiveMinimum": 1e300})"})
    EXPECT_NE(says(schema).find("imum\" is not supported with this value"), std::string::npos)
        << schema << says(schema);
  for (const char* schema :
       {R"({"type": "string", "minLength": 18446744073709551615})",
        R"({"type": "string", "maxLength": 9007199254740993})", R"({"items": true, "minItems": 1e300})"})
    EXPECT_NE(says(schema).find("no count at /"), std::string::npos) << schema << says(schema);
  EXPECT_NE(says(R"({"enum": [-1, 2], "allOf": [{"const": 18446744073709551615}]})").find("no text satisfies"),
            std::string::npos);
}

// A $ref may lead where no keyword does. What it finds there is checked as all else, and counts.
TEST(JsonSchema, ChecksWhatOnlyAReferenceLeadsTo) {
  const auto says = [](const std::string& schema) { return support::error_of([&] { (void)schema_of(schema); }); };
  std::string deep = R"({"type": "null"})", many = R"({"prefixItems": [true)";
  for (int i = 0; i < 70; ++i) deep = R"({"items": )" + deep + "}";
  for (int i = 0; i < 10'000; ++i) many += ", true";
  for (const auto& [schema, part] : std::vector<std::pair<std::string, const char*>>{
           {R"({"$ref": "#/default", "default": {"type": "integer", "multipleOf": 0}})", "/default/multipleOf"},
           {R"({"$ref": "#/default", "default": {"type": 5}})", "no such type at /default/type"},
           {R"({"$ref": "#/default", "default": {"type": "string", "minLength": "a"}})", "/default/minLength"},
           {R"({"$ref": "#/default", "default": {"type": "array", "minItems": 1e300}})", "/default/minItems"},
           {R"({"$ref": "#/x-defs/A", "x-defs": {"A": {"type": "string", "contains": 5}}})",
            "\"contains\" at /x-defs/A/contains"},
           {R"({"$ref": "#/const", "const": {"not": {}}})", "\"not\" at /const/not"},
           {R"({"$ref": "#/enum/1", "enum": [1, {"not": {}}]})", "\"not\" at /enum/1/not"},
           {R"({"$ref": "#/examples/0", "examples": [{"$ref": "#/examples/1"}, {"not": {}}]})", "/examples/1/not"},
           {R"({"$ref": "#/default", "default": )" + deep + "}", "nests deeper"},
           {R"({"items": {"$ref": "#/default"}, "default": )" + many + "]}}", "more than 10000 values"}})
    EXPECT_NE(says(schema).find(part), std::string::npos) << schema.substr(0, 100) << "\n" << says(schema);
  expect_cases({{R"({"$ref": "#/x-defs/A", "x-defs": {"A": {"type": "array", "items": {"$ref": "#/x-defs/A"}}}})",
                 {"[[]]"},
                 {"1"}},
                // As part of a URI.
                {R"({"$ref": "#/$defs/L%5Bint%5d~1%7e0%", "$defs": {"L[int]/~%": {"type": "null"}}})", {"null"}, {"1"}},
                {R"({"$ref": "#/$defs/a%20b", "$defs": {"a%20b": {"type": "null"}, "a b": true}})", {"null"}, {"1"}}});
}

// What a small schema can ask for is bounded, whichever way it grows.
TEST(JsonSchema, BoundsWhatASchemaTakes) {
  const auto says = [](const std::string& schema) { return support::error_of([&] { (void)schema_of(schema); }); };
  const auto list = [](int n, const std::string& one) {
    std::string out = "[" + one;
    for (int i = 1; i < n; ++i) out += ", " + one;
    return out + "]";
  };
  EXPECT_NE(says(R"({"const": )" + list(10'000, "0") + "}").find("more than 10000 values"), std::string::npos);
  EXPECT_NE(says(R"({"enum": [)" + list(10'000, "0") + "]}").find("more than 10000 values"), std::string::npos);
  EXPECT_NE(
      says(R"({"const": )" + list(9'000, "0") + R"(, "anyOf": )" + list(256, "true") + "}").find("combines too many"),
      std::string::npos);
  EXPECT_NE(says(R"({"const": ")" + std::string(380'000, 'a') + "\"}").find("too large"), std::string::npos);
  // A value is not dropped for being long, nor where the work on the values before it was all that is allowed.
  EXPECT_TRUE(matches(schema_of(R"({"enum": [")" + std::string(100'000, 'a') + R"("], "pattern": "^a*$"})"),
                      '"' + std::string(100'000, 'a') + '"'));
  EXPECT_NE(
      says(R"({"enum": )" + list(400, '"' + std::string(3'000, 'a') + '"') + R"(, "pattern": "^((a|aa)*b?){2,900}$"})")
          .find("too complex for the strings"),
      std::string::npos);
  EXPECT_NE(says(R"({"enum": [1, ")" + std::string(380'000, 'a') + "\"]}").find("too large"), std::string::npos);
  std::string properties = R"({"z": true)";
  for (int i = 0; i < 900; ++i) properties += ", \"p" + std::to_string(i) + "\": {\"type\": \"null\"}";
  const std::string wide =
      R"({"properties": )" + properties + R"(}, "allOf": )" + list(900, R"({"properties": {"z": true}})") + "}";
  EXPECT_TRUE(matches(schema_of(wide), R"({"z":1})"));
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
           {R"({"patternProperties": {"a": {}}, "propertyNames": {"pattern": "b"}})", "\"patternProperties\" beside"},
           {R"({"allOf": [{"patternProperties": {"a": {}}}, {"properties": {"b": {}}}]})",
            "\"patternProperties\" beside"},
           {R"({"allOf": [{"patternProperties": {"a": {}}}, {"patternProperties": {"b": {}}}]})",
            "two values of the keyword \"patternProperties\""},
           {R"({"type": "number", "minimum": 1e300})", "\"minimum\" is not supported with this value"},
           {R"({"type": "number", "multipleOf": 0.30000000000000004})", "\"multipleOf\" is not supported"},
           {R"({"patternProperties": {"a": {"type": "odd"}}})", "/patternProperties/a/type"},
           {R"({"enum": [1, {}], "patternProperties": {"a": {}}})", "\"patternProperties\" beside an enum"},
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
           {R"({"enum": ["a"], "pattern": "b"})", "no text satisfies"},
           {R"({"enum": ["a", [1]], "items": {}})", "\"items\" beside an enum or const of arrays"},
           {R"({"const": {"a": 1}, "properties": {"a": {}}})", "\"properties\" beside an enum or const of objects"},
           {R"({"allOf": [{"const": 1}, {"const": 2}]})", "no text satisfies"},
           {R"({"type": "integer", "minimum": 5, "maximum": 3})", "no text satisfies"},
           {R"({"type": "number", "minimum": 0.99999999999999915, "maximum": 0.9999999999999995})", "no text"},
           {R"({"type": "number", "minimum": -0.9999999999999998, "maximum": -0.9999999999999992})", "no text"},
           {R"({"type": "number", "minimum": 1, "maximum": 0.999999999999999, "exclusiveMaximum": 1e30})", "no text"},
           {R"({"minimum": 1e15, "maximum": 999999999999999, "exclusiveMaximum": 1e30})", "no text satisfies"},
           {R"({"minimum": 1000000000000000000})", "at most 18 digits"},
           {R"({"minimum": 100000000000000000000})", "at most 18 digits"},
           {R"({"type": "integer", "minimum": 5, "exclusiveMaximum": 6, "multipleOf": 10})", "no text satisfies"},
           {R"({"$ref": "#"})", "no text satisfies"},
           {R"({"anyOf": [{"$ref": "#"}], "type": "object"})", "refers to itself"},
           {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "no text satisfies"},
           {"5", "neither an object"}})
    EXPECT_NE(says(schema).find(part), std::string::npos) << schema << "\n" << says(schema);
}

}  // namespace
}  // namespace braid::grammar
