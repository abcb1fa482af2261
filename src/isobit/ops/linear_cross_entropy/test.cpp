// SPDX-License-Identifier: Apache-2.0
// What only linear_cross_entropy promises: the bits of the two operators one after the other,
// however rows are cut, and no memory for more logits than a piece has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/ops/cross_entropy/cross_entropy.h"
#include "isobit/ops/linear_cross_entropy/linear_cross_entropy.h"
#include "isobit/ops/matmul/matmul.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::linear_cross_entropy {
namespace {

// Numbers of a type with gradients beside them.
template <class T>
struct Call {
  static constexpr DType kDType = std::is_same_v<T, float> ? DType::f32 : DType::bf16;

  std::int64_t rows, cols, classes;
  std::vector<T> x, weight, bias, grad_x, grad_weight, grad_bias;
  std::vector<float> loss, largest, sum, total{7}, count{7}, grad_loss;
  std::vector<std::int64_t> target;

  Call(std::int64_t rows, std::int64_t cols, std::int64_t classes)
      : rows(rows),
        cols(cols),
        classes(classes),
        x(made(rows * cols, 1)),
        weight(made(classes * cols, 2)),
        bias(made(classes, 3)),
        grad_x(rows * cols),
        grad_weight(classes * cols),
        grad_bias(classes),
        loss(rows, 7),
        largest(rows),
        sum(rows) {
    for (std::int64_t row = 0; row < rows; ++row) {
      target.push_back(row % 7 == 3 ? -100 : row * row % classes);
      grad_loss.push_back(std::sin(static_cast<float>(row)));
    }
  }

  static std::vector<T> made(std::int64_t count, int seed) {
    std::vector<T> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(narrow<T>(std::sin(static_cast<float>(i * seed + seed))));
    return values;
  }
  static TensorView matrix(std::vector<T>& values, std::int64_t rows, std::int64_t cols) {
    return matrix_view(values.data(), std::ssize(values) * size_of(kDType), kDType, rows, cols,
                       cols);
  }
  static TensorView vector(std::vector<T>& values) {
    return vector_view(values.data(), std::ssize(values) * size_of(kDType), kDType,
                       std::ssize(values));
  }
  static TensorView numbers(std::vector<float>& values) {
    return vector_view(values.data(), std::ssize(values) * 4, DType::f32, std::ssize(values));
  }
  TensorView targets() {
    return vector_view(target.data(), std::ssize(target) * 8, DType::i64, std::ssize(target));
  }

  ForwardArgs forward_args() {
    return {.x = matrix(x, rows, cols),
            .weight = matrix(weight, classes, cols),
            .bias = vector(bias),
            .target = targets(),
            .loss = numbers(loss),
            .largest = numbers(largest),
            .sum = numbers(sum),
            .total = numbers(total),
            .count = numbers(count),
            .label_smoothing = 0.125,
            .z_loss = 0.25};
  }
  BackwardArgs backward_args() {
    return {.grad_loss = numbers(grad_loss),
            .x = matrix(x, rows, cols),
            .weight = matrix(weight, classes, cols),
            .bias = vector(bias),
            .target = targets(),
            .largest = numbers(largest),
            .sum = numbers(sum),
            .grad_x = matrix(grad_x, rows, cols),
            .grad_weight = matrix(grad_weight, classes, cols),
            .grad_bias = vector(grad_bias),
            .label_smoothing = 0.125,
            .z_loss = 0.25};
  }
  void run(const Execution& execution) {
    forward(forward_args(), execution);
    backward(backward_args(), execution);
  }

  // The same by the operators that there are, with all logits.
  void run_apart(const Execution& execution) {
    std::vector<T> logits(rows * classes);
    TensorView turned = matrix(weight, classes, cols);
    std::swap(turned.shape[0], turned.shape[1]);
    std::swap(turned.strides[0], turned.strides[1]);
    const TensorView view = matrix(logits, rows, classes);
    matmul::forward({.a = matrix(x, rows, cols), .b = turned, .bias = vector(bias), .y = view},
                    execution);
    cross_entropy::forward({.x = view,
                            .target = targets(),
                            .loss = numbers(loss),
                            .largest = numbers(largest),
                            .sum = numbers(sum),
                            .total = numbers(total),
                            .count = numbers(count),
                            .label_smoothing = 0.125,
                            .z_loss = 0.25},
                           execution);
    cross_entropy::backward({.grad_loss = numbers(grad_loss),
                             .x = view,
                             .target = targets(),
                             .largest = numbers(largest),
                             .sum = numbers(sum),
                             .grad_x = view,
                             .label_smoothing = 0.125,
                             .z_loss = 0.25},
                            execution);
    TensorView grad_turned = matrix(grad_weight, classes, cols);
    std::swap(grad_turned.shape[0], grad_turned.shape[1]);
    std::swap(grad_turned.strides[0], grad_turned.strides[1]);
    matmul::backward({.grad_y = view,
                      .a = matrix(x, rows, cols),
                      .b = turned,
                      .grad_a = matrix(grad_x, rows, cols),
                      .grad_b = grad_turned,
                      .grad_bias = vector(grad_bias)},
                     execution);
  }
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// On both sides of a piece, of a run of pieces, and of more runs than one, which are added by
// pairs.
template <class T>
void expect_the_bits_of_both_operators() {
  for (const std::int64_t rows : {1, 511, 512, 513, 1100, 8192, 8193, 25000}) {
    SCOPED_TRACE(rows);
    Call<T> one(rows, 5, 9), apart(rows, 5, 9);
    const Execution execution = simd::here(2);
    one.run(execution);
    apart.run_apart(execution);
    for (std::vector<float> Call<T>::* numbers :
         {&Call<T>::loss, &Call<T>::largest, &Call<T>::sum, &Call<T>::total, &Call<T>::count})
      EXPECT_EQ(bytes_of(one.*numbers), bytes_of(apart.*numbers));
    EXPECT_EQ(bytes_of(one.grad_x), bytes_of(apart.grad_x));
    EXPECT_EQ(bytes_of(one.grad_weight), bytes_of(apart.grad_weight));
    EXPECT_EQ(bytes_of(one.grad_bias), bytes_of(apart.grad_bias));
  }
}

TEST(LinearCrossEntropy, HasTheBitsOfTheTwoOperatorsOneAfterTheOther) {
  expect_the_bits_of_both_operators<float>();
}
TEST(LinearCrossEntropy, HasTheirBitsAlsoWhereSumsAreRoundedTo16Bits) {
  expect_the_bits_of_both_operators<bf16>();
}

// The most that was taken from the allocator at a time.
struct Counted {
  std::int64_t taken = 0;

  static void* allocate(void* self, std::size_t bytes) {
    static_cast<Counted*>(self)->taken =
        std::max(static_cast<Counted*>(self)->taken, static_cast<std::int64_t>(bytes));
    return std::malloc(bytes);
  }
  static void release(void*, void* memory, std::size_t) { std::free(memory); }
};

TEST(LinearCrossEntropy, TakesMemoryForSomeRowsOfLogitsHoweverManyThereAre) {
  constexpr std::int64_t kRows = 8192, kClasses = 3000;
  Call<float> call(kRows, 4, kClasses);
  Counted counted;
  Execution execution = simd::here(1);
  execution.allocator = {Counted::allocate, Counted::release, &counted};
  call.run(execution);
  EXPECT_LT(counted.taken, kRows * kClasses * 4 / 8);
  EXPECT_GT(counted.taken, 0);
}

// Memory with marks behind it, and whether they were there still when it came back.
struct Marked {
  static constexpr std::size_t kMarks = 1 << 16;
  static constexpr char kMark = 0x5a;
  bool kept = true;

  static void* allocate(void*, std::size_t bytes) {
    auto* const memory = static_cast<char*>(std::malloc(bytes + kMarks));
    std::fill_n(memory + bytes, kMarks, kMark);
    return memory;
  }
  static void release(void* self, void* memory, std::size_t bytes) {
    const char* const marks = static_cast<char*>(memory) + bytes;
    if (std::any_of(marks, marks + kMarks, [](char mark) { return mark != kMark; }))
      static_cast<Marked*>(self)->kept = false;
    std::free(memory);
  }
};

// A product that is added to another once needed more memory than the one that begins a sum.
TEST(LinearCrossEntropy, PiecesBetweenTheFirstAndTheLastStayInTheirMemory) {
  Call<float> call(1100, 13, 37);
  Marked marked;
  Execution execution = simd::here(1);
  execution.allocator = {Marked::allocate, Marked::release, &marked};
  call.run(execution);
  EXPECT_TRUE(marked.kept);
}

TEST(LinearCrossEntropy, ATargetThatIsNoClassIsNamedBeforeAnythingIsWritten) {
  Call<float> call(600, 3, 5);
  call.target[599] = 5;
  const std::string expected =
      "linear_cross_entropy: target[599] is 5; there are classes from 0 to 4, and ignore_index is "
      "-100";
  for (const bool is_forward : {true, false}) {
    try {
      if (is_forward)
        forward(call.forward_args(), simd::here(1));
      else
        backward(call.backward_args(), simd::here(1));
      FAIL();
    } catch (const InvalidArgument& error) { EXPECT_EQ(error.what(), expected); }
  }
  EXPECT_EQ(call.loss, std::vector<float>(600, 7));
  EXPECT_EQ(call.grad_weight, std::vector<float>(15));
}

TEST(LinearCrossEntropy, GradientsOfXMayTakeItsPlace) {
  Call<float> call(1100, 5, 9), there(1100, 5, 9);
  call.run(simd::here(1));
  forward(there.forward_args(), simd::here(1));
  BackwardArgs args = there.backward_args();
  args.grad_x = args.x;
  backward(args, simd::here(1));
  EXPECT_EQ(bytes_of(there.x), bytes_of(call.grad_x));
  EXPECT_EQ(bytes_of(there.grad_weight), bytes_of(call.grad_weight));
}

}  // namespace
}  // namespace isobit::linear_cross_entropy
