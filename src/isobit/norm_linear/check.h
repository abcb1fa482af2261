// SPDX-License-Identifier: Apache-2.0
// The rules of the arguments. An operator whose norm has no bias or mean has no such members.
#pragma once

#include "isobit/core/error.h"
#include "isobit/norm_linear/problem.h"
#include "isobit/norms/check.h"

namespace isobit::norm_linear {

namespace detail {

#define ISOBIT_MEMBER(name)                       \
  template <class Args>                           \
  const TensorView& name##_of(const Args& args) { \
    if constexpr (requires { args.name; })        \
      return args.name;                           \
    else                                          \
      return norms::detail::kAbsent;              \
  }
ISOBIT_MEMBER(norm_bias)
ISOBIT_MEMBER(mean)
ISOBIT_MEMBER(grad_norm_bias)
#undef ISOBIT_MEMBER

// The names that a pass has for z and for what is like it and like the bias.
struct Names {
  std::string_view z, bias;
};

// The checks of one call: those of a norm whose rows are multiplied, and of that product.
class Checking : public norms::detail::NormChecker {
 public:
  Checking(std::string_view op, const TensorView& x, const TensorView& weight)
      : NormChecker(op, x, 1), op_(op), x_(x) {
    any_strides("weight", weight, Access::read);
    if (real() == DType::f64)
      dtype("weight", weight, {DType::f64});
    else
      dtype("weight", weight, {DType::f32, DType::f16, DType::bf16});
    require(weight.rank == 2 && weight.shape[1] == this->x().cols, op, ": weight has shape ",
            Shape{weight}, "; must be (features, ", this->x().cols, "), as x has ", this->x().cols,
            " columns");
    product_.dtype = weight.dtype;
    product_.rows = this->x().rows;
    product_.cols = this->x().cols;
    product_.features = weight.shape[0];
    product_.weight = weight;
  }

  Product product(matmul::Activation activation, matmul::Arithmetic arithmetic) const {
    constexpr std::int64_t kActivations = 5, kArithmetics = 2;
    Product result = product_;
    result.activation = activation;
    result.arithmetic = arithmetic;
    require(0 <= static_cast<int>(activation) && static_cast<int>(activation) < kActivations, op_,
            ": activation is ", static_cast<int>(activation), "; allowed: 0 to ", kActivations - 1);
    require(0 <= static_cast<int>(arithmetic) && static_cast<int>(arithmetic) < kArithmetics, op_,
            ": arithmetic is ", static_cast<int>(arithmetic), "; allowed: 0 to ", kArithmetics - 1);
    return result;
  }

  // z itself, in the type of the weight and with the leading dimensions of x.
  Matrix z(std::string_view name, const TensorView& view, Access access) const {
    const Matrix result = matrix(name, view, access);
    same_dtype(name, view, "weight", product_.dtype);
    TensorView expected = x_;
    expected.shape[x_.rank - 1] = product_.features;
    same_shape(name, view, "rows of x by features of weight", expected);
    return result;
  }
  Matrix like_z(std::string_view name, const TensorView& view, Access access) const {
    return view.given() ? z(name, view, access) : Matrix{};
  }
  TensorView per_feature(std::string_view name, const TensorView& view, Access access) const {
    if (!view.given()) return view;
    any_strides(name, view, access);
    if (real() == DType::f64)
      dtype(name, view, {DType::f64});
    else
      dtype(name, view, {product_.dtype, DType::f32});
    require(view.rank == 1 && view.shape[0] == product_.features, op_, ": ", name, " has shape ",
            Shape{view}, "; must be (", product_.features, "), as weight has ", product_.features,
            " rows");
    return view;
  }
  // y, or the gradient of the weight.
  Matrix in_dtype_of_weight(std::string_view name, const TensorView& view,
                            std::string_view other_name, const TensorView& other,
                            Access access) const {
    if (!view.given()) return {};
    same_dtype(name, view, "weight", product_.dtype);
    const Matrix result = matrix(name, view, access);
    same_shape(name, view, other_name, other);
    return result;
  }

  Named column(std::string_view name, const TensorView& view, const void* data) const {
    return vector_of(name, view, const_cast<void*>(data), x().cols);
  }
  Named row(std::string_view name, const TensorView& view, const void* data) const {
    return vector_of(name, view, const_cast<void*>(data), x().rows);
  }
  Named anyhow(std::string_view name, const TensorView& view) const {
    return {name, view, view.given() ? span(view) : Matrix{}};
  }

 private:
  struct Shape {
    const TensorView& view;
    friend std::ostream& operator<<(std::ostream& out, const Shape& extents) {
      out << '(';
      for (int i = 0; i < extents.view.rank; ++i)
        out << (i > 0 ? ", " : "") << extents.view.shape[static_cast<std::size_t>(i)];
      return out << ')';
    }
  };

  std::string_view op_;
  const TensorView& x_;
  Product product_;
};

}  // namespace detail

template <class Fused>
ForwardProblem check_forward(const typename Fused::ForwardArgs& args) {
  constexpr std::string_view kOp = Fused::kName;
  const detail::Checking check(kOp, args.x, args.weight);
  const TensorView& norm_bias = detail::norm_bias_of(args);
  const TensorView& mean = detail::mean_of(args);
  const Matrix& x = check.x();
  const norms::Dropout dropout = check.dropout(kOp, args.dropout, args.dropout_seed);
  ForwardProblem problem;
  problem.product = check.product(args.activation, args.arithmetic);
  const Matrix z = check.z("z", args.z, Access::write);
  const Matrix residual = check.like_z("residual", args.residual, Access::read);
  const Matrix pre = check.like_z("pre", args.pre, Access::write);
  problem.norm = {
      .rows = x.rows,
      .cols = x.cols,
      .dtype = args.x.dtype,
      .weight_dtype = check.weights_dtype({check.column("norm_weight", args.norm_weight, nullptr),
                                           check.column("norm_bias", norm_bias, nullptr)}),
      .y_dtype = args.weight.dtype,
      .x = x,
      .residual = check.like_x("x_residual", args.x_residual, Access::read),
      .sum = check.like_x("sum", args.sum, Access::write),
      .y = check.in_dtype_of_weight("y", args.y, "x", args.x, Access::write),
      .weight = check.per_column("norm_weight", args.norm_weight),
      .bias = check.per_column("norm_bias", norm_bias),
      .mean = check.per_row("mean", mean),
      .rstd = check.per_row("rstd", args.rstd),
      .zero_centered = args.zero_centered,
      .eps = check.finite("eps", args.eps, check.real()),
      .dropout = dropout};
  const norms::ForwardProblem& norm = problem.norm;
  require(!args.sum.given() || args.x_residual.given() || dropout.drops(), kOp,
          ": sum is given without x_residual or dropout; it would be a copy of x");
  problem.bias = check.per_feature("bias", args.bias, Access::read);
  problem.z = view_of(z, args.weight.dtype);
  if (args.residual.given()) problem.residual = view_of(residual, args.weight.dtype);
  if (args.pre.given()) problem.pre = view_of(pre, args.weight.dtype);
  check.no_overlap({{"z", args.z, z, {"residual"}},
                    {"pre", args.pre, pre},
                    {"sum", args.sum, norm.sum, {"x", "x_residual"}},
                    {"y", args.y, norm.y},
                    check.row("mean", mean, norm.mean),
                    check.row("rstd", args.rstd, norm.rstd)},
                   {{"x", args.x, x},
                    {"x_residual", args.x_residual, norm.residual},
                    {"residual", args.residual, residual},
                    check.column("norm_weight", args.norm_weight, norm.weight),
                    check.column("norm_bias", norm_bias, norm.bias),
                    check.anyhow("weight", args.weight),
                    check.anyhow("bias", args.bias)});
  return problem;
}

template <class Fused>
BackwardProblem check_backward(const typename Fused::BackwardArgs& args) {
  constexpr std::string_view kOp = Fused::kBackward;
  const detail::Checking check(kOp, args.x, args.weight);
  const TensorView& norm_bias = detail::norm_bias_of(args);
  const TensorView& grad_norm_bias = detail::grad_norm_bias_of(args);
  const Matrix& x = check.x();
  const norms::Dropout dropout = check.dropout(kOp, args.dropout, args.dropout_seed);
  BackwardProblem problem;
  problem.product = check.product(args.activation, args.arithmetic);
  const Matrix grad_z = check.z("grad_z", args.grad_z, Access::read);
  const Matrix pre = check.like_z("pre", args.pre, Access::read);
  const bool bends = args.activation != matmul::Activation::none;
  require(!bends || args.pre.given(), kOp, ": activation is given, but pre is not");
  const DType weight_dtype =
      check.weights_dtype({check.column("norm_weight", args.norm_weight, nullptr),
                           check.column("norm_bias", norm_bias, nullptr),
                           check.column("grad_norm_weight", args.grad_norm_weight, nullptr),
                           check.column("grad_norm_bias", grad_norm_bias, nullptr)});
  problem.norm = {
      .rows = x.rows,
      .cols = x.cols,
      .dtype = args.x.dtype,
      .weight_dtype = weight_dtype,
      .grad_y_dtype = args.weight.dtype,
      .x = x,
      .grad_y = {},
      .grad_sum = check.like_x("grad_sum", args.grad_sum, Access::read),
      .grad_x = check.like_x("grad_x", args.grad_x, Access::write),
      .grad_residual = check.like_x("grad_x_residual", args.grad_x_residual, Access::write),
      .weight = check.per_column("norm_weight", args.norm_weight),
      .grad_weight = check.per_column("grad_norm_weight", args.grad_norm_weight),
      .grad_bias = check.per_column("grad_norm_bias", grad_norm_bias),
      .mean = nullptr,
      .rstd = nullptr,
      .zero_centered = args.zero_centered,
      .eps = check.finite("eps", args.eps, check.real()),
      .dropout = dropout};
  const norms::BackwardProblem& norm = problem.norm;
  problem.again = {.rows = x.rows,
                   .cols = x.cols,
                   .dtype = args.x.dtype,
                   .weight_dtype = weight_dtype,
                   .y_dtype = args.weight.dtype,
                   .x = x,
                   .residual = {},
                   .sum = {},
                   .y = {},
                   .weight = norm.weight,
                   .bias = check.per_column("norm_bias", norm_bias),
                   .mean = nullptr,
                   .rstd = nullptr,
                   .zero_centered = args.zero_centered,
                   .eps = norm.eps};
  require(!args.grad_x_residual.given() || dropout.drops(), kOp,
          ": grad_x_residual is given without dropout; it would be a copy of grad_x");
  const Matrix grad_weight = check.in_dtype_of_weight("grad_weight", args.grad_weight, "weight",
                                                      args.weight, Access::write);
  problem.grad_z = view_of(grad_z, args.weight.dtype);
  if (bends) problem.pre = view_of(pre, args.weight.dtype);
  if (args.grad_weight.given()) problem.grad_weight = view_of(grad_weight, args.weight.dtype);
  problem.grad_bias = check.per_feature("grad_bias", args.grad_bias, Access::write);
  check.no_overlap({{"grad_x", args.grad_x, norm.grad_x, {"x", "grad_sum"}},
                    {"grad_x_residual", args.grad_x_residual, norm.grad_residual, {"grad_sum"}},
                    check.column("grad_norm_weight", args.grad_norm_weight, norm.grad_weight),
                    check.column("grad_norm_bias", grad_norm_bias, norm.grad_bias),
                    {"grad_weight", args.grad_weight, grad_weight},
                    check.anyhow("grad_bias", args.grad_bias)},
                   {{"grad_z", args.grad_z, grad_z},
                    {"x", args.x, x},
                    {"grad_sum", args.grad_sum, norm.grad_sum},
                    check.column("norm_weight", args.norm_weight, norm.weight),
                    check.column("norm_bias", norm_bias, problem.again.bias),
                    check.anyhow("weight", args.weight),
                    {"pre", args.pre, pre}});
  return problem;
}

}  // namespace isobit::norm_linear
