#include "report/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace braid::report {
namespace {

constexpr double kWidth = 800, kHeight = 450, kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;
constexpr size_t kPoints = 1000;  // per line: more than there are pixels
constexpr std::array kColours = {"#1f6fb2", "#d1731a", "#2f8f4e", "#a13d8f", "#8a6d3b", "#555555"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

struct Axis {
  double min = 0, max = 1;

  void take(double v) {
    min = std::min(min, v);
    max = std::max(max, v);
  }
  // A step of 1, 2 or 5 times a power of ten that cuts the axis into four to ten intervals.
  double step() const {
    const double rough = (max - min) / 6, power = std::pow(10, std::floor(std::log10(rough)));
    const double part = rough / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
  }
};

struct Plot {
  const Curve& curve;
  Axis x{}, y{};
  std::string out{};

  double scaled(double v) const { return curve.log_y ? std::log10(v) : v; }
  double scaled_x(double v) const { return curve.log_x ? std::log10(v) : v; }
  bool shown(const std::pair<double, double>& p) const {
    return std::isfinite(p.first) && std::isfinite(p.second) && (!curve.log_y || p.second > 0) &&
           (!curve.log_x || p.first > 0);
  }
  double left(double v) const { return kLeft + (v - x.min) / (x.max - x.min) * (kWidth - kLeft - kRight); }
  double top(double v) const { return kHeight - kBottom - (v - y.min) / (y.max - y.min) * (kHeight - kTop - kBottom); }

  void measure() {
    bool first = true;
    for (const Series& s : curve.series) {
      for (const auto& p : s.points) {
        if (!shown(p)) continue;
        if (std::exchange(first, false))
          x = {scaled_x(p.first), scaled_x(p.first)}, y = {scaled(p.second), scaled(p.second)};
        x.take(scaled_x(p.first));
        y.take(scaled(p.second));
      }
    }
    if (x.max <= x.min) x.max = x.min + 1;
    if (y.max <= y.min) y.max = y.min + 1;
  }

  void label(double at_x, double at_y, const char* anchor, const std::string& text, const char* more = "") {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", at_x, at_y, anchor, more,
                       escaped(text));
  }
  void rule(double x1, double y1, double x2, double y2) {
    out += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", x1, y1, x2,
                       y2);
  }
  void axes() {
    for (double v = std::ceil(x.min / x.step()) * x.step(); v <= x.max; v += x.step()) {
      rule(left(v), kTop, left(v), kHeight - kBottom);
      label(left(v), kHeight - kBottom + 18, "middle", fmt::format("{:.4g}", curve.log_x ? std::pow(10, v) : v));
    }
    for (double v = std::ceil(y.min / y.step()) * y.step(); v <= y.max; v += y.step()) {
      rule(kLeft, top(v), kWidth - kRight, top(v));
      label(kLeft - 8, top(v) + 4, "end", fmt::format("{:.4g}", curve.log_y ? std::pow(10, v) : v));
    }
    label(kWidth / 2, 22, "middle", curve.title, " font-size=\"15\"");
    label(kWidth / 2, kHeight - 12, "middle", curve.x_label);
    label(16, kHeight / 2, "middle", curve.y_label,
          fmt::format(" transform=\"rotate(-90 16 {})\"", kHeight / 2).c_str());
  }
  void line(const Series& s, size_t index) {
    const char* colour = kColours[index % kColours.size()];
    const size_t stride = s.points.size() / kPoints + 1;
    out += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"", colour);
    for (size_t i = 0; i < s.points.size(); i += stride) {
      const auto& p = s.points[i];
      if (shown(p)) out += fmt::format("{:.1f},{:.1f} ", left(scaled_x(p.first)), top(scaled(p.second)));
    }
    out += "\"/>\n";
    const double at = kTop + 16 + 18 * static_cast<double>(index);
    label(kWidth - kRight - 8, at, "end", s.label, fmt::format(" fill=\"{}\"", colour).c_str());
  }
};

}  // namespace

std::string svg(const Curve& curve) {
  Plot plot{curve};
  plot.measure();
  plot.out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  plot.axes();
  for (size_t i = 0; i < curve.series.size(); ++i) plot.line(curve.series[i], i);
  return plot.out + "</svg>\n";
}

}  // namespace braid::report
