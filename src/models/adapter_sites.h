// Where adapters go, in PEFT's terms (github.com/huggingface/peft): `targets` are its target_modules, matched whole or
// as a suffix after a dot, `target_parameters` its own; both may hold `*`. Names are those of transformers' modules:
//   layers.0.mixer.in_proj             a module: its weight
//   layers.1.mixer.experts.up_proj     a parameter: the matrices of all experts
//   layers.1.mlp.experts.gate_up_proj  gate and up of every expert, one below the other
// The prediction block has no adapters: transformers does not have it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/param.h"
#include "models/config.h"
#include "nn/param_source.h"

namespace braid::models {

struct AdapterSpec {
  int64_t rank = 0;
  double alpha = 16, dropout = 0;
  std::vector<std::string> targets{}, target_parameters{};
};

// A matrix of the model: rows [row, row + base.value.rows) of a stored tensor, which has `rows`.
struct SiteMatrix {
  std::string name{};    // of the tensor, as requested
  std::string stored{};  // and as the files spell it
  Param base{};
  int64_t row = 0, rows = 0;
};

// One adapter. Of a stack of `count` matrices A_e is rows [e r, (e + 1) r) of A, and column j of B_e is column
// j count + e of B: PEFT's layout. A matrix of the stack may be split into several, concatenated by rows.
struct AdapterSite {
  std::string module;       // "model.layers.1.mixer.experts.base_layer", as PEFT has it after "base_model.model."
  std::string parameter;    // the whole name of a target_parameter; empty: a module
  bool folded = false;      // W + scale B A instead of a product of its own: experts, the head, a fused qkv
  bool transposed = false;  // in the files
  int64_t count = 1, rank = 0, in = 0, out = 0;
  std::vector<SiteMatrix> matrices{};  // count times the pieces of a matrix
  Adapter adapter{};                   // A [count r, in], B [out, r count]; the owner decides where they are stored

  int64_t pieces() const { return std::ssize(matrices) / count; }
};

// All places of a model that an adapter may go to, in the order in which the model requests its parameters.
class AdapterPlaces {
 public:
  // Requests the parameters of `config` from `files`.
  AdapterPlaces(const Config& config, nn::ParamSource& files);

  // The sites that a spec selects. Error if a word of it matches none (lists the choices), if a place is selected
  // twice, for a rank above that of a matrix, or for dropout of parameters, which PEFT refuses too.
  std::vector<AdapterSite> find(const AdapterSpec& spec) const;
  // The site of a module of an adapter's file; `parameters` are the file's target_parameters. Error when there is none.
  AdapterSite find_module(const std::string& module, const std::vector<std::string>& parameters,
                          const std::string& where) const;

 private:
  struct Place {
    std::string key;     // without the prefix that families and versions spell differently
    std::string module;  // of PEFT
    ParamRole role = ParamRole::none;
    bool is_module = false, is_parameter = false, folded = false, transposed = false;
    int64_t count = 1;
    std::vector<SiteMatrix> matrices{};
  };
  void add(const nn::ParamRequest& request, const SiteMatrix& matrix);
  void add_expert(const nn::ParamRequest& request, SiteMatrix matrix);
  Place& place(const std::string& key, const std::string& module, ParamRole role);
  void collect(const std::vector<std::string>& words, bool parameters, const char* where,
               std::vector<std::pair<const Place*, bool>>& found) const;
  AdapterSite site(const Place& place, bool as_parameter) const;
  void nest(std::vector<AdapterSite>& sites) const;

  std::vector<Place> places_;  // in the order of the model's requests, which is that of their addresses
};

}  // namespace braid::models
