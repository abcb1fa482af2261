// SPDX-License-Identifier: Apache-2.0
// The rules of check.h, with arithmetic that cannot wrap.
#include "isobit/core/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <string>

#include "isobit/core/error.h"

namespace isobit {
namespace {

// More than any machine can address, and so few that sizes and workspaces computed from rows and
// columns cannot wrap: a stride of 0 makes rows that no storage bounds.
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

// What becomes text only in a message: a call that keeps the rules allocates nothing.
struct Tuple {
  const std::array<std::int64_t, kMaxRank>& values;
  int rank;

  friend std::ostream& operator<<(std::ostream& out, const Tuple& tuple) {
    out << '(';
    for (int i = 0; i < tuple.rank; ++i) out << (i ? ", " : "") << tuple.values[i];
    return out << ')';
  }
};
Tuple shape_of(const TensorView& view) { return {view.shape, view.rank}; }
Tuple strides_of(const TensorView& view) { return {view.strides, view.rank}; }

struct TypeText {
  DType dtype;

  friend std::ostream& operator<<(std::ostream& out, const TypeText& type) {
    out << name_of(type.dtype);
    return size_of(type.dtype) > 0 ? out : out << " (" << static_cast<int>(type.dtype) << ')';
  }
};

std::int64_t product(const TensorView& view, int first, int end) {
  std::int64_t count = 1;
  for (int i = first; i < end; ++i) count *= view.shape[i];
  return count;
}

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

// The bytes from the start of b to that of a.
std::int64_t distance_of(const Matrix& a, const Matrix& b) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(a.data) -
                                   reinterpret_cast<std::uintptr_t>(b.data));
}

// Columns of one buffer side by side: equal row pitch, and the rows of one fall into the gaps of
// the other.
bool interleaved(const Matrix& a, std::int64_t a_size, const Matrix& b, std::int64_t b_size) {
  const std::int64_t pitch = a.stride * a_size;
  if (pitch != b.stride * b_size || pitch <= 0) return false;
  const std::int64_t offset = (distance_of(b, a) % pitch + pitch) % pitch;
  return offset >= a.cols * a_size && offset + b.cols * b_size <= pitch;
}

bool overlap(const Checker::Named& a, const Checker::Named& b) {
  const std::int64_t a_size = size_of(a.view.dtype), b_size = size_of(b.view.dtype);
  const Range p = range_of(a.matrix, a_size), q = range_of(b.matrix, b_size);
  if (p.begin == p.end || q.begin == q.end || p.end <= q.begin || q.end <= p.begin) return false;
  return !interleaved(a.matrix, a_size, b.matrix, b_size);
}

// Of an array that lies in the way of another.
struct Rows {
  const Checker::Named& array;

  friend std::ostream& operator<<(std::ostream& out, const Rows& rows) {
    const Matrix& matrix = rows.array.matrix;
    return out << matrix.rows << " rows of " << matrix.cols << ' '
               << TypeText{rows.array.view.dtype} << " at stride " << matrix.stride;
  }
};

bool same(const Checker::Named& a, const Checker::Named& b) {
  return a.matrix.data == b.matrix.data && a.view.dtype == b.view.dtype &&
         (a.matrix.stride == b.matrix.stride || a.matrix.rows <= 1);
}

}  // namespace

std::string shape_and_strides(const TensorView& view) {
  return text("of shape ", shape_of(view), " and strides ", strides_of(view));
}

void Checker::dtype(std::string_view name, const TensorView& view,
                    std::span<const DType> allowed) const {
  if (std::find(allowed.begin(), allowed.end(), view.dtype) != allowed.end()) return;
  std::string list;
  for (auto one = allowed.begin(); one != allowed.end(); ++one)
    if (std::find(allowed.begin(), one, *one) == one)
      list += (list.empty() ? "" : ", ") + std::string(name_of(*one));
  throw InvalidArgument(
      text(op_, ": ", name, " has dtype ", TypeText{view.dtype}, "; allowed: ", list));
}

void Checker::same_dtype(std::string_view name, const TensorView& view, std::string_view other_name,
                         DType other) const {
  require(view.dtype == other, op_, ": ", name, " has dtype ", TypeText{view.dtype}, "; ",
          other_name, " has ", TypeText{other});
}

void Checker::inside_storage(std::string_view name, const TensorView& view) const {
  require(view.rank <= kMaxRank && view.rank > 0, op_, ": ", name, " has ", view.rank,
          " dimensions; allowed: 1 to ", kMaxRank);
  const std::int64_t size = size_of(view.dtype);
  require(size > 0, op_, ": ", name, " has dtype ", TypeText{view.dtype});
  require(view.bytes >= 0, op_, ": ", name, " has a storage of ", view.bytes, " bytes");
  for (int i = 0; i < view.rank; ++i)
    require(view.shape[i] >= 0, op_, ": ", name, " has a negative extent in shape ",
            shape_of(view));
  if (empty(view)) return;

  std::int64_t last = 0;  // the largest offset, in elements
  bool fits = true;
  for (int i = 0; i < view.rank; ++i) {
    require(view.strides[i] >= 0 || view.shape[i] == 1, op_, ": ", name, " has negative stride ",
            view.strides[i], " in dimension ", i);
    if (view.shape[i] == 1) continue;
    std::int64_t reach = 0;
    fits &= !__builtin_mul_overflow(view.shape[i] - 1, view.strides[i], &reach);
    fits &= !__builtin_add_overflow(last, reach, &last);
  }
  std::int64_t needed = 0;
  fits &= !__builtin_add_overflow(last, std::int64_t{1}, &needed);
  fits &= !__builtin_mul_overflow(needed, size, &needed);
  require(fits, op_, ": ", name, " of shape ", shape_of(view), " and strides ", strides_of(view),
          " reaches beyond 2^63 bytes");
  require(needed <= view.bytes, op_, ": ", name, " of shape ", shape_of(view), " and strides ",
          strides_of(view), " needs ", needed, " bytes; its storage has ", view.bytes);
  require(view.data != nullptr, op_, ": ", name, " is null");
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  require(address % static_cast<std::uintptr_t>(size) == 0, op_, ": ", name, " starts ",
          address % static_cast<std::uintptr_t>(size),
          " bytes past a multiple of its element size ", size);
  require(address <=
              std::numeric_limits<std::uintptr_t>::max() - static_cast<std::uintptr_t>(view.bytes),
          op_, ": ", name, " has a storage of ", view.bytes, " bytes at ", view.data,
          " that wraps around the address space");
}

void Checker::few(std::string_view name, const TensorView& view) const {
  std::int64_t count = 1;
  for (int i = 0; i < view.rank; ++i) {
    if (view.shape[i] == 0) continue;
    if (!__builtin_mul_overflow(count, view.shape[i], &count) && count <= kMostElements) continue;
    throw InvalidArgument(text(op_, ": ", name, " of shape ", shape_of(view),
                               empty(view) ? " has non-zero extents whose product exceeds 2^48"
                                           : " has more than 2^48 elements"));
  }
}

Matrix Checker::matrix(std::string_view name, const TensorView& view, Access access) const {
  require(view.given(), op_, ": ", name, " is missing");
  inside_storage(name, view);
  const int last = view.rank - 1;
  Matrix result;
  result.data = static_cast<std::byte*>(view.data);
  result.cols = view.shape[last];
  few(name, view);
  result.rows = product(view, 0, last);
  result.stride = result.cols;
  if (empty(view)) return result;
  require(view.strides[last] == 1 || result.cols == 1, op_, ": ", name, " has stride ",
          view.strides[last], " in its last dimension; must be 1");

  // Leading dimensions collapse when each outer stride spans the inner dimension exactly.
  int inner = -1;
  for (int i = last - 1; i >= 0; --i) {
    if (view.shape[i] == 1) continue;
    if (inner < 0) {
      result.stride = view.strides[i];
    } else {
      std::int64_t span = 0;
      const bool wide = __builtin_mul_overflow(view.shape[inner], view.strides[inner], &span);
      require(!wide && view.strides[i] == span, op_, ": ", name, " of shape ", shape_of(view),
              " has stride ", view.strides[i], " in dimension ", i, "; must be ", span,
              " for evenly spaced rows");
    }
    inner = i;
  }
  if (access == Access::write && result.rows > 1)
    require(result.stride >= result.cols, op_, ": ", name, " is an output, but its rows of ",
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
          op_, ": ", name, " has shape ", shape_of(view), "; ", other_name, " has ",
          shape_of(other));
}

TensorView Checker::merged(std::string_view name, const TensorView& view, std::int64_t dims) const {
  if (!view.given() || dims == 1) return view;
  inside_storage(name, view);
  require(dims >= 1 && dims <= view.rank, op_, ": hidden_dims is ", dims, "; ", name, " has ",
          view.rank, " dimensions");
  few(name, view);
  const int first = view.rank - static_cast<int>(dims);
  TensorView result = view;
  result.rank = first + 1;
  result.strides[first] = 1;
  std::int64_t expected = 1;
  for (int i = view.rank - 1; i >= first; --i) {
    require(view.strides[i] == expected || view.shape[i] == 1 || empty(view), op_, ": ", name,
            " has stride ", view.strides[i], " in dimension ", i, "; must be ", expected,
            " for contiguous elements");
    expected *= view.shape[i];
  }
  result.shape[first] = expected;
  return result;
}

void Checker::any_strides(std::string_view name, const TensorView& view, Access access) const {
  require(view.given(), op_, ": ", name, " is missing");
  inside_storage(name, view);
  few(name, view);
  if (access == Access::read || empty(view)) return;
  std::int64_t spanned = 1;  // elements from the first to the last of the dimensions so far
  std::uint32_t seen = 0;
  for (int turn = 0; turn < view.rank; ++turn) {
    int dim = -1;  // of those that are left the one with the smallest stride
    for (int i = 0; i < view.rank; ++i)
      if ((seen >> i & 1) == 0 && (dim < 0 || view.strides[i] < view.strides[dim])) dim = i;
    seen |= 1u << dim;
    if (view.shape[dim] == 1) continue;
    require(view.strides[dim] >= spanned, op_, ": ", name, " of shape ", shape_of(view),
            " is an output, but its elements overlap: stride ", view.strides[dim], " in dimension ",
            dim, "; must be at least ", spanned);
    spanned += (view.shape[dim] - 1) * view.strides[dim];
  }
}

Matrix Checker::span(const TensorView& view) {
  std::int64_t elements = empty(view) ? 0 : 1;
  for (int i = 0; i < view.rank && elements > 0; ++i)
    elements += (view.shape[i] - 1) * view.strides[i];
  return {static_cast<std::byte*>(view.data), 1, elements, elements};
}

Matrix Checker::rows_around(const TensorView& view) {
  Matrix result = span(view);
  if (!view.given() || result.cols == 0) return result;
  std::uint32_t left = 0;  // dimensions that no row has taken
  for (int i = 0; i < view.rank; ++i)
    if (view.shape[i] > 1) left |= 1u << i;
  for (std::int64_t pitch = 0;;) {
    int outer = -1;
    for (int i = 0; i < view.rank; ++i)
      if ((left >> i & 1) != 0 && (outer < 0 || view.strides[i] > view.strides[outer])) outer = i;
    // The innermost dimension, and what repeats elements, stay in the row.
    const bool last = outer < 0 || (left & (left - 1)) == 0 || view.strides[outer] == 0;
    if (last || (pitch != 0 && pitch != view.shape[outer] * view.strides[outer])) return result;
    left &= ~(1u << outer);
    pitch = view.strides[outer];
    result.rows *= view.shape[outer];
    result.cols -= (view.shape[outer] - 1) * pitch;
    result.stride = pitch;
  }
}

Matrix Checker::vector(std::string_view name, const TensorView& view, std::int64_t count,
                       std::string_view unit, std::string_view other_name) const {
  if (!view.given()) return {};
  inside_storage(name, view);
  few(name, view);
  const std::int64_t elements = product(view, 0, view.rank);
  require(elements == count, op_, ": ", name, " has ", elements, " elements; ", other_name, " has ",
          count, " ", unit);
  std::int64_t expected = 1;
  for (int i = view.rank - 1; i >= 0 && !empty(view); --i) {
    if (view.shape[i] == 1) continue;
    require(view.strides[i] == expected, op_, ": ", name, " has stride ", view.strides[i],
            " in dimension ", i, "; must be ", expected, " for contiguous elements");
    expected *= view.shape[i];
  }
  return {static_cast<std::byte*>(view.data), 1, count, count};
}

void Checker::no_overlap(std::initializer_list<Named> outputs,
                         std::initializer_list<Named> inputs) const {
  const auto refuse = [&](const Named& a, const Named& b) {
    const std::int64_t distance = distance_of(a.matrix, b.matrix);
    throw InvalidArgument(text(op_, ": ", a.name, " overlaps ", b.name, ": it starts ",
                               std::abs(distance), " bytes ", distance < 0 ? "before " : "after ",
                               b.name, ", with ", Rows{a}, "; ", b.name, " has ", Rows{b}));
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
  require(std::isfinite(value), op_, ": ", name, " is ", value, "; must be finite");
  if (real == DType::f64) return value;
  require(std::abs(value) <= std::numeric_limits<float>::max(), op_, ": ", name, " is ", value,
          "; must be within the range of float");
  return value;
}

}  // namespace isobit
