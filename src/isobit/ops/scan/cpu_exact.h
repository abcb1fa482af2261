// SPDX-License-Identifier: Apache-2.0
// Scans whose results do not depend on their order: integers', and the largest or smallest. They go
// from element to element, as compilers make of it what they can.
#pragma once

#include <cstdint>

#include "isobit/ops/scan/cpu_kernels.h"
#include "isobit/ops/scan/formula.h"
#include "isobit/ops/scan/formula_elements.h"
#include "isobit/simd/vec.h"

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
  static void total(const Segment& segment, std::int64_t begin, std::int64_t end, void* node) {
    Value value = M::neutral();
    for (std::int64_t i = begin; i < end; ++i) value = M::combine(value, element(segment, i));
    *static_cast<Value*>(node) = value;
  }
  static void scan(const Segment& segment, std::int64_t begin, std::int64_t end, const void* tree,
                   bool) {
    Value value = before(segment.at.init);
    if (tree != nullptr) value = M::combine(value, *static_cast<const Value*>(tree));
    for (std::int64_t i = begin; i < end; ++i) {
      const Value next = M::combine(value, element(segment, i));
      write(segment, i, segment.exclusive ? value : next);
      value = next;
    }
  }

  static void columns(const Columns& columns, std::byte* state) {
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
        const Value next =
            M::combine(values[j], M::lift(in_real<Real>(x[j]), segment.first + i * segment.step));
        const Value result = segment.exclusive ? values[j] : next;
        y[j] = from_real<Y>(M::number(result));
        if (index != nullptr) index[j * columns.index] = M::index(result);
        values[j] = next;
      }
    }
  }
  static std::int64_t state_bytes(std::int64_t) {
    return kStrip * static_cast<std::int64_t>(sizeof(Value));
  }

 private:
  ISOBIT_INLINE static Value before(const std::byte* init) {
    if (init == nullptr) return M::neutral();
    return M::lift(in_real<Real>(*reinterpret_cast<const Y*>(init)), -1);
  }
  ISOBIT_INLINE static Value element(const Segment& segment, std::int64_t i) {
    return M::lift(in_real<Real>(reinterpret_cast<const X*>(segment.at.x)[i * segment.x]),
                   segment.first + i * segment.step);
  }
  ISOBIT_INLINE static void write(const Segment& segment, std::int64_t i, const Value& value) {
    reinterpret_cast<Y*>(segment.at.y)[i * segment.y] = from_real<Y>(M::number(value));
    if (segment.at.index != nullptr) segment.at.index[i * segment.index] = M::index(value);
  }
};

}  // namespace isobit::scan::ISOBIT_ISA
