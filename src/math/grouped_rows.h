// A matrix whose zeros have a structure, as GroupedRows, and the product with it: y[t, r] = sum_k x[t, k] w[r, k] over
// the columns that the group of row r has.
//
// Every sum is one chain of FP32 multiply-adds along k, as in the classes f32_chain and bf16_chain of math/packed.h. A
// zero that a chain skips would add nothing to it, so both products of one matrix agree bit for bit where x is finite.
// A result depends on its row of x and its row of w alone.
#pragma once
#include <cstdint>
#include <memory>

#include "core/grouped_rows.h"
#include "core/view.h"
#include "core/weight.h"

namespace braid {

// The groups of a matrix in F32 or BF16, found from its zeros: rows of equal zeros share groups, and a row that lacks a
// few values of others joins theirs. Null where more than `density_most` of all values would be stored, or a tenth more
// than are not zero.
std::shared_ptr<const GroupedRows> find_groups(const Weight& w, double density_most);

// x [T, cols] is read in panels of up to 12 tokens, packed as F32 [cols][width of the panel] one after another.
inline constexpr int64_t kGroupedTokens = 12;
int64_t grouped_panels(int64_t tokens);
int64_t grouped_floats(int64_t tokens, int64_t cols);  // of all panels
void pack_grouped(const View& x, int64_t panel, float* panels);

// Columns of y [T, rows] F32 or BF16 that are rows of one group, for tokens of panels [first, last); bias [rows] F32 or
// empty. On the calling thread.
void grouped_product(const GroupedView& w, int64_t group, const float* panels, int64_t first, int64_t last,
                     const View& bias, const MutView& y);

}  // namespace braid
