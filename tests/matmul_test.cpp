// SPDX-License-Identifier: Apache-2.0
// What is peculiar to matmul: rows alone and among others, layouts, what must not be read, places
// in memory, and how much of it is taken.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "float_arrays.h"
#include "guarded_pages.h"
#include "isobit/core/error.h"
#include "isobit/core/order.h"
#include "isobit/dispatch/operation.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/devices.h"
#include "isobit/ops/matmul/matmul.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::matmul {
namespace {

Floats product(const TensorView& a, const TensorView& b, const Execution& execution,
               ForwardArgs args = {}) {
  const std::int64_t m = a.shape[a.rank - 2], n = b.shape[b.rank - 1];
  std::vector<std::int64_t> shape(a.shape.begin(), a.shape.begin() + a.rank - 2);
  shape.insert(shape.end(), {m, n});
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;
  Floats y(static_cast<std::size_t>(count), kNan);
  args.a = a;
  args.b = b;
  args.y = view(y.data(), shape);
  forward(args, execution);
  return y;
}

// pytorch #136338, #45422, #111840: elsewhere a row changes with the rows beside it.
TEST(Matmul, RowOfABatchEqualsItselfAlone) {
  constexpr std::int64_t kRows = 257, kCols = 75, kDepth = 600;
  const Floats a = numbers(kRows * kDepth), b = numbers(kDepth * kCols, 2);
  for (Isa isa : Machine::isas_here()) {
    const Floats all = product(view(a.data(), {kRows, kDepth}), view(b.data(), {kDepth, kCols}),
                               lab::execution_for(isa, 1));
    std::int64_t row = 0;
    for (std::int64_t m : {1, 2, 3, 5, 8, 9, 13, 14, 15, 16, 28, 29, 64, 100, 255, 257}) {
      for (int threads : {1, 2, 7}) {
        const std::int64_t first = row++ % (kRows - m + 1);
        const Floats some =
            product(view(a.data() + first * kDepth, {m, kDepth}), view(b.data(), {kDepth, kCols}),
                    lab::execution_for(isa, threads));
        EXPECT_EQ(std::memcmp(some.data(), all.data() + first * kCols, some.size() * 4), 0)
            << m << " rows from " << first << ", " << threads << " threads";
      }
    }
  }
}

TEST(Matmul, LayoutsDoNotMatter) {
  for (std::int64_t m : {1, 3, 20, 40})
    for (std::int64_t n : {1, 40, 83})
      for (std::int64_t k : {1, 21, 530}) {
        const Floats a = numbers(m * k), b = numbers(k * n, 2);
        Floats a_turned(a), b_turned(b);
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t p = 0; p < k; ++p) a_turned[p * m + i] = a[i * k + p];
        for (std::int64_t p = 0; p < k; ++p)
          for (std::int64_t j = 0; j < n; ++j) b_turned[j * k + p] = b[p * n + j];
        for (Isa isa : Machine::isas_here()) {
          const Execution here = lab::execution_for(isa, 2);
          const TensorView nn_a = view(a.data(), {m, k}), nn_b = view(b.data(), {k, n});
          const TensorView t_a = view(a_turned.data(), {m, k}, {1, m});
          const TensorView t_b = view(b_turned.data(), {k, n}, {1, k});
          const Floats expected = product(nn_a, nn_b, here);
          EXPECT_TRUE(same(product(nn_a, t_b, here), expected)) << m << 'x' << n << 'x' << k;
          EXPECT_TRUE(same(product(t_a, nn_b, here), expected)) << m << 'x' << n << 'x' << k;
          EXPECT_TRUE(same(product(t_a, t_b, here), expected)) << m << 'x' << n << 'x' << k;
          // And y the other way round, or with gaps.
          Floats y(static_cast<std::size_t>(m * n), kNan),
              wide(static_cast<std::size_t>(2 * m * n));
          forward({.a = nn_a, .b = t_b, .y = view(y.data(), {m, n}, {1, m})}, here);
          forward({.a = t_a, .b = nn_b, .y = view(wide.data(), {m, n}, {2 * n, 2})}, here);
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
              EXPECT_EQ(y[j * m + i], expected[i * n + j]);
              EXPECT_EQ(wide[2 * (i * n + j)], expected[i * n + j]);
            }
        }
      }
}

TEST(Matmul, BatchesMayShareAMatrix) {
  constexpr std::int64_t kBatch = 3, kM = 5, kN = 33, kK = 40;
  const Floats a = numbers(kBatch * kM * kK), b = numbers(kK * kN, 2), c = numbers(kM * kK, 3);
  const Execution here = lab::execution_for(Machine::here().isa, 2);
  const Floats all =
      product(view(a.data(), {kBatch, kM, kK}), view(b.data(), {kBatch, kK, kN}, {0, kN, 1}), here);
  const Floats rows = product(view(a.data(), {kBatch * kM, kK}), view(b.data(), {kK, kN}), here);
  EXPECT_TRUE(same(all, rows));
  const Floats shared = product(view(c.data(), {kBatch, kM, kK}, {0, kK, 1}),
                                view(b.data(), {kBatch, kK, kN}, {0, kN, 1}), here);
  const Floats once = product(view(c.data(), {kM, kK}), view(b.data(), {kK, kN}), here);
  for (std::int64_t i = 0; i < kBatch; ++i)
    EXPECT_EQ(std::memcmp(shared.data() + i * kM * kN, once.data(), once.size() * 4), 0);
}

// pytorch #196596: elsewhere a NaN in memory that is to be overwritten reaches the result.
TEST(Matmul, CIsNotReadWhereBetaIsZero) {
  const Floats a = numbers(20 * 30), b = numbers(30 * 40, 2), c(20 * 40, kNan);
  const Execution here = lab::execution_for(Machine::here().isa, 1);
  const TensorView of_a = view(a.data(), {20, 30}), of_b = view(b.data(), {30, 40});
  ForwardArgs args;
  args.c = view(c.data(), {20, 40});
  EXPECT_TRUE(same(product(of_a, of_b, here, args), product(of_a, of_b, here)));
  args.beta = 1;
  EXPECT_TRUE(std::isnan(product(of_a, of_b, here, args)[0]));
}

// A NaN stays in its row or column, whatever a tile's edge holds; infinity times 0 is NaN.
TEST(Matmul, WhatIsNotFiniteStaysInItsRowAndColumn) {
  for (std::int64_t m : {1, 6, 15, 30})
    for (std::int64_t n : {1, 7, 33, 70}) {
      constexpr std::int64_t kK = 20;
      Floats a = numbers(m * kK), b = numbers(kK * n, 2);
      const std::int64_t row = m / 2, col = n / 2;
      a[row * kK + 3] = kInfinity;
      b[5 * n + col] = kNan;
      for (Isa isa : Machine::isas_here()) {
        const Floats y =
            product(view(a.data(), {m, kK}), view(b.data(), {kK, n}), lab::execution_for(isa, 1));
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            const float value = y[i * n + j];
            if (j == col)
              EXPECT_TRUE(std::isnan(value)) << i << ' ' << j;
            else
              EXPECT_EQ(std::isinf(value), i == row) << i << ' ' << j;
          }
      }
    }
}

TEST(Matmul, NothingToAddUpIsZero) {
  const Floats bias = {1, -2, 3}, none;
  const Execution here = lab::execution_for(Machine::here().isa, 1);
  ForwardArgs args;
  args.bias = view(bias.data(), {3});
  const TensorView a{nullptr, 0, DType::f32, 2, {2, 0}, {0, 1}};
  const TensorView b{nullptr, 0, DType::f32, 2, {0, 3}, {3, 1}};
  EXPECT_EQ(product(a, b, here, args), (Floats{1, -2, 3, 1, -2, 3}));
  const Floats zeros = product(a, b, here);
  for (float zero : zeros) EXPECT_FALSE(std::signbit(zero));
}

// A negative product that is too small for a number is rounded to -0 on the way.
TEST(Matmul, AProductThatIsTooSmallIsZeroWithoutASign) {
  for (Isa isa : Machine::isas_here())
    for (std::int64_t side : {1, 9, 40})
      for (std::int64_t step : {1, 2}) {  // from column to column of b
        const Floats a(static_cast<std::size_t>(side), -1e-30f);
        const Floats b(static_cast<std::size_t>(side * step), 1e-30f);
        const Floats y =
            product(view(a.data(), {side, 1}), view(b.data(), {1, side}, {side * step, step}),
                    lab::execution_for(isa, 1));
        for (float element : y) {
          EXPECT_EQ(element, 0);
          EXPECT_FALSE(std::signbit(element));
        }
      }
}

TEST(Matmul, YMayBeCOrResidual) {
  constexpr std::int64_t kM = 30, kN = 50, kK = 40;
  const Floats a = numbers(kM * kK), b = numbers(kK * kN, 2), given = numbers(kM * kN, 3);
  const Execution here = lab::execution_for(Machine::here().isa, 2);
  for (const bool as_c : {false, true}) {
    ForwardArgs args;
    TensorView& in_place = as_c ? args.c : args.residual;
    args.beta = as_c ? 0.5 : 0;
    in_place = view(given.data(), {kM, kN});
    const Floats expected = product(view(a.data(), {kM, kK}), view(b.data(), {kK, kN}), here, args);
    Floats y = given;
    args.a = view(a.data(), {kM, kK});
    args.b = view(b.data(), {kK, kN});
    args.y = in_place = view(y.data(), {kM, kN});
    forward(args, here);
    EXPECT_TRUE(same(y, expected));
    in_place = view(y.data(), {kM, kN}, {1, kM});
    EXPECT_THROW(forward(args, here), InvalidArgument);
  }
}

// A variant may take a shorter way where little is asked for.
TEST(Matmul, EachThingThatIsDoneToASumIsDoneAloneToo) {
  for (std::int64_t m : {1, 3, 20})
    for (const bool turned : {false, true}) {
      constexpr std::int64_t kN = 24, kK = 30;
      const Floats a = numbers(m * kK), b = numbers(kK * kN, 2), added = numbers(m * kN, 3);
      const TensorView of_a = view(a.data(), {m, kK});
      const TensorView of_b = turned ? view(b.data(), {kK, kN}, {1, kK}) : view(b.data(), {kK, kN});
      const TensorView more = view(added.data(), {m, kN});
      for (Isa isa : Machine::isas_here()) {
        const Execution here = lab::execution_for(isa, 1);
        const Floats plain = product(of_a, of_b, here);
        const auto expect = [&](const char* what, const ForwardArgs& args, const auto& changed) {
          const Floats y = product(of_a, of_b, here, args);
          for (std::size_t i = 0; i < y.size(); ++i)
            ASSERT_EQ(y[i], changed(plain[i], i)) << what << ' ' << m << ' ' << turned;
        };
        const auto with = [](auto ForwardArgs::* member, const auto& value) {
          ForwardArgs args{.a = {}, .b = {}, .y = {}};
          args.*member = value;
          return args;
        };
        expect("alpha", with(&ForwardArgs::alpha, 0.7),
               [](float sum, std::size_t) { return 0.7f * sum; });
        ForwardArgs beta = with(&ForwardArgs::c, more);
        beta.beta = -1.3;
        expect("beta", beta,
               [&](float sum, std::size_t i) { return std::fma(-1.3f, added[i], sum); });
        expect("bias", with(&ForwardArgs::bias, view(added.data(), {kN})),
               [&](float sum, std::size_t i) { return sum + added[i % kN]; });
        expect("residual", with(&ForwardArgs::residual, more),
               [&](float sum, std::size_t i) { return sum + added[i]; });
        expect("relu", with(&ForwardArgs::activation, Activation::relu),
               [](float sum, std::size_t) { return sum < 0 ? 0 : sum; });
        Floats pre(plain.size(), kNan);
        expect("pre", with(&ForwardArgs::pre, view(pre.data(), {m, kN})),
               [](float sum, std::size_t) { return sum; });
        EXPECT_TRUE(same(pre, plain));
      }
    }
}

TEST(Matmul, BetaNeedsC) {
  const Floats a(1), b(1);
  ForwardArgs args;
  args.beta = 2;
  EXPECT_THROW(product(view(a.data(), {1, 1}), view(b.data(), {1, 1}),
                       lab::execution_for(Machine::here().isa, 1), args),
               InvalidArgument);
}

// The sum as the specification has it, over panels, runs and pairs of runs.
TEST(Matmul, LongSumsFollowTheOrder) {
  for (std::int64_t k : {511, 512, 513, 8191, 8192, 8193, 16384, 24577, 40000}) {
    const Floats a = numbers(2 * k), b = numbers(k * 17, 2);
    for (Isa isa : Machine::isas_here())
      for (std::int64_t m : {1, 2}) {
        const Floats y =
            product(view(a.data(), {m, k}), view(b.data(), {k, 17}), lab::execution_for(isa, 1));
        for (std::int64_t j : {0, 16})
          EXPECT_EQ(y[(m - 1) * 17 + j], order::product<float>(
                                             k, [&](std::int64_t i) { return a[(m - 1) * k + i]; },
                                             [&](std::int64_t i) { return b[i * 17 + j]; }))
              << k;
      }
  }
}

// The instruction that multiplies pairs of bf16 would take subnormal sums for 0.
TEST(Matmul, SubnormalSumsOfNarrowNumbersAreKept) {
  constexpr std::int64_t kM = 20, kN = 40, kK = 70;
  const auto narrowed = [](const Floats& values, float scale) {
    std::vector<bf16> result;
    for (float value : values) result.push_back(from_float<bf16>(value * scale));
    return result;
  };
  for (float scale : {1.0f, 0x1p-63f, 0x1p-66f, 0x1p-130f}) {
    const std::vector<bf16> a = narrowed(numbers(kM * kK), 0x1p-63f);
    const std::vector<bf16> b = narrowed(numbers(kK * kN, 2), scale);
    Floats y(kM * kN);
    const auto narrow_view = [](const std::vector<bf16>& data, std::int64_t rows,
                                std::int64_t cols) {
      return matrix_view(const_cast<bf16*>(data.data()), rows * cols * 2, DType::bf16, rows, cols,
                         cols);
    };
    for (Isa isa : Machine::isas_here()) {
      forward(
          {.a = narrow_view(a, kM, kK), .b = narrow_view(b, kK, kN), .y = view(y.data(), {kM, kN})},
          lab::execution_for(isa, 1));
      for (std::int64_t at : {0, 41, 799})
        EXPECT_EQ(y[at], order::product<float>(
                             kK, [&](std::int64_t k) { return to_float(a[at / kN * kK + k]); },
                             [&](std::int64_t k) { return to_float(b[k * kN + at % kN]); }))
            << scale;
    }
  }
}

TEST(Matmul, NoCallTakesMoreThan16MiB) {
  struct Shape {
    std::int64_t m, n, k;
  };
  for (const Shape& s : {Shape{300, 2100, 600}, Shape{20000, 256, 513}, Shape{64, 64, 40000},
                         Shape{1, 5000, 9000}}) {
    const Floats a(static_cast<std::size_t>(s.m * s.k)), b(static_cast<std::size_t>(s.k * s.n));
    for (int threads : {1, 2, 64}) {
      Counted counted;
      counted.grants = s.m == 300;  // the others are long
      Execution here = lab::execution_for(Machine::here().isa, threads);
      here.machine.threads = threads;
      here.machine.l2_bytes = 512 << 10;  // a larger one might hold b, which is then not packed
      here.allocator = {Counted::take, Counted::give_back, &counted};
      const auto call = [&] {
        product(view(a.data(), {s.m, s.k}), view(b.data(), {s.k, s.n}), here);
      };
      if (counted.grants)
        call();
      else
        EXPECT_THROW(call(), OutOfMemory) << s.m << " x " << s.n << " x " << s.k;
      EXPECT_LE(counted.most, (16 << 20) + 4096) << s.m << " x " << s.n << " x " << s.k;
      EXPECT_EQ(counted.now, 0);
    }
  }
}

// Arrays that end and begin at pages that nobody may touch.
TEST(Matmul, NoElementBeyondAnArrayIsTouched) {
  constexpr std::size_t kBytes = 64 << 10;
  using guarded::Edge;
  guarded::Pages a_pages(kBytes), b_pages(kBytes), y_pages(kBytes);
  for (std::int64_t m : {1, 2, 5, 9, 17})
    for (std::int64_t n : {1, 5, 16, 31, 33, 50})
      for (std::int64_t k : {1, 3, 16, 37, 70})
        for (const bool turned : {false, true})
          for (Edge edge : {Edge::front, Edge::back})
            for (Isa isa : Machine::isas_here()) {
              const auto placed = [edge](guarded::Pages& pages, std::int64_t count) {
                auto* data = static_cast<float*>(
                    static_cast<void*>(pages.at(edge, static_cast<std::size_t>(count) * 4)));
                std::fill(data, data + count, 1.0f);
                return data;
              };
              const float *a = placed(a_pages, m * k), *b = placed(b_pages, k * n);
              float* y = placed(y_pages, m * n);
              const auto matrix = [turned](const float* data, std::int64_t rows,
                                           std::int64_t cols) {
                return turned ? view(data, {rows, cols}, {1, rows}) : view(data, {rows, cols});
              };
              forward({.a = matrix(a, m, k), .b = matrix(b, k, n), .y = view(y, {m, n})},
                      lab::execution_for(isa, 1));
              EXPECT_EQ(y[0], static_cast<float>(k));
            }
}

}  // namespace
}  // namespace isobit::matmul
