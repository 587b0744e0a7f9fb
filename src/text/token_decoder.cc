#include "text/token_decoder.h"

#include <fmt/format.h>

#include "sys/utf8.h"
#include "text/byte_alphabet.h"
#include "text/normalizer.h"

namespace braid::text {
namespace {

constexpr size_t kDecoderStepsMax = 32;  // the chain is walked recursively

int hex_digit(char ch) {
  if (ch >= '0' && ch <= '9') return ch - '0';
  if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
  return ch >= 'A' && ch <= 'F' ? ch - 'A' + 10 : -1;
}

// The byte of <0xNN>, or -1.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace

TokenDecoder TokenDecoder::read(const std::optional<io::Json>& spec) {
  TokenDecoder decoder;
  decoder.join_with_spaces_ = !spec;
  if (spec) decoder.add(*spec);
  return decoder;
}

void TokenDecoder::add(const io::Json& spec) {  // Sequences nest no deeper than io::JsonLimits allows
  const std::string type = spec.need({"type"}).as_string();
  if (steps_.size() >= kDecoderStepsMax)
    spec.refuse("is one step too many", fmt::format("at most {}", kDecoderStepsMax));
  if (fused_ && type != "Strip" && type != "Fuse" && type != "Sequence") {
    spec.refuse("comes after Fuse or ByteLevel, which is not supported", "Strip");
  }
  if (type == "Sequence") {
    for (const io::Json& step : spec.need({"decoders"}).items()) add(step);
  } else if (type == "ByteLevel") {
    steps_.push_back(ByteLevel{});
    fused_ = true;
  } else if (type == "Fuse") {
    fused_ = true;
  } else if (type == "ByteFallback") {
    steps_.push_back(ByteFallback{});
  } else if (type == "Replace") {
    steps_.push_back(Replace{Regex::read(spec.need({"pattern"})), spec.need({"content"}).as_string()});
  } else if (type == "Metaspace") {
    steps_.push_back(Metaspace{spec.string_of({"replacement"}).value_or("\u2581"),
                               read_prepend_scheme(spec) != PrependScheme::never});
  } else if (type == "Strip") {
    const io::IntRange counts{.min = 0, .max = 1024};
    steps_.push_back(Strip{spec.need({"content"}).as_string(), spec.need({"start"}).as_int(counts),
                           spec.need({"stop"}).as_int(counts), fused_});
    if (std::get<Strip>(steps_.back()).content.empty()) spec.need({"content"}).refuse("is empty", "a character");
  } else {
    spec.need({"type"}).refuse("is not supported",
                               "ByteLevel, ByteFallback, Replace, Fuse, Strip, Metaspace or Sequence");
  }
}

std::string TokenDecoder::bytes_of(std::string_view token) const {
  std::string out;
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step) && bytes_of_spelling(token, out)) return out;
    const int byte = std::holds_alternative<ByteFallback>(step) ? fallback_byte(token) : -1;
    if (byte >= 0) return {static_cast<char>(byte)};
  }
  Stream stream(*this, true);
  for (Stream::State& state : stream.states_) state.started = true;
  stream.any_ = true;
  stream.push(token, out);
  for (const Stream::State& state : stream.states_) out += state.held;  // at the end of a text it would be stripped
  return out;
}

TokenDecoder::Stream::Stream(const TokenDecoder& decoder, bool eager)
    : decoder_(&decoder), states_(decoder.steps_.size()), eager_(eager) {}

void TokenDecoder::Stream::push(std::string_view token, std::string& out) {
  if (decoder_->join_with_spaces_ && any_) out += ' ';
  any_ = true;
  run(0, token, out);
}

void TokenDecoder::Stream::run(size_t step, std::string_view token, std::string& out) {
  if (step == decoder_->steps_.size()) {
    out += token;
    return;
  }
  const Step& what = decoder_->steps_[step];
  if (std::holds_alternative<ByteLevel>(what)) {
    run_byte_level(step, token, out);
  } else if (std::holds_alternative<ByteFallback>(what)) {
    run_byte_fallback(step, token, out);
  } else if (std::holds_alternative<Strip>(what)) {
    run_strip(step, token, out);
  } else if (const Replace* replace = std::get_if<Replace>(&what)) {
    std::string changed;
    replace_all(replace->pattern, token, replace->content, changed);
    run(step + 1, changed, out);
  } else if (const Metaspace* meta = std::get_if<Metaspace>(&what)) {
    const bool drop = meta->drop_first && !states_[step].started;  // in the first token encode added the mark
    states_[step].started = true;
    std::string changed;
    for (size_t at = 0; at < token.size();) {
      const bool mark = !meta->replacement.empty() && token.substr(at).starts_with(meta->replacement);
      if (!mark) changed += token[at];
      if (mark && !drop) changed += ' ';
      at += mark ? meta->replacement.size() : 1;
    }
    run(step + 1, changed, out);
  }
}

void TokenDecoder::Stream::run_byte_level(size_t step, std::string_view token, std::string& out) {
  std::string& held = states_[step].held;
  if (!bytes_of_spelling(token, held)) held += token;
  std::string text;
  held.erase(0, sys::append_lossy(held, true, text));
  run(step + 1, text, out);
}

void TokenDecoder::Stream::run_byte_fallback(size_t step, std::string_view token, std::string& out) {
  std::string& held = states_[step].held;
  const int byte = fallback_byte(token);
  if (byte < 0) {
    end_byte_run(step, out);
    run(step + 1, token, out);
    return;
  }
  held += static_cast<char>(byte);
  if (!eager_) return;
  const std::string whole = held.substr(0, sys::utf8_valid_prefix(held));
  held.erase(0, whole.size());
  if (!whole.empty()) run(step + 1, whole, out);
}

void TokenDecoder::Stream::end_byte_run(size_t step, std::string& out) {
  std::string run_bytes;
  run_bytes.swap(states_[step].held);
  if (run_bytes.empty()) return;
  if (sys::utf8_valid_prefix(run_bytes) == run_bytes.size()) {
    run(step + 1, run_bytes, out);
    return;
  }
  std::string broken;
  for (size_t i = 0; i < run_bytes.size(); ++i) broken += sys::kReplacement;
  run(step + 1, broken, out);
}

void TokenDecoder::Stream::run_strip(size_t step, std::string_view token, std::string& out) {
  const Strip& strip = std::get<Strip>(decoder_->steps_[step]);
  State& state = states_[step];
  if (!strip.fused) state = {};
  while (!state.started && state.stripped < strip.start && token.starts_with(strip.content)) {
    token.remove_prefix(strip.content.size());
    ++state.stripped;
  }
  state.started |= !token.empty();
  std::string text = std::move(state.held);
  text += token;
  size_t end = text.size();
  for (int64_t n = 0; n < strip.stop && std::string_view(text).substr(0, end).ends_with(strip.content); ++n) {
    end -= strip.content.size();
  }
  state.held = strip.fused ? text.substr(end) : std::string();
  text.resize(end);
  run(step + 1, text, out);
}

void TokenDecoder::Stream::finish(std::string& out) {
  for (size_t step = 0; step < states_.size(); ++step) {
    const Step& what = decoder_->steps_[step];
    if (std::holds_alternative<ByteFallback>(what)) end_byte_run(step, out);
    if (std::holds_alternative<ByteLevel>(what) && !states_[step].held.empty()) {
      std::string text;
      sys::append_lossy(states_[step].held, false, text);
      run(step + 1, text, out);
    }
  }
  states_.assign(states_.size(), State{});
  any_ = false;
}

}  // namespace braid::text
