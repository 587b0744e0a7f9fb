#include "apps/sweep_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>

#include "io/json.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;

SweepRow row_from(const io::Json& j) {
  constexpr io::NumberRange kAny{0, 1e60};
  const auto number = [&](const char* key) { return j.need({key}).as_number(kAny); };
  SweepRow row;
  row.shape = {j.need({"width"}).as_int({1, 1 << 20}), j.need({"depth"}).as_int({1, 1 << 20})};
  row.steps = j.need({"steps"}).as_int({1});
  row.params = number("params");
  row.active = number("active");
  row.embedding = number("embedding");
  row.tokens = number("tokens");
  row.flops = number("flops");
  row.loss = number("loss");
  row.floor = j.number_of({"floor"}, kAny).value_or(0);
  row.lr = number("lr");
  row.seconds = number("seconds");
  return row;
}

}  // namespace

std::vector<SweepRow> rows_in(const fs::path& dir) {
  std::vector<SweepRow> rows;
  std::error_code none;
  for (const auto& shape : fs::directory_iterator(dir, none)) {
    for (const auto& branch : fs::directory_iterator(shape.path(), none)) {
      if (fs::exists(branch.path() / kSweepRow)) rows.push_back(row_from(io::Json::read(branch.path() / kSweepRow)));
    }
  }
  const auto key = [](const SweepRow& r) { return std::tuple(r.params, r.shape.width, r.shape.depth, r.steps); };
  std::sort(rows.begin(), rows.end(), [&](const SweepRow& a, const SweepRow& b) { return key(a) < key(b); });
  return rows;
}

std::string csv_of(const std::vector<SweepRow>& rows) {
  std::string csv = "run,width,depth,params,active,embedding,steps,tokens,flops,loss,floor,lr,seconds\n";
  for (const SweepRow& r : rows)
    csv += fmt::format("{},{},{},{},{},{},{},{},{:.6g},{:.6f},{},{:.6g},{:.4g}\n", r.shape.name(), r.shape.width,
                       r.shape.depth, r.params, r.active, r.embedding, r.steps, r.tokens, r.flops, r.loss,
                       r.floor > 0 ? fmt::format("{:.6f}", r.floor) : "", r.lr, r.seconds);
  return csv;
}

std::string json_of(const SweepRow& r) {
  nlohmann::ordered_json j = {{"run", r.shape.name()},
                              {"width", r.shape.width},
                              {"depth", r.shape.depth},
                              {"params", static_cast<int64_t>(r.params)},
                              {"active", static_cast<int64_t>(r.active)},
                              {"embedding", static_cast<int64_t>(r.embedding)},
                              {"steps", r.steps},
                              {"tokens", static_cast<int64_t>(r.tokens)},
                              {"flops", r.flops},
                              {"loss", r.loss},
                              {"floor", nullptr},
                              {"lr", r.lr},
                              {"seconds", r.seconds}};
  if (r.floor > 0) j["floor"] = r.floor;
  return j.dump();
}

}  // namespace braid::apps
