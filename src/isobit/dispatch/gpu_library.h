// SPDX-License-Identifier: Apache-2.0
// Finds libisobit_cuda.so and libisobit_hip.so, which bring the variants for NVIDIA's and AMD's
// GPUs: a process without them, or without a GPU, goes on without them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "isobit/dispatch/device_library.h"

namespace isobit {

struct GpuLibrary {
  const DeviceLibrary* library = nullptr;  // with a GPU to run on
  std::string file;                        // where it was found; empty where it was not
  std::string missing;                     // why there is no library
  bool executor = false;                   // its GPU is a program, whose times say nothing
};

// The file that a variable of the environment names, or without it the first of the files that
// loads; `entry` is the one function that it shows. A name without a folder is looked for by the
// system.
GpuLibrary open_gpu_library(const char* entry, const char* variable,
                            std::vector<std::string> files);
// The folder of the library or program that holds the project's code.
std::filesystem::path own_folder();

// The libraries for NVIDIA's and for AMD's GPUs. Each looks when it is first asked: for the file
// that ISOBIT_CUDA_LIBRARY or ISOBIT_HIP_LIBRARY names, or else beside the code that asks, or else
// where the system looks; and attaches it.
inline constexpr const char* kCudaEntry = "isobit_cuda_library";
// What an executor shows beside its entry: a function that tells what it counted, as JSON.
inline constexpr const char* kCounters = "isobit_executor_counters";
const GpuLibrary& cuda_library();
const GpuLibrary& hip_library();

}  // namespace isobit
