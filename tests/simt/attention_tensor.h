// SPDX-License-Identifier: Apache-2.0
// Attention as the README defines it by tensor cores, element by element, and the call of the
// variant whose bits are compared with it.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "isobit/core/tensor_core.h"
#include "isobit/dispatch/operation.h"
#include "isobit/lab/devices.h"
#include "isobit/ops/attention/attention.h"
#include "isobit/ops/attention/formula.h"
#include "isobit/ops/attention/problem.h"
#include "isobit/tile/scalar.h"
#include "simt/where.h"
#include "workloads.h"

namespace isobit::attention::by_tensor_cores {

using lab::kDevice;
using S = tile::Scalar<float>;
using enum Causal;

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// (batch, heads, rows, cols) of 16 bits, rows so far apart; numbers of all sizes, so that sums are
// cut. What lies between rows is NaN.
template <class T>
struct Numbers {
  std::array<std::int64_t, 4> shape;
  std::int64_t row;
  std::vector<T> all;

  Numbers(std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t cols,
          std::int64_t gap, std::uint32_t state)
      : shape{batch, heads, rows, cols}, row(cols + gap) {
    all.assign(static_cast<std::size_t>(batch * heads * rows * row + 8), from_float<T>(kNan));
    const auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t c = 0; c < cols; ++c) {
            const float size = std::ldexp(1.0F, 2 - static_cast<int>(next() % 6));
            at(b, h, i, c) = from_float<T>((static_cast<float>(next()) * 0x1p-23F - 1) * size);
          }
  }
  T& at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t c) {
    return all[static_cast<std::size_t>(((b * shape[1] + h) * shape[2] + i) * row + c)];
  }
  TensorView view() {
    TensorView view{all.data(), static_cast<std::int64_t>(2 * all.size()),
                    std::is_same_v<T, bf16> ? DType::bf16 : DType::f16, 4};
    for (std::size_t i = 0; i < 4; ++i) view.shape[i] = shape[i];
    view.strides[3] = 1;
    view.strides[2] = row;
    view.strides[1] = row * shape[2];
    view.strides[0] = row * shape[2] * shape[1];
    return view;
  }
};

struct Asked {
  Options options = {};
  bool bias = false, mask = false, slopes = false, range = false;
};
struct Shape {
  std::int64_t batch, heads, kv_heads, queries, keys, dim, cols;
};

// What is known of some keys of a query.
struct Part {
  float max = -kInf, sum = 0;
  std::vector<float> y;

  void fold(const Part& next) {
    const auto fold = Fold<S>::of(max, next.max);
    sum = fold(sum, next.sum);
    for (std::size_t c = 0; c < y.size(); ++c) y[c] = fold(y[c], next.y[c]);
    max = fold.max;
  }
};

template <class T>
struct Given {
  Shape shape;
  Asked asked;
  Numbers<T> q, k, v, bias, y;
  std::vector<float> slopes, lse, max, sum;
  std::vector<std::uint8_t> mask;
  std::vector<std::int64_t> begin, end;

  Given(const Shape& s, const Asked& asked, std::int64_t gap = 0, std::uint32_t seed = 1)
      : shape(s),
        asked(asked),
        q(s.batch, s.heads, s.queries, s.dim, gap, seed),
        k(s.batch, s.kv_heads, s.keys, s.dim, gap, seed + 1),
        v(s.batch, s.kv_heads, s.keys, s.cols, gap, seed + 2),
        bias(1, s.heads, s.queries, s.keys, 0, seed + 3),
        y(s.batch, s.heads, s.queries, s.cols, gap, seed) {
    const auto rows = static_cast<std::size_t>(s.batch * s.heads * s.queries);
    lse.assign(rows, kNan);
    max = sum = lse;
    for (std::int64_t i = 0; i < s.batch * s.heads; ++i)
      slopes.push_back(0.25F / static_cast<float>(i + 1));
    for (std::int64_t i = 0; i < s.queries * s.keys; ++i) mask.push_back(i * i % 7 != 2);
    for (std::int64_t b = 0; b < s.batch; ++b) {
      begin.push_back(s.keys / 4 * b);
      end.push_back(s.keys - 2 * b);
    }
    bias.at(0, 0, 0, 0) = from_float<T>(-kInf);
  }
  TensorView rows_of(std::vector<float>& all) const {
    return {all.data(),
            static_cast<std::int64_t>(4 * all.size()),
            DType::f32,
            3,
            {shape.batch, shape.heads, shape.queries},
            {shape.heads * shape.queries, shape.queries, 1}};
  }
  static TensorView whole(std::vector<std::int64_t>& all) {
    return {all.data(), std::ssize(all) * 8, DType::i64, 1, {std::ssize(all)}, {1}};
  }
  ForwardArgs args() {
    ForwardArgs args;
    static_cast<Options&>(args) = asked.options;
    args.arithmetic = Arithmetic::tensor;
    args.q = q.view();
    args.k = k.view();
    args.v = v.view();
    args.y = y.view();
    args.lse = rows_of(lse);
    args.max = rows_of(max);
    args.sum = rows_of(sum);
    if (asked.bias) {
      args.bias = bias.view();
      args.bias.shape[0] = shape.batch;
      args.bias.strides[0] = 0;
    }
    if (asked.mask)
      args.mask = {mask.data(),
                   std::ssize(mask),
                   DType::boolean,
                   4,
                   {shape.batch, shape.heads, shape.queries, shape.keys},
                   {0, 0, shape.keys, 1}};
    if (asked.slopes)
      args.slopes = {slopes.data(),
                     static_cast<std::int64_t>(4 * slopes.size()),
                     DType::f32,
                     2,
                     {shape.batch, shape.heads},
                     {shape.heads, 1}};
    if (asked.range) {
      args.key_begin = whole(begin);
      args.key_end = whole(end);
    }
    return args;
  }
  void forget() {
    for (T& each : y.all) each = from_float<T>(kNan);
    lse.assign(lse.size(), kNan);
    max = sum = lse;
  }

  // ---- as the README defines it ------------------------------------------------------------

  bool is_there(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const Options& o = asked.options;
    const std::int64_t position =
        i + (o.causal == bottom_right ? shape.keys - shape.queries : std::int64_t{0});
    bool there = o.causal == no || j <= position;
    if (o.window > 0) there = there && std::abs(position - j) < o.window;
    if (asked.range) {
      const auto at = static_cast<std::size_t>(b);
      there = there && begin[at] <= j && j < end[at];
    }
    if (asked.mask) there = there && mask[static_cast<std::size_t>(i * shape.keys + j)] != 0;
    return there;
  }
  // A sum of tensor cores, of numbers that a(i) and b(i) give.
  template <class A, class B>
  static float summed(std::int64_t count, const A& a, const B& b) {
    const tensor_core::Format format =
        std::is_same_v<T, bf16> ? tensor_core::kBf16 : tensor_core::kF16;
    float sum = 0;
    for (std::int64_t first = 0; first < count; first += 16) {
      tensor_core::Number left[16], right[16];
      for (std::int64_t e = 0; e < 16; ++e) {
        const bool there = first + e < count;
        left[e] = tensor_core::taken_apart(there ? a(first + e) : 0, format);
        right[e] = tensor_core::taken_apart(there ? b(first + e) : 0, format);
      }
      sum = tensor_core::multiply_add(left, right, sum, format, tensor_core::generation_of(90));
    }
    return sum;
  }
  Part panel_of(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first) {
    const std::int64_t g = h / (shape.heads / shape.kv_heads);
    const Options& o = asked.options;
    const auto scaling = Scaling<float>::of(o.scale, o.softcap, shape.dim);
    const auto dropout = Dropout<float>::of(o.dropout, o.dropout_seed);
    const std::int64_t held = asked.range ? begin[static_cast<std::size_t>(b)] : 0;
    std::array<float, kPanel> exponents;
    std::array<bool, kPanel> there{};
    exponents.fill(-kInf);
    Part part;
    for (std::int64_t at = 0; at < kPanel && first + at < shape.keys; ++at) {
      const std::int64_t j = first + at;
      if (!is_there(b, i, j)) continue;
      float& exponent = exponents[static_cast<std::size_t>(at)];
      exponent = exponent_of<S>(
          scaling, summed(
                       shape.dim, [&](std::int64_t d) { return q.at(b, h, i, d).bits; },
                       [&](std::int64_t d) { return k.at(b, g, j, d).bits; }));
      if (asked.bias) exponent = biased<S>(scaling, exponent, widen<float>(bias.at(0, h, i, j)));
      if (asked.slopes)
        exponent =
            sloped<S>(scaling, exponent, slopes[static_cast<std::size_t>(b * shape.heads + h)],
                      static_cast<float>(std::abs(i + shape.keys - shape.queries - j)), asked.bias);
      there[static_cast<std::size_t>(at)] = exponent != -kInf;
      part.max = S::max(part.max, nearest<S>(exponent));
    }
    std::array<float, kPanel> weights;
    std::array<std::uint16_t, kPanel> narrow{};
    for (std::size_t at = 0; at < kPanel; ++at) {
      weights[at] = there[at] ? weight_of<S>(exponents[at], base_of<S>(part.max)) : 0.0F;
      const std::int64_t key = first + static_cast<std::int64_t>(at) - held;
      there[at] = there[at] && (o.dropout == 0 || dropout.keeps(b, h, i, key));
      if (there[at])
        narrow[at] = from_float<T>(weights[at] * (std::is_same_v<T, f16> ? 32768.0F : 1.0F)).bits;
    }
    for (std::size_t half = kPanel / 2; half >= 1; half /= 2)
      for (std::size_t at = 0; at < half; ++at) weights[at] = weights[at] + weights[at + half];
    part.sum = weights[0];
    for (std::int64_t c = 0; c < shape.cols; ++c)
      part.y.push_back(summed(
                           kPanel,
                           [&](std::int64_t at) { return narrow[static_cast<std::size_t>(at)]; },
                           [&](std::int64_t at) {
                             const bool seen = there[static_cast<std::size_t>(at)];
                             return seen ? v.at(b, g, first + at, c).bits : std::uint16_t{0};
                           }) *
                       (std::is_same_v<T, f16> ? 0x1p-15F : 1.0F));
    return part;
  }
  Part defined(std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t held = asked.range ? begin[static_cast<std::size_t>(b)] : 0;
    std::vector<Part> runs;
    for (std::int64_t first = held; first < shape.keys; first += kPanel) {
      if ((first - held) % (kPanel * kRun) == 0)
        runs.push_back({.y = std::vector<float>(static_cast<std::size_t>(shape.cols))});
      runs.back().fold(panel_of(b, h, i, first));
    }
    if (runs.empty())
      runs.push_back({.y = std::vector<float>(static_cast<std::size_t>(shape.cols))});
    while (runs.size() > 1) {
      std::vector<Part> pairs;
      for (std::size_t r = 0; r < runs.size(); r += 2) {
        pairs.push_back(runs[r]);
        if (r + 1 < runs.size()) pairs.back().fold(runs[r + 1]);
      }
      runs = pairs;
    }
    return runs[0];
  }
};

// All that a pass takes; the detector's memory grows with the square of the blocks.
inline const Asked kAsked[] = {
    {},
    {.options = {.causal = top_left}, .mask = true},
    {.options = {.causal = top_left, .window = 30, .dropout = 0.2}, .range = true},
    {.options = {.causal = bottom_right, .window = 100, .dropout = 0.3, .dropout_seed = 5},
     .bias = true,
     .slopes = true,
     .range = true},
    {.options = {.window = 40, .scale = -0.4, .softcap = 3}, .bias = true, .range = true}};

// The index of a variant among all.
inline int variant_named(std::string_view name, const Operation& operation = forward_operation()) {
  lab::attach_devices();
  const std::vector<VariantInfo> infos = operation.variants();
  for (int i = 0; i < static_cast<int>(infos.size()); ++i)
    if (infos[static_cast<std::size_t>(i)].device == kDevice &&
        infos[static_cast<std::size_t>(i)].name == name)
      return i;
  throw std::logic_error("no " + std::string(name));
}

// Which variant, by how many queries a block, and how many blocks there are.
struct Way {
  std::string_view name = "flash_mma";
  int queries = 64;
  int multiprocessors = 0;  // as the device has them
};
inline void run(const ForwardArgs& given, const Way& way) {
  const Operation& operation = forward_operation();
  const Arguments args = operation.make_arguments();
  *static_cast<ForwardArgs*>(args.get()) = given;
  operation.check(args);
  const int variant = variant_named(way.name);
  Plan plan{};
  if (!operation.variants()[static_cast<std::size_t>(variant)].knobs.empty()) plan[0] = way.queries;
  Execution execution = lab::execution_for(kDevice);
  if (way.multiprocessors > 0) execution.machine.gpu.multiprocessors = way.multiprocessors;
  ASSERT_EQ(operation.declines(variant, args, execution.machine), "");
  operation.run(variant, plan, args, execution);
}
inline void run(const ForwardArgs& given, int queries) { run(given, Way{.queries = queries}); }

// What the operation's one variant of tensor arithmetic computes, against the reference.
inline void expect_right(const Operation& operation) {
  lab::watch();
  lab::attach_devices();
  lab::Flags flags;
  flags.device = {std::string(name_of(kDevice))};
  for (const char* grid : {"quick", "test"})
    for (lab::Case c : lab::cases_of(operation, {}, grid)) {
      if (lab::is_canonical(c) || (lab::kDetectsRaces && grid[0] == 't')) continue;
      lab::Workload workload(c);
      workload.draw();
      const auto found = lab::configurations_of(workload, flags, lab::Unnamed::all);
      std::vector<lab::Configuration> all = found.able;
      ASSERT_EQ(all.size(), 1U) << found.reasons();
      const std::vector<lab::Configuration> others = lab::other_plans(all[0]);
      if (!lab::kDetectsRaces) all.insert(all.end(), others.begin(), others.end());
      lab::expect_right(workload, all);
      if (testing::Test::HasFatalFailure()) return;
    }
}

inline std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value + 0.0F); }

// Of queries `step` apart.
template <class T>
void expect_defined(Given<T>& given, const Way& way, std::int64_t step = 1) {
  given.forget();
  run(given.args(), way);
  const Shape& s = given.shape;
  const float more = Dropout<float>::of(given.asked.options.dropout, 0).scale;
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = (b + h) % step; i < s.queries; i += step) {
        const Part part = given.defined(b, h, i);
        const auto row = static_cast<std::size_t>((b * s.heads + h) * s.queries + i);
        const std::string where = std::to_string(b) + ", " + std::to_string(h) + ", " +
                                  std::to_string(i) + " by " + std::to_string(way.queries);
        ASSERT_EQ(bits(given.max[row]), bits(part.max)) << where;
        ASSERT_EQ(bits(given.sum[row]), bits(part.sum)) << where;
        ASSERT_EQ(bits(given.lse[row]), bits(lse_of<S>(part.max, part.sum))) << where;
        const float inverse =
            inverse_of<S>(part.max, part.sum) * (given.asked.options.dropout > 0 ? more : 1.0F);
        for (std::int64_t c = 0; c < s.cols; ++c)
          ASSERT_EQ(given.y.at(b, h, i, c).bits,
                    from_float<T>(y_of<S>(part.y[static_cast<std::size_t>(c)], inverse)).bits)
              << where << ", column " << c;
      }
}

template <class T>
void expect_defined(Given<T>& given, int queries, std::int64_t step = 1) {
  expect_defined(given, Way{.queries = queries}, step);
}

}  // namespace isobit::attention::by_tensor_cores
