// SPDX-License-Identifier: Apache-2.0
// The specification of what kernels compute, element by element: the scalar variant, and where
// rare rows are summed again.
#pragma once

#include "isobit/core/order.h"
#include "isobit/norms/cpu_row.h"
#include "isobit/ops/channel_norm/cpu_kernels.h"
#include "isobit/ops/channel_norm/formula.h"

namespace isobit::channel_norm {

template <class T>
T& element(const Images& array, const Row& row, std::int64_t i) {
  return reinterpret_cast<T*>(array.data)[row.place(array, i / row.extent, i % row.extent)];
}

template <class T, class Real>
struct ElementsOf {
  Images array;
  Row row;
  Real operator()(std::int64_t i) const { return widen<Real>(element<const T>(array, row, i)); }
};

using simd::ScalarOf;

// A row of x as layernorm's formula wants it.
template <class T, class Real>
auto specified_row(const Given& given, std::int64_t index) {
  const Row row = given.row(index);
  return norms::SpecifiedRow<ScalarOf<Real>, ElementsOf<T, Real>>(row.count(), {given.x, row});
}

// The same, of which both rounds of sums are known.
template <class T, class RealOf>
struct SummedRow {
  using Real = RealOf;
  using Scalar = ScalarOf<Real>;
  const Given& given;
  std::int64_t index;
  auto rare() const { return specified_row<T, Real>(given, index); }
};

namespace specified {

template <class Real, class A, class B>
Moments<Real> sums(const Part& part, const A& a, const B& b) {
  const std::int64_t count = part.end - part.begin;
  return {order::sum<Real>(count, a), order::dot<Real>(count, a, b)};
}

template <class T, class Real>
void moments(const Given& given, const Part& part, const void* centres, void* to) {
  const ElementsOf<T, Real> x{given.x, given.row(part.first)};
  const Real centre = centres == nullptr ? Real(0) : *static_cast<const Real*>(centres);
  const auto deviation = [&](std::int64_t i) { return x(part.begin + i) - centre; };
  *static_cast<Moments<Real>*>(to) = sums<Real>(part, deviation, deviation);
}

template <class Real>
layernorm::NormaliseAny<ScalarOf<Real>> normaliser(const Known& known, std::int64_t row) {
  return layernorm::NormaliseAny<ScalarOf<Real>>(
      static_cast<const Statistics<Real>*>(known.statistics)[row]);
}
template <class Real>
Real number(const void* numbers, std::int64_t i) {
  return static_cast<const Real*>(numbers)[i];
}

template <class T, class Real>
void normalise(const ForwardProblem& p, const Known& known, const Part& part) {
  const Row row = p.row(part.first);
  const ElementsOf<T, Real> x{p.x, row};
  const auto normalise = normaliser<Real>(known, part.first);
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    const std::int64_t channel = row.channel_of(i / row.extent);
    element<T>(p.y, row, i) = narrow<T>(std::fma(
        normalise(x(i)), number<Real>(known.weight, channel), number<Real>(known.bias, channel)));
  }
}

template <class T, class Real, class Weight>
void products(const BackwardProblem& p, const Known& known, const Row& row, const Part& part,
              void* to, const Weight& weight) {
  const ElementsOf<T, Real> x{p.x, row}, grad_y{p.grad_y, row};
  const auto g = [&](std::int64_t i) {
    i += part.begin;
    return weight(grad_y(i), row.channel_of(i / row.extent));
  };
  const auto xhat = [&](std::int64_t i) {
    i += part.begin;
    const std::int64_t segment = i / row.extent;
    return normaliser<Real>(known, p.row_of(row.image_of(segment), row.channel_of(segment)))(x(i));
  };
  *static_cast<Moments<Real>*>(to) = sums<Real>(part, g, xhat);
}

template <class T, class Real>
void row_products(const BackwardProblem& p, const Known& known, const Part& part, void* to) {
  products<T, Real>(p, known, p.row(part.first), part, to, [&](Real grad_y, std::int64_t channel) {
    return grad_y * number<Real>(known.weight, channel);
  });
}
template <class T, class Real>
void channel_products(const BackwardProblem& p, const Known& known, const Part& part, void* to) {
  products<T, Real>(p, known, p.of_channel(part.first), part, to,
                    [](Real grad_y, std::int64_t) { return grad_y; });
}

template <class T, class Real>
void gradient(const BackwardProblem& p, const Known& known, const Part& part) {
  const Row row = p.row(part.first);
  const ElementsOf<T, Real> x{p.x, row}, grad_y{p.grad_y, row};
  const auto normalise = normaliser<Real>(known, part.first);
  const Real rstd = static_cast<const Statistics<Real>*>(known.statistics)[part.first].rstd;
  const auto* means = static_cast<const Moments<Real>*>(known.means) + part.first;
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    const Real g = grad_y(i) * number<Real>(known.weight, row.channel_of(i / row.extent));
    const Real value =
        p.training ? normalise.gradient(g, normalise(x(i)), means->sum, means->squares) : rstd * g;
    element<T>(p.grad_x, row, i) = narrow<T>(value);
  }
}

template <class T, class Real>
constexpr Kernels kKernels = {moments<T, Real>,
                              row_products<T, Real>,
                              channel_products<T, Real>,
                              {normalise<T, Real>, gradient<T, Real>}};

}  // namespace specified

}  // namespace isobit::channel_norm
