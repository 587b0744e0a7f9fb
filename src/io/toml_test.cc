#include "io/toml.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/error_of.h"

namespace braid::io {
namespace {

std::string refusal(std::string_view text, std::vector<std::string> overrides = {}) {
  return support::error_of([&] { parse_toml(text, "r.toml", overrides); });
}

TEST(Toml, ValuesAreThoseOfJson) {
  const Json root =
      parse_toml("a = 3\nb = 1e-3\nc = \"x\"\n[t]\nd = [1, 2]\ne = inf\n[[u.v]]\npath = \"p\"\n", "r.toml");
  EXPECT_EQ(root.need({"a"}).as_int(), 3);
  EXPECT_EQ(root.need({"b"}).as_number(), 1e-3);
  EXPECT_EQ(root.need({"c"}).as_string(), "x");
  EXPECT_EQ(root.need({"t"}).need({"d"}).items().size(), 2u);
  EXPECT_TRUE(std::isinf(root.need({"t"}).need({"e"}).as_number()));
  EXPECT_EQ(root.need({"u"}).need({"v"}).items()[0].need({"path"}).as_string(), "p");
  EXPECT_EQ(root.need({"t"}).need({"d"}).path(), "t.d");
}

TEST(Toml, OverridesWinAndNeedNoQuotes) {
  const std::vector<std::string> overrides = {"a.b=2", "a.b=3", "c=/some/where", "d=[\"*norm*\"]", "e=true", "f="};
  const Json root = parse_toml("[a]\nb = 1\n", "r.toml", overrides);
  EXPECT_EQ(root.need({"a"}).need({"b"}).as_int(), 3);
  EXPECT_EQ(root.need({"c"}).as_string(), "/some/where");
  EXPECT_EQ(root.need({"d"}).items()[0].as_string(), "*norm*");
  EXPECT_TRUE(root.need({"e"}).as_bool());
  EXPECT_EQ(root.need({"f"}).as_string(), "");
}

TEST(Toml, MistakesHaveAPosition) {
  EXPECT_NE(refusal("a = 1\nb = = 2\n").find("line 2"), std::string::npos) << refusal("a = 1\nb = = 2\n");
  EXPECT_NE(refusal("a = 1979-05-27\n").find("dates"), std::string::npos);
  EXPECT_NE(refusal("", {"novalue"}).find("is not an override"), std::string::npos);
  EXPECT_NE(refusal("a = 1\n", {"a.b=2"}).find("a value at a"), std::string::npos);
  EXPECT_NE(refusal(std::string(3 << 19, '#')).find("too large"), std::string::npos);
}

}  // namespace
}  // namespace braid::io
