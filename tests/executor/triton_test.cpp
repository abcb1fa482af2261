// SPDX-License-Identifier: Apache-2.0
// What Triton writes, and nvcc does not: PTX that a caller brings with memory of its own, grids of
// several dimensions, and instructions of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "isobit/executor/given.h"
#include "launched.h"

namespace isobit::executor {
namespace triton {

// y = x + 1 of floats, a sector a program, of a grid of 2 x 3 x 2; as Triton writes it.
constexpr const char* kIncrement = R"(
.version 8.7
.target sm_90a
.address_size 64
	// .globl	increment
.extern .shared .align 16 .b8 global_smem[];
.visible .entry increment(
	.param .u64 .ptr .global .align 1 increment_param_0,
	.param .u64 .ptr .global .align 1 increment_param_1,
	.param .u32 increment_param_2,
	.param .f32 increment_param_3
)
.reqntid 32
{
	.reg .pred %p<4>;
	.reg .b32 %r<16>;
	.reg .b64 %rd<8>;
	.loc	1 18 0                          // kernels.py:18:0
$L__func_begin0:
	.loc	1 19 4, function_name $L__info_string0, inlined_at 1 18 0
	ld.param.b64 %rd1, [increment_param_0];
	ld.param.b64 %rd2, [increment_param_1];
	ld.param.b32 %r1, [increment_param_2];
	ld.param.b32 %r2, [increment_param_3];
	mov.u32 %r3, %ctaid.x;
	mov.u32 %r4, %ctaid.y;
	mov.u32 %r5, %ctaid.z;
	mov.u32 %r6, %nctaid.x;
	mov.u32 %r7, %nctaid.y;
	mad.lo.s32 %r8, %r5, %r7, %r4;
	mad.lo.s32 %r8, %r8, %r6, %r3;
	mov.u32 %r9, %tid.x;
	shl.b32 %r8, %r8, 3;
	add.s32 %r8, %r8, %r9;
	setp.lt.u32 %p1, %r9, 8;
	setp.lt.s32 %p2, %r8, %r1;
	and.pred %p3, %p1, %p2;
	mul.wide.u32 %rd3, %r8, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	// begin inline asm
	@%p3 ld.global.b32 { %r10 }, [ %rd4 + 0 ];
	// end inline asm
	add.rn.f32 %r11, %r10, %r2;
	@%p3 st.global.b32 [ %rd5 + 0 ], { %r11 };
	ret;
}
	.file	1 "kernels.py"
	.section	.debug_macinfo	{	}
)";

struct Call {
  std::string ptx = kIncrement;
  std::vector<IsobitLent> lent = {};
  std::vector<std::uint64_t> parameters = {};
  std::array<std::int64_t, 3> grid = {2, 3, 2};

  Total total() const {
    std::map<std::string, Total> totals;
    launch_given({.ptx = ptx.c_str(),
                  .kernel = "increment",
                  .machine_code = nullptr,
                  .machine_code_bytes = 0,
                  .parameters = parameters.data(),
                  .parameter_count = parameters.size(),
                  .lent = lent.data(),
                  .lent_count = lent.size(),
                  .shared_bytes = 0,
                  .grid = {grid[0], grid[1], grid[2]},
                  .threads = 32},
                 totals, true);
    return totals.at("increment");
  }
  std::string complaint() const {
    try {
      total();
    } catch (const std::runtime_error& error) { return error.what(); }
    return "nothing";
  }
};

// Arrays of 96 floats, of which the last four are nobody's.
struct Arrays {
  alignas(kSector) float x[96], y[96];
  Arrays() {
    for (int i = 0; i < 96; ++i) x[i] = static_cast<float>(i);
    std::fill_n(y, 96, -1.0F);
  }
  Call call() {
    return {.lent = {{x, sizeof x}, {y, sizeof y}},
            .parameters = {reinterpret_cast<std::uint64_t>(x), reinterpret_cast<std::uint64_t>(y),
                           92, bits(1.0F)}};
  }
};

TEST(TritonPtx, ReachesMemoryOfTheCallersFromAGridOfThreeDimensions) {
  Arrays arrays;
  const Total total = arrays.call().total();
  for (int i = 0; i < 96; ++i) EXPECT_EQ(arrays.y[i], i < 92 ? arrays.x[i] + 1 : -1) << i;
  EXPECT_EQ(total.launches, 1U);
  EXPECT_EQ(total.blocks, 12U);
  EXPECT_EQ(total.counters.loads.sectors, 12U);
  EXPECT_EQ(total.counters.loads.bytes, 92U * 4);
  EXPECT_EQ(total.counters.stores.distinct, 12U);
}

TEST(TritonPtx, ReachesNoOtherMemory) {
  Arrays arrays;
  Call call = arrays.call();
  call.lent[1].bytes = 91 * sizeof(float);
  EXPECT_NE(call.complaint().find("st.global.b32"), std::string::npos) << call.complaint();
  call.lent.pop_back();
  EXPECT_NE(call.complaint().find("st.global.b32"), std::string::npos) << call.complaint();
  EXPECT_EQ(memory().find(reinterpret_cast<std::uintptr_t>(arrays.x)), nullptr) << "still lent";
}

TEST(TritonPtx, MemoryThatSectorsCannotBeCountedOfIsNotLent) {
  Arrays arrays;
  Call call = arrays.call();
  call.lent[0].begin = arrays.x + 1;
  EXPECT_NE(call.complaint().find("begins within a sector"), std::string::npos);
  call.lent[0] = {arrays.x, sizeof arrays.x};
  call.lent[1] = {arrays.x + 8, 32};
  EXPECT_NE(call.complaint().find("is lent already"), std::string::npos);
  EXPECT_EQ(memory().find(reinterpret_cast<std::uintptr_t>(arrays.x)), nullptr) << "still lent";
}

TEST(TritonPtx, ParametersAreAsManyAsTheKernels) {
  Arrays arrays;
  Call call = arrays.call();
  call.parameters.push_back(0);
  EXPECT_NE(call.complaint().find("increment has 4 parameters; given are 5"), std::string::npos);
}

TEST(TritonPtx, ApproximationsAreRefusedAsOurs) {
  Arrays arrays;
  for (const auto& [instruction, reason] :
       {std::pair("ex2.approx.f32 %r11, %r10;", "an approximation"),
        std::pair("ex2.approx.ftz.f32 %r11, %r10;", "flushes"),
        std::pair("div.full.f32 %r11, %r10, %r2;", "an approximation"),
        std::pair("add.f32 %r11, %r10, %r2;", "without .rn")}) {
    Call call = arrays.call();
    const std::string ours = "add.rn.f32 %r11, %r10, %r2;";
    call.ptx.replace(call.ptx.find(ours), ours.size(), instruction);
    EXPECT_NE(call.complaint().find(reason), std::string::npos) << call.complaint();
  }
}

// What a kernel of ours gives whose threads hold %r1, the input's lower half, and leave %r2.
Words of_body(const std::string& body, const Words& input, int shared_bytes = 0,
              Counters* counters = nullptr) {
  Module module(
      ".extern .shared .align 16 .b8 memory[];\n"
      ".visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)\n{\n"
      ".reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<19>;\n.reg .b64 %d<9>;\n"
      "ld.param.b64 %d1, [k_param_0];\nld.param.b64 %d2, [k_param_1];\n"
      "mov.u32 %r18, %tid.x;\nmul.wide.u32 %d3, %r18, 8;\n"
      "add.s64 %d1, %d1, %d3;\nadd.s64 %d2, %d2, %d3;\nld.global.b32 %r1, [%d1];\n" +
      body + "\ncvt.u64.u32 %d4, %r2;\nst.global.b64 [%d2], %d4;\nret;\n}\n");
  return launched(*module.find("k"), input,
                  {.shape = {.threads = 32, .shared_bytes = shared_bytes}}, counters);
}

TEST(TritonPtx, ReductionsAreOverTheLanesThatAreNamed) {
  Words input(32);
  for (std::size_t i = 0; i < 32; ++i) input[i] = static_cast<std::uint32_t>(i * 3 - 40);
  const auto reduced = [&](const char* which, const char* lanes = "0xffffffff") {
    Counters counters;
    const Words out =
        of_body(std::string("mov.b32 %r3, ") + lanes + ";\nredux.sync." + which + " %r2, %r1, %r3;",
                input, 0, &counters);
    EXPECT_EQ(counters.shuffles, 1U);
    EXPECT_EQ(std::ranges::count(out, out[0]), 32) << which;
    return static_cast<std::int32_t>(out[0]);
  };
  EXPECT_EQ(reduced("add.s32"), 31 * 16 * 3 - 32 * 40);
  EXPECT_EQ(reduced("min.s32"), -40);
  EXPECT_EQ(reduced("max.s32"), 53);
  EXPECT_EQ(reduced("min.u32"), 2);
  EXPECT_EQ(reduced("max.u32"), -1);
  std::uint32_t all = ~0U, any = 0, odd = 0;
  for (const std::uint64_t word : input) {
    all &= static_cast<std::uint32_t>(word);
    any |= static_cast<std::uint32_t>(word);
    odd ^= static_cast<std::uint32_t>(word);
  }
  EXPECT_EQ(reduced("and.b32"), static_cast<std::int32_t>(all));
  EXPECT_EQ(reduced("or.b32"), static_cast<std::int32_t>(any));
  EXPECT_EQ(reduced("xor.b32"), static_cast<std::int32_t>(odd));
  const Words halves = of_body(R"(
    setp.lt.u32 %p1, %r18, 16;
    selp.b32 %r3, 0xffff, 0xffff0000, %p1;
    @!%p1 bra upper;
    redux.sync.max.s32 %r2, %r1, %r3;
    bra.uni end;
  upper:
    redux.sync.max.s32 %r2, %r1, %r3;
  end:)",
                               input);
  EXPECT_EQ(static_cast<std::int32_t>(halves[3]), 5);
  EXPECT_EQ(static_cast<std::int32_t>(halves[20]), 53);
}

// What stmatrix stores ldmatrix loads again, the same way across; and rows lie as the manual says.
TEST(TritonPtx, MatricesAreStoredAsTheyAreLoaded) {
  Words input(32);
  for (std::size_t i = 0; i < 32; ++i) input[i] = (2 * i + 1) << 16 | 2 * i;
  for (const char* across : {"", ".trans"}) {
    const std::string kind = std::string(".sync.aligned.m8n8.x1") + across + ".shared.b16 ";
    const std::string store = R"(
      mov.u32 %r4, memory;
      and.b32 %r5, %r18, 7;
      mad.lo.s32 %r4, %r5, 16, %r4;
      stmatrix)" + kind + "[%r4 + 16], {%r1};\nbar.sync 0;\n";
    Counters counters;
    EXPECT_EQ(of_body(store + "ldmatrix" + kind + "{%r2}, [%r4 + 16];", input, 144, &counters),
              input);
    EXPECT_EQ(counters.shared_wavefronts, 2U);
    EXPECT_EQ(counters.shared_least, 2U);
    // Of row 1 the third element.
    const Words element =
        of_body(store + "mov.u32 %r6, memory;\nld.shared.u16 %r2, [%r6 + 36];", input, 144);
    EXPECT_EQ(element[0], across[0] == '\0' ? 8 + 2 : 2 * 8 + 1);
  }
  const std::string four = R"(
    mov.u32 %r4, memory;
    mad.lo.s32 %r4, %r18, 16, %r4;
    add.s32 %r5, %r1, 1;
    stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {%r1, %r5, %r1, %r5};
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r6, %r2, %r7, %r8}, [%r4];)";
  Words more = input;
  for (std::uint64_t& word : more) ++word;
  EXPECT_EQ(of_body(four, input, 512), more);
}

TEST(TritonPtx, ProductsOfHalvesOfWordsAreWide) {
  const Words input = {3, 0xffff};
  const auto product = [&](const char* type) {
    return of_body(std::string("cvt.u16.u32 %h1, %r1;\nmov.b32 %r3, 7;\nmad.wide.") + type +
                       " %r2, %h1, %h1, %r3;",
                   input);
  };
  EXPECT_EQ(product("u16")[0], 16U);
  EXPECT_EQ(product("u16")[1], 0xfffe'0001U + 7);
  EXPECT_EQ(product("s16")[1], 8U);
}

TEST(TritonPtx, HalvesAreComparedAsNumbers) {
  const Words input = {0, 0x8000, 0x7fc0, 0x3f80};
  const Words out = of_body(R"(
    cvt.u16.u32 %h1, %r1;
    mov.b16 %h2, 0;
    setp.eq.bf16 %p1, %h1, %h2;
    setp.eq.bf16 %p2, %h1, %h1;
    selp.b32 %r2, 1, 0, %p1;
    selp.b32 %r3, 2, 0, %p2;
    or.b32 %r2, %r2, %r3;)",
                            input);
  EXPECT_EQ(Words(out.begin(), out.begin() + 4), (Words{3, 3, 0, 2}));
}

}  // namespace triton
}  // namespace isobit::executor
