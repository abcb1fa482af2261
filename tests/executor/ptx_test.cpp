// SPDX-License-Identifier: Apache-2.0
// The executor of PTX against the rules of the PTX manual: what each instruction gives, what a GPU
// would punish, and what the executor refuses.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "isobit/executor/launch.h"
#include "isobit/executor/memory.h"
#include "isobit/executor/program.h"
#include "launched.h"

namespace isobit::executor {
namespace {
// What is around a body: each thread has its index in %t, of which %in and %out give the places in
// two arrays of 8 bytes a thread.
std::string kernel(const std::string& body, const std::string& more = "") {
  return more +
         ".extern .shared .align 128 .b8 memory[];\n"
         ".visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)\n"
         ".maxntid 1024, 1, 1\n{\n"
         ".reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<19>;\n.reg .b64 %d<19>;\n"
         ".reg .f32 %f<9>;\n.reg .f64 %g<9>;\n"
         ".reg .b64 %in, %out, %i;\n.reg .b32 %t, %b;\n"
         "mov.u32 %t, %tid.x;\nmov.u32 %b, %ctaid.x;\n"
         "ld.param.u64 %in, [k_param_0];\nld.param.u64 %out, [k_param_1];\n"
         "mov.u32 %r18, %ntid.x;\nmad.lo.s32 %r18, %b, %r18, %t;\n"
         "mul.wide.u32 %i, %r18, 8;\nadd.s64 %in, %in, %i;\nadd.s64 %out, %out, %i;\n" +
         body + "\nret;\n}\n";
}

Words run(const std::string& body, Words input = {}, const Circumstances& given = {},
          Counters* counters = nullptr, const std::string& more = "") {
  Module module(kernel(body, more));
  return launched(*module.find("k"), std::move(input), given, counters);
}

// ---- arithmetic --------------------------------------------------------------------------------
struct Rule {
  const char* opcode;
  char result, operands;  // r: 32 bits, d: 64, h: 16, f: f32, g: f64
  Words values;
  std::uint64_t expected;
};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::uint64_t kNan = 0x7fff'ffff, kMinus1 = 0xffff'ffff;

TEST(PtxRules, OfArithmetic) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const Rule rules[] = {
      {"add.s32", 'r', 'r', {kMinus1, 2}, 1},
      {"sub.s32", 'r', 'r', {1, 2}, kMinus1},
      {"mul.lo.s32", 'r', 'r', {0x1'0001, 0x1'0001}, 0x2'0001},
      {"mul.wide.s32", 'd', 'r', {kMinus1, 3}, static_cast<std::uint64_t>(-3)},
      {"mul.wide.u32", 'd', 'r', {kMinus1, 3}, 0x2'ffff'fffd},
      {"mul.hi.u32", 'r', 'r', {kMinus1, 16}, 15},
      {"mul.hi.s32", 'r', 'r', {kMinus1, 16}, kMinus1},
      {"mad.lo.s32", 'r', 'r', {3, 5, kMinus1}, 14},
      {"div.s32", 'r', 'r', {static_cast<std::uint32_t>(-7), 2}, static_cast<std::uint32_t>(-3)},
      {"rem.s32", 'r', 'r', {static_cast<std::uint32_t>(-7), 2}, kMinus1},
      {"min.s32", 'r', 'r', {kMinus1, 1}, kMinus1},
      {"min.u32", 'r', 'r', {kMinus1, 1}, 1},
      {"abs.s32", 'r', 'r', {kMinus1}, 1},
      {"clz.b32", 'r', 'r', {0}, 32},
      {"popc.b32", 'r', 'r', {0xf0f0}, 8},
      {"bfe.s32", 'r', 'r', {0x80, 4, 4}, 0xffff'fff8},
      {"bfe.u32", 'r', 'r', {0x80, 4, 4}, 8},
      {"bfi.b32", 'r', 'r', {0xff, 0, 8, 4}, 0xf00},
      {"prmt.b32", 'r', 'r', {0x3322'1100, 0x7766'5544, 0x7531}, 0x7755'3311},
      {"prmt.b32", 'r', 'r', {0x0000'8000, 0, 0x9999}, 0xffff'ffff},
      {"shf.l.wrap.b32", 'r', 'r', {0x8000'0000, 1, 33}, 3},
      {"add.rn.f32", 'f', 'f', {bits(1e30F), bits(1.0F)}, bits(1e30F)},
      {"add.rn.f32", 'f', 'f', {bits(kInf), bits(-kInf)}, kNan},
      {"mul.rn.f32", 'f', 'f', {bits(tiny), bits(0.5F)}, bits(0.0F)},
      {"mul.rn.f32", 'f', 'f', {bits(tiny), bits(0.75F)}, bits(tiny)},
      {"fma.rn.f32", 'f', 'f', {0x3f80'0001, 0x3f7f'fffe, bits(-1.0F)}, bits(-0x1p-46F)},
      {"min.f32", 'f', 'f', {bits(0.0F), bits(-0.0F)}, bits(-0.0F)},
      {"min.f32", 'f', 'f', {kNan, bits(2.0F)}, bits(2.0F)},
      {"max.f32", 'f', 'f', {kNan, 0xffc0'0000}, kNan},
      {"neg.f32", 'f', 'f', {bits(0.0F)}, bits(-0.0F)},
      {"div.rn.f32", 'f', 'f', {bits(1.0F), bits(3.0F)}, bits(1.0F / 3.0F)},
      {"rcp.rn.f32", 'f', 'f', {bits(-0.0F)}, bits(-kInf)},
      {"sqrt.rn.f32", 'f', 'f', {bits(2.0F)}, bits(0x1.6a09e6p+0F)},
      {"sqrt.rn.f32", 'f', 'f', {bits(-1.0F)}, kNan},
      {"add.rn.f64", 'g', 'g', {bits(1.0), bits(0x1p-53)}, bits(1.0)},
      {"cvt.rn.f16.f32", 'h', 'f', {bits(65519.99F)}, 0x7bff},
      {"cvt.rn.f16.f32", 'h', 'f', {bits(65520.0F)}, 0x7c00},
      {"cvt.rn.f16.f32", 'h', 'f', {bits(0x1p-25F)}, 0},
      {"cvt.rn.f16.f32", 'h', 'f', {bits(0x1.8p-25F)}, 1},
      {"cvt.rn.f16.f32", 'h', 'f', {kNan}, 0x7fff},
      {"cvt.f32.f16", 'f', 'h', {0x0001}, bits(0x1p-24F)},
      {"cvt.rn.f16x2.f32", 'r', 'f', {bits(65520.0F), bits(0x1p-24F)}, 0x7c00'0001},
      {"cvt.rn.bf16x2.f32", 'r', 'f', {0x3f80'8000, kNan}, 0x3f80'7fff},
      {"cvt.rn.bf16.f32", 'h', 'f', {0x3f80'8000}, 0x3f80},
      {"cvt.rn.bf16.f32", 'h', 'f', {0x3f81'8000}, 0x3f82},
      {"cvt.rn.f32.f64", 'f', 'g', {bits(1.0 + 0x1p-24)}, bits(1.0F)},
      {"cvt.rzi.s32.f32", 'r', 'f', {bits(-3e10F)}, 0x8000'0000},
      {"cvt.rzi.u32.f64", 'r', 'g', {bits(3000000000.9)}, 3000000000U},
      {"cvt.rzi.u32.f64", 'r', 'g', {bits(-1.0)}, 0},
      {"cvt.rn.f32.u16", 'f', 'h', {0xffff}, bits(65535.0F)},
      {"cvt.rzi.u64.f64", 'd', 'g', {bits(0x1.8p40 + 0.5)}, 0x180'0000'0000},
      {"cvt.s64.s32", 'd', 'r', {kMinus1}, static_cast<std::uint64_t>(-1)},
      {"cvt.u64.u32", 'd', 'r', {kMinus1}, kMinus1},
      {"cvt.s64.s32", 'd', 'd', {0x7'8000'0000}, 0xffff'ffff'8000'0000},
      {"cvt.u32.u16", 'r', 'r', {0x7'8000}, 0x8000},
      {"cvt.s32.s8", 'r', 'h', {0x80}, 0xffff'ff80},
  };
  for (const Rule& rule : rules) {
    std::string body, operands;
    for (std::size_t i = 0; i < rule.values.size(); ++i) {
      const std::string name = std::string("%") + rule.operands + std::to_string(i + 1);
      const char* move = rule.operands == 'd'   ? "mov.b64 "
                         : rule.operands == 'g' ? "mov.b64 "
                         : rule.operands == 'h' ? "mov.b16 "
                                                : "mov.b32 ";
      body += move + name + ", " + std::to_string(rule.values[i]) + ";\n";
      operands += ", " + name;
    }
    const std::string result = std::string("%") + rule.result + "0";
    body += std::string(rule.opcode) + " " + result + operands + ";\n";
    if (rule.result == 'f') body += "mov.b32 %r0, %f0;\n";
    if (rule.result == 'g') body += "mov.b64 %d0, %g0;\n";
    if (rule.result == 'h') body += "cvt.u32.u16 %r0, %h0;\n";
    if (rule.result != 'd' && rule.result != 'g') body += "cvt.u64.u32 %d0, %r0;\n";
    body += "st.global.u64 [%out], %d0;\n";
    EXPECT_EQ(run(body).at(31), rule.expected) << body;
  }
}

// Shifts by as many bits as there are, or more, leave nothing but the sign.
TEST(PtxRules, OfShifts) {
  for (const auto& [opcode, expected] : {std::pair("shl.b32", 0ULL), std::pair("shr.u32", 0ULL),
                                         std::pair("shr.s32", 0xffff'ffffULL)}) {
    const std::string body = std::string("mov.u32 %r1, 0x80000000;\n") + opcode +
                             " %r2, %r1, 32;\ncvt.u64.u32 %d1, %r2;\nst.global.u64 [%out], %d1;";
    EXPECT_EQ(run(body)[0], expected) << opcode;
  }
}

// An ordered comparison is false of a NaN, an unordered one true.
TEST(PtxRules, OfComparisonsWithNan) {
  for (const auto& [opcode, expected] :
       {std::pair("setp.eq.f32", 0U), std::pair("setp.ne.f32", 0U), std::pair("setp.lt.f32", 0U),
        std::pair("setp.geu.f32", 1U), std::pair("setp.neu.f32", 1U), std::pair("setp.nan.f32", 1U),
        std::pair("setp.num.f32", 0U)}) {
    const std::string body = std::string("mov.b32 %f1, 0f7FC00000;\n") + opcode +
                             " %p1, %f1, 0f3F800000;\nselp.b64 %d1, 1, 0, %p1;\n"
                             "st.global.u64 [%out], %d1;";
    EXPECT_EQ(run(body)[0], expected) << opcode;
  }
}

// ---- lanes -------------------------------------------------------------------------------------

TEST(PtxWarps, LanesThatPartMeetAgain) {
  Counters counters;
  const Words out = run(R"(
    and.b32 %r1, %t, 1;
    setp.eq.s32 %p1, %r1, 0;
    @%p1 bra even;
    mul.lo.s32 %r2, %t, 3;
    bra.uni join;
  even:
    mul.lo.s32 %r2, %t, 5;
  join:
    shfl.sync.bfly.b32 %r3|%p2, %r2, 1, 31, -1;
    cvt.u64.u32 %d1, %r3;
    st.global.u64 [%out], %d1;)",
                        {}, {}, &counters);
  for (std::uint64_t lane = 0; lane < 32; ++lane)
    EXPECT_EQ(out[lane], (lane ^ 1) * (lane % 2 == 0 ? 3 : 5));
  EXPECT_EQ(counters.divergent_branches, 1U);
  EXPECT_EQ(counters.shuffles, 1U);
}

TEST(PtxWarps, LoopsEndLaneByLane) {
  const Words out = run(R"(
    mov.u32 %r1, 0;
    mov.u32 %r2, %t;
  again:
    setp.eq.s32 %p1, %r2, 0;
    @%p1 bra done;
    add.s32 %r1, %r1, %r2;
    sub.s32 %r2, %r2, 1;
    bra.uni again;
  done:
    cvt.u64.u32 %d1, %r1;
    st.global.u64 [%out], %d1;)");
  for (std::uint64_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], lane * (lane + 1) / 2);
}

TEST(PtxWarps, SegmentsOfShufflesKeepToThemselves) {
  // Width 8: the clamp is 31, the segment's mask 24; index 9 is 1 within the segment.
  const Words out = run(R"(
    shfl.sync.idx.b32 %r1|%p1, %t, 9, 6175, -1;
    cvt.u64.u32 %d1, %r1;
    st.global.u64 [%out], %d1;)");
  for (std::uint64_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], lane / 8 * 8 + 1);
}

TEST(PtxWarps, CallsHaveRegistersAndParametersOfTheirOwn) {
  const std::string square = R"(
.func (.param .b32 result) square(.param .b32 x)
{
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [x];
  mul.lo.s32 %r2, %r1, %r1;
  st.param.b32 [result+0], %r2;
  ret;
}
)";
  const Words out = run(R"(
    mov.u32 %r1, 77;
    {
    .param .b32 param0;
    st.param.b32 [param0+0], %t;
    .param .b32 retval0;
    call.uni (retval0), square, (param0);
    ld.param.b32 %r2, [retval0+0];
    }
    add.s32 %r2, %r2, %r1;
    cvt.u64.u32 %d1, %r2;
    st.global.u64 [%out], %d1;)",
                        {}, {}, nullptr, square);
  for (std::uint64_t lane = 0; lane < 32; ++lane) EXPECT_EQ(out[lane], lane * lane + 77);
}

// ---- blocks and clusters -----------------------------------------------------------------------

const char* const kExchange = R"(
    mov.u32 %r1, memory;
    shl.b32 %r2, %t, 2;
    add.s32 %r3, %r1, %r2;
    st.shared.u32 [%r3], %t;
    bar.sync 0;
    mov.u32 %r4, %ntid.x;
    sub.s32 %r4, %r4, %t;
    sub.s32 %r4, %r4, 1;
    shl.b32 %r4, %r4, 2;
    ld.shared.u32 %r5, [%r4];
    cvt.u64.u32 %d1, %r5;
    st.global.u64 [%out], %d1;)";

TEST(PtxBlocks, BarriersOrderSharedMemoryInEverySchedule) {
  for (const Order order : {Order::in_order, Order::reversed, Order::random, Order::starving}) {
    const Words out = run(kExchange, {},
                          {.shape = {.blocks = 3, .threads = 96, .shared_bytes = 384},
                           .schedule = {.order = order, .seed = 5, .resident = 3}});
    for (std::uint64_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], 95 - i % 96);
  }
}

TEST(PtxBlocks, SharedMemoryOfAnotherBlockOfTheClusterIsReached) {
  const Words out =
      run(R"(
    mov.u32 %r1, %cluster_ctarank;
    add.s32 %r2, %r1, 40;
    mov.u32 %r3, memory;
    st.shared.u32 [%r3], %r2;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    xor.b32 %r4, %r1, 1;
    cvt.u64.u32 %d1, %r3;
    cvta.shared.u64 %d2, %d1;
    mapa.u64 %d3, %d2, %r4;
    ld.u32 %r5, [%d3];
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    cvt.u64.u32 %d4, %r5;
    st.global.u64 [%out], %d4;)",
          {}, {.shape = {.blocks = 4, .threads = 32, .cluster = 2, .shared_bytes = 16}});
  for (std::uint64_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], 40 + (i / 32 ^ 1) % 2);
}

// A bulk copy of 256 bytes to shared memory, for which thread 0 expects so many bytes.
std::string bulk(int expected, int arrivals = 1) {
  return R"(
    setp.ne.s32 %p1, %t, 0;
    mov.u32 %r1, 256;
    @%p1 bra wait;
    mbarrier.init.shared::cta.b64 [%r1], )" +
         std::to_string(arrivals) + R"(;
    mov.u32 %r2, )" +
         std::to_string(expected) + R"(;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r2;
    mov.u32 %r3, 0;
    mov.u32 %r4, 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%in], %r4, [%r1];
  wait:
    bar.sync 0;
  again:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
    @!%p2 bra again;
    shl.b32 %r5, %t, 3;
    ld.shared.u64 %d1, [%r5];
    st.global.u64 [%out], %d1;)";
}
const LaunchShape kBulk = {.threads = 32, .shared_bytes = 264};

TEST(PtxCopies, BulkCopiesLandBeforeTheirBarrierOpens) {
  Words input(32);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = 1000 + i;
  for (const bool early : {false, true}) {
    Counters counters;
    EXPECT_EQ(run(bulk(256), input, {.shape = kBulk, .schedule = {.copies_land_early = early}},
                  &counters),
              input);
    EXPECT_EQ(counters.copied_bytes, 256U);
    EXPECT_EQ(counters.loads.distinct, 8U);
  }
}

TEST(PtxCopies, WrongBytesOrArrivalsHang) {
  for (const std::string& body : {bulk(272), bulk(256, 2)})
    EXPECT_NE(
        complaint<LaunchError>([&] { run(body, {}, {.shape = kBulk}); }).find("nobody can go on"),
        std::string::npos);
}

TEST(PtxCopies, GroupsLandAsTheyAreAwaited) {
  const std::string begin = R"(
    shl.b32 %r1, %t, 3;
    cp.async.ca.shared.global [%r1], [%in], 8, 4;
    cp.async.commit_group;
    )";
  const std::string end = R"(
    ld.shared.u64 %d1, [%r1];
    st.global.u64 [%out], %d1;
    cp.async.wait_group 0;)";
  const Circumstances given = {.shape = {.threads = 32, .shared_bytes = 256}};
  const Words input(32, 0x1111'2222'3333'4444);
  EXPECT_EQ(run(begin + "cp.async.wait_group 0;" + end, input, given)[5], 0x3333'4444U);
  EXPECT_EQ(run(begin + end, input, given)[5], ~std::uint64_t{0}) << "not awaited: poison";
}

// ---- what a GPU punishes -----------------------------------------------------------------------

TEST(PtxFaults, AreNamed) {
  const struct {
    const char *body, *what;
    Circumstances given;
  } faults[] = {
      {"st.global.u64 [%out+256], %d1;", "beyond an array of 256", {}},
      {"add.s64 %d2, %out, 4; st.global.u64 [%d2], %d1;", "misaligned", {}},
      {"mov.u64 %d2, 4096; ld.global.u32 %r1, [%d2];", "illegal address", {}},
      {"mov.u32 %r1, 64; ld.shared.u32 %r2, [%r1];",
       "of 64 bytes of shared memory",
       {.shape = {.threads = 32, .shared_bytes = 64}}},
      {"setp.lt.s32 %p1, %t, 16; @%p1 bra out; bar.warp.sync -1; out:",
       "names lanes that have ended",
       {}},
      {"setp.lt.s32 %p1, %t, 16; @%p1 bar.sync 0;", "some lanes of a group come to a barrier", {}},
      {"again: bra again;", "the kernel does not end", {.limits = {.instructions = 100'000}}},
      {"trap;", "trap", {}},
      {"mov.u32 %r1, 0; mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;",
       "no arrival barrier",
       {.shape = {.threads = 32, .shared_bytes = 64}}},
      {"cvt.u64.u32 %d1, %t; mapa.u64 %d2, %d1, 0;", "not in the block's shared memory", {}},
      {"", "threads a block", {.shape = {.threads = 2048}}},
      {"", "bytes of shared memory", {.shape = {.threads = 1, .shared_bytes = 1 << 20}}},
      {"", "in clusters of 2", {.shape = {.blocks = 3, .threads = 1, .cluster = 2}}},
  };
  for (const auto& fault : faults) {
    const std::string said = complaint<LaunchError>([&] { run(fault.body, {}, fault.given); });
    EXPECT_NE(said.find(fault.what), std::string::npos) << fault.body << "\n" << said;
  }
}

// What was given back is nobody's.
TEST(PtxFaults, MemoryEndsWhereItWasAskedToEnd) {
  void* room = memory().allocate(40);
  const auto at = reinterpret_cast<std::uintptr_t>(room);
  EXPECT_EQ(at % 256, 0U);
  EXPECT_NE(memory().find(at + 39), nullptr);
  EXPECT_EQ(memory().find(at + 40), nullptr);
  EXPECT_EQ(*static_cast<unsigned char*>(room), 0xff) << "poison";
  EXPECT_TRUE(memory().release(room));
  EXPECT_EQ(memory().find(at), nullptr);
  EXPECT_FALSE(memory().release(room));
}

TEST(PtxAccess, LanesAddFloatsWhereSubnormalsAreZeros) {
  const char* add =
      "ld.param.u64 %d1, [k_param_1];\nst.global.u64 [%out], 0;\nbar.sync 0;\n"
      "ld.global.f32 %f1, [%in];\nred.relaxed.gpu.global.add.f32 [%d1], %f1;\n";
  EXPECT_EQ(run(add, Words(32, bits(1.5F)))[0] + run(add, Words(32, 1))[0], bits(48.0F));
}

// ---- what the executor refuses -----------------------------------------------------------------

TEST(PtxRefusals, NameTheRule) {
  for (const auto& [statement, reason] :
       {std::pair("add.f32 %f1, %f2, %f3;", "-fmad=false"),
        std::pair("mul.f64 %g1, %g2, %g3;", "-fmad=false"),
        std::pair("add.rn.ftz.f32 %f1, %f2, %f3;", "flushes"),
        std::pair("rcp.approx.f32 %f1, %f2;", "approximation"),
        std::pair("add.rz.f32 %f1, %f2, %f3;", "nearest even"),
        std::pair("cvt.rn.sat.f16.f32 %h1, %f2;", "saturates"),
        std::pair("frobnicate.b32 %r1, %r2;", "does not know"),
        std::pair("bar.sync 1;", "only barrier 0"), std::pair("mov.u32 %r1, %clock;", "%clock"),
        std::pair("add.s32 %r1, %d1, %r2;", "has 8 bytes, not 4"),
        std::pair("bra nowhere;", "no label")}) {
    Module module(kernel(statement));
    const std::string said = complaint<PtxError>([&] { module.find("k"); });
    EXPECT_NE(said.find(reason), std::string::npos) << statement << "\n" << said;
  }
}

// ---- counters ----------------------------------------------------------------------------------

TEST(PtxCounters, SectorsOfAdjacentAndOfScatteredLanes) {
  Counters counters;
  run("ld.global.u64 %d1, [%in]; st.global.u64 [%out], %d1;", {}, {}, &counters);
  EXPECT_EQ(counters.loads.requests, 1U);
  EXPECT_EQ(counters.loads.sectors, 8U);
  EXPECT_EQ(counters.loads.least, 8U);
  EXPECT_EQ(counters.stores.distinct, 8U);
  EXPECT_EQ(counters.waits, 1U);
  EXPECT_EQ(counters.awaited_bytes, 256U);
  // The lowest half of each 8 bytes: all sectors for half of the bytes.
  run("ld.global.u32 %r1, [%in]; ld.global.u32 %r1, [%in]; st.global.u64 [%out], %d1;", {}, {},
      &counters);
  EXPECT_EQ(counters.loads.sectors, 16U);
  EXPECT_EQ(counters.loads.least, 8U);
  EXPECT_EQ(counters.loads.distinct, 8U);
}

// As where the heads of q and of k are taken by one warp.
TEST(PtxCounters, SectorsOfLanesThatReadDifferentArrays) {
  Counters counters;
  run("setp.lt.u32 %p1, %t, 16; selp.b64 %d2, %in, %out, %p1;"
      "ld.global.u64 %d1, [%d2]; st.global.u64 [%out], %d1;",
      {}, {}, &counters);
  EXPECT_EQ(counters.loads.sectors, 8U);
  EXPECT_EQ(counters.loads.distinct, 8U);
}

TEST(PtxCounters, WavefrontsOfBanks) {
  for (const auto& [shift, wavefronts] : {std::pair(2, 1U), std::pair(3, 2U), std::pair(7, 32U)}) {
    Counters counters;
    run("shl.b32 %r1, %t, " + std::to_string(shift) + "; ld.shared.u32 %r2, [%r1];", {},
        {.shape = {.threads = 32, .shared_bytes = 4096}}, &counters);
    EXPECT_EQ(counters.shared_wavefronts, wavefronts) << shift;
    EXPECT_EQ(counters.shared_least, 1U);
  }
}

// ---- tensor cores ------------------------------------------------------------------------------

// What becomes of c where all elements of a are alike, and all of b.
std::uint64_t product(std::uint32_t a, std::uint32_t b, std::uint64_t c, int capability = 90) {
  const std::string body =
      "mov.b32 %r1, " + std::to_string(a) + ";\nmov.b32 %r3, " + std::to_string(b) + R"(;
    ld.global.f32 %f1, [%in];
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5}, {%r1, %r1, %r1, %r1}, {%r3, %r3}, {%f1, %f1, %f1, %f1};
    mov.b32 %r4, %f2;
    cvt.u64.u32 %d1, %r4;
    st.global.u64 [%out], %d1;)";
  return run(body, Words(32, c), {.limits = {.capability = capability}})[7];
}

TEST(PtxTensors, FollowTheModel) {
  constexpr std::uint32_t kOnes = 0x3C00'3C00;
  EXPECT_EQ(product(kOnes, kOnes, bits(0.5F)), bits(16.5F));
  EXPECT_EQ(product(kOnes, kOnes, bits(-16.0F)), bits(0.0F));
  EXPECT_EQ(product(kOnes, kOnes, bits(kInf)), bits(kInf));
  EXPECT_EQ(product(kOnes, kOnes, kNan), kNan);
  // Bits of c beyond the last kept one are cut before the sum, which is rounded toward zero.
  EXPECT_EQ(product(kOnes, kOnes, bits(0x1.fffffep-2F)), bits(0x1.07fffep+4F));
  // Sixteen products of 2^-25 beside 1: the last bit that sm_90 keeps, and sm_80 does not.
  EXPECT_EQ(product(0x0800'0800, 0x0C00'0C00, bits(1.0F), 80), bits(1.0F));
  EXPECT_EQ(product(0x0800'0800, 0x0C00'0C00, bits(1.0F), 90), bits(1 + 0x1p-21F));
}

// Rows of 16 bytes that lie 128 bytes apart share their banks; rows beside each other do not.
TEST(PtxTensors, RowsOfMatricesAreCountedByTheirBanks) {
  for (const auto& [apart, wavefronts] : {std::pair{16, 4U}, {128, 32U}, {144, 4U}}) {
    const std::string body = "mul.lo.s32 %r1, %t, " + std::to_string(apart) + R"(;
      mov.u32 %r2, memory;
      add.u32 %r1, %r1, %r2;
      ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r1];
      cvt.u64.u32 %d1, %r3;
      st.global.u64 [%out], %d1;)";
    Counters counters;
    run(body, Words(32), {.shape = {.threads = 32, .shared_bytes = 8192}}, &counters);
    EXPECT_EQ(counters.shared_wavefronts, wavefronts) << apart;
    EXPECT_EQ(counters.shared_least, 4U);
  }
}

}  // namespace
}  // namespace isobit::executor
