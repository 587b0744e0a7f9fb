#include "puzzle/variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "prune/axes.h"
#include "sys/error.h"

namespace braid::puzzle {
namespace {

using models::BlockSpec;
using models::Config;
using prune::Axis;

constexpr const char* kKvHeads = "kv_heads";

struct Word {
  const char* word;
  char letter;     // of the blocks that it is about
  bool has_sizes;  // a kind of block has none of its own
};
constexpr Word kWords[] = {
    {"ffn", '-', true},         {"heads", '*', true},          {"kv_groups", '*', true},  {kKvHeads, '*', true},
    {"mamba_heads", 'M', true}, {"mamba_head_dim", 'M', true}, {"experts", 'E', true},    {"expert_ffn", 'E', true},
    {"shared_ffn", 'E', true},  {"latent", 'E', true},         {"attention", '*', false}, {"mamba", 'M', false},
    {"moe", 'E', false},
};

const Word* find_word(const std::string& word) {
  const auto* found = std::find_if(std::begin(kWords), std::end(kWords), [&](const Word& w) { return word == w.word; });
  return found == std::end(kWords) ? nullptr : found;
}

Lists::Entry read_entry(const io::Json& list, bool has_sizes) {
  constexpr size_t kMost = 64;
  if (!list.is_array() || list.items().size() > kMost)
    list.refuse("is not a list of sizes", fmt::format("up to {} sizes, \"linear\" or \"none\"", kMost));
  Lists::Entry entry;
  for (const io::Json& item : list.items()) {
    const std::string word = item.is_string() ? item.as_string() : "";
    if (word == "linear") {
      entry.linear = true;
    } else if (word != "none" && (item.is_string() || !has_sizes)) {
      item.refuse("is not a variant", has_sizes ? "a size, \"linear\" or \"none\"" : "\"linear\" or \"none\"");
    } else if (const double size = item.is_string() ? 0 : item.as_number({0, 1 << 24}); size > 0) {
      entry.sizes.push_back(size);
    } else {
      entry.none = true;
    }
  }
  return entry;
}

bool is_transformer(const Config& config) {
  if (config.family == "nemotron-nas") return true;
  if (config.family != "llama" || config.norm != models::NormKind::rms) return false;
  return std::all_of(config.layers.begin(), config.layers.end(), [](const models::LayerSpec& layer) {
    return std::all_of(layer.parts.begin(), layer.parts.end(), [](const models::PartSpec& part) {
      const auto* a = std::get_if<nn::AttentionSpec>(&part.block);
      return a ? !a->qk_norm : std::holds_alternative<nn::MlpSpec>(part.block);
    });
  });
}

// A model of this block alone: its axes are those of the block.
Config alone(const Config& config, const BlockSpec& block) {
  Config one = config;
  one.mtp.reset();
  one.layers = {{.parts = {{.block = block, .norm = {}, .prefix = {}}}}};
  return one;
}

class SiteMaker {
 public:
  SiteMaker(const Config& config, const Lists& lists) : config_(config), lists_(lists) {}

  Site operator()(size_t layer, size_t part) {
    const BlockSpec& block = config_.layers[layer].parts[part].block;
    Site site{.layer = layer, .part = part, .variants = {{.block = block}}};
    const char letter = models::letter_of(block);
    bool linear = false, none = false;
    for (const auto& [word, entry] : lists_.of) {
      if (find_word(word)->letter != letter) continue;
      used_.insert(word);
      linear = linear || entry.linear;
      none = none || entry.none;
    }
    if (lists_.keep.contains(static_cast<int64_t>(layer))) return site;
    add_cuts(site, letter);
    if (letter == '*') add_merged(site);
    if (linear) add_linear(site, letter);
    if (none) site.variants.push_back({.change = Change::none, .block = block, .name = "none"});
    if (std::ssize(site.variants) > kVariantsOfSite)
      fail("variants", {.what = fmt::format("layer {} has too many", layer),
                        .got = std::to_string(site.variants.size()),
                        .expected = fmt::format("at most {}", kVariantsOfSite)});
    return site;
  }

  // Error for a word that no block of the model has.
  void check_used() const {
    for (const auto& [word, entry] : lists_.of) {
      if (lists_.asked && !used_.contains(word))
        fail("variants", {.what = "the model has no such blocks", .got = word, .hint = "without it"});
    }
    for (const int64_t layer : lists_.keep) {
      if (layer >= std::ssize(config_.layers))
        fail("variants", {.what = "no such layer to keep",
                          .got = std::to_string(layer),
                          .expected = fmt::format("0 to {}", config_.layers.size() - 1)});
    }
  }

 private:
  // Error for the size of a block that is more than the whole. Up to 1 it is a share: "kv_heads = [1]" is no single
  // head.
  void check_size(const std::string& word, double size, int64_t full) const {
    if (lists_.asked && (size > static_cast<double>(full) || (size == 1 && word == kKvHeads)))
      fail("variants", {.what = fmt::format("no smaller size of {}", word),
                        .got = fmt::format("{}", size),
                        .expected = fmt::format("a share below 1, or a number from 2 to {}", full)});
  }

  // Sizes of one axis, the whole first.
  std::vector<int64_t> sizes_of(const prune::AxisRange& range, const std::vector<double>& wanted) const {
    std::vector<int64_t> sizes = {range.full};
    for (const double w : wanted) {
      check_size(name_of(range.axis), w, range.full);
      const double units = w <= 1 ? w * static_cast<double>(range.full) : w;
      const auto steps = static_cast<int64_t>(std::llround(units / static_cast<double>(range.step)));
      const int64_t size = std::max(range.least, steps * range.step);
      if (size < range.full && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
    }
    return sizes;
  }

  // All combinations of the sizes of a block's axes.
  void add_cuts(Site& site, char letter) const {
    const Config one = alone(config_, site.whole());
    std::vector<prune::Sizes> all(1);
    std::vector<std::string> names(1);
    for (const prune::AxisRange& range : prune::axes_of(one, {.width = 1e-9})) {
      const std::string word = name_of(range.axis);
      const auto entry = lists_.of.find(word);
      if (entry == lists_.of.end() || find_word(word)->letter != letter || range.full == 0) continue;
      if (entry->second.sizes.empty()) continue;
      if (!range.why.empty() || (is_transformer(config_) && letter == '*')) {
        if (lists_.asked && range.least < range.full)
          fail("variants", {.what = fmt::format("blocks of this model cannot differ in {}", word),
                            .hint = letter == '*' ? "kv_heads" : "another axis"});
        continue;
      }
      const size_t count = all.size();
      for (const int64_t size : sizes_of(range, entry->second.sizes)) {
        for (size_t i = 0; i < count && size < range.full; ++i) {
          all.push_back(all[i]);
          all.back()[range.axis] = size;
          names.push_back(fmt::format("{}{}{} {}", names[i], names[i].empty() ? "" : ", ", word, size));
        }
      }
    }
    for (size_t i = 1; i < all.size(); ++i) {
      const BlockSpec block = prune::Resizer(one, all[i])(site.whole());
      site.variants.push_back({.change = Change::cut, .block = block, .name = names[i]});
    }
  }

  void add_merged(Site& site) const {
    const auto entry = lists_.of.find(kKvHeads);
    if (entry == lists_.of.end()) return;
    auto block = std::get<nn::AttentionSpec>(site.whole());
    const int64_t full = block.kv_heads;
    for (const double w : entry->second.sizes) {
      check_size(kKvHeads, w, full);
      auto heads = static_cast<int64_t>(std::llround(w <= 1 ? w * static_cast<double>(full) : w));
      heads = std::clamp<int64_t>(heads, 1, full);
      while (full % heads != 0) --heads;
      if (heads == full || heads == block.kv_heads) continue;
      block.kv_heads = heads;
      site.variants.push_back({.change = Change::merged, .block = block, .name = fmt::format("kv_heads {}", heads)});
    }
  }

  void add_linear(Site& site, char letter) const {
    if (!is_transformer(config_) || (letter != '*' && letter != '-')) {
      if (lists_.asked)
        fail("variants",
             {.what = fmt::format("no such block of {} can be linear", config_.family), .hint = "\"none\""});
      return;
    }
    const ParamRole role = letter == '*' ? ParamRole::linear_attention : ParamRole::linear_mlp;
    site.variants.push_back(
        {.change = Change::linear, .block = models::LinearSpec{config_.hidden, role}, .name = "linear"});
  }

  const Config& config_;
  const Lists& lists_;
  std::set<std::string> used_;
};

}  // namespace

bool has_two_parts(const Config& config) { return is_transformer(config); }

Lists read_lists(const io::Json& json) {
  if (!json.is_object()) json.refuse("is not a table of variants", "ffn = [0.5, \"none\"], ...");
  Lists lists{.asked = true};
  for (const auto& [word, value] : json.members()) {
    if (word == "keep") {
      if (!value.is_array()) value.refuse("is not a list of layers", "[0, 3]");
      for (const io::Json& layer : value.items()) lists.keep.insert(layer.as_int({0, 1 << 20}));
      continue;
    }
    const Word* known = find_word(word);
    if (!known) {
      std::vector<const char*> words;
      for (const Word& w : kWords) words.push_back(w.word);
      value.refuse("is not a kind of variant", fmt::format("{} or keep", fmt::join(words, ", ")));
    }
    lists.of[word] = read_entry(value, known->has_sizes);
  }
  return lists;
}

Lists default_lists(const Config& config) {
  if (is_transformer(config))
    return {.of = {{"ffn", {{0.75, 0.5, 0.25}, true, true}}, {kKvHeads, {{0.5}, true, true}}}};
  return {.of = {{"ffn", {{0.75, 0.5, 0.25}, false, true}},
                 {"kv_groups", {{0.5}, false, true}},
                 {"mamba_heads", {{0.75, 0.5}, false, true}},
                 {"experts", {{0.75, 0.5, 0.25}, false, true}},
                 {"expert_ffn", {{0.5, 0.25}, false, false}}}};
}

std::vector<Site> sites_of(const Config& config, const Lists& lists) {
  if (config.family != "nemotron_h" && !is_transformer(config))
    fail("search", {.what = "layers of this family cannot differ",
                    .got = config.family,
                    .expected = "nemotron_h, nemotron-nas or llama",
                    .hint = "braid prune, which cuts all layers alike"});
  std::vector<Site> sites;
  SiteMaker make(config, lists);
  for (size_t l = 0; l < config.layers.size(); ++l) {
    for (size_t p = 0; p < config.layers[l].parts.size(); ++p) sites.push_back(make(l, p));
  }
  make.check_used();
  return sites;
}

std::string shape_of(const BlockSpec& block) {
  if (const auto* m = std::get_if<nn::Mamba2Spec>(&block)) return fmt::format("M {} x {}", m->heads, m->head_dim);
  if (const auto* a = std::get_if<nn::AttentionSpec>(&block))
    return fmt::format("* {} / {} x {}", a->heads, a->kv_heads, a->head_dim);
  if (const auto* f = std::get_if<nn::MlpSpec>(&block)) return fmt::format("- {}", f->width);
  if (const auto* e = std::get_if<nn::MoeSpec>(&block))
    return fmt::format("E {} / {} x {}, {}, {}", e->experts, e->top_k, e->width, e->shared_width, e->latent);
  return "L";
}

}  // namespace braid::puzzle
