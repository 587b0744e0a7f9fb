#include "io/json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/ordered_json.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::io {
namespace {

using support::error_of;

class JsonTest : public support::FolderTest {};

Json parse_json(const std::string& text, const JsonLimits& limits = {}) {
  return Json::parse(text, "config.json", limits);
}
std::string json_error(const std::string& text, const JsonLimits& limits = {}) {
  return error_of([&] { parse_json(text, limits); });
}

TEST_F(JsonTest, FirstSpellingPresentCounts) {
  const Json config =
      parse_json(R"({"n_embd": 4, "hidden_size": null, "num_layers": 9, "deep": {"list": [1, {"x": true}]}})");
  EXPECT_EQ(config.int_of({"hidden_size", "n_embd"}), 4);
  EXPECT_EQ(config.int_of({"hidden_size"}), std::nullopt);
  EXPECT_EQ(config.need({"deep"}).need({"list"}).items()[1].need({"x"}).path(), "deep.list[1].x");
  EXPECT_EQ(config.need({"deep"}).need({"list"}).items()[1].bool_of({"x"}), true);
  EXPECT_EQ(config.members().size(), 4u);
}

TEST_F(JsonTest, WrongValuesAreNamed) {
  const Json config =
      parse_json(R"({"hidden_size": "many", "head_dim": 1.5, "heads": -8, "top": 64.0, "huge": 18446744073709551615,
                                "eps": "x", "flag": 1, "sub": {"names": [1]}, "nan": NaN})");
  EXPECT_EQ(error_of([&] {
              config.int_of({"hidden_size"}, {1, 65536});
            }),
            "[config.json] hidden_size is not a whole number; got \"many\"; expected an integer from 1 to 65536");
  EXPECT_EQ(error_of([&] { config.int_of({"head_dim"}, {.min = 1}); }),
            "[config.json] head_dim is not a whole number; got 1.5; expected an integer of at least 1");
  EXPECT_EQ(error_of([&] {
              config.int_of({"heads"}, {1, 64});
            }),
            "[config.json] heads is out of range; got -8; expected an integer from 1 to 64");
  EXPECT_EQ(config.int_of({"top"}), 64);
  EXPECT_NE(error_of([&] { config.int_of({"huge"}); }), "");
  EXPECT_NE(error_of([&] {
              config.int_of({"flag_of_sub", "sub"});
            }).find("got an object of 1 entry"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { config.number_of({"eps"}); }),
            "[config.json] eps is not a number; got \"x\"; expected a number");
  EXPECT_EQ(error_of([&] { config.bool_of({"flag"}); }),
            "[config.json] flag is not true or false; got 1; expected true or false");
  EXPECT_EQ(error_of([&] { config.need({"sub"}).need({"names"}).items()[0].as_string(); }),
            "[config.json] sub.names[0] is not a string; got 1; expected a string");
  EXPECT_EQ(error_of([&] { config.need({"sub"}).need({"depth", "d"}); }), "[config.json] sub.depth is missing");
  EXPECT_NE(error_of([&] { config.number_of({"nan"}, {.min = 0, .max = 1}); }).find("out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { parse_json("[1]").int_of({"a"}); }).find("the document is of the wrong kind"),
            std::string::npos);
}

TEST_F(JsonTest, PythonsConstantsAreNumbers) {
  const Json config = parse_json(
      R"({"a": Infinity, "b": [-Infinity, NaN], "c": {"__float__": "Infinity"}, "d": {"__float__": "-Infinity"},
                                "e": "Infinity \" NaN", "NaN": 1, "f": {"__float__": "Infinity", "g": 1}})");
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(config.number_of({"a"}), infinity);
  EXPECT_EQ(config.need({"b"}).items()[0].as_number(), -infinity);
  EXPECT_TRUE(std::isnan(config.need({"b"}).items()[1].as_number()));
  EXPECT_EQ(config.number_of({"c"}), infinity);
  EXPECT_EQ(config.number_of({"d"}), -infinity);
  EXPECT_EQ(config.string_of({"e"}), "Infinity \" NaN");
  EXPECT_EQ(config.int_of({"NaN"}), 1);
  EXPECT_TRUE(config.need({"f"}).is_object());
  EXPECT_EQ(parse_json("NaN").path(), "");
  EXPECT_NE(json_error(R"({NaN: 1})"), "");
  EXPECT_NE(json_error(R"([1NaN])"), "");
}

TEST_F(JsonTest, SyntaxErrorsHaveAPosition) {
  EXPECT_EQ(json_error("{\n  \"a\": 1,\n  \"b\": x\n}"),
            "[config.json] is not valid JSON at line 3, column 8; got x\\x0a}");
  EXPECT_EQ(json_error("{\"a\": NaN,\n}"), "[config.json] is not valid JSON at line 2, column 1; got }");
  EXPECT_EQ(json_error("not json"), "[config.json] is not valid JSON at column 1; got not json");
  const std::string nul(1, '\0');
  EXPECT_NE(json_error("{}" + nul + "more").find("is not valid JSON at column 3"), std::string::npos);
  EXPECT_NO_THROW(io::Json::parse("{}" + nul + nul, "padded"));
  EXPECT_EQ(json_error("[1"), "[config.json] is not valid JSON at column 3; got the end of the text");
  EXPECT_EQ(json_error("x2345678901234567890"),
            "[config.json] is not valid JSON at column 1; got x2345678901234567890");
  EXPECT_EQ(json_error("x23456789012345678901"),
            "[config.json] is not valid JSON at column 1; got x2345678901234567890...");
  EXPECT_EQ(json_error("x2345678901234567\u20acab"),  // in whole characters
            "[config.json] is not valid JSON at column 1; got x2345678901234567\u20ac...");
  constexpr const char* kLarge = "[config.json] has a number that is too large for a double at ";
  EXPECT_EQ(json_error("{\"a\": 1e999, \"b\": 2}"), std::string(kLarge) + "column 7; got 1e999, \"b\": 2}");
  EXPECT_EQ(json_error("{\"a\": 1,\n \"b\": [2, -1e999]}"), std::string(kLarge) + "line 2, column 11; got -1e999]}");
  EXPECT_EQ(json_error("1e999"), std::string(kLarge) + "column 1; got 1e999");
  for (const char* text : {"", "{", "\"", "{\"a\":1}}", "[1,]", "nul", "\"\xff\"", "1e999", "{\"a\" 1}"})
    EXPECT_NE(json_error(text), "") << text;
}

TEST_F(JsonTest, LimitsHold) {
  EXPECT_EQ(json_error(std::string(100000, '[')), "[config.json] is nested deeper than 64 levels");
  EXPECT_EQ(json_error(std::string(64, '[') + std::string(64, ']')), "");
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += "{\"a\":";
  EXPECT_EQ(json_error(objects), "[config.json] is nested deeper than 64 levels");
  EXPECT_NE(json_error("[1,2,3,4]", {.values = 4}).find("more than 4 values"), std::string::npos);
  EXPECT_NE(json_error("[1,2,3,4]", {.bytes = 8}).find("too large"), std::string::npos);
  EXPECT_NE(json_error("[\"12345\"]", {.string_bytes = 4}).find("string of 5 bytes"), std::string::npos);
}

TEST_F(JsonTest, OrderedObjectsKeepTheirOrder) {
  const char* text =
      R"({"z": [1, -2, 0.5, true, null, {"__float__": "Infinity"}], "a": {"y": "\u00e9", "b": {}}, "z": []})";
  EXPECT_EQ(parse_ordered(text, "x"), nlohmann::ordered_json::parse(text));
  EXPECT_EQ(parse_ordered(text, "x").dump(), R"({"z":[],"a":{"y":"é","b":{}}})");
  const JsonLimits digits{.digits = true};
  const auto large = parse_ordered("[12345678901234567890123, 1e30, -5, -98765432109876543210]", "x", {}, digits);
  EXPECT_EQ(digits_of(large[0]), "12345678901234567890123");
  EXPECT_EQ(digits_of(large[3]), "-98765432109876543210");
  EXPECT_FALSE(digits_of(large[1]) || digits_of(large[2]));
  EXPECT_EQ(dumped({{"a", large}, {"b\n", {{"c", "é"}}}}),
            R"({"a":[12345678901234567890123,1e+30,-5,-98765432109876543210],"b\n":{"c":"é"}})");
  EXPECT_TRUE(parse_ordered("12345678901234567890123", "x").is_number_float());
  EXPECT_EQ(parse_ordered(R"({"__float__": "Infinity"})", "x").dump(), R"({"__float__":"Infinity"})");  // not a number
}

TEST_F(JsonTest, OrderedObjectsHaveLimits) {
  const auto error = [](const std::string& text, const std::string& expected = {}, const JsonLimits& limits = {}) {
    return error_of([&] { parse_ordered(text, "x line 3", expected, limits); });
  };
  EXPECT_EQ(error("{\"a\": NaN}"), "[x line 3] is not valid JSON at column 7; got NaN}");
  EXPECT_EQ(error("{", "a task"), "[x line 3] is not valid JSON at column 2; got the end of the text; expected a task");
  EXPECT_EQ(error(std::string(100000, '['), "a task"), "[x line 3] is nested deeper than 64 levels");
  EXPECT_EQ(error(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_EQ(error("[1,2,3,4]", {}, {.values = 4}), "[x line 3] has more than 4 values");
  EXPECT_EQ(error("[1,2,3,4]", {}, {.bytes = 8}), "[x line 3] is too large for JSON; got 9 bytes; expected at most 8");
  EXPECT_EQ(error("[\"12345\"]", {}, {.string_bytes = 4}), "[x line 3] has a string of 5 bytes");
  std::string keys = "{\"0\":0";
  for (int i = 1; i < 5000; ++i) keys += ",\"" + std::to_string(i) + "\":0";
  EXPECT_EQ(error(keys + "}"), "");
  EXPECT_EQ(error(keys + ",\"x\":0}"), "[x line 3] has an object of more than 5000 keys");
}

TEST_F(JsonTest, FilesAreReadAndPlaceholdersNamed) {
  EXPECT_EQ(Json::read(write("config.json", "{\"a\":1}")).int_of({"a"}), 1);
  const auto ends_with_missing = [&](const char* name) {
    return error_of([&] { Json::read(folder_ / name); }).ends_with("] is missing");
  };
  EXPECT_TRUE(ends_with_missing("said.json"));  // no file of a model
  EXPECT_TRUE(ends_with_missing("none/config.json"));
  EXPECT_NE(error_of([&] { Json::read(folder_ / "generation_config.json"); }).find("] is missing; try hf download"),
            std::string::npos);
  EXPECT_NE(error_of([&] { Json::read(write("config.json", "")); }).find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of([&] {
              Json::read(write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\n"));
            }).find("lfs pull"),
            std::string::npos);
}

}  // namespace
}  // namespace braid::io
