// SPDX-License-Identifier: Apache-2.0
// The emulator is linked where the build has one; the libraries with compiled kernels are looked
// for.
#include "isobit/lab/devices.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "isobit/core/error.h"
#include "isobit/dispatch/gpu_library.h"
#if defined(ISOBIT_EMULATOR)
#include "isobit/ops/device_catalog.h"
#endif

namespace isobit::lab {
namespace {

// What executes nvcc's code is a library for NVIDIA's GPUs whose GPU is not one, so only the lab
// looks for it.
GpuLibrary open_executor(Device device, const char* variable, const char* file,
                         DeviceLibrary& executor) {
  GpuLibrary found = open_gpu_library(kCudaEntry, variable, {own_folder() / file});
  if (found.library == nullptr) return found;
  executor = *found.library;
  executor.device = device;
  attach(executor);
  return found;
}

const GpuLibrary& executor_library(Device device) {
  static DeviceLibrary ptx, sass;
  static const GpuLibrary kPtx =
      open_executor(Device::ptx, "ISOBIT_PTX_LIBRARY", "libisobit_ptx.so", ptx);
  static const GpuLibrary kSass =
      open_executor(Device::sass, "ISOBIT_SASS_LIBRARY", "libisobit_sass.so", sass);
  return device == Device::ptx ? kPtx : kSass;
}

}  // namespace

void attach_devices() {
#if defined(ISOBIT_EMULATOR)
  attach(device_library());
#endif
  for (Device device : kExecutors) executor_library(device);
  cuda_library();
  hip_library();
}

const std::string& executor_file(Device executor) { return executor_library(executor).file; }

std::string take_counters(Device executor) {
  const std::string& file = executor_file(executor);
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  void* const counters = library == nullptr ? nullptr : dlsym(library, kCounters);
  if (counters == nullptr) throw Unsupported(fmt::format("{} has no counters", file));
  return reinterpret_cast<const char* (*)()>(counters)();
}

std::string missing_device(Device device) {
  if (device == Device::emu) return "this build has no GPU emulator";
  if (is_executor(device))
    return fmt::format("{}; in a checkout with nvcc `make kernels` builds it",
                       executor_library(device).missing);
  const bool amd = device == Device::hip;
  return fmt::format("no usable {}: {}; run `isobit doctor` for details", amd ? "AMD GPU" : "GPU",
                     (amd ? hip_library() : cuda_library()).missing);
}

}  // namespace isobit::lab
