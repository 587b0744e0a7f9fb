#include "io/placeholder.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <system_error>

#include "io/atomic_folder.h"
#include "sys/error.h"

namespace braid::io {
namespace fs = std::filesystem;

bool is_lfs_pointer(std::span<const std::byte> bytes) {
  constexpr std::string_view magic = "version https://git-lfs.github.com/spec/v1";
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()).starts_with(magic);
}

void refuse_lfs_pointer(const fs::path& path, std::span<const std::byte> bytes) {
  if (!is_lfs_pointer(bytes)) return;
  fail(printable(path.string()), {.what = "is a Git-LFS pointer, the file itself was not fetched",
                                  .hint = fmt::format("git -C {} lfs pull", printable(path.parent_path().string()))});
}

namespace {

// False for a folder that has no file of a model, complete or being downloaded.
bool may_be_a_model(const fs::path& folder) {
  std::error_code none;
  if (!fs::is_directory(folder, none) || !cached_repository(folder).empty() || fs::exists(folder / ".git", none))
    return true;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (comes_with_a_model(entry.path()) || entry.path().extension() == ".safetensors") return true;
  }
  return false;
}

}  // namespace

void refuse_missing(const fs::path& path) {
  std::error_code none;
  if (fs::exists(path, none)) return;  // false for a cache link whose blob is missing
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const bool incomplete = has_incomplete_download(folder);
  if (path.filename() == "config.json" && !incomplete && !may_be_a_model(folder))
    fail(printable(path.string()), {.what = "is missing", .expected = "the folder of a model", .hint = "braid list"});
  fail(printable(path.string()),
       {.what = incomplete ? "is missing, the download is incomplete (.incomplete blobs)" : "is missing",
        .hint = comes_with_a_model(path) ? fetch_hint(folder) : ""});
}

bool comes_with_a_model(const fs::path& path) {
  constexpr std::string_view kNames[] = {"config.json",    "generation_config.json", "tokenizer_config.json",
                                         "tokenizer.json", "model.safetensors",      "model.safetensors.index.json"};
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code none;
  if (is_complete(folder) || !fs::is_directory(folder, none)) return false;
  const std::string name = path.filename().string();
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ||
         (path.extension() == ".safetensors" && fs::exists(folder / "config.json", none));
}

std::string cached_repository(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  const std::string name = snapshots.parent_path().filename().string();
  constexpr std::string_view prefix = "models--";
  if (snapshots.filename() != "snapshots" || !name.starts_with(prefix)) return {};
  const std::string repository = name.substr(prefix.size());
  const size_t gap = repository.find("--");
  return gap == repository.npos ? repository : repository.substr(0, gap) + "/" + repository.substr(gap + 2);
}

bool has_incomplete_download(const fs::path& folder) {
  // `hf download` keeps partial files in the cache's blobs, `hf download --local-dir` in a hidden folder next to the
  // files.
  const fs::path folders[] = {folder.parent_path().parent_path() / "blobs", folder / ".cache/huggingface/download"};
  for (const fs::path& parts : folders) {
    if (parts.filename() == "blobs" && cached_repository(folder).empty()) continue;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(parts, none)) {
      if (entry.path().extension() == ".incomplete") return true;
    }
  }
  return false;
}

std::string fetch_hint(const fs::path& folder) {
  std::error_code none;
  if (is_complete(folder)) return "";
  if (const std::string repository = cached_repository(folder); !repository.empty()) {
    return fmt::format("hf download {}", printable(repository));
  }
  const std::string shown = printable(folder.string());
  if (fs::exists(folder / ".git", none)) return fmt::format("git -C {} lfs pull", shown);
  return fmt::format("hf download ORG/NAME --local-dir {}, or git -C {} lfs pull in a clone", shown, shown);
}

}  // namespace braid::io
