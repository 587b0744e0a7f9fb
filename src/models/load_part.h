// The part of a model that one rank of several has (models/division.h), of any folder or GGUF file that load_model
// reads. Rows of a mapped matrix are views of it; columns, rows that are not consecutive and what loading converts are
// copied, one tensor at a time: a rank touches, and holds, no more than its part.
#pragma once
#include <memory>

#include "io/model_path.h"
#include "models/division.h"
#include "models/model.h"

namespace braid::models {

// Before ranks start: Error for a division that does not fit the config, or the blocks of a GGUF file. In a folder only
// MLPs of odd widths have blocks that do not fit; loading finds them.
void check_parts(const io::ModelPath& path, const Division& division);

// Error as load_model, and where a cut would lie inside a block of values that share a scale, which the message names
// with the nearest number of ranks that avoids it.
std::unique_ptr<Model> load_part(const io::ModelPath& path, const Division& division, int64_t rank);

// Columns `held` of the rows `within` of a weight; rows `held`. Copies are made in `store`; with `copies` always, else
// only where a view cannot do. Columns begin and end between the blocks of the format: BUG otherwise.
Weight columns_of(WeightStore& store, const Weight& w, const std::vector<Range>& held, const Range& within);
Weight rows_of(WeightStore& store, const Weight& w, const std::vector<Range>& held, bool copies);
// Columns of the format that stay together.
int64_t block_columns(const Weight& w);

}  // namespace braid::models
