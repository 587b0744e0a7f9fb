// Programs timed against each other in one process: rounds in which each runs once, in an order that turns, in CPU time
// of this thread, so that what else the machine does delays all of them alike and none by the time it waits for a core.
#pragma once
#include <functional>
#include <vector>

namespace braid::sparse {

// [runs][rounds] seconds of one call. A round repeats a call until it took `least` seconds, after one that is
// not timed.
std::vector<std::vector<double>> race(const std::vector<std::function<void()>>& runs, int rounds, double least);

double median(std::vector<double> values);  // of at least one
// Of a over b, round by round.
double median_ratio(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace braid::sparse
