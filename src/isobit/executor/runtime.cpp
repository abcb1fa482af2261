// SPDX-License-Identifier: Apache-2.0
// In the place of CUDA's run-time: nvcc's own objects, linked with this, find a device that
// executes their PTX or, where their machine code is linked in as text, that. Compiled with CUDA's
// headers, for libisobit_ptx.so and libisobit_sass.so.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

#include "isobit/executor/elf_registers.h"
#include "isobit/executor/given.h"
#include "isobit/executor/launch.h"
#include "isobit/executor/memory.h"
#include "isobit/executor/program.h"
#include "isobit/executor/settings.h"
#include "isobit/executor/tensor_map.h"
#include "isobit/executor/totals.h"

// What tools/kernels.py links in beside the objects of libisobit_sass.so.
extern "C" {
__attribute__((weak, visibility("hidden"))) extern const char isobit_machine_code_begin[];
__attribute__((weak, visibility("hidden"))) extern const char isobit_machine_code_end[];
}

namespace {

using isobit::executor::Function;
using isobit::executor::json;
using isobit::executor::LaunchShape;
using isobit::executor::Limits;
using isobit::executor::MachineCode;
using isobit::executor::Module;
using isobit::executor::readable;
using isobit::executor::settings;
using isobit::executor::Total;

// Null in libisobit_ptx.so.
MachineCode* machine_code() {
  static MachineCode* const kCode =
      isobit_machine_code_begin == nullptr
          ? nullptr
          : new MachineCode(std::string_view(isobit_machine_code_begin, isobit_machine_code_end));
  return kCode;
}

// What nvcc puts into an object, as the run-time reads it: entries of machine code and of PTX.
struct Wrapper {
  int magic, version;
  const std::byte* data;
  void* file;
};
struct FileHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;
};
struct EntryHeader {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
  std::uint32_t compressed_bytes, unknown[5];
  std::uint64_t flags;
  std::uint64_t unknown_too;
  std::uint64_t plain_bytes;
};
constexpr std::uint16_t kPtx = 1, kMachineCode = 2;
constexpr std::uint64_t kLz4 = 0x2000, kOtherwise = 0x8000;  // how an entry is compressed

// A block of LZ4: sequences of a token, literals, and a match among what stands there already.
std::string plain_of_lz4(std::string_view packed, std::size_t plain_bytes) {
  std::string plain;
  plain.reserve(plain_bytes);
  std::size_t at = 0;
  const auto byte = [&] {
    if (at == packed.size()) throw std::runtime_error("compressed PTX is cut short");
    return static_cast<std::size_t>(static_cast<unsigned char>(packed[at++]));
  };
  const auto length = [&](std::size_t nibble) {
    if (nibble < 15) return nibble;
    for (std::size_t more = 255; more == 255;) nibble += more = byte();
    return nibble;
  };
  while (plain.size() < plain_bytes) {
    const std::size_t token = byte();
    const std::size_t literals = length(token >> 4);
    if (literals > packed.size() - at) throw std::runtime_error("compressed PTX is cut short");
    plain.append(packed.substr(at, literals));
    at += literals;
    if (at == packed.size()) break;
    const std::size_t low = byte();
    const std::size_t distance = low | byte() << 8;
    const std::size_t matched = length(token & 15) + 4;
    if (distance == 0 || distance > plain.size())
      throw std::runtime_error("compressed PTX is damaged");
    for (std::size_t i = 0; i < matched; ++i) plain.push_back(plain[plain.size() - distance]);
  }
  return plain;
}

// The first entry of a kind, plain; empty where there is none.
std::string entry_in(const std::byte* data, std::uint16_t kind) {
  FileHeader header;
  std::memcpy(&header, data, sizeof header);
  const std::byte* at = data + header.header_bytes;
  const std::byte* const end = at + header.bytes;
  while (at < end) {
    EntryHeader entry;
    std::memcpy(&entry, at, sizeof entry);
    const auto* text = reinterpret_cast<const char*>(at + entry.header_bytes);
    if (entry.kind == kind) {
      if ((entry.flags & kOtherwise) != 0)
        throw std::runtime_error("it is compressed otherwise than --compress-mode=speed does");
      if ((entry.flags & kLz4) != 0)
        return plain_of_lz4({text, entry.compressed_bytes}, entry.plain_bytes);
      return {text, entry.bytes};
    }
    at += entry.header_bytes + entry.bytes;
  }
  return {};
}

// One of nvcc's objects, read as far as its kernels are asked for: most processes launch few.
class Object {
  const std::byte* data_;
  std::unique_ptr<Module> module_;
  std::optional<std::map<std::string, int>> registers_;

 public:
  explicit Object(const std::byte* data) : data_(data) {}

  // Null where there is none.
  Function* find(const std::string& kernel) {
    if (machine_code() != nullptr) return machine_code()->find(kernel);
    if (module_ == nullptr) module_ = std::make_unique<Module>(entry_in(data_, kPtx));
    return module_->find(kernel);
  }
  int registers(const std::string& kernel) {
    if (!registers_) registers_ = isobit::executor::registers_in(entry_in(data_, kMachineCode));
    return (*registers_)[kernel];
  }
};

struct Kernel {
  Object* object;
  std::string name;
  Function* function = nullptr;
  std::int64_t most_shared = 48 << 10;
};

// One launch at a time: what the executor knows of it is global.
struct State {
  std::mutex mutex;
  std::vector<std::unique_ptr<Object>> objects;
  std::unordered_map<const void*, Kernel> kernels;
  std::map<std::string, Total> totals;
  bool counts = !settings().counters.empty();  // or once somebody asks
  std::string trouble;
  cudaError_t last = cudaSuccess;
};
State& state() {
  static State* const kState = new State;
  return *kState;
}

cudaError_t failed(cudaError_t error, const std::string& why) {
  state().trouble = why;
  return state().last = error;
}

std::string all_counters() {
  std::string lines;
  for (const auto& [name, total] : state().totals) lines += json(name, total) + "\n";
  return lines;
}

void write_counters() {
  std::FILE* file = std::fopen(settings().counters.c_str(), "w");
  if (file == nullptr) return;
  std::fputs(all_counters().c_str(), file);
  std::fclose(file);
}

cudaError_t run(const void* host, dim3 grid, dim3 block, int cluster, std::size_t shared,
                void** arguments) {
  State& all = state();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.kernels.find(host);
  if (found == all.kernels.end())
    return failed(cudaErrorInvalidDeviceFunction, "a kernel that was not registered");
  Kernel& kernel = found->second;
  if (static_cast<std::int64_t>(shared) > kernel.most_shared)
    return failed(cudaErrorInvalidValue,
                  std::to_string(shared) +
                      " bytes of shared memory; the kernel's attribute allows " +
                      std::to_string(kernel.most_shared));
  try {
    if (kernel.function == nullptr) kernel.function = kernel.object->find(kernel.name);
    if (kernel.function == nullptr)
      return failed(cudaErrorInvalidDeviceFunction, "no code for " + readable(kernel.name));
    const LaunchShape shape{grid.x, static_cast<int>(block.x), cluster,
                            static_cast<std::int64_t>(shared)};
    if (!settings().counters.empty() && all.totals.empty()) std::atexit(write_counters);
    Total& total = all.totals[kernel.name];
    ++total.launches;
    total.blocks += grid.x;
    total.shape = shape;
    total.counters.in_full = all.counts;
    if (all.counts) total.registers = kernel.object->registers(kernel.name);
    launch(*kernel.function, shape, static_cast<const std::byte*>(arguments[0]), total.counters,
           settings().schedule, settings().limits);
    return cudaSuccess;
  } catch (const std::exception& error) { return failed(cudaErrorIllegalAddress, error.what()); }
}

// In place of the driver's.
CUresult encode_tensor_map(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                           void* address, const cuuint64_t* extents, const cuuint64_t* strides,
                           const cuuint32_t* box, const cuuint32_t* steps,
                           CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  const bool of_halves =
      type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const char* const wrong = isobit::executor::encode(
      {rank, address, extents, strides, box, steps, of_halves,
       interleave != CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle == CU_TENSOR_MAP_SWIZZLE_128B,
       fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE},
      std::as_writable_bytes(std::span<CUtensorMap, 1>(map, 1)));
  if (wrong != nullptr) failed(cudaErrorInvalidValue, wrong);
  return wrong == nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

extern "C" {

// What was counted since it was asked last, which is nothing at first: a line of JSON for each
// kernel. For `isobit profile`.
__attribute__((visibility("default"))) const char* isobit_executor_counters() {
  static std::string lines;
  const std::scoped_lock lock(state().mutex);
  lines = state().counts ? all_counters() : "";
  state().counts = true;
  state().totals.clear();
  return lines.c_str();
}

// Launches a kernel whose PTX the caller brings. Null, or why it could not be. For
// isobit.lab.executor.
__attribute__((visibility("default"))) const char* isobit_executor_launch(
    const isobit::executor::IsobitGivenLaunch* given) {
  const std::scoped_lock lock(state().mutex);
  static std::string trouble;
  try {
    if (!settings().wrong.empty()) throw std::invalid_argument(settings().wrong);
    launch_given(*given, state().totals, state().counts);
    return nullptr;
  } catch (const std::exception& error) {
    trouble = error.what();
    return trouble.c_str();
  }
}

void** __cudaRegisterFatBinary(void* binary) {
  auto& objects = state().objects;
  objects.push_back(std::make_unique<Object>(static_cast<const Wrapper*>(binary)->data));
  return reinterpret_cast<void**>(objects.back().get());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** module, const char* host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  state().kernels[host] = {reinterpret_cast<Object*>(module), name};
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared, cudaStream_t) {
  return run(kernel, grid, block, 1, shared, arguments);
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) {
  return cudaErrorInvalidValue;  // the project launches by cudaLaunchKernelEx only
}

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared, cudaStream_t) {
  return run(host, grid, block, 1, shared, arguments);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host,
                                void** arguments) {
  int cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
      cluster = static_cast<int>(config->attrs[i].val.clusterDim.x);
  return run(host, config->gridDim, config->blockDim, cluster, config->dynamicSmemBytes, arguments);
}
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
  const auto found = state().kernels.find(host);
  if (found == state().kernels.end() || attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
    return failed(cudaErrorInvalidValue, "an attribute that the executor does not know");
  if (value > settings().limits.shared_bytes)
    return failed(cudaErrorInvalidValue, std::to_string(value) + " bytes of shared memory");
  found->second.most_shared = value;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const bool known = std::string_view(name) == "cuTensorMapEncodeTiled";
  *entry = known ? reinterpret_cast<void*>(encode_tensor_map) : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : state().trouble.c_str();
}
cudaError_t cudaGetLastError() { return std::exchange(state().last, cudaSuccess); }
cudaError_t cudaGetDeviceCount(int* count) {
  if (!settings().wrong.empty()) return failed(cudaErrorInvalidValue, settings().wrong);
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "an executor, no GPU");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const Limits& limits = settings().limits;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = limits.capability / 10; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = limits.capability % 10; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:    *value = settings().multiprocessors; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(limits.shared_bytes);
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:          *value = 50 << 20; return cudaSuccess;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
    case cudaDevAttrGlobalMemoryBusWidth: *value = 0; return cudaSuccess;  // it has none
    default:                              return failed(cudaErrorInvalidValue, "an attribute that the executor does not know");
  }
}

cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t) {
  const std::scoped_lock lock(state().mutex);
  try {
    *pointer = isobit::executor::memory().allocate(bytes);
    return cudaSuccess;
  } catch (const std::bad_alloc&) { return failed(cudaErrorMemoryAllocation, "out of memory"); }
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
  const std::scoped_lock lock(state().mutex);
  if (pointer == nullptr || isobit::executor::memory().release(pointer)) return cudaSuccess;
  return failed(cudaErrorInvalidValue, "memory that was not allocated, or was given back already");
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

}  // extern "C"
