#include "serve/fields.h"

#include <fmt/format.h>

#include <cstdint>
#include <random>

#include "io/ordered_json.h"
#include "serve/api_error.h"
#include "sys/error.h"

namespace braid::serve {

using nlohmann::ordered_json;

ordered_json parse_body(const std::string& body) {
  ordered_json json = io::parse_ordered(body, "body", {}, {.keys = io::kOrderedKeysMax, .digits = true});
  if (!json.is_object()) refuse("the body is not a JSON object");
  return json;
}

std::string dump(const ordered_json& json) { return io::dumped(json); }

std::string got(const ordered_json& value) {
  if (value.is_object()) return "; got an object";
  if (value.is_array()) return "; got a list";
  return "; got " + printable(dump(value), 80);
}

uint64_t random_bits() {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator();
}

std::string random_id(const char* prefix) { return fmt::format("{}{:016x}", prefix, random_bits()); }

const ordered_json* Fields::find(const char* name) const {
  const auto at = body_.find(name);
  return at == body_.end() || at->is_null() ? nullptr : &*at;
}

std::optional<double> Fields::number(const char* name, double least, double most) const {
  const ordered_json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number() || !(value->get<double>() >= least) || !(value->get<double>() <= most))
    refuse(fmt::format("'{}' is not a number from {} to {}{}", name, least, most, got(*value)), name);
  return value->get<double>();
}

std::optional<int64_t> Fields::integer(const char* name, int64_t least, int64_t most) const {
  const ordered_json* given = find(name);
  if (!given) return std::nullopt;
  const double value = given->is_number() ? given->get<double>() : 0;
  // A double has no room for every whole number: 2^63 - 1 is 2^63.
  const bool beyond = given->is_number_unsigned() ? given->get<uint64_t>() > uint64_t{INT64_MAX}
                                                  : !(value >= -0x1p63) || value >= 0x1p63;
  const bool whole = given->is_number() && !beyond;
  const int64_t out = !whole ? 0 : given->is_number_integer() ? given->get<int64_t>() : static_cast<int64_t>(value);
  if (!whole || out < least || out > most)
    refuse(fmt::format("'{}' is not a number from {} to {}{}", name, least, most, got(*given)), name);
  if (given->is_number_float() && value != static_cast<double>(out))
    refuse(fmt::format("'{}' is not a whole number{}", name, got(*given)), name);
  return out;
}

std::optional<bool> Fields::boolean(const char* name) const {
  const ordered_json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) refuse(fmt::format("'{}' is not true or false{}", name, got(*value)), name);
  return value->get<bool>();
}

std::optional<std::string> Fields::text(const char* name) const {
  const ordered_json* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse(fmt::format("'{}' is not text{}", name, got(*value)), name);
  return value->get<std::string>();
}

void Fields::only(const char* name, const ordered_json& standard) const {
  const ordered_json* value = find(name);
  if (value && *value != standard)
    refuse(fmt::format("'{}' is not available here, except as {}{}", name, standard.dump(), got(*value)), name,
           "unsupported_parameter");
}

std::vector<std::string> Fields::stops(const char* name) const {
  constexpr size_t kStopsMax = 16, kBytesMax = 1024;
  const ordered_json* stop = find(name);
  if (!stop) return {};
  std::vector<std::string> out;
  if (*stop == "") return {};  // as some clients say that there is none
  for (const ordered_json& text : stop->is_array() ? *stop : ordered_json::array({*stop})) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty() ||
        text.get_ref<const std::string&>().size() > kBytesMax)
      refuse(fmt::format("'{}' is not a text, or a list of texts, of 1 to {} bytes{}", name, kBytesMax, got(text)),
             name);
    out.push_back(text);
  }
  if (out.size() > kStopsMax)
    refuse(fmt::format("'{}' has more than {} texts; got {}", name, kStopsMax, out.size()), name);
  return out;
}

}  // namespace braid::serve
