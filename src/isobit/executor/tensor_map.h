// SPDX-License-Identifier: Apache-2.0
// What a tensor map says, in place of the driver's own form of it, which is no one else's matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace isobit::executor {

// Of three dimensions, the first one adjacent elements of 2 bytes; pieces of 16 bytes mixed in
// lines of 128.
struct TensorMap {
  static constexpr std::uint64_t kMark = 0x70616d726f736e65;
  std::uint64_t mark = kMark;
  std::uint64_t address = 0, extents[3] = {}, strides[2] = {};  // strides in bytes
  std::uint32_t box[3] = {};
};
static_assert(sizeof(TensorMap) <= 128);

// The same call as the driver's function: whether it takes it. Null where it does, else what is
// wrong.
struct TensorMapCall {
  std::uint32_t rank;
  const void* address;
  const std::uint64_t *extents, *strides;
  const std::uint32_t *box, *steps;
  bool of_halves, interleaved, mixed_in_128, fills_zeros;
};
const char* encode(const TensorMapCall& call, std::span<std::byte, 128> map);

}  // namespace isobit::executor
