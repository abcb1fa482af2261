// SPDX-License-Identifier: Apache-2.0
// The work that a call may ask for whose inputs repeat memory. Calls are checked and not made, so
// that their arrays need no memory: the numbers are those of large ones.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <string_view>

#include "isobit/core/error.h"
#include "isobit/dispatch/operation.h"
#include "isobit/ops/attention/attention.h"
#include "isobit/ops/batch_norm/batch_norm.h"
#include "isobit/ops/conv2d/conv2d.h"
#include "isobit/ops/cross_entropy/cross_entropy.h"
#include "isobit/ops/elementwise/elementwise.h"
#include "isobit/ops/embedding/embedding.h"
#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/ops/matmul/matmul.h"
#include "isobit/ops/pool2d/pool2d.h"
#include "isobit/ops/reduce/reduce.h"
#include "isobit/ops/rmsnorm/rmsnorm.h"
#include "isobit/ops/transpose/transpose.h"

namespace isobit {
namespace held_test {
namespace {

using Numbers = std::array<std::int64_t, kMaxRank>;

std::int64_t p2(int exponent) { return std::int64_t{1} << exponent; }

// Arrays far from each other, at places that no check reads.
class Arrays {
 public:
  TensorView operator()(int rank, Numbers shape, Numbers strides, DType dtype = DType::f32) {
    at_ += kApart;
    return {reinterpret_cast<void*>(at_), kApart, dtype, rank, shape, strides};
  }
  TensorView dense(int rank, Numbers shape, DType dtype = DType::f32) {
    Numbers strides{};
    for (std::int64_t i = rank - 1, stride = 1; i >= 0; --i) {
      const auto dim = static_cast<std::size_t>(i);
      strides[dim] = stride;
      stride *= shape[dim];
    }
    return (*this)(rank, shape, strides, dtype);
  }

 private:
  static constexpr std::int64_t kApart = std::int64_t{1} << 48;  // bytes
  std::int64_t at_ = 0;
};

// What a call is refused with, or nothing.
template <class Args>
std::string told(const Operation& operation, const Args& args) {
  const Arguments arguments = operation.make_arguments();
  *static_cast<Args*>(arguments.get()) = args;
  try {
    operation.check(arguments);
  } catch (const InvalidArgument& error) { return error.what(); }
  return "";
}

testing::AssertionResult refused(const std::string& said, std::string_view name) {
  if (said.starts_with(name) && said.find("repeats memory") != std::string::npos)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "said: " << said;
}

// x and grad_y as rows at these strides, of which only the gradient of the weight is wanted.
template <class Args>
std::string of_weights(const Operation& operation, std::int64_t rows, std::int64_t x_stride,
                       std::int64_t grad_y_stride, bool wants_rows = false) {
  Arrays arrays;
  Args args;
  args.x = arrays(2, {rows, 4}, {x_stride, 1});
  args.grad_y = arrays(2, {rows, 4}, {grad_y_stride, 1});
  args.grad_weight = arrays.dense(1, {4});
  if (wants_rows) args.grad_x = arrays.dense(2, {rows, 4});
  return told(operation, args);
}

template <class Args>
void expect_bounded(const Operation& operation) {
  const std::int64_t most = p2(30);
  const auto said = [&](auto... call) { return of_weights<Args>(operation, call...); };
  EXPECT_EQ(said(most, 0, 0), "");
  EXPECT_EQ(said(most + 1, 0, 0),
            text(operation.op,
                 " backward: x of shape (1073741825, 4) and strides (0, 1) repeats memory: it has "
                 "4294967300 elements; the call's arrays hold 12, of which beyond 2^32 elements "
                 "1024 times as many are allowed"));
  EXPECT_TRUE(refused(said(p2(46), 0, 0), text(operation.op, " backward: x")));
  // Windows that overlap hold nearly as many as they have.
  EXPECT_EQ(said(most + 1, 3, 0), "");
  EXPECT_EQ(said(most + 1, 4, 0), "");
  EXPECT_EQ(said(most + 1, 0, 5), "");
  EXPECT_EQ(said(most + 1, 0, 0, true), "");
}

TEST(RepeatedRows, AskForNoMoreWorkThanArraysHold) {
  expect_bounded<layernorm::BackwardArgs>(layernorm::backward_operation());
  expect_bounded<rmsnorm::BackwardArgs>(rmsnorm::backward_operation());
}

TEST(RepeatedMemory, LongWindowsAreNotHeldByTheFewElementsThatTheyShare) {
  Arrays arrays;
  const TensorView x = arrays(2, {p2(23), p2(23)}, {1, 1});  // 2^46 elements of 2^24
  const TensorView weight = arrays.dense(1, {p2(23)});
  EXPECT_TRUE(refused(told(layernorm::backward_operation(),
                           layernorm::BackwardArgs{.x = x, .grad_y = x, .grad_weight = weight}),
                      "layernorm backward: x "));
}

TEST(RepeatedMemory, SumsOverWhatNoArrayHoldsAreRefused) {
  Arrays arrays;
  const TensorView x = arrays(2, {8, p2(40)}, {1, 0});
  const TensorView same = arrays(2, {8, p2(40)}, {0, 1});  // a row of 2^40, eight times
  EXPECT_TRUE(refused(
      told(reduce::forward_operation(), reduce::ForwardArgs{.x = x, .y = arrays.dense(1, {8})}),
      "reduce: x of shape (8, 1099511627776) and strides (1, 0)"));
  EXPECT_EQ(
      told(reduce::forward_operation(), reduce::ForwardArgs{.x = same, .y = arrays.dense(1, {8})}),
      "");
  const TensorView planes = arrays(3, {p2(20), 8, p2(20)}, {0, 1, 0});
  EXPECT_TRUE(refused(told(batch_norm::backward_operation(),
                           batch_norm::BackwardArgs{.x = planes,
                                                    .grad_y = planes,
                                                    .grad_weight = arrays.dense(1, {8}),
                                                    .training = true}),
                      "batch_norm backward: x"));
  // A table's gradient adds the gradients of all occurrences.
  EXPECT_TRUE(refused(told(embedding::backward_operation(),
                           embedding::BackwardArgs{.grad_y = arrays(2, {p2(28), p2(14)}, {0, 1}),
                                                   .index = arrays.dense(1, {p2(28)}, DType::i64),
                                                   .grad_weight = arrays.dense(2, {3, p2(14)})}),
                      "embedding backward: grad_y"));
}

// c = a b of m x k and k x n with these strides; c lies in memory.
std::string product(std::int64_t m, std::int64_t k, std::int64_t n, Numbers a, Numbers b) {
  Arrays arrays;
  return told(matmul::forward_operation(), matmul::ForwardArgs{.a = arrays(2, {m, k}, a),
                                                               .b = arrays(2, {k, n}, b),
                                                               .y = arrays.dense(2, {m, n})});
}

TEST(RepeatedMemory, ProductsOfWhatNoMatrixHoldsAreRefused) {
  EXPECT_EQ(product(1, p2(32), 1, {0, 0}, {0, 0}), "");
  EXPECT_EQ(product(1, p2(32) + 1, 1, {0, 0}, {0, 0}),
            "matmul: a of shape (1, 4294967297) and strides (0, 0) repeats memory: it has "
            "4294967297 elements along one dimension; the call's arrays hold 3, of which beyond "
            "2^32 elements 1024 times as many are allowed");
  EXPECT_EQ(product(p2(10), p2(19), p2(10), {0, 0}, {0, 0}), "");
  EXPECT_EQ(product(p2(10), p2(20), p2(10), {0, 0}, {0, 0}),
            "matmul: a of shape (1024, 1048576) and strides (0, 0) repeats memory, and the call "
            "takes 2.19902e+12 operations; its arrays hold 1048578 elements, of which beyond 2^40 "
            "operations the square is allowed");
  // One operand holds k.
  EXPECT_EQ(product(p2(10), p2(30), p2(10), {0, 0}, {p2(10), 1}), "");
  EXPECT_EQ(product(p2(10), p2(30), p2(10), {p2(30), 1}, {0, 0}), "");
}

TEST(RepeatedMemory, KeysThatNoArrayHoldsAreRefused) {
  Arrays arrays;
  const auto call = [&](Numbers strides) {
    const TensorView keys = arrays(4, {1, 1, p2(32), 8}, strides);
    return told(attention::forward_operation(), [&] {
      attention::ForwardArgs args;
      args.q = arrays.dense(4, {1, 1, p2(10), 8});
      args.k = args.v = keys;
      args.y = arrays.dense(4, {1, 1, p2(10), 8});
      return args;
    }());
  };
  EXPECT_TRUE(refused(call({0, 0, 0, 1}), "attention: k"));
  EXPECT_EQ(call({0, 0, 8, 1}), "");
}

TEST(RepeatedMemory, WindowsOfAnImageThatRepeatsArePaidForByWhatIsHeld) {
  Arrays arrays;
  pool2d::ForwardArgs args{.x = arrays(4, {1, 1, p2(15), p2(15)}, {0, 0, 0, 0}),
                           .y = arrays.dense(4, {1, 1, p2(10) + 1, p2(10) + 1})};
  args.window_h = args.window_w = p2(14);
  args.stride_h = args.stride_w = 16;
  EXPECT_TRUE(refused(told(pool2d::forward_operation(), args), "pool2d: x"));
  args.x = arrays.dense(4, {1, 1, p2(15), p2(15)});
  EXPECT_EQ(told(pool2d::forward_operation(), args), "");
}

// What PyTorch's expand() makes of ordinary models, at large sizes.
TEST(RepeatedMemory, ExpandedArraysOfModelsAreTaken) {
  Arrays arrays;
  // A number added to a large array; one row transposed often: the result holds it all.
  const TensorView x = arrays.dense(2, {p2(30), p2(12)});
  EXPECT_EQ(told(elementwise::operation(),
                 elementwise::Args{.x = x,
                                   .residual = arrays(2, {p2(30), p2(12)}, {0, 1}),
                                   .y = arrays.dense(2, {p2(30), p2(12)})}),
            "");
  EXPECT_EQ(told(transpose::operation(), transpose::Args{.x = arrays(2, {p2(30), p2(12)}, {0, 1}),
                                                         .y = arrays.dense(2, {p2(12), p2(30)})}),
            "");
  // A matrix for a batch of 65536 rows has 2^40 elements, of which it holds 2^24.
  EXPECT_EQ(told(matmul::forward_operation(),
                 matmul::ForwardArgs{.a = arrays.dense(3, {p2(16), 1, p2(12)}),
                                     .b = arrays(3, {p2(16), p2(12), p2(12)}, {0, p2(12), 1}),
                                     .y = arrays.dense(3, {p2(16), 1, p2(12)})}),
            "");
  // The gradient of sum().
  EXPECT_EQ(told(layernorm::backward_operation(),
                 layernorm::BackwardArgs{.x = x,
                                         .grad_y = arrays(2, {p2(30), p2(12)}, {0, 1}),
                                         .grad_weight = arrays.dense(1, {p2(12)})}),
            "");
  // Eight heads of keys for 64 of queries, and one mask for all.
  attention::ForwardArgs args;
  const std::int64_t seq = p2(17), dim = p2(7);
  args.q = arrays.dense(4, {8, 64, seq, dim});
  args.k = args.v = arrays(4, {8, 64, seq, dim}, {8 * seq * dim, 0, dim, 1});
  args.mask = arrays(4, {8, 64, seq, seq}, {0, 0, seq, 1}, DType::boolean);
  args.y = arrays.dense(4, {8, 64, seq, dim});
  EXPECT_EQ(told(attention::forward_operation(), args), "");
}

// What an operator's own count of operations would take hours to find.
TEST(RepeatedMemory, QueriesThatNoArrayHoldsAreRefusedAtOnce) {
  Arrays arrays;
  const TensorView queries = arrays(4, {1, 1, p2(40), 8}, {0, 0, 0, 1}),
                   rows = arrays(3, {1, 1, p2(40)}, {0, 0, 0}),
                   keys = arrays.dense(4, {1, 1, 16, 8});
  attention::BackwardArgs args;
  args.grad_y = args.q = args.y = queries;
  args.max = args.sum = rows;
  args.k = args.v = keys;
  args.grad_k = arrays.dense(4, {1, 1, 16, 8});
  args.grad_v = arrays.dense(4, {1, 1, 16, 8});
  EXPECT_TRUE(refused(told(attention::backward_operation(), args), "attention backward: grad_y"));
}

}  // namespace
}  // namespace held_test
}  // namespace isobit
