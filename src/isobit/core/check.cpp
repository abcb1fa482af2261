// SPDX-License-Identifier: Apache-2.0
// The rules of check.h, with arithmetic that cannot wrap.
#include "isobit/core/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>

#include "isobit/core/error.h"

namespace isobit {
namespace {

// More than any machine can address, and so few that sizes and workspaces computed from rows and
// columns cannot wrap: a stride of 0 makes rows that no storage bounds.
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

// Becomes text only in a message: a call that keeps the rules allocates nothing.
struct Shape {
  const TensorView& view;

  friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
    out << '(';
    for (int i = 0; i < shape.view.rank; ++i) out << (i ? ", " : "") << shape.view.shape[i];
    return out << ')';
  }
};

bool empty(const TensorView& view) {
  return std::any_of(view.shape.begin(), view.shape.begin() + view.rank,
                     [](std::int64_t extent) { return extent == 0; });
}

// The bytes that rows of a matrix cover, from the first to one past the last; the view lies inside
// its storage, so neither sum can wrap.
struct Range {
  std::uintptr_t begin, end;
};

Range range_of(const Matrix& matrix, std::int64_t size) {
  const auto begin = reinterpret_cast<std::uintptr_t>(matrix.data);
  if (matrix.rows == 0 || matrix.cols == 0) return {begin, begin};
  return {begin, begin + ((matrix.rows - 1) * matrix.stride + matrix.cols) * size};
}

// Columns of one buffer side by side: equal row pitch, and the rows of one fall into the gaps of
// the other.
bool interleaved(const Matrix& a, std::int64_t a_size, const Matrix& b, std::int64_t b_size) {
  const std::int64_t pitch = a.stride * a_size;
  if (pitch != b.stride * b_size || pitch <= 0) return false;
  const auto distance = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(b.data) -
                                                  reinterpret_cast<std::uintptr_t>(a.data));
  const std::int64_t offset = (distance % pitch + pitch) % pitch;
  return offset >= a.cols * a_size && offset + b.cols * b_size <= pitch;
}

bool overlap(const Checker::Named& a, const Checker::Named& b) {
  const std::int64_t a_size = size_of(a.view.dtype), b_size = size_of(b.view.dtype);
  const Range p = range_of(a.matrix, a_size), q = range_of(b.matrix, b_size);
  if (p.begin == p.end || q.begin == q.end || p.end <= q.begin || q.end <= p.begin) return false;
  return !interleaved(a.matrix, a_size, b.matrix, b_size);
}

bool same(const Checker::Named& a, const Checker::Named& b) {
  return a.matrix.data == b.matrix.data && a.view.dtype == b.view.dtype &&
         (a.matrix.stride == b.matrix.stride || a.matrix.rows <= 1);
}

}  // namespace

void Checker::dtype(std::string_view name, const TensorView& view,
                    std::initializer_list<DType> allowed) const {
  if (std::find(allowed.begin(), allowed.end(), view.dtype) != allowed.end()) return;
  std::string list;
  for (const DType* one = allowed.begin(); one != allowed.end(); ++one)
    if (std::find(allowed.begin(), one, *one) == one)
      list += (list.empty() ? "" : ", ") + std::string(name_of(*one));
  throw InvalidArgument(
      text(op_, ": ", name, " has dtype ", name_of(view.dtype), "; allowed are ", list));
}

void Checker::same_dtype(std::string_view name, const TensorView& view, std::string_view other_name,
                         DType other) const {
  require(view.dtype == other, op_, ": ", name, " has dtype ", name_of(view.dtype), "; ",
          other_name, " has ", name_of(other));
}

void Checker::inside_storage(std::string_view name, const TensorView& view) const {
  require(view.rank <= kMaxRank && view.rank > 0, op_, ": ", name, " has ", view.rank,
          " dimensions; 1 to ", kMaxRank, " are allowed");
  const std::int64_t size = size_of(view.dtype);
  require(size > 0, op_, ": ", name, " has an unknown dtype");
  require(view.bytes >= 0, op_, ": ", name, " has a storage of ", view.bytes, " bytes");
  for (int i = 0; i < view.rank; ++i)
    require(view.shape[i] >= 0, op_, ": ", name, " has a negative extent in shape ", Shape{view});
  if (empty(view)) return;

  std::int64_t last = 0;  // the largest offset, in elements
  bool fits = true;
  for (int i = 0; i < view.rank; ++i) {
    require(view.strides[i] >= 0 || view.shape[i] == 1, op_, ": ", name,
            " has the negative stride ", view.strides[i], " in dimension ", i);
    if (view.shape[i] == 1) continue;
    std::int64_t reach = 0;
    fits &= !__builtin_mul_overflow(view.shape[i] - 1, view.strides[i], &reach);
    fits &= !__builtin_add_overflow(last, reach, &last);
  }
  std::int64_t needed = 0;
  fits &= !__builtin_add_overflow(last, std::int64_t{1}, &needed);
  fits &= !__builtin_mul_overflow(needed, size, &needed);
  require(fits, op_, ": ", name, " of shape ", Shape{view}, " reaches beyond 2^63 bytes");
  require(needed <= view.bytes, op_, ": ", name, " of shape ", Shape{view}, " reaches ", needed,
          " bytes into a storage of ", view.bytes);
  require(view.data != nullptr, op_, ": ", name, " is null");
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  require(address % static_cast<std::uintptr_t>(size) == 0, op_, ": ", name, " starts ",
          address % static_cast<std::uintptr_t>(size),
          " bytes past a multiple of its element size ", size);
  require(address <=
              std::numeric_limits<std::uintptr_t>::max() - static_cast<std::uintptr_t>(view.bytes),
          op_, ": ", name, " has a storage of ", view.bytes,
          " bytes that wraps around the address space");
}

std::int64_t Checker::count_of(std::string_view name, const TensorView& view,
                               int dimensions) const {
  std::int64_t count = 1;
  for (int i = 0; i < dimensions; ++i)
    require(!__builtin_mul_overflow(count, view.shape[i], &count) && count <= kMostElements, op_,
            ": ", name, " of shape ", Shape{view}, " has more than 2^48 elements");
  return count;
}

Matrix Checker::matrix(std::string_view name, const TensorView& view, Access access) const {
  require(view.given(), op_, ": ", name, " is missing");
  inside_storage(name, view);
  const int last = view.rank - 1;
  Matrix result;
  result.data = static_cast<std::byte*>(view.data);
  result.cols = view.shape[last];
  result.rows = count_of(name, view, last);
  count_of(name, view, view.rank);
  result.stride = result.cols;
  if (empty(view)) return result;
  require(view.strides[last] == 1 || result.cols == 1, op_, ": ", name, " has stride ",
          view.strides[last], " in its last dimension; 1 is needed");

  // Leading dimensions collapse when each outer stride spans the inner dimension exactly.
  int inner = -1;
  for (int i = last - 1; i >= 0; --i) {
    if (view.shape[i] == 1) continue;
    if (inner < 0) {
      result.stride = view.strides[i];
    } else {
      std::int64_t span = 0;
      const bool wide = __builtin_mul_overflow(view.shape[inner], view.strides[inner], &span);
      require(!wide && view.strides[i] == span, op_, ": ", name, " of shape ", Shape{view},
              " has stride ", view.strides[i], " in dimension ", i, "; evenly spaced rows need ",
              span);
    }
    inner = i;
  }
  if (access == Access::write && result.rows > 1)
    require(result.stride >= result.cols, op_, ": ", name, " is written, yet its rows of ",
            result.cols, " elements overlap at row stride ", result.stride);
  return result;
}

Matrix Checker::matrix_like(std::string_view name, const TensorView& view, Access access,
                            std::string_view other_name, const TensorView& other) const {
  const Matrix result = matrix(name, view, access);
  same_shape(name, view, other_name, other);
  return result;
}

void Checker::same_shape(std::string_view name, const TensorView& view, std::string_view other_name,
                         const TensorView& other) const {
  require(view.rank == other.rank &&
              std::equal(view.shape.begin(), view.shape.begin() + view.rank, other.shape.begin()),
          op_, ": ", name, " has shape ", Shape{view}, "; ", other_name, " has ", Shape{other});
}

TensorView Checker::merged(std::string_view name, const TensorView& view, std::int64_t dims) const {
  if (!view.given() || dims == 1) return view;
  inside_storage(name, view);
  require(dims >= 1 && dims <= view.rank, op_, ": hidden_dims is ", dims, "; ", name, " has ",
          view.rank, " dimensions");
  const int first = view.rank - static_cast<int>(dims);
  TensorView result = view;
  result.rank = first + 1;
  result.strides[first] = 1;
  std::int64_t expected = 1;
  for (int i = view.rank - 1; i >= first; --i) {
    require(view.strides[i] == expected || view.shape[i] == 1 || empty(view), op_, ": ", name,
            " has stride ", view.strides[i], " in dimension ", i, "; adjacent elements need ",
            expected);
    require(
        !__builtin_mul_overflow(expected, view.shape[i], &expected) && expected <= kMostElements,
        op_, ": ", name, " of shape ", Shape{view}, " has more than 2^48 elements");
  }
  result.shape[first] = expected;
  return result;
}

Matrix Checker::vector(std::string_view name, const TensorView& view, std::int64_t count,
                       std::string_view unit) const {
  if (!view.given()) return {};
  inside_storage(name, view);
  const std::int64_t elements = count_of(name, view, view.rank);
  require(elements == count, op_, ": ", name, " has ", elements, " elements; x has ", count, " ",
          unit);
  std::int64_t expected = 1;
  for (int i = view.rank - 1; i >= 0 && !empty(view); --i) {
    if (view.shape[i] == 1) continue;
    require(view.strides[i] == expected, op_, ": ", name, " has stride ", view.strides[i],
            " in dimension ", i, "; adjacent elements need ", expected);
    expected *= view.shape[i];
  }
  return {static_cast<std::byte*>(view.data), 1, count, count};
}

void Checker::no_overlap(std::initializer_list<Named> outputs,
                         std::initializer_list<Named> inputs) const {
  const auto refuse = [&](const Named& a, const Named& b) {
    throw InvalidArgument(text(op_, ": ", a.name, " overlaps ", b.name));
  };
  for (const Named* output = outputs.begin(); output != outputs.end(); ++output) {
    if (!output->view.given()) continue;
    for (const Named* other = outputs.begin(); other != output; ++other)
      if (other->view.given() && overlap(*output, *other)) refuse(*output, *other);
    for (const Named& input : inputs) {
      if (!input.view.given() || !overlap(*output, input)) continue;
      const bool allowed = std::find(output->may_be.begin(), output->may_be.end(), input.name) !=
                           output->may_be.end();
      if (!(allowed && same(*output, input))) refuse(*output, input);
    }
  }
}

double Checker::finite(std::string_view name, double value, DType real) const {
  require(std::isfinite(value), op_, ": ", name, " is ", value, "; a finite number is needed");
  if (real == DType::f64) return value;
  require(std::abs(value) <= std::numeric_limits<float>::max(), op_, ": ", name, " is ", value,
          "; a number within float's range is needed");
  return value;
}

}  // namespace isobit
