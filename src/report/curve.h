// A curve as a standalone SVG with axes, grid and one line per series; each linear or logarithmic. Points
// are thinned to what the picture can show.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace braid::report {

struct Series {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x ascending; NaN and infinite points are left out
};

struct Curve {
  std::string title{}, x_label{}, y_label{};
  std::vector<Series> series{};
  bool log_y = false, log_x = false;
};

std::string svg(const Curve& curve);

}  // namespace braid::report
