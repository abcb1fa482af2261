// SPDX-License-Identifier: Apache-2.0
// Calls that look wrong and are right: arrays in one memory, strides of 0, nothing to do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "calls.h"
#include "isobit/ops/batch_norm/batch_norm.h"
#include "isobit/ops/catalog.h"
#include "isobit/simd/parallel_for.h"

namespace isobit {
namespace {

using namespace calls;

void same_shape(World& world, std::int64_t rows, std::int64_t cols) {
  for (isobit_tensor* matrix :
       {&world.x, &world.residual, &world.grad_y, &world.y, &world.grad_x}) {
    matrix->shape[0] = rows;
    matrix->shape[1] = matrix->strides[0] = cols;
  }
  for (isobit_tensor* vector : {&world.weight, &world.bias, &world.grad_weight, &world.grad_bias})
    vector->shape[0] = cols;
  for (isobit_tensor* vector : {&world.mean, &world.rstd}) vector->shape[0] = rows;
}

// What is left of a transposed array that has no elements.
void permute(World& world, std::int64_t rows, std::int64_t cols) {
  same_shape(world, rows, cols);
  for (isobit_tensor* matrix :
       {&world.x, &world.residual, &world.grad_y, &world.y, &world.grad_x}) {
    matrix->strides[0] = 1;
    matrix->strides[1] = -7;
    matrix->bytes = 0;
    matrix->data = nullptr;
  }
}

constexpr std::int64_t kEndless = std::int64_t{1} << 48;

const std::vector<Call> kOddCalls = {
    {forward, [](World& w) { w.forward.y = &w.x; }, "y in place of x"},
    {backward, [](World& w) { w.backward.grad_x = &w.grad_y; }, "grad_x in place of grad_y"},
    {backward, [](World& w) { w.backward.grad_x = &w.x; }, "grad_x in place of x"},
    {backward, [](World& w) { w.backward.grad_y = &w.x; }, "two inputs in one memory"},
    {backward, [](World& w) { w.backward.grad_x = w.backward.grad_y = &w.x; },
     "all three in one memory"},
    {add, [](World& w) { w.add.y = &w.residual; }, "y in place of residual"},
    {add, [](World& w) { w.add.y = w.add.residual = &w.x; }, "x + x in place"},
    {forward, [](World& w) { w.x.strides[0] = 0; }, "one row of x for all"},
    {backward, [](World& w) { w.grad_y.strides[0] = 0; }, "one row of grad_y for all"},
    {forward, [](World& w) { w.x.strides[0] = 1; }, "windows of x that overlap"},
    {forward, [](World& w) { w.y.strides[0] = 11; }, "padding between rows of y"},
    {forward, [](World& w) { same_shape(w, 0, 8); }, "no rows"},
    {backward, [](World& w) { same_shape(w, 0, 8); }, "no rows"},
    {forward, [](World& w) { same_shape(w, 3, 0); }, "no columns"},
    {backward, [](World& w) { same_shape(w, 3, 0); }, "no columns"},
    {add, [](World& w) { same_shape(w, 0, 0); }, "nothing at all"},
    {forward,
     [](World& w) {
       same_shape(w, 0, 8);
       w.x.data = w.y.data = w.mean.data = w.rstd.data = nullptr;
     },
     "null data without rows"},
    {forward, [](World& w) { permute(w, 0, 8); }, "no rows, and strides that fit nothing"},
    {backward, [](World& w) { permute(w, 0, 8); }, "no rows, and strides that fit nothing"},
    {add, [](World& w) { permute(w, 3, 0); }, "no columns, and strides that fit nothing"},
    {backward, [](World& w) { permute(w, 3, 0); }, "no columns, and strides that fit nothing"},
    {forward,
     [](World& w) {
       w.forward.mean = w.forward.rstd = nullptr;
       same_shape(w, kEndless, 0);
     },
     "endless rows without columns"},
    {backward,
     [](World& w) {
       w.backward.mean = w.backward.rstd = nullptr;
       same_shape(w, kEndless, 0);
     },
     "endless rows without columns"},
    {add, [](World& w) { same_shape(w, kEndless, 0); }, "endless rows without columns"},
    {forward,
     [](World& w) {
       move(w.x, 4);
       move(w.y, 4);
       move(w.weight, 4);
       move(w.mean, 4);
     },
     "aligned to one element"},
    {forward, [](World& w) { w.forward.weight = nullptr; }, "bias without weight"},
    {forward, [](World& w) { w.forward.mean = nullptr; }, "rstd without mean, as outputs"},
    {forward, [](World& w) { w.forward.eps = 0; }, "eps 0"},
    {forward, [](World& w) { w.forward.eps = -0.5; }, "a negative eps"},
    {backward, [](World& w) { w.backward.mean = w.backward.rstd = nullptr; },
     "statistics recomputed"},
    {backward,
     [](World& w) { w.backward.grad_x = w.backward.grad_weight = w.backward.grad_bias = nullptr; },
     "no outputs"},
    {forward,
     [](World& w) {
       w.forward.x = &w.mean;
       w.forward.y = &w.rstd;
       w.forward.mean = w.forward.rstd = w.forward.weight = w.forward.bias = nullptr;
     },
     "rank 1"},
    {add,
     [](World& w) {
       for (auto* t : {&w.x, &w.residual, &w.y})
         *t = {t->data,
               kSlot,
               ISOBIT_F32,
               8,
               {1, 3, 1, 2, 1, 2, 1, 2},
               {-9, 8, kMost, 4, 0, 2, -1, 1}};
     },
     "rank 8 with strides that do not matter"},
    {forward, [](World& w) { w.mean = {w.mean.data, kSlot, ISOBIT_F32, 2, {3, 1}, {1, 5}}; },
     "mean with keepdim"},
    {forward,
     [](World& w) {
       w.y.data = w.slot(0) + 8;
       w.x.strides[0] = w.y.strides[0] = 16;
     },
     "x and y as columns of one buffer"},
    {forward,
     [](World& w) {
       for (auto* t : {&w.x, &w.y, &w.weight, &w.bias}) t->dtype = ISOBIT_BF16;
     },
     "bf16"},
    {forward, [](World& w) { w.x.dtype = w.y.dtype = ISOBIT_BF16; }, "bf16 with f32 weights"},
    {backward,
     [](World& w) {
       w.x.dtype = w.grad_y.dtype = w.grad_x.dtype = ISOBIT_BF16;
       w.backward.weight = nullptr;
     },
     "bf16, gradients of the weights in f32 without weight"},
    {forward, [](World& w) { w.context.threads = 1024; }, "more threads than rows"},
};

TEST(OddCalls, AreAccepted) {
  for (const Call& call : kOddCalls) {
    SCOPED_TRACE(call.says);
    World world;
    call.change(world);
    EXPECT_EQ(call.entry(world), ISOBIT_OK) << isobit_last_error();
  }
}

TEST(OddCalls, InPlaceGivesTheSameBits) {
  World apart, in_place;
  ASSERT_EQ(forward(apart), ISOBIT_OK);
  in_place.forward.y = &in_place.x;
  ASSERT_EQ(forward(in_place), ISOBIT_OK);
  EXPECT_EQ(std::memcmp(apart.y.data, in_place.x.data, kRows * kCols * 4), 0);

  for (isobit_tensor World::* target : {&World::grad_y, &World::x}) {
    World gradients_apart, gradients_in_place;
    ASSERT_EQ(backward(gradients_apart), ISOBIT_OK);
    gradients_in_place.backward.grad_x = &(gradients_in_place.*target);
    ASSERT_EQ(backward(gradients_in_place), ISOBIT_OK);
    EXPECT_EQ(std::memcmp(gradients_apart.grad_x.data, (gradients_in_place.*target).data,
                          kRows * kCols * 4),
              0);
    EXPECT_EQ(std::memcmp(gradients_apart.grad_weight.data, gradients_in_place.grad_weight.data,
                          kCols * 4),
              0);
  }
}

TEST(OddCalls, ColumnsOfOneBufferStayApart) {
  World apart, together;
  ASSERT_EQ(forward(apart), ISOBIT_OK);
  float* buffer = together.slot(0);  // rows of 8 of x, 8 of y and 3 of nobody
  for (int row = kRows - 1; row >= 0; --row)
    std::memmove(buffer + row * 19, buffer + row * kCols, kCols * 4);
  together.x.strides[0] = together.y.strides[0] = 19;
  together.y.data = buffer + kCols;
  const std::vector<float> before = together.memory();
  ASSERT_EQ(forward(together), ISOBIT_OK);
  for (int row = 0; row < kRows; ++row) {
    const float* x = buffer + row * 19;
    EXPECT_EQ(std::memcmp(x, before.data() + row * 19, kCols * 4), 0);
    EXPECT_EQ(std::memcmp(x + kCols, apart.slot(5) + row * kCols, kCols * 4), 0);
    EXPECT_EQ(std::memcmp(x + 2 * kCols, before.data() + row * 19 + 2 * kCols, 3 * 4), 0);
  }
}

TEST(OddCalls, ZeroStrideRepeatsTheRow) {
  World world;
  world.x.strides[0] = 0;
  ASSERT_EQ(forward(world), ISOBIT_OK);
  for (int row = 1; row < kRows; ++row)
    EXPECT_EQ(std::memcmp(world.slot(5), world.slot(5) + row * kCols, kCols * 4), 0);
}

// Any number but 0 is a yes, in C as elsewhere.
TEST(OddCalls, ZeroCenteredIsAnyNumberButZero) {
  struct Flag {
    isobit_status (*entry)(const World&);
    std::int32_t& (*flag)(World&);
  };
  const Flag kFlags[] = {
      {forward, [](World& w) -> std::int32_t& { return w.forward.zero_centered; }},
      {backward, [](World& w) -> std::int32_t& { return w.backward.zero_centered; }},
      {rms_forward, [](World& w) -> std::int32_t& { return w.rms_forward.zero_centered; }},
      {rms_backward, [](World& w) -> std::int32_t& { return w.rms_backward.zero_centered; }},
  };
  for (const Flag& each : kFlags) {
    const auto memory = [&](std::int32_t value) {
      World world;
      each.flag(world) = value;
      EXPECT_EQ(each.entry(world), ISOBIT_OK) << isobit_last_error();
      return world.memory();
    };
    const std::vector<float> no = memory(0), yes = memory(1);
    EXPECT_NE(no, yes);
    for (const std::int32_t value : {2, -1, 256, std::numeric_limits<std::int32_t>::min()})
      EXPECT_EQ(memory(value), yes) << value;
  }
}

TEST(OddCalls, NoRowsGiveZeroGradients) {
  World world;
  same_shape(world, 0, kCols);
  ASSERT_EQ(backward(world), ISOBIT_OK);
  for (int i = 0; i < kCols; ++i) {
    EXPECT_EQ(world.slot(9)[i], 0);
    EXPECT_EQ(world.slot(10)[i], 0);
  }
}

// With the channels last this divided by zero.
TEST(OddCalls, ImagesWithoutPositionsHaveNoMean) {
  batch_norm::ForwardArgs args;
  args.training = true;
  float mean[] = {1, 2, 3, 4}, none = 0;
  args.x = args.y = {.data = &none, .rank = 3, .shape = {3, 4, 0}, .strides = {0, 1, 4}};
  args.mean = {.data = mean, .bytes = sizeof mean, .rank = 1, .shape = {4}, .strides = {1}};
  batch_norm::forward(args, simd::here(1));
  for (const float each : mean) EXPECT_TRUE(std::isnan(each));
}

// What spoils right calls knows one of each.
TEST(Entries, ThereIsOneForEveryOperation) {
  for (const Operation* operation : catalog()) {
    const std::string name =
        std::string(operation->op) + (operation->pass == "bwd" ? " backward" : "");
    EXPECT_TRUE(std::ranges::any_of(kEntries, [&](const Entry& one) { return one.name == name; }))
        << "tests/calls.h has no right call of " << name;
  }
}

}  // namespace
}  // namespace isobit
