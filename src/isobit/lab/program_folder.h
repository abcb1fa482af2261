// SPDX-License-Identifier: Apache-2.0
// Where the lab itself lies, from which it finds what comes with it.
#pragma once

#include <filesystem>

namespace isobit::lab {

inline std::filesystem::path program_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

}  // namespace isobit::lab
