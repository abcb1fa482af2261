// SPDX-License-Identifier: Apache-2.0
// The order of summation, version 1: the one place that says which addition comes first. Every back
// end adds in this order, so every back end gives the same bits. docs/numerics.md draws it.
//
// A sum over a row: blocks of 512 elements. Element i of a block stands in row i/64 and lane i%64;
// what a last, shorter block lacks counts as +0.0. A block is folded by halving, first its 8 rows,
// then its 64 lanes; the blocks' sums are added by adjacent pairs, level by level, an odd one
// carried up; the total gets +0.0 once. A sum of products is the same but for the first fold, which
// is fma(a[r+4], b[r+4], a[r]*b[r]).
//
// A matrix product's sum over k: panels of 512, each a chain of fma from +0.0, k ascending; runs of
// 16 panels one after the other, then adjacent pairs of runs; the total gets +0.0 once.
//
// A sum over rows (weight gradients): runs of 16 rows one after the other from +0.0, then adjacent
// pairs of runs.
#pragma once

#include <cmath>
#include <cstdint>

#include "isobit/core/inline.h"

namespace isobit::order {

inline constexpr int kVersion = 1;
inline constexpr int kBlock = 512;
inline constexpr int kLanes = 64;
inline constexpr int kRows = kBlock / kLanes;
inline constexpr int kRun = 16;
inline constexpr int kPanel = 512;  // of a matrix product; kRun of them are a run

// Adds what is pushed by adjacent pairs. It holds one pending sum a level, as a binary counter
// holds its ones.
template <class T>
class PairTree {
 public:
  ISOBIT_INLINE void push(T sum) {
    for (std::int64_t count = count_++; count & 1; count >>= 1) sum = pending_[--depth_] + sum;
    pending_[depth_++] = sum;
  }

  ISOBIT_INLINE T total() const {
    T sum = T(0);
    if (depth_ > 0) sum += pending_[depth_ - 1];
    for (int i = depth_ - 2; i >= 0; --i) sum = pending_[i] + sum;
    return sum;
  }

 private:
  T pending_[56];
  int depth_ = 0;
  std::int64_t count_ = 0;
};

namespace detail {

// Folds the halves of `values` onto each other until one value is left.
template <class T>
ISOBIT_INLINE T fold(T* values, int count) {
  for (int half = count / 2; half >= 1; half /= 2)
    for (int i = 0; i < half; ++i) values[i] = values[i] + values[i + half];
  return values[0];
}

}  // namespace detail

// The specification for a sum of value(0) ... value(count - 1).
template <class T, class Value>
T sum(std::int64_t count, Value value) {
  PairTree<T> blocks;
  for (std::int64_t start = 0; start < count; start += kBlock) {
    const auto at = [&](int i) { return start + i < count ? value(start + i) : T(0); };
    T lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      T rows[kRows];
      for (int row = 0; row < kRows; ++row) rows[row] = at(row * kLanes + lane);
      lanes[lane] = detail::fold(rows, kRows);
    }
    blocks.push(detail::fold(lanes, kLanes));
  }
  return blocks.total();
}

// The specification for a sum of a(i) * b(i).
template <class T, class A, class B>
T dot(std::int64_t count, A a, B b) {
  PairTree<T> blocks;
  for (std::int64_t start = 0; start < count; start += kBlock) {
    const auto at = [&](auto& value, int i) { return start + i < count ? value(start + i) : T(0); };
    T lanes[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      T rows[kRows / 2];
      for (int row = 0; row < kRows / 2; ++row) {
        const int i = row * kLanes + lane, j = i + kBlock / 2;
        rows[row] = std::fma(at(a, j), at(b, j), at(a, i) * at(b, i));
      }
      lanes[lane] = detail::fold(rows, kRows / 2);
    }
    blocks.push(detail::fold(lanes, kLanes));
  }
  return blocks.total();
}

// The specification for an element of a matrix product, the sum of a(k) * b(k).
template <class T, class A, class B>
T product(std::int64_t count, A a, B b) {
  PairTree<T> runs;
  for (std::int64_t start = 0; start < count; start += kPanel * kRun) {
    T run = T(0);
    for (std::int64_t panel = start; panel < count && panel < start + kPanel * kRun;
         panel += kPanel) {
      T chain = T(0);
      for (std::int64_t k = panel; k < count && k < panel + kPanel; ++k)
        chain = std::fma(a(k), b(k), chain);
      run = run + chain;
    }
    runs.push(run);
  }
  return runs.total();
}

// The specification for one column's sum over rows: step(accumulator, row) adds a row.
template <class T, class Step>
T sum_rows(std::int64_t rows, Step step) {
  PairTree<T> runs;
  for (std::int64_t start = 0; start < rows; start += kRun) {
    T accumulator = T(0);
    for (std::int64_t row = start; row < rows && row < start + kRun; ++row)
      accumulator = step(accumulator, row);
    runs.push(accumulator);
  }
  return runs.total();
}

}  // namespace isobit::order
