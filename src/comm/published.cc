#include "comm/published.h"

#include <array>

#include "sys/check.h"

namespace braid::comm {
namespace {

constexpr std::array kNvrarPoints = {TimedSize{8 << 10, 62.2},    TimedSize{64 << 10, 72.0},
                                     TimedSize{128 << 10, 76.7},  TimedSize{256 << 10, 81.6},
                                     TimedSize{512 << 10, 105.4}, TimedSize{1 << 20, 157.5}};

double simulated_us(const Cluster& cluster, Request request, int64_t bytes) {
  request.count = bytes / size_of(request.type);
  return simulate(cluster, request).us;
}

}  // namespace

std::span<const TimedSize> published_nvrar() { return kNvrarPoints; }

Cluster fitted(Cluster cluster, const Request& request, std::span<const TimedSize> points) {
  cluster.launch_us = 0;
  // us = launch + fixed + slope / rate; relative errors e = (launch + slope y - (us - fixed)) / us over launch and
  // y = 1 / rate.
  double s_ll = 0, s_ly = 0, s_yy = 0, s_l = 0, s_y = 0;
  for (const TimedSize& point : points) {
    Cluster at = cluster;
    at.network.gb_per_s = 10;
    const double slow = simulated_us(at, request, point.bytes);
    at.network.gb_per_s = 20;
    const double fast = simulated_us(at, request, point.bytes);
    const double slope = (slow - fast) / (1 / 10.0 - 1 / 20.0), rest = point.us - (slow - slope / 10);
    const double weight = 1 / (point.us * point.us);
    s_ll += weight;
    s_ly += weight * slope;
    s_yy += weight * slope * slope;
    s_l += weight * rest;
    s_y += weight * slope * rest;
  }
  const double determinant = s_ll * s_yy - s_ly * s_ly;
  CHECK(determinant > 0, "{} points", points.size());
  cluster.launch_us = (s_l * s_yy - s_y * s_ly) / determinant;
  cluster.network.gb_per_s = determinant / (s_ll * s_y - s_ly * s_l);
  return cluster;
}

std::vector<double> leave_one_out(const Cluster& cluster, const Request& request, std::span<const TimedSize> points) {
  std::vector<double> predicted;
  for (size_t left = 0; left < points.size(); ++left) {
    std::vector<TimedSize> others(points.begin(), points.end());
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left));
    predicted.push_back(simulated_us(fitted(cluster, request, others), request, points[left].bytes));
  }
  return predicted;
}

}  // namespace braid::comm
