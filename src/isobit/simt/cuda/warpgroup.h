// SPDX-License-Identifier: Apache-2.0
// Products of matrices by a warpgroup, in PTX for sm_90a. host/warpgroup.h says what the names
// mean.
#pragma once

#include <cuda.h>

#include <type_traits>
#include <utility>

#include "isobit/simt/boxes.h"
#include "isobit/simt/cuda/memory.h"

namespace isobit::simt {

using BoxMap = CUtensorMap;

// The driver makes the map; its function is found by the run-time, so that nothing is linked.
template <class T>
BoxMap box_map(const Matrices& matrices) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  detail::checked("cudaGetDriverEntryPointByVersion",
                  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                   cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess)
    throw DeviceError("the NVIDIA driver has no cuTensorMapEncodeTiled; CUDA 12 or later has");
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  constexpr int kRank = 3;
  const auto bytes = [](std::int64_t elements) { return static_cast<cuuint64_t>(elements) * 2; };
  cuuint64_t extents[kRank] = {static_cast<cuuint64_t>(matrices.length),
                               static_cast<cuuint64_t>(matrices.lines),
                               static_cast<cuuint64_t>(matrices.count)};
  cuuint64_t strides[kRank - 1] = {bytes(matrices.line_stride), bytes(matrices.stride)};
  cuuint32_t box[kRank] = {kBoxSide, kBoxSide, 1};
  const cuuint32_t each[kRank] = {1, 1, 1};
  if (matrices.woven) {  // dimensions follow one another by their strides
    std::swap(extents[1], extents[2]);
    std::swap(strides[0], strides[1]);
    std::swap(box[1], box[2]);
  }
  struct {
    BoxMap map;
  } made;  // no place that a caller's expression gives, which may lack the map's alignment
  const CUresult result = encode(
      &made.map,
      std::is_same_v<T, bf16> ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      kRank, const_cast<void*>(matrices.data), extents, strides, box, each,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw DeviceError(text("cuTensorMapEncodeTiled: error ", static_cast<int>(result)));
  return made.map;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ISOBIT_SM90A(...) __VA_ARGS__
#else
#define ISOBIT_SM90A(...) __trap()
#endif

ISOBIT_DEVICE void copy_box(void* to, const BoxMap& map, int element, int second, int third,
                            Arrival* arrival) {
  ISOBIT_SM90A(
      asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                   "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(detail::shared_address(to)),
                   "l"(&map), "r"(element), "r"(second), "r"(third),
                   "r"(detail::shared_address(arrival)) : "memory"));
}
ISOBIT_DEVICE void arrive(Arrival* arrival) {
  ISOBIT_SM90A(asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(
      detail::shared_address(arrival)) : "memory"));
}

namespace detail {

// The compiler neither moves what is done to sums across this nor keeps them elsewhere.
template <int kSums>
ISOBIT_DEVICE void hold(float (&sums)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// An operand in boxes: its address, the bytes from one box to the next (of lines along k they
// follow from those) and from eight lines to the next, in units of 16 bytes, and how it is mixed.
template <bool kAlongK>
ISOBIT_DEVICE std::uint64_t described(const void* boxes) {
  constexpr std::uint64_t kFromBox = kAlongK ? 1 : kBoxBytes / 16, kFromEight = 1024 / 16,
                          kIn128 = 1;
  return (shared_address(boxes) & 0x3ffff) >> 4 | kFromBox << 16 | kFromEight << 32 | kIn128 << 62;
}

}  // namespace detail

template <int kSums>
ISOBIT_DEVICE void begin_products(float (&sums)[kSums]) {
  detail::hold(sums);
  ISOBIT_SM90A(asm volatile("wgmma.fence.sync.aligned;" :: : "memory"));
}

template <int kSums, int kSteps>
ISOBIT_DEVICE void begin_products(float (&sums)[kSums], unsigned (&a)[kSteps][4]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[step][i])::"memory");
  begin_products(sums);
}

template <class T, bool kAAlongK, bool kBAlongK>
ISOBIT_DEVICE void multiply_add(float (&sums)[64], const T* a, const T* b) {
  const std::uint64_t rows = detail::described<kAAlongK>(a),
                      columns = detail::described<kBAlongK>(b);
#define ISOBIT_8(i)                                                                          \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define ISOBIT_WGMMA(types)                                                                 \
  ISOBIT_SM90A(asm volatile(                                                                \
      "{\n"                                                                                 \
      ".reg .pred adds;\n"                                                                  \
      "setp.ne.b32 adds, %68, 0;\n"                                                         \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." types                                  \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "            \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "    \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "    \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "   \
      "%64, %65, adds, 1, 1, %66, %67;\n"                                                   \
      "}" : ISOBIT_8(0),                                                                    \
      ISOBIT_8(8), ISOBIT_8(16), ISOBIT_8(24), ISOBIT_8(32), ISOBIT_8(40), ISOBIT_8(48),    \
      ISOBIT_8(56) : "l"(rows), "l"(columns), "n"(kAAlongK ? 0 : 1), "n"(kBAlongK ? 0 : 1), \
      "r"(1)))
  if constexpr (std::is_same_v<T, bf16>)
    ISOBIT_WGMMA("bf16.bf16");
  else
    ISOBIT_WGMMA("f16.f16");
#undef ISOBIT_WGMMA
}

template <class T, bool kBAlongK>
ISOBIT_DEVICE void multiply_add(float (&sums)[32], const unsigned (&a)[4], const T* b) {
  const std::uint64_t columns = detail::described<kBAlongK>(b);
#define ISOBIT_WGMMA(types)                                                                 \
  ISOBIT_SM90A(asm volatile(                                                                \
      "{\n"                                                                                 \
      ".reg .pred adds;\n"                                                                  \
      "setp.ne.b32 adds, %38, 0;\n"                                                         \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." types                                   \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "            \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "   \
      "{%32, %33, %34, %35}, %36, adds, 1, 1, %37;\n"                                       \
      "}" : ISOBIT_8(0),                                                                    \
      ISOBIT_8(8), ISOBIT_8(16), ISOBIT_8(24) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), \
      "l"(columns), "n"(kBAlongK ? 0 : 1), "r"(1)))
  if constexpr (std::is_same_v<T, bf16>)
    ISOBIT_WGMMA("bf16.bf16");
  else
    ISOBIT_WGMMA("f16.f16");
#undef ISOBIT_WGMMA
#undef ISOBIT_8
}

ISOBIT_DEVICE void commit_products() {
  ISOBIT_SM90A(asm volatile("wgmma.commit_group.sync.aligned;" :: : "memory"));
}
template <int kStillOpen, int kSums>
ISOBIT_DEVICE void wait_products(float (&sums)[kSums]) {
  ISOBIT_SM90A(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kStillOpen) : "memory"));
  detail::hold(sums);
}

template <int kCount>
ISOBIT_DEVICE void have_fewer_registers() {
  ISOBIT_SM90A(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount)));
}
template <int kCount>
ISOBIT_DEVICE void have_more_registers() {
  ISOBIT_SM90A(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount)));
}

#undef ISOBIT_SM90A

}  // namespace isobit::simt
