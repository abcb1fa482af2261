// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files, versions 1 to 3: plain arrays of the element types that operators take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "isobit/core/dtype.h"

namespace isobit::lab {

struct NpyArray {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;  // in row-major order

  std::int64_t elements() const;
};

// bf16 travels as uint16. Throws std::runtime_error with the file's name.
NpyArray read_npy(const std::filesystem::path& file);
void write_npy(const std::filesystem::path& file, const NpyArray& array);

}  // namespace isobit::lab
