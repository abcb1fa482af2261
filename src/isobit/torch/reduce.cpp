// SPDX-License-Identifier: Apache-2.0
// Reductions of PyTorch's tensors by the C ABI, over any of their dimensions, and their gradients.
#include "isobit/torch/reduce.h"

#include <vector>

#include "isobit/torch/call.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

using Sizes = std::vector<std::int64_t>;

// Which dimensions are reduced.
std::vector<bool> reduced_of(const char* op, const Sizes& dims, std::int64_t rank) {
  std::vector<bool> reduced(static_cast<std::size_t>(rank));
  for (const std::int64_t dim : dims) {
    require(-rank <= dim && dim < 0, op, ": dims has ", dim, "; allowed: ", -rank, " to -1");
    const auto at = static_cast<std::size_t>(dim + rank);
    require(!reduced[at], op, ": dims has ", dim, " twice");
    reduced[at] = true;
  }
  return reduced;
}

Sizes kept_shape(Shape shape, const std::vector<bool>& reduced) {
  Sizes kept;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!reduced[i]) kept.push_back(shape[i]);
  return kept;
}

// Dimensions of three arrays, of which some may be absent, and what all allow to be one as one.
struct Loops {
  Sizes extents, x, y, grad_x;  // from one element to the next

  void add(std::int64_t extent, std::int64_t of_x, std::int64_t of_y, std::int64_t of_grad_x) {
    if (extent == 1) return;
    if (!extents.empty() && x.back() == of_x * extent && y.back() == of_y * extent &&
        grad_x.back() == of_grad_x * extent) {
      extents.back() *= extent;
      x.back() = of_x;
      y.back() = of_y;
      grad_x.back() = of_grad_x;
      return;
    }
    extents.push_back(extent);
    x.push_back(of_x);
    y.push_back(of_y);
    grad_x.push_back(of_grad_x);
  }
  void at_least_one() {
    if (extents.empty()) extents = x = y = grad_x = {1};
  }
};

Sizes joined_sizes(const Sizes& kept, const Sizes& reduced) {
  Sizes all(kept);
  all.insert(all.end(), reduced.begin(), reduced.end());
  return all;
}

// The views that the C ABI is shown: x and its gradient with the kept dimensions first, and y.
struct Views {
  isobit_tensor x{}, y{}, grad_x{};
  bool fit = false;

  // grad_x is dense, and may be absent.
  Views(const Tensor& x_tensor, const Tensor& y_tensor, const Tensor& grad_x_tensor,
        const std::vector<bool>& reduced, Access y_access) {
    const Shape shape = x_tensor.shape(), strides = x_tensor.strides();
    const Shape y_strides = y_tensor.strides();
    const auto dense = dense_strides(shape);
    Loops kept, inner;
    std::size_t of_y = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const std::int64_t of_grad_x = grad_x_tensor ? dense[i] : 0;
      if (reduced[i])
        inner.add(shape[i], strides[i], 0, of_grad_x);
      else
        kept.add(shape[i], strides[i], y_strides[of_y++], of_grad_x);
    }
    kept.at_least_one();
    inner.at_least_one();
    fit = kept.extents.size() + inner.extents.size() <= ISOBIT_MAX_RANK;
    if (!fit) return;
    const Sizes extents = joined_sizes(kept.extents, inner.extents);
    x = strided(x_tensor, extents, joined_sizes(kept.x, inner.x));
    y = strided(y_tensor, kept.extents, kept.y, y_access);
    if (grad_x_tensor)
      grad_x =
          strided(grad_x_tensor, extents, joined_sizes(kept.grad_x, inner.grad_x), Access::write);
  }
};

// Of more dimensions than the C ABI has, those that remain of dense tensors are too many still only
// where many in turn are kept and reduced.
void require_fit(const char* op, const Views& views) {
  require(views.fit, op, ": x has more than ", std::int64_t{ISOBIT_MAX_RANK},
          " groups of dimensions that are kept and reduced in turn");
}

Tensor reduced_tensor(const char* op, const Tensor& x, const Sizes& dims, std::int32_t kind,
                      double correction, std::int32_t dtype) {
  auto args = empty_args<isobit_reduce_forward_args>();
  args.reduction = kind;
  args.correction = correction;
  require_dtype(op, "x", x.dtype(), kFloats);
  require_dtype(op, "dtype", dtype, kFloats);
  const std::vector<bool> reduced = reduced_of(op, dims, x.rank());
  Tensor y = new_output(x, kept_shape(x.shape(), reduced), dtype);
  const Views first(x, y, Tensor(), reduced, Access::write);
  Tensor dense;
  if (!first.fit) dense = copied(x, x.dtype());
  const Views views = first.fit ? first : Views(dense, y, Tensor(), reduced, Access::write);
  require_fit(op, views);
  args.x = &views.x;
  args.y = &views.y;
  const Lent lent(x);
  check(isobit_reduce_forward(&args, lent.context()));
  return y;
}

}  // namespace

// A sum or a mean.
void total(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Tensor x = given.tensor();
  const Sizes dims = given.integers();
  const std::int32_t kind = given.flag() ? 1 : 0;
  const std::int32_t dtype = given.optional_dtype(x.dtype());
  put(stack, reduced_tensor("total", x, dims, kind, 0, dtype));
}

void reduce(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Tensor x = given.tensor();
  const Sizes dims = given.integers();
  const auto kind = static_cast<std::int32_t>(given.integer());
  const double correction = given.number();
  const std::int32_t dtype = given.optional_dtype(x.dtype());
  put(stack, reduced_tensor("reduce", x, dims, kind, correction, dtype));
}

void reduce_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "reduce_backward";
  Stack given(stack);
  const Tensor grad_y = given.tensor(), x = given.tensor();
  const Sizes dims = given.integers();
  auto args = empty_args<isobit_reduce_backward_args>();
  args.reduction = static_cast<std::int32_t>(given.integer());
  args.correction = given.number();
  require_dtype(kName, "x", x.dtype(), kFloats);
  require_dtype(kName, "grad_y", grad_y.dtype(), kFloats);
  const std::vector<bool> reduced = reduced_of(kName, dims, x.rank());
  const Sizes kept = kept_shape(x.shape(), reduced);
  require(same(grad_y.shape(), kept), kName, ": grad_y has shape ", grad_y.shape(),
          "; x has shape ", x.shape(), ", of which ", Shape(kept), " is kept");
  require_one_device(kName, "grad_y", grad_y, "x", x.device());
  Tensor grad_x = new_output(x, x.shape(), x.dtype());
  const Views first(x, grad_y, grad_x, reduced, Access::read);
  Tensor dense, dense_grad;
  if (!first.fit) {
    dense = copied(x, x.dtype());
    dense_grad = copied(grad_y, grad_y.dtype());
  }
  const Views views = first.fit ? first : Views(dense, dense_grad, grad_x, reduced, Access::read);
  require_fit(kName, views);
  args.x = &views.x;
  args.grad_y = &views.y;
  args.grad_x = &views.grad_x;
  const Lent lent(x);
  check(isobit_reduce_backward(&args, lent.context()));
  put(stack, grad_x);
}

}  // namespace isobit::torch
