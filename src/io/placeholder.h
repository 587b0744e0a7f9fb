// Placeholders for missing files: a clone without Git-LFS has three-line text files in place of the weights, and a
// broken download leaves `.incomplete` blobs. Errors name both cases, with the command that fixes them.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace braid::io {

bool is_lfs_pointer(std::span<const std::byte> bytes);
bool has_incomplete_download(const std::filesystem::path& folder);

// Error when a file of a model folder is missing; when its bytes are a Git-LFS pointer.
void refuse_missing(const std::filesystem::path& path);
void refuse_lfs_pointer(const std::filesystem::path& path, std::span<const std::byte> bytes);

// True for a file of a downloaded model, judging by its name or by a config in the same folder; false for a file that
// Braid wrote.
bool comes_with_a_model(const std::filesystem::path& path);

// The command that fetches the missing files of a model folder; empty for a folder that Braid wrote.
std::string fetch_hint(const std::filesystem::path& folder);

// The repository of a folder in a Hugging Face cache (.../models--org--name/snapshots/commit) as org/name, else empty.
std::string cached_repository(const std::filesystem::path& folder);

}  // namespace braid::io
