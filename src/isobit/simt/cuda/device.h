// SPDX-License-Identifier: Apache-2.0
// What a kernel may call, in CUDA and PTX. host/device.h has the same names for the emulator and
// says what they mean; hip/device.h has them for AMD's GPUs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "isobit/core/dtype.h"
#include "isobit/simt/launch_shape.h"

#define ISOBIT_DEVICE __device__ __forceinline__
#define ISOBIT_DEVICE_NOINLINE __device__ __noinline__
#define ISOBIT_EITHER __host__ __device__ __forceinline__

namespace isobit::simt {

using Arrival = std::uint64_t;

namespace detail {

ISOBIT_DEVICE unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

}  // namespace detail

ISOBIT_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
ISOBIT_DEVICE int threads() { return static_cast<int>(blockDim.x); }
ISOBIT_DEVICE int lane() { return static_cast<int>(threadIdx.x) % kWarpThreads; }
ISOBIT_DEVICE std::int64_t block() { return blockIdx.x; }
ISOBIT_DEVICE std::int64_t blocks() { return gridDim.x; }

ISOBIT_DEVICE void sync_block() { __syncthreads(); }
ISOBIT_DEVICE bool any_in_block(bool predicate) { return __syncthreads_or(predicate); }
ISOBIT_DEVICE void sync_warp(unsigned lanes = kAllLanes) { __syncwarp(lanes); }

template <class T>
ISOBIT_DEVICE T shuffle(T value, int from, unsigned lanes = kAllLanes) {
  return __shfl_sync(lanes, value, from);
}
template <class T>
ISOBIT_DEVICE T shuffle_xor(T value, int distance, unsigned lanes = kAllLanes) {
  return __shfl_xor_sync(lanes, value, distance);
}
ISOBIT_DEVICE unsigned ballot(bool predicate, unsigned lanes = kAllLanes) {
  return __ballot_sync(lanes, predicate);
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
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};
template <class T>
using WordOf = typename Word<sizeof(T)>::type;

}  // namespace detail

template <class T>
ISOBIT_DEVICE T load(const T* from) {
  using W = detail::WordOf<T>;
  __builtin_assume(__isGlobal(from));
  return __builtin_bit_cast(T, *reinterpret_cast<const W*>(from));
}
template <class T>
ISOBIT_DEVICE T load_shared(const T* from) {
  using W = detail::WordOf<T>;
  __builtin_assume(__isShared(from));
  return __builtin_bit_cast(T, *reinterpret_cast<const W*>(from));
}
template <class T>
ISOBIT_DEVICE void store_shared(T* to, const T& value) {
  using W = detail::WordOf<T>;
  __builtin_assume(__isShared(to));
  *reinterpret_cast<W*>(to) = __builtin_bit_cast(W, value);
}
template <class T>
ISOBIT_DEVICE T load_once(const T* from) {
  using W = detail::WordOf<T>;
  return __builtin_bit_cast(T, __ldcs(reinterpret_cast<const W*>(from)));
}
template <class T>
struct Same {
  using type = T;
};
// In PTX: of a plain assignment nvcc makes several where it knows the elements.
template <class T>
ISOBIT_DEVICE void store(T* to, typename Same<T>::type value) {
  using W = detail::WordOf<T>;
  const std::size_t at = __cvta_generic_to_global(to);
  const W word = __builtin_bit_cast(W, value);
  if constexpr (sizeof(T) == 16) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(word.x), "r"(word.y),
                 "r"(word.z), "r"(word.w)
                 : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(word.x), "r"(word.y) : "memory");
  } else {
    __builtin_assume(__isGlobal(to));
    *reinterpret_cast<W*>(to) = word;
  }
}
template <class T>
ISOBIT_DEVICE void store_once(T* to, typename Same<T>::type value) {
  using W = detail::WordOf<T>;
  __stcs(reinterpret_cast<W*>(to), __builtin_bit_cast(W, value));
}

ISOBIT_DEVICE unsigned load_acquire(const unsigned* from) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
ISOBIT_DEVICE void store_release(unsigned* to, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
ISOBIT_DEVICE unsigned add_acquire_release(unsigned* to, unsigned value) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(to), "r"(value)
               : "memory");
  return before;
}

ISOBIT_DEVICE void add_unordered(float* to, float value) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" : : "l"(to), "f"(value) : "memory");
}

ISOBIT_DEVICE unsigned pick_bytes(unsigned a, unsigned b, unsigned which) {
  return __byte_perm(a, b, which);
}

// core/dtype.h's, in one instruction each where there is one.
struct Conversions {
  template <class Real, class T>
  ISOBIT_DEVICE static Real widen(T value) {
    return isobit::widen<Real>(value);
  }
  template <class Real>
  ISOBIT_DEVICE static Real widen(f16 value) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
  }
  template <class T, class Real>
  ISOBIT_DEVICE static T narrow(Real value) {
    if constexpr (sizeof(T) > 2) {
      return isobit::narrow<T>(value);
    } else {
      const auto single = static_cast<float>(value);
      return narrow_to(Type<T>{}, single);
    }
  }

 private:
  ISOBIT_DEVICE static f16 narrow_to(Type<f16>, float value) {
    if (value != value) return {kNanF16};
    f16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
  }
  ISOBIT_DEVICE static bf16 narrow_to(Type<bf16>, float value) {
#if __CUDA_ARCH__ >= 800
    if (value != value) return {kNanBf16};
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
#else
    return from_float<bf16>(value);
#endif
  }
};

template <class Real, class T, int kCount>
ISOBIT_DEVICE void widen_all(const T (&from)[kCount], Real* to) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = Conversions::widen<Real>(from[i]);
}

namespace detail {

#if __CUDA_ARCH__ >= 800
inline constexpr bool kNarrowsPairs = true;
#else
inline constexpr bool kNarrowsPairs = false;
#endif
ISOBIT_DEVICE unsigned narrow_pair(Type<f16>, float lower, float upper) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
  return pair;
}
ISOBIT_DEVICE unsigned narrow_pair(Type<bf16>, float lower, float upper) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
  return pair;
}

// NaN where an element is; also where infinities cancel.
template <int kCount, class Real>
ISOBIT_DEVICE Real not_a_number_in(const Real* from) {
  if constexpr (kCount == 1)
    return *from;
  else
    return not_a_number_in<kCount / 2>(from) +
           not_a_number_in<kCount - kCount / 2>(from + kCount / 2);
}

}  // namespace detail

// All at once, or two at a time; each alone where there may be a NaN, whose bits are fixed.
template <class T, class Real, int kCount>
ISOBIT_DEVICE void narrow_all(const Real* from, T (&to)[kCount]) {
  if constexpr (detail::kNarrowsPairs && sizeof(T) == 2 && sizeof(Real) == 4 && kCount % 2 == 0) {
    struct Elements {
      T of[kCount];
    };
    struct Pairs {
      unsigned of[kCount / 2];
    } pairs;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i)
      pairs.of[i] = detail::narrow_pair(Type<T>{}, from[2 * i], from[2 * i + 1]);
    if (const float sum = detail::not_a_number_in<kCount>(from); sum != sum) [[unlikely]] {
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i)
        pairs.of[i] = Conversions::narrow<T>(from[2 * i]).bits |
                      unsigned{Conversions::narrow<T>(from[2 * i + 1]).bits} << 16;
    }
    const auto elements = __builtin_bit_cast(Elements, pairs);
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = elements.of[i];
  } else if constexpr (std::is_same_v<T, Real>) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = from[i];
    if (const Real sum = detail::not_a_number_in<kCount>(from); sum != sum) [[unlikely]]
#pragma unroll
      for (int i = 0; i < kCount; ++i) to[i] = Conversions::narrow<T>(from[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = Conversions::narrow<T>(from[i]);
  }
}

// Copies to shared memory beside the thread: sm_80. Before, they are made at once.
template <int kBytes>
ISOBIT_DEVICE void copy_async(void* to, const void* from, int given = kBytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(detail::shared_address(to)),
               "l"(from), "n"(kBytes), "r"(given)
               : "memory");
#else
  for (int i = 0; i < kBytes; ++i)
    static_cast<char*>(to)[i] = i < given ? static_cast<const char*>(from)[i] : 0;
#endif
}
ISOBIT_DEVICE void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kStillOpen>
ISOBIT_DEVICE void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kStillOpen) : "memory");
#endif
}

// Clusters and bulk copies: sm_90. A kernel that uses them is launched nowhere else.
#if __CUDA_ARCH__ >= 900
#define ISOBIT_FROM_SM90(...) __VA_ARGS__
#else
#define ISOBIT_FROM_SM90(...) __trap()
#endif

ISOBIT_DEVICE int cluster_rank() {
  int rank = 0;
  ISOBIT_FROM_SM90(asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)));
  return rank;
}
ISOBIT_DEVICE int cluster_blocks() {
  int blocks = 1;
  ISOBIT_FROM_SM90(asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks)));
  return blocks;
}
ISOBIT_DEVICE void sync_cluster() {
  ISOBIT_FROM_SM90(
      asm volatile("barrier.cluster.arrive.release.aligned;\n"
                   "barrier.cluster.wait.acquire.aligned;" :: : "memory"));
}
template <class T>
ISOBIT_DEVICE T* in_cluster(T* shared, int rank) {
  std::uint64_t address = 0;
  ISOBIT_FROM_SM90(asm volatile("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(shared), "r"(rank)));
  return reinterpret_cast<T*>(address);
}

ISOBIT_DEVICE void arrival_init(Arrival* arrival, int count) {
  ISOBIT_FROM_SM90(
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(detail::shared_address(arrival)),
                   "r"(count) : "memory"));
}
ISOBIT_DEVICE void publish_arrivals() {
  ISOBIT_FROM_SM90(asm volatile("fence.mbarrier_init.release.cluster;" :: : "memory"));
}
ISOBIT_DEVICE void arrival_expect(Arrival* arrival, int bytes) {
  ISOBIT_FROM_SM90(asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                                    detail::shared_address(arrival)),
                                "r"(bytes) : "memory"));
}
ISOBIT_DEVICE void arrival_wait(Arrival* arrival, int parity) {
  ISOBIT_FROM_SM90(
      asm volatile("{\n"
                   ".reg .pred arrived;\n"
                   "again:\n"
                   "mbarrier.try_wait.parity.shared::cta.b64 arrived, [%0], %1;\n"
                   "@!arrived bra again;\n"
                   "}" ::"r"(detail::shared_address(arrival)),
                   "r"(parity) : "memory"));
}
// What the threads did to the target before is ordered first; a barrier must already stand between
// the others' accesses and this call.
ISOBIT_DEVICE void copy_bulk(void* to, const void* from, int bytes, Arrival* arrival) {
  ISOBIT_FROM_SM90(asm volatile(
      "fence.proxy.async.shared::cta;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(detail::shared_address(to)),
      "l"(from), "r"(bytes), "r"(detail::shared_address(arrival)) : "memory"));
}

#undef ISOBIT_FROM_SM90

}  // namespace isobit::simt
