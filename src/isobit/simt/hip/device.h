// SPDX-License-Identifier: Apache-2.0
// What a kernel may call, in HIP, by clang's own names for AMD's instructions. host/device.h says
// what the names mean.
//
// A warp is 32 lanes here too. Where the hardware's wave has 64, two warps share one: they diverge
// like lanes, and what lanes exchange stays in their half.
#pragma once

#include <climits>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "isobit/core/dtype.h"
#include "isobit/simt/launch_shape.h"

#define ISOBIT_DEVICE ISOBIT_INLINE_HOST __device__
#define ISOBIT_DEVICE_NOINLINE __device__ __noinline__
#define ISOBIT_EITHER ISOBIT_INLINE

// The one function of AMD's device libraries that clang's <cmath> needs for kernels. It is all of
// them that is linked: they come for few GPUs, and for none of the latest.
extern "C" ISOBIT_DEVICE int __ocml_ilogb_f32(float value) {
  if (value == 0) return FP_ILOGB0;
  return __builtin_isfinite(value) ? __builtin_amdgcn_frexp_expf(value) - 1
         : __builtin_isinf(value)  ? INT_MAX
                                   : FP_ILOGBNAN;
}
extern "C" ISOBIT_DEVICE int __ocml_ilogb_f64(double value) {
  if (value == 0) return FP_ILOGB0;
  return __builtin_isfinite(value) ? __builtin_amdgcn_frexp_exp(value) - 1
         : __builtin_isinf(value)  ? INT_MAX
                                   : FP_ILOGBNAN;
}

namespace isobit::simt {

using Arrival = std::uint64_t;

ISOBIT_DEVICE int thread() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
ISOBIT_DEVICE int threads() { return static_cast<int>(__builtin_amdgcn_workgroup_size_x()); }
ISOBIT_DEVICE int lane() { return thread() % kWarpThreads; }
ISOBIT_DEVICE std::int64_t block() { return __builtin_amdgcn_workgroup_id_x(); }
// The hardware counts threads, of which every block has as many.
ISOBIT_DEVICE std::int64_t blocks() {
  return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
}

namespace detail {

// Where this thread stands in its wave, and where its warp begins there.
ISOBIT_DEVICE int lane_of_wave() { return thread() % __builtin_amdgcn_wavefrontsize(); }
ISOBIT_DEVICE int warp_of_wave() { return lane_of_wave() / kWarpThreads * kWarpThreads; }

// `from` counts from the first lane of the wave.
template <class T>
ISOBIT_DEVICE T shuffled(T value, int from) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  int words[2] = {};
  __builtin_memcpy(words, &value, sizeof value);
  words[0] = __builtin_amdgcn_ds_bpermute(4 * from, words[0]);
  if constexpr (sizeof(T) > 4) words[1] = __builtin_amdgcn_ds_bpermute(4 * from, words[1]);
  __builtin_memcpy(&value, words, sizeof value);
  return value;
}

}  // namespace detail

ISOBIT_DEVICE void sync_block() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
ISOBIT_DEVICE bool any_in_block(bool predicate) {
  __shared__ int any;
  sync_block();  // nobody reads what an earlier call found
  if (thread() == 0) any = 0;
  sync_block();
  if (predicate) any = 1;
  sync_block();
  return any != 0;
}
// Lanes of a wave go together; what they wrote must be seen.
ISOBIT_DEVICE void sync_warp(unsigned = kAllLanes) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

template <class T>
ISOBIT_DEVICE T shuffle(T value, int from, unsigned = kAllLanes) {
  return detail::shuffled(value, detail::warp_of_wave() + from % kWarpThreads);
}
template <class T>
ISOBIT_DEVICE T shuffle_xor(T value, int distance, unsigned = kAllLanes) {
  return detail::shuffled(value, detail::lane_of_wave() ^ distance);
}
ISOBIT_DEVICE unsigned ballot(bool predicate, unsigned lanes = kAllLanes) {
  const std::uint64_t wave = __builtin_amdgcn_ballot_w64(predicate);
  return static_cast<unsigned>(wave >> detail::warp_of_wave()) & lanes;
}

namespace detail {

// The built-in type that moves T in one instruction.
template <int kBytes>
struct Word;
template <>
struct Word<1> {
  using type = unsigned char;
};
template <>
struct Word<2> {
  using type = unsigned short;
};
template <>
struct Word<4> {
  using type = unsigned;
};
template <>
struct Word<8> {
  using type = unsigned __attribute__((ext_vector_type(2)));
};
template <>
struct Word<16> {
  using type = unsigned __attribute__((ext_vector_type(4)));
};
template <class T>
using WordOf = typename Word<sizeof(T)>::type;

// clang's numbers for the two memories; a pointer without one costs an address that tells them
// apart at run time.
template <class T>
using Global = __attribute__((address_space(1))) T;
template <class T>
using Local = __attribute__((address_space(3))) T;

template <class T>
ISOBIT_DEVICE const Global<WordOf<T>>* global(const T* address) {
  return (const Global<WordOf<T>>*)address;
}
template <class T>
ISOBIT_DEVICE Global<WordOf<T>>* global(T* address) {
  return (Global<WordOf<T>>*)address;
}

}  // namespace detail

template <class T>
ISOBIT_DEVICE T load(const T* from) {
  return __builtin_bit_cast(T, *detail::global(from));
}
template <class T>
ISOBIT_DEVICE T load_shared(const T* from) {
  using W = const detail::Local<detail::WordOf<T>>;
  return __builtin_bit_cast(T, *(W*)from);
}
template <class T>
ISOBIT_DEVICE void store_shared(T* to, const T& value) {
  using W = detail::WordOf<T>;
  *(detail::Local<W>*)to = __builtin_bit_cast(W, value);
}
template <class T>
ISOBIT_DEVICE T load_once(const T* from) {
  return __builtin_bit_cast(T, __builtin_nontemporal_load(detail::global(from)));
}
template <class T>
ISOBIT_DEVICE void store(T* to, std::type_identity_t<T> value) {
  *detail::global(to) = __builtin_bit_cast(detail::WordOf<T>, value);
}
template <class T>
ISOBIT_DEVICE void store_once(T* to, std::type_identity_t<T> value) {
  __builtin_nontemporal_store(__builtin_bit_cast(detail::WordOf<T>, value), detail::global(to));
}

ISOBIT_DEVICE unsigned load_acquire(const unsigned* from) {
  return __hip_atomic_load(detail::global(from), __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
}
ISOBIT_DEVICE void store_release(unsigned* to, unsigned value) {
  __hip_atomic_store(detail::global(to), value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}
ISOBIT_DEVICE unsigned add_acquire_release(unsigned* to, unsigned value) {
  return __hip_atomic_fetch_add(detail::global(to), value, __ATOMIC_ACQ_REL,
                                __HIP_MEMORY_SCOPE_AGENT);
}

ISOBIT_DEVICE void add_unordered(float* to, float value) {
  __hip_atomic_fetch_add(detail::global(to), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// The instruction wants a byte for each choice, and counts b's first.
ISOBIT_DEVICE unsigned pick_bytes(unsigned a, unsigned b, unsigned which) {
  const unsigned choices =
      (which & 0x7) | (which & 0x70) << 4 | (which & 0x700) << 8 | (which & 0x7000) << 12;
  return __builtin_amdgcn_perm(b, a, choices);
}

// core/dtype.h's; between float and f16 there are instructions.
struct Conversions {
  template <class Real, class T>
  ISOBIT_DEVICE static Real widen(T value) {
    return isobit::widen<Real>(value);
  }
  template <class Real>
  ISOBIT_DEVICE static Real widen(f16 value) {
    return static_cast<float>(__builtin_bit_cast(_Float16, value.bits));
  }
  template <class T, class Real>
  ISOBIT_DEVICE static T narrow(Real value) {
    if constexpr (!std::is_same_v<T, f16>) {
      return isobit::narrow<T>(value);
    } else {
      const auto single = static_cast<float>(value);
      if (single != single) return {kNanF16};
      return {__builtin_bit_cast(std::uint16_t, static_cast<_Float16>(single))};
    }
  }
};

// Copies to shared memory are made at once.
template <class Real, class T, int kCount>
ISOBIT_DEVICE void widen_all(const T (&from)[kCount], Real* to) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = Conversions::widen<Real>(from[i]);
}
template <class T, class Real, int kCount>
ISOBIT_DEVICE void narrow_all(const Real* from, T (&to)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = Conversions::narrow<T>(from[i]);
}

template <int kBytes>
ISOBIT_DEVICE void copy_async(void* to, const void* from, int given = kBytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  for (int i = 0; i < kBytes; ++i)
    static_cast<char*>(to)[i] = i < given ? static_cast<const char*>(from)[i] : 0;
}
ISOBIT_DEVICE void commit_copies() {}
template <int kStillOpen>
ISOBIT_DEVICE void wait_copies() {}

// No AMD GPU has clusters or bulk copies. A kernel that uses them is never launched: its variant
// sees a GPU below sm_90, and declines.
ISOBIT_DEVICE int cluster_rank() { __builtin_trap(); }
ISOBIT_DEVICE int cluster_blocks() { __builtin_trap(); }
ISOBIT_DEVICE void sync_cluster() { __builtin_trap(); }
template <class T>
ISOBIT_DEVICE T* in_cluster(T*, int) {
  __builtin_trap();
}
ISOBIT_DEVICE void arrival_init(Arrival*, int) { __builtin_trap(); }
ISOBIT_DEVICE void publish_arrivals() { __builtin_trap(); }
ISOBIT_DEVICE void arrival_expect(Arrival*, int) { __builtin_trap(); }
ISOBIT_DEVICE void arrival_wait(Arrival*, int) { __builtin_trap(); }
ISOBIT_DEVICE void copy_bulk(void*, const void*, int, Arrival*) { __builtin_trap(); }

}  // namespace isobit::simt
