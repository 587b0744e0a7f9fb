#include "train/shared_folder.h"

#include <fmt/format.h>

#include <chrono>
#include <random>

#include "io/atomic_file.h"
#include "sys/read.h"
#include "train/agreement.h"

namespace braid::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* kToken = ".token";

// A folder of the same name on another machine has another one.
std::string new_token() {
  return fmt::format("{:08x}-{}", std::random_device()(), std::chrono::steady_clock::now().time_since_epoch().count());
}

bool has_token(const fs::path& folder, const std::string& token) {
  try {
    return sys::read_file(folder / kToken) == token;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

SharedFolder::SharedFolder(comm::Group& world, const fs::path& out, const fs::path& path) : world_(world), path_(path) {
  std::string token;
  std::optional<Error> problem;
  if (world.rank() == 0) {
    try {
      folder_.emplace(path);
      place_ = folder_->place();
      io::write_text_file(place_ / kToken, token = new_token());
    } catch (const Error& error) {
      problem = error;
    }
  }
  agree(world, problem);
  token = told_by_first(world, token);
  const std::string name = told_by_first(world, place_.lexically_relative(out).string());
  if (world.rank() > 0) place_ = out / name;
  if (const auto told = first_told(world, has_token(place_, token) ? "" : "blind")) blind_ = told->rank;
  std::error_code none;
  if (world.rank() == 0) fs::remove(place_ / kToken, none);
}

void SharedFolder::lay_out(sys::FunctionRef<void(const fs::path& place)> make) {
  std::optional<Error> problem;
  if (world_.rank() == 0) {
    try {
      make(place_);
    } catch (const Error& error) {
      problem = error;
    }
  }
  agree(world_, problem);
}

void SharedFolder::commit() {
  if (folder_) folder_->commit();
}

}  // namespace braid::train
