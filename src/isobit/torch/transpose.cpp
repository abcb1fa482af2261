// SPDX-License-Identifier: Apache-2.0
// Two dimensions of PyTorch's tensors exchanged by the C ABI.
#include "isobit/torch/transpose.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "isobit/torch/call.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

constexpr std::int32_t kMoved[] = {ISOBIT_F32, ISOBIT_F16, ISOBIT_BF16, ISOBIT_F64,
                                   ISOBIT_I32, ISOBIT_I64, ISOBIT_BOOL, ISOBIT_U8};

// The dimensions of a dense result, and how far its elements lie apart in the input. Dimensions
// that both allow to be one are one, so that few are left however many there were.
struct Loops {
  std::vector<std::int64_t> extents, strides;

  Loops(Shape sizes, Shape steps, std::size_t dim0, std::size_t dim1) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::size_t from = i == dim0 ? dim1 : i == dim1 ? dim0 : i;
      const std::int64_t extent = sizes[from], stride = steps[from];
      if (extent == 1) continue;
      if (!extents.empty() && strides.back() == stride * extent) {
        extents.back() *= extent;
        strides.back() = stride;
      } else {
        extents.push_back(extent);
        strides.push_back(stride);
      }
    }
    while (extents.size() < 2) {
      extents.insert(extents.begin(), 1);
      strides.insert(strides.begin(), 1);
    }
  }
  bool fit() const { return extents.size() <= ISOBIT_MAX_RANK; }
};

// The C ABI exchanges the last two dimensions of x. Of views, these can be any two: with the last
// two of y exchanged beforehand, it moves each element to where Loops has it.
void move(const Loops& loops, const Tensor& x, const Tensor& y) {
  std::vector<std::int64_t> extents = loops.extents;
  auto strides = dense_strides(extents);
  const std::size_t last = extents.size() - 1;
  std::swap(extents[last], extents[last - 1]);
  std::swap(strides[last], strides[last - 1]);
  const isobit_tensor from = strided(x, loops.extents, loops.strides);
  const isobit_tensor to = strided(y, extents, Shape(strides).first(last + 1), Access::write);
  auto args = empty_args<isobit_transpose_args>();
  args.x = &from;
  args.y = &to;
  const Lent lent(x);
  check(isobit_transpose(&args, lent.context()));
}

}  // namespace

void transpose(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "transpose";
  Stack given(stack);
  const Tensor x = given.tensor();
  const Shape sizes = x.shape();
  const std::size_t dim0 = dim_of(kName, "dim0", given.integer(), x.rank());
  const std::size_t dim1 = dim_of(kName, "dim1", given.integer(), x.rank());
  const std::int32_t x_dtype = x.dtype(), dtype = given.optional_dtype(x_dtype);
  require_dtype(kName, "x", x_dtype, kMoved);
  const std::int32_t own[] = {isobit_dtype(x_dtype)};
  const DTypes allowed = among(x_dtype, kFloats) ? DTypes(kFloats) : DTypes(own);
  if (!among(dtype, allowed))
    require(false, kName, ": dtype is ", dtype_name(dtype), "; must be ", choice_of(allowed),
            ", since x has dtype ", dtype_name(x_dtype));

  std::vector<std::int64_t> shape(sizes.begin(), sizes.end());
  if (!shape.empty()) std::swap(shape[dim0], shape[dim1]);
  Tensor y = new_output(x, shape, dtype);
  const Loops loops(sizes, x.strides(), dim0, dim1);
  if (std::ranges::find(sizes, 0) != sizes.end()) {
    // nothing moves
  } else if (loops.fit()) {
    move(loops, x, y);
  } else {
    const Tensor dense = copied(x, x_dtype);
    move(Loops(sizes, dense.strides(), dim0, dim1), dense, y);
  }
  put(stack, y);
}

}  // namespace isobit::torch
