// The times of braid repro alcop as CSV, written and read.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "apps/alcop_report.h"
#include "kernels/linear/grouped_pipeline.h"
#include "sys/error.h"
#include "sys/read.h"

namespace braid::apps {
namespace {

constexpr size_t kTimesBytesMax = size_t{16} << 20;
constexpr std::string_view kTimesHeader =
    "rows,cols,tokens,height,density,block_tokens,depth,stages,row_warps,token_warps,us,modelled_us,transposes_us,"
    "product_us,product_untuned_us,cublaslt_us,difference,gpu,copy_gbs,bf16_tflops,rounds";
constexpr size_t kTimesFields = 21, kGpuField = 17;

// One line, its fields as numbers but for the name of the GPU.
struct TimesLine {
  std::string where;
  std::array<double, kTimesFields> numbers{};
  std::string gpu{};

  TimesLine(std::string place, std::string_view line) : where(std::move(place)) {
    for (size_t i = 0; i < kTimesFields; ++i) {
      const size_t end = line.find(',');
      if ((end == std::string_view::npos) != (i + 1 == kTimesFields))
        fail(where, {.what = "wrong number of fields", .expected = fmt::format("{}", kTimesFields)});
      take(i, line.substr(0, end));
      if (end != std::string_view::npos) line.remove_prefix(end + 1);
    }
  }
  void take(size_t i, std::string_view field) {
    if (i == kGpuField) {
      gpu = printable(field);
      return;
    }
    const auto [end, status] = std::from_chars(field.data(), field.data() + field.size(), numbers[i]);
    if (status != std::errc() || end != field.data() + field.size() || !(numbers[i] >= 0 && numbers[i] <= 1e12))
      fail(where, {.what = fmt::format("field {} is wrong", i + 1),
                   .got = printable(field),
                   .expected = "a number that is not negative"});
  }
  int64_t whole(size_t i, int64_t most) const {
    const double v = numbers[i];
    if (v < 1 || v > static_cast<double>(most) || v != std::floor(v))
      fail(where, {.what = fmt::format("field {} is wrong", i + 1),
                   .got = fmt::format("{:g}", v),
                   .expected = fmt::format("1 to {}", most)});
    return static_cast<int64_t>(v);
  }
  double positive(size_t i) const {
    if (!(numbers[i] > 0))
      fail(where, {.what = fmt::format("field {} is wrong", i + 1),
                   .got = fmt::format("{:g}", numbers[i]),
                   .expected = "above 0"});
    return numbers[i];
  }
  GroupedCase product() const {
    constexpr int64_t kMost = 10'000'000;
    const GroupedCase c{.rows = whole(0, kMost),
                        .cols = whole(1, kMost),
                        .tokens = whole(2, kMost),
                        .height = whole(3, 128),
                        .density = positive(4)};
    if (c.density > 1)
      fail(where, {.what = "no such density", .got = fmt::format("{:g}", c.density), .expected = "at most 1"});
    return c;
  }
  // Into kPipelines.
  int shape() const {
    const auto same = [&](const Pipeline& p) {
      const std::array<int, 6> own = {p.height, p.tokens, p.depth, p.stages, p.row_warps, p.token_warps};
      constexpr std::array<size_t, 6> kFields = {3, 5, 6, 7, 8, 9};
      for (size_t i = 0; i < own.size(); ++i) {
        if (numbers[kFields[i]] != own[i]) return false;
      }
      return true;
    };
    const auto found = std::find_if(kPipelines.begin(), kPipelines.end(), same);
    if (found == kPipelines.end())
      fail(where, {.what = "a shape of the main loop that this program lacks", .hint = "braid repro alcop, anew"});
    return static_cast<int>(found - kPipelines.begin());
  }
};

bool same_case(const GroupedCase& a, const GroupedCase& b) {
  return a.rows == b.rows && a.cols == b.cols && a.tokens == b.tokens && a.height == b.height && a.density == b.density;
}

void add_line(AlcopStudy& study, const TimesLine& line) {
  const GroupedCase c = line.product();
  if (study.cases.empty() || !same_case(study.cases.back().of, c)) {
    study.cases.push_back({.of = c,
                           .columns = kept_columns(c) * ((c.rows + c.height - 1) / c.height),
                           .transposes = 1e-6 * line.numbers[12],
                           .whole = 1e-6 * line.positive(13),
                           .untuned = 1e-6 * line.positive(14),
                           .dense = 1e-6 * line.positive(15),
                           .error = line.numbers[16]});
  }
  GroupedTimes& t = study.cases.back();
  const int shape = line.shape();
  if (std::find(t.pipelines.begin(), t.pipelines.end(), shape) != t.pipelines.end())
    fail(line.where, {.what = "a shape of the main loop twice for one product", .expected = "one line for each"});
  t.pipelines.push_back(shape);
  t.seconds.push_back(1e-6 * line.positive(10));
  study.gpu.name = line.gpu;
  study.roofs.copy_gbs = line.positive(18);
  study.roofs.bf16_tflops = line.positive(19);
  study.rounds = line.whole(20, 1000);
}

}  // namespace

std::string alcop_csv(const AlcopStudy& study) {
  std::string csv = std::string(kTimesHeader) + "\n";
  for (const GroupedTimes& t : study.cases) {
    for (size_t i = 0; i < t.pipelines.size(); ++i) {
      const Pipeline& p = kPipelines[static_cast<size_t>(t.pipelines[i])];
      csv += fmt::format("{},{},{},{},{:g},{},{},{},{},{},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.2f},{:.1e},", t.of.rows,
                         t.of.cols, t.of.tokens, t.of.height, t.of.density, p.tokens, p.depth, p.stages, p.row_warps,
                         p.token_warps, 1e6 * t.seconds[i], 1e6 * t.modelled[i], 1e6 * t.transposes, 1e6 * t.whole,
                         1e6 * t.untuned, 1e6 * t.dense, t.error);
      csv += fmt::format("{},{:.1f},{:.1f},{}\n", study.gpu.name, study.roofs.copy_gbs, study.roofs.bf16_tflops,
                         study.rounds);
    }
  }
  return csv;
}

AlcopStudy read_alcop_csv(const std::string& path) {
  const std::string text = sys::read_file(path, kTimesBytesMax);
  std::string_view left = text;
  AlcopStudy study{.stored = true};
  for (int64_t number = 1; !left.empty(); ++number) {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    const std::string where = fmt::format("{}:{}", printable(path), number);
    if (number > 1) {
      add_line(study, TimesLine(where, line));
    } else if (line.starts_with("class,way,")) {  // blocking_csv (alcop_cpu.h)
      fail(where, {.what = "holds times of --device cpu, which --times does not read",
                   .expected = "the --csv of braid repro alcop --device cuda",
                   .hint = "braid repro alcop --device cpu, which measures them again in five minutes"});
    } else if (line != kTimesHeader) {
      fail(where,
           {.what = "another header", .got = printable(line), .expected = "a CSV of braid repro alcop --device cuda"});
    }
  }
  if (study.cases.empty()) fail(printable(path), {.what = "no times", .expected = "the CSV of braid repro alcop"});
  GpuLimits limits;
  limits.memory_gbs = study.roofs.copy_gbs;
  std::map<int64_t, size_t> shapes;  // of each height
  for (GroupedTimes& t : study.cases) {
    model_pipelines(t, limits);
    const size_t n = shapes.emplace(t.of.height, t.pipelines.size()).first->second;
    if (t.pipelines.size() != n || t.by_model.size() != n)
      fail(printable(path), {.what = "products of one height with different shapes of the main loop",
                             .expected = "the same shapes for all"});
  }
  return study;
}

}  // namespace braid::apps
