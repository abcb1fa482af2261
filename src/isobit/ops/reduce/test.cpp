// SPDX-License-Identifier: Apache-2.0
// What only reduce promises: the bits of a row whatever the dimensions and strides; sums that leave
// the range on their way; what its rules refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/core/order.h"
#include "isobit/dispatch/operation.h"
#include "isobit/ops/reduce/reduce.h"
#include "isobit/ops/vector_norm/vector_norm.h"
#include "isobit/simd/parallel_for.h"

namespace isobit::reduce {
namespace {

using Floats = std::vector<float>;
using Shape = std::vector<std::int64_t>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMost = std::numeric_limits<float>::max();
constexpr Kind kKinds[] = {Kind::sum,     Kind::mean, Kind::var,     Kind::std,
                           Kind::l2,      Kind::l1,   Kind::largest, Kind::smallest,
                           Kind::nonzero, Kind::max,  Kind::min};

TensorView view_of(Floats& values, const Shape& shape, const Shape& strides) {
  TensorView view;
  view.data = values.data();
  view.bytes = std::ssize(values) * 4;
  view.rank = static_cast<int>(shape.size());
  for (int i = 0; i < view.rank; ++i) {
    view.shape[i] = shape[i];
    view.strides[i] = strides[i];
  }
  return view;
}
Shape dense(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * shape[i];
  return strides;
}
TensorView view_of(Floats& values, const Shape& shape) {
  return view_of(values, shape, dense(shape));
}
std::int64_t count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// Of every kind: far from zero, constant, huge.
Floats waves(std::int64_t count) {
  Floats result;
  for (std::int64_t i = 0; i < count; ++i) {
    const float wave = std::sin(static_cast<float>(i * i % 1009));
    result.push_back(i % 5 == 3 ? 1e3f + wave : wave);
  }
  return result;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// Computes by one variant on one instruction set, by threads that take anything.
struct Way {
  Isa isa;
  int variant, threads;

  template <class Args>
  void operator()(const Operation& operation, const Args& given) const {
    Execution execution = simd::here(threads);
    execution.machine.isa = isa;
    execution.machine.elements_a_thread = 1;
    const Arguments args = operation.make_arguments();
    *static_cast<Args*>(args.get()) = given;
    operation.run(variant, {}, args, execution);
  }
};
template <class Body>
void in_every_way(const Body& body) {
  for (const Isa isa : Machine::isas_here())
    for (const auto& [variant, threads] : {std::pair(0, 1), {0, 5}, {1, 1}}) {
      SCOPED_TRACE(std::string(name_of(isa)) + (variant == 0 ? " simd " : " scalar ") +
                   std::to_string(threads));
      body(Way{isa, variant, threads});
    }
}

Floats reduced(const Way& way, Kind kind, Floats x, const Shape& shape, const Shape& strides,
               int kept) {
  Floats y(count({shape.begin(), shape.begin() + kept}), kNaN);
  ForwardArgs args;
  args.x = view_of(x, shape, strides);
  args.y = view_of(y, {shape.begin(), shape.begin() + kept});
  args.reduction = kind;
  args.correction = 1;
  way(forward_operation(), args);
  return y;
}
// The gradient as it lies in memory where it has the strides of x.
Floats gradient(const Way& way, Kind kind, Floats x, const Shape& shape, const Shape& strides,
                int kept) {
  Floats grad_y = waves(count({shape.begin(), shape.begin() + kept})), grad_x(x.size(), kNaN);
  BackwardArgs args;
  args.x = view_of(x, shape, strides);
  args.grad_y = view_of(grad_y, {shape.begin(), shape.begin() + kept});
  args.grad_x = view_of(grad_x, shape, strides);
  args.reduction = kind;
  args.correction = 1;
  way(backward_operation(), args);
  return grad_x;
}

const Way kSpecified{Isa::scalar, 1, 1};

// Dimensions in this order of memory, outermost first.
Shape strides_in(const Shape& shape, const Shape& order) {
  Shape strides(shape.size());
  std::int64_t step = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = step;
    step *= shape[*dim];
  }
  return strides;
}
Floats gathered(const Floats& memory, const Shape& shape, const Shape& strides) {
  Floats result;
  const Shape steps = dense(shape);
  for (std::int64_t i = 0; i < count(shape); ++i) {
    std::int64_t at = 0;
    for (std::size_t dim = 0; dim < shape.size(); ++dim)
      at += i / steps[dim] % shape[dim] * strides[dim];
    result.push_back(memory[at]);
  }
  return result;
}

struct Laid {
  Shape shape, order;
  int kept;
};
const Laid kLaid[] = {
    {{70, 1100}, {1, 0}, 1},            // columns of a matrix
    {{3, 530}, {1, 0}, 1},              // few columns
    {{5, 130, 40}, {0, 2, 1}, 2},       // the middle of three
    {{6, 4, 7, 9}, {1, 0, 2, 3}, 1},    // channels of images
    {{33, 4, 7, 25}, {1, 2, 3, 0}, 1},  // channels that come last
    {{4, 6, 5, 3}, {2, 0, 3, 1}, 2},    // kept and reduced in turn
    {{2, 3, 1, 600}, {0, 1, 2, 3}, 3},  // rows
    {{1, 9, 2000}, {0, 2, 1}, 1},       // all of it
};

TEST(Reduce, StridesChangeNoBit) {
  for (const Laid& laid : kLaid) {
    const Shape strides = strides_in(laid.shape, laid.order);
    const Floats memory = waves(count(laid.shape));
    const Floats rows = gathered(memory, laid.shape, strides);
    for (const Kind kind : kKinds) {
      SCOPED_TRACE(static_cast<int>(kind));
      const Floats y = reduced(kSpecified, kind, rows, laid.shape, dense(laid.shape), laid.kept);
      const Floats grad =
          gradient(kSpecified, kind, rows, laid.shape, dense(laid.shape), laid.kept);
      in_every_way([&](const Way& way) {
        EXPECT_TRUE(same_bits(y, reduced(way, kind, memory, laid.shape, strides, laid.kept)));
        EXPECT_TRUE(
            same_bits(grad, gathered(gradient(way, kind, memory, laid.shape, strides, laid.kept),
                                     laid.shape, strides)));
      });
    }
  }
}

TEST(Reduce, ASumIsThatOfTheOrder) {
  for (const std::int64_t cols : {1, 7, 512, 513, 5000}) {
    const Floats x = waves(cols);
    const float sum = order::sum<float>(cols, [&](std::int64_t i) { return x[i]; });
    in_every_way([&](const Way& way) {
      EXPECT_EQ(reduced(way, Kind::sum, x, {1, cols}, {cols, 1}, 1)[0], sum);
    });
  }
}

TEST(Reduce, NormsAreThoseOfVectorNorm) {
  for (const float factor : {1.0f, 1e25f, 1e-30f}) {
    Floats x = waves(3 * 70'000);
    for (float& value : x) value *= factor;
    for (const auto& [kind, order] : {std::pair(Kind::l2, vector_norm::Order::l2),
                                      {Kind::l1, vector_norm::Order::l1},
                                      {Kind::largest, vector_norm::Order::max}}) {
      Floats norm(3);
      vector_norm::Args args;
      args.x = view_of(x, {3, 70'000});
      args.norm = view_of(norm, {3});
      args.order = order;
      vector_norm::run(args, simd::here(2));
      in_every_way([&, kind = kind](const Way& way) {
        EXPECT_TRUE(same_bits(norm, reduced(way, kind, x, {3, 70'000}, {70'000, 1}, 1)));
      });
    }
  }
}

TEST(Reduce, WhatLeavesTheRangeOnItsWayComesBack) {
  const Floats x = {kMost, kMost, -kMost, -kMost, 1, 2};  // in rows of 6
  const auto of = [&](const Way& way, Kind kind) {
    return reduced(way, kind, x, {1, 6}, {6, 1}, 1)[0];
  };
  in_every_way([&](const Way& way) {
    EXPECT_EQ(reduced(way, Kind::mean, {kMost, kMost, kMost}, {1, 3}, {3, 1}, 1)[0], kMost);
    EXPECT_TRUE(std::isfinite(of(way, Kind::sum)));
    EXPECT_TRUE(std::isfinite(of(way, Kind::std)));
    EXPECT_EQ(of(way, Kind::var), kInfinity);
    EXPECT_EQ(reduced(way, Kind::sum, {kMost, kMost}, {1, 2}, {2, 1}, 1)[0], kInfinity);
    EXPECT_EQ(reduced(way, Kind::sum, {-kInfinity, kMost, kMost}, {1, 3}, {3, 1}, 1)[0],
              -kInfinity);
    EXPECT_TRUE(std::isnan(reduced(way, Kind::sum, {kInfinity, -kInfinity}, {1, 2}, {2, 1}, 1)[0]));
  });
}

TEST(Reduce, OfNothingThereAreSumsAndNorms) {
  in_every_way([&](const Way& way) {
    const auto of = [&](Kind kind) { return reduced(way, kind, {}, {2, 0}, {1, 1}, 1); };
    for (const Kind kind : {Kind::sum, Kind::l2, Kind::l1, Kind::largest, Kind::nonzero})
      EXPECT_TRUE(same_bits(of(kind), {0, 0}));
    for (const Kind kind : {Kind::smallest, Kind::min})
      EXPECT_TRUE(same_bits(of(kind), {kInfinity, kInfinity}));
    EXPECT_TRUE(same_bits(of(Kind::max), {-kInfinity, -kInfinity}));
    for (const Kind kind : {Kind::mean, Kind::var, Kind::std})
      EXPECT_TRUE(same_bits(of(kind), {kNaN, kNaN}));
  });
}

TEST(Reduce, ANaNIsFoundWhereverItStands) {
  for (const std::int64_t at : {0, 5, 530, 1299}) {
    Floats x = waves(1300);
    x[at] = kNaN;
    for (const bool columns : {false, true})
      in_every_way([&](const Way& way) {
        Floats both = x;
        both.insert(both.end(), x.begin(), x.end());
        const Shape strides = columns ? Shape{1, 2} : Shape{1300, 1};
        if (columns)
          for (std::int64_t i = 0; i < 1300; ++i) both[2 * i] = both[2 * i + 1] = x[i];
        for (const Kind kind : kKinds)
          for (const float y : reduced(way, kind, both, {2, 1300}, strides, 1))
            EXPECT_EQ(std::isnan(y), kind != Kind::nonzero) << static_cast<int>(kind);
      });
  }
}

TEST(Reduce, ElementsThatAreTheLargestShareTheGradient) {
  const Floats x = {1, -3, 3, 0, 2, -0.0f};
  in_every_way([&](const Way& way) {
    Floats grad_y = {4}, grad_x(6), values = x;
    BackwardArgs args;
    args.x = view_of(values, {1, 6});
    args.grad_y = view_of(grad_y, {1});
    args.grad_x = view_of(grad_x, {1, 6});
    args.reduction = Kind::largest;
    way(backward_operation(), args);
    EXPECT_TRUE(same_bits(grad_x, {0, -2, 2, 0, 0, 0}));
    args.reduction = Kind::l1;
    way(backward_operation(), args);
    EXPECT_TRUE(same_bits(grad_x, {4, -4, 4, 0, 4, 0}));
  });
}

TEST(Reduce, TheLargestAndSmallestElementsAreOnesWithTheirSigns) {
  const Floats x = {-1, -3, -0.5f, -3, -0.5f, -0.5f};
  const auto of = [&](const Way& way, Kind kind, const Floats& row) {
    return reduced(way, kind, row, {1, std::ssize(row)}, {std::ssize(row), 1}, 1);
  };
  in_every_way([&](const Way& way) {
    EXPECT_TRUE(same_bits(of(way, Kind::max, x), {-0.5f}));
    EXPECT_TRUE(same_bits(of(way, Kind::min, x), {-3}));
    for (const Kind kind : {Kind::max, Kind::min})
      for (const Floats& zeros : {Floats{-0.0f}, {-0.0f, 0.0f}, {0.0f, -0.0f}, Floats(100, -0.0f)})
        EXPECT_TRUE(same_bits(of(way, kind, zeros), {0.0f}));
    EXPECT_TRUE(same_bits(of(way, Kind::max, {-kInfinity, -kInfinity}), {-kInfinity}));
    Floats grad_y = {6}, grad_x(6), values = x;
    BackwardArgs args;
    args.x = view_of(values, {1, 6});
    args.grad_y = view_of(grad_y, {1});
    args.grad_x = view_of(grad_x, {1, 6});
    args.reduction = Kind::max;
    way(backward_operation(), args);
    EXPECT_TRUE(same_bits(grad_x, {0, 0, 2, 0, 2, 2}));
    args.reduction = Kind::min;
    way(backward_operation(), args);
    EXPECT_TRUE(same_bits(grad_x, {0, 3, 0, 3, 0, 0}));
  });
}

TEST(Reduce, AConstantRowHasNoSpreadAndNoGradient) {
  in_every_way([&](const Way& way) {
    const Floats x(700, 1e6f / 3);
    EXPECT_TRUE(same_bits(reduced(way, Kind::var, x, {1, 700}, {700, 1}, 1), {0}));
    for (const Kind kind : {Kind::var, Kind::std})
      for (const float value : gradient(way, kind, x, {1, 700}, {700, 1}, 1)) EXPECT_EQ(value, 0);
    for (const float value : gradient(way, Kind::l2, Floats(700), {1, 700}, {700, 1}, 1))
      EXPECT_EQ(value, 0);
  });
}

std::string complaint(const ForwardArgs& args) {
  try {
    forward(args, simd::here(1));
  } catch (const InvalidArgument& error) { return error.what(); }
  return "none";
}

TEST(Reduce, RulesAreToldByName) {
  Floats x(24), y(24);
  ForwardArgs args;
  args.x = view_of(x, {2, 3, 4});
  args.y = view_of(y, {2, 3});
  EXPECT_EQ(complaint(args), "none");
  args.reduction = static_cast<Kind>(11);
  EXPECT_EQ(complaint(args), "reduce: reduction is 11; allowed: 0 to 10");
  args.reduction = Kind::sum;
  args.y = view_of(y, {2, 3, 4});
  EXPECT_EQ(complaint(args),
            "reduce: y has 3 dimensions, x 3; x must have more: those that are reduced");
  args.y = {};
  EXPECT_EQ(complaint(args), "reduce: y is missing");
  args.y = view_of(y, {2, 4});
  EXPECT_NE(complaint(args).find("reduce: y has shape"), std::string::npos) << complaint(args);
  args.y = view_of(x, {2, 3});
  EXPECT_NE(complaint(args).find("overlap"), std::string::npos) << complaint(args);
  args.y = view_of(y, {2, 3});
  args.correction = kInfinity;
  EXPECT_NE(complaint(args).find("correction"), std::string::npos) << complaint(args);
}

}  // namespace
}  // namespace isobit::reduce
