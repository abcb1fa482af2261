// SPDX-License-Identifier: Apache-2.0
// What only softmax promises: y may take the place of x, and grad_x that of y or of grad_y.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "isobit/dispatch/operation.h"
#include "isobit/ops/softmax/softmax.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::softmax {
namespace {

constexpr std::int64_t kRows = 3, kCols = 656;  // a block of sums, whole lines, half of one

struct Matrix {
  std::vector<float> values = std::vector<float>(kRows * kCols);

  Matrix(float first, float step) {
    for (float& value : values) value = first += step;
  }
  TensorView view() {
    return matrix_view(values.data(), std::ssize(values) * 4, DType::f32, kRows, kCols, kCols);
  }
};
struct Mask {
  std::vector<std::uint8_t> values = std::vector<std::uint8_t>(kRows * kCols);

  Mask() {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 3 != 0;
  }
  TensorView view() {
    return matrix_view(values.data(), std::ssize(values), DType::boolean, kRows, kCols, kCols);
  }
};

Execution on(Isa isa) {
  Execution execution = simd::here(1);
  execution.machine.isa = isa;
  return execution;
}

// Calls body(execution, mask, log, plan) in every way that rows are computed.
template <class Body>
void in_every_way(const Body& body) {
  for (const Isa isa : Machine::isas_here())
    for (const bool masked : {false, true})
      for (const bool log : {false, true})
        for (const int stream : {0, 1}) {
          Mask mask;
          body(on(isa), masked ? mask.view() : TensorView{}, log, Plan{stream});
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
  in_every_way([](const Execution& execution, const TensorView& mask, bool log, const Plan& plan) {
    Matrix x(-2, 0.003f), y(0, 0);
    ForwardArgs args{.x = x.view(), .mask = mask, .y = y.view(), .log = log};
    run(forward_operation(), args, plan, execution);
    args.y = args.x;
    run(forward_operation(), args, plan, execution);
    EXPECT_EQ(x.values, y.values) << name_of(execution.machine.isa);
  });
}

TEST(Softmax, GradientsMayTakeThePlacesOfInputs) {
  in_every_way([](const Execution& execution, const TensorView& mask, bool log, const Plan& plan) {
    enum Place { apart, in_y, in_grad_y };
    const auto gradients = [&](Place place) {
      Matrix y(0, 1e-6f), grad_y(-3, 0.007f), own(0, 0);
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

}  // namespace
}  // namespace isobit::softmax
