// SPDX-License-Identifier: Apache-2.0
// What only softmax promises: y may take the place of x, and grad_x that of y or of grad_y; and
// short rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "isobit/dispatch/operation.h"
#include "isobit/ops/softmax/softmax.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::softmax {
namespace {

struct Shape {
  std::int64_t rows, cols;

  std::int64_t count() const { return rows * cols; }
};
// A block of sums, whole lines and half of one; and rows that are summed side by side.
constexpr Shape kLong{3, 656}, kShort{37, 100};

struct Matrix {
  Shape shape;
  std::vector<float> values = std::vector<float>(shape.count());

  Matrix(const Shape& shape, float first, float step) : shape(shape) {
    for (float& value : values) value = first += step;
  }
  TensorView view(std::int64_t row, std::int64_t rows) {
    return matrix_view(&values[row * shape.cols], rows * shape.cols * 4, DType::f32, rows,
                       shape.cols, shape.cols);
  }
  TensorView view() { return view(0, shape.rows); }
};
struct Mask {
  Shape shape;
  std::vector<std::uint8_t> values = std::vector<std::uint8_t>(shape.count());

  explicit Mask(const Shape& shape) : shape(shape) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 3 != 0;
  }
  TensorView view() {
    return matrix_view(values.data(), std::ssize(values), DType::boolean, shape.rows, shape.cols,
                       shape.cols);
  }
};

Execution on(Isa isa) {
  Execution execution = simd::here(1);
  execution.machine.isa = isa;
  return execution;
}

// Calls body(execution, shape, mask, log, plan) in every way that rows are computed.
template <class Body>
void in_every_way(const Body& body) {
  for (const Isa isa : Machine::isas_here())
    for (const Shape& shape : {kLong, kShort})
      for (const bool masked : {false, true})
        for (const bool log : {false, true})
          for (const int stream : {0, 1}) {
            Mask mask(shape);
            body(on(isa), shape, masked ? mask.view() : TensorView{}, log, Plan{stream});
          }
}

template <class Args>
void run(const Operation& operation, const Args& given, const Plan& plan,
         const Execution& execution) {
  const Arguments args = operation.make_arguments();
  *static_cast<Args*>(args.get()) = given;
  operation.run(0, plan, args, execution);
}

TEST(Softmax, ResultsMayTakeThePlaceOfTheInput) {
  in_every_way([](const Execution& execution, const Shape& shape, const TensorView& mask, bool log,
                  const Plan& plan) {
    Matrix x(shape, -2, 0.001f), y(shape, 0, 0);
    ForwardArgs args{.x = x.view(), .mask = mask, .y = y.view(), .log = log};
    run(forward_operation(), args, plan, execution);
    args.y = args.x;
    run(forward_operation(), args, plan, execution);
    EXPECT_EQ(x.values, y.values) << name_of(execution.machine.isa);
  });
}

TEST(Softmax, GradientsMayTakeThePlacesOfInputs) {
  in_every_way([](const Execution& execution, const Shape& shape, const TensorView& mask, bool log,
                  const Plan& plan) {
    enum Place { apart, in_y, in_grad_y };
    const auto gradients = [&](Place place) {
      Matrix y(shape, 0, 1e-6f), grad_y(shape, -3, 0.007f), own(shape, 0, 0);
      Matrix& to = place == in_y ? y : place == in_grad_y ? grad_y : own;
      run(backward_operation(),
          BackwardArgs{.y = y.view(),
                       .grad_y = grad_y.view(),
                       .mask = mask,
                       .grad_x = to.view(),
                       .log = log},
          plan, execution);
      return to.values;
    };
    const auto expected = gradients(apart);
    EXPECT_EQ(gradients(in_y), expected) << name_of(execution.machine.isa);
    EXPECT_EQ(gradients(in_grad_y), expected) << name_of(execution.machine.isa);
  });
}

// They are summed side by side where there are as many as a vector has lanes.
TEST(Softmax, ShortRowsAreWhatTheyAreAlone) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t cols : {1, 3, 8, 13, 64, 100, 192, 255, 256}) {
    const Shape shape{37, cols};
    Matrix x(shape, -3, 5.5f / static_cast<float>(shape.count())), grad_y(shape, 1, -0.001f);
    const auto element = [&](std::int64_t row) -> float& {
      return x.values[row * cols + row * row % cols];
    };
    for (std::int64_t row = 0; row < shape.rows; row += 5) element(row) = -0.0f;
    for (std::int64_t row = 1; row < shape.rows; row += 5) element(row) *= 1e20f;
    element(7) = std::numeric_limits<float>::quiet_NaN();
    element(13) = kInfinity;
    element(18) = -kInfinity;
    std::fill_n(&x.values[20 * cols], cols, -kInfinity);
    for (const bool log : {false, true})
      for (const double scale : {1.0, -0.3}) {
        Matrix y(shape, 0, 0), grad_x(shape, 0, 0);
        // Of rows `together` at a time.
        const auto bits = [&](Isa isa, std::int64_t together) {
          for (std::int64_t row = 0; row < shape.rows; row += together) {
            const auto some = [&](Matrix& all) { return all.view(row, together); };
            run(forward_operation(),
                ForwardArgs{.x = some(x), .y = some(y), .scale = scale, .log = log}, Plan{0},
                on(isa));
            run(backward_operation(),
                BackwardArgs{.y = some(y),
                             .grad_y = some(grad_y),
                             .grad_x = some(grad_x),
                             .scale = scale,
                             .log = log},
                Plan{0}, on(isa));
          }
          std::vector<std::uint32_t> bits;
          for (const Matrix* each : {&y, &grad_x})
            for (const float value : each->values)
              bits.push_back(std::bit_cast<std::uint32_t>(value));
          return bits;
        };
        const auto alone = bits(Isa::scalar, 1);
        for (const Isa isa : Machine::isas_here()) {
          EXPECT_EQ(bits(isa, 1), alone) << cols << " columns, " << name_of(isa);
          EXPECT_EQ(bits(isa, shape.rows), alone) << cols << " columns, " << name_of(isa);
        }
      }
  }
}

}  // namespace
}  // namespace isobit::softmax
