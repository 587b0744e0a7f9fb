// Arms of a study that are compared over seeds: held-out losses with 95% intervals, as a table, CSV and JSON.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "report/curve.h"

namespace braid::apps {

// The mean, and half the width of its 95% interval by Student's t over the values; 0 of a single one.
struct Spread {
  double mean = 0, half = 0;
};
Spread spread_of(std::span<const double> values);
std::string text_of(const Spread& spread, const char* format = "{:.4f}");

constexpr int64_t kSeedsMost = 10;

struct Arm {
  std::string name{};
  double share = 1;                // of the parent's size
  int64_t params = 0, tokens = 0;  // tokens: that it was trained on, without its parent's
  // Losses in nats per token by seed; before: without that training, empty where that says nothing.
  std::vector<double> before{}, after{};

  void add(int64_t params_of, int64_t tokens_of, double loss);  // the next seed's
  void add(int64_t params_of, int64_t tokens_of, double loss, double loss_before);
};

struct ArmStudy {
  std::string name{}, title{};
  std::string reference{};  // the arm that others of its share are compared with
  std::vector<Arm> arms{};
  std::vector<double> entropy{};  // of the source, by seed
  bool percent = false;           // differences are in % of the reference, not in nats

  // Made where there is none.
  Arm& at(const std::string& arm, double share);
  // Losses of `arm` after training minus those of the reference at its share, by seed; empty for the reference itself.
  std::vector<double> differences(const Arm& arm) const;
};

report::Curve by_share(const ArmStudy& study);  // losses after training
// NAME.csv, a line for each arm and seed, and NAME.svg.
void write_arms(const ArmStudy& study, const report::Curve& curve, const std::filesystem::path& dir);
std::string arms_table(const ArmStudy& study);
nlohmann::ordered_json arms_json(const ArmStudy& study);

}  // namespace braid::apps
