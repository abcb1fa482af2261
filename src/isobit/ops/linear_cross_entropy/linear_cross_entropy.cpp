// SPDX-License-Identifier: Apache-2.0
// The linear_cross_entropy operator: its rules, its arguments, and what its two passes are made of.
#include "isobit/ops/linear_cross_entropy/linear_cross_entropy.h"

#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/cross_entropy/arguments.h"
#include "isobit/ops/cross_entropy/check.h"
#include "isobit/ops/linear_cross_entropy/cases.h"
#include "isobit/ops/linear_cross_entropy/problem.h"
#include "isobit/ops/linear_cross_entropy/reference.h"

namespace isobit::linear_cross_entropy {
namespace {

constexpr std::string_view kOp = "linear_cross_entropy";

constexpr Dim kDims[] = {{.name = "rows", .usual = 64, .in_parity = 37, .batch = true},
                         {.name = "cols", .usual = 64, .in_parity = 70},
                         {.name = "classes", .usual = 1000, .in_parity = 530},
                         cross_entropy::kOne};

template <class Args>
constexpr Argument kX = argument<&Args::x>("x", Role::input, "rows cols", Elements::like_x,
                                           Presence::required, Drawn::family)
                            .means("in f32, f16, bf16 or f64; rows evenly spaced");
template <class Args>
constexpr Argument kWeight =
    argument<&Args::weight>("weight", Role::input, "classes cols", Elements::like_x,
                            Presence::required, Drawn::normal)
        .means("like x, a row for each class; rows evenly spaced");
template <class Args>
constexpr Argument kBias = argument<&Args::bias>("bias", Role::input, "classes", Elements::like_x,
                                                 Presence::extra, Drawn::normal)
                               .means("like x, or f32 beside 16 bits, or NULL; adjacent");

constexpr Argument kForwardArguments[] = {
    kX<ForwardArgs>,
    kWeight<ForwardArgs>,
    kBias<ForwardArgs>,
    cross_entropy::kTarget<ForwardArgs>.below_extent_of("classes"),
    cross_entropy::weight_of_classes<&ForwardArgs::class_weight>("class_weight", "classes"),
    cross_entropy::kLoss<ForwardArgs>,
    cross_entropy::kLse<ForwardArgs>,
    cross_entropy::kLargest<ForwardArgs>,
    cross_entropy::kSum<ForwardArgs>,
    cross_entropy::kTotal<ForwardArgs>,
    cross_entropy::kCount<ForwardArgs>,
};

constexpr Argument kBackwardArguments[] = {
    cross_entropy::kGradLoss<BackwardArgs>,
    kX<BackwardArgs>,
    kWeight<BackwardArgs>,
    kBias<BackwardArgs>,
    cross_entropy::kTarget<BackwardArgs>.below_extent_of("classes"),
    cross_entropy::weight_of_classes<&BackwardArgs::class_weight>("class_weight", "classes"),
    cross_entropy::kGivenLargest<BackwardArgs>,
    cross_entropy::kGivenSum<BackwardArgs>,
    argument<&BackwardArgs::grad_x>("grad_x", Role::output, "rows cols", Elements::like_x,
                                    Presence::optional)
        .means("like x, or NULL; may be x"),
    argument<&BackwardArgs::grad_weight>("grad_weight", Role::output, "classes cols",
                                         Elements::like_x, Presence::optional)
        .means("like weight, or NULL"),
    argument<&BackwardArgs::grad_bias>("grad_bias", Role::output, "classes", Elements::like_x,
                                       Presence::extra)
        .means("(classes) like x, or f32 beside 16 bits, or NULL; adjacent"),
};

// What both passes take.
template <class Args>
struct Checked {
  const Checker checker{kOp};
  Matrix x, weight, bias;
  cross_entropy::Check losses;
  Product product;

  explicit Checked(const Args& args)
      : x(checker.matrix("x", args.x, Access::read)),
        weight(checker.matrix("weight", args.weight, Access::read)),
        bias(of_classes("bias", args.bias)),
        losses(kOp, logits(args), args, "class_weight", args.class_weight, "rows", "weight") {
    product = {args.x.dtype,
               x.rows,
               x.cols,
               weight.rows,
               view_of(x, args.x.dtype),
               view_of(weight, args.x.dtype),
               TensorView{}};
    if (args.bias.given()) product.bias = vector_view(bias.data, 0, args.bias.dtype, weight.rows);
  }

  // An array with an element for each class.
  Matrix of_classes(std::string_view name, const TensorView& view) const {
    return checker.vector(name, view, weight.rows, "rows", "weight");
  }

  // Also of the bias's gradient.
  void check_bias(std::string_view name, const TensorView& view) const {
    if (!view.given()) return;
    if (product.dtype == DType::f64)
      checker.dtype(name, view, {DType::f64});
    else
      checker.dtype(name, view, {product.dtype, DType::f32});
  }

 private:
  cross_entropy::Given logits(const Args& args) const {
    checker.dtype("x", args.x, {DType::f32, DType::f16, DType::bf16, DType::f64});
    checker.same_dtype("weight", args.weight, "x", args.x.dtype);
    require(args.weight.rank == 2, kOp, ": weight has ", args.weight.rank,
            " dimensions; must have 2: classes, elements");
    require(weight.cols == x.cols, kOp, ": weight has rows of ", weight.cols,
            " elements; x has rows of ", x.cols);
    cross_entropy::Given given{};
    given.rows = x.rows;
    given.cols = weight.rows;
    given.dtype = args.x.dtype;
    return given;
  }
};

ForwardProblem check_forward(const ForwardArgs& args) {
  const Checked<ForwardArgs> checked(args);
  checked.check_bias("bias", args.bias);
  const cross_entropy::Check& check = checked.losses;
  const Matrix loss = check.required_of_rows("loss", args.loss);
  const Matrix lse = check.of_rows("lse", args.lse);
  const Matrix largest = check.of_rows("largest", args.largest);
  const Matrix sum = check.of_rows("sum", args.sum);
  const Matrix total = check.numbers("total", args.total, 1, "total");
  const Matrix count = check.numbers("count", args.count, 1, "count");
  checked.checker.no_overlap({{"loss", args.loss, loss},
                              {"lse", args.lse, lse},
                              {"largest", args.largest, largest},
                              {"sum", args.sum, sum},
                              {"total", args.total, total},
                              {"count", args.count, count}},
                             {{"x", args.x, checked.x},
                              {"weight", args.weight, checked.weight},
                              {"bias", args.bias, checked.bias},
                              {"target", args.target, check.target},
                              {"class_weight", args.class_weight, check.weight}});
  return {checked.product,
          {{check.given()}, loss.data, lse.data, largest.data, sum.data, total.data, count.data}};
}

BackwardProblem check_backward(const BackwardArgs& args) {
  const Checked<BackwardArgs> checked(args);
  checked.check_bias("bias", args.bias);
  checked.check_bias("grad_bias", args.grad_bias);
  const Checker& checker = checked.checker;
  const cross_entropy::Check& check = checked.losses;
  const Matrix grad_loss = check.required_of_rows("grad_loss", args.grad_loss);
  const Matrix largest = check.required_of_rows("largest", args.largest);
  const Matrix sum = check.required_of_rows("sum", args.sum);
  BackwardProblem problem{
      checked.product, {{check.given()}, grad_loss.data, largest.data, sum.data, {}}, {}, {}, {}};
  Matrix grad_x, grad_weight;
  if (args.grad_x.given()) {
    grad_x = checker.matrix_like("grad_x", args.grad_x, Access::write, "x", args.x);
    checker.same_dtype("grad_x", args.grad_x, "x", args.x.dtype);
    problem.grad_x = view_of(grad_x, args.x.dtype);
  }
  if (args.grad_weight.given()) {
    grad_weight =
        checker.matrix_like("grad_weight", args.grad_weight, Access::write, "weight", args.weight);
    checker.same_dtype("grad_weight", args.grad_weight, "x", args.x.dtype);
    problem.grad_weight = view_of(grad_weight, args.x.dtype);
  }
  const Matrix grad_bias = checked.of_classes("grad_bias", args.grad_bias);
  if (args.grad_bias.given())
    problem.grad_bias =
        vector_view(grad_bias.data, 0, args.grad_bias.dtype, checked.product.classes);
  checker.no_overlap({{"grad_x", args.grad_x, grad_x, {"x"}},
                      {"grad_weight", args.grad_weight, grad_weight},
                      {"grad_bias", args.grad_bias, grad_bias}},
                     {{"x", args.x, checked.x},
                      {"weight", args.weight, checked.weight},
                      {"bias", args.bias, checked.bias},
                      {"grad_loss", args.grad_loss, grad_loss},
                      {"target", args.target, check.target},
                      {"class_weight", args.class_weight, check.weight},
                      {"largest", args.largest, largest},
                      {"sum", args.sum, sum}});
  return problem;
}

template <class Problem>
void check_contents(const Problem& problem) {
  cross_entropy::check_targets(kOp, problem.losses);
}

template <class Args>
Extents extents_of(const Args& args) {
  const TensorView& x = args.x;
  Extents result{1, x.shape[x.rank - 1], args.weight.shape[0], 1};
  for (int i = 0; i + 1 < x.rank; ++i) result[0] *= x.shape[i];
  return result;
}

const Definition<ForwardArgs, ForwardProblem>& forward_definition() {
  static const Definition<ForwardArgs, ForwardProblem> kDefinition = {
      .op = kOp,
      .pass = "fwd",
      .summary =
          "The losses of cross_entropy_forward of logits = x weight' + bias, each rounded to the "
          "dtype of x, with its bits. Only some rows of logits exist at a time.",
      .version = 1,
      .dims = kDims,
      .arguments = kForwardArguments,
      .options = cross_entropy::kOptions<ForwardArgs>,
      .check = check_forward,
      .extents = extents_of<ForwardArgs>,
      .check_contents = check_contents<ForwardProblem>,
      .variants = cpu_forward_variants(),
      .cost = forward_cost,
      .cases = forward_cases,
      .reference = forward_reference,
      .intermediates = forward_intermediates,
      .limit = forward_limit};
  return kDefinition;
}

const Definition<BackwardArgs, BackwardProblem>& backward_definition() {
  static const Definition<BackwardArgs, BackwardProblem> kDefinition = {
      .op = kOp,
      .pass = "bwd",
      .summary =
          "The gradients of linear_cross_entropy_forward, with the bits of matmul's of those of "
          "the logits, which are made anew, some rows at a time.",
      .version = 1,
      .dims = kDims,
      .arguments = kBackwardArguments,
      .options = cross_entropy::kOptions<BackwardArgs>,
      .check = check_backward,
      .extents = extents_of<BackwardArgs>,
      .check_contents = check_contents<BackwardProblem>,
      .variants = cpu_backward_variants(),
      .cost = backward_cost,
      .cases = backward_cases,
      .reference = backward_reference,
      .intermediates = backward_intermediates,
      .limit = backward_limit};
  return kDefinition;
}

}  // namespace

void forward(const ForwardArgs& args, const Execution& execution) {
  run(forward_definition(), args, execution);
}
void backward(const BackwardArgs& args, const Execution& execution) {
  run(backward_definition(), args, execution);
}

const Operation& forward_operation() {
  static const TypedOperation kOperation(forward_definition());
  return kOperation;
}
const Operation& backward_operation() {
  static const TypedOperation kOperation(backward_definition());
  return kOperation;
}

}  // namespace isobit::linear_cross_entropy
