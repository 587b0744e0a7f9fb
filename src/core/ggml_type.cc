#include "core/ggml_type.h"

namespace braid {

std::span<const GgmlTypeRow> ggml_types() {
  using T = GgmlType;
  static constexpr GgmlTypeRow kRows[] = {{T::f32, "F32", 1, 4},
                                          {T::f16, "F16", 1, 2},
                                          {T::bf16, "BF16", 1, 2},
                                          {T::q8_0, "Q8_0", 32, 34},
                                          {T::q4_0, "Q4_0", 32, 18},
                                          {T::q4_1, "Q4_1", 32, 20},
                                          {T::q5_0, "Q5_0", 32, 22},
                                          {T::q5_1, "Q5_1", 32, 24},
                                          {T::q2_k, "Q2_K", 256, 84},
                                          {T::q3_k, "Q3_K", 256, 110},
                                          {T::q4_k, "Q4_K", 256, 144},
                                          {T::q5_k, "Q5_K", 256, 176},
                                          {T::q6_k, "Q6_K", 256, 210},
                                          {T::iq4_nl, "IQ4_NL", 32, 18},
                                          {T::iq4_xs, "IQ4_XS", 256, 136},
                                          {T::mxfp4, "MXFP4", 32, 17},
                                          {T::nvfp4, "NVFP4", 64, 36},
                                          {T::tq1_0, "TQ1_0", 256, 54},
                                          {T::tq2_0, "TQ2_0", 256, 66},
                                          {T::iq1_s, "IQ1_S", 256, 50},
                                          {T::iq1_m, "IQ1_M", 256, 56},
                                          {T::iq2_xxs, "IQ2_XXS", 256, 66},
                                          {T::iq2_xs, "IQ2_XS", 256, 74},
                                          {T::iq2_s, "IQ2_S", 256, 82},
                                          {T::iq3_xxs, "IQ3_XXS", 256, 98},
                                          {T::iq3_s, "IQ3_S", 256, 110}};
  return kRows;
}

const GgmlTypeRow* ggml_type(uint32_t number) {
  for (const GgmlTypeRow& row : ggml_types()) {
    if (static_cast<uint32_t>(row.type) == number) return &row;
  }
  return nullptr;
}

}  // namespace braid
