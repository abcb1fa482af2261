// SPDX-License-Identifier: Apache-2.0
// The executor of PTX: products by a warpgroup, and bulk copies of boxes of a tensor.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "isobit/executor/launch.h"
#include "isobit/executor/memory.h"
#include "isobit/executor/program.h"
#include "isobit/executor/tensor_map.h"
#include "launched.h"

namespace isobit::executor {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Of four warps, whose threads write `element` all over 32 KiB; then a product of 64 x 128 by
// descriptors, from sums of c, and what becomes of sum 9.
struct Product {
  std::string begin = "wgmma.fence.sync.aligned;", wait = "wgmma.wait_group.sync.aligned 0;";
  std::string across = "0, 0", adds = "setp.eq.u32 %p1, 0, 0;", start = "0";
  std::uint32_t elements = 0x3C00'3C00;  // two ones of f16
  float c = 0.5F;
  int threads = 128;
  Schedule schedule = {};
};

Words words_of(const Product& product, Counters* counters = nullptr) {
  std::string list;
  for (int i = 0; i < 64; ++i) list += (i == 0 ? "%f" : ", %f") + std::to_string(i);
  std::string starts;
  for (int i = 0; i < 64; ++i)
    starts += "mov.b32 %f" + std::to_string(i) + ", " + std::to_string(bits(product.c)) + ";\n";
  const std::string text = R"(
    .extern .shared .align 1024 .b8 memory[];
    .visible .entry k(.param .u64 k_in, .param .u64 k_out)
    .maxntid 1024, 1, 1
    {
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<64>;
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, 0;
  fill:
    st.shared.u32 [%r2], )" +
                           std::to_string(product.elements) +
                           R"(;
    add.s32 %r2, %r2, 512;
    add.s32 %r3, %r3, 1;
    setp.lt.s32 %p2, %r3, 64;
    @%p2 bra fill;
    bar.sync 0;
    )" + starts + R"(
    mov.u64 %d1, )" + std::to_string(1ULL << 62 | 64ULL << 32 | 512ULL << 16) +
                           ";\n add.s64 %d1, %d1, " + product.start + ";\n" + product.begin +
                           product.adds +
                           "\nwgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" + list +
                           "}, %d1, %d1, %p1, 1, 1, " + product.across +
                           ";\nwgmma.commit_group.sync.aligned;\n" + product.wait + R"(
    mov.b32 %r4, %f9;
    cvt.u64.u32 %d2, %r4;
    ld.param.u64 %d3, [k_out];
    mul.wide.u32 %d4, %r1, 8;
    add.s64 %d3, %d3, %d4;
    st.global.u64 [%d3], %d2;
    wgmma.wait_group.sync.aligned 0;
    ret;
    })";
  Module module(text);
  return launched(*module.find("k"), {},
                  {.shape = {.threads = product.threads, .shared_bytes = 32 << 10},
                   .schedule = product.schedule},
                  counters);
}

std::string complaint_of(const Product& product) {
  return complaint<LaunchError>([&] { words_of(product); });
}

TEST(PtxWarpgroups, FollowTheModelAndMeetNoBankTwice) {
  for (const bool early : {false, true})
    for (const char* across : {"0, 0", "1, 0", "0, 1", "1, 1"}) {
      Counters counters;
      const Words sums =
          words_of({.across = across, .schedule = {.copies_land_early = early}}, &counters);
      EXPECT_EQ(sums, Words(128, bits(16.5F))) << across;
      EXPECT_EQ(counters.shared_wavefronts, counters.shared_least);
    }
  // Sixteen products of 2^-25 beside 1: sm_90 keeps that bit.
  EXPECT_EQ(words_of({.elements = 0x0C00'0C00, .c = 1.0F})[5], bits(1 + 0x1p-20F));
  EXPECT_EQ(words_of({.c = kNan})[5] & 0x7fff'ffff, 0x7fff'ffffU);
}

TEST(PtxWarpgroups, SumsThatNobodyWaitedForAreNan) {
  EXPECT_EQ(words_of({.wait = "wgmma.wait_group.sync.aligned 1;"}), Words(128, 0xffff'ffff));
}

TEST(PtxWarpgroups, WhatIsUndefinedIsRefused) {
  const std::pair<Product, const char*> wrong[] = {
      {{.begin = ""}, "a product without a fence since the last wait"},
      {{.threads = 96}, "a warp that is none of four whole ones"},
      {{.adds = "setp.ne.u32 %p1, 0, 0;"}, "sums that are not added to"},
      {{.start = "8"}, "an operand that is not mixed in lines of 128 bytes from 1024 on"},
      {{.start = "1984"}, "an operand beyond shared memory"},
  };
  for (const auto& [product, what] : wrong)
    EXPECT_EQ(complaint_of(product).find(what), 0U) << complaint_of(product);
}

// Of four warps: 64 x 64 from an a in registers and boxes of ones, and what becomes of sum 9. Line
// l of a warp's upper eight has l << 10 as its elements of even k, the other elements are 0.
std::string of_registers(const std::string& under_way, const std::string& before = "") {
  std::string list;
  for (int i = 0; i < 32; ++i) list += (i == 0 ? "%f" : ", %f") + std::to_string(i);
  std::string starts;
  for (int i = 0; i < 32; ++i) starts += "mov.b32 %f" + std::to_string(i) + ", 0;\n";
  return R"(
    .extern .shared .align 1024 .b8 memory[];
    .visible .entry k(.param .u64 k_in, .param .u64 k_out)
    .maxntid 128, 1, 1
    {
    .reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %d<9>; .reg .f32 %f<32>;
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, 0;
  fill:
    st.shared.u32 [%r2], 1006648320;
    add.s32 %r2, %r2, 512;
    add.s32 %r3, %r3, 1;
    setp.lt.s32 %p2, %r3, 16;
    @%p2 bra fill;
    bar.sync 0;
    shr.u32 %r5, %r1, 2;
    and.b32 %r5, %r5, 7;
    shl.b32 %r5, %r5, 10;
    mov.b32 %r6, 0; mov.b32 %r7, %r5; mov.b32 %r8, 0;
    )" + before +
         starts + "mov.u64 %d1, " + std::to_string(1ULL << 62 | 64ULL << 32) + R"(;
    wgmma.fence.sync.aligned;
    setp.eq.u32 %p1, 0, 0;
    wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {)" +
         list + R"(}, {%r5, %r6, %r7, %r8}, %d1, %p1, 1, 1, 1;
    wgmma.commit_group.sync.aligned;
    )" + under_way +
         R"(
    wgmma.wait_group.sync.aligned 0;
    mov.b32 %r4, %f9;
    cvt.u64.u32 %d2, %r4;
    ld.param.u64 %d3, [k_out];
    mul.wide.u32 %d4, %r1, 8;
    add.s64 %d3, %d3, %d4;
    st.global.u64 [%d3], %d2;
    ret;
    })";
}
Words run_of_registers(const std::string& text, Schedule schedule) {
  Module module(text);
  return launched(*module.find("k"), {},
                  {.shape = {.threads = 128, .shared_bytes = 8 << 10}, .schedule = schedule},
                  nullptr);
}

// Eight times 2^(l - 15), as f16 has it, but for 0.
TEST(PtxWarpgroups, TakeAFromRegisters) {
  for (const bool early : {false, true}) {
    const Words sums = run_of_registers(of_registers(""), {.copies_land_early = early});
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto half = static_cast<std::uint16_t>(i / 4 % 8 * 1024);
      const float element = half == 0 ? 0.0F : std::ldexp(1.0F, half / 1024 - 15);
      ASSERT_EQ(sums[i], bits(8 * element)) << i;
    }
  }
}

TEST(PtxWarpgroups, RegistersThatAreWrittenUnderProductsAreRefused) {
  const std::string text = of_registers("mov.b32 %r7, 1;");
  EXPECT_EQ(complaint<LaunchError>([&] {
              run_of_registers(text, {});
            }).find("registers of a that were written while products were under way"),
            0U);
}

TEST(PtxWarpgroups, HaveAsManyRegistersAsThereMayBe) {
  EXPECT_EQ(run_of_registers(of_registers("", "setmaxnreg.dec.sync.aligned.u32 40;"), {}).size(),
            128U);
  const std::string text = of_registers("", "setmaxnreg.inc.sync.aligned.u32 236;");
  EXPECT_EQ(complaint<LaunchError>([&] {
              run_of_registers(text, {});
            }).find("a number of registers that no thread has"),
            0U);
}

// ---- boxes of a tensor -------------------------------------------------------------------------

struct alignas(128) Parameters {
  std::array<std::byte, 128> map;
  std::uint64_t out;
};

// What lies in shared memory after a copy of the box from `element` and `line` on, of a tensor of
// 70 elements by 66 lines, 72 elements apart, whose elements count from 1.
std::vector<std::uint16_t> box(int element, int line, std::uint64_t at = 0) {
  constexpr std::uint64_t kLength = 70, kLines = 66, kApart = 72, kElements = 4096;
  auto* in = static_cast<std::uint16_t*>(memory().allocate(2 * kApart * kLines));
  auto* out = static_cast<std::uint16_t*>(memory().allocate(2 * kElements));
  for (std::uint64_t i = 0; i < kApart * kLines; ++i) in[i] = static_cast<std::uint16_t>(i + 1);
  const std::uint64_t extents[] = {kLength, kLines, 1},
                      strides[] = {2 * kApart, 2 * kApart * kLines};
  const std::uint32_t sides[] = {64, 64, 1}, steps[] = {1, 1, 1};
  Parameters parameters{{}, reinterpret_cast<std::uint64_t>(out)};
  EXPECT_EQ(encode({3, in, extents, strides, sides, steps, true, false, true, true},
                   std::span<std::byte, 128>(parameters.map)),
            nullptr);
  const std::string text = R"(
    .extern .shared .align 1024 .b8 memory[];
    .visible .entry k(.param .align 128 .b8 k_map[128], .param .u64 k_out)
    .maxntid 32, 1, 1
    {
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<9>;
    mov.u32 %r1, %tid.x;
    mov.b64 %d1, k_map;
    cvta.param.u64 %d1, %d1;
    mov.u32 %r2, 8192;
    setp.ne.s32 %p1, %r1, 0;
    @%p1 bra wait;
    mbarrier.init.shared::cta.b64 [%r2], 2;
    mbarrier.arrive.shared::cta.b64 _, [%r2];
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], %r2;
    mov.u32 %r3, )" + std::to_string(at) +
                           ";\nmov.u32 %r4, " + std::to_string(element) + ";\nmov.u32 %r5, " +
                           std::to_string(line) + R"(;
    mov.u32 %r6, 0;
    cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%d1, {%r4, %r5, %r6}], [%r2];
  wait:
    bar.sync 0;
  again:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
    @!%p2 bra again;
    ld.param.u64 %d2, [k_out];
    mul.wide.u32 %d3, %r1, 4;
    add.s64 %d2, %d2, %d3;
    shl.b32 %r3, %r1, 2;
  store:
    ld.shared.u32 %r4, [%r3];
    st.global.u32 [%d2], %r4;
    add.s32 %r3, %r3, 128;
    add.s64 %d2, %d2, 128;
    setp.lt.s32 %p1, %r3, 8192;
    @%p1 bra store;
    ret;
    })";
  Module module(text);
  Counters counters;
  const auto give_back = [&] {
    memory().release(in);
    memory().release(out);
  };
  std::vector<std::uint16_t> found;
  try {
    launch(*module.find("k"), {.threads = 32, .shared_bytes = 8200},
           reinterpret_cast<const std::byte*>(&parameters), counters);
    found.assign(out, out + kElements);
  } catch (...) {
    give_back();
    throw;
  }
  give_back();
  return found;
}

TEST(PtxBoxes, AreMixedAndEndInZeros) {
  for (const auto& [element, line] :
       {std::pair{0, 0}, {64, 0}, {0, 64}, {64, 64}, {8, 3}, {128, 0}}) {
    const std::vector<std::uint16_t> found = box(element, line);
    for (int l = 0; l < 64; ++l)
      for (int e = 0; e < 64; ++e) {
        const bool there = line + l < 66 && element + e < 70;
        const int expected = there ? (line + l) * 72 + element + e + 1 : 0;
        ASSERT_EQ(found[static_cast<std::size_t>(l * 64 + (e / 8 ^ l % 8) * 8 + e % 8)], expected)
            << element << ", " << line << ": " << l << ", " << e;
      }
  }
}

TEST(PtxBoxes, LieAt1024Bytes) {
  EXPECT_EQ(
      complaint<LaunchError>([] { box(0, 0, 128); }).find("a box that is not aligned to 1024"), 0U);
}

TEST(PtxBoxes, OfTensorsThatNoDriverTakesAreRefused) {
  alignas(128) std::array<std::byte, 128> map{};
  alignas(16) std::array<std::byte, 32> data{};
  struct Call {
    std::uint64_t offset = 0, extents[3] = {64, 64, 1}, strides[2] = {128, 8192};
    std::uint32_t box[3] = {64, 64, 1};
  };
  const auto refusal = [&](const Call& call) {
    const std::uint32_t steps[] = {1, 1, 1};
    const char* wrong = encode({3, data.data() + call.offset, call.extents, call.strides, call.box,
                                steps, true, false, true, true},
                               std::span<std::byte, 128>(map));
    return std::string(wrong == nullptr ? "" : wrong);
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_NE(refusal({.offset = 8}), "");
  EXPECT_NE(refusal({.extents = {0, 64, 1}}), "");
  EXPECT_NE(refusal({.extents = {64, 65, 1}}), "");  // reaches into the next matrix
  EXPECT_NE(refusal({.strides = {136, 136 * 64}}), "");
  EXPECT_NE(refusal({.strides = {64, 8192}}), "");  // lines overlap
  EXPECT_NE(refusal({.strides = {128, 8192 + 64}}), "");
  EXPECT_NE(refusal({.box = {128, 64, 1}}), "");
  EXPECT_NE(refusal({.box = {64, 257, 1}}), "");
}

}  // namespace
}  // namespace isobit::executor
