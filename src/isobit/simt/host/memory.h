// SPDX-License-Identifier: Apache-2.0
// Memory of the emulated GPU, which is the processor's.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

#include "isobit/core/device_memory.h"

namespace isobit::simt {

inline std::string missing() { return {}; }
inline std::string about() { return "an emulator"; }

inline constexpr DeviceMemory kMemory = {
    .allocate =
        [](void*, std::size_t bytes) { return std::aligned_alloc(256, (bytes + 255) / 256 * 256); },
    .release = [](void*, void* memory, std::size_t) { std::free(memory); },
    .upload = [](void*, void* to, const void* from,
                 std::size_t bytes) { std::memcpy(to, from, bytes); },
    .download = [](void*, void* to, const void* from,
                   std::size_t bytes) { std::memcpy(to, from, bytes); },
    .copy = [](void*, void* to, const void* from,
               std::size_t bytes) { std::memcpy(to, from, bytes); },
    .synchronize = [](void*) {}};

}  // namespace isobit::simt
