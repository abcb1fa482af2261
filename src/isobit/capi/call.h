// SPDX-License-Identifier: Apache-2.0
// What every call through the C interface does: turns C structs into views, and exceptions into
// status codes.
#pragma once

#include <array>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <new>
#include <string_view>

#include "isobit/core/error.h"
#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"
#include "isobit/dispatch/device_library.h"
#include "isobit/isobit.h"

namespace isobit::capi {

static_assert(ISOBIT_MAX_RANK == kMaxRank);
static_assert(sizeof(isobit_tensor) == 24 + 2 * 8 * kMaxRank, "part of the ABI");
static_assert(ISOBIT_F32 == 1 && ISOBIT_I32 == 5 && ISOBIT_U8 == std::size(kDTypes));

// Empties the thread's message.
void clear_error() noexcept;
// The status, once its message is the parts one after the other.
isobit_status failed(isobit_status status, std::initializer_list<std::string_view> parts) noexcept;

template <class Call>
isobit_status guarded(std::string_view op, Call call) noexcept {
  clear_error();
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
    return failed(ISOBIT_OUT_OF_MEMORY, {op, ": out of memory; free some memory and call again"});
  } catch (const std::exception& error) {
    return failed(ISOBIT_INTERNAL, {op, ": ", error.what()});
  } catch (...) { return failed(ISOBIT_INTERNAL, {op, ": an exception of unknown type"}); }
}

// The size of a struct before members were added at its end, each as long as a pointer.
template <class Struct>
inline constexpr std::size_t kFirstSize = sizeof(Struct);

template <class Struct>
void check_struct(std::string_view op, std::string_view name, const Struct* given) {
  require(given != nullptr, op, ": ", name, " is null");
  const std::size_t size = given->struct_size;
  require(kFirstSize<Struct> <= size && size <= sizeof(Struct) &&
              (sizeof(Struct) - size) % sizeof(void*) == 0,
          op, ": ", name, " has struct_size ", size, "; expected ", sizeof(Struct));
}

// All of a struct of which the caller may know the first members only: others are null.
template <class Struct>
Struct whole(const Struct& given) {
  Struct result{};
  std::memcpy(&result, &given, given.struct_size);
  return result;
}

// Reads the tensors of one operator's call.
struct Reader {
  std::string_view op;

  TensorView operator()(std::string_view name, const isobit_tensor* tensor) const {
    if (tensor == nullptr) return {};
    require(tensor->rank >= 1 && tensor->rank <= kMaxRank, op, ": ", name, " has ", tensor->rank,
            " dimensions; allowed: 1 to ", kMaxRank);
    require(tensor->dtype >= 1 && tensor->dtype <= std::ssize(kDTypes), op, ": ", name,
            " has dtype code ", tensor->dtype, "; allowed: 1 to ", std::size(kDTypes));
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

// The library for GPUs; Unsupported says why there is none.
const DeviceLibrary& gpu_library(std::string_view op);
void check_device(std::string_view op, std::int32_t device);
Execution execution(std::string_view op, const isobit_context* context, LentThreads& lent);

// What every entry does: body(args, read, execution), with its exceptions caught.
template <class Args, class Body>
isobit_status call(std::string_view op, const Args* args, const isobit_context* context,
                   Body body) {
  LentThreads lent;
  const isobit_status status = guarded(op, [&] {
    check_struct(op, "args", args);
    if constexpr (kFirstSize<Args> == sizeof(Args))
      body(*args, Reader{op}, execution(op, context, lent));
    else
      body(whole(*args), Reader{op}, execution(op, context, lent));
  });
  return lent.interrupted ? ISOBIT_INTERNAL : status;
}

}  // namespace isobit::capi
