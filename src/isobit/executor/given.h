// SPDX-License-Identifier: Apache-2.0
// A launch of a kernel whose PTX the caller brings, as Triton makes it, on memory of the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "isobit/executor/totals.h"

namespace isobit::executor {

// isobit.lab.executor has the same structs.
extern "C" {
// Memory that is the kernel's while it runs.
struct IsobitLent {
  void* begin;
  std::size_t bytes;
};

struct IsobitGivenLaunch {
  const char* ptx;
  const char* kernel;
  const void* machine_code;  // what ptxas made of the PTX, an ELF file: it tells of registers
  std::size_t machine_code_bytes;
  const std::uint64_t* parameters;  // each in its lower bytes
  std::size_t parameter_count;
  const IsobitLent* lent;
  std::size_t lent_count;
  std::int64_t shared_bytes;
  std::int64_t grid[3];
  std::int32_t threads;
};
}

// Adds what it did to the kernel's, in full or no more than instructions. Throws PtxError or
// LaunchError.
void launch_given(const IsobitGivenLaunch& given, std::map<std::string, Total>& totals,
                  bool in_full);

}  // namespace isobit::executor
