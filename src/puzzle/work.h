// What a search has finished, on disk, so that the same search goes on from there after it was stopped or killed:
//   WORK/search.json                         what the results depend on
//   WORK/site-003-variant-01.json            its scores; written last, so that what is there is whole
//   WORK/site-003-variant-01.safetensors     its values, where not all are cut from the parent's
// Values are mapped from these files, so that those of all variants need no memory of their own.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "puzzle/search.h"

namespace braid::puzzle {

using Facts = std::vector<std::pair<std::string, std::string>>;  // by the names that users know them by

class Work {
 public:
  struct Done {
    Rated rated{};  // without costs
    Values values{};
  };

  // Creates the folder, or opens one of the same facts. Error that names what differs, or for a folder of anything
  // else.
  Work(std::filesystem::path folder, const Facts& facts);

  bool has(size_t site, size_t variant) const;
  // Error for files that cannot be read; that shapes are those of the variant is not checked.
  Done load(size_t site, size_t variant) const;
  void save(size_t site, size_t variant, const Rated& rated, const Values& values) const;
  void remove() const;

 private:
  std::filesystem::path file(size_t site, size_t variant, const char* ending) const;

  std::filesystem::path folder_;
};

}  // namespace braid::puzzle
