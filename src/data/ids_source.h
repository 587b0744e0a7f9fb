// Batches chosen elsewhere, in their order: for comparing two trainers step by step.
#pragma once
#include <filesystem>
#include <string>

#include "data/source.h"
#include "io/safetensors.h"

namespace braid::data {

class IdsSource final : public Source {
 public:
  // A safetensors file with the I64 tensor `batches` [N, B, T+1]. Error when it has another shape, or an id outside the
  // vocabulary.
  IdsSource(const std::filesystem::path& path, int64_t vocabulary);
  int64_t rows() const override { return batches_.dim(0) * batches_.dim(1); }
  void row(int64_t index, RowWriter& out) const override;
  uint64_t content(int threads) const override;
  bool in_order() const override { return true; }

  int64_t batch() const { return batches_.dim(1); }
  int64_t length() const { return batches_.dim(2) - 1; }

 private:
  io::Safetensors file_;
  View batches_;
};

}  // namespace braid::data
