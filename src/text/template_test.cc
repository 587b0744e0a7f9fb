// Chat templates end to end: the golden texts of released templates (read in place), model folders, and hostile
// templates.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "io/ordered_json.h"
#include "text/template_fixture.h"
#include "text/tokenizer_config.h"

#include "support/data.h"
#include "support/folder.h"

namespace braid::text {
namespace {

using nlohmann::ordered_json;
using Kind = TemplateError::Kind;

// The error of a template that must fail.
TemplateError template_error(const std::string& source, const Limits& limits = {}) {
  try {
    const std::string text = render(source, ordered_json::object(), limits);
    ADD_FAILURE() << source << " gave " << text.substr(0, 100);
  } catch (const TemplateError& e) {
    return e;
  }
  return {Kind::type, "", 0, ""};
}

// Every template of a folder against the texts that transformers' environment rendered; how many were compared.
int compare_chats_with_goldens(const std::filesystem::path& folder) {
  const ordered_json golden = ordered_json::parse(std::ifstream(folder / "golden.json"));
  int compared = 0;
  for (const auto& [file, cases] : golden["templates"].items()) {
    const ChatTemplate chat = ChatTemplate::load(folder / file);
    for (const auto& [name, wanted] : cases.items()) {
      const ordered_json& input = golden["cases"][name];
      ordered_json variables = {{"messages", input["messages"]}, {"tools", input.value("tools", ordered_json())}};
      variables["add_generation_prompt"] = input.value("add_generation_prompt", true);
      variables["bos_token"] = golden["bos_token"];
      variables["eos_token"] = golden["eos_token"];
      if (input.contains("kwargs")) variables.update(input["kwargs"]);
      try {
        EXPECT_EQ(chat.render(variables, noon()), wanted.value("text", "an error")) << file << " / " << name;
      } catch (const TemplateError& e) {
        EXPECT_EQ(e.kind_name(), wanted.value("raises", "no error")) << file << " / " << name << ": " << e.what();
        EXPECT_GT(e.line(), 0) << file << " / " << name;
      }
      ++compared;
    }
  }
  return compared;
}

TEST(Template, GoldenTexts) { EXPECT_EQ(compare_chats_with_goldens(support::data("templates")), 3 * 14); }

TEST(Template, GoldenTextsOfReleasedTemplates) {
  const std::string fixtures = support::fixtures();
  if (fixtures.empty()) GTEST_SKIP() << "BRAID_FIXTURES is not set: only the templates of tests/data were tried";
  EXPECT_GT(compare_chats_with_goldens(std::filesystem::path(fixtures) / "templates"), 0);
}

TEST(Template, RefusesWithTheTemplatesOwnMessage) {
  const TemplateError e = template_error("first line\n{{ raise_exception('Roles must alternate') }}");
  EXPECT_EQ(e.kind(), Kind::tmpl);
  EXPECT_EQ(e.line(), 2);
  EXPECT_EQ(e.text(), "Roles must alternate");
  EXPECT_STREQ(e.what(), "[template] test line 2: Roles must alternate");
}

TEST(Template, HostileTemplatesEndInOneError) {
  const struct {
    const char *source, *part;
  } cases[] = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "does not end"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recurses too deeply"},
      {"{{ 'a' * 10**9 }}", "more than"},
      {"{{ [0] * 10**12 }}", "more than"},
      {"{{ range(10**12) }}", "range of more than"},
      {"{{ 'x'.ljust(10**12) }}", "more than"},
      {"{{ '%1000000000000d' % 1 }}", "too wide"},
      {"{{ '{:>1000000000000}'.format(1) }}", "too wide"},
      {"{{ ('a' * 10**6).replace('a', 'b' * 10**6) }}", "more than"},
      {"{{ ('a' * 10**5).replace('', 'b' * 10**5) }}", "more than"},
      {"{{ range(99999) | join('a' * 10**5) }}", "more than"},
      {"{{ [1, 2] | tojson(indent=10**12) }}", "more than"},
      {"{{ [1] | batch(10**12, 0) | list }}", "more than"},
      {"{{ ('\n' * 10**6) | indent(10**6, true, true) }}", "more than"},
      {"{{ 10 ** 5000 }}", "more than 4300 digits"},
      {"{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}", "nested more than"},
      {"{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = [n.x, n.x] %}{% endfor %}",
       "holds more than"},
      {"{% set n = namespace() %}{% set n.n = n %}{{ n }}", "holds itself"},
      {"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "recurses too deeply"},
      {"{% for a in range(9999) %}{{ 'x' * 10**5 }}{% endfor %}", "writes too much"},
      {"{{ ('x ' * 10**6).split() }}", "more than"},
      {"{% set s = 'a' * 10**6 %}{% set n = 'b' ~ 'a' * 10**5 %}{% for i in range(999) %}{{ s.rfind(n) }}{% endfor %}",
       "does not end"},
      {"{% set l = range(99999) | list %}{% for i in range(9999) %}{% set x = l | max %}{% endfor %}", "does not end"},
  };
  const Limits limits{.steps = 2'000'000, .output_bytes = 1 << 20};  // the defaults take minutes under ASan
  for (const auto& c : cases) {
    const TemplateError e = template_error(c.source, limits);
    EXPECT_EQ(e.kind(), Kind::type) << c.source;
    EXPECT_NE(e.text().find(c.part), std::string::npos) << c.source << ": " << e.text();
  }
}

// Python's integers have any size.
TEST(Template, IntegersBeyond64BitsAreNumbers) {
  const auto variables = io::parse_ordered(
      R"({"id": 18446744073709551615, "least": -9223372036854775808, "vast": 123456789012345678901234567890,
          "under": -9223372036854775809})",
      "variables", {}, {.digits = true});
  const Rendered cases[] = {
      {"{{ id }} {{ least }} {{ [id, vast, under] | tojson }} {{ {id: vast} }}",
       "18446744073709551615 -9223372036854775808 [18446744073709551615, 123456789012345678901234567890, "
       "-9223372036854775809] {18446744073709551615: 123456789012345678901234567890}"},
      {"{% for x in [id, vast, under] %}{{ x is integer }}{{ x is number }}{{ x is string }}{{ x is float }} {% endfor "
       "%}",
       "TrueTrueFalseFalse TrueTrueFalseFalse TrueTrueFalseFalse "},
      {"{{ id < vast }} {{ under < least }} {{ under < -1 }} {{ vast > id }} {{ id == id }} {{ id == vast }} "
       "{{ [vast, id, 3, under] | sort }}",
       "True True True True True False [-9223372036854775809, 3, 18446744073709551615, "
       "123456789012345678901234567890]"},
      {"{{ id == 18446744073709551616.0 }} {{ id < 18446744073709551616.0 }} {{ id | float }} {{ vast < 1e400 }}",
       "False True 1.8446744073709552e+19 True"},
      {"{{ id | int }} {{ -id }} {{ id | abs }} {{ -under }} {{ -least }} {{ id | round }} {{ id | string | length }}",
       "18446744073709551615 -18446744073709551615 18446744073709551615 9223372036854775809 9223372036854775808 "
       "18446744073709551615 20"},
      {"{{ '%d' % id }} {{ '%s' % vast }} {{ '{:,}'.format(id) }} {{ '{}'.format(under) }} {{ id ~ '' }} {{ id / 1 }}",
       "18446744073709551615 123456789012345678901234567890 18,446,744,073,709,551,615 -9223372036854775809 "
       "18446744073709551615 1.8446744073709552e+19"},
      {"{{ '18446744073709551616' | int }} {{ 1e19 | int }} {{ '%d' % 1e20 }}",
       "18446744073709551616 10000000000000000000 100000000000000000000"}};
  for (const Rendered& c : cases) EXPECT_EQ(render(c.source, variables), c.text) << c.source;
}

TEST(Template, NestingIsBoundedBeforeTheStackIs) {
  const auto nested = [](const std::string& open, const std::string& middle, const std::string& close, int times) {
    std::string s;
    for (int i = 0; i < times; ++i) s += open;
    s += middle;
    for (int i = 0; i < times; ++i) s += close;
    return s;
  };
  for (const std::string& source :
       {"{{ " + nested("(", "1", ")", 20000) + " }}", "{{ " + nested("[", "1", "]", 20000) + " }}",
        "{{ " + nested("not ", "1", "", 20000) + " }}", "{{ " + nested("-", "1", "", 20000) + " }}",
        "{{ " + nested("1+", "1", "", 20000) + " }}", "{{ x" + nested("", "", ".y", 20000) + " }}",
        "{{ x" + nested("", "", "|trim", 20000) + " }}", "{{ x" + nested("", "", "()", 20000) + " }}",
        nested("{% if 1 %}", "", "{% endif %}", 20000), "{% set " + nested("(", "x", ")", 20000) + " = 1 %}"}) {
    EXPECT_EQ(template_error(source).kind(), Kind::syntax) << source.substr(0, 40);
  }
  EXPECT_EQ(render("{{ " + nested("(", "1", ")", 60) + " }}"), "1");
}

class Folder : public support::FolderTest {
 protected:
  std::string rendered(const ordered_json& variables) { return ChatTemplate::load(folder_).render(variables, noon()); }
};

TEST_F(Folder, FileBeforeEmbeddedTemplate) {
  write("tokenizer_config.json", R"({"chat_template": "old", "bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  EXPECT_EQ(rendered(ordered_json::object()), "old");
  write("chat_template.jinja", "{{ bos_token }}new{{ eos_token }}");
  EXPECT_EQ(rendered(ordered_json::object()), "<s>new</s>");
  EXPECT_EQ(rendered({{"bos_token", "!"}}), "!new</s>");
}

TEST_F(Folder, NamedTemplates) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
                                                       {"name": "tool_use", "template": "{{ tools | length }} tools"}]})");
  EXPECT_EQ(rendered({{"tools", nullptr}}), "plain");
  EXPECT_EQ(rendered({{"tools", {1, 2}}}), "2 tools");
}

// As transformers saves several.
TEST_F(Folder, TemplatesBesideTheFile) {
  write("chat_template.jinja", "plain");
  std::filesystem::create_directory(folder_ / kTemplatesFolder);
  write("additional_chat_templates/tool_use.jinja", "{{ tools | length }} tools");
  write("additional_chat_templates/rag.jinja", "{{ no such");
  write("additional_chat_templates/README", "none");
  EXPECT_EQ(rendered({{"tools", nullptr}}), "plain");
  EXPECT_EQ(rendered({{"tools", {1, 2}}}), "2 tools");
  write("additional_chat_templates/tool_use.jinja", "\xff");
  EXPECT_THROW(ChatTemplate::load(folder_), Error);
}

TEST_F(Folder, EverySpecialTokenIsAVariable) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "sep_token": "[S]", "image_token": {"content": "<i>"},
                                     "add_bos_token": true, "eos_token": null, "mask_token": {"id": 3}})");
  write("chat_template.jinja",
        "{{ bos_token }}{{ sep_token }}{{ image_token }}{{ mask_token is defined }}"
        "{{ eos_token is defined }}{{ add_bos_token is defined }}");
  EXPECT_EQ(rendered(ordered_json::object()), "<s>[S]<i>FalseFalseFalse");
}

TEST_F(Folder, SaysWhatIsMissing) {
  EXPECT_THROW(ChatTemplate::load(folder_), Error);
  write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": ""}]})");
  EXPECT_THROW(ChatTemplate::load(folder_), Error);
}

TEST(Template, VariablesAreAsPythonWouldHaveThem) {
  EXPECT_EQ(render("{{ x }}", {{"x", {{"a", 1}, {"b", {1.0, true, nullptr, "é'"}}}}}),
            "{'a': 1, 'b': [1.0, True, None, \"é'\"]}");
  EXPECT_EQ(render("{{ tools is none and documents is none and nothing is undefined }}"), "True");
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y, %-H:%M %A %%') }}"), "15 Jan 2026, 12:00 Thursday %");
}

}  // namespace
}  // namespace braid::text
