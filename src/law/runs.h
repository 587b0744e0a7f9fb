// Runs of training as a CSV table: the input of a scaling law. A row is one checkpoint of one run: its size, the tokens
// it has read, its loss, and, where known, what it cost.
//   run,params,tokens,flops,loss
//   a,85000000,2000000000,1.1e18,3.41
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace braid::law {

struct Row {
  double params = 0, tokens = 0;
  double flops = 0;             // of the whole run up to here
  double loss = 0;              // nats
  double width = 0, depth = 0;  // where Runs::has_shapes
  int64_t run = 0;              // rows of one run are not independent: they are resampled and left out together
};

// In an order that does not depend on that of the file, so that neither does a fit.
struct Runs {
  std::vector<Row> rows{};
  int64_t count = 0;        // of runs
  bool own_flops = false;   // from a column; otherwise 6 params tokens
  bool has_shapes = false;  // from the columns width and depth
};

// Names of columns. An empty one is `run` or `flops` if the table has it: without a run every row is a run of its own.
struct Columns {
  std::string params = "params", tokens = "tokens", loss = "loss", run{}, flops{};
};

// RFC 4180 with a header, without line breaks inside of quotes. Columns width and depth are read if both are there;
// others are ignored. Error, with the line and the column, where a number is not positive and finite, a row has a field
// too many or too few, or the table is too large.
Runs read_runs(std::string_view text, const std::string& name, const Columns& columns = {});

// As read_runs; "-" is standard input.
Runs read_runs_file(const std::string& path, const Columns& columns = {});

}  // namespace braid::law
