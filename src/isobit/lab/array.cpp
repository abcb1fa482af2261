// SPDX-License-Identifier: Apache-2.0
// Guarded storage, and its conversions to and from the types that references compute in.
#include "isobit/lab/array.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace isobit::lab {
namespace {

constexpr std::size_t kGuard = 256;  // bytes on either side, more than any vector is wide
constexpr std::size_t kAlignment = 64;
constexpr std::byte kPoison{0xff};  // a NaN in every floating type, and never the canonical one
constexpr std::int64_t kPiece = 4 << 20;

bool poisoned(const std::byte* begin, const std::byte* end) {
  return std::all_of(begin, end, [](std::byte byte) { return byte == kPoison; });
}

void fill_poison(const ParallelFor& parallel_for, std::byte* begin, std::int64_t bytes) {
  parallel_for((bytes + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    const std::int64_t at = piece * kPiece;
    std::memset(begin + at, std::to_integer<int>(kPoison),
                static_cast<std::size_t>(std::min(kPiece, bytes - at)));
  });
}

std::byte* allocate(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

// By way of float for the 16-bit types: what is drawn is rounded twice, and no bit of it matters.
template <class T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return from_float<T>(static_cast<float>(value));
  else
    return static_cast<T>(value);
}

template <class Real, class T>
Real to_real(T value) {
  if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return to_float(value);
  else
    return static_cast<Real>(value);
}

}  // namespace

Array::Array(Form form, std::int64_t stride, std::int64_t offset, const ParallelFor& parallel_for)
    : form_(form),
      stride_(stride),
      storage_bytes_(2 * kGuard + used_bytes() +
                     static_cast<std::size_t>(offset * size_of(form.dtype))),
      storage_(allocate(storage_bytes_), std::free),
      first_(storage_.get() + kGuard + offset * size_of(form.dtype)) {
  fill_poison(parallel_for, storage_.get(), static_cast<std::int64_t>(storage_bytes_));
}

std::size_t Array::used_bytes() const {
  if (form_.elements() == 0) return 0;
  return static_cast<std::size_t>(((form_.rows - 1) * stride_ + form_.cols) * size_of(form_.dtype));
}

TensorView Array::view(Extent extent) const {
  const auto bytes = static_cast<std::int64_t>(used_bytes());
  if (extent == Extent::matrix)
    return matrix_view(first_, bytes, form_.dtype, form_.rows, form_.cols, stride_);
  return vector_view(first_, bytes, form_.dtype, form_.elements());
}

template <class Real>
void Array::load(std::int64_t at, std::int64_t first_col, std::span<Real> values) const {
  visit(form_.dtype, [&]<class T>(Type<T>) {
    const T* from = reinterpret_cast<const T*>(row(at)) + first_col;
    for (Real& value : values) value = to_real<Real>(*from++);
  });
}
template void Array::load(std::int64_t, std::int64_t, std::span<double>) const;
template void Array::load(std::int64_t, std::int64_t, std::span<quad>) const;

void Array::store(std::int64_t at, std::int64_t first_col, std::span<const double> values) const {
  visit(form_.dtype, [&]<class T>(Type<T>) {
    T* to = reinterpret_cast<T*>(row(at)) + first_col;
    for (double value : values) *to++ = from_double<T>(value);
  });
}

void Array::poison(const ParallelFor& parallel_for) const {
  fill_poison(parallel_for, first_, static_cast<std::int64_t>(used_bytes()));
}

bool Array::surroundings_intact() const {
  const std::byte* const end = storage_.get() + storage_bytes_;
  if (!poisoned(storage_.get(), first_) || !poisoned(first_ + used_bytes(), end)) return false;
  if (stride_ == form_.cols) return true;
  for (std::int64_t r = 0; r + 1 < form_.rows; ++r)
    if (!poisoned(row(r) + form_.cols * size_of(form_.dtype), row(r + 1))) return false;
  return true;
}

std::uint64_t Array::storage_hash() const { return XXH3_64bits(storage_.get(), storage_bytes_); }

Bits::Bits()
    : state_(XXH3_createState(), [](void* s) { XXH3_freeState(static_cast<XXH3_state_t*>(s)); }) {
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void Bits::add(const Array& array) {
  for (std::int64_t row = 0; row < array.form().rows; ++row) add(array, row, 0, array.form().cols);
}

void Bits::add(const Array& array, std::int64_t row, std::int64_t first_col, std::int64_t cols) {
  const std::int64_t size = size_of(array.form().dtype);
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), array.row(row) + first_col * size,
                     static_cast<std::size_t>(cols * size));
}

std::string Bits::hex() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_.get())));
}

std::string bits(const Array& array) {
  Bits all;
  all.add(array);
  return all.hex();
}

}  // namespace isobit::lab
