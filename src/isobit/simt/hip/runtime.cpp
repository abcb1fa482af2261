// SPDX-License-Identifier: Apache-2.0
// Stands in the place of HIP's run-time, which is not linked: the library must load where there is
// none, and take whichever version there is. Calls are forwarded to it; kernels are kept until a
// launch loads them, since a run-time that is told of them ends the process where it has no code
// for a GPU.
#include "isobit/simt/hip/runtime.h"

#include <dlfcn.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <type_traits>
#include <vector>

// All that is called; of each, parameters and what is forwarded.
#define ISOBIT_HIP_FORWARDED(DO)                                                                 \
  DO(hipDeviceGetAttribute, (int* value, hipDeviceAttribute_t attribute, int device),            \
     (value, attribute, device))                                                                 \
  DO(hipDeviceGetName, (char* name, int bytes, hipDevice_t device), (name, bytes, device))       \
  DO(hipDeviceTotalMem, (size_t* bytes, hipDevice_t device), (bytes, device))                    \
  DO(hipFreeAsync, (void* memory, hipStream_t stream), (memory, stream))                         \
  DO(hipGetDevice, (int* device), (device))                                                      \
  DO(hipGetDeviceCount, (int* count), (count))                                                   \
  DO(hipGetLastError, (), ())                                                                    \
  DO(hipMallocAsync, (void** memory, size_t bytes, hipStream_t stream), (memory, bytes, stream)) \
  DO(hipMemcpyAsync,                                                                             \
     (void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream),         \
     (to, from, bytes, kind, stream))                                                            \
  DO(hipStreamSynchronize, (hipStream_t stream), (stream))
#define ISOBIT_HIP_OTHERS(DO) \
  DO(hipGetErrorString) DO(hipModuleGetFunction) DO(hipModuleLaunchKernel) DO(hipModuleLoadData)

namespace isobit::simt::hip {
namespace {

struct Runtime {
  std::string missing;
#define ISOBIT_DECLARE(name, parameters, arguments) hipError_t(*name) parameters = nullptr;
  ISOBIT_HIP_FORWARDED(ISOBIT_DECLARE)
#undef ISOBIT_DECLARE
#define ISOBIT_DECLARE(name) decltype(&::name) name = nullptr;
  ISOBIT_HIP_OTHERS(ISOBIT_DECLARE)
#undef ISOBIT_DECLARE
};

// By the newest name first: it must suit the driver, and comes with it.
void* open_runtime(std::string& missing) {
  std::vector<const char*> files = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                    "libamdhip64.so"};
  if (const char* named = std::getenv("ISOBIT_HIP_RUNTIME"); named != nullptr && *named != '\0')
    files = {named};
  for (const char* file : files) {
    if (void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return handle;
    const char* error = dlerror();
    missing = text("HIP's run-time is missing: ", error != nullptr ? error : file);
  }
  return nullptr;
}

Runtime load() {
  Runtime loaded;
  void* handle = open_runtime(loaded.missing);
  if (handle == nullptr) return loaded;
  loaded.missing.clear();
  const auto find = [&](const char* name, auto& function) {
    void* const address = dlsym(handle, name);
    if (address == nullptr && loaded.missing.empty())
      loaded.missing = text("HIP's run-time is too old: it has no ", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
#define ISOBIT_FIND(name, ...) find(#name, loaded.name);
  ISOBIT_HIP_FORWARDED(ISOBIT_FIND)
  ISOBIT_HIP_OTHERS(ISOBIT_FIND)
#undef ISOBIT_FIND
  return loaded;
}

const Runtime& runtime() {
  static const Runtime& loaded = *new Runtime(load());  // kernels may end after the process's main
  return loaded;
}

// A source file's kernels: the code for all GPUs, as clang bundles it.
struct Bundle {
  const void* code;
  std::map<int, hipModule_t> on_device;
};
struct Registered {
  Bundle* bundle;
  const char* name;
  std::map<int, hipFunction_t> on_device;
};

// Filled as the library is loaded, by what clang wrote into each object.
struct Kernels {
  std::mutex mutex;
  std::deque<Bundle> bundles;
  std::map<const void*, Registered> registered;
};
Kernels& kernels() {
  static Kernels& kernels = *new Kernels;
  return kernels;
}

hipError_t module_on(Bundle& bundle, int device, hipModule_t& module) {
  const auto [found, missing] = bundle.on_device.try_emplace(device);
  if (missing)
    if (const hipError_t error = runtime().hipModuleLoadData(&found->second, bundle.code)) {
      bundle.on_device.erase(found);
      return error;
    }
  module = found->second;
  return hipSuccess;
}

hipError_t function_on(Registered& kernel, int device, hipFunction_t& function) {
  const auto [found, missing] = kernel.on_device.try_emplace(device);
  hipError_t error = hipSuccess;
  if (missing) {
    hipModule_t module = nullptr;
    error = module_on(*kernel.bundle, device, module);
    if (error == hipSuccess)
      error = runtime().hipModuleGetFunction(&found->second, module, kernel.name);
  }
  function = found->second;
  if (error != hipSuccess) kernel.on_device.erase(found);
  return error;
}

}  // namespace

std::string missing_runtime() { return runtime().missing; }

std::string missing_code() {
  int device = 0;
  hipError_t error = hipGetDevice(&device);
  const std::lock_guard lock(kernels().mutex);
  for (Bundle& bundle : kernels().bundles) {
    hipModule_t module = nullptr;
    if (error == hipSuccess) error = module_on(bundle, device, module);
  }
  if (error == hipErrorNoBinaryForGpu)
    return "the kernels were not compiled for this GPU; `make kernels-hip ARCH=...` does it";
  return error == hipSuccess ? "" : hipGetErrorString(error);
}

}  // namespace isobit::simt::hip

using isobit::simt::hip::kernels;
using isobit::simt::hip::runtime;

#define ISOBIT_FORWARD(name, parameters, arguments) \
  hipError_t name parameters { return runtime().name arguments; }
ISOBIT_HIP_FORWARDED(ISOBIT_FORWARD)

const char* hipGetErrorString(hipError_t error) { return runtime().hipGetErrorString(error); }

hipError_t hipLaunchKernel(const void* function, dim3 blocks, dim3 threads, void** arguments,
                           size_t shared_bytes, hipStream_t stream) {
  int device = 0;
  hipFunction_t found = nullptr;
  hipError_t error = hipGetDevice(&device);
  if (error == hipSuccess) {
    const std::lock_guard lock(kernels().mutex);
    error = function_on(kernels().registered.at(function), device, found);
  }
  if (error != hipSuccess) return error;
  return runtime().hipModuleLaunchKernel(found, blocks.x, blocks.y, blocks.z, threads.x, threads.y,
                                         threads.z, static_cast<unsigned>(shared_bytes), stream,
                                         arguments, nullptr);
}

extern "C" {

// What clang lets every object call. `wrapper` is two words, then the address of the code.
void** __hipRegisterFatBinary(const void* wrapper) {
  const void* code = static_cast<void* const*>(wrapper)[1];
  return reinterpret_cast<void**>(&kernels().bundles.emplace_back(code));
}
void __hipRegisterFunction(void** bundle, const void* function, char*, const char* name, unsigned,
                           void*, void*, void*, void*, int*) {
  kernels().registered[function] = {reinterpret_cast<isobit::simt::hip::Bundle*>(bundle), name, {}};
}
void __hipUnregisterFatBinary(void**) {}

}  // extern "C"

// Launches are written as calls, never as <<<...>>>, which would push what this takes.
hipError_t __hipPopCallConfiguration(dim3*, dim3*, size_t*, hipStream_t*) {
  return hipErrorMissingConfiguration;
}
