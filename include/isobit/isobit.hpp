// SPDX-License-Identifier: Apache-2.0
// The C interface for C++17 and later: arrays with their types, defaults, and exceptions.
//
//     std::vector<float> x = {1, 2, 3, 4, 5, 9}, y(6);
//     isobit::layernorm_forward({.x = {x, {2, 3}}, .y = {y, {2, 3}}});  // designated: C++20
//
// Nothing but inline code over isobit.h, which has the rules of each call: a program may use this
// header with any libisobit of the same ABI, whichever compiler made either.
#ifndef ISOBIT_HPP
#define ISOBIT_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <string>

#include "isobit/isobit.h"

namespace isobit {

// What a call that failed throws; what() names operator, argument, rule and value.
class Error : public std::runtime_error {
 public:
  Error(isobit_status status, const std::string& what)
      : std::runtime_error(what), status_(status) {}
  isobit_status status() const { return status_; }

 private:
  isobit_status status_;
};

namespace detail {

template <class T>
constexpr isobit_dtype no_dtype() {
  static_assert(sizeof(T) == 0, "no isobit_dtype is known for it: specialise isobit::dtype_of");
  return ISOBIT_F32;
}

}  // namespace detail

// A type of elements. A program's own 16-bit floats get theirs by a specialisation:
//     template <> constexpr isobit_dtype isobit::dtype_of<MyHalf> = ISOBIT_F16;
template <class T>
constexpr isobit_dtype dtype_of = detail::no_dtype<T>();
template <>
inline constexpr isobit_dtype dtype_of<float> = ISOBIT_F32;
template <>
inline constexpr isobit_dtype dtype_of<double> = ISOBIT_F64;
template <>
inline constexpr isobit_dtype dtype_of<std::int32_t> = ISOBIT_I32;
template <>
inline constexpr isobit_dtype dtype_of<std::int64_t> = ISOBIT_I64;
template <>
inline constexpr isobit_dtype dtype_of<bool> = ISOBIT_BOOL;
template <>
inline constexpr isobit_dtype dtype_of<std::uint8_t> = ISOBIT_U8;

// Extents, or distances in elements between neighbours, of each dimension.
using Extents = std::initializer_list<std::int64_t>;

// An array that is read, or by default none. It must outlive the call, not this object.
class Tensor {
 public:
  Tensor() = default;

  // `bytes` may be touched from `data` on. Without strides the elements are adjacent.
  Tensor(const void* data, std::size_t bytes, isobit_dtype dtype, Extents shape,
         Extents strides = {}) {
    if (shape.size() < 1 || shape.size() > ISOBIT_MAX_RANK ||
        (strides.size() != 0 && strides.size() != shape.size()))
      throw Error(ISOBIT_INVALID_ARGUMENT,
                  "tensor: " + std::to_string(shape.size()) + " extents and " +
                      std::to_string(strides.size()) +
                      " strides; it needs 1 to 8 extents, and as many strides or none");
    tensor_.data = const_cast<void*>(data);
    tensor_.bytes = static_cast<std::int64_t>(bytes);
    tensor_.dtype = dtype;
    tensor_.rank = static_cast<std::int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), tensor_.shape);
    std::copy(strides.begin(), strides.end(), tensor_.strides);
    if (strides.size() != 0) return;
    std::int64_t adjacent = 1;
    for (int dimension = tensor_.rank; dimension-- > 0;) {
      tensor_.strides[dimension] = adjacent;
      const std::int64_t extent = tensor_.shape[dimension];
      // What 64 bits cannot hold stays too large, and the call says so.
      if (extent > 0) adjacent = extent > INT64_MAX / adjacent ? INT64_MAX : adjacent * extent;
    }
  }

  template <class T>
  Tensor(const T* data, std::size_t count, Extents shape, Extents strides = {})
      : Tensor(data, count * sizeof(T), dtype_of<T>, shape, strides) {}

  // A vector, a span, an array: what has std::data and std::size.
  template <class Container>
  Tensor(const Container& elements, Extents shape, Extents strides = {})
      : Tensor(std::data(elements), std::size(elements), shape, strides) {}

  const isobit_tensor* get() const { return tensor_.rank == 0 ? nullptr : &tensor_; }

 private:
  isobit_tensor tensor_ = {};
};

// An array that is written, or by default none; so nothing const makes one.
class Output : public Tensor {
 public:
  Output() = default;

  Output(void* data, std::size_t bytes, isobit_dtype dtype, Extents shape, Extents strides = {})
      : Tensor(data, bytes, dtype, shape, strides) {}

  template <class T>
  Output(T* data, std::size_t count, Extents shape, Extents strides = {})
      : Output(data, count * sizeof(T), dtype_of<T>, shape, strides) {}

  template <class Container>
  Output(Container&& elements, Extents shape, Extents strides = {})
      : Output(std::data(elements), std::size(elements), shape, strides) {}
};

// What a call is lent: by default the processor, with the library's own threads and memory.
struct Context : isobit_context {
  Context() : isobit_context{} { struct_size = sizeof(isobit_context); }

  static Context on_threads(std::int32_t count) {
    Context context;
    context.threads = count;
    return context;
  }

  // The GPU that is current, by its cudaStream_t.
  static Context on_stream(void* cuda_stream) {
    Context context;
    context.device = ISOBIT_CUDA;
    context.stream = cuda_stream;
    return context;
  }
};

namespace detail {

inline void check(isobit_status status) {
  if (status != ISOBIT_OK) throw Error(status, isobit_last_error());
}

}  // namespace detail
}  // namespace isobit

#include "isobit/operators.hpp"
#include "isobit/packed.hpp"

#endif
