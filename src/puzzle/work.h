// What a search has finished, on disk, so that the same search goes on from there after it was stopped or killed:
//   WORK/search.json                         what the results depend on
//   WORK/site-003-variant-01.json            its scores; written last, so that what is there is whole
//   WORK/site-003-variant-01.safetensors     its values, where not all are cut from the parent's
// Values are mapped from these files, so that those of all variants need no memory of their own.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/file_lock.h"
#include "puzzle/search.h"

namespace braid::puzzle {

using Facts = std::vector<std::pair<std::string, std::string>>;  // by the names that users know them by

class Work {
 public:
  struct Done {
    Rated rated{};  // without costs
    Values values{};
  };
  // What the values of a variant are, by name: [rows, cols], and what they are spelt like.
  struct Tensor {
    Shape shape{};
    std::string like{};
    bool always = false;  // false: only those of a trained variant have it
  };
  using Tensors = std::map<std::string, Tensor>;

  // Creates the folder, or opens one of the same facts, and locks it. Error that names what differs, for a folder of
  // anything else, and where another search has it.
  Work(std::filesystem::path folder, const Facts& facts);

  bool has(size_t site, size_t variant) const;
  // Error, with what to do, for files that cannot be read and for other values than those of the variant.
  Done load(size_t site, size_t variant, const Tensors& expected) const;
  void save(size_t site, size_t variant, const Rated& rated, const Values& values) const;
  void remove() const;

 private:
  std::filesystem::path file(size_t site, size_t variant, const char* ending) const;

  Done read(size_t site, size_t variant, const Tensors& expected) const;

  std::filesystem::path folder_;
  std::optional<io::FileLock> lock_;
};

}  // namespace braid::puzzle
