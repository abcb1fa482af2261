// SPDX-License-Identifier: Apache-2.0
// What is peculiar to a norm with the linear layer that it feeds: the bits of one after the other,
// gradients by blocks of rows, how much memory is taken, what may be written in place.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "float_arrays.h"
#include "isobit/core/error.h"
#include "isobit/dispatch/operation.h"
#include "isobit/lab/configurations.h"
#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/ops/layernorm_linear/layernorm_linear.h"
#include "isobit/ops/matmul/matmul.h"
#include "isobit/ops/rmsnorm/rmsnorm.h"
#include "isobit/ops/rmsnorm_linear/rmsnorm_linear.h"

namespace isobit::norm_linear {
namespace {

Floats room(std::int64_t count) { return Floats(static_cast<std::size_t>(count), kNan); }
Execution here(int threads = 2) { return lab::execution_for(Machine::here().isa, threads); }

struct Sizes {
  std::int64_t rows, cols, features;
};

// A call and its arrays.
struct Call {
  Sizes sizes;
  Floats x, gamma, beta, weight, bias, residual, grad_z, grad_sum;
  matmul::Activation activation = matmul::Activation::gelu;

  explicit Call(const Sizes& s)
      : sizes(s),
        x(numbers(s.rows * s.cols)),
        gamma(numbers(s.cols, 2)),
        beta(numbers(s.cols, 3)),
        weight(numbers(s.features * s.cols, 4)),
        bias(numbers(s.features, 5)),
        residual(numbers(s.rows * s.features, 6)),
        grad_z(numbers(s.rows * s.features, 7)),
        grad_sum(numbers(s.rows * s.cols, 8)) {}

  TensorView like_x(const Floats& array) const {
    return view(array.data(), {sizes.rows, sizes.cols});
  }
  TensorView like_z(const Floats& array) const {
    return view(array.data(), {sizes.rows, sizes.features});
  }
  TensorView each_row(const Floats& array) const { return view(array.data(), {sizes.rows}); }
  TensorView columns(const Floats& array) const { return view(array.data(), {sizes.cols}); }
  TensorView features(const Floats& array) const { return view(array.data(), {sizes.features}); }
  TensorView like_weight(const Floats& array) const {
    return view(array.data(), {sizes.features, sizes.cols});
  }
  TensorView weight_turned() const {
    return view(weight.data(), {sizes.cols, sizes.features}, {1, sizes.cols});
  }

  layernorm_linear::ForwardArgs forward(const Floats& z) const {
    return {.x = like_x(x),
            .norm_weight = columns(gamma),
            .norm_bias = columns(beta),
            .weight = like_weight(weight),
            .bias = features(bias),
            .residual = like_z(residual),
            .z = like_z(z),
            .activation = activation};
  }
  layernorm_linear::BackwardArgs backward(const Floats& pre) const {
    return {.grad_z = like_z(grad_z),
            .x = like_x(x),
            .norm_weight = columns(gamma),
            .norm_bias = columns(beta),
            .weight = like_weight(weight),
            .pre = like_z(pre),
            .grad_sum = like_x(grad_sum),
            .activation = activation};
  }
};

constexpr Sizes kShapes[] = {{1, 40, 7},    {5, 600, 33},  {8, 64, 64},
                             {9, 64, 64},   {70, 530, 40}, {400, 33, 70},
                             {1100, 20, 9}, {3, 1, 1},     {20, 530, 300}};

TEST(NormLinear, FusedBitsAreThoseOfTheNormFollowedByTheProduct) {
  for (const Sizes& sizes : kShapes) {
    const Call call(sizes);
    const std::int64_t count = sizes.rows * sizes.features;
    for (Isa isa : Machine::isas_here())
      for (int threads : {1, 3}) {
        const Execution execution = lab::execution_for(isa, threads);
        Floats y = room(sizes.rows * sizes.cols), expected = room(count), pre = room(count);
        layernorm::forward({.x = call.like_x(call.x),
                            .weight = call.columns(call.gamma),
                            .bias = call.columns(call.beta),
                            .y = call.like_x(y)},
                           execution);
        matmul::forward({.a = call.like_x(y),
                         .b = call.weight_turned(),
                         .bias = call.features(call.bias),
                         .residual = call.like_z(call.residual),
                         .y = call.like_z(expected),
                         .pre = call.like_z(pre),
                         .activation = call.activation},
                        execution);
        Floats z = room(count), own_pre = room(count), own_y = room(sizes.rows * sizes.cols);
        auto args = call.forward(z);
        args.pre = call.like_z(own_pre);
        layernorm_linear::forward(args, execution);
        EXPECT_TRUE(same(z, expected) && same(own_pre, pre))
            << sizes.rows << 'x' << sizes.cols << 'x' << sizes.features;
        args.y = call.like_x(own_y);  // which is then an array
        layernorm_linear::forward(args, execution);
        EXPECT_TRUE(same(z, expected) && same(own_y, y));
        rmsnorm::forward(
            {.x = call.like_x(call.x), .weight = call.columns(call.gamma), .y = call.like_x(y)},
            execution);
        matmul::forward(
            {.a = call.like_x(y), .b = call.weight_turned(), .y = call.like_z(expected)},
            execution);
        rmsnorm_linear::forward({.x = call.like_x(call.x),
                                 .norm_weight = call.columns(call.gamma),
                                 .weight = call.like_weight(call.weight),
                                 .z = call.like_z(z)},
                                execution);
        EXPECT_TRUE(same(z, expected));
      }
  }
}

struct Gradients {
  Floats x, gamma, beta, weight, bias;
  explicit Gradients(const Sizes& s)
      : x(room(s.rows * s.cols)),
        gamma(room(s.cols)),
        beta(room(s.cols)),
        weight(room(s.features * s.cols)),
        bias(room(s.features)) {}
  bool operator==(const Gradients& other) const {
    return same(x, other.x) && same(gamma, other.gamma) && same(beta, other.beta) &&
           same(weight, other.weight) && same(bias, other.bias);
  }
};

layernorm_linear::BackwardArgs into(const Call& call, layernorm_linear::BackwardArgs args,
                                    const Gradients& found) {
  args.grad_x = call.like_x(found.x);
  args.grad_norm_weight = call.columns(found.gamma);
  args.grad_norm_bias = call.columns(found.beta);
  args.grad_weight = call.like_weight(found.weight);
  args.grad_bias = call.features(found.bias);
  return args;
}

// The gradients of a call, one operation after the other.
Gradients separate(const Call& call, const Floats& pre) {
  const Sizes& s = call.sizes;
  Gradients found(s);
  Floats y = room(s.rows * s.cols), grad_y = room(s.rows * s.cols);
  layernorm::forward({.x = call.like_x(call.x),
                      .weight = call.columns(call.gamma),
                      .bias = call.columns(call.beta),
                      .y = call.like_x(y)},
                     here());
  matmul::backward({.grad_y = call.like_z(call.grad_z),
                    .a = call.like_x(y),
                    .b = call.weight_turned(),
                    .pre = call.like_z(pre),
                    .grad_a = call.like_x(grad_y),
                    .grad_b = view(found.weight.data(), {s.cols, s.features}, {1, s.cols}),
                    .grad_bias = call.features(found.bias),
                    .activation = call.activation},
                   here());
  layernorm::backward({.x = call.like_x(call.x),
                       .grad_y = call.like_x(grad_y),
                       .weight = call.columns(call.gamma),
                       .grad_sum = call.like_x(call.grad_sum),
                       .grad_x = call.like_x(found.x),
                       .grad_weight = call.columns(found.gamma),
                       .grad_bias = call.columns(found.beta)},
                      here());
  return found;
}

TEST(NormLinear, GradientsAreThoseOfTheProductFollowedByTheNorm) {
  for (const Sizes& sizes : kShapes) {
    const Call call(sizes);
    const Floats pre = numbers(sizes.rows * sizes.features, 9);
    const Gradients expected = separate(call, pre);
    for (Isa isa : Machine::isas_here())
      for (int threads : {1, 3}) {
        Gradients found(sizes);
        layernorm_linear::backward(into(call, call.backward(pre), found),
                                   lab::execution_for(isa, threads));
        EXPECT_TRUE(found == expected) << sizes.rows << 'x' << sizes.cols << 'x' << sizes.features;
      }
  }
}

TEST(NormLinear, EveryGradientMayBeAskedForAlone) {
  const Call call({1100, 20, 9});
  const Floats pre = numbers(1100 * 9, 9);
  const Gradients expected = separate(call, pre);
  for (unsigned wanted = 0; wanted < 32; ++wanted) {
    Gradients found(call.sizes);
    auto args = into(call, call.backward(pre), found);
    if (!(wanted & 1)) args.grad_x = {};
    if (!(wanted & 2)) args.grad_norm_weight = {};
    if (!(wanted & 4)) args.grad_norm_bias = {};
    if (!(wanted & 8)) args.grad_weight = {};
    if (!(wanted & 16)) args.grad_bias = {};
    layernorm_linear::backward(args, here());
    EXPECT_TRUE(!(wanted & 1) || same(found.x, expected.x)) << wanted;
    EXPECT_TRUE(!(wanted & 2) || same(found.gamma, expected.gamma)) << wanted;
    EXPECT_TRUE(!(wanted & 4) || same(found.beta, expected.beta)) << wanted;
    EXPECT_TRUE(!(wanted & 8) || same(found.weight, expected.weight)) << wanted;
    EXPECT_TRUE(!(wanted & 16) || same(found.bias, expected.bias)) << wanted;
  }
}

// PyTorch gives what is empty no address. It was taken for an argument that is not given, so sums
// over no rows were not written.
TEST(NormLinear, WithoutRowsOrFeaturesGradientsAreZero) {
  for (const Sizes& sizes : {Sizes{0, 40, 33}, {5, 40, 0}}) {
    const Call call(sizes);
    const auto nowhere = [](TensorView empty) {
      empty.data = nullptr;
      return empty;
    };
    Gradients found(sizes);
    auto args = into(call, call.backward(call.residual), found);
    for (TensorView* const of_z : {&args.grad_z, &args.pre}) *of_z = nowhere(*of_z);
    if (sizes.features == 0)
      for (TensorView* const of_weight : {&args.weight, &args.grad_weight, &args.grad_bias})
        *of_weight = nowhere(*of_weight);
    layernorm_linear::backward(args, here());
    EXPECT_TRUE(same(found.gamma, Floats(found.gamma.size())));
    EXPECT_TRUE(same(found.beta, Floats(found.beta.size())));
    EXPECT_TRUE(same(found.weight, Floats(found.weight.size())));
    EXPECT_TRUE(same(found.bias, Floats(found.bias.size())));
    EXPECT_TRUE(same(found.x, sizes.rows == 0 ? Floats() : call.grad_sum));
  }
}

TEST(NormLinear, WithoutRowsASumIsTakenBesideItsResidual) {
  const Call call({0, 40, 33});
  auto args = call.forward(call.residual);
  args.x_residual = args.sum = call.like_x(call.x);
  EXPECT_NO_THROW(layernorm_linear::forward(args, here()));
}

// What is dropped depends on the row of the call, not on that of a block.
TEST(NormLinear, BlocksOfRowsDropWhatTheWholeDrops) {
  const Call call({300, 40, 9});
  const Operation& operation = layernorm_linear::backward_operation();
  std::vector<Floats> seen;
  for (int rows : {64, 128, 512}) {
    Floats grad_x = room(300 * 40), grad_residual = room(300 * 40);
    const Arguments args = operation.make_arguments();
    auto& typed = *static_cast<layernorm_linear::BackwardArgs*>(args.get());
    typed = call.backward(call.residual);
    typed.grad_x = call.like_x(grad_x);
    typed.grad_x_residual = call.like_x(grad_residual);
    typed.dropout = 0.5;
    typed.dropout_seed = 42;
    operation.run(0, {rows}, args, here());
    for (std::size_t i = 0; i < grad_x.size(); ++i)
      EXPECT_TRUE(grad_x[i] == 0 || grad_x[i] == 2 * grad_residual[i]) << i;
    seen.push_back(grad_x);
  }
  EXPECT_TRUE(same(seen[0], seen[1]) && same(seen[0], seen[2]));
}

TEST(NormLinear, BlocksOfRowsAreTheRowsOfTheWhole) {
  const Call call({300, 40, 9});
  const Operation& operation = layernorm_linear::forward_operation();
  std::vector<Floats> seen;
  for (int rows : {16, 64, 256}) {
    Floats z = room(300 * 9), pre = room(300 * 9), sum = room(300 * 40), mean = room(300),
           rstd = room(300);
    const Arguments args = operation.make_arguments();
    auto& typed = *static_cast<layernorm_linear::ForwardArgs*>(args.get());
    typed = call.forward(z);
    typed.x_residual = call.like_x(call.grad_sum);
    typed.pre = call.like_z(pre);
    typed.sum = call.like_x(sum);
    typed.mean = call.each_row(mean);
    typed.rstd = call.each_row(rstd);
    typed.dropout = 0.5;
    typed.dropout_seed = 42;
    ASSERT_EQ(operation.variants()[0].name, "row_blocks");
    operation.run(0, {rows}, args, here());
    Floats all = z;
    for (const Floats& more : {pre, sum, mean, rstd})
      all.insert(all.end(), more.begin(), more.end());
    for (float value : all) ASSERT_FALSE(std::isnan(value));
    seen.push_back(all);
  }
  EXPECT_TRUE(same(seen[0], seen[1]) && same(seen[0], seen[2]));
}

TEST(NormLinear, WritesInPlaceWhatMayBe) {
  Call call({300, 40, 40});
  const Floats pre = numbers(300 * 40, 9);
  Floats z = room(300 * 40);
  layernorm_linear::forward(call.forward(z), here());
  const Gradients expected = separate(call, pre);
  auto args = call.forward(z);
  args.z = args.residual;
  layernorm_linear::forward(args, here());
  EXPECT_TRUE(same(call.residual, z));
  Gradients found(call.sizes);
  auto gradients = into(call, call.backward(pre), found);
  gradients.grad_x = gradients.x;  // which grad_weight is made of as well
  layernorm_linear::backward(gradients, here());
  EXPECT_TRUE(same(call.x, expected.x) && same(found.weight, expected.weight));
}

TEST(NormLinear, TakesNoMemoryForTheNormalisedRows) {
  constexpr Sizes kSizes{8192, 256, 24};
  constexpr std::int64_t kRowsBytes = kSizes.rows * kSizes.cols * 4;
  const Call call(kSizes);
  Counted counted;
  Execution execution = here(1);
  execution.allocator = {Counted::take, Counted::give_back, &counted};
  Floats z = room(kSizes.rows * kSizes.features);
  layernorm_linear::forward(call.forward(z), execution);
  EXPECT_LT(counted.most, kRowsBytes / 4);
  counted.most = 0;
  Gradients found(kSizes);
  layernorm_linear::backward(into(call, call.backward(z), found), execution);
  EXPECT_LT(counted.most, kRowsBytes / 2);  // a block of 1024 rows, and what products take
}

// The weight of the norm folded into that of the product: nearly the same numbers, other bits.
TEST(NormLinear, PrefoldedIsCloseAndAnotherVariant) {
  const Call call({50, 70, 30});
  Floats z = room(50 * 30), folded = room(50 * 30);
  layernorm_linear::forward(call.forward(z), here());
  const Operation& operation = layernorm_linear::forward_operation();
  const Arguments args = operation.make_arguments();
  *static_cast<layernorm_linear::ForwardArgs*>(args.get()) = call.forward(folded);
  const auto variants = operation.variants();
  const auto found = std::ranges::find(variants, "prefolded", &VariantInfo::name);
  ASSERT_NE(found, variants.end());
  EXPECT_EQ(found->bits, Bits::own);
  operation.run(static_cast<int>(found - variants.begin()), {}, args, here());
  EXPECT_FALSE(same(folded, z));
  for (std::size_t i = 0; i < z.size(); ++i) EXPECT_NEAR(folded[i], z[i], 1e-4);

  auto& spread = *static_cast<layernorm_linear::ForwardArgs*>(args.get());
  Floats wide(60, kNan), again = room(50 * 30);
  for (std::size_t i = 0; i < 30; ++i) wide[2 * i] = call.bias[i];
  spread.bias = view(wide.data(), {30}, {2});
  spread.z = call.like_z(again);
  operation.run(static_cast<int>(found - variants.begin()), {}, args, here());
  EXPECT_TRUE(same(again, folded));
}

TEST(NormLinear, RefusesShapesThatDoNotBelongTogether) {
  const Call call({4, 6, 5});
  Floats z = room(20);
  const auto says = [&](auto change, const char* message) {
    auto args = call.forward(z);
    change(args);
    try {
      layernorm_linear::forward(args, here());
      ADD_FAILURE() << "accepted; expected: " << message;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  };
  says([&](auto& args) { args.weight = view(call.weight.data(), {6, 5}); },
       "layernorm_linear: weight has shape (6, 5); must be (features, 6)");
  says([&](auto& args) { args.bias = view(call.bias.data(), {4}); },
       "layernorm_linear: bias has shape (4); must be (5)");
  says([&](auto& args) { args.z = view(z.data(), {5, 4}); }, "layernorm_linear: z has shape");
  says([&](auto& args) { args.activation = static_cast<matmul::Activation>(5); },
       "layernorm_linear: activation is 5; allowed: 0 to 4");
  says([&](auto& args) { args.sum = call.like_x(call.grad_sum); },
       "layernorm_linear: sum is given without x_residual or dropout");
}

}  // namespace
}  // namespace isobit::norm_linear
