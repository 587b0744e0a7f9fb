// A curve as people look at it: an SVG of its own, with axes, grid and one line a series; linear in x, linear or
// logarithmic in y. Points are thinned to what the picture can show.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace braid::report {

struct Series {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x ascending; those that are no numbers are left out
};

struct Curve {
  std::string title{}, x_label{}, y_label{};
  std::vector<Series> series{};
  bool log_y = false;
};

std::string svg(const Curve& curve);

}  // namespace braid::report
