// SPDX-License-Identifier: Apache-2.0
// Rows are normalised where the product packs them: none of their elements is stored.
#include "isobit/norm_linear/cpu_forward.h"

#include "isobit/dispatch/step.h"
#include "isobit/norms/cpu_workspace.h"
#include "isobit/ops/matmul/cpu_regions.h"
#include "isobit/simd/tasks.h"

namespace isobit::norm_linear {
namespace {

using ProductStep = Step<matmul::ForwardArgs, matmul::Problem>;

const matmul::ForwardVariant& packed() {
  static const matmul::ForwardVariant kPacked = matmul::packed_variant();
  return kPacked;
}

matmul::Problem made_product(const ForwardProblem& problem, const matmul::Made& rows) {
  matmul::Problem product = product_of(problem, problem.product.y_at(nullptr));
  product.made_a = rows;
  return product;
}

// A part that is never made, to count with.
constexpr matmul::Made kAnyRows{
    [](const void*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, void*, std::int64_t) {},
    nullptr};

}  // namespace

std::string fused_forward_declines(const ForwardProblem& problem, const Machine&) {
  return problem.norm.y ? "y is asked for, which is then an array" : "";
}

// So few rows that the product reads its weight as it lies cost nothing to store.
bool fused_forward_suits(const ForwardProblem& problem, const Machine& machine) {
  return !matmul::vector_variant().suits(product_of(problem, problem.product.y_at(nullptr)),
                                         machine);
}

Plan choose_fused_forward(const ForwardProblem& problem, const Machine& machine) {
  return packed().choose(made_product(problem, kAnyRows), machine);
}

std::size_t fused_forward_workspace(const NormKernels& kernels, const ForwardProblem& problem,
                                    const Plan& plan, const Machine& machine) {
  Pieces pieces;
  const MadeRows rows(problem.norm, kernels, machine.isa, pieces);
  const matmul::Problem product = made_product(problem, kAnyRows);
  pieces.take(static_cast<std::int64_t>(packed().workspace(product, plan, machine)));
  return pieces.taken();
}

void run_fused_forward(const NormKernels& kernels, const ForwardProblem& problem, const Plan& plan,
                       const Execution& execution) {
  Pieces pieces(execution.workspace);
  MadeRows rows(problem.norm, kernels, execution.machine.isa, pieces);
  rows.prepare(execution);
  const matmul::Problem product = made_product(problem, rows.made());
  ProductStep{product, packed(), plan}.run(execution, pieces.take(0));
}

namespace {

// A product's weight and bias that hold those of its norm.
struct Folded {
  ForwardProblem problem;
  std::byte *weight = nullptr, *bias = nullptr;

  Folded(const ForwardProblem& given, Pieces& pieces) : problem(given) {
    const Product& product = given.product;
    const std::int64_t size = size_of(product.dtype);
    if (given.norm.weight != nullptr) {
      weight = pieces.take(product.features * product.cols * size);
      problem.product.weight =
          matrix_view(weight, 0, product.dtype, product.features, product.cols, product.cols);
      problem.norm.weight = nullptr;
      problem.norm.zero_centered = false;
    }
    if (given.norm.bias != nullptr) {
      bias = pieces.take(product.features * size);
      problem.bias = vector_view(bias, 0, product.dtype, product.features);
      problem.norm.bias = nullptr;
    }
  }
};

template <class Real>
void fold(const ForwardProblem& given, const Folded& folded, const norms::Weights& weights,
          const Execution& execution) {
  const norms::WeightRow<Real> gamma(weights.weight, weights.weight_mask);
  const norms::WeightRow<Real> beta(weights.bias, weights.bias_mask);
  const TensorView& weight = given.product.weight;
  const std::int64_t cols = given.product.cols, features = given.product.features;
  const std::int64_t tasks = simd::task_count(execution.machine, features * cols, features);
  simd::in_parts(execution, tasks, features, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) {
      const Real* row = static_cast<const Real*>(weight.data) + j * weight.strides[0];
      const auto element = [&](std::int64_t k) { return row[k * weight.strides[1]]; };
      if (folded.weight != nullptr)
        for (std::int64_t k = 0; k < cols; ++k)
          reinterpret_cast<Real*>(folded.weight)[j * cols + k] = element(k) * *gamma.at(k);
      if (folded.bias == nullptr) continue;
      Real sum = order::dot<Real>(cols, element, [&](std::int64_t k) { return *beta.at(k); });
      if (given.bias.given())
        sum += static_cast<const Real*>(given.bias.data)[j * given.bias.strides[0]];
      reinterpret_cast<Real*>(folded.bias)[j] = sum;
    }
  });
}

}  // namespace

// A weight of 16 bits would be rounded once more for nothing.
std::string prefolded_declines(const ForwardProblem& problem, const Machine& machine) {
  if (size_of(problem.product.dtype) < 4) return "needs a weight of f32 or f64";
  return fused_forward_declines(problem, machine);
}

std::size_t prefolded_workspace(const NormKernels& kernels, const ForwardProblem& problem,
                                const Machine& machine) {
  Pieces pieces;
  norms::weights_in(norms::stored_weights(problem.norm), pieces);
  const Folded folded(problem, pieces);
  const Plan plan = choose_fused_forward(folded.problem, machine);
  pieces.take(
      static_cast<std::int64_t>(fused_forward_workspace(kernels, folded.problem, plan, machine)));
  return pieces.taken();
}

void run_prefolded(const NormKernels& kernels, const ForwardProblem& problem,
                   const Execution& execution) {
  Pieces pieces(execution.workspace);
  const norms::StoredWeights stored = norms::stored_weights(problem.norm);
  const norms::Weights weights = norms::weights_in(stored, pieces);
  norms::convert_weights(stored, weights, execution);
  const Folded folded(problem, pieces);
  if (problem.product.dtype == DType::f64)
    fold<double>(problem, folded, weights, execution);
  else
    fold<float>(problem, folded, weights, execution);
  Execution own = execution;
  own.workspace = pieces.take(0);
  run_fused_forward(kernels, folded.problem,
                    choose_fused_forward(folded.problem, execution.machine), own);
}

}  // namespace isobit::norm_linear
