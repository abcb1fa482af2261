// SPDX-License-Identifier: Apache-2.0
// The rules that the driver's function states for its arguments.
#include "isobit/executor/tensor_map.h"

#include <algorithm>
#include <cstring>

namespace isobit::executor {

const char* encode(const TensorMapCall& call, std::span<std::byte, 128> map) {
  if (reinterpret_cast<std::uintptr_t>(map.data()) % 64 != 0)
    return "a tensor map that is not aligned to 64 bytes";
  if (call.rank != 3 || !call.of_halves || call.interleaved || !call.mixed_in_128 ||
      !call.fills_zeros)
    return "a kind of tensor map that the executor does not know";
  if (reinterpret_cast<std::uintptr_t>(call.address) % 16 != 0)
    return "a tensor that is not aligned to 16 bytes";
  TensorMap made;
  made.address = reinterpret_cast<std::uintptr_t>(call.address);
  for (std::size_t i = 0; i < 3; ++i) {
    made.extents[i] = call.extents[i];
    made.box[i] = call.box[i];
    if (made.extents[i] == 0 || made.extents[i] > std::uint64_t{1} << 32)
      return "a tensor without elements, or of more than 2^32";
    if (made.box[i] == 0 || made.box[i] > 256 || call.steps[i] != 1)
      return "a box without elements, of more than 256, or with gaps";
  }
  if (made.box[0] % 8 != 0 || made.box[0] > 64)
    return "lines of a box that are no pieces of 16 bytes, or more than 128 bytes";
  for (std::size_t i = 0; i < 2; ++i) {
    made.strides[i] = call.strides[i];
    if (made.strides[i] % 16 != 0 || made.strides[i] >= std::uint64_t{1} << 40)
      return "strides that are no multiples of 16 bytes, or not below 2^40";
  }
  if (made.strides[0] < 2 * made.extents[0] || made.strides[1] % made.strides[0] != 0 ||
      made.strides[1] < made.strides[0] * made.extents[1])
    return "dimensions of a tensor that do not lie behind each other";
  std::ranges::fill(map, std::byte{0});
  std::memcpy(map.data(), &made, sizeof made);
  return nullptr;
}

}  // namespace isobit::executor
