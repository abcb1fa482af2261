// SPDX-License-Identifier: Apache-2.0
// What only activation promises: each of its results may take the place of each of its inputs.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "isobit/ops/activation/activation.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::activation {
namespace {

constexpr std::int64_t kRows = 3, kCols = 150;  // whole steps of vectors, and a tail

struct Matrix {
  explicit Matrix(float first) : values(kRows * kCols) {
    for (float& value : values) value = first += 0.01f;
    values[7] = 0;  // not a usual argument: its step is computed in another way than the next
  }
  TensorView view() {
    return matrix_view(values.data(), std::ssize(values) * 4, DType::f32, kRows, kCols, kCols);
  }
  std::vector<float> values;
};

struct World {
  Matrix x{-2}, gate{-1}, grad_y{-3}, grad_x{0}, grad_gate{0};
};

// The two gradients, which `grad_x` and `grad_gate` of a world take.
std::vector<std::vector<float>> gradients(Isa isa, Matrix World::* grad_x,
                                          Matrix World::* grad_gate) {
  World world;
  Execution execution = simd::here(1);
  execution.machine.isa = isa;
  backward({.x = world.x.view(),
            .grad_y = world.grad_y.view(),
            .gate = world.gate.view(),
            .grad_x = (world.*grad_x).view(),
            .grad_gate = (world.*grad_gate).view(),
            .function = Function::silu},
           execution);
  return {(world.*grad_x).values, (world.*grad_gate).values};
}

TEST(Activation, GradientsMayTakeThePlacesOfInputs) {
  constexpr Matrix World::* kInputs[] = {&World::x, &World::gate, &World::grad_y};
  for (const Isa isa : Machine::isas_here()) {
    const auto apart = gradients(isa, &World::grad_x, &World::grad_gate);
    for (const auto first : kInputs) {
      EXPECT_EQ(gradients(isa, first, &World::grad_gate), apart) << name_of(isa);
      EXPECT_EQ(gradients(isa, &World::grad_x, first), apart) << name_of(isa);
      for (const auto second : kInputs)
        if (first != second) { EXPECT_EQ(gradients(isa, first, second), apart) << name_of(isa); }
    }
  }
}

}  // namespace
}  // namespace isobit::activation
