// SPDX-License-Identifier: Apache-2.0
// Loads a library, asks it whether it is of this build, and whether it has a GPU.
#include "isobit/dispatch/gpu_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "isobit/core/error.h"

namespace isobit {
namespace {

GpuLibrary find_and_attach(const char* entry, const char* variable, const std::string& file) {
  GpuLibrary found = open_gpu_library(entry, variable, {own_folder() / file, file});
  if (found.library != nullptr) attach(*found.library);
  return found;
}

}  // namespace

std::filesystem::path own_folder() {
  Dl_info info{};
  static const char kHere = 0;
  if (dladdr(&kHere, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const auto file = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::filesystem::path() : file.parent_path();
}

GpuLibrary open_gpu_library(const char* entry, const char* variable,
                            std::vector<std::string> files) {
  if (const char* named = std::getenv(variable); named != nullptr && *named != '\0')
    files = {named};
  GpuLibrary result;
  void* handle = nullptr;
  for (const std::string& file : files) {
    handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) {
      result.file = file;
      break;
    }
    const char* error = dlerror();
    // What exists and does not load says more than what does not exist.
    if (result.missing.empty() || std::filesystem::exists(file))
      result.missing = error != nullptr ? error : "dlopen failed";
  }
  if (handle == nullptr) return result;
  using Entry = const DeviceLibrary* (*)(const char*);
  const auto ask = reinterpret_cast<Entry>(dlsym(handle, entry));
  // cmake/interface.cmake defines the second.
  const DeviceLibrary* library =
      ask != nullptr ? ask(ISOBIT_VERSION " " ISOBIT_INTERFACE) : nullptr;
  if (library == nullptr) {
    result.missing =
        text(result.file, " is not from this build of Isobit ", ISOBIT_VERSION,
             "; build it again (`make kernels` or `make kernels-hip`), or install both from "
             "the same release");
    return result;
  }
  result.missing = library->missing();
  if (result.missing.empty()) result.library = library;
  result.executor = dlsym(handle, kCounters) != nullptr;
  return result;
}

const GpuLibrary& cuda_library() {
  static const GpuLibrary kLibrary =
      find_and_attach(kCudaEntry, "ISOBIT_CUDA_LIBRARY", "libisobit_cuda.so");
  return kLibrary;
}

const GpuLibrary& hip_library() {
  static const GpuLibrary kLibrary =
      find_and_attach("isobit_hip_library", "ISOBIT_HIP_LIBRARY", "libisobit_hip.so");
  return kLibrary;
}

}  // namespace isobit
