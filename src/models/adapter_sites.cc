#include "models/adapter_sites.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "models/model.h"
#include "sys/error.h"
#include "sys/glob.h"
#include "sys/nearest.h"

namespace braid::models {
namespace {

// A name without the prefixes that versions of a model spell differently.
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

// "experts.up_proj" -> "experts": what a parameter belongs to.
std::string owner_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

// Forwards what files give and records the matrices, those of a stack one by one.
class Listing final : public nn::ParamSource {
 public:
  explicit Listing(nn::ParamSource& files) : files_(files) {}
  std::vector<std::pair<nn::ParamRequest, SiteMatrix>> matrices{};

  bool has(const std::string& name) const override { return files_.has(name); }

 protected:
  Param first(const nn::ParamRequest& r) override {
    const Param p = files_.get(r);
    if (!is_matrix(r.role)) return p;
    const SiteMatrix whole{.name = r.name, .stored = p.name, .base = p, .rows = p.value.rows};
    if (r.shape.rank < 3) {
      matrices.emplace_back(r, whole);
      return p;
    }
    for (const Segment& segment : r.segments) {
      SiteMatrix one = whole;
      one.base = part_of(p, segment, p.name, r.role);
      one.row = segment.begin;
      matrices.emplace_back(r, std::move(one));
    }
    return p;
  }

 private:
  nn::ParamSource& files_;
};

}  // namespace

AdapterPlaces::AdapterPlaces(const Config& config, nn::ParamSource& files) {
  Listing listing(files);
  const Model model(config, listing);
  for (const auto& [request, matrix] : listing.matrices) {
    // Embedding rows, and what transformers does not have.
    if (request.role == ParamRole::embedding || request.role == ParamRole::positions || request.mtp) continue;
    request.experts > 0 ? add_expert(request, matrix) : add(request, matrix);
  }
  for (Place& p : places_) {
    if (p.role == ParamRole::expert_gate && std::ssize(p.matrices) > 1) {  // came as all of up, then all of gate
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

AdapterPlaces::Place& AdapterPlaces::place(const std::string& key, const std::string& module, ParamRole role) {
  const auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.key == key; });
  if (found != places_.end()) return *found;
  return places_.emplace_back(Place{.key = key, .module = module, .role = role});
}

// A module and its weight. The loss reads the head directly, and a fused product is read in parts.
void AdapterPlaces::add(const nn::ParamRequest& request, const SiteMatrix& matrix) {
  const std::string module = owner_of(request.name);
  for (const bool is_module : {true, false}) {
    Place& p = place(key_of(is_module ? module : request.name), module_of(module), request.role);
    p.is_module = is_module && request.role != ParamRole::router;  // no Linear there
    p.is_parameter = !is_module;
    p.folded = request.role == ParamRole::head || request.role == ParamRole::qkv || request.role == ParamRole::gate_up;
    p.transposed = request.transposed;
    p.matrices.push_back(matrix);
  }
}

// Where experts have gates, transformers holds gate and up as one parameter.
void AdapterPlaces::add_expert(const nn::ParamRequest& request, SiteMatrix matrix) {
  const std::string module = module_of(owner_of(request.stack));
  std::string key = key_of(request.stack);
  if (request.role == ParamRole::expert_gate) {
    key = key_of(owner_of(request.stack)) + ".gate_up_proj";
    for (Place& p : places_) {
      if (p.role != ParamRole::expert_up || p.module != module) continue;
      p.role = ParamRole::expert_gate;
      p.key = key;
    }
  }
  Place& p = place(key, module, request.role);
  p.is_parameter = p.folded = true;
  p.matrices.push_back(std::move(matrix));
}

AdapterSite AdapterPlaces::site(const Place& place, bool as_parameter) const {
  AdapterSite site{.module = place.module,
                   .parameter = as_parameter ? place.module + "." + std::string(leaf_of(place.key)) : "",
                   .folded = place.folded,
                   .transposed = place.transposed,
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
      if (all ? p.role == ParamRole::head : !means(word, p.key)) continue;
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
         {.what = fmt::format("{} matches no {} of this model", printable(word), parameters ? "parameter" : "module"),
          .expected = fmt::format("{}", fmt::join(list, ", ")),
          .hint = sys::nearest(word, list)});
  }
}

// PEFT wraps a module once per parameter, the first innermost.
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
    fail("lora.dropout", {.what = "parameters have no dropout", .expected = "0, or targets alone"});
  std::vector<std::pair<const Place*, bool>> found;
  collect(spec.targets, false, "lora.targets", found);
  collect(spec.target_parameters, true, "lora.target_parameters", found);
  std::sort(found.begin(), found.end());  // by address: in the order of the model's requests
  std::vector<AdapterSite> sites;
  std::set<std::string> names;
  for (const auto& [place, as_parameter] : found) {
    AdapterSite s = site(*place, as_parameter);
    if (s.folded && spec.dropout > 0)
      fail("lora.dropout", {.what = place->key + " has no dropout", .expected = "0, or targets without " + place->key});
    if (!names.insert(s.matrices[0].name).second)
      fail("lora", {.what = place->key + " is named twice", .expected = "by targets or target_parameters"});
    if (const int64_t most = std::min(s.in, s.out); spec.rank > most)
      fail("lora.rank", {.what = "exceeds the rank of " + place->key,
                         .got = std::to_string(spec.rank),
                         .expected = fmt::format("at most {}, since the matrix is {} by {}", most, s.out, s.in)});
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
