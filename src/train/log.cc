#include "train/log.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/atomic_file.h"
#include "models/save.h"
#include "report/units.h"
#include "sys/error.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* kHead = "step,loss,grad_norm,lr,held_out_loss,ema_held_out_loss";
constexpr const char* kObject = "{\"step\":";

// Only logs are rewritten. A log may have just one line, incomplete because the run was killed.
void refuse_other(const fs::path& path, std::string_view beginning, const char* word) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return;
  std::ifstream file(path);
  std::string line(beginning.size(), '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(file.gcount()));
  if (beginning.starts_with(line)) return;
  fail(printable(path.string()), {.what = fmt::format("exists and is not the {} of a run", word),
                                  .expected = fmt::format("a new name, or a file that begins with {}", beginning),
                                  .hint = "another out or name, or moving it"});
}

// The entry of `out` in which a path lies; empty where it lies elsewhere.
std::string entry_of(const fs::path& out, const fs::path& path) {
  const auto absolute = [](const fs::path& p) { return (fs::absolute(p) / "").lexically_normal().parent_path(); };
  const fs::path inside = absolute(out / path).lexically_relative(absolute(out));
  return inside.empty() || *inside.begin() == ".." ? "" : inside.begin()->string();
}

void refuse_taken(const fs::path& out, const char* key, const fs::path& path) {
  constexpr std::string_view kOwn[] = {"checkpoints", "init", "loss.csv", "loss.svg", "rollouts.jsonl"};
  const std::string entry = entry_of(out, path);
  if (std::find(std::begin(kOwn), std::end(kOwn), entry) == std::end(kOwn) && !models::comes_saved(entry)) return;
  fail(key, {.what = "is the name of what the run writes itself", .got = printable(entry), .expected = "another name"});
}

// Folders are created in `out`, elsewhere they must exist: a mistyped path creates none.
void refuse_lost(const fs::path& out, const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path inside = folder.lexically_normal().lexically_relative(out.lexically_normal());
  std::error_code none;
  if ((!inside.empty() && *inside.begin() != "..") || fs::is_directory(folder, none)) return;
  fail_environment("log.jsonl", {.what = "there is no such folder", .got = printable(folder.string())});
}

// Keeps the lines of a file that `wanted` accepts.
void rewrite(const fs::path& path, const std::function<bool(const std::string&)>& wanted) {
  std::string kept;
  {
    std::ifstream old(path);
    for (std::string line; std::getline(old, line);) {
      if (wanted(line)) kept += line + "\n";
    }
  }
  io::write_text_file(path, kept);
}

// Opens a log to append, after the lines that are wanted. A pipe or a device has none, and is not replaced by a file.
std::FILE* reopen(const fs::path& path, const std::function<bool(const std::string&)>& wanted) {
  std::error_code ignored;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), ignored);
  if (!fs::exists(path, ignored) || fs::is_regular_file(path, ignored)) rewrite(path, wanted);
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (!file) fail_environment(printable(path.string()), {.what = "cannot be written", .got = std::strerror(errno)});
  return file;
}

std::optional<double> number_at(const std::string& line, int field) {
  size_t begin = 0;
  for (; field > 0; --field) {
    begin = line.find(',', begin);
    if (begin++ == std::string::npos) return std::nullopt;
  }
  double value = 0;
  const auto end = std::from_chars(line.data() + begin, line.data() + line.size(), value);
  return end.ec == std::errc() ? std::optional(value) : std::nullopt;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string line_of(const StepLog& log) {
  std::string text = fmt::format("step {}/{}  ", log.step, log.steps);
  text += log.empty ? "no targets" : fmt::format("loss {:.4f}", log.loss);
  if (log.judged) text += fmt::format(" ({:+.1f})", log.z_score);
  for (const auto& [name, value] : log.metrics) text += fmt::format("  {} {:.4f}", name, value);
  text += fmt::format("  norm {:.3g}  lr {:.2e}  {:.0f} tok/s", log.grad_norm, log.lr, log.tokens_per_second);
  if (log.mfu > 0) text += fmt::format("  mfu {:.1f}%", 100 * log.mfu);
  text += "  " + report::bytes(log.memory_bytes);
  if (log.skipped) text += "  skipped";
  if (log.weight_hash) text += fmt::format("  weights {:016x}", *log.weight_hash);
  return text;
}

std::string json_of(const StepLog& log) {
  nlohmann::ordered_json j = {{"step", log.step},
                              {"loss", nullptr},
                              {"grad_norm", log.grad_norm},
                              {"lr", log.lr},
                              {"tokens", log.tokens},
                              {"tokens_per_second", log.tokens_per_second},
                              {"mfu", log.mfu},
                              {"memory_bytes", log.memory_bytes},
                              {"z_score", log.z_score},
                              {"norm_z_score", log.norm_z_score},
                              {"skipped", log.skipped}};
  if (!log.empty) j["loss"] = log.loss;
  for (const auto& [name, value] : log.metrics) j[name] = value;
  if (log.waited_ms) j["waited_ms"] = *log.waited_ms;
  if (log.weight_hash) j["weight_hash"] = fmt::format("{:016x}", *log.weight_hash);
  return j.dump();
}

std::string line_of(const HeldOutLog& log) {
  std::string text = fmt::format("step {}  held out {:.4f}", log.step, log.loss);
  for (const auto& [name, value] : log.metrics) text += fmt::format("  {} {:.4f}", name, value);
  if (log.ema_loss) text += fmt::format("  of the running mean {:.4f}", *log.ema_loss);
  return text;
}

std::string line_of(const SavedLog& log) {
  if (log.blind >= 0)
    return fmt::format("checkpoint of step {}: rank {} does not see the first rank's files, which writes for all",
                       log.step, log.blind);
  if (!log.lost.empty())
    return fmt::format("checkpoint of step {}: no copy of the process writes it ({}); checkpoints are written without",
                       log.step, log.lost);
  return fmt::format("checkpoint of step {} written in {:.2f} s, training paused for {:.1f} ms", log.step, log.written,
                     1e3 * log.paused);
}

std::string json_of(const HeldOutLog& log) {
  nlohmann::ordered_json j = {{"step", log.step}, {"held_out_loss", log.loss}};
  for (const auto& [name, value] : log.metrics) j[fmt::format("held_out_{}", name)] = value;
  if (log.ema_loss) j["ema_held_out_loss"] = *log.ema_loss;
  return j.dump();
}

std::string json_of(const SavedLog& log) {
  if (log.blind >= 0)
    return nlohmann::ordered_json{{"step", log.step}, {"checkpoint_gathered_for_rank", log.blind}}.dump();
  if (!log.lost.empty()) return nlohmann::ordered_json{{"step", log.step}, {"checkpoint_lost", log.lost}}.dump();
  const nlohmann::ordered_json j = {
      {"step", log.step}, {"checkpoint_paused_ms", 1e3 * log.paused}, {"checkpoint_written_ms", 1e3 * log.written}};
  return j.dump();
}

std::FILE* reopen_lines(const fs::path& path, int64_t step) {
  return reopen(path, [&](const std::string& line) {
    const auto j = nlohmann::json::parse(line, nullptr, false);
    return j.is_object() && j.contains("step") && j["step"].is_number() && j["step"] <= step;
  });
}

void append_lines(const std::string& lines, std::FILE* file, const fs::path& path) {
  if (std::fputs(lines.c_str(), file) < 0 || std::fflush(file) != 0)
    fail_environment(printable(path.string()), {.what = "cannot be written", .got = std::strerror(errno)});
}

void check_logs(const fs::path& out, const LogRecipe& recipe) {
  if (!recipe.tensorboard.empty()) refuse_taken(out, "log.tensorboard", recipe.tensorboard);
  if (!recipe.jsonl.empty()) refuse_taken(out, "log.jsonl", recipe.jsonl);
  if (!recipe.jsonl.empty() &&
      fs::path(recipe.jsonl).lexically_normal() == fs::path(recipe.tensorboard).lexically_normal())
    fail("log.tensorboard", {.what = "is the file of log.jsonl, too", .got = printable(recipe.tensorboard)});
  refuse_other(out / "loss.csv", kHead, "loss.csv");
  if (recipe.jsonl.empty()) return;
  refuse_lost(out, out / recipe.jsonl);
  refuse_other(out / recipe.jsonl, kObject, "log.jsonl");
}

Log::Log(const fs::path& out, const LogRecipe& recipe, int64_t step)
    : recipe_(recipe), csv_path_(out / "loss.csv"), svg_path_(out / "loss.svg") {
  check_logs(out, recipe);
  csv_ = reopen(csv_path_, [&](const std::string& line) {
    if (line == kHead) return true;
    const auto at = number_at(line, 0);
    if (!at || std::count(line.begin(), line.end(), ',') != 5 || *at > static_cast<double>(step)) return false;
    if (const auto loss = number_at(line, 1)) train_.points.emplace_back(*at, *loss);
    if (const auto loss = number_at(line, 4)) held_out_.points.emplace_back(*at, *loss);
    if (const auto loss = number_at(line, 5)) ema_.points.emplace_back(*at, *loss);
    return true;
  });
  std::error_code none;  // a device has no size
  if (const auto size = fs::file_size(csv_path_, none); none || size == 0)
    append_lines(std::string(kHead) + "\n", csv_, csv_path_);
  if (!recipe.jsonl.empty()) {
    jsonl_path_ = out / recipe.jsonl;  // an absolute path stays itself
    jsonl_ = reopen_lines(jsonl_path_, step);
  }
  if (!recipe.tensorboard.empty()) events_ = std::make_unique<report::EventFile>(out / recipe.tensorboard);
}

Log::~Log() {
  if (csv_) std::fclose(csv_);
  if (jsonl_) std::fclose(jsonl_);
}

void Log::step(const StepLog& log, bool everywhere) {
  if (!log.empty) train_.points.emplace_back(static_cast<double>(log.step), log.loss);
  const std::string loss = log.empty ? "" : fmt::to_string(log.loss);
  append_lines(fmt::format("{},{},{},{},,\n", log.step, loss, log.grad_norm, log.lr), csv_, csv_path_);
  if (!everywhere) return;
  if (jsonl_) append_lines(json_of(log) + "\n", jsonl_, jsonl_path_);
  if (!events_) return;
  std::vector<std::pair<std::string, float>> values = {{"grad_norm", static_cast<float>(log.grad_norm)},
                                                       {"lr", static_cast<float>(log.lr)},
                                                       {"tokens_per_second", static_cast<float>(log.tokens_per_second)},
                                                       {"mfu", static_cast<float>(log.mfu)},
                                                       {"memory_bytes", static_cast<float>(log.memory_bytes)}};
  if (!log.empty) values.emplace(values.begin(), "loss", static_cast<float>(log.loss));
  for (const auto& [name, value] : log.metrics) values.emplace_back(name, static_cast<float>(value));
  events_->scalars(log.step, now(), values);
}

void Log::held_out(const HeldOutLog& log) {
  const auto step = static_cast<double>(log.step);
  held_out_.points.emplace_back(step, log.loss);
  if (log.ema_loss) ema_.points.emplace_back(step, *log.ema_loss);
  append_lines(fmt::format("{},,,,{},{}\n", log.step, log.loss, log.ema_loss ? fmt::to_string(*log.ema_loss) : ""),
               csv_, csv_path_);
  if (jsonl_) append_lines(json_of(log) + "\n", jsonl_, jsonl_path_);
  if (!events_) return;
  std::vector<std::pair<std::string, float>> values = {{"held_out_loss", static_cast<float>(log.loss)}};
  for (const auto& [name, value] : log.metrics)
    values.emplace_back(fmt::format("held_out_{}", name), static_cast<float>(value));
  if (log.ema_loss) values.emplace_back("ema_held_out_loss", static_cast<float>(*log.ema_loss));
  events_->scalars(log.step, now(), values);
}

void Log::saved(const SavedLog& log) {
  if (jsonl_) append_lines(json_of(log) + "\n", jsonl_, jsonl_path_);
}

void Log::draw() const {
  report::Curve curve{.title = "loss", .x_label = "step", .y_label = "nats per token", .series = {train_}};
  for (const report::Series& series : {held_out_, ema_}) {
    if (!series.points.empty()) curve.series.push_back(series);
  }
  io::write_text_file(svg_path_, report::svg(curve));
}

}  // namespace braid::train
