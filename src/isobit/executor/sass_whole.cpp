// SPDX-License-Identifier: Apache-2.0
// What machine code computes with whole numbers and bits.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "isobit/executor/sass_operands.h"

namespace isobit::executor {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s32 = std::int32_t;
using s64 = std::int64_t;

constexpr u64 wide(u32 low, u32 high) { return low | u64{high} << 32; }
constexpr s32 as_signed(u32 x) { return static_cast<s32>(x); }

// ---- of 32 bits --------------------------------------------------------------------------------

// d = f(a, b, c, number)
template <auto kFormula>
void compute(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0), b(warp, i, 1), c(warp, i, 2);
  const auto number = static_cast<u32>(i.number);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = kFormula(a[lane], b[lane], c[lane], number); });
}

void move(Warp& warp, const Instruction& i) {
  const u32* a = warp.in<u32>(i.slots[kOperands]);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = a[lane]; });
}

// d = a, if the predicate holds, else b; or whatever the formula makes of it.
template <auto kFormula>
void choose(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0), b(warp, i, 1), c(warp, i, 2);
  const u32 chosen = lanes_holding(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {
    d[lane] = kFormula(a[lane], b[lane], c[lane], (chosen >> lane & 1) != 0);
  });
}

u32 by_table(u32 a, u32 b, u32 c, u32 table) {
  u32 result = 0;
  for (u32 k = 0; k < 8; ++k)
    if ((table >> k & 1) != 0)
      result |= ((k & 4) != 0 ? a : ~a) & ((k & 2) != 0 ? b : ~b) & ((k & 1) != 0 ? c : ~c);
  return result;
}

void logic(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0), b(warp, i, 1), c(warp, i, 2);
  const auto table = static_cast<u32>(i.number);
  u32* d = warp.out<u32>(i.slots[kResult]);
  u32 any = 0;
  const auto each = [&](const auto& formula) {
    for_lanes(warp.lanes, [&](int lane) {
      const u32 result = formula(a[lane], b[lane], c[lane]);
      d[lane] = result;
      any |= u32{result != 0} << lane;
    });
  };
  switch (table) {  // what is usual, without the loop over the table
    case 0xc0: each([](u32 x, u32 y, u32) { return x & y; }); break;
    case 0xfc: each([](u32 x, u32 y, u32) { return x | y; }); break;
    case 0x3c: each([](u32 x, u32 y, u32) { return x ^ y; }); break;
    default:   each([&](u32 x, u32 y, u32 z) { return by_table(x, y, z, table); });
  }
  write_predicate(warp, i.slots[kWrites], any | lanes_holding(warp, i, 0));
}

// Bytes of a and c by the nibbles of b; the top bit of a nibble repeats the byte's sign.
u32 permute(u32 a, u32 selector, u32 c, u32) {
  const u64 both = wide(a, c);
  u32 result = 0;
  for (int k = 0; k < 4; ++k) {
    const u32 nibble = selector >> (4 * k) & 15;
    u32 byte = static_cast<u32>(both >> (8 * (nibble & 7))) & 255;
    if ((nibble & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    result |= byte << (8 * k);
  }
  return result;
}

// Of the number whose lower half is a, and c its upper one.
u32 shift_left_low(u32 a, u32 by, u32, u32) { return static_cast<u32>(by > 31 ? 0 : a << by); }
u32 shift_left_low_wrapped(u32 a, u32 by, u32, u32) { return a << (by & 31); }
u32 shift_left_high(u32 a, u32 by, u32 c, u32) {
  return static_cast<u32>(by > 63 ? 0 : wide(a, c) << by >> 32);
}
u32 shift_left_high_wrapped(u32 a, u32 by, u32 c, u32) {
  return static_cast<u32>(wide(a, c) << (by & 31) >> 32);
}
u32 shift_right_low(u32 a, u32 by, u32 c, u32) {
  return static_cast<u32>(by > 63 ? 0 : wide(a, c) >> by);
}
u32 shift_right_low_signed(u32 a, u32 by, u32 c, u32) {
  return static_cast<u32>(static_cast<s64>(wide(a, c)) >> std::min(by, 63U));
}
u32 shift_right_high(u32, u32 by, u32 c, u32) { return by > 31 ? 0 : c >> by; }
u32 shift_right_high_signed(u32, u32 by, u32 c, u32) {
  return static_cast<u32>(as_signed(c) >> std::min(by, 31U));
}

// The lower `bits` of a, whose uppermost is its sign.
u32 extend_sign(u32 a, u32 bits, u32, u32) {
  const u32 unused = 32 - std::clamp(bits, 1U, 32U);
  return static_cast<u32>(as_signed(a << unused) >> unused);
}

// ---- sums with carries -------------------------------------------------------------------------

void add_three(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0), b(warp, i, 1), c(warp, i, 2);
  const u32 carries = lanes_holding(warp, i, 0), others = lanes_holding(warp, i, 1);
  u32* d = warp.out<u32>(i.slots[kResult]);
  u32 one = 0, two = 0;
  for_lanes(warp.lanes, [&](int lane) {
    const u64 sum =
        a.term(lane) + b.term(lane) + c.term(lane) + (carries >> lane & 1) + (others >> lane & 1);
    d[lane] = static_cast<u32>(sum);
    one |= u32{sum >> 32 > 0} << lane;
    two |= u32{sum >> 32 > 1} << lane;
  });
  write_predicate(warp, i.slots[kWrites], one);
  write_predicate(warp, i.slots[kWrites + 1], two);
}

void multiply_add_carry(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0), b(warp, i, 1), c(warp, i, 2);
  const u32 carries = lanes_holding(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes,
            [&](int lane) { d[lane] = a[lane] * b[lane] + c[lane] + (carries >> lane & 1); });
}

// a * b + c of 64 bits, or its upper half, and its carry.
template <bool kSigned, bool kUpper>
void multiply_add_wide(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0), b(warp, i, 1);
  const Pair c(warp, i, 2);
  u32 over = 0;
  const auto sum = [&](int lane) {
    const u64 product = kSigned ? static_cast<u64>(s64{as_signed(a[lane])} * as_signed(b[lane]))
                                : u64{a[lane]} * b[lane];
    const u64 result = product + c[lane];
    over |= u32{result < product} << lane;
    return result;
  };
  if constexpr (kUpper) {
    u32* d = warp.out<u32>(i.slots[kResult]);
    for_lanes(warp.lanes, [&](int lane) { d[lane] = static_cast<u32>(sum(lane) >> 32); });
  } else {
    const ResultPair d(warp, i);
    for_lanes(warp.lanes, [&](int lane) { d.set(lane, sum(lane)); });
  }
  write_predicate(warp, i.slots[kWrites], over);
}

// (a << number) + b, or of the number with the upper half c the upper half of what is shifted.
enum class Upper : std::uint8_t { none, given, sign };
template <Upper kUpper>
void shift_add(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0), b(warp, i, 1), c(warp, i, 2);
  const auto by = static_cast<u32>(i.number);
  const u32 carries = lanes_holding(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  u32 over = 0;
  for_lanes(warp.lanes, [&](int lane) {
    u64 shifted = a.term(lane, by);
    if (kUpper != Upper::none) {
      const u32 upper =
          kUpper == Upper::given ? c[lane] : static_cast<u32>(as_signed(a[lane]) >> 31);
      shifted = wide(a[lane], upper) << by >> 32;
    }
    const u64 sum = shifted + b.term(lane) + (carries >> lane & 1);
    d[lane] = static_cast<u32>(sum);
    over |= u32{sum >> 32 > 0} << lane;
  });
  write_predicate(warp, i.slots[kWrites], over);
}

// ---- comparisons -------------------------------------------------------------------------------

// p, q = a ? b joined with a predicate; q has the opposite. With kExtended they are upper halves,
// and the second predicate is what the lower ones gave.
template <class T, auto kFormula, bool kExtended>
void compare(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0), b(warp, i, 1);
  u32 found = 0, equal = 0;
  for_lanes(warp.lanes, [&](int lane) {
    const T x = static_cast<T>(a[lane]), y = static_cast<T>(b[lane]);
    found |= u32{kFormula(x, y)} << lane;
    equal |= u32{x == y} << lane;
  });
  if constexpr (kExtended) {
    const u32 lower = lanes_holding(warp, i, 1);
    found = (found & ~equal) | (equal & lower);
  }
  const u32 joining = lanes_holding(warp, i, 0);
  write_predicate(warp, i.slots[kWrites], joined(found, joining, i.number));
  write_predicate(warp, i.slots[kWrites + 1], joined(~found, joining, i.number));
}

template <class T, bool kExtended>
Handler comparison(std::string_view how) {
  if (how == "GT") return compare<T, [](T x, T y) { return y < x; }, kExtended>;
  if (how == "GE") return compare<T, [](T x, T y) { return x >= y; }, kExtended>;
  if (how == "LT") return compare<T, [](T x, T y) { return x < y; }, kExtended>;
  if (how == "LE") return compare<T, [](T x, T y) { return x <= y; }, kExtended>;
  if (how == "EQ") return compare<T, [](T x, T y) { return x == y; }, kExtended>;
  if (how == "NE") return compare<T, [](T x, T y) { return x != y; }, kExtended>;
  return nullptr;
}

std::optional<Computation> comparing(const OpcodeParts& parts) {
  bool is_unsigned = false, extended = false;
  for (std::size_t k = 2; k < parts.size(); ++k) {
    if (parts[k] == "U32")
      is_unsigned = true;
    else if (parts[k] == "EX")
      extended = true;
    else if (parts[k] != "AND" && parts[k] != "OR" && parts[k] != "XOR")
      return std::nullopt;
  }
  if (parts.size() < 3) return std::nullopt;
  const Handler found =
      is_unsigned ? extended ? comparison<u32, true>(parts[1]) : comparison<u32, false>(parts[1])
      : extended ? comparison<s32, true>(parts[1])
                  : comparison<s32, false>(parts[1]);
  if (found == nullptr) return std::nullopt;
  return Computation{found, Kind::integer, extended ? "PPrrpp" : "PPrrp"};
}

struct Row {
  std::string_view opcode;
  Computation computation;
};

template <class T>
constexpr u32 bound(u32 a, u32 b, bool least) {
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return static_cast<u32>(least ? std::min(x, y) : std::max(x, y));
}

constexpr auto kMultiplyAdd = [](u32 a, u32 b, u32 c, u32) { return a * b + c; };
constexpr Handler kTimesPlus = compute<kMultiplyAdd>;
constexpr Kind kInteger = Kind::integer;

const Row kRows[] = {
    {"MOV", {move, Kind::move, "Rr"}},
    {"IMAD", {kTimesPlus, kInteger, "Rrrr", "-~"}},
    {"IMAD.U32", {kTimesPlus, kInteger, "Rrrr", "-~"}},
    {"IMAD.MOV", {kTimesPlus, kInteger, "Rrrr", "-~"}},
    {"IMAD.MOV.U32", {kTimesPlus, Kind::move, "Rrrr", "-~"}},
    {"IMAD.IADD", {kTimesPlus, kInteger, "Rrrr", "-~"}},
    {"IMAD.SHL", {kTimesPlus, kInteger, "Rrrr", "-~"}},
    {"IMAD.SHL.U32", {kTimesPlus, kInteger, "Rrrr", "-~"}},
    {"IMAD.X", {multiply_add_carry, kInteger, "Rrrrp", "-~"}},
    {"IMAD.WIDE", {multiply_add_wide<true, false>, kInteger, "DP?rrd"}},
    {"IMAD.WIDE.U32", {multiply_add_wide<false, false>, kInteger, "DP?rrd"}},
    {"IMAD.HI", {multiply_add_wide<true, true>, kInteger, "RP?rrd"}},
    {"IMAD.HI.U32", {multiply_add_wide<false, true>, kInteger, "RP?rrd"}},
    {"IADD3", {add_three, kInteger, "RP?P?rrr", "-~"}},
    {"IADD3.X", {add_three, kInteger, "RP?P?rrrpp", "-~"}},
    {"VIADD", {compute<[](u32 a, u32 b, u32, u32) { return a + b; }>, kInteger, "Rrr", "-"}},
    {"LEA", {shift_add<Upper::none>, kInteger, "RP?rrn", "-"}},
    {"LEA.HI", {shift_add<Upper::given>, kInteger, "RP?rrrn"}},
    {"LEA.HI.X", {shift_add<Upper::given>, kInteger, "RP?rrrnp"}},
    {"LEA.HI.SX32", {shift_add<Upper::sign>, kInteger, "RP?rrn"}},
    {"LEA.HI.X.SX32", {shift_add<Upper::sign>, kInteger, "RP?rrnp"}},
    {"LOP3.LUT", {logic, kInteger, "P?Rrrrnp"}},
    {"PRMT", {compute<permute>, kInteger, "Rrrr"}},
    {"SHF.L.U32", {compute<shift_left_low>, kInteger, "Rrrr"}},
    {"SHF.L.W.U32", {compute<shift_left_low_wrapped>, kInteger, "Rrrr"}},
    {"SHF.L.U64.HI", {compute<shift_left_high>, kInteger, "Rrrr"}},
    {"SHF.L.W.U32.HI", {compute<shift_left_high_wrapped>, kInteger, "Rrrr"}},
    {"SHF.R.U64", {compute<shift_right_low>, kInteger, "Rrrr"}},
    {"SHF.R.S64", {compute<shift_right_low_signed>, kInteger, "Rrrr"}},
    {"SHF.R.U32.HI", {compute<shift_right_high>, kInteger, "Rrrr"}},
    {"SHF.R.S32.HI", {compute<shift_right_high_signed>, kInteger, "Rrrr"}},
    {"SEL",
     {choose<[](u32 a, u32 b, u32, bool first) { return first ? a : b; }>, kInteger, "Rrrp"}},
    {"VIMNMX",
     {choose<[](u32 a, u32 b, u32, bool least) { return bound<s32>(a, b, least); }>, kInteger,
      "Rrrp"}},
    {"VIMNMX.U32",
     {choose<[](u32 a, u32 b, u32, bool least) { return bound<u32>(a, b, least); }>, kInteger,
      "Rrrp"}},
    {"VIADDMNMX",
     {choose<[](u32 a, u32 b, u32 c, bool least) { return bound<s32>(a + b, c, least); }>, kInteger,
      "Rrrrp", "-"}},
    {"VIADDMNMX.RELU",
     {choose<[](u32 a, u32 b, u32 c, bool least) {
        return bound<s32>(bound<s32>(a + b, c, least), 0, false);
      }>,
      kInteger, "Rrrrp", "-"}},
    {"VIADDMNMX.U32",
     {choose<[](u32 a, u32 b, u32 c, bool least) { return bound<u32>(a + b, c, least); }>, kInteger,
      "Rrrrp", "-"}},
    {"IABS",
     {compute<[](u32 a, u32, u32, u32) { return as_signed(a) < 0 ? 0U - a : a; }>, kInteger, "Rr"}},
    {"FLO.U32",
     {compute<[](u32 a, u32, u32, u32) { return 31U - static_cast<u32>(std::countl_zero(a)); }>,
      kInteger, "Rr"}},
    {"SGXT", {compute<extend_sign>, kInteger, "Rrr"}},
};

}  // namespace

std::optional<Computation> whole_computation(const OpcodeParts& parts) {
  if (parts[0] == "ISETP") return comparing(parts);
  const auto* row = std::ranges::find(kRows, together(parts), &Row::opcode);
  return row == std::end(kRows) ? std::nullopt : std::optional(row->computation);
}

}  // namespace isobit::executor
