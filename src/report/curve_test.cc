#include "report/curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace braid::report {
namespace {

TEST(Curve, LinesAxesAndLabels) {
  Curve c{
      .title = "loss < 1 & more", .x_label = "step", .y_label = "nats", .series = {{"train", {}}, {"held out", {}}}};
  for (int i = 0; i < 5000; ++i) c.series[0].points.emplace_back(i, 8.0 - 1e-3 * i);
  c.series[1].points = {{0, 8}, {2500, std::numeric_limits<double>::quiet_NaN()}, {4999, 3}};
  const std::string text = svg(c);
  EXPECT_NE(text.find("loss &lt; 1 &amp; more"), std::string::npos);
  EXPECT_NE(text.find(">4000<"), std::string::npos) << "no label on the x axis";
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_LT(text.size(), 40000u) << "lines are thinned";
}

TEST(Curve, NothingToShowIsStillAPicture) {
  EXPECT_NE(svg({.title = "empty"}).find("</svg>"), std::string::npos);
  EXPECT_NE(svg({.series = {{"one", {{3, 2}}}}, .log_y = true}).find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace braid::report
