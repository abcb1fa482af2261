// SPDX-License-Identifier: Apache-2.0
// Copies by the C library and by non-temporal stores, and sums of whole numbers, each thread its
// own slice.
#include "isobit/lab/memory_roof.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/lab/families.h"
#include "isobit/simd/parallel_for.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace isobit::lab {
namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kAhead = 2048;
constexpr std::int64_t kAlone = 4 << 20;  // fewer bytes one thread may copy sooner than two

volatile std::uint64_t swept;  // so that nothing that is read is left out

void copy_streaming(std::byte* to, const std::byte* from, std::int64_t bytes) {
#if defined(__x86_64__)
  std::int64_t at = 0;
  for (; at + kLine <= bytes; at += kLine)
    for (std::int64_t part = at; part < at + kLine; part += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + part),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + part)));
  std::memcpy(to + at, from + at, static_cast<std::size_t>(bytes - at));
  _mm_sfence();
#else
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
#endif
}

// Of four parts side by side, for one alone is fetched more slowly; of their lines compilers make
// vectors. Fetched ahead, across the pages at which processors' own fetching ends.
std::uint64_t sum_of_words(const std::byte* from, std::int64_t bytes) {
  constexpr int kParts = 4, kWords = kLine / 8;
  const std::int64_t part = bytes / kParts / kLine * kLine;
  std::uint64_t sums[kWords] = {};
  const auto add = [&](const std::byte* line) {
    std::uint64_t words[kWords];
    std::memcpy(words, line, kLine);
    __builtin_prefetch(line + kAhead);
    for (int i = 0; i < kWords; ++i) sums[i] += words[i];
  };
  for (std::int64_t at = 0; at < part; at += kLine)
    for (int i = 0; i < kParts; ++i) add(from + i * part + at);
  for (std::int64_t at = kParts * part; at + kLine <= bytes; at += kLine) add(from + at);
  return std::accumulate(std::begin(sums), std::end(sums), std::uint64_t{0});
}

Form floats(std::int64_t bytes) { return {DType::f32, {(bytes + 3) / 4}}; }

// A thread's part, which starts on a line of the cache.
struct Slice {
  Slice(std::int64_t all, std::int64_t slice, std::int64_t slices)
      : begin(all / kLine * slice / slices * kLine),
        bytes((slice + 1 == slices ? all : all / kLine * (slice + 1) / slices * kLine) - begin) {}

  std::int64_t begin, bytes;
};

template <class CopySlice>
void in_slices(const Array& to, const Array& from, std::int64_t bytes, int threads,
               CopySlice copy) {
  simd::threads()(threads, [&](std::int64_t slice) {
    const Slice part(bytes, slice, threads);
    copy(to.line(0) + part.begin, from.line(0) + part.begin, part.bytes);
  });
}

}  // namespace

Copy::Copy(double bytes)
    : half_(std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / 2))),
      from_(floats(half_), {1}, 0, simd::threads()),
      to_(floats(half_), {1}, 0, simd::threads()) {
  const Draw draw("randn", 0, "x", Drawn::family, DType::f32);
  constexpr std::int64_t kPiece = 1 << 16;
  const std::int64_t elements = from_.form().elements();
  simd::threads()((elements + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    std::vector<double> values(
        static_cast<std::size_t>(std::min(kPiece, elements - piece * kPiece)));
    draw.line(piece, values);
    from_.store(0, piece * kPiece, values);
  });
}

void Copy::plain(int threads) const {
  in_slices(to_, from_, half_, threads,
            [](std::byte* to, const std::byte* from, std::int64_t bytes) {
              std::memcpy(to, from, static_cast<std::size_t>(bytes));
            });
}

void Copy::streaming(int threads) const { in_slices(to_, from_, half_, threads, copy_streaming); }

std::vector<TimedCall> Copy::timed_calls(int threads) const {
  std::vector<TimedCall> timed_calls = {{[this, threads] { plain(threads); }},
                                        {[this, threads] { streaming(threads); }}};
  if (threads > 1 && half_ < kAlone) timed_calls.push_back({[this] { plain(1); }});
  return timed_calls;
}

Sweep::Sweep(std::vector<std::span<const std::byte>> arrays) : arrays_(std::move(arrays)) {}

double Sweep::bytes() const {
  double bytes = 0;
  for (const auto& array : arrays_) bytes += static_cast<double>(array.size());
  return bytes;
}

void Sweep::sum(int threads) const {
  std::atomic<std::uint64_t> sum = 0;
  simd::threads()(threads, [&](std::int64_t slice) {
    for (const auto& array : arrays_) {
      const Slice part(static_cast<std::int64_t>(array.size()), slice, threads);
      sum += sum_of_words(array.data() + part.begin, part.bytes);
    }
  });
  swept = sum;
}

std::vector<TimedCall> Sweep::timed_calls(int threads) const {
  std::vector<TimedCall> timed_calls = {{[this, threads] { sum(threads); }}};
  if (threads > 1 && bytes() < 2 * kAlone) timed_calls.push_back({[this] { sum(1); }});
  return timed_calls;
}

DeviceCopy::DeviceCopy(double bytes, const DeviceLibrary& library)
    : memory_(library.memory),
      half_(std::max<std::size_t>(1, static_cast<std::size_t>(bytes / 2))),
      from_(memory_.allocate(nullptr, half_)),
      to_(memory_.allocate(nullptr, half_)) {
  if (from_ == nullptr || to_ == nullptr)
    throw DeviceError(text("cannot allocate ", 2 * half_, " bytes of device memory for a copy"));
}

DeviceCopy::~DeviceCopy() {
  memory_.release(nullptr, from_, half_);
  memory_.release(nullptr, to_, half_);
}

TimedCall DeviceCopy::timed_call() const {
  return {[this] { memory_.copy(nullptr, to_, from_, half_); },
          [this] { memory_.synchronize(nullptr); }};
}

}  // namespace isobit::lab
