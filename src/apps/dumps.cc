#include "apps/dumps.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "io/npy.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "sys/error.h"

namespace braid::apps {
namespace {

void write_rows(const std::string& path, const Shape& shape, std::span<const float> values) {
  io::NpyWriter file(path, shape);
  file.append(values);
  file.finish();
}

struct Named {
  Named(std::string name, DType dtype, const Shape& shape, std::vector<std::byte> values)
      : spec{std::move(name), dtype, shape}, bytes(std::move(values)) {}
  io::TensorSpec spec;
  std::vector<std::byte> bytes;
};

void write_tensors(const std::string& path, std::vector<Named> tensors) {
  std::vector<io::TensorSpec> specs;
  specs.reserve(tensors.size());
  for (const Named& t : tensors) specs.push_back(t.spec);
  io::SafetensorsWriter file(path, specs);
  for (const io::TensorSpec& spec : file.order()) {
    const auto found =
        std::find_if(tensors.begin(), tensors.end(), [&](const Named& t) { return t.spec.name == spec.name; });
    file.write(spec.name, found->bytes);
  }
  file.finish();
}

template <class Num>
std::vector<std::byte> bytes_of_values(const std::vector<Num>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

void DumpArgs::declare(Cli& cli) {
  cli.option("--dump-logits F.npy", logits, "float32 [T, V] of every prompt position");
  cli.option("--dump-mtp F.npy", mtp, "float32 [T-1, V] of the multi-token prediction");
  cli.option("--dump-hidden F.npy", hidden, "float32 [L+1, T, h]: embedding, then after each layer");
  cli.option("--dump-state F", state, "safetensors: conv.I and ssm.I after the prompt");
  cli.option("--dump-routes F", routes, "safetensors: router.I, the experts chosen");
  cli.option("--replay-routes F", replay, "use these experts instead of the router's");
}

void DumpArgs::check(bool stages, bool ranks) const {
  if (ranks && !state.empty())
    fail("--dump-state", {.what = "every rank has the states of its own heads", .hint = "one rank"});
  for (const auto& [flag, value] : {std::pair("--dump-hidden", &hidden),
                                    {"--dump-routes", &routes},
                                    {"--replay-routes", &replay},
                                    {"--dump-mtp", &mtp}}) {
    if (stages && !value->empty())
      fail(flag, {.what = "every stage has its own layers", .got = "--pp", .expected = "--tp or --ep"});
  }
  const std::string* const files[] = {&logits, &mtp, &hidden, &state, &routes};
  for (const std::string* path : files) {
    if (path->empty()) continue;
    path == &state || path == &routes ? io::check_tensor_file(*path) : io::check_new_file(*path, ".npy");
    if (std::ranges::any_of(files, [&](const std::string* other) { return other != path && *other == *path; }))
      fail(printable(*path), {.what = "is named for two dumps", .expected = "a file for each"});
  }
}

Dumps::Dumps(const DumpArgs& args, engine::Runner& runner, std::vector<int32_t> prompt)
    : args_(args), runner_(runner), prompt_(std::move(prompt)) {
  if (!args_.mtp.empty() && runner.model().mtp_steps() == 0)
    fail("--dump-mtp", {.what = "this model has no multi-token prediction block", .hint = "--dump-hidden"});
  if (!args_.mtp.empty() && prompt_.size() < 2)
    fail("--dump-mtp", {.what = "the prompt is too short", .got = "1 token", .expected = "2 or more"});
  probe_.want_hidden = !args_.hidden.empty();
  probe_.want_routes = !args_.routes.empty();
  if (args_.replay.empty()) return;
  if (std::error_code none; !std::filesystem::exists(args_.replay, none))
    fail("--replay-routes",
         {.what = "no such file", .got = printable(args_.replay), .expected = "what --dump-routes wrote"});
  const io::Safetensors file(args_.replay);
  for (const io::StoredTensor& t : file.tensors()) {
    constexpr std::string_view kPrefix = "router.";
    if (!t.name.starts_with(kPrefix)) continue;
    const std::string number = t.name.substr(kPrefix.size(), t.name.find('@') - kPrefix.size());
    if (number.empty() || number.size() > 4 || number.find_first_not_of("0123456789") != std::string::npos)
      fail(args_.replay, {.what = "tensor " + printable(t.name) + " names no layer", .expected = "router.N"});
    if (t.view.dtype != DType::i64 && t.view.dtype != DType::i32)
      fail(args_.replay, {.what = "tensor " + printable(t.name) + " holds no indices",
                          .got = name_of(t.view.dtype),
                          .expected = "I64"});
    auto& list = replay_[std::stoi(number)];
    for (int64_t i = 0; i < t.view.count(); ++i) list.push_back(static_cast<int32_t>(element(t.view, i)));
  }
  if (replay_.empty()) fail(printable(args_.replay), {.what = "has no routes", .expected = "what --dump-routes wrote"});
  probe_.replay = &replay_;
}

nn::Probe* Dumps::probe() { return probe_.want_hidden || probe_.want_routes || probe_.replay ? &probe_ : nullptr; }

void Dumps::note(const Tensor& x) {
  rows_ += x.dim(0);
  const auto append = [](std::vector<float>& to, const Tensor& t) {
    to.insert(to.end(), t.view().as<float>(), t.view().as<float>() + t.view().count());
  };
  if (!args_.logits.empty()) append(logits_, runner_.logits(x));
  if (!args_.mtp.empty()) append(final_, runner_.final_hidden(x));
  if (rows_ < static_cast<int64_t>(prompt_.size())) return;
  probe_.replay = nullptr;  // the recorded routes end with the prompt
  if (!args_.state.empty()) note_state();
  write();
}

void Dumps::note_state() {
  std::vector<Named> tensors;
  const auto& blocks = runner_.state().blocks;
  for (const auto& [layer, index] : runner_.model().mamba_layers()) {
    const nn::BlockState& block = blocks[static_cast<size_t>(index)];
    // Files have [channels, W-1]; ours is [W-1, channels], which a step reads in rows.
    const int64_t columns = block.conv.dim(1), channels = block.conv.dim(2);
    std::vector<float> conv(static_cast<size_t>(columns * channels));
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t j = 0; j < columns; ++j)
        conv[static_cast<size_t>(c * columns + j)] = block.conv.as<float>()[j * channels + c];
    }
    tensors.emplace_back(fmt::format("conv.{}", layer), DType::f32, Shape{channels, columns}, bytes_of_values(conv));
    const View ssm = block.ssm.slice(0, 0, 1);
    std::vector<float> values(static_cast<size_t>(ssm.count()));
    for (int64_t i = 0; i < ssm.count(); ++i) {
      const double scale = block.ssm_scales ? element(block.ssm_scales, i / ssm.dim(3)) : 1;
      values[static_cast<size_t>(i)] = static_cast<float>(element(ssm, i) * scale);
    }
    tensors.emplace_back(fmt::format("ssm.{}", layer), DType::f32, Shape{ssm.dim(1), ssm.dim(2), ssm.dim(3)},
                         bytes_of_values(values));
  }
  write_tensors(args_.state, std::move(tensors));
}

void Dumps::write() {
  const engine::Ranks* ranks = runner_.options().ranks;
  const bool first = !ranks || ranks->first();
  const auto tokens = static_cast<int64_t>(prompt_.size());
  const models::Config& config = runner_.config();
  if (first && !args_.logits.empty()) write_rows(args_.logits, {tokens, config.vocab}, logits_);
  if (!args_.mtp.empty()) {
    const Tensor hidden(runner_.ctx().arena, DType::f32, {tokens, config.hidden});
    std::copy(final_.begin(), final_.end(), hidden.mut().as<float>());
    const Tensor logits = runner_.mtp_logits(prompt_, hidden);
    if (first)
      write_rows(args_.mtp, logits.shape(), {logits.view().as<float>(), static_cast<size_t>(logits.view().count())});
  }
  if (first && !args_.hidden.empty()) {
    io::NpyWriter file(args_.hidden, {static_cast<int64_t>(probe_.hidden.size()), tokens, config.hidden});
    for (const auto& rows : probe_.hidden)
      file.append(std::span(rows).first(static_cast<size_t>(tokens * config.hidden)));
    file.finish();
  }
  if (!first || args_.routes.empty()) return;
  std::vector<Named> tensors;
  for (const auto& [layer, chosen] : probe_.routes) {
    const std::vector<int64_t> wide(chosen.begin(), chosen.end());
    tensors.emplace_back(fmt::format("router.{}", layer), DType::i64,
                         Shape{tokens, static_cast<int64_t>(chosen.size()) / tokens}, bytes_of_values(wide));
  }
  write_tensors(args_.routes, std::move(tensors));
}

}  // namespace braid::apps
