// SPDX-License-Identifier: Apache-2.0
// What is peculiar to matmul's gradients: they are products, rows of a batch are themselves alone,
// layouts, orders of sums, and how much memory is taken.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "float_arrays.h"
#include "isobit/core/error.h"
#include "isobit/core/order.h"
#include "isobit/dispatch/operation.h"
#include "isobit/lab/configurations.h"
#include "isobit/ops/matmul/matmul.h"

namespace isobit::matmul {
namespace {

Execution on(Isa isa, int threads) { return lab::execution_for(isa, threads); }
Execution here(int threads = 2) { return on(Machine::here().isa, threads); }

struct Sizes {
  std::int64_t m, n, k;
};

struct Gradients {
  Floats a, b, bias, c;

  explicit Gradients(const Sizes& s)
      : a(static_cast<std::size_t>(s.m * s.k), kNan),
        b(static_cast<std::size_t>(s.k * s.n), kNan),
        bias(static_cast<std::size_t>(s.n), kNan),
        c(static_cast<std::size_t>(s.m * s.n), kNan) {}
  bool operator==(const Gradients& other) const {
    return same(a, other.a) && same(b, other.b) && same(bias, other.bias) && same(c, other.c);
  }
};

// A call and its arrays.
struct Call {
  Sizes sizes;
  Floats grad, a, b, pre;
  BackwardArgs args;

  explicit Call(const Sizes& s)
      : sizes(s),
        grad(numbers(s.m * s.n, 3)),
        a(numbers(s.m * s.k)),
        b(numbers(s.k * s.n, 2)),
        pre(numbers(s.m * s.n, 4)) {
    args.grad_y = view(grad.data(), {s.m, s.n});
    args.a = view(a.data(), {s.m, s.k});
    args.b = view(b.data(), {s.k, s.n});
    args.pre = view(pre.data(), {s.m, s.n});
  }
  Gradients gradients(const Execution& execution) const {
    Gradients found(sizes);
    BackwardArgs call = args;
    call.grad_a = view(found.a.data(), {sizes.m, sizes.k});
    call.grad_b = view(found.b.data(), {sizes.k, sizes.n});
    call.grad_bias = view(found.bias.data(), {sizes.n});
    call.grad_c = view(found.c.data(), {sizes.m, sizes.n});
    backward(call, execution);
    return found;
  }
};

Floats turned(const Floats& from, std::int64_t rows, std::int64_t cols) {
  Floats to(from.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j)
      to[static_cast<std::size_t>(j * rows + i)] = from[static_cast<std::size_t>(i * cols + j)];
  return to;
}

TEST(MatmulBackward, GradientsAreProductsOfSAndItsSums) {
  for (const Sizes& s : {Sizes{1, 1, 1}, {7, 5, 13}, {40, 33, 20}, {600, 20, 5}, {3, 700, 40}})
    for (Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
      Call call(s);
      call.args.activation = activation;
      call.args.beta = 0.5;
      const Gradients found = call.gradients(here());
      // With beta 0.5 grad_c is s halved, exactly.
      Floats bent = found.c;
      for (float& value : bent) value *= 2;
      const TensorView of_s = view(bent.data(), {s.m, s.n});
      const Floats b_turned = turned(call.b, s.k, s.n), a_turned = turned(call.a, s.m, s.k);
      Gradients expected(s);
      forward({.a = of_s,
               .b = view(b_turned.data(), {s.n, s.k}),
               .y = view(expected.a.data(), {s.m, s.k})},
              here());
      forward({.a = view(a_turned.data(), {s.k, s.m}),
               .b = of_s,
               .y = view(expected.b.data(), {s.k, s.n})},
              here());
      EXPECT_TRUE(same(found.a, expected.a)) << s.m << 'x' << s.n << 'x' << s.k;
      EXPECT_TRUE(same(found.b, expected.b)) << s.m << 'x' << s.n << 'x' << s.k;
      for (std::int64_t j = 0; j < s.n; ++j)
        EXPECT_EQ(found.bias[static_cast<std::size_t>(j)],
                  order::sum_rows<float>(s.m, [&](float sum, std::int64_t i) {
                    return sum + bent[static_cast<std::size_t>(i * s.n + j)];
                  }));
    }
}

TEST(MatmulBackward, InstructionSetsAndThreadsDoNotMatter) {
  for (const Sizes& s : {Sizes{33, 70, 20}, {1100, 33, 9}, {5, 40, 1200}, {2, 3, 40}}) {
    Call call(s);
    call.args.activation = Activation::silu;
    call.args.beta = -1;
    const Gradients expected = call.gradients(here(1));
    for (Isa isa : Machine::isas_here())
      for (int threads : {1, 2, 3, 7})
        EXPECT_TRUE(call.gradients(on(isa, threads)) == expected)
            << s.m << 'x' << s.n << 'x' << s.k << ' ' << threads;
  }
}

TEST(MatmulBackward, ARowOfABatchEqualsItselfAlone) {
  const Sizes s{257, 75, 60};
  Call call(s);
  call.args.activation = Activation::gelu;
  const Floats all = call.gradients(here()).a;
  std::int64_t row = 0;
  for (std::int64_t m : {1, 2, 5, 8, 9, 14, 15, 33, 100, 256}) {
    row = (row + 31) % (s.n - 1) % (s.m - m + 1);
    Floats some(static_cast<std::size_t>(m * s.k), kNan);
    BackwardArgs part = call.args;
    part.grad_y = view(call.grad.data() + row * s.n, {m, s.n});
    part.pre = view(call.pre.data() + row * s.n, {m, s.n});
    part.a = view(call.a.data() + row * s.k, {m, s.k});
    part.grad_a = view(some.data(), {m, s.k});
    backward(part, here());
    EXPECT_EQ(std::memcmp(some.data(), all.data() + row * s.k, some.size() * 4), 0)
        << m << " rows from " << row;
  }
}

TEST(MatmulBackward, LayoutsDoNotMatter) {
  for (const Sizes& s : {Sizes{20, 40, 30}, {3, 50, 600}, {530, 17, 4}, {2, 2, 2}}) {
    Call call(s);
    call.args.activation = Activation::gelu_tanh;
    call.args.beta = 2;
    const Gradients expected = call.gradients(here());
    const Floats grad = turned(call.grad, s.m, s.n), pre = turned(call.pre, s.m, s.n);
    const Floats a = turned(call.a, s.m, s.k), b = turned(call.b, s.k, s.n);
    Floats spread(2 * call.pre.size());
    for (std::size_t i = 0; i < call.pre.size(); ++i) spread[2 * i] = call.pre[i];
    for (int which = 0; which < 32; ++which) {
      Call other(s);
      other.args = call.args;
      if (which & 1) other.args.grad_y = view(grad.data(), {s.m, s.n}, {1, s.m});
      if (which & 2) other.args.pre = view(pre.data(), {s.m, s.n}, {1, s.m});
      if (which & 4) other.args.a = view(a.data(), {s.m, s.k}, {1, s.m});
      if (which & 8) other.args.b = view(b.data(), {s.k, s.n}, {1, s.k});
      if (which & 16) other.args.pre = view(spread.data(), {s.m, s.n}, {2 * s.n, 2});
      EXPECT_TRUE(other.gradients(here()) == expected) << which;
    }
    // And the gradients the other way round.
    Gradients found(s);
    BackwardArgs args = call.args;
    args.grad_a = view(found.a.data(), {s.m, s.k}, {1, s.m});
    args.grad_b = view(found.b.data(), {s.k, s.n}, {1, s.k});
    args.grad_c = view(found.c.data(), {s.m, s.n}, {1, s.m});
    backward(args, here());
    EXPECT_TRUE(same(found.a, turned(expected.a, s.m, s.k)));
    EXPECT_TRUE(same(found.b, turned(expected.b, s.k, s.n)));
    EXPECT_TRUE(same(found.c, turned(expected.c, s.m, s.n)));
  }
}

TEST(MatmulBackward, ABatchIsItsProductsAndTheBiasSumsThemAll) {
  constexpr std::int64_t kBatch = 3, kM = 20, kN = 34, kK = 9;
  Call whole({kBatch * kM, kN, kK});
  whole.args.activation = Activation::silu;
  const Gradients rows = whole.gradients(here());
  const Floats b = numbers(kBatch * kK * kN, 7);
  Floats of_a(kBatch * kM * kK), of_b(b.size()), of_bias(kN);
  BackwardArgs args = whole.args;
  args.grad_y = view(whole.grad.data(), {kBatch, kM, kN});
  args.pre = view(whole.pre.data(), {kBatch, kM, kN});
  args.a = view(whole.a.data(), {kBatch, kM, kK});
  args.b = view(b.data(), {kBatch, kK, kN});
  args.grad_a = view(of_a.data(), {kBatch, kM, kK});
  args.grad_b = view(of_b.data(), {kBatch, kK, kN});
  args.grad_bias = view(of_bias.data(), {kN});
  backward(args, here());
  EXPECT_TRUE(same(of_bias, rows.bias));
  for (std::int64_t i = 0; i < kBatch; ++i) {
    Call one({kM, kN, kK});
    one.args = whole.args;
    one.args.grad_y = view(whole.grad.data() + i * kM * kN, {kM, kN});
    one.args.pre = view(whole.pre.data() + i * kM * kN, {kM, kN});
    one.args.a = view(whole.a.data() + i * kM * kK, {kM, kK});
    one.args.b = view(b.data() + i * kK * kN, {kK, kN});
    const Gradients alone = one.gradients(here());
    EXPECT_EQ(std::memcmp(alone.a.data(), of_a.data() + i * kM * kK, alone.a.size() * 4), 0);
    EXPECT_EQ(std::memcmp(alone.b.data(), of_b.data() + i * kK * kN, alone.b.size() * 4), 0);
  }
}

// A gradient that repeats, as that of a sum does, was joined to rows of a, and what stands in pre
// with it: products of the batch took the slopes of others.
TEST(MatmulBackward, AGradientThatRepeatsOverTheBatchIsThatOfEachProduct) {
  struct Case {
    std::int64_t m, n, k;
    bool turned;  // a is a view of its transpose
  };
  constexpr std::int64_t kBatch = 3;
  for (const Case& of : {Case{4, 5, 1, false}, {4, 5, 4, true}, {1, 6, 3, false}}) {
    const std::int64_t m = of.m, n = of.n, k = of.k;
    const bool turned = of.turned;
    const Floats grad = numbers(m * n, 3), a = numbers(kBatch * m * k),
                 b = numbers(kBatch * k * n, 2), pre = numbers(kBatch * m * n, 4);
    Floats repeated;
    for (std::int64_t i = 0; i < kBatch; ++i)
      repeated.insert(repeated.end(), grad.begin(), grad.end());
    const auto of_b = [&](const TensorView& grad_y) {
      Floats found(b.size(), kNan);
      BackwardArgs args;
      args.grad_y = grad_y;
      args.a =
          turned ? view(a.data(), {kBatch, m, k}, {m * k, 1, m}) : view(a.data(), {kBatch, m, k});
      args.b = view(b.data(), {kBatch, k, n});
      args.pre = view(pre.data(), {kBatch, m, n});
      args.grad_b = view(found.data(), {kBatch, k, n});
      args.activation = Activation::gelu;
      backward(args, here());
      return found;
    };
    EXPECT_TRUE(same(of_b(view(grad.data(), {kBatch, m, n}, {0, n, 1})),
                     of_b(view(repeated.data(), {kBatch, m, n}))))
        << m << ' ' << n << ' ' << k;
  }
}

// As in PyTorch.
TEST(MatmulBackward, ReluHasNoSlopeAtZeroAndLetsGradientsThroughWhereItsArgumentIsNan) {
  const Sizes s{1, 5, 1};
  Call call(s);
  call.args.activation = Activation::relu;
  call.args.beta = 1;
  call.pre = {-1, -0.0f, 0, kNan, 1e-45f};
  call.grad = {kNan, 2, kInfinity, 4, 5};
  EXPECT_EQ(call.gradients(here()).c, (Floats{0, 0, 0, 4, 5}));
}

TEST(MatmulBackward, GradientOfCIsZeroWhereBetaIs) {
  Call call({2, 3, 4});
  call.grad[1] = kInfinity;
  EXPECT_EQ(call.gradients(here()).c, Floats(6));
}

TEST(MatmulBackward, AnActivationNeedsPre) {
  Call call({2, 3, 4});
  call.args.activation = Activation::gelu;
  call.args.pre = {};
  EXPECT_THROW(call.gradients(here()), InvalidArgument);
}

TEST(MatmulBackward, WithoutRowsOrColumnsGradientsAreZero) {
  for (const Sizes& s : {Sizes{0, 3, 4}, {3, 0, 4}, {3, 4, 0}}) {
    Call call(s);
    call.args.activation = Activation::silu;
    const Gradients found = call.gradients(here());
    EXPECT_EQ(found.a, Floats(found.a.size()));
    EXPECT_EQ(found.b, Floats(found.b.size()));
    const Floats bias = s.m == 0 ? found.bias : Floats();
    EXPECT_EQ(bias, Floats(bias.size()));
  }
}

TEST(MatmulBackward, NoCallTakesMoreThan16MiB) {
  for (const Sizes& s : {Sizes{300, 2100, 600}, {40000, 64, 64}, {5000, 900, 1}, {4, 9000, 500}}) {
    Call call(s);
    call.args.activation = Activation::relu;
    for (int threads : {1, 2, 64}) {
      Counted counted;
      counted.grants = s.m == 300;  // the others are long
      Execution execution = here(threads);
      execution.machine.threads = threads;
      execution.allocator = {Counted::take, Counted::give_back, &counted};
      if (counted.grants)
        call.gradients(execution);
      else
        EXPECT_THROW(call.gradients(execution), OutOfMemory);
      EXPECT_LE(counted.most, (16 << 20) + 4096) << s.m << " x " << s.n << " x " << s.k;
      EXPECT_EQ(counted.now, 0);
    }
  }
}

}  // namespace
}  // namespace isobit::matmul
