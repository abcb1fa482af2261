// SPDX-License-Identifier: Apache-2.0
// What every call does: hold its arrays to the shape of the input, make its outputs, report errors.
#pragma once

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "isobit/torch/device.h"

namespace isobit::torch {

// Messages, in no locale.
inline std::string text(std::string_view words) { return std::string(words); }
inline std::string text(std::int64_t number) { return std::to_string(number); }
inline std::string text(double number) {
  char digits[32];
  return {digits, std::to_chars(digits, std::end(digits), number).ptr};
}
inline std::string text(Shape shape) {
  std::string out = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i > 0 ? ", " : "") + text(shape[i]);
  return out + (shape.size() == 1 ? ",)" : ")");
}

inline std::string text(Device device) {
  if (device.type == aoti_torch_device_type_cpu()) return "cpu";
  if (device.type == aoti_torch_device_type_cuda())
    return "cuda:" + text(std::int64_t{device.index});
  if (device.type == aoti_torch_device_type_meta()) return "meta";
  return "a device of another type";
}

template <class... Parts>
std::string joined(const Parts&... parts) {
  return (text(parts) + ...);
}

template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw std::invalid_argument(joined(parts...));
}

// PyTorch turns these into ValueError, MemoryError and RuntimeError.
inline void check(isobit_status status) {
  switch (status) {
    case ISOBIT_OK:               return;
    case ISOBIT_INVALID_ARGUMENT: throw std::invalid_argument(isobit_last_error());
    case ISOBIT_OUT_OF_MEMORY:    throw std::bad_alloc();
    default:                      throw std::runtime_error(isobit_last_error());
  }
}

inline bool same(Shape one, Shape other) { return std::ranges::equal(one, other); }

// PyTorch picks the adapter of one of the devices, and leaves it to that to notice the others.
inline void require_one_device(const char* op, const char* name, const Tensor& tensor,
                               const char* first, Device device) {
  const Device its = tensor.device();
  require(its == device, op, ": ", name, " is on ", its, "; ", first, " is on ", device);
}

// A tensor that may be absent, by its name in the schema.
struct Named {
  const char* name;
  const Tensor& tensor;
};
// That the C ABI can be shown all of them: on the device of the first, and of few enough
// dimensions.
inline void require_views(const char* op, std::initializer_list<Named> all) {
  const Named& first = *all.begin();
  for (const auto& [name, tensor] : all) {
    if (!tensor) continue;
    require_one_device(op, name, tensor, first.name, first.tensor.device());
    require(tensor.rank() <= ISOBIT_MAX_RANK, op, ": ", name, " has ", std::int64_t{tensor.rank()},
            " dimensions; must have at most ", std::int64_t{ISOBIT_MAX_RANK});
  }
}

inline constexpr std::int32_t kFloats[] = {ISOBIT_F32, ISOBIT_F16, ISOBIT_BF16, ISOBIT_F64};

inline bool among(std::int32_t dtype, DTypes allowed) {
  return std::ranges::find(allowed, isobit_dtype(dtype)) != allowed.end();
}

// Words are made where they are needed only: they would take longer than the rest of the check.
inline void require_dtype(const char* op, const char* name, std::int32_t dtype, DTypes allowed) {
  if (among(dtype, allowed)) return;
  require(false, op, ": ", name, " has dtype ", dtype_name(dtype), "; must be ",
          choice_of(allowed));
}

// A dimension of an array, counted from the end where it is negative; of a number 0 or -1.
inline std::size_t dim_of(const char* op, const char* name, std::int64_t given, int rank) {
  const std::int64_t most = std::max(rank, 1);
  require(-most <= given && given < most, op, ": ", name, " is ", given, "; allowed: ", -most,
          " to ", most - 1);
  return static_cast<std::size_t>(given < 0 ? given + most : given);
}

// Of what may stand beside an input: its own type, and float32.
inline void require_dtype_beside(const char* op, const char* name, std::int32_t dtype,
                                 std::int32_t input) {
  if (dtype == input) return;
  const std::int32_t allowed[] = {isobit_dtype(input), ISOBIT_F32};
  const DTypes these = DTypes(allowed).first(allowed[0] == ISOBIT_F32 ? 1 : 2);
  if (among(dtype, these)) return;
  require(false, op, ": ", name, " has dtype ", dtype_name(dtype), "; must be ", choice_of(these),
          ", since input has dtype ", dtype_name(input));
}

// What the arrays of one call are held to: the shape of the input, and its device.
struct Call {
  const char* op;
  const Tensor& input;
  std::int64_t hidden_dims;
  Shape shape = input.shape();
  Device device = input.device();

  Call(const char* name, const Tensor& x, std::int64_t hidden)
      : op(name), input(x), hidden_dims(hidden) {
    require(hidden >= 1 && hidden <= std::ssize(shape), op, ": normalized_shape has ", hidden,
            " dimensions; input has shape ", shape);
    require_dtype(op, "input", x.dtype(), kFloats);
  }

  Shape hidden() const { return shape.last(static_cast<std::size_t>(hidden_dims)); }

  Argument rows(const char* name, const Tensor& tensor) const {
    if (tensor && tensor.get() != input.get()) {
      require_one_device(op, name, tensor, "input", device);
      require(same(tensor.shape(), shape), op, ": ", name, " has shape ", tensor.shape(),
              "; input has shape ", shape);
      require_dtype(op, name, tensor.dtype(), kFloats);
    }
    return {tensor, hidden_dims};
  }
  Argument columns(const char* name, const Tensor& tensor) const {
    if (tensor) {
      require_one_device(op, name, tensor, "input", device);
      require(same(tensor.shape(), hidden()), op, ": ", name, " has shape ", tensor.shape(),
              "; input has shape ", shape, ", of which ", hidden(), " is normalised");
      require_dtype_beside(op, name, tensor.dtype(), input.dtype());
    }
    return {tensor, kAllDims};
  }
};

// A result, without elements where it is not wanted: then the C ABI is not told of it.
struct Output {
  Tensor tensor;
  Argument argument;

  static Output rows(const Call& call, bool wanted, std::int32_t dtype) {
    return make(call, wanted, call.shape, dtype, call.hidden_dims);
  }
  static Output columns(const Call& call, bool wanted, std::int32_t dtype) {
    return make(call, wanted, call.hidden(), dtype, kAllDims);
  }

 private:
  static Output make(const Call& call, bool wanted, Shape shape, std::int32_t dtype,
                     std::int64_t hidden_dims) {
    static constexpr std::int64_t kNothing[] = {0};
    Output output;
    output.tensor = new_output(call.input, wanted ? shape : Shape(kNothing), dtype);
    if (wanted) output.argument = Argument(output.tensor, hidden_dims, Access::write);
    return output;
  }
};

template <class Args>
Args empty_args() {
  Args args{};
  args.struct_size = sizeof args;
  return args;
}

}  // namespace isobit::torch
