// SPDX-License-Identifier: Apache-2.0
// One argument's memory: elements in a sea of NaN, so that a kernel which reads or writes beside
// them is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit::lab {

// The type and extents of an array. It is looked at as lines along its last dimension.
struct Form {
  DType dtype = DType::f32;
  std::vector<std::int64_t> extents;

  std::int64_t line_length() const { return extents.back(); }
  std::int64_t lines() const;  // a vector is one
  std::int64_t elements() const { return lines() * line_length(); }
};

// How the dimensions of an array lie in memory. dense: in order. reversed: the first dimension is
// the nearest, as in a transposed view. spread: in order, with gaps between all elements. nt, tn,
// tt: as dense, but the matrix b, a or both are transposed views.
enum class Layout { dense, reversed, spread, nt, tn, tt };
inline constexpr std::string_view kLayouts[] = {"dense", "reversed", "spread", "nt", "tn", "tt"};

// Whether an argument of this name is a transposed view.
constexpr bool transposes(Layout layout, std::string_view argument) {
  return (argument == "a" && (layout == Layout::tn || layout == Layout::tt)) ||
         (argument == "b" && (layout == Layout::nt || layout == Layout::tt));
}

// In elements. Where `line_stride` is not 0, the lines of a dense array are so far apart.
std::vector<std::int64_t> strides_of(const Form& form, Layout layout = Layout::dense,
                                     std::int64_t line_stride = 0);

class Array {
 public:
  // The first element lies `offset` elements past an aligned address.
  Array(Form form, std::vector<std::int64_t> strides, std::int64_t offset,
        const ParallelFor& parallel_for);
  // Of adjacent elements, filled on this thread.
  explicit Array(Form form) : Array(form, strides_of(form), 0, {}) {}

  const Form& form() const { return form_; }
  std::byte* line(std::int64_t line) const;
  // Elements from one of a line to the next.
  std::int64_t step() const { return strides_.back(); }
  TensorView view() const;

  // Elements of one line in double or quad, and back: rounded to nearest even.
  template <class Real>
  void load(std::int64_t line, std::int64_t first, std::span<Real> values) const;
  void store(std::int64_t line, std::int64_t first, std::span<const double> values) const;

  // Elements in row-major order without gaps, of all lines or some, and back.
  std::vector<std::byte> packed() const { return packed(0, form_.lines()); }
  std::vector<std::byte> packed(std::int64_t first_line, std::int64_t lines) const;
  void unpack(std::span<const std::byte> bytes, std::int64_t first_line = 0) const;

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
  bool has_gaps() const;

  Form form_;
  std::vector<std::int64_t> strides_;
  std::size_t storage_bytes_;
  std::unique_ptr<std::byte[], void (*)(void*)> storage_;
  std::byte* first_;
};

// XXH3-64 over the elements that are added one after the other, in hex.
class BitHash {
 public:
  BitHash();
  void add(const Array& array);  // all of it, in row-major order
  void add(const Array& array, std::int64_t line, std::int64_t first, std::int64_t count);
  std::string hex() const;

 private:
  std::shared_ptr<void> state_;
};

std::string bits(const Array& array);

}  // namespace isobit::lab
