#include "puzzle/work.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "sys/error.h"

namespace braid::puzzle {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kFacts = "search.json";
constexpr io::NumberRange kAny{.min = -1e300, .max = 1e300};

std::string shortened(const std::string& value) { return printable(value, 60); }

void check_facts(const fs::path& folder, const io::Json& stored, const Facts& facts) {
  std::string names, there, here;
  for (const auto& [name, value] : facts) {
    const std::string was = stored.string_of({name}).value_or("");
    if (was == value) continue;
    const auto add = [&name = name](std::string& to, const std::string& what) {
      to += fmt::format("{}{} {}", to.empty() ? "" : ", ", name, shortened(what));
    };
    names += (names.empty() ? "" : ", ") + name;
    add(there, was);
    add(here, value);
  }
  if (!names.empty())
    fail(printable(folder.string()), {.what = fmt::format("holds a search that differs in {}", names),
                                      .got = here,
                                      .expected = there,
                                      .hint = "the same arguments, another OUT, or removing the folder"});
}

// What `read` says, with the way out: nothing can be repaired.
template <class Read>
auto or_damaged(const fs::path& folder, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    const std::string_view said = error.what();
    throw Error(error.fault(), fmt::format("{}; try removing {}, which begins the search again",
                                           said.substr(0, said.find("; try ")), printable(folder.string())));
  }
}

void check_values(const std::string& where, const Rated& rated, const Values& values, const Work::Tensors& expected) {
  for (const auto& [name, own] : values.of) {
    const auto known = expected.find(name);
    if (known == expected.end() || known->second.like != own.like)
      fail(where, {.what = "names a tensor that the variant does not have", .got = printable(name)});
    const View& v = own.value;
    const bool dense = v.dtype == DType::f32 || v.dtype == DType::bf16 || v.dtype == DType::f16;
    if (!dense || v.shape != known->second.shape)
      fail(where, {.what = fmt::format("{} has another type or shape", printable(name)),
                   .got = fmt::format("{} {}", name_of(v.dtype), to_string(v.shape)),
                   .expected = to_string(known->second.shape)});
  }
  for (const auto& [name, tensor] : expected) {
    if ((rated.trained || tensor.always) && !values.of.contains(name))
      fail(where, {.what = "lacks a tensor of the variant", .expected = printable(name)});
  }
}

}  // namespace

Work::Work(fs::path folder, const Facts& facts) : folder_(std::move(folder)) {
  if (!fs::exists(folder_ / kFacts)) {
    io::check_parent(folder_);
    io::check_new_folder(folder_);
    fs::create_directories(folder_);
    ordered_json j;
    for (const auto& [name, value] : facts) j[name] = value;
    io::write_text_file(folder_ / kFacts, j.dump(1) + "\n");
  }
  lock_.emplace(folder_ / kFacts, "search");
  const io::Json stored = or_damaged(folder_, [&] { return io::Json::read(folder_ / kFacts); });
  check_facts(folder_, stored, facts);
}

fs::path Work::file(size_t site, size_t variant, const char* ending) const {
  return folder_ / fmt::format("site-{:03}-variant-{:02}{}", site, variant, ending);
}

bool Work::has(size_t site, size_t variant) const { return fs::exists(file(site, variant, ".json")); }

Work::Done Work::load(size_t site, size_t variant, const Tensors& expected) const {
  return or_damaged(folder_, [&] { return read(site, variant, expected); });
}

Work::Done Work::read(size_t site, size_t variant, const Tensors& expected) const {
  const io::Json j = io::Json::read(file(site, variant, ".json"));
  const auto number = [&j](const char* key) { return j.need({key}).as_number(kAny); };
  Done done{.rated = {.difference = {.kl = number("kl"), .loss = number("loss"), .cosine = number("cosine")},
                      .local = number("local"),
                      .untrained = number("untrained"),
                      .trained = j.need({"trained"}).as_bool()}};
  const std::vector<std::pair<std::string, io::Json>> like = j.need({"values"}).members();
  const fs::path weights = file(site, variant, ".safetensors");
  if (!like.empty()) {
    const auto tensors = std::make_shared<const io::Safetensors>(weights);
    done.values.store = std::make_shared<WeightStore>();
    done.values.store->keep(tensors);
    for (const auto& [name, of] : like) done.values.of[name] = {.value = tensors->need(name), .like = of.as_string()};
  }
  check_values(printable((like.empty() ? file(site, variant, ".json") : weights).string()), done.rated, done.values,
               expected);
  return done;
}

void Work::save(size_t site, size_t variant, const Rated& rated, const Values& values) const {
  ordered_json like = ordered_json::object();
  std::vector<io::TensorSpec> specs;
  for (const auto& [name, own] : values.of) {
    like[name] = own.like;
    specs.push_back({name, own.value.dtype, own.value.shape});
  }
  if (!specs.empty()) {
    io::SafetensorsWriter out(file(site, variant, ".safetensors"), specs);
    for (const io::TensorSpec& spec : out.order()) out.write(spec.name, values.of.at(spec.name).value);
    out.finish();
  }
  const ordered_json j = {{"kl", rated.difference.kl},         {"loss", rated.difference.loss},
                          {"cosine", rated.difference.cosine}, {"local", rated.local},
                          {"untrained", rated.untrained},      {"trained", rated.trained},
                          {"values", std::move(like)}};
  io::write_text_file(file(site, variant, ".json"), j.dump(1) + "\n");
}

void Work::remove() const { fs::remove_all(folder_); }

}  // namespace braid::puzzle
