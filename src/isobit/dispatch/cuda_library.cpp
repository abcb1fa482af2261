// SPDX-License-Identifier: Apache-2.0
// Loads the library, asks it whether it is of this version, and whether it has a GPU.
#include "isobit/dispatch/cuda_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "isobit/core/error.h"

namespace isobit {
namespace {

constexpr const char* kFile = "libisobit_cuda.so";

// The folder of the library or program that holds this code.
std::filesystem::path own_folder() {
  Dl_info info{};
  static const char kHere = 0;
  if (dladdr(&kHere, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const auto file = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::filesystem::path() : file.parent_path();
}

std::vector<std::string> candidates() {
  if (const char* named = std::getenv("ISOBIT_CUDA_LIBRARY"); named != nullptr && *named != '\0')
    return {named};
  return {own_folder() / kFile, kFile};
}

CudaLibrary load() {
  CudaLibrary result;
  void* handle = nullptr;
  for (const std::string& file : candidates()) {
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
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "isobit_cuda_library"));
  const DeviceLibrary* library = entry != nullptr ? entry(ISOBIT_VERSION) : nullptr;
  if (library == nullptr) {
    result.missing = text(result.file, " belongs to another version of Isobit than ",
                          ISOBIT_VERSION, "; install both from one release");
    return result;
  }
  result.missing = library->missing();
  if (!result.missing.empty()) return result;
  attach(*library);
  result.library = library;
  return result;
}

}  // namespace

const CudaLibrary& cuda_library() {
  static const CudaLibrary kLibrary = load();
  return kLibrary;
}

}  // namespace isobit
