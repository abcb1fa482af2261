// SPDX-License-Identifier: Apache-2.0
// One argument's memory: rows of elements in a sea of NaN, so that a kernel which reads or writes
// beside them is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"
#include "isobit/dispatch/operation.h"

namespace isobit::lab {

// The type and extents of an array; a vector is one row.
struct Form {
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0;

  std::int64_t elements() const { return rows * cols; }
};

class Array {
 public:
  // Rows lie `stride` elements apart; the first starts `offset` elements past an aligned address.
  Array(Form form, std::int64_t stride, std::int64_t offset, const ParallelFor& parallel_for);

  const Form& form() const { return form_; }
  std::byte* row(std::int64_t row) const { return first_ + row * stride_ * size_of(form_.dtype); }
  TensorView view(Extent extent) const;

  // Elements of one row in double or quad, and back: rounded to nearest even.
  template <class Real>
  void load(std::int64_t row, std::int64_t first_col, std::span<Real> values) const;
  void store(std::int64_t row, std::int64_t first_col, std::span<const double> values) const;

  // Fills the elements with a NaN that no operator writes (-1 as an integer), the state of a fresh
  // array.
  void poison(const ParallelFor& parallel_for) const;
  // All memory: elements, gaps and guards.
  std::span<std::byte> storage() const { return {storage_.get(), storage_bytes_}; }
  // Whether all that surrounds the elements is as it was made.
  bool surroundings_intact() const;
  // Of everything: elements, gaps and guards.
  std::uint64_t storage_hash() const;

 private:
  std::size_t used_bytes() const;

  Form form_;
  std::int64_t stride_;
  std::size_t storage_bytes_;
  std::unique_ptr<std::byte[], void (*)(void*)> storage_;
  std::byte* first_;
};

// XXH3-64 over the elements that are added one after the other, in hex.
class Bits {
 public:
  Bits();
  void add(const Array& array);  // all of it, in row-major order
  void add(const Array& array, std::int64_t row, std::int64_t first_col, std::int64_t cols);
  std::string hex() const;

 private:
  std::shared_ptr<void> state_;
};

std::string bits(const Array& array);

}  // namespace isobit::lab
