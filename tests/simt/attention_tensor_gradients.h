// SPDX-License-Identifier: Apache-2.0
// Gradients of attention as the README defines them by tensor cores, element by element, and the
// call of the variant whose bits are compared with them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "attention_backward_of.h"
#include "isobit/core/order.h"
#include "simt/attention_tensor.h"

namespace isobit::attention::by_tensor_cores {

inline constexpr std::int64_t kSide = 64;  // of a panel of gradients

// A call of forward that ran, and its gradients.
template <class T>
struct Gradients {
  Given<T>& given;
  Numbers<T> grad_y, q, k, v, bias;
  std::vector<float> grad_lse;

  explicit Gradients(Given<T>& of, std::int64_t gap = 0, std::uint32_t seed = 11)
      : given(of),
        grad_y(of.shape.batch, of.shape.heads, of.shape.queries, of.shape.cols, gap, seed),
        q(of.shape.batch, of.shape.heads, of.shape.queries, of.shape.dim, gap, seed),
        k(of.shape.batch, of.shape.kv_heads, of.shape.keys, of.shape.dim, gap, seed),
        v(of.shape.batch, of.shape.kv_heads, of.shape.keys, of.shape.cols, gap, seed),
        bias(of.shape.batch, of.shape.heads, of.shape.queries, of.shape.keys, 0, seed),
        grad_lse(of.lse.size()) {
    for (std::size_t i = 0; i < grad_lse.size(); ++i)
      grad_lse[i] = 0.25F * static_cast<float>(i % 5) - 0.5F;
    run(given.args(), 64);
  }
  BackwardArgs args() {
    const ForwardArgs forward = given.args();
    BackwardArgs args = backward_of(forward);
    args.arithmetic = Arithmetic::tensor;
    args.grad_y = grad_y.view();
    args.grad_lse = given.rows_of(grad_lse);
    args.grad_q = q.view();
    args.grad_k = k.view();
    args.grad_v = v.view();
    if (given.asked.bias) args.grad_bias = bias.view();
    return args;
  }
  void forget() {
    for (Numbers<T>* each : {&q, &k, &v, &bias})
      for (T& element : each->all) element = from_float<T>(kNan);
  }
  void compute(int rows) {
    forget();
    compute_with(args(), rows);
  }
  static void compute_with(const BackwardArgs& given, int rows) {
    const Operation& operation = backward_operation();
    const Arguments args = operation.make_arguments();
    *static_cast<BackwardArgs*>(args.get()) = given;
    operation.check(args);
    Plan plan{};
    plan[0] = rows;
    operation.run(variant_named("flash_mma", operation), plan, args, lab::execution_for(kDevice));
  }

  // ---- as the README defines it ------------------------------------------------------------

  // What a pair of a query and a key adds.
  struct Pair {
    bool there = false, kept = false;
    float weight = 0, of_bias = 0, of_score = 0;
  };
  float mean(std::int64_t b, std::int64_t h, std::int64_t i) {
    const float sum = order::dot<float>(
        given.shape.cols, [&](std::int64_t c) { return widen<float>(grad_y.at(b, h, i, c)); },
        [&](std::int64_t c) { return widen<float>(given.y.at(b, h, i, c)); });
    return sum - grad_lse[row_of(b, h, i)];
  }
  std::size_t row_of(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return static_cast<std::size_t>((b * given.shape.heads + h) * given.shape.queries + i);
  }
  Pair pair(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, float mean) {
    const Shape& s = given.shape;
    const Options& o = given.asked.options;
    const std::int64_t g = h / (s.heads / s.kv_heads);
    const auto scaling = Scaling<float>::of(o.scale, o.softcap, s.dim);
    const auto dropout = Dropout<float>::of(o.dropout, o.dropout_seed);
    Pair pair;
    if (!given.is_there(b, i, j)) return pair;
    const float product = given.summed(
        s.dim, [&](std::int64_t d) { return given.q.at(b, h, i, d).bits; },
        [&](std::int64_t d) { return given.k.at(b, g, j, d).bits; });
    float exponent = exponent_of<S>(scaling, product);
    if (given.asked.bias)
      exponent = biased<S>(scaling, exponent, widen<float>(given.bias.at(0, h, i, j)));
    if (given.asked.slopes)
      exponent =
          sloped<S>(scaling, exponent, given.slopes[static_cast<std::size_t>(b * s.heads + h)],
                    static_cast<float>(std::abs(i + s.keys - s.queries - j)), given.asked.bias);
    pair.there = exponent != -kInf;
    if (!pair.there) return pair;
    const std::int64_t held = given.asked.range ? given.begin[static_cast<std::size_t>(b)] : 0;
    pair.kept = o.dropout == 0 || dropout.keeps(b, h, i, j - held);
    const float max = given.max[row_of(b, h, i)];
    pair.weight = probability_of<S>(exponent, max, inverse_of<S>(max, given.sum[row_of(b, h, i)]));
    float of_weight = 0;
    if (pair.kept)
      of_weight = given.summed(
                      s.cols, [&](std::int64_t c) { return grad_y.at(b, h, i, c).bits; },
                      [&](std::int64_t c) { return given.v.at(b, g, j, c).bits; }) *
                  (o.dropout > 0 ? dropout.scale : 1.0F);
    pair.of_bias = pair.of_score = score_gradient<S>(pair.weight, of_weight, mean);
    if (o.softcap != 0) pair.of_score = before_cap<S>(scaling, pair.of_bias, product);
    return pair;
  }
  // One row of numbers times a panel of 64 lines, added to a sum of each column.
  template <class Number, class Kept, class Line>
  static void add(std::vector<float>& sums, std::int64_t count, const Number& number,
                  const Kept& kept, const Line& line) {
    float lift = 1, back = 1;
    if constexpr (std::is_same_v<T, f16>) {
      float largest = 0;
      for (std::int64_t at = 0; at < count; ++at) largest = std::max(largest, std::abs(number(at)));
      int exponent = 0;
      std::frexp(largest, &exponent);  // largest < 2^exponent
      const int up = largest == 0 ? 126 : std::min(126, 15 - exponent);
      lift = std::ldexp(1.0F, up);
      back = std::ldexp(1.0F, -up);
    }
    for (std::size_t c = 0; c < sums.size(); ++c) {
      const float chain = Given<T>::summed(
          kSide,
          [&](std::int64_t at) {
            return at < count && kept(at) ? from_float<T>(number(at) * lift).bits
                                          : std::uint16_t{0};
          },
          [&](std::int64_t at) {
            return at < count && kept(at) ? line(at, static_cast<std::int64_t>(c)).bits
                                          : std::uint16_t{0};
          });
      sums[c] = std::fma(chain, back, sums[c]);
    }
  }
  // Of queries and keys `step` apart.
  void expect_defined(int rows, std::int64_t step = 1) {
    compute(rows);
    const Shape& s = given.shape;
    const Options& o = given.asked.options;
    const auto scaling = Scaling<float>::of(o.scale, o.softcap, s.dim);
    const float more = o.dropout > 0 ? Dropout<float>::of(o.dropout, 0).scale : 1.0F;
    const auto expect = [&](Numbers<T>& found, std::int64_t b, std::int64_t h, std::int64_t i,
                            const std::vector<float>& sums, float factor, const char* name) {
      for (std::size_t c = 0; c < sums.size(); ++c)
        ASSERT_EQ(found.at(b, h, i, static_cast<std::int64_t>(c)).bits,
                  from_float<T>(sums[c] * factor).bits)
            << name << " " << b << ", " << h << ", " << i << ", " << c << " by " << rows;
    };
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const auto at = static_cast<std::size_t>(b);
      const std::int64_t first = given.asked.range ? given.begin[at] : 0;
      const std::int64_t end = given.asked.range ? given.end[at] : s.keys;
      std::vector<std::vector<Pair>> pairs(static_cast<std::size_t>(s.heads * s.queries));
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t i = 0; i < s.queries; ++i) {
          auto& of_row = pairs[static_cast<std::size_t>(h * s.queries + i)];
          const float of_row_mean = mean(b, h, i);
          for (std::int64_t j = 0; j < s.keys; ++j) of_row.push_back(pair(b, h, i, j, of_row_mean));
          for (std::int64_t j = 0; given.asked.bias && j < s.keys; ++j)
            ASSERT_EQ(bias.at(b, h, i, j).bits,
                      from_float<T>(of_row[static_cast<std::size_t>(j)].of_bias).bits)
                << "bias " << b << ", " << h << ", " << i << ", " << j;
          if (i % step != 0) continue;
          std::vector<float> sums(static_cast<std::size_t>(s.dim));
          for (std::int64_t panel = first; panel < end; panel += kSide) {
            const auto of = [&](std::int64_t key) -> const Pair& {
              return of_row[static_cast<std::size_t>(panel + key)];
            };
            add(
                sums, std::min(kSide, end - panel), [&](std::int64_t j) { return of(j).of_score; },
                [&](std::int64_t j) { return of(j).there; },
                [&](std::int64_t j, std::int64_t d) {
                  return given.k.at(b, h / (s.heads / s.kv_heads), panel + j, d);
                });
          }
          expect(q, b, h, i, sums, scaling.gradient, "q");
          if (::testing::Test::HasFatalFailure()) return;
        }
      const std::int64_t group = s.kv_heads == 0 ? 0 : s.heads / s.kv_heads;
      for (std::int64_t g = 0; g < s.kv_heads; ++g)
        for (std::int64_t j = 0; j < s.keys; j += step) {
          std::vector<float> of_k(static_cast<std::size_t>(s.dim)),
              of_v(static_cast<std::size_t>(s.cols));
          for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
            for (std::int64_t panel = 0; panel < s.queries; panel += kSide) {
              const auto of = [&](std::int64_t query) -> const Pair& {
                return pairs[static_cast<std::size_t>(h * s.queries + panel + query)]
                            [static_cast<std::size_t>(j)];
              };
              const std::int64_t count = std::min(kSide, s.queries - panel);
              add(
                  of_k, count, [&](std::int64_t i) { return of(i).of_score; },
                  [&](std::int64_t i) { return of(i).there; },
                  [&](std::int64_t i, std::int64_t d) { return given.q.at(b, h, panel + i, d); });
              add(
                  of_v, count, [&](std::int64_t i) { return of(i).weight; },
                  [&](std::int64_t i) { return of(i).kept; },
                  [&](std::int64_t i, std::int64_t c) { return grad_y.at(b, h, panel + i, c); });
            }
          expect(k, b, g, j, of_k, scaling.gradient, "k");
          expect(v, b, g, j, of_v, more, "v");
          if (::testing::Test::HasFatalFailure()) return;
        }
    }
  }
};

}  // namespace isobit::attention::by_tensor_cores
