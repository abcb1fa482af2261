// SPDX-License-Identifier: Apache-2.0
// The C interface: turns C structs into views, and exceptions into status codes.
#include <array>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <new>
#include <string_view>

#include "isobit/core/error.h"
#include "isobit/core/order.h"
#include "isobit/dispatch/cuda_library.h"
#include "isobit/isobit.h"
#include "isobit/ops/elementwise/elementwise.h"
#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/ops/rmsnorm/rmsnorm.h"
#include "isobit/simd/parallel_for.h"

namespace isobit {
namespace {

static_assert(ISOBIT_MAX_RANK == kMaxRank);
static_assert(sizeof(isobit_tensor) == 24 + 2 * 8 * kMaxRank, "part of the ABI");

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32};
static_assert(ISOBIT_F32 == 1 && ISOBIT_I32 == std::size(kDTypes));

// A buffer, so that the message of a failed allocation needs none.
thread_local char last_error[4096];

isobit_status failed(isobit_status status, std::initializer_list<std::string_view> parts) noexcept {
  std::size_t length = 0;
  for (std::string_view part : parts)
    length += part.copy(last_error + length, sizeof last_error - 1 - length);
  last_error[length] = '\0';
  return status;
}

template <class Call>
isobit_status guarded(std::string_view op, Call call) noexcept {
  last_error[0] = '\0';
  try {
    call();
    return ISOBIT_OK;
  } catch (const InvalidArgument& error) {
    return failed(ISOBIT_INVALID_ARGUMENT, {error.what()});
  } catch (const Unsupported& error) {
    return failed(ISOBIT_UNSUPPORTED, {error.what()});
  } catch (const DeviceError& error) {
    return failed(ISOBIT_DEVICE_ERROR, {error.what()});
  } catch (const OutOfMemory& error) {
    return failed(ISOBIT_OUT_OF_MEMORY, {op, ": ", error.what()});
  } catch (const std::bad_alloc&) {
    return failed(ISOBIT_OUT_OF_MEMORY, {op, ": out of memory; free some and call again"});
  } catch (const std::exception& error) {
    return failed(ISOBIT_INTERNAL, {op, ": ", error.what()});
  } catch (...) { return failed(ISOBIT_INTERNAL, {op, ": an exception of unknown type"}); }
}

template <class Struct>
void check_struct(std::string_view op, std::string_view name, const Struct* given) {
  require(given != nullptr, op, ": ", name, " is null");
  require(given->struct_size == sizeof(Struct), op, ": ", name, " has struct_size ",
          given->struct_size, "; this library knows ", sizeof(Struct));
}

// Reads the tensors of one operator's call.
struct Reader {
  std::string_view op;

  TensorView operator()(std::string_view name, const isobit_tensor* tensor) const {
    if (tensor == nullptr) return {};
    require(tensor->rank >= 1 && tensor->rank <= kMaxRank, op, ": ", name, " has ", tensor->rank,
            " dimensions; 1 to ", kMaxRank, " are allowed");
    require(tensor->dtype >= 1 && tensor->dtype <= std::ssize(kDTypes), op, ": ", name,
            " has dtype code ", tensor->dtype, "; isobit_dtype has 1 to ", std::size(kDTypes));
    // All extents, of which the first `rank` count: copies of a known size take no calls.
    return {tensor->data,
            tensor->bytes,
            kDTypes[tensor->dtype - 1],
            tensor->rank,
            std::to_array(tensor->shape),
            std::to_array(tensor->strides)};
  }
};

// A caller's threads, and whether they were left by an exception: then outputs may be half written,
// whatever was thrown.
struct LentThreads {
  isobit_parallel_for threads{};
  bool interrupted = false;

  static void run(void* self, std::int64_t tasks, isobit_task task, void* context) {
    auto& lent = *static_cast<LentThreads*>(self);
    lent.interrupted = true;
    lent.threads.run(lent.threads.self, tasks, task, context);
    lent.interrupted = false;
  }
};

const DeviceLibrary& gpu_library(std::string_view op) {
  const CudaLibrary& cuda = cuda_library();
  if (cuda.library == nullptr)
    throw Unsupported(text(op, ": there is no GPU to use: ", cuda.missing));
  return *cuda.library;
}

void check_device(std::string_view op, std::int32_t device) {
  require(device == ISOBIT_CPU || device == ISOBIT_CUDA, op, ": device is ", device,
          "; isobit_device has 0 and 1");
}

Execution execution(std::string_view op, const isobit_context* context, LentThreads& lent) {
  if (context == nullptr) return simd::here();
  check_struct(op, "context", context);
  check_device(op, context->device);
  require(context->threads >= 0 && context->threads <= ISOBIT_MAX_THREADS, op, ": context has ",
          context->threads, " threads; 0 to ", ISOBIT_MAX_THREADS, " are allowed");
  const isobit_allocator& allocator = context->allocator;
  require((allocator.allocate == nullptr) == (allocator.release == nullptr), op,
          ": context has an allocator with one function; allocate and release are both needed");

  Execution result = context->device == ISOBIT_CUDA ? execution_on(gpu_library(op), context->stream)
                                                    : simd::here(context->threads);
  lent.threads = context->parallel_for;
  if (lent.threads.run != nullptr) {
    result.parallel_for = {LentThreads::run, &lent};
    result.machine.elements_a_thread = 16 << 10;  // who lends threads keeps them awake
  }
  if (allocator.allocate != nullptr)
    result.allocator = {allocator.allocate, allocator.release, allocator.self};
  return result;
}

// What every entry does: body(args, read, execution), with its exceptions caught.
template <class Args, class Body>
isobit_status call(std::string_view op, const Args* args, const isobit_context* context,
                   Body body) {
  LentThreads lent;
  const isobit_status status = guarded(op, [&] {
    check_struct(op, "args", args);
    body(*args, Reader{op}, execution(op, context, lent));
  });
  return lent.interrupted ? ISOBIT_INTERNAL : status;
}

}  // namespace
}  // namespace isobit

using namespace isobit;

const char* isobit_version(void) { return ISOBIT_VERSION; }

int32_t isobit_order_version(void) { return order::kVersion; }

const char* isobit_last_error(void) { return last_error; }

isobit_status isobit_device_status(int32_t device) {
  return guarded("device", [&] {
    check_device("isobit_device_status", device);
    if (device == ISOBIT_CUDA) gpu_library("isobit_device_status");
  });
}

isobit_status isobit_layernorm_forward(const isobit_layernorm_forward_args* args,
                                       const isobit_context* context) {
  return call("layernorm", args, context,
              [](const auto& given, Reader read, const Execution& execution) {
                layernorm::forward({.x = read("x", given.x),
                                    .residual = read("residual", given.residual),
                                    .weight = read("weight", given.weight),
                                    .bias = read("bias", given.bias),
                                    .y = read("y", given.y),
                                    .sum = read("sum", given.sum),
                                    .mean = read("mean", given.mean),
                                    .rstd = read("rstd", given.rstd),
                                    .eps = given.eps,
                                    .zero_centred = given.zero_centred != 0,
                                    .dropout = given.dropout,
                                    .dropout_seed = given.dropout_seed,
                                    .hidden_dims = given.hidden_dims == 0 ? 1 : given.hidden_dims},
                                   execution);
              });
}

isobit_status isobit_layernorm_backward(const isobit_layernorm_backward_args* args,
                                        const isobit_context* context) {
  return call("layernorm backward", args, context,
              [](const auto& given, Reader read, const Execution& execution) {
                layernorm::backward({.x = read("x", given.x),
                                     .grad_y = read("grad_y", given.grad_y),
                                     .weight = read("weight", given.weight),
                                     .mean = read("mean", given.mean),
                                     .rstd = read("rstd", given.rstd),
                                     .grad_sum = read("grad_sum", given.grad_sum),
                                     .grad_x = read("grad_x", given.grad_x),
                                     .grad_residual = read("grad_residual", given.grad_residual),
                                     .grad_weight = read("grad_weight", given.grad_weight),
                                     .grad_bias = read("grad_bias", given.grad_bias),
                                     .eps = given.eps,
                                     .zero_centred = given.zero_centred != 0,
                                     .dropout = given.dropout,
                                     .dropout_seed = given.dropout_seed,
                                     .hidden_dims = given.hidden_dims == 0 ? 1 : given.hidden_dims},
                                    execution);
              });
}

isobit_status isobit_rmsnorm_forward(const isobit_rmsnorm_forward_args* args,
                                     const isobit_context* context) {
  return call("rmsnorm", args, context,
              [](const auto& given, Reader read, const Execution& execution) {
                rmsnorm::forward({.x = read("x", given.x),
                                  .residual = read("residual", given.residual),
                                  .weight = read("weight", given.weight),
                                  .y = read("y", given.y),
                                  .sum = read("sum", given.sum),
                                  .rstd = read("rstd", given.rstd),
                                  .eps = given.eps,
                                  .zero_centred = given.zero_centred != 0,
                                  .dropout = given.dropout,
                                  .dropout_seed = given.dropout_seed,
                                  .hidden_dims = given.hidden_dims == 0 ? 1 : given.hidden_dims},
                                 execution);
              });
}

isobit_status isobit_rmsnorm_backward(const isobit_rmsnorm_backward_args* args,
                                      const isobit_context* context) {
  return call("rmsnorm backward", args, context,
              [](const auto& given, Reader read, const Execution& execution) {
                rmsnorm::backward({.x = read("x", given.x),
                                   .grad_y = read("grad_y", given.grad_y),
                                   .weight = read("weight", given.weight),
                                   .rstd = read("rstd", given.rstd),
                                   .grad_sum = read("grad_sum", given.grad_sum),
                                   .grad_x = read("grad_x", given.grad_x),
                                   .grad_residual = read("grad_residual", given.grad_residual),
                                   .grad_weight = read("grad_weight", given.grad_weight),
                                   .eps = given.eps,
                                   .zero_centred = given.zero_centred != 0,
                                   .dropout = given.dropout,
                                   .dropout_seed = given.dropout_seed,
                                   .hidden_dims = given.hidden_dims == 0 ? 1 : given.hidden_dims},
                                  execution);
              });
}

isobit_status isobit_elementwise_add(const isobit_elementwise_add_args* args,
                                     const isobit_context* context) {
  return call("elementwise", args, context,
              [](const auto& given, Reader read, const Execution& execution) {
                elementwise::run({.x = read("x", given.x),
                                  .residual = read("residual", given.residual),
                                  .y = read("y", given.y),
                                  .kind = elementwise::Kind::add},
                                 execution);
              });
}

isobit_status isobit_elementwise_increment(const isobit_elementwise_increment_args* args,
                                           const isobit_context* context) {
  return call("elementwise", args, context,
              [](const auto& given, Reader read, const Execution& execution) {
                elementwise::run({.x = read("x", given.x),
                                  .residual = {},
                                  .y = read("y", given.y),
                                  .kind = elementwise::Kind::increment},
                                 execution);
              });
}
