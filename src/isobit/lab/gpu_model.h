// SPDX-License-Identifier: Apache-2.0
// A model of the time that a kernel takes on a GPU, from what the executor counted: the slowest of
// a few bounds. It is no measurement, and is called a model wherever its figures appear.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "isobit/lab/case.h"

namespace isobit::lab {

// Published figures of a GPU.
struct GpuSpec {
  std::string_view name;
  int multiprocessors;
  double clock;      // per second, as it is under load
  double bandwidth;  // of its memory, bytes per second
  int shared_bytes;  // of a multiprocessor
};
std::span<const GpuSpec> gpu_specs();

// What one kernel did in the launches of a call, as libisobit_ptx.so counts it.
struct KernelCounters {
  // Of machine code every instruction counts; of PTX moves between registers, which machine code
  // does without, are left out.
  KernelCounters(const Json& line, bool machine_code);

  std::string name;  // without namespaces and template arguments
  double launches, blocks, threads, shared_bytes, registers;
  double instructions, integers, shuffles;  // of warps
  double load_sectors, least_load_sectors, store_sectors, least_store_sectors, distinct_loads,
      distinct_stores;
  double wide_requests, requests;
  double wavefronts, least_wavefronts;
  double local_requests, barriers, divergent_branches;
  double awaited_by_warp, awaited_by_block;  // bytes on their way, as they are waited for

  // Blocks that a multiprocessor holds at once, of those that `multiprocessors` share out.
  int resident(const GpuSpec& gpu, int multiprocessors) const;
  // Bytes on their way to a multiprocessor.
  double in_flight(const GpuSpec& gpu, int multiprocessors) const;
};

struct ModelTime {
  double seconds;
  std::string_view bound;  // what rules
};

// Of all of a kernel's launches where `multiprocessors` of the GPU's share out the blocks, with
// their part of its memory's bandwidth.
ModelTime model_time(const KernelCounters& kernel, const GpuSpec& gpu, int multiprocessors);
// Of a plain copy that moves so many bytes.
double model_copy_time(double bytes, const GpuSpec& gpu, int multiprocessors);

}  // namespace isobit::lab
