#include "text/gguf_splittings.h"

namespace braid::text {
namespace {

// Patterns as in the tokenizer.json files that the names stand for: llama.cpp's own variants avoid \p{Lu} and (?i:),
// which its matcher lacks, and so split some letters outside ASCII differently.
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                                R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                                R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// llama.cpp's default for a file that names none.
constexpr const char* kPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr const char* kDigits = R"(\p{N}+)";
constexpr const char* kThreeDigits = "[0-9][0-9][0-9]";

constexpr GgufSplitting kSplittings[] = {
    {"default", {kPunctuation, kGpt2Pattern, kDigits, kThreeDigits}},
    {"gpt-2", {kGpt2Pattern}},
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"smaug-bpe", {kLlama3}},
    {"dbrx", {kLlama3}},
    {"qwen2", {kQwen2}, false, false, true},
    {"deepseek-r1-qwen", {kQwen2}},
    {"tekken", {kTekken}, true, true},
    {"pixtral", {kTekken}, true},  // the vocabulary of Nemotron, whose tokenizer adds no BOS
    {"gpt-4o", {kGpt4o}},
    {"llama4", {kGpt4o}},
    {"starcoder", {kDigitPattern, kGpt2Pattern}},
    {"refact", {kDigitPattern, kGpt2Pattern}},
    {"smollm", {kDigitPattern, kGpt2Pattern}},
};

}  // namespace

std::span<const GgufSplitting> gguf_splittings() { return kSplittings; }

}  // namespace braid::text
