// What the matrices of a layer are multiplied by over calibration samples: the rows themselves, FP32, each set once
// however many matrices read it (q, k and v, the up matrices of experts). From them come
//
//   G = sum over rows of x x^T / rows     [cols, cols], F64 sums of F32 products of up to 512 rows
//
// the Hessian of a matrix's output error (GPTQ, arXiv 2210.17323, eq. 1; there with a factor 2), and the magnitudes of
// channels that AWQ scales by (arXiv 2306.00978). Memory: 4 bytes a value, for the samples of one layer.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/ctx.h"
#include "nn/observer.h"

namespace braid::quant {

// Samples that a choice is fitted to, those that judge it, or both.
enum class Part : uint8_t { fit, held, all };

class Inputs final : public nn::Observer {
 public:
  // Passes from here on are of this sample.
  void begin_sample(bool held);

  void product(const Param& w, const View& x, const View& y) override;
  void norm(const Param& w, const View& x, const View& z, const View& y) override;
  void experts(Ctx& ctx, const nn::ExpertsSeen& seen) override;

  // Matrices are named as their parameters.
  bool has(const std::string& matrix) const { return uses_.contains(matrix); }
  int64_t rows(const std::string& matrix, Part part) const;
  // [cols * cols]; zeros without rows.
  std::vector<double> gram(Ctx& ctx, const std::string& matrix, Part part) const;
  // The mean magnitude of every column, and the largest of all.
  std::vector<double> magnitudes(const std::string& matrix) const;
  float amax(const std::string& matrix, const std::vector<float>& divisors) const;
  // The norms of the layer, and the matrices that read the outputs of one.
  std::vector<std::string> norms() const;
  std::vector<std::string> readers(const std::string& norm) const;

 private:
  struct Site {
    int64_t cols = 0;
    std::vector<float> values{};
    std::vector<uint8_t> held{};  // by row
    int64_t sample = -1;          // the last that has rows here, from row `begin` on
    size_t begin = 0;
    std::string norm{};  // that made them
  };
  struct Use {
    size_t site = 0;
    size_t list = 0;  // of rows_: 0 is all of them
  };
  size_t site_of(const View& x);
  void append(Site& site, std::span<const float> row);
  bool same_rows(const Site& site, const View& x) const;
  void use(const std::string& matrix, size_t site) { uses_.try_emplace(matrix, Use{site, 0}); }
  template <class Body>
  void for_rows(const Use& use, Part part, const Body& body) const;

  std::vector<Site> sites_;
  std::vector<std::vector<int64_t>> lists_{1};
  std::map<std::string, Use> uses_;
  int64_t sample_ = -1;
  bool held_ = false;
};

}  // namespace braid::quant
