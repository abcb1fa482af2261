// SPDX-License-Identifier: Apache-2.0
// The memory that right calls of entries share, and tensors of every shape in it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "isobit/isobit.h"

namespace isobit::calls {

constexpr std::int64_t kRows = 3, kCols = 8;
constexpr std::int64_t kSlot = 1024;  // bytes that belong to each array
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

class Slots {
 public:
  explicit Slots(std::int64_t rows = kRows)
      : rows_(rows), slot_(std::max(kSlot, rows * kCols * 4)) {
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = std::sin(static_cast<float>(i));
  }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  const std::vector<float>& memory() const { return memory_; }
  float* slot(int index) { return memory_.data() + index * slot_ / 4; }

 protected:
  std::int64_t rows_, slot_;  // bytes of a slot

  isobit_tensor signals(int index) {
    return {slot(index), slot_, ISOBIT_F32, 3, {rows_, 1, kCols}, {kCols, kCols, 1}};
  }
  isobit_tensor places_like(int index) {
    isobit_tensor view = images(index);
    view.dtype = ISOBIT_I64;
    view.bytes = 2 * slot_;  // of the next slot, too
    return view;
  }
  isobit_tensor images(int index) {
    constexpr std::int64_t kWidth = kCols / 2;
    return {slot(index),
            slot_,
            ISOBIT_F32,
            4,
            {rows_, 1, kCols / kWidth, kWidth},
            {kCols, kCols, kWidth, 1}};
  }
  isobit_tensor matrix(int index) {
    return {slot(index), slot_, ISOBIT_F32, 2, {rows_, kCols}, {kCols, 1}};
  }
  // As many rows as columns.
  isobit_tensor square(int index) {
    return {slot(index), slot_, ISOBIT_F32, 2, {kCols, kCols}, {kCols, 1}};
  }
  // Rows with one column inside them.
  isobit_tensor lines(int index) {
    return {slot(index), slot_, ISOBIT_F32, 3, {rows_, kCols, 1}, {kCols, 1, 1}};
  }
  // Of one head, whose tables have a column for two of its elements.
  isobit_tensor heads(int index) {
    return {
        slot(index), slot_, ISOBIT_F32, 4, {1, rows_, 1, kCols}, {rows_ * kCols, kCols, kCols, 1}};
  }
  isobit_tensor table(int index) {
    return {slot(index), slot_, ISOBIT_F32, 2, {rows_, kCols / 2}, {kCols / 2, 1}};
  }
  // One head's rows, and a number for each.
  isobit_tensor sequence(int index) {
    return {slot(index),          slot_,
            ISOBIT_F32,           4,
            {1, 1, rows_, kCols}, {rows_ * kCols, rows_ * kCols, kCols, 1}};
  }
  isobit_tensor per_query(int index) {
    isobit_tensor result = sequence(index);
    result.rank = 3;
    for (int i = 0; i < 3; ++i) result.strides[i] /= result.shape[3];
    return result;
  }
  isobit_tensor vector(int index, std::int64_t count) {
    return {slot(index), slot_, ISOBIT_F32, 1, {count}, {1}};
  }

  // Of pooling, with windows of 3 x 3.
  template <class Args>
  static Args pooled(const auto& fill) {
    Args args{};
    args.struct_size = sizeof args;
    args.window_h = args.window_w = 3;
    args.stride_h = args.stride_w = args.padding_h = args.padding_w = 1;
    fill(args);
    return args;
  }

  std::vector<std::int64_t> classes_ =
      std::vector<std::int64_t>(static_cast<std::size_t>(rows_), 1);

 private:
  std::vector<float> memory_ = std::vector<float>(15 * slot_ / 4);
};

}  // namespace isobit::calls
