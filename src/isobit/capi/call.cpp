// SPDX-License-Identifier: Apache-2.0
// Messages, devices and contexts of calls through the C interface.
#include "isobit/capi/call.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>

#include "isobit/core/order.h"
#include "isobit/dispatch/gpu_library.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::capi {
namespace {

// A buffer, so that the message of a failed allocation needs none.
thread_local char last_error[4096];

std::atomic<Isa> widest_isa{kIsas[std::size(kIsas) - 1]};

// No wider instruction set than was asked for.
Execution restricted(Execution execution) {
  Isa& isa = execution.machine.isa;
  isa = std::min(isa, widest_isa.load(std::memory_order_relaxed));
  return execution;
}

}  // namespace

void clear_error() noexcept { last_error[0] = '\0'; }

isobit_status failed(isobit_status status, std::initializer_list<std::string_view> parts) noexcept {
  std::size_t length = 0;
  for (std::string_view part : parts)
    length += part.copy(last_error + length, sizeof last_error - 1 - length);
  last_error[length] = '\0';
  return status;
}

const DeviceLibrary& gpu_library(std::string_view op) {
  const GpuLibrary& cuda = cuda_library();
  if (cuda.library == nullptr) throw Unsupported(text(op, ": no usable GPU: ", cuda.missing));
  return *cuda.library;
}

void check_device(std::string_view op, std::int32_t device) {
  require(device == ISOBIT_CPU || device == ISOBIT_CUDA, op, ": device is ", device,
          "; allowed: 0 and 1");
}

Execution execution(std::string_view op, const isobit_context* context, LentThreads& lent) {
  if (context == nullptr) return restricted(simd::here());
  check_struct(op, "context", context);
  check_device(op, context->device);
  require(context->threads >= 0 && context->threads <= ISOBIT_MAX_THREADS, op, ": context has ",
          context->threads, " threads; allowed: 0 to ", ISOBIT_MAX_THREADS);
  const isobit_allocator& allocator = context->allocator;
  require((allocator.allocate == nullptr) == (allocator.release == nullptr), op,
          ": context has only one of allocate and release; give both or neither");

  Execution result = context->device == ISOBIT_CUDA ? execution_on(gpu_library(op), context->stream)
                                                    : restricted(simd::here(context->threads));
  lent.threads = context->parallel_for;
  if (lent.threads.run != nullptr) result.parallel_for = {LentThreads::run, &lent};
  if (allocator.allocate != nullptr)
    result.allocator = {allocator.allocate, allocator.release, allocator.self};
  return result;
}

}  // namespace isobit::capi

using namespace isobit;

const char* isobit_version(void) { return ISOBIT_VERSION; }

int32_t isobit_order_version(void) { return order::kVersion; }

const char* isobit_last_error(void) { return capi::last_error; }

isobit_status isobit_device_status(int32_t device) {
  return capi::guarded("device", [&] {
    capi::check_device("isobit_device_status", device);
    if (device == ISOBIT_CUDA) capi::gpu_library("isobit_device_status");
  });
}

isobit_status isobit_set_isa(const char* name) {
  return capi::guarded("isobit_set_isa", [&] {
    const std::string_view wanted = name == nullptr ? "auto" : name;
    const auto here = Machine::isas_here();
    if (wanted == "auto") {
      capi::widest_isa = kIsas[std::size(kIsas) - 1];
      return;
    }
    const std::optional<Isa> isa = isa_named(wanted);
    if (!isa || std::ranges::find(here, *isa) == here.end()) {
      std::string known = "auto";
      for (const Isa one : here) known += text(", ", name_of(one));
      throw InvalidArgument(text("isobit_set_isa: '", wanted,
                                 "' is no instruction set of this processor; known: ", known));
    }
    capi::widest_isa = *isa;
  });
}
