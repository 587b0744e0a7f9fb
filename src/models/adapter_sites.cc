#include "models/adapter_sites.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "models/model.h"
#include "sys/error.h"
#include "sys/glob.h"
#include "sys/nearest.h"

namespace braid::models {
namespace {

constexpr std::string_view kWeight = ".weight", kExperts = ".experts.";

// What a name is without the prefixes that versions of a model spell differently.
std::string key_of(std::string_view name) {
  for (const std::string_view prefix :
       {"base_model.model.", "language_model.", "backbone.", "model.", "transformer."}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  return std::string(name);
}

// transformers renames Nemotron-H's backbone.
std::string module_of(std::string_view name) {
  constexpr std::string_view kBackbone = "backbone.";
  return name.starts_with(kBackbone) ? "model." + std::string(name.substr(kBackbone.size())) : std::string(name);
}

std::string_view leaf_of(std::string_view key) { return key.substr(key.rfind('.') + 1); }

bool means(const std::string& word, const std::string& key) {
  const std::string wanted = key_of(word);
  return sys::matches(wanted, key) || sys::matches("*." + wanted, key);
}

// Hands on what files give and notes the matrices.
class Listing final : public nn::ParamSource {
 public:
  explicit Listing(nn::ParamSource& files) : files_(files) {}
  std::vector<SiteMatrix> matrices{};

  bool has(const std::string& name) const override { return files_.has(name); }
  Param matrix(const std::string& name, int64_t rows, int64_t cols, const char* keys) override {
    return note(name, files_.matrix(name, rows, cols, keys));
  }
  Param transposed(const std::string& name, int64_t rows, int64_t cols, const char* keys) override {
    return note(name, files_.transposed(name, rows, cols, keys));
  }
  Param vector(const std::string& name, const Shape& shape, const char* keys, float plus) override {
    return files_.vector(name, shape, keys, plus);
  }
  std::vector<Param> stacked(const std::string& name, int64_t count, int64_t rows, int64_t cols,
                             const char* keys) override {
    std::vector<Param> list = files_.stacked(name, count, rows, cols, keys);
    for (int64_t i = 0; i < count; ++i) matrices.push_back({{name, i}, list[static_cast<size_t>(i)]});
    return list;
  }

 private:
  Param note(const std::string& name, Param p) {
    SiteMatrix& matrix = matrices.emplace_back();
    matrix.name.name = name;
    matrix.base = p;
    return p;
  }
  nn::ParamSource& files_;
};

// ...experts.7.up_proj.weight, and number 7 of ...experts.up_proj.
struct ExpertName {
  std::string before, leaf;  // "backbone.layers.1.mixer.experts."
  int64_t index = 0;
};
std::optional<ExpertName> expert_of(const MatrixName& matrix) {
  const size_t at = matrix.name.find(kExperts);
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = at + kExperts.size();
  ExpertName expert{matrix.name.substr(0, begin), matrix.name.substr(begin), matrix.index};
  if (matrix.index >= 0) return expert;
  const char* end = expert.leaf.data() + expert.leaf.size();
  const auto [after, error] = std::from_chars(expert.leaf.data(), end, expert.index);
  if (error != std::errc() || after == end || *after != '.' || !expert.leaf.ends_with(kWeight)) return std::nullopt;
  expert.leaf = std::string(after + 1, static_cast<size_t>(end - after) - 1 - kWeight.size());
  return expert;
}

}  // namespace

AdapterPlaces::AdapterPlaces(const Config& config, nn::ParamSource& files)
    : transposed_(config.storage == Storage::gpt2) {
  Listing listing(files);
  const Model model(config, listing);
  // Rows of a table, and what transformers does not have.
  const auto none = [&](const std::string& name) {
    return name == config.embedding || name == config.position_embedding || name.starts_with("mtp.");
  };
  for (SiteMatrix& matrix : listing.matrices) {
    const std::string& name = matrix.name.name;
    if (none(name)) continue;
    if (const auto expert = expert_of(matrix.name)) {
      add_expert(expert->before, expert->leaf, matrix);
    } else if (name.ends_with(kWeight)) {
      const std::string module = name.substr(0, name.size() - kWeight.size());
      const bool router = leaf_of(module) == "gate";  // no Linear there
      const bool folded = name == config.head;        // the loss reads the head itself
      Place& p = place(key_of(module), module_of(module));
      p.is_module = !router;
      p.folded = folded;
      p.matrices.push_back(matrix);
      Place& weight = place(key_of(name), module_of(module));  // p may lie elsewhere now
      weight.is_parameter = true;
      weight.folded = folded;
      weight.matrices.push_back(matrix);
    }
  }
  for (Place& p : places_) {
    if (p.key.find(kExperts) == std::string::npos) continue;
    if (leaf_of(p.key) == "gate_up_proj" && std::ssize(p.matrices) > 1) {  // came as all of up, then all of gate
      const size_t half = p.matrices.size() / 2;
      std::vector<SiteMatrix> mixed;
      for (size_t e = 0; e < half; ++e) {
        mixed.push_back(p.matrices[half + e]);
        mixed.push_back(p.matrices[e]);
      }
      p.matrices = std::move(mixed);
      p.count = std::ssize(p.matrices) / 2;
    } else {
      p.count = std::ssize(p.matrices);
    }
  }
}

AdapterPlaces::Place& AdapterPlaces::place(const std::string& key, const std::string& module) {
  const auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.key == key; });
  if (found != places_.end()) return *found;
  return places_.emplace_back(Place{.key = key, .module = module});
}

// Where experts have gates, transformers holds gate and up as one parameter.
void AdapterPlaces::add_expert(const std::string& before, const std::string& leaf, SiteMatrix matrix) {
  const std::string owner = before.substr(0, before.size() - 1), up = key_of(before) + "up_proj",
                    both = key_of(before) + "gate_up_proj";
  std::string key = key_of(before) + leaf;
  if (leaf == "gate_proj") {
    const auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.key == up; });
    if (found != places_.end()) found->key = both;
    key = both;
  }
  Place& p = place(key, module_of(owner));
  p.is_parameter = p.folded = true;
  p.matrices.push_back(std::move(matrix));
}

AdapterSite AdapterPlaces::site(const Place& place, bool as_parameter) const {
  AdapterSite site{.module = place.module,
                   .parameter = as_parameter ? place.module + "." + std::string(leaf_of(place.key)) : "",
                   .folded = place.folded,
                   .transposed = transposed_,
                   .count = place.count,
                   .matrices = place.matrices};
  site.in = place.matrices[0].base.value.cols;
  for (int64_t i = 0; i < site.pieces(); ++i) site.out += place.matrices[static_cast<size_t>(i)].base.value.rows;
  return site;
}

void AdapterPlaces::collect(const std::vector<std::string>& words, bool parameters, const char* where,
                            std::vector<std::pair<const Place*, bool>>& found) const {
  for (const std::string& word : words) {
    const bool all = !parameters && word == "all-linear";
    bool any = false;
    for (const Place& p : places_) {
      if (!(parameters ? p.is_parameter : p.is_module)) continue;
      if (all ? p.folded : !means(word, p.key)) continue;
      any = true;
      const bool known = std::any_of(found.begin(), found.end(), [&](const auto& f) { return f.first == &p; });
      if (!known) found.emplace_back(&p, parameters);
    }
    if (any) continue;
    std::set<std::string> names;
    for (const Place& p : places_) {
      if (!(parameters ? p.is_parameter : p.is_module)) continue;
      const size_t leaf = p.key.rfind('.');
      const size_t owner = leaf == std::string::npos || leaf == 0 ? std::string::npos : p.key.rfind('.', leaf - 1);
      names.insert(parameters && owner != std::string::npos ? p.key.substr(owner + 1) : std::string(leaf_of(p.key)));
    }
    const std::vector<std::string> list(names.begin(), names.end());
    fail(where,
         {.what = fmt::format("{} means no {} of this model", printable(word), parameters ? "parameter" : "module"),
          .expected = fmt::format("{}", fmt::join(list, ", ")),
          .hint = sys::nearest(word, list)});
  }
}

// PEFT wraps a module once a parameter of it, the first innermost.
void AdapterPlaces::nest(std::vector<AdapterSite>& sites) const {
  for (size_t i = 0; i < sites.size(); ++i) {
    const std::string module = sites[i].module;
    for (size_t j = i + 1; j < sites.size(); ++j) {
      if (sites[j].module == module) sites[i].module += ".base_layer";
    }
  }
}

std::vector<AdapterSite> AdapterPlaces::find(const AdapterSpec& spec) const {
  if (spec.targets.empty() && spec.target_parameters.empty())
    fail("lora", {.what = "names nothing to adapt", .expected = "targets or target_parameters"});
  if (spec.dropout > 0 && !spec.target_parameters.empty())
    fail("lora.dropout", {.what = "parameters have none", .expected = "0, or targets alone"});
  std::vector<std::pair<const Place*, bool>> found;
  collect(spec.targets, false, "lora.targets", found);
  collect(spec.target_parameters, true, "lora.target_parameters", found);
  std::sort(found.begin(), found.end());  // by place: as the model asks for them
  std::vector<AdapterSite> sites;
  std::set<std::string> names;
  for (const auto& [place, as_parameter] : found) {
    AdapterSite s = site(*place, as_parameter);
    if (s.folded && spec.dropout > 0)
      fail("lora.dropout", {.what = "the head has none", .expected = "0, or targets without " + place->key});
    if (!names.insert(s.matrices[0].name.name).second)
      fail("lora", {.what = place->key + " is named twice", .expected = "by targets or target_parameters"});
    s.rank = spec.rank;
    s.adapter.scale = static_cast<float>(spec.alpha / static_cast<double>(spec.rank));
    s.adapter.dropout = static_cast<float>(spec.dropout);
    sites.push_back(std::move(s));
  }
  nest(sites);
  return sites;
}

AdapterSite AdapterPlaces::find_module(const std::string& module, const std::vector<std::string>& parameters,
                                       const std::string& where) const {
  std::string owner = module;
  size_t depth = 0;  // of wrapped ones below
  constexpr std::string_view kInner = ".base_layer";
  for (; owner.ends_with(kInner); ++depth) owner.resize(owner.size() - kInner.size());
  const std::string key = key_of(owner);
  std::vector<const Place*> found;
  for (const Place& p : places_) {
    if (p.is_parameter && key_of(p.module) == key) {
      for (const std::string& word : parameters) {
        if (!means(word, p.key)) continue;
        found.push_back(&p);
        break;
      }
    }
  }
  if (found.empty() && depth == 0) {
    for (const Place& p : places_) {
      if (!p.is_parameter && p.key == key) found.push_back(&p);
    }
  }
  if (depth >= found.size())
    fail(where, {.what = "has an adapter of " + printable(module), .expected = "modules and parameters of this model"});
  AdapterSite s = site(*found[found.size() - 1 - depth], false);
  s.module = module;
  return s;
}

}  // namespace braid::models
