// SPDX-License-Identifier: Apache-2.0
// The rules of a norm's arguments. Norms differ in which arguments they have: one without mean or
// bias has no such member.
#pragma once

#include "isobit/core/error.h"
#include "isobit/norms/problem.h"

namespace isobit::norms {

namespace detail {

inline constexpr TensorView kAbsent{};

// A member that not every norm has.
#define ISOBIT_MEMBER(name)                       \
  template <class Args>                           \
  const TensorView& name##_of(const Args& args) { \
    if constexpr (requires { args.name; })        \
      return args.name;                           \
    else                                          \
      return kAbsent;                             \
  }
ISOBIT_MEMBER(bias)
ISOBIT_MEMBER(mean)
ISOBIT_MEMBER(grad_bias)
#undef ISOBIT_MEMBER

// The checks of one call whose matrices are rows of `hidden_dims` dimensions.
class NormChecker : public Checker {
 public:
  NormChecker(std::string_view op, const TensorView& x, std::int64_t hidden_dims)
      : Checker(op), x_(x), hidden_dims_(hidden_dims) {
    if (x.given()) dtype("x", x, {DType::f32, DType::f16, DType::bf16, DType::f64});
    rows_ = matrix("x", merged("x", x, hidden_dims), Access::read);
    real_ = real_of(x.dtype);
  }

  const Matrix& x() const { return rows_; }
  DType real() const { return real_; }

  // A matrix with x's shape and type.
  Matrix like_x(std::string_view name, const TensorView& view, Access access) const {
    if (!view.given()) return {};
    same_dtype(name, view, "x", x_.dtype);
    return shaped(name, view, access);
  }
  // A matrix with x's shape and perhaps another type.
  Matrix like_y(std::string_view name, const TensorView& view, Access access) const {
    if (view.given() && real_ == DType::f64)
      dtype(name, view, {DType::f64});
    else if (view.given())
      dtype(name, view, {DType::f32, DType::f16, DType::bf16});
    return shaped(name, view, access);
  }
  void* per_column(std::string_view name, const TensorView& view) const {
    return vector(name, view, rows_.cols, "columns").data;
  }
  void* per_row(std::string_view name, const TensorView& view) const {
    if (view.given()) dtype(name, view, {real_});
    return vector(name, view, rows_.rows, "rows").data;
  }

  // For no_overlap().
  Named vector_of(std::string_view name, const TensorView& view, void* data,
                  std::int64_t count) const {
    return {name, view, {static_cast<std::byte*>(data), 1, count, count}};
  }

  // The type that all given weights share; x's where none is given.
  DType weights_dtype(std::initializer_list<Named> weights) const {
    const Named* first = nullptr;
    for (const Named& weight : weights) {
      if (!weight.view.given()) continue;
      if (first == nullptr) {
        x_.dtype == DType::f32 ? dtype(weight.name, weight.view, {DType::f32})
                               : dtype(weight.name, weight.view, {x_.dtype, DType::f32});
        first = &weight;
      }
      same_dtype(weight.name, weight.view, first->name, first->view.dtype);
    }
    return first == nullptr ? x_.dtype : first->view.dtype;
  }

  Dropout dropout(std::string_view op, double p, std::uint64_t seed) const {
    require(p >= 0 && p < 1, op, ": dropout is ", p, "; must be at least 0 and less than 1");
    return {p, seed};
  }

 private:
  Matrix shaped(std::string_view name, const TensorView& view, Access access) const {
    const Matrix result = matrix(name, merged(name, view, hidden_dims_), access);
    same_shape(name, view, "x", x_);
    return result;
  }

  const TensorView& x_;
  std::int64_t hidden_dims_;
  Matrix rows_;
  DType real_;
};

}  // namespace detail

template <class Args>
ForwardProblem check_forward(std::string_view op, const Args& args) {
  const detail::NormChecker check(op, args.x, args.hidden_dims);
  const TensorView& bias = detail::bias_of(args);
  const TensorView& mean = detail::mean_of(args);
  const Matrix& x = check.x();
  const Dropout dropout = check.dropout(op, args.dropout, args.dropout_seed);
  ForwardProblem problem{.rows = x.rows,
                         .cols = x.cols,
                         .dtype = args.x.dtype,
                         .weight_dtype = {},
                         .y_dtype = args.y.dtype,
                         .x = x,
                         .residual = check.like_x("residual", args.residual, Access::read),
                         .sum = check.like_x("sum", args.sum, Access::write),
                         .y = check.like_y("y", args.y, Access::write),
                         .weight = check.per_column("weight", args.weight),
                         .bias = check.per_column("bias", bias),
                         .mean = check.per_row("mean", mean),
                         .rstd = check.per_row("rstd", args.rstd),
                         .zero_centered = args.zero_centered,
                         .eps = check.finite("eps", args.eps, check.real()),
                         .dropout = dropout};
  require(!args.sum.given() || args.residual.given() || dropout.drops(), op,
          ": sum is given without residual or dropout; it would be a copy of x");
  const auto column = [&](std::string_view name, const TensorView& view, const void* data) {
    return check.vector_of(name, view, const_cast<void*>(data), x.cols);
  };
  problem.weight_dtype =
      check.weights_dtype({column("weight", args.weight, nullptr), column("bias", bias, nullptr)});
  check.no_overlap({{"y", args.y, problem.y, {"x", "residual"}},
                    {"sum", args.sum, problem.sum, {"x", "residual"}},
                    check.vector_of("mean", mean, problem.mean, x.rows),
                    check.vector_of("rstd", args.rstd, problem.rstd, x.rows)},
                   {{"x", args.x, x},
                    {"residual", args.residual, problem.residual},
                    column("weight", args.weight, problem.weight),
                    column("bias", bias, problem.bias)});
  // Rows without columns leave nothing to do but their statistics.
  if (x.cols == 0 && problem.mean == nullptr && problem.rstd == nullptr) problem.rows = 0;
  return problem;
}

template <class Args>
BackwardProblem check_backward(std::string_view op, const Args& args) {
  const detail::NormChecker check(op, args.x, args.hidden_dims);
  const TensorView& mean = detail::mean_of(args);
  const TensorView& grad_bias = detail::grad_bias_of(args);
  constexpr bool kHasMean = requires { args.mean; };
  const Matrix& x = check.x();
  const Dropout dropout = check.dropout(op, args.dropout, args.dropout_seed);
  BackwardProblem problem{
      .rows = x.rows,
      .cols = x.cols,
      .dtype = args.x.dtype,
      .weight_dtype = {},
      .grad_y_dtype = args.grad_y.dtype,
      .x = x,
      .grad_y = check.like_y("grad_y", args.grad_y, Access::read),
      .grad_sum = check.like_x("grad_sum", args.grad_sum, Access::read),
      .grad_x = check.like_x("grad_x", args.grad_x, Access::write),
      .grad_residual = check.like_x("grad_residual", args.grad_residual, Access::write),
      .weight = check.per_column("weight", args.weight),
      .grad_weight = check.per_column("grad_weight", args.grad_weight),
      .grad_bias = check.per_column("grad_bias", grad_bias),
      .mean = check.per_row("mean", mean),
      .rstd = check.per_row("rstd", args.rstd),
      .zero_centered = args.zero_centered,
      .eps = check.finite("eps", args.eps, check.real()),
      .dropout = dropout};
  if constexpr (kHasMean)
    require(mean.given() == args.rstd.given(), op, ": ",
            mean.given() ? "mean is given without rstd" : "rstd is given without mean",
            "; give both or neither");
  require(!args.grad_residual.given() || dropout.drops(), op,
          ": grad_residual is given without dropout; it would be a copy of grad_x");
  const auto column = [&](std::string_view name, const TensorView& view, const void* data) {
    return check.vector_of(name, view, const_cast<void*>(data), x.cols);
  };
  const auto per_row = [&](std::string_view name, const TensorView& view, const void* data) {
    return check.vector_of(name, view, const_cast<void*>(data), x.rows);
  };
  problem.weight_dtype = check.weights_dtype({column("weight", args.weight, nullptr),
                                              column("grad_weight", args.grad_weight, nullptr),
                                              column("grad_bias", grad_bias, nullptr)});
  check.no_overlap(
      {{"grad_x", args.grad_x, problem.grad_x, {"x", "grad_y", "grad_sum"}},
       {"grad_residual", args.grad_residual, problem.grad_residual, {"x", "grad_y", "grad_sum"}},
       column("grad_weight", args.grad_weight, problem.grad_weight),
       column("grad_bias", grad_bias, problem.grad_bias)},
      {{"x", args.x, x},
       {"grad_y", args.grad_y, problem.grad_y},
       {"grad_sum", args.grad_sum, problem.grad_sum},
       column("weight", args.weight, problem.weight),
       per_row("mean", mean, problem.mean),
       per_row("rstd", args.rstd, problem.rstd)});
  if (x.cols == 0 || (!problem.wants_rows() && !problem.wants_sums())) problem.rows = 0;
  return problem;
}

}  // namespace isobit::norms
