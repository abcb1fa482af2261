// SPDX-License-Identifier: Apache-2.0
// Memory of a device, in the order of a stream. Whoever lends a device to others brings one.
#pragma once

#include <cstddef>

namespace isobit {

// All but allocate throw DeviceError. Copies are made when synchronize() returns.
struct DeviceMemory {
  void* (*allocate)(void* stream, std::size_t bytes);  // null when out of memory
  void (*release)(void* stream, void* memory, std::size_t bytes);
  void (*upload)(void* stream, void* to, const void* from, std::size_t bytes);
  void (*download)(void* stream, void* to, const void* from, std::size_t bytes);
  void (*copy)(void* stream, void* to, const void* from, std::size_t bytes);  // within the device
  void (*synchronize)(void* stream);
};

}  // namespace isobit
