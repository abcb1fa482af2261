// SPDX-License-Identifier: Apache-2.0
// The executor of machine code: single instructions, how lanes part and meet, what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "isobit/executor/launch.h"
#include "isobit/executor/memory.h"
#include "isobit/executor/program.h"
#include "isobit/executor/sass_text.h"
#include "launched.h"

namespace isobit::executor {
namespace {

// What is around a body: each thread has its index in R2, two words of input in R10 and R11, and
// what is in R12 and R13 is stored. `name:` is a label, {name} the address of its instruction.
std::string kernel(const std::string& body, const std::string& banks = "") {
  std::istringstream all(
      "S2R R2, SR_TID.X\n"
      "IMAD.MOV.U32 R13, RZ, RZ, RZ\n"
      "S2R R3, SR_CTAID.X\n"
      "IMAD R3, R3, 0x20, R2\n"
      "LDC.64 R6, c[0x0][0x210]\n"
      "LDC.64 R8, c[0x0][0x218]\n"
      "IMAD.WIDE.U32 R6, R3, 0x8, R6\n"
      "IMAD.WIDE.U32 R8, R3, 0x8, R8\n"
      "LDG.E.64 R10, desc[UR4][R6.64]\n" +
      body + "\nstore:\nSTG.E.64 desc[UR4][R8.64], R12\nEXIT\n");
  std::map<std::string, std::string> labels;
  std::vector<std::string> lines;
  for (std::string line; std::getline(all, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (line.empty()) continue;
    if (line.back() == ':')
      labels["{" + line.substr(0, line.size() - 1) + "}"] = hexadecimal(16 * lines.size());
    else
      lines.push_back(line);
  }
  std::string text = ".function k\n.threads 1024\n.parameters 16\n" + banks;
  for (std::string& line : lines) {
    for (const auto& [label, address] : labels)
      if (const std::size_t at = line.find(label); at != line.npos)
        line.replace(at, label.size(), address);
    text += line + "\n";
  }
  return text;
}

Words run(const std::string& body, Words input = {}, const Circumstances& given = {},
          const std::string& banks = "") {
  const std::string text = kernel(body, banks);
  MachineCode code(text);
  return launched(*code.find("k"), std::move(input), given);
}

constexpr std::uint64_t both(std::uint32_t low, std::uint32_t high) {
  return low | std::uint64_t{high} << 32;
}

struct Rule {
  const char* body;
  std::uint64_t input, expected;  // R10 and R11, R12 and R13
};

void require(const Rule& rule, const Schedule& schedule = {}) {
  const Words out = run(rule.body, Words(32, rule.input), {.schedule = schedule});
  EXPECT_EQ(hexadecimal(out[7]), hexadecimal(rule.expected)) << rule.body;
}

TEST(Sass, WholeNumbers) {
  const Rule rules[] = {
      // A negated operand is ~x + 1, and the carry sees both.
      {"IADD3 R12, P0, RZ, -R10, RZ\nSEL R13, R11, RZ, P0", both(0, 7), both(0, 7)},
      {"IADD3 R12, P0, RZ, -R10, RZ\nSEL R13, R11, RZ, P0", both(1, 7), both(~0U, 0)},
      {"IADD3 R12, P0, R10, R11, RZ\nIADD3.X R13, RZ, ~R10, RZ, P0, !PT", both(~0U, 1), both(0, 1)},
      // Three terms have two carries.
      {"IADD3 R12, P0, P1, R10, R10, R10\nIADD3.X R13, RZ, RZ, RZ, P0, P1", both(~0U, 0),
       both(~0U - 2, 2)},
      {"IMAD R12, R10, R11, -R10", both(3, 5), 12},
      {"IADD3 RZ, P0, R10, R10, RZ\nIMAD.X R12, R11, 0x1, ~R11, P0", both(~0U, 9), 0},
      {"IMAD.WIDE R12, R10, R11, RZ", both(~0U, 3), static_cast<std::uint64_t>(-3)},
      {"IMAD.WIDE.U32 R12, R10, -0x3, RZ", both(2, 0), 0x1'ffff'fffa},
      {"IMAD.WIDE.U32 R12, P0, R10, R11, R10\nSEL R13, RZ, 0x1, !P0", both(~0U, ~0U), both(0, 1)},
      {"IMAD.HI.U32 R12, R10, R11, R10", both(~0U, 2), 4},
      {"LEA R12, P0, R10, R11, 0x3\nSEL R13, RZ, 0x1, !P0", both(0x2000'0001, ~0U), both(7, 1)},
      // What is negated has been shifted.
      {"LEA R12, P0, -R10, R11, 0x1\nSEL R13, RZ, 0x1, !P0", both(0x8000'0003, 9), both(3, 1)},
      {"LEA R12, P0, -R10, R11, 0x1\nSEL R13, RZ, 0x1, !P0", both(0, 9), both(9, 1)},
      {"LEA R12, P0, -R10, R11, 0x1\nSEL R13, RZ, 0x1, !P0", both(5, 9), both(~0U, 0)},
      {"LEA.HI.X R12, R10, R11, R11, 0x4, PT", both(0xf000'0000, 1), 0x21},
      {"LEA.HI.X.SX32 R12, R10, R11, 0x1, !PT", both(0x8000'0000, 2), 1},
      {"SHF.R.S32.HI R12, RZ, 0x1f, R10\nSHF.L.U64.HI R13, R10, 0x4, R11", both(0xf000'0000, 3),
       both(~0U, 0x3f)},
      {"SHF.R.S64 R12, R10, 0x1c, R11\nSHF.R.U64 R13, R10, 0x1c, R11",
       both(0xa000'0000, 0x8000'0001), both(0x1a, 0x1a)},
      {"ISETP.GT.U32.AND P0, PT, R2, 0x1c, PT\nSHF.L.W.U32 R12, R10, R11, RZ\nVOTE.ANY R13, PT, P0",
       both(5, 33), both(10, 0xe000'0000)},
      {"SHF.L.W.U32.HI R12, R10, 0x1f, R10\nSHF.L.U32 R13, R10, 0x20, RZ", both(5, 0), 0x8000'0002},
      {"LOP3.LUT P0, R12, R10, R11, RZ, 0x30, !PT\nSEL R13, RZ, 0x1, !P0", both(6, 3), both(4, 1)},
      {"PRMT R12, R10, 0x7610, R11\nPRMT R13, R10, 0x9180, RZ", both(0x8877'8055, 0x4433'2211),
       both(0x4433'8055, 0xff80'0055)},
      {"ISETP.GT.U32.AND P0, PT, R10, 0x5, PT\nISETP.GT.AND.EX P0, P1, R11, RZ, PT, P0\n"
       "SEL R12, RZ, 0x1, !P0\nSEL R13, RZ, 0x1, !P1",
       both(6, 0), both(1, 0)},
      {"ISETP.GT.U32.AND P0, PT, R10, 0x5, PT\nISETP.GE.AND.EX P0, P1, R11, RZ, PT, P0\n"
       "SEL R12, RZ, 0x1, !P0\nSEL R13, RZ, 0x1, !P1",
       both(6, ~0U), both(0, 1)},
      {"VIMNMX R12, R10, -0x2, !PT\nVIMNMX.U32 R13, R10, 0x2, PT", both(~0U, 0), both(~0U, 2)},
      {"VIADDMNMX R12, R10, -R11, 0x3, PT\nIABS R13, R11", both(1, ~0U - 4), both(3, 5)},
      {"VIADDMNMX.RELU R12, R10, -R11, 0x8, PT\nVIADDMNMX.RELU R13, R11, -R10, 0x8, PT", both(3, 5),
       both(0, 2)},
      {"FLO.U32 R12, R10\nFLO.U32 R13, R11", both(0x4000, 0), both(14, ~0U)},
      {"SGXT R12, R10, 0x8", both(0x180, 0), 0xffff'ff80},
      {"ISETP.NE.AND P2, P4, R10, RZ, PT\nP2R R12, PR, R11, 0x14\nR2P PR, R11, 0x7e\n"
       "SEL R13, RZ, 0x1, !P3",
       both(1, 0x109), both(0x10d, 1)},
      {"ISETP.NE.AND P2, PT, R10, RZ, PT\nPLOP3.LUT P0, P1, P2, PT, PT, 0x8, 0x80\n"
       "SEL R12, RZ, 0x1, !P0\nSEL R13, RZ, 0x1, !P1",
       both(1, 0), both(0, 1)},
      {"R2UR UR6, R10\nUIADD3 UR7, UP1, -UR6, URZ, URZ\nUIADD3.X UR8, URZ, URZ, URZ, UP1, !UPT\n"
       "MOV R12, UR7\nMOV R13, UR8",
       both(0, 0), both(0, 1)},
  };
  for (const Rule& rule : rules) require(rule);
}

TEST(Sass, Reals) {
  const float tiny = std::bit_cast<float>(1U);
  const Rule rules[] = {
      {"FADD R12, R10, R11\nFSEL R13, -R11, R10, PT", both(bits(1.0F), 0x7f80'1234),
       both(0x7fff'ffff, 0xff80'1234)},
      {"FADD R12, R10, |R11|\nFADD.FTZ R13, R10, -RZ", both(bits(-tiny), bits(-1.0F)),
       both(bits(1.0F), bits(-0.0F))},
      {"FFMA.RP R12, R10, R11, 0f3f800000\nFFMA.RZ R13, R10, R11, 0f3f800000",
       both(bits(tiny), bits(1.0F)), both(bits(1.0F) + 1, bits(1.0F))},
      {"FFMA.RM R12, R10, R11, 0fbf800000\nFFMA R13, R10, R11, 0fbf800000",
       both(bits(-tiny), bits(1.0F)), both(bits(-1.0F) + 1, bits(-1.0F))},
      {"DMUL.RP R12, R10, 0f3fd00000", bits(std::nextafter(0x1p-1021, 1.0)),
       bits(std::nextafter(0x1p-1023, 1.0))},
      {"DFMA R12, R10, R10, -R10", bits(3.0), bits(6.0)},
      {"FSETP.GEU.AND P0, P1, R10, R11, PT\nSEL R12, RZ, 0x1, !P0\nSEL R13, RZ, 0x1, !P1",
       both(bits(1.0F), 0x7fc0'0000), both(1, 0)},
      {"FSETP.NE.OR P0, PT, R10, R11, !PT\nSEL R12, RZ, 0x1, !P0\nFSETP.NEU.AND P0, PT, R10, R11, "
       "PT\n"
       "SEL R13, RZ, 0x1, !P0",
       both(bits(1.0F), 0x7fc0'0000), both(0, 1)},
      {"F2F.F64.F32 R4, R10\nF2F.F64.F32 R14, R11\nDSETP.MAX.AND P0, P1, |R4|, |R14|, PT\n"
       "SEL R12, RZ, 0x1, !P0\nSEL R13, RZ, 0x1, !P1",
       both(bits(-2.0F), 0x7fc0'0000), both(1, 0)},
      {"F2F.F64.F32 R4, R10\nF2F.F64.F32 R14, R11\nDSETP.MIN.AND P0, P1, |R4|, |R14|, PT\n"
       "SEL R12, RZ, 0x1, !P0\nSEL R13, RZ, 0x1, !P1",
       both(bits(-2.0F), bits(3.0F)), both(1, 0)},
      {"FMNMX R12, R10, R11, PT\nFMNMX R13, R10, R11, !PT", both(bits(-0.0F), bits(0.0F)),
       both(bits(-0.0F), bits(0.0F))},
      // Halves: to nearest even, and a NaN of 0x7fff.
      {"F2FP.BF16.F32.PACK_AB R12, R11, R10\nF2FP.F16.F32.PACK_AB R13, RZ, R10",
       both(0x3f80'8000, 0x7fc0'0000), both(0x7fff'3f80, 0x3c04)},
      {"HADD2.F32 R12, -RZ, R10.H0_H0\nHADD2.F32 R13, -RZ, R10.H1_H1", both(0xbc00'0001, 0),
       both(bits(0x1p-24F), bits(-1.0F))},
      {"HFMA2.MMA R12, -RZ, RZ, 0f0001fc01", 0, 0x1'fc01},
      {"I2F.U32.RP R12, R10\nF2I.FTZ.U32.TRUNC.NTZ R13, R11", both(0x100'0001, bits(7.9F)),
       both(bits(0x1.000002p24F), 7)},
      {"I2F.S64 R12, R10", both(~0U, ~0U), bits(-1.0F)},
      {"FMNMX.NAN R12, R10, R11, PT", both(0xffc0'0000, bits(1.0F)), 0x7fff'ffff},
      {"I2FP.F32.S32 R12, R10", both(~0U, 0), bits(-1.0F)},
      {"I2F.RP R12, R10", both(static_cast<std::uint32_t>(-0x100'0001), 0), bits(-0x1p24F)},
      {"F2I.U64.TRUNC R12, R10", bits(0x1.8p40F), 0x180'0000'0000},
      {"I2F.F64.U32 R12, R10", both(~0U, 0), bits(0x1p32 - 1)},
      {"I2F.F64.U64 R12, R10", both(0, ~0U), bits(0x1p64 - 0x1p32)},
      {"I2F.U16 R12, R10", both(0x1'ffff, 0), bits(65535.0F)},
      {"F2I.U64.F64.TRUNC R12, R10", bits(0x1.8p40 + 0.5), 0x180'0000'0000},
      {"FCHK P0, R10, R11\nSEL R12, RZ, 0x1, !P0\nFCHK P0, R11, R10\nSEL R13, RZ, 0x1, !P0",
       both(bits(tiny), bits(1.0F)), both(1, 1)},
  };
  for (const Rule& rule : rules) require(rule);
}

TEST(Sass, ApproximationsAreOffWhereALaunchAsksForIt) {
  const Rule exact = {"MUFU.RCP R12, R10\nMUFU.RSQ64H R13, R11", both(bits(4.0F), 0x4010'0000),
                      both(bits(0.25F), 0x3fe0'0000)};
  require(exact);
  Rule off = exact;
  off.expected = both(bits(0.25F) - 1, 0x3fdf'ffff);
  require(off, {.approximation = -1});
  require({exact.body, both(bits(0.0F), 0x7ff0'0000), both(0x7f80'0000, 0)}, {.approximation = -1});
  require({"FCHK P0, R10, R11\nSEL R12, RZ, 0x1, !P0", both(bits(1.0F), bits(3.0F)), 0});
  require({"FCHK P0, R10, R11\nSEL R12, RZ, 0x1, !P0", both(bits(1.0F), bits(3.0F)), 1},
          {.long_divisions = true});
}

// ---- lanes part and meet -----------------------------------------------------------------------

// Half the lanes take another way; behind BSYNC all are there, in every schedule.
TEST(Sass, LanesMeetAtTheBarrierThatTheyCameFrom) {
  const char* const body = R"(
    BSSY B0, {meet}
    ISETP.GE.AND P0, PT, R2, 0x10, PT
    MOV R4, 0x1
    @P0 BRA {meet}
    MOV R4, 0x2
    meet:
    BSYNC B0
    SHFL.BFLY PT, R12, R4, 0x10, 0x1f)";
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Words out = run(body, {}, {.schedule = {.order = Order::random, .seed = seed}});
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i < 16 ? 1U : 2U);
  }
}

TEST(Sass, NobodyWaitsForLanesThatLeftTheBarrierOrEnded) {
  const Words out = run(R"(
    BSSY B0, {meet}
    ISETP.GE.AND P0, PT, R2, 0x10, PT
    MOV R12, 0x7
    @!P0 BRA {meet}
    ISETP.GE.AND P1, PT, R2, 0x18, PT
    @P1 EXIT
    ISETP.GE.AND P2, PT, R2, 0x14, PT
    BREAK P2, B0
    @P2 BRA {left}
    BREAK B0
    left:
    MOV R12, 0x8
    BRA {store}
    meet:
    BSYNC B0)");
  EXPECT_EQ(out[15], 7U);
  EXPECT_EQ(out[16], 8U);
  EXPECT_EQ(out[24], ~std::uint64_t{0}) << "ended before it stored";
}

TEST(Sass, ABarrierIsKeptInARegister) {
  const Words out = run(R"(
    BSSY B1, {meet}
    BMOV.32.CLEAR R20, B1
    BMOV.32 B3, R20
    ISETP.GE.AND P0, PT, R2, 0x10, PT
    MOV R12, R20
    @P0 BRA.U {meet}
    BSYNC B1
    meet:
    BSYNC B3)");
  EXPECT_EQ(out[20], 0xffff'ffffU);
}

TEST(Sass, EachLaneReturnsAndJumpsByItsOwnRegister) {
  const Words out = run(R"(
    MOV R20, {first}
    ISETP.GE.AND P0, PT, R2, 0x10, PT
    @P0 MOV R20, {second}
    CALL.REL.NOINC {function}
    first:
    VIADD R12, R12, 0x64
    BRA {on}
    second:
    VIADD R12, R12, 0xc8
    on:
    SHF.R.U32.HI R4, RZ, 0x3, R2
    IMAD.SHL.U32 R4, R4, 0x4, RZ
    LDC R4, c[0x2][R4]
    here:
    BRX R4 -0x170
    VIADD R12, R12, 0x1
    BRA {store}
    function:
    IMAD R12, R2, R2, RZ
    RET.REL.NODEC R20 0x0)",
                        {}, {}, ".bank 2 70010000800100007001000080010000\n");
  for (std::size_t i = 0; i < 32; ++i)
    EXPECT_EQ(out[i], i * i + (i < 16 ? 100 : 200) + (i / 8 % 2 == 0 ? 1 : 0));
}

TEST(Sass, WhatAWarpHoldsOnce) {
  const Words out = run(R"(
    SHF.R.U32.HI R4, RZ, 0x3, R2
    MATCH.ANY R12, R4
    ISETP.GE.AND P0, PT, R2, 0x4, PT
    VOTEU.ANY UR5, UPT, P0
    REDUX.OR UR6, R2
    ELECT P1, URZ, PT
    SEL R13, RZ, 0x1, !P1
    @P0 R2UR UR7, R2
    IMAD.SHL.U32 R13, R13, 0x100, RZ
    IADD3 R13, R13, UR7, RZ
    LOP3.LUT R12, R12, UR5, RZ, 0xc0, !PT
    IADD3 R13, R13, UR6, RZ)");
  EXPECT_EQ(out[9], both(0xff00, 4 + 31));
  EXPECT_EQ(out[1], both(0xf0, 4 + 31));
  EXPECT_EQ(out[0], both(0xf0, 0x100 + 4 + 31));
}

// ---- memory ------------------------------------------------------------------------------------

TEST(Sass, SharedAndLocalMemoryHaveGenericAddresses) {
  const Words out = run(R"(
    S2UR UR5, SR_CgaCtaId
    UMOV UR4, 0x400
    ULEA UR4, UR5, UR4, 0x18
    LEA R4, R2, UR4, 0x2
    STS [R4], R10
    BAR.SYNC.DEFER_BLOCKING 0x0
    S2R R5, SR_SWINHI
    LOP3.LUT R4, R4, 0x4, RZ, 0x3c, !PT
    LD.E R12, desc[UR4][R4.64]
    LDC R1, c[0x0][0x28]
    VIADD R1, R1, 0xfffffff8
    LDC.64 R14, c[0x0][0x20]
    IADD3 R14, P0, R1, R14, RZ
    IMAD.X R15, RZ, RZ, R15, P0
    ST.E desc[UR4][R14.64+0x4], R11
    LDL R13, [R1+0x4])",
                        [] {
                          Words input(32);
                          for (std::uint32_t i = 0; i < 32; ++i) input[i] = both(i, 100 + i);
                          return input;
                        }(),
                        {.shape = {.threads = 32, .shared_bytes = 128}});
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], both(i ^ 1, 100 + i));
}

TEST(Sass, ConstantsOfTwoBytesHaveZerosBeforeThem) {
  EXPECT_EQ(run("LDC.U16 R12, c[0x2][0x2]", {}, {}, ".bank 2 0102fffe\n")[5], 0xfeffU);
}

TEST(Sass, EachLaneAddsToOneWordAndGetsWhatWasThere) {
  const Words out = run(R"(
    LDC.64 R14, c[0x0][0x218]
    STG.E.STRONG.GPU desc[UR4][R14.64], R2
    WARPSYNC.ALL
    IADD3 R4, R2, 0x1, RZ
    ATOMG.E.ADD.STRONG.GPU PT, R12, desc[UR4][R14.64], R4
    LDG.E.STRONG.GPU R13, desc[UR4][R14.64])");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], both(31 + i * (i + 1) / 2, 31 + 528));
}

TEST(Sass, LanesAddFloatsWhereSubnormalsAreZeros) {
  const std::string add = R"(
    LDC.64 R14, c[0x0][0x218]
    IMAD.MOV.U32 R4, RZ, RZ, R10
    STG.E.STRONG.GPU desc[UR4][R14.64], R11
    WARPSYNC.ALL
    REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R14.64], R4
    LDG.E.STRONG.GPU R12, desc[UR4][R14.64])";
  EXPECT_EQ(run(add, Words(32, both(0x3fc0'0000, 1)))[7], both(0x4240'0000, 0));
}

TEST(Sass, SharedMemoryOfAnotherBlockOfTheClusterIsReached) {
  const Words out =
      run(R"(
    S2R R4, SR_CgaCtaId
    IMAD.MOV.U32 R5, RZ, RZ, 0x400
    LEA R5, R4, R5, 0x18
    STS [R5], R3
    UCGABAR_ARV
    UCGABAR_WAIT
    LOP3.LUT R4, R4, 0x1, RZ, 0x3c, !PT
    IMAD.MOV.U32 R14, RZ, RZ, 0x400
    LEA R14, R4, R14, 0x18
    S2R R15, SR_SWINHI
    LD.E R12, desc[UR4][R14.64]
    UCGABAR_ARV
    UCGABAR_WAIT
    LDC R13, c[0x0][0x188])",
          {}, {.shape = {.blocks = 4, .threads = 32, .cluster = 2, .shared_bytes = 16}});
  for (std::size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(out[i], both(static_cast<std::uint32_t>((i / 32 ^ 1) * 32 + 31), 2));
}

// A bulk copy of 256 bytes, for which thread 0 expects so many.
std::string bulk(const std::string& expected) {
  return R"(
    ISETP.NE.AND P0, PT, R2, RZ, PT
    UMOV UR10, 0x1
    UIADD3 UR10, -UR10, 0x100000, URZ
    USHF.L.U32 UR11, UR10, 0xb, URZ
    USHF.L.U32 UR10, UR10, 0x1, URZ
    UMOV UR12, 0x400
    UMOV UR13, 0x500
    @P0 BRA {wait}
    SYNCS.EXCH.64 URZ, [UR13], UR10
    MOV R20, )" +
         expected + R"(
    SYNCS.ARRIVE.TRANS64 RZ, [UR13], R20
    R2UR UR14, R6
    R2UR UR15, R7
    UMOV UR16, 0x10
    UBLKCP.S.G [UR12], [UR14], UR16
    wait:
    BAR.SYNC.DEFER_BLOCKING 0x0
    MOV R20, UR13
    again:
    SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R20+URZ], RZ
    @!P1 BRA {again}
    LEA R20, R2, 0x400, 0x3
    LDS.64 R12, [R20])";
}

TEST(Sass, BulkCopiesLandBeforeTheirBarrierOpens) {
  const LaunchShape shape = {.threads = 32, .shared_bytes = 264};
  Words input(32);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = 1000 + i;
  for (const bool early : {false, true})
    EXPECT_EQ(run(bulk("0x100"), input, {.shape = shape, .schedule = {.copies_land_early = early}}),
              input);
  EXPECT_NE(complaint<LaunchError>([&] {
              run(bulk("0x110"), {}, {.shape = shape});
            }).find("nobody can go"),
            std::string::npos);
}

// ---- what is punished, and what is refused -----------------------------------------------------

TEST(SassFaults, AreNamedWithTheirAddress) {
  const LaunchShape shared = {.threads = 32, .shared_bytes = 64};
  const struct {
    const char *body, *what;
    LaunchShape shape = {.threads = 32};
  } faults[] = {
      {"LDG.E R12, desc[UR4][R8.64+0x100]", "beyond an array of 256"},
      {"LDG.E.64 R12, desc[UR4][R8.64+0x4]", "misaligned"},
      {"LDS R12, [RZ]", "before the block's memory", shared},
      {"MOV R4, 0x440\nLDS R12, [R4]", "of 64 bytes of shared memory", shared},
      {"MOV R4, 0x1000400\nLDS R12, [R4]", "shared memory of another block", shared},
      {"MOV R4, 0x4000\nLDL R12, [R4]", "beyond local memory"},
      {"LDC R12, c[0x0][R2+0x210]", "a constant that is not known"},
      {"ISETP.GE.AND P0, PT, R2, 0x10, PT\n@P0 SHFL.BFLY PT, R12, R2, 0x10, 0x1f",
       "which does not take part"},
      {"MOV R20, 0x8\nRET.REL.NODEC R20 0x0", "where there is no instruction"},
      {"F2I.U64.TRUNC R12, R2\nMOV R4, 0f7fc00000\nF2I.U64.TRUNC R12, R4",
       "a NaN becomes a whole number"},
      {"WARPSYNC.COLLECTIVE R2, {store}", "which is not known"},
  };
  for (const auto& fault : faults) {
    const std::string said =
        complaint<LaunchError>([&] { run(fault.body, {}, {.shape = fault.shape}); });
    EXPECT_NE(said.find(fault.what), std::string::npos) << fault.body << "\n" << said;
    EXPECT_NE(said.find("machine code at 0x"), std::string::npos) << said;
  }
}

TEST(SassRefusals, OfWhatTheExecutorDoesNotKnow) {
  for (const char* const line : {"FADD.SAT R12, R10, R11",
                                 "FMUL.RZ R12, R10, R11",
                                 "MUFU.SIN R12, R10",
                                 "FOO R12, R10",
                                 "LDSM.16.M88.4 R12, [R10]",
                                 "IADD3 R12, R10, R11",
                                 "IADD3 R12, R10, R11, RZ, R2",
                                 "FFMA R12, |R10|, R11, R10",
                                 "LEA R12, ~R10, R11, 0x2",
                                 "ISETP.F.AND P0, PT, R10, R11, PT",
                                 "LDG.128 R12, [R8]",
                                 "LDC R12, c[0x0][0x1f0]",
                                 "LDC R12, c[0x3][0x10]",
                                 "BAR.SYNC.DEFER_BLOCKING 0x1",
                                 "BRA 0x8",
                                 "BRA 0x100000",
                                 "S2R R12, SR_CLOCKLO",
                                 "HADD2.F32 R12, RZ, R10.H0_H0",
                                 "R2P PR, R10, 0xff",
                                 "VOTEU.ALL UR4, UPT, PT",
                                 "DADD R12, R10, 0x5"}) {
    const std::string said = complaint<SassError>([&] { run(line); });
    EXPECT_NE(said.find(line), std::string::npos) << line << ": " << said;
  }
}

// The files that a variable of the environment names: every kernel in them is translated.
TEST(SassKernels, AreAllTranslated) {
  const char* const files = std::getenv("ISOBIT_MACHINE_CODE");
  if (files == nullptr) GTEST_SKIP() << "ISOBIT_MACHINE_CODE names no files";
  std::istringstream names(files);
  std::size_t count = 0;
  for (std::string name; std::getline(names, name, ':');) {
    std::ifstream file(name);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    MachineCode code(text);
    count += machine_functions_of(text).size();
    for (const auto& function : machine_functions_of(text))
      EXPECT_EQ(complaint<SassError>([&] { code.find(function.first); }), "nothing");
  }
  EXPECT_GT(count, 100U);
}

}  // namespace
}  // namespace isobit::executor
