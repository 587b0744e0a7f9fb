// Files that stand for others: a clone without Git-LFS leaves a text of three lines where the weights belong, and a
// broken download leaves `.incomplete` blobs. Both are named as such, with the line that mends them.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace braid::io {

bool is_lfs_pointer(std::span<const std::byte> bytes);
bool has_incomplete_download(const std::filesystem::path& folder);

// Error when a file of a model folder is not there, when its bytes are a Git-LFS pointer.
void refuse_missing(const std::filesystem::path& path);
void refuse_lfs_pointer(const std::filesystem::path& path, std::span<const std::byte> bytes);

// True for a file of a downloaded model, judging by its name or by a config in the same folder; false for a file that
// Braid wrote.
bool comes_with_a_model(const std::filesystem::path& path);

// What to type so that the missing files of a model folder arrive; nothing for a folder that Braid wrote.
std::string fetch_hint(const std::filesystem::path& folder);

// The repository of a folder in a Hugging Face cache (.../models--org--name/snapshots/commit) as org/name, else empty.
std::string cached_repository(const std::filesystem::path& folder);

}  // namespace braid::io
