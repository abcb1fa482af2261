// SPDX-License-Identifier: Apache-2.0
// The shared memory of a block: poisoned, with red zones between its arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "isobit/simt/host/emulator.h"

namespace isobit::simt::host {

inline constexpr std::int64_t kSharedArena = 320 << 10;  // the most of a device, and red zones
inline constexpr std::int64_t kRedZone = 64;

// Each array reads as NaN, or as -1, until it is written.
std::byte* take_shared_memory(std::span<const Region> arrays);
void give_back_shared_memory(std::byte* memory);
// What a block wrote outside its arrays; empty where it did not.
std::string written_outside(const std::byte* memory, std::span<const Region> arrays,
                            std::int64_t block);

}  // namespace isobit::simt::host
