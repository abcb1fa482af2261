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
constexpr std::int64_t kSpread = 3;  // elements from one to the next

// Each byte but the first is compared with the one before it.
bool poisoned(const std::byte* begin, const std::byte* end) {
  return begin == end ||
         (*begin == kPoison &&
          std::memcmp(begin, begin + 1, static_cast<std::size_t>(end - begin - 1)) == 0);
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

std::int64_t Form::lines() const {
  std::int64_t count = 1;
  for (std::size_t i = 0; i + 1 < extents.size(); ++i) count *= extents[i];
  return count;
}

std::vector<std::int64_t> strides_of(const Form& form, Layout layout, std::int64_t line_stride) {
  const std::size_t rank = form.extents.size();
  std::vector<std::int64_t> strides(rank);
  std::int64_t step = layout == Layout::spread ? kSpread : 1;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::size_t dim = layout == Layout::reversed ? i : rank - 1 - i;
    if (rank >= 2 && dim == rank - 2) step = std::max(step, line_stride);  // else lines overlap
    strides[dim] = step;
    step *= std::max<std::int64_t>(form.extents[dim], 1);
    if (layout == Layout::spread) step += kSpread;
  }
  return strides;
}

Array::Array(Form form, std::vector<std::int64_t> strides, std::int64_t offset,
             const ParallelFor& parallel_for)
    : form_(std::move(form)),
      strides_(std::move(strides)),
      storage_bytes_(2 * kGuard + used_bytes() +
                     static_cast<std::size_t>(offset * size_of(form_.dtype))),
      storage_(allocate(storage_bytes_), std::free),
      first_(storage_.get() + kGuard + offset * size_of(form_.dtype)) {
  fill_poison(parallel_for, storage_.get(), static_cast<std::int64_t>(storage_bytes_));
}

std::size_t Array::used_bytes() const {
  if (form_.elements() == 0) return 0;
  std::int64_t last = 0;
  for (std::size_t i = 0; i < strides_.size(); ++i) last += (form_.extents[i] - 1) * strides_[i];
  return static_cast<std::size_t>((last + 1) * size_of(form_.dtype));
}

bool Array::has_gaps() const {
  return static_cast<std::size_t>(form_.elements() * size_of(form_.dtype)) != used_bytes();
}

std::byte* Array::line(std::int64_t line) const {
  if (line == 0) return first_;  // also where there is none
  std::int64_t at = 0;
  for (std::size_t i = form_.extents.size() - 1; i-- > 0;) {
    at += line % form_.extents[i] * strides_[i];
    line /= form_.extents[i];
  }
  return first_ + at * size_of(form_.dtype);
}

TensorView Array::view() const {
  TensorView view{first_, static_cast<std::int64_t>(used_bytes()), form_.dtype,
                  static_cast<int>(form_.extents.size())};
  std::ranges::copy(form_.extents, view.shape.begin());
  std::ranges::copy(strides_, view.strides.begin());
  return view;
}

template <class Real>
void Array::load(std::int64_t at, std::int64_t first, std::span<Real> values) const {
  visit_any(form_.dtype, [&]<class T>(Type<T>) {
    const T* from = reinterpret_cast<const T*>(line(at)) + first * step();
    for (Real& value : values) {
      value = to_real<Real>(*from);
      from += step();
    }
  });
}
template void Array::load(std::int64_t, std::int64_t, std::span<double>) const;
template void Array::load(std::int64_t, std::int64_t, std::span<quad>) const;

void Array::store(std::int64_t at, std::int64_t first, std::span<const double> values) const {
  visit_any(form_.dtype, [&]<class T>(Type<T>) {
    T* to = reinterpret_cast<T*>(line(at)) + first * step();
    for (double value : values) {
      *to = from_double<T>(value);
      to += step();
    }
  });
}

std::vector<std::byte> Array::packed(std::int64_t first_line, std::int64_t lines) const {
  const std::int64_t size = size_of(form_.dtype), length = form_.line_length() * size;
  const std::int64_t piece = step() == 1 ? length : size;  // adjacent elements
  std::vector<std::byte> bytes(static_cast<std::size_t>(lines * length));
  for (std::int64_t at = 0; at < lines; ++at) {
    const std::byte* const from = line(first_line + at);
    for (std::int64_t i = 0; i < length; i += piece)
      std::memcpy(bytes.data() + at * length + i, from + i * step(),
                  static_cast<std::size_t>(piece));
  }
  return bytes;
}

void Array::unpack(std::span<const std::byte> bytes, std::int64_t first_line) const {
  const std::int64_t size = size_of(form_.dtype), length = form_.line_length() * size;
  const std::int64_t piece = step() == 1 ? length : size;
  const std::int64_t lines = length == 0 ? 0 : std::ssize(bytes) / length;
  for (std::int64_t at = 0; at < lines; ++at) {
    std::byte* const to = line(first_line + at);
    for (std::int64_t i = 0; i < length; i += piece)
      std::memcpy(to + i * step(), bytes.data() + at * length + i, static_cast<std::size_t>(piece));
  }
}

void Array::poison(const ParallelFor& parallel_for) const {
  fill_poison(parallel_for, first_, static_cast<std::int64_t>(used_bytes()));
}

bool Array::surroundings_intact() const {
  const std::byte* const end = storage_.get() + storage_bytes_;
  if (!poisoned(storage_.get(), first_) || !poisoned(first_ + used_bytes(), end)) return false;
  if (!has_gaps()) return true;
  const std::int64_t size = size_of(form_.dtype), length = form_.line_length();
  const std::int64_t piece = step() == 1 ? length : 1;  // adjacent elements
  std::vector<std::byte> rest(first_, first_ + used_bytes());
  for (std::int64_t at = 0; at < form_.lines(); ++at) {
    std::byte* const here = rest.data() + (line(at) - first_);
    for (std::int64_t i = 0; i < length; i += piece)
      std::memset(here + i * step() * size, std::to_integer<int>(kPoison),
                  static_cast<std::size_t>(piece * size));
  }
  return poisoned(rest.data(), rest.data() + rest.size());
}

std::uint64_t Array::storage_hash() const { return XXH3_64bits(storage_.get(), storage_bytes_); }

BitHash::BitHash()
    : state_(XXH3_createState(), [](void* s) { XXH3_freeState(static_cast<XXH3_state_t*>(s)); }) {
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void BitHash::add(const Array& array) {
  if (array.step() != 1) {  // element by element it would take longest
    const std::vector<std::byte> packed = array.packed();
    XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), packed.data(), packed.size());
    return;
  }
  for (std::int64_t line = 0; line < array.form().lines(); ++line)
    add(array, line, 0, array.form().line_length());
}

void BitHash::add(const Array& array, std::int64_t line, std::int64_t first, std::int64_t count) {
  const std::int64_t size = size_of(array.form().dtype), step = array.step();
  const std::byte* from = array.line(line) + first * step * size;
  const std::int64_t pieces = step == 1 ? 1 : count;
  for (std::int64_t i = 0; i < pieces; ++i)
    XXH3_64bits_update(static_cast<XXH3_state_t*>(state_.get()), from + i * step * size,
                       static_cast<std::size_t>((step == 1 ? count : 1) * size));
}

std::string BitHash::hex() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_.get())));
}

std::string bits(const Array& array) {
  BitHash all;
  all.add(array);
  return all.hex();
}

}  // namespace isobit::lab
