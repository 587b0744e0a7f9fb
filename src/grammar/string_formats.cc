#include "grammar/string_formats.h"

#include <algorithm>
#include <iterator>

#include "sys/error.h"

namespace braid::grammar {
namespace {

struct Format {
  std::string_view name, pattern;
};
// Those of JSON Schema and of pydantic that say how the text looks.
constexpr Format kFormats[] = {
    {"date-time",
     R"((19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))"},
    {"date",
     R"((19|20)\d\d-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])|(19|20)\d\d-(0[13-9]|1[0-2])-(29|30)|(19|20)\d\d-(0[13578]|1[02])-31)"},
    {"time", R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))"},
    {"duration",
     R"(P(\d{1,6}D|(\d{1,6}D)?T(\d{1,6}H(\d{1,6}M)?(\d{1,6}S)?|\d{1,6}M(\d{1,6}S)?|\d{1,6}S)|\d{1,6}W|\d{1,6}Y(\d{1,6}M(\d{1,6}D)?)?|\d{1,6}M(\d{1,6}D)?))"},
    {"uuid", R"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"},
    {"uuid1", R"([0-9a-f]{8}-[0-9a-f]{4}-1[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"},
    {"uuid3", R"([0-9a-f]{8}-[0-9a-f]{4}-3[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"},
    {"uuid4", R"([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"},
    {"uuid5", R"([0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"},
    {"uuid6", R"([0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"},
    {"uuid7", R"([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"},
    {"uuid8", R"([0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})"},
    {"email",
     R"([A-Za-z0-9_+-]{1,32}(\.[A-Za-z0-9_+-]{1,32})?@[A-Za-z0-9]{1,32}(-[A-Za-z0-9]{1,16})?(\.[A-Za-z0-9]{1,32})?\.[A-Za-z]{2,12})"},
    {"ipv4", R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3})"},
    {"ipv6", R"([0-9a-f]{1,4}(:[0-9a-f]{1,4}){7})"},
    {"ipv4network", R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}/32)"},
    {"ipv4interface", R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}/(3[0-2]|[12]?\d))"},
    {"ipv6network", R"([0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}/128)"},
    {"ipv6interface", R"([0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}/(12[0-8]|1[01]\d|[1-9]?\d))"},
    {"ipvanyaddress",
     R"([0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}|(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3})"},
    {"hostname", R"([a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?){0,3})"},
    {"uri",
     R"([a-z][a-z0-9+.-]{1,15}://[A-Za-z0-9.-]{1,100}(:\d{1,4})?(/[A-Za-z0-9._~%!$&'()*+,;=:@/-]{0,300})?(\?[A-Za-z0-9._~%!$&'()*+,;=:@/?-]{0,300})?)"},
    {"multi-host-uri",
     R"([a-z][a-z0-9+.-]{1,15}://[A-Za-z0-9_]{1,32}(:[A-Za-z0-9_]{1,64})?@[A-Za-z0-9.-]{1,100}(:\d{1,4})?/[A-Za-z0-9_-]{1,64})"},
    {"base64", R"(([A-Za-z0-9+/]{4}){0,1000})"}};

// pydantic's pattern of a Decimal looks ahead; this one does not, and allows the usual ones of its texts.
constexpr std::string_view kDecimalPattern = R"(^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$)",
                           kDecimalInstead = R"(^[+-]?\d+(\.\d+)?$)";

}  // namespace

std::string format_pattern(const std::string& format, std::string_view where) {
  constexpr std::string_view kDefined[] = {"idn-email",     "idn-hostname", "iri",
                                           "iri-reference", "json-pointer", "relative-json-pointer",
                                           "uri-reference", "uri-template", "regex"};
  const auto at =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.name == format; });
  if (at != std::end(kFormats)) return std::string(at->pattern);
  if (std::ranges::find(kDefined, format) == std::end(kDefined)) return "";
  std::string names;
  for (const Format& f : kFormats) names += fmt::format("{}{}", names.empty() ? "" : ", ", f.name);
  fail(where,
       {.what = "a value of the keyword \"format\" is not supported", .got = printable(format, 60), .expected = names});
}

std::string enforced_pattern(const std::string& pattern) {
  return pattern == kDecimalPattern ? std::string(kDecimalInstead) : pattern;
}

}  // namespace braid::grammar
