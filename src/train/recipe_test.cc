#include "train/recipe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "io/toml.h"
#include "support/error_of.h"
#include "sys/glob.h"
#include "train/manifest.h"
#include "train/origin.h"
#include "train/rehearsal.h"

namespace braid::train {
namespace {

std::string refusal(std::string_view text) {
  return support::error_of([&] { read_recipe(io::parse_toml(text, "r.toml")); });
}

TEST(Recipe, WordsAreReadAndTheRestKeepsItsDefault) {
  const Recipe r =
      read_recipe(io::parse_toml("init = \"tiny\"\nsteps = 100\n[optimizer]\nlr = 1\n[schedule]\n"
                                 "kind = \"wsd\"\ndecay = 20\n[data]\nkind = \"ids\"\n",
                                 "r.toml"));
  EXPECT_EQ(r.init, "tiny");
  EXPECT_EQ(r.steps, 100);
  EXPECT_EQ(r.optimizer.lr, 1);
  EXPECT_EQ(r.optimizer.beta2, 0.95);
  EXPECT_EQ(r.schedule.kind, "wsd");
  EXPECT_EQ(r.data.kind, "ids");
  EXPECT_TRUE(r.precision_stochastic && r.precision_hadamard);
  EXPECT_EQ(r.precision_weight_scales, "2d");
}

// Every run over a corpus leaves out the same tokens, unless it asks for others.
TEST(Recipe, GoldfishDoesNotFollowTheSeed) {
  const auto spec = [](const char* words) { return data_spec(read_recipe(io::parse_toml(words, "r.toml"))); };
  EXPECT_EQ(spec("seed = 7\n").seed, 7u);
  EXPECT_EQ(spec("seed = 7\n").goldfish.seed, 0u);
  EXPECT_EQ(spec("seed = 7\n[loss]\ngoldfish_seed = 5\n").goldfish.seed, 5u);
}

TEST(Recipe, PartsOfLowPrecisionCanBeLeftOut) {
  const Recipe r = read_recipe(io::parse_toml(
      "[precision]\nrecipe = \"nvfp4\"\nstochastic = false\nhadamard = false\nweight_scales = \"1d\"\n", "r.toml"));
  const nn::RecipeParts parts = precision_parts(r);
  EXPECT_FALSE(parts.stochastic || parts.hadamard || parts.square_weights);
  const std::string text = to_toml(r, true);
  EXPECT_EQ(to_toml(read_recipe(io::parse_toml(text, "again.toml")), true), text) << text;
  EXPECT_NE(refusal("[precision]\nweight_scales = \"3d\"\n").find("expected 2d, 1d"), std::string::npos);
  EXPECT_NE(refusal("[precision]\nstochastic = 1\n").find("precision.stochastic"), std::string::npos);
}

TEST(Recipe, UnknownWordsNameTheNearest) {
  EXPECT_EQ(refusal("[optimizer]\nwieght_decay = 1\n"),
            "[r.toml] unknown key optimizer.wieght_decay; try optimizer.weight_decay");
  EXPECT_EQ(refusal("stpes = 1\n"), "[r.toml] unknown key stpes; try steps");
  EXPECT_EQ(refusal("lr = 1\n"), "[r.toml] unknown key lr; try optimizer.lr");
  EXPECT_EQ(refusal("every = 1\n"),
            "[r.toml] unknown key every; try rollout.every or checkpoint.every or log.every or eval.every");
  EXPECT_NE(refusal("optimizer = 3\n").find("is a table"), std::string::npos);
  EXPECT_NE(refusal("[schedule]\nkind = \"cosin\"\n").find("try cosine"), std::string::npos);
  EXPECT_NE(refusal("steps = 0\n").find("steps"), std::string::npos);
  EXPECT_NE(refusal("[optimizer]\nlr = \"fast\"\n").find("optimizer.lr"), std::string::npos);
}

// What does not fit is told with what can help: neither what a graph network lacks nor what is set already.
TEST(Recipe, HintsOnMemoryAreOfTheRecipe) {
  const auto hint = [](std::string_view text, double state, double passes) {
    const Recipe r = read_recipe(io::parse_toml(text, "r.toml"));
    const std::string error = support::error_of([&] { need_memory(r, state, passes, 1000); });
    const size_t at = error.find("; try ");
    return at == error.npos ? error : error.substr(at + 6);
  };
  EXPECT_EQ(hint("", 600, 400), "");
  EXPECT_EQ(hint("init = \"tiny\"\n", 1001, 0), "a smaller model, or [lora]");
  EXPECT_EQ(hint("config = \"hybrid-8.5m\"\n", 1001, 0),
            "a smaller model");  // adapters of random weights are of no use
  EXPECT_EQ(hint("[lora]\nrank = 4\n[ema]\ndecay = 0.5\n", 1001, 9), "ema.decay = 0, or a smaller model");
  EXPECT_EQ(hint("[checkpoint]\nevery = 3\nasync = true\n[lora]\nrank = 4\n", 1001, 9),
            "checkpoint.async = false, or a smaller model");
  EXPECT_EQ(hint("batch = 8\naccumulate = 4\n", 600, 401),
            "memory.recompute = \"full\", a larger accumulate, or a smaller batch or length");
  EXPECT_EQ(hint("batch = 8\naccumulate = 4\n[memory]\nrecompute = \"full\"\n", 600, 401),
            "a larger accumulate, or a smaller batch or length");
  EXPECT_EQ(hint("batch = 8\naccumulate = 8\n[memory]\nrecompute = \"full\"\n", 600, 401), "a smaller batch or length");
  EXPECT_EQ(hint("objective = \"graph\"\n", 1001, 9), "a smaller graph.hidden");
  EXPECT_EQ(hint("objective = \"graph\"\n", 600, 401), "graph.sample, or a smaller graph.hidden");
  EXPECT_EQ(hint("objective = \"graph\"\n[graph]\ntask = \"edge\"\n", 600, 401), "a smaller graph.hidden");
}

TEST(Recipe, SizesOfBatchesHaveOneRange) {
  EXPECT_EQ(refusal("batch = -1\n"), "[r.toml] batch is out of range; got -1; expected an integer from 0 to 1048576");
  EXPECT_EQ(refusal("batch = 1048577\n"),
            "[r.toml] batch is out of range; got 1048577; expected an integer from 0 to 1048576");
  EXPECT_EQ(refusal("length = 4194305\n"),
            "[r.toml] length is out of range; got 4194305; expected an integer from 0 to 4194304");
  EXPECT_EQ(refusal("batch = 1048576\nlength = 4194304\n"), "");
}

TEST(Recipe, PrintedItReadsBack) {
  const Recipe r = read_recipe(
      io::parse_toml("seed = 7\nconfig = {hidden_size = 64, limit = [0.0, inf], \"a b\" = \"\\n\"}\n[optimizer]\n"
                     "lr = 1.25e-3\nno_decay = [\"*x*\"]\n[data]\nkind = \"text\"\n[[data.blend]]\npath = "
                     "\"p\"\n[[data.blend]]\npath = \"q\"\nweight = 0.5\n",
                     "r.toml"));
  for (const bool explain : {false, true}) {
    const std::string text = to_toml(r, explain);
    EXPECT_EQ(to_toml(read_recipe(io::parse_toml(text, "again.toml")), explain), text) << text;
  }
}

TEST(Glob, StarsCrossDots) {
  EXPECT_TRUE(sys::matches("*norm*", "backbone.layers.0.norm.weight"));
  EXPECT_TRUE(sys::matches("*.D", "backbone.layers.0.mixer.D"));
  EXPECT_FALSE(sys::matches("*.D", "backbone.layers.0.mixer.D.weight"));
  EXPECT_TRUE(sys::matches("a?c", "abc"));
  EXPECT_FALSE(sys::matches("a?c", "ac"));
  EXPECT_TRUE(sys::matches("*a*b*", "xxaxxbxx"));
  EXPECT_FALSE(sys::matches("", "a"));
  EXPECT_TRUE(sys::matches("**", ""));
}

// Every word but these affects the bits of a run.
TEST(Manifest, EveryWordThatDecidesIsNamed) {
  const std::set<std::string> free = {"out",
                                      "checkpoint.async",
                                      "steps",
                                      "accumulate",
                                      "schedule.decay",
                                      "memory.recompute",
                                      "memory.offload",
                                      "eval.every",
                                      "eval.batches",
                                      "eval.data",
                                      "log.every",
                                      "log.hash_every",
                                      "log.jsonl",
                                      "log.tensorboard",
                                      "checkpoint.every",
                                      "checkpoint.keep",
                                      "checkpoint.keep_every",
                                      "checkpoint.merge",
                                      "parallel.tp",
                                      "parallel.grid",
                                      "parallel.ep",
                                      "parallel.etp",
                                      "parallel.node_ranks",
                                      "parallel.node_limit",
                                      "parallel.dispatcher",
                                      "parallel.pp",
                                      "parallel.virtual_stages",
                                      "parallel.sp",
                                      "parallel.cp",
                                      "parallel.cp_attention",
                                      "parallel.cp_mamba",
                                      "parallel.zero",
                                      "parallel.muon",
                                      "parallel.collectives",
                                      "parallel.overlap",
                                      "parallel.exact"};
  const Facts manifest = manifest_of(Recipe{}, {}, "run");
  size_t decides = 0;
  for (const auto& [word, value] : words_of(Recipe{})) {
    nlohmann::json stored = nlohmann::json::parse(manifest_text(manifest));
    EXPECT_EQ(stored.contains(word), !free.contains(word)) << word;
    if (free.contains(word)) continue;
    stored[word] = "another";
    const auto list = differences(io::Json::parse(stored.dump(), "manifest.json"), manifest);
    ASSERT_EQ(list.size(), 1u) << word;
    EXPECT_EQ(list[0], fmt::format("{} is \"another\" there and {} here", word, value == "null" ? "not set" : value));
    ++decides;
  }
  EXPECT_EQ(decides + free.size(), words_of(Recipe{}).size());
}

// The content of a file is compared, so it may lie elsewhere now; where that is not known, or another, its path counts.
TEST(Recipe, AFileThatMovedIsTheSameWhileItsContentIs) {
  const std::string all = "\"all 0123456789abcdef\"", other = "\"all 0123456789abcdee\"", few = "\"0123456789abcdef\"";
  using Set = void (*)(Recipe&, const std::string&);
  const Set path = [](Recipe& r, const std::string& folder) { r.data.path = folder + "corpus"; };
  const Set blend = [](Recipe& r, const std::string& folder) {
    r.data.blend = {{.path = "markov", .weight = 1}, {.path = folder + "corpus", .weight = 2}};
  };
  const Set graph = [](Recipe& r, const std::string& folder) { r.graph.path = folder + "corpus"; };
  const Set teacher = [](Recipe& r, const std::string& folder) { r.distill.teacher = folder + "corpus"; };
  const Set init = [](Recipe& r, const std::string& folder) { r.init = folder + "corpus"; };
  const auto differ = [](Set set, const Facts& a, const Facts& b) {
    Recipe there, here;
    set(there, "/old/");
    set(here, "/new/place/");
    const std::string stored = manifest_text(manifest_of(there, a, "run"));
    return std::ssize(differences(io::Json::parse(stored, "manifest.json"), manifest_of(here, b, "run")));
  };
  for (const Set set : {path, blend}) {
    EXPECT_EQ(differ(set, {{kContent, all}}, {{kContent, all}}), 0);
    EXPECT_EQ(differ(set, {{kContent, all}}, {{kContent, other}}), 2);
    EXPECT_EQ(differ(set, {{kContent, few}}, {{kContent, few}}), 1);
    EXPECT_EQ(differ(set, {{kContent, few}}, {{kContent, all}}), 2);
    EXPECT_EQ(differ(set, {}, {}), 1);
  }
  const Facts edges = {{"graph", "\"1\""}, {kContent, few}};
  EXPECT_EQ(differ(graph, edges, edges), 0);
  EXPECT_EQ(differ(graph, edges, {{"graph", "\"2\""}, {kContent, few}}), 2);
  EXPECT_EQ(differ(graph, edges, {{"graph", "\"1\""}, {kContent, all}}), 2);
  EXPECT_EQ(differ(teacher, {{kTeacher, few}}, {{kTeacher, few}}), 0);
  EXPECT_EQ(differ(teacher, {{kTeacher, few}}, {{kTeacher, all}}), 2);
  EXPECT_EQ(differ(init, {{kModel, few}}, {{kModel, few}}), 0);
  EXPECT_EQ(differ(init, {{kContent, all}}, {{kContent, all}}), 1);
  // Other parts, other weights, or another order are another blend.
  const auto blends = [&](std::vector<data::BlendPart> a, std::vector<data::BlendPart> b) {
    Recipe there, here;
    there.data.blend = std::move(a), here.data.blend = std::move(b);
    const std::string stored = manifest_text(manifest_of(there, {{kContent, all}}, "run"));
    return std::ssize(
        differences(io::Json::parse(stored, "manifest.json"), manifest_of(here, {{kContent, all}}, "run")));
  };
  const data::BlendPart one{.path = "/a/x", .weight = 1}, two{.path = "/a/y", .weight = 2},
      moved{.path = "/b/x", .weight = 1}, heavier{.path = "/b/x", .weight = 3};
  EXPECT_EQ(blends({one, two}, {moved, two}), 0);
  EXPECT_EQ(blends({one, two}, {two, moved}), 1);
  EXPECT_EQ(blends({one, two}, {heavier, two}), 1);
  EXPECT_EQ(blends({one, two}, {moved}), 1);
}

}  // namespace
}  // namespace braid::train
