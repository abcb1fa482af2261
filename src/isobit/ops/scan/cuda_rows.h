// SPDX-License-Identifier: Apache-2.0
// What all kernels of scan share: rows of any strides, and a block of the order as 16 elements for
// each lane of a warp.
#pragma once

#include <cstdint>
#include <type_traits>

#include "isobit/ops/scan/cuda_staging.h"
#include "isobit/ops/scan/formula.h"
#include "isobit/ops/scan/formula_order.h"
#include "isobit/ops/scan/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/scalar.h"

namespace isobit::scan {

// What only the exact monoids have.
template <class M>
concept Finds = requires(typename M::Value value) { M::index(value); };

// Those of them that choose one of two numbers.
template <class M>
concept Chooses = requires(typename M::Value value) { value.number; };

// The number that stands where this one does, counted from the other end: with it a minimum is a
// maximum, so that there is one kernel for both.
template <class Real>
ISOBIT_DEVICE Real mirrored(Real number) {
  if constexpr (std::is_integral_v<Real>)
    return ~number;
  else
    return -number;
}

// What becomes of a Value, as soon as it is known: a Value takes up to three times the registers.
template <class M>
struct Result {
  typename M::Real number;
  std::int64_t index = 0;  // of those monoids that have one

  ISOBIT_DEVICE explicit Result(const typename M::Value& value) : number(M::number(value)) {
    if constexpr (Finds<M>) index = M::index(value);
  }
};

// Those of a group.
template <class M>
struct Results {
  typename M::Real numbers[kGroup];
  std::int64_t indices[Finds<M> ? kGroup : 1];

  ISOBIT_DEVICE void set(int i, const Result<M>& result) {
    numbers[i] = result.number;
    if constexpr (Finds<M>) indices[i] = result.index;
  }
};

// A row from where its scan begins; strides are negative in reverse.
template <class M, class X, class Y>
struct Row {
  using Real = typename M::Real;
  using Value = typename M::Value;

  const X* x;
  const Y* init;
  const unsigned char* reset;
  Y* y;
  std::int64_t* index;
  std::int64_t x_stride, reset_stride, y_stride, index_stride;
  std::int64_t length, first, step;
  bool exclusive, mirrors;

  ISOBIT_DEVICE Value lifted(Real number, std::int64_t at) const {
    if constexpr (Finds<M>)
      return M::lift(seen(number), at);
    else
      return M::lift(number);
  }
  // A number of the arrays as the monoid sees it, or one of the monoid's as arrays have it.
  ISOBIT_DEVICE Real seen(Real number) const {
    if constexpr (Chooses<M>)
      if (mirrors) return mirrored(number);
    return number;
  }
  template <class T>
  ISOBIT_DEVICE static Real real(T element) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<Real>(element);
    else
      return simt::Conversions::template widen<Real>(element);
  }

  ISOBIT_DEVICE Value read(std::int64_t i) const {
    return i < length ? lifted(real(x[i * x_stride]), first + i * step) : M::neutral();
  }
  // A group from i on, of which these are the elements of x.
  ISOBIT_DEVICE void lift_group(const X (&elements)[kGroup], std::int64_t i,
                                Value (&values)[kGroup]) const {
    const int left = length - i < kGroup ? static_cast<int>(length - i) : kGroup;
#pragma unroll
    for (int k = 0; k < kGroup; ++k)
      values[k] = k < left ? lifted(real(elements[k]), first + (i + k) * step) : M::neutral();
  }
  ISOBIT_DEVICE Value before() const {
    return init == nullptr ? M::neutral() : lifted(real(*init), -1);
  }
  ISOBIT_DEVICE void put(std::int64_t i, const Value& value) const {
    if constexpr (Finds<M>)
      put(i, M::number(value), M::index(value));
    else
      put(i, M::number(value), 0);
  }
  ISOBIT_DEVICE void put(std::int64_t i, Real number, std::int64_t where) const {
    if (i >= length) return;
    if constexpr (std::is_integral_v<Y>)
      y[i * y_stride] = seen(number);
    else
      y[i * y_stride] = simt::Conversions::template narrow<Y>(seen(number));
    if constexpr (Finds<M>)
      if (index != nullptr) index[i * index_stride] = where;
  }
  // Groups of y, and of index: groups_of(T*, stride) says where each is.
  template <class GroupsOf>
  ISOBIT_DEVICE void put_groups(const GroupsOf& groups_of, std::byte* staged,
                                Results<M> results) const {
    if constexpr (Chooses<M>)
#pragma unroll
      for (int k = 0; k < kGroup; ++k) results.numbers[k] = seen(results.numbers[k]);
    Y elements[kGroup];
    if constexpr (std::is_integral_v<Y>) {
#pragma unroll
      for (int k = 0; k < kGroup; ++k) elements[k] = results.numbers[k];
    } else {
      simt::narrow_all(results.numbers, elements);
    }
    store_groups(groups_of(y, y_stride), staged, elements);
    if constexpr (Finds<M>)
      if (index != nullptr) store_groups(groups_of(index, index_stride), staged, results.indices);
  }
  ISOBIT_DEVICE void put_one_by_one(std::int64_t start, const Results<M>& results) const {
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      if constexpr (Finds<M>)
        put(start + k, results.numbers[k], results.indices[k]);
      else
        put(start + k, results.numbers[k], 0);
    }
  }
  // Of what is scanned, or has been before.
  ISOBIT_DEVICE Value result(const Value& scanned) const {
    return init == nullptr ? scanned : M::combine(before(), scanned);
  }
  // What is scanned up to i: the result there, or after it.
  ISOBIT_DEVICE void write(std::int64_t i, const Value& scanned) const {
    put(exclusive ? i + 1 : i, result(scanned));
  }
  // What no element comes before, by one thread.
  ISOBIT_DEVICE void begin() const {
    if (exclusive) put(0, before());
  }
};

template <class M, class X, class Y>
struct Rows {
  const X* x;
  const Y* init;
  const unsigned char* reset;
  Y* y;
  std::int64_t* index;
  Axis along, loops[kMaxRank];
  int loop_count = 0;
  std::int64_t count;
  bool exclusive, reverse, mirrors;

  explicit Rows(const Problem& problem)
      : x(reinterpret_cast<const X*>(problem.first.x)),
        init(reinterpret_cast<const Y*>(problem.first.init)),
        reset(reinterpret_cast<const unsigned char*>(problem.first.reset)),
        y(reinterpret_cast<Y*>(problem.first.y)),
        index(problem.first.index),
        along(problem.along),
        count(problem.rows()),
        exclusive(problem.exclusive),
        reverse(problem.reverse),
        mirrors(problem.kind == Kind::min) {
    for (int i = 0; i < problem.outer_count; ++i) loops[loop_count++] = problem.outer[i];
    loops[loop_count++] = problem.inner;
  }

  // Shared memory of a warp, through which its groups pass.
  ISOBIT_EITHER std::int64_t staged_bytes() const {
    const std::size_t of_elements = sizeof(X) < sizeof(Y) ? sizeof(Y) : sizeof(X);
    return kBlock * static_cast<std::int64_t>(index == nullptr || sizeof(*index) < of_elements
                                                  ? of_elements
                                                  : sizeof(*index));
  }
  // That of this warp, of a block's.
  ISOBIT_DEVICE std::byte* staged(std::byte* of_block) const {
    return of_block + simt::thread() / simt::kWarpThreads * staged_bytes();
  }

  ISOBIT_DEVICE Row<M, X, Y> operator[](std::int64_t row) const {
    const std::int64_t first = reverse ? along.extent - 1 : 0, step = reverse ? -1 : 1;
    Row<M, X, Y> result{x + first * along.x,
                        init,
                        reset,
                        y + first * along.y,
                        index == nullptr ? nullptr : index + first * along.index,
                        step * along.x,
                        step * along.reset,
                        step * along.y,
                        step * along.index,
                        along.extent,
                        first,
                        step,
                        exclusive,
                        mirrors};
    for (int i = loop_count - 1; i >= 0; --i) {
      const Axis& axis = loops[i];
      const std::int64_t turn = row % axis.extent;
      row /= axis.extent;
      result.x += turn * axis.x;
      if (init != nullptr) result.init += turn * axis.init;
      if (reset != nullptr) result.reset += turn * axis.reset;
      result.y += turn * axis.y;
      if (index != nullptr) result.index += turn * axis.index;
    }
    return result;
  }
};

template <class S, int kCount>
ISOBIT_DEVICE Parts<S, kCount> from_lane(const Parts<S, kCount>& value, int lane) {
  Parts<S, kCount> result;
#pragma unroll
  for (int p = 0; p < kCount; ++p) result.part[p] = simt::shuffle(value.part[p], lane);
  return result;
}
template <class Word>
  requires std::is_integral_v<Word>
ISOBIT_DEVICE Word from_lane(Word value, int lane) {
  return simt::shuffle(value, lane);
}
template <class Value>
  requires requires(Value value) { value.number; }
ISOBIT_DEVICE Value from_lane(const Value& value, int lane) {
  return {simt::shuffle(value.number, lane), simt::shuffle(value.index, lane)};
}

// A block of the order: 16 elements a lane.
template <class M>
struct WarpBlock {
  using Value = typename M::Value;
  Value l[kGroup], e, total;

  // `staged`: shared memory of this warp, which write() uses, too.
  template <class X, class Y>
  ISOBIT_DEVICE WarpBlock(const Row<M, X, Y>& row, std::int64_t block, std::byte* staged) {
    const std::int64_t start = block * kBlock;
    X elements[kGroup];
    load_groups(
        GroupsOfRow<const X>{row.x + start * row.x_stride, row.x_stride, row.length - start},
        staged, elements);
    row.lift_group(elements, start + simt::lane() * kGroup, l);
    sklansky<M>(l);
    Value sum = l[kGroup - 1];
#pragma unroll
    for (int half = 1; half < kGroups; half *= 2) {
      const bool upper = (simt::lane() & half) != 0;
      const Value other = from_lane(sum, upper ? simt::lane() / half * half - 1 : simt::lane());
      if (upper) sum = M::combine(other, sum);
    }
    e = from_lane(sum, simt::lane() > 0 ? simt::lane() - 1 : 0);
    if (simt::lane() == 0) e = M::neutral();
    total = from_lane(sum, kGroups - 1);
  }

  template <class Row>
  ISOBIT_DEVICE void write(const Row& row, std::int64_t block, const Value& carry,
                           std::byte* staged) const {
    const Value base = M::combine(carry, e);
    if (block == 0 && simt::lane() == 0) row.begin();
    Results<M> results;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) results.set(i, Result<M>(row.result(M::combine(base, l[i]))));
    const std::int64_t start = block * kBlock + (row.exclusive ? 1 : 0);
    row.put_groups(
        [&]<class T>(T* data, std::int64_t stride) {
          return GroupsOfRow<T>{data + start * stride, stride, row.length - start};
        },
        staged, results);
  }
};

}  // namespace isobit::scan
