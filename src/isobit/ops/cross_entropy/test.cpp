// SPDX-License-Identifier: Apache-2.0
// What only cross_entropy promises: what becomes of targets that are no classes, of ignored rows,
// of infinities, and gradients in the place of logits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/dispatch/operation.h"
#include "isobit/ops/cross_entropy/cross_entropy.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::cross_entropy {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Call {
  std::int64_t rows, cols;
  std::vector<float> x, loss, largest, sum, total{7}, count{7}, grad_loss, grad_x;
  std::vector<std::int64_t> target;
  double label_smoothing = 0, z_loss = 0;

  Call(std::int64_t rows, std::int64_t cols)
      : rows(rows), cols(cols), x(rows * cols), loss(rows, 7), largest(rows), sum(rows) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    grad_loss.assign(rows, 1);
    grad_x.assign(rows * cols, 7);
    for (std::int64_t row = 0; row < rows; ++row) target.push_back(row % cols);
  }

  TensorView matrix(std::vector<float>& values) const {
    return matrix_view(values.data(), std::ssize(values) * 4, DType::f32, rows, cols, cols);
  }
  static TensorView vector(std::vector<float>& values) {
    return vector_view(values.data(), std::ssize(values) * 4, DType::f32, std::ssize(values));
  }
  TensorView targets() {
    return vector_view(target.data(), std::ssize(target) * 8, DType::i64, std::ssize(target));
  }

  void forward(const Execution& execution) {
    cross_entropy::forward({.x = matrix(x),
                            .target = targets(),
                            .loss = vector(loss),
                            .largest = vector(largest),
                            .sum = vector(sum),
                            .total = vector(total),
                            .count = vector(count),
                            .label_smoothing = label_smoothing,
                            .z_loss = z_loss},
                           execution);
  }
  void backward(const Execution& execution, std::vector<float>& to) {
    cross_entropy::backward({.grad_loss = vector(grad_loss),
                             .x = matrix(x),
                             .target = targets(),
                             .largest = vector(largest),
                             .sum = vector(sum),
                             .grad_x = matrix(to),
                             .label_smoothing = label_smoothing,
                             .z_loss = z_loss},
                            execution);
  }
};

// Calls body(execution) on each instruction set.
template <class Body>
void on_every_isa(const Body& body) {
  for (const Isa isa : Machine::isas_here()) {
    SCOPED_TRACE(name_of(isa));
    Execution execution = simd::here(1);
    execution.machine.isa = isa;
    body(execution);
  }
}

TEST(CrossEntropy, ATargetThatIsNoClassIsNamedBeforeAnythingIsWritten) {
  for (const std::int64_t wrong : {-1, 5, 1000}) {
    Call call(3, 5);
    call.target[2] = wrong;
    const std::string expected = "cross_entropy: target[2] is " + std::to_string(wrong) +
                                 "; there are classes from 0 to 4, and ignore_index is -100";
    for (const bool forward : {true, false}) {
      try {
        if (forward)
          call.forward(simd::here(1));
        else
          call.backward(simd::here(1), call.grad_x);
        FAIL();
      } catch (const InvalidArgument& error) { EXPECT_EQ(error.what(), expected); }
    }
    EXPECT_EQ(call.loss, std::vector<float>(3, 7));
    EXPECT_EQ(call.total, std::vector<float>(1, 7));
    EXPECT_EQ(call.grad_x, std::vector<float>(15, 7));
  }
}

TEST(CrossEntropy, IgnoredRowsAreNotReadAndCountNowhere) {
  on_every_isa([](const Execution& execution) {
    Call call(3, 70), beside(2, 70);
    call.label_smoothing = beside.label_smoothing = 0.1;
    call.z_loss = beside.z_loss = 0.01;
    call.target[2] = -100;
    for (int i = 140; i < 210; ++i) call.x[i] = i % 2 == 0 ? kNan : kInfinity;
    call.forward(execution);
    beside.forward(execution);
    EXPECT_EQ(call.loss[2], 0);
    EXPECT_EQ(call.total, beside.total);
    EXPECT_EQ(call.count[0], 2);
    call.backward(execution, call.grad_x);
    for (int i = 140; i < 210; ++i) EXPECT_EQ(call.grad_x[i], 0);
    call.target = {-100, -100, -100};
    call.forward(execution);
    EXPECT_EQ(call.total[0], 0);
    EXPECT_EQ(call.count[0], 0);
  });
}

TEST(CrossEntropy, ClassesThatCannotBeCostNothingUnlessTheyAreTheTarget) {
  on_every_isa([](const Execution& execution) {
    Call call(3, 70);
    call.x[5] = call.x[70 + 1] = -kInfinity;  // another's, the target's
    call.x[140] = kInfinity;
    call.forward(execution);
    EXPECT_TRUE(std::isfinite(call.loss[0]));
    EXPECT_EQ(call.loss[1], kInfinity);
    EXPECT_TRUE(std::isnan(call.loss[2]));
    call.backward(execution, call.grad_x);
    EXPECT_EQ(call.grad_x[5], 0);
    EXPECT_EQ(call.grad_x[70 + 1], -1);
    EXPECT_TRUE(std::isnan(call.grad_x[141]));
    call.label_smoothing = 0.1;  // each class has a part in the loss
    call.forward(execution);
    EXPECT_EQ(call.loss[0], kInfinity);
  });
}

TEST(CrossEntropy, GradientsMayTakeThePlaceOfLogits) {
  on_every_isa([](const Execution& execution) {
    for (const double smoothing : {0.0, 0.1}) {
      Call call(3, 656);
      call.label_smoothing = smoothing;
      call.forward(execution);
      call.backward(execution, call.grad_x);
      call.backward(execution, call.x);
      EXPECT_EQ(call.x, call.grad_x);
    }
  });
}

}  // namespace
}  // namespace isobit::cross_entropy
