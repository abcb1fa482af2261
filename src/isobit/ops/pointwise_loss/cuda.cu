// SPDX-License-Identifier: Apache-2.0
// The variant for GPUs: one element a thread.
#include <cstdint>

#include "isobit/dispatch/threads.h"
#include "isobit/ops/pointwise_loss/formula.h"
#include "isobit/ops/pointwise_loss/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/in_turn.h"
#include "isobit/tile/scalar.h"

namespace isobit::pointwise_loss {
namespace {

constexpr int kWidest = 1024;  // threads of a block

// One array of a call, of which elements are wanted; without data all are 1.
template <class T>
struct Array {
  T* data;
  std::int64_t stride;

  explicit Array(const Matrix& matrix)
      : data(reinterpret_cast<T*>(matrix.data)), stride(matrix.stride) {}
  ISOBIT_DEVICE T& operator()(std::int64_t row, std::int64_t col) const {
    return data[row * stride + col];
  }
  template <class Real>
  ISOBIT_DEVICE Real at(std::int64_t row, std::int64_t col) const {
    return data == nullptr ? Real(1) : simt::Conversions::widen<Real>((*this)(row, col));
  }
};

template <class T>
struct Naive {
  static constexpr int kMostThreads = kWidest;
  using Real = tile::RealOf<T>;
  using S = tile::Scalar<Real>;
  Array<T> x, target, weight, pos_weight, grad_x;
  Array<Real> losses;
  std::int64_t rows, cols;
  Rule<Real> rule;

  explicit Naive(const Problem& problem)
      : x(problem.x),
        target(problem.target),
        weight(problem.weight),
        pos_weight(problem.pos_weight),
        grad_x(problem.grad_x),
        losses(problem.loss),
        rows(problem.x.rows),
        cols(problem.x.cols),
        rule{problem.kind, static_cast<Real>(problem.beta), weight.data != nullptr,
             pos_weight.data != nullptr} {}

  ISOBIT_EITHER std::int64_t count() const { return rows * cols; }
  ISOBIT_DEVICE void operator()() const {
    tile::in_turn(count(), [&](std::int64_t i) {
      const std::int64_t row = i / cols, col = i - row * cols;
      const Element<S> element{x.template at<Real>(row, col), target.template at<Real>(row, col),
                               weight.template at<Real>(row, col),
                               pos_weight.template at<Real>(row, col)};
      if (grad_x.data == nullptr)
        losses(row, col) = simt::Conversions::narrow<Real>(loss<S>(rule, element));
      else
        grad_x(row, col) =
            simt::Conversions::narrow<T>(gradient<S>(rule, element, losses(row, col)));
    });
  }
};

constexpr int kBlocks[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    threads_knob(kWidest),
    {"blocks", kBlocks,
     "blocks per multiprocessor, which take elements in turn; 0: as many as there are elements "
     "for"},
};

template <class Args>
void run(const Args&, const Problem& problem, const Plan& plan, const Execution& execution) {
  tile::with_type(problem.dtype, [&]<class T>(Type<T>) {
    tile::launch_in_turn(Naive<T>(problem), plan[0], plan[1], execution);
  });
}

template <class Args>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "naive",
     .knobs = kKnobs,
     .choose = [](const Problem&, const Machine&) -> Plan { return {256, 0}; },
     .run = run<Args>},
};

}  // namespace

std::span<const ForwardVariant> cuda_forward_variants() { return kVariants<ForwardArgs>; }
std::span<const BackwardVariant> cuda_backward_variants() { return kVariants<BackwardArgs>; }

}  // namespace isobit::pointwise_loss
