// SPDX-License-Identifier: Apache-2.0
// Where the lab itself lies, from which it finds what comes with it.
#pragma once

#include <filesystem>
#include <optional>

namespace isobit::lab {

inline std::filesystem::path program_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

// In a checkout the lab is build/PRESET/isobit. An installed one has none.
inline std::optional<std::filesystem::path> checkout() {
  auto root = program_folder().parent_path().parent_path();
  if (!std::filesystem::exists(root / "Makefile")) return std::nullopt;
  return root;
}

}  // namespace isobit::lab
