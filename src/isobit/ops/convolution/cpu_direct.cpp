// SPDX-License-Identifier: Apache-2.0
// The specification: one element after the other, each by the sum of order.h.

#include "isobit/ops/convolution/cpu_parts.h"
#include "isobit/ops/convolution/formula.h"

namespace isobit::convolution {
namespace {

using matmul::with_types;

template <class Real>
using SumOf = Sum<simd::ScalarOf<Real>>;

// The sum of one window of a group: (row, col) of the result, or of what pads x where its gradient
// is wanted.
template <class T, class Real>
Real window_sum(const Problem& p, std::int64_t n, std::int64_t group, std::int64_t out,
                std::int64_t row, std::int64_t col) {
  const auto* const filter =
      reinterpret_cast<const T*>(p.weight.data) + group * p.weight.group + out * p.weight.out;
  const auto place = [&](const Axis& axis, std::int64_t result, std::int64_t tap) {
    return p.gradient ? axis.landing(result, tap)
                      : padded(p.mode, axis.window(result, tap), axis.sources);
  };
  SumOf<Real> sum;
  for (std::int64_t i = 0; i < p.h.taps; ++i) {
    const std::int64_t h = place(p.h, row, i);
    for (std::int64_t j = 0; j < p.w.taps; ++j) {
      const std::int64_t w = place(p.w, col, j);
      const bool there = h >= 0 && w >= 0;
      if (!there && p.gradient) {
        sum.skip(p.ins);
        continue;
      }
      const T* const weights = filter + i * p.weight.h + j * p.weight.w;
      const auto* const source =
          there ? reinterpret_cast<const T*>(p.source.at(n, group * p.ins, h, w)) : nullptr;
      for (std::int64_t c = 0; c < p.ins; ++c)
        sum.add(there ? widen<Real>(source[c * p.source.c]) : Real(0),
                widen<Real>(weights[c * p.weight.in]));
    }
  }
  return sum.total();
}

// Calls visit(i) for all elements, of the padding too, that have the value of `index`: ascending.
template <class Visit>
void for_each_image(const Problem& p, const Axis& axis, std::int64_t index, const Visit& visit) {
  const std::int64_t count = axis.results, end = count + axis.padding_end;
  const auto if_there = [&](std::int64_t i) {
    if (i >= -axis.padding && i < end) visit(i);
  };
  switch (p.mode) {
    case PaddingMode::reflect:
      if (index > 0) if_there(-index);
      visit(index);
      if (index < count - 1) if_there(2 * (count - 1) - index);
      break;
    case PaddingMode::replicate:
      for (std::int64_t i = -axis.padding; index == 0 && i < 0; ++i) visit(i);
      visit(index);
      for (std::int64_t i = count; index == count - 1 && i < end; ++i) visit(i);
      break;
    case PaddingMode::circular:
      if_there(index - count);
      visit(index);
      if_there(index + count);
      break;
    default: visit(index);
  }
}

}  // namespace

void compute_directly(const Problem& p, const Execution& execution) {
  if (p.empty()) return;
  const std::int64_t channels = p.groups * p.outs, rows = p.batch * channels * p.h.results;
  const double work = static_cast<double>(rows * p.w.results) *
                      static_cast<double>(std::max<std::int64_t>(16, p.k())) / 8;
  const std::int64_t tasks =
      simd::task_count(execution.machine, static_cast<std::int64_t>(std::min(work, 0x1p60)), rows);
  const matmul::Problem finish = finish_problem(p);
  const auto row_of = [&]<class T, class Real>(std::int64_t index, T, Real) {
    const std::int64_t row = index % p.h.results, channel = index / p.h.results % channels,
                       n = index / p.h.results / channels;
    for (std::int64_t col = 0; col < p.w.results; ++col) {
      const auto sum_at = [&](std::int64_t i, std::int64_t j) {
        return window_sum<T, Real>(p, n, channel / p.outs, channel % p.outs, i, j);
      };
      Real sum{};
      if (p.gradient) {
        bool first = true;
        for_each_image(p, p.h, row, [&](std::int64_t i) {
          for_each_image(p, p.w, col, [&](std::int64_t j) {
            sum = first ? sum_at(i, j) : sum + sum_at(i, j);
            first = false;
          });
        });
      } else {
        sum = sum_at(row, col);
      }
      const matmul::Arrays arrays = arrays_of(p, n, channel, row, col, 1);
      matmul::finish_element<Real>(finish, arrays, 0, 0, sum);
    }
  };
  execution.parallel_for(tasks, [&](std::int64_t task) {
    const simd::FloatMode mode;
    for (std::int64_t row = rows * task / tasks; row < rows * (task + 1) / tasks; ++row)
      with_types(p.element, [&]<class T, class Real>(T, Real) { row_of(row, T{}, Real{}); });
  });
}

void add_weights_directly(const Problem& p, const Execution& execution) {
  const std::int64_t filters = p.groups * p.outs, taps = p.h.taps * p.w.taps;
  const std::int64_t count = filters * p.ins * taps, positions = p.batch * p.positions();
  const std::int64_t tasks = simd::task_count(
      execution.machine,
      static_cast<std::int64_t>(std::min(
          static_cast<double>(count) * static_cast<double>(std::max<std::int64_t>(16, positions)),
          0x1p60)),
      std::max<std::int64_t>(1, count));
  const auto weight = [&]<class T, class Real>(std::int64_t index, T, Real) {
    const std::int64_t tap_w = index % p.w.taps, tap_h = index / p.w.taps % p.h.taps,
                       in = index / taps % p.ins, filter = index / taps / p.ins;
    const std::int64_t group = filter / p.outs;
    SumOf<Real> sum;
    for (std::int64_t n = 0; n < p.batch; ++n)
      for (std::int64_t row = 0; row < p.h.results; ++row) {
        const std::int64_t h = padded(p.mode, p.h.window(row, tap_h), p.h.sources);
        for (std::int64_t col = 0; col < p.w.results; ++col) {
          const std::int64_t w = padded(p.mode, p.w.window(col, tap_w), p.w.sources);
          sum.add(
              element<T, Real>(p.result, n, filter, row, col),
              h < 0 || w < 0 ? Real(0) : element<T, Real>(p.source, n, group * p.ins + in, h, w));
        }
      }
    auto* to = reinterpret_cast<T*>(p.weight.data) + group * p.weight.group +
               filter % p.outs * p.weight.out + in * p.weight.in + tap_h * p.weight.h +
               tap_w * p.weight.w;
    *to = narrow<T>(sum.total());
  };
  execution.parallel_for(tasks, [&](std::int64_t task) {
    const simd::FloatMode mode;
    for (std::int64_t i = count * task / tasks; i < count * (task + 1) / tasks; ++i)
      with_types(p.element, [&]<class T, class Real>(T, Real) { weight(i, T{}, Real{}); });
  });
}

constinit const AnyVariant<Problem> kDirect = {.name = "direct", .run = compute_directly};

}  // namespace isobit::convolution
