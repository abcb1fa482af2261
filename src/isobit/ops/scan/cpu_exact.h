// SPDX-License-Identifier: Apache-2.0
// Scans whose results do not depend on their order: integers', and the largest or smallest. They go
// from element to element: an addition takes a cycle, and an element that is not the new extreme a
// branch that is foreseen.
#pragma once

#include <cstdint>

#include "isobit/ops/scan/cpu_kernels.h"
#include "isobit/ops/scan/formula.h"
#include "isobit/ops/scan/formula_elements.h"
#include "isobit/simd/lines.h"
#include "isobit/simd/prefetch.h"

namespace isobit::scan::ISOBIT_ISA {

template <class M, class X, class Y>
struct Exact {
  using Real = typename M::Real;
  using Value = typename M::Value;

  static void start(void* tree) { *static_cast<Value*>(tree) = M::neutral(); }
  static void copy(void* tree, const void* other) {
    *static_cast<Value*>(tree) = *static_cast<const Value*>(other);
  }
  static void push(void* tree, const void* node, int) {
    auto& value = *static_cast<Value*>(tree);
    value = M::combine(value, *static_cast<const Value*>(node));
  }
  static void total(const Segment& segment, std::int64_t begin, std::int64_t end, void* node,
                    std::int64_t) {
    Value value = M::neutral();
    const Elements elements(segment);
    for (std::int64_t i = begin; i < end; ++i) M::take(value, elements[i], elements.index(i));
    *static_cast<Value*>(node) = value;
  }
  static void scan(const Segment& segment, std::int64_t begin, std::int64_t end, const void* tree,
                   bool streaming, std::int64_t ahead) {
    Value value = before(segment.at.init);
    if (tree != nullptr) value = M::combine(value, *static_cast<const Value*>(tree));
    auto* const y = reinterpret_cast<Y*>(segment.at.y);
    std::int64_t* const index = segment.at.index;
    const std::int64_t y_stride = segment.y, index_stride = segment.index;
    const Elements elements(segment);
    const bool exclusive = segment.exclusive;
    const auto walk_each = [&](std::int64_t from, std::int64_t to, const auto& write)
                               ISOBIT_INLINE_LAMBDA {
                                 for (std::int64_t i = from; i < to; ++i) {
                                   const Value last = value;
                                   M::take(value, elements[i], elements.index(i));
                                   write(i, exclusive ? last : value);
                                 }
                               };
    // Where no element of a line changes the value, all results are the value.
    const auto walk = [&](std::int64_t from, std::int64_t to, const auto& write)
                          ISOBIT_INLINE_LAMBDA {
                            if constexpr (M::kOftenIdle) {
                              for (; from + kLine <= to; from += kLine)
                                if (elements.stride == 1 && idle(value, elements.x + from))
                                  for (int j = 0; j < kLine; ++j) write(from + j, value);
                                else
                                  walk_each(from, from + kLine, write);
                            }
                            walk_each(from, to, write);
                          };
    if (index != nullptr)
      return walk(begin, end, [=](std::int64_t i, const Value& result) ISOBIT_INLINE_LAMBDA {
        y[i * y_stride] = from_real<Y>(M::number(result));
        index[i * index_stride] = M::index(result);
      });
    if (y_stride != 1 || exclusive)
      return walk(begin, end, [=](std::int64_t i, const Value& result) ISOBIT_INLINE_LAMBDA {
        y[i * y_stride] = from_real<Y>(M::number(result));
      });
    std::int64_t i = begin;
    if (streaming && simd::streamable(y + begin)) {
      // Some lines at a time, for a vector cannot be read where a part of it has just been written.
      alignas(64) Y lines[kLines * kLine];
      for (; i + kLines * kLine <= end; i += kLines * kLine) {
        walk(i, i + kLines * kLine,
             [&, i](std::int64_t at, const Value& result)
                 ISOBIT_INLINE_LAMBDA { lines[at - i] = from_real<Y>(M::number(result)); });
        for (int part = 0; part < kLines * kLine; part += kPart) {
          simd::fetch_to_second_cache(elements.x + (i + part + ahead) * elements.stride);
          simd::Bytes::template store<simd::Stores::streaming>(y + i + part,
                                                               simd::Bytes::load(lines + part));
        }
      }
      simd::fence();
    }
    walk(i, end, [=](std::int64_t at, const Value& result) ISOBIT_INLINE_LAMBDA {
      y[at] = from_real<Y>(M::number(result));
    });
  }

  static void columns(const Columns& columns, std::byte* state, bool) {
    auto* values = reinterpret_cast<Value*>(state);
    const Segment& segment = columns.segment;
    for (std::int64_t j = 0; j < columns.count; ++j)
      values[j] =
          before(segment.at.init == nullptr
                     ? nullptr
                     : segment.at.init + j * columns.init * static_cast<std::int64_t>(sizeof(Y)));
    for (std::int64_t i = 0; i < segment.length; ++i) {
      const auto* x = reinterpret_cast<const X*>(segment.at.x) + i * segment.x;
      auto* y = reinterpret_cast<Y*>(segment.at.y) + i * segment.y;
      std::int64_t* index = segment.at.index;
      if (index != nullptr) index += i * segment.index;
      for (std::int64_t j = 0; j < columns.count; ++j) {
        const Value last = values[j];
        M::take(values[j], in_real<Real>(x[j]), segment.first + i * segment.step);
        const Value result = segment.exclusive ? last : values[j];
        y[j] = from_real<Y>(M::number(result));
        if (index != nullptr) index[j * columns.index] = M::index(result);
      }
    }
  }
  static std::int64_t state_bytes(std::int64_t) {
    return kStrip * static_cast<std::int64_t>(sizeof(Value));
  }

 private:
  static constexpr int kLine = 64 / sizeof(Y), kLines = 16;
  static constexpr int kPart = simd::Bytes::kLanes * 16 / static_cast<int>(sizeof(Y));

  // A segment's elements, whose strides no store can be taken to change.
  struct Elements {
    const X* x;
    std::int64_t stride, first, step;

    ISOBIT_INLINE explicit Elements(const Segment& segment)
        : x(reinterpret_cast<const X*>(segment.at.x)),
          stride(segment.x),
          first(segment.first),
          step(segment.step) {}
    ISOBIT_INLINE Real operator[](std::int64_t i) const { return in_real<Real>(x[i * stride]); }
    ISOBIT_INLINE std::int64_t index(std::int64_t i) const { return first + i * step; }
  };

  ISOBIT_INLINE static bool idle(const Value& value, const X* x) {
    int changes = 0;
    for (int j = 0; j < kLine; ++j) changes |= !M::beaten(in_real<Real>(x[j]), value.number);
    return changes == 0;
  }
  ISOBIT_INLINE static Value before(const std::byte* init) {
    if (init == nullptr) return M::neutral();
    return M::lift(in_real<Real>(*reinterpret_cast<const Y*>(init)), -1);
  }
};

}  // namespace isobit::scan::ISOBIT_ISA
