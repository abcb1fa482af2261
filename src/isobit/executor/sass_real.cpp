// SPDX-License-Identifier: Apache-2.0
// What machine code computes with floating-point numbers: each result rounds once, to nearest even
// or as the instruction says; a NaN in f32 is 0x7fffffff.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "isobit/executor/sass_operands.h"

namespace isobit::executor {
namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

u32 bits_of(float x) { return x == x ? std::bit_cast<u32>(x) : 0x7fff'ffffU; }
u64 bits_of(double x) { return std::bit_cast<u64>(x); }

// ---- arithmetic --------------------------------------------------------------------------------

// The processor's rounding for as long as it lives, kept apart from what is computed before and
// after it.
class Rounding {
 public:
  explicit Rounding(unsigned mode) : before_(_mm_getcsr()) {
    _mm_setcsr((before_ & ~0x6000U) | mode);
  }
  ~Rounding() { _mm_setcsr(before_); }
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;

 private:
  unsigned before_;
};
constexpr unsigned kDown = 0x2000, kUp = 0x4000, kTowardZero = 0x6000;

template <class T>
T held(T x) {  // neither moved over a change of rounding nor computed beforehand
  asm volatile("" : "+x"(x));
  return x;
}

struct Nearest {};
template <unsigned kMode>
struct Directed {};

template <class Mode, class T, class Formula>
T rounded(const Formula& formula, T a, T b, T c) {
  if constexpr (std::is_same_v<Mode, Nearest>) {
    return formula(a, b, c);
  } else {
    return []<unsigned kMode>(Directed<kMode>, const Formula& f, T x, T y, T z) {
      const Rounding rounding(kMode);
      return held(f(held(x), held(y), held(z)));
    }(Mode{}, formula, a, b, c);
  }
}

float flushed(float x) { return std::abs(x) < std::numeric_limits<float>::min() ? x * 0.0F : x; }

template <class Mode, bool kFlushes, auto kFormula>
void single(Warp& warp, const Instruction& i) {
  const Single a(warp, i, 0), b(warp, i, 1), c(warp, i, 2);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {
    if constexpr (kFlushes)
      d[lane] = bits_of(flushed(kFormula(flushed(a[lane]), flushed(b[lane]), flushed(c[lane]))));
    else
      d[lane] = bits_of(rounded<Mode>(kFormula, a[lane], b[lane], c[lane]));
  });
}

template <class Mode, auto kFormula>
void twice(Warp& warp, const Instruction& i) {
  const Double a(warp, i, 0), b(warp, i, 1), c(warp, i, 2);
  const ResultPair d(warp, i);
  for_lanes(warp.lanes, [&](int lane) {
    d.set(lane, bits_of(rounded<Mode>(kFormula, a[lane], b[lane], c[lane])));
  });
}

constexpr auto kAdd = [](auto a, auto b, auto) { return a + b; };
constexpr auto kMultiply = [](auto a, auto b, auto) { return a * b; };
constexpr auto kFused = [](auto a, auto b, auto c) { return std::fma(a, b, c); };

// The bits of a or of b, with their signs as the operands say.
void select(Warp& warp, const Instruction& i) {
  const Single a(warp, i, 0), b(warp, i, 1);
  const u32 chosen = lanes_holding(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes,
            [&](int lane) { d[lane] = (chosen >> lane & 1) != 0 ? a.bits(lane) : b.bits(lane); });
}

// 1 where two numbers are as asked, and the predicate holds; else 0.
constexpr auto kNotLess = [](float a, float b) { return !(a < b); };
constexpr auto kNotUnequal = [](float a, float b) { return !(a < b) && !(a > b); };
template <auto kHolds>
void one_where(Warp& warp, const Instruction& i) {
  const Single a(warp, i, 0), b(warp, i, 1);
  const u32 held = lanes_holding(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {
    d[lane] = bits_of((held >> lane & 1) != 0 && kHolds(a[lane], b[lane]) ? 1.0F : 0.0F);
  });
}

// Of a number and a NaN the number; -0 is less than +0.
float bound(float a, float b, bool least) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(a) == least ? a : b;
  return (a < b) == least ? a : b;
}
// kKeeps: whether a NaN comes through, as the one that arithmetic makes.
template <bool kKeeps>
void least_or_most(Warp& warp, const Instruction& i) {
  const Single a(warp, i, 0), b(warp, i, 1);
  const u32 least = lanes_holding(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {
    const bool unknown = kKeeps && (a[lane] != a[lane] || b[lane] != b[lane]);
    const float found = bound(a[lane], b[lane], (least >> lane & 1) != 0);
    d[lane] = unknown ? 0x7fff'ffffU : bits_of(found);
  });
}

// ---- approximations ----------------------------------------------------------------------------

// What MUFU gives is known but for its last bits, and the instructions behind it correct those. So
// it is rounded here, and then off by as much as a launch is asked to try.
template <class Bits>
Bits off(Bits exact, Bits exponents) {
  if ((exact & exponents) == 0 || (exact & exponents) == exponents) return exact;
  return exact + static_cast<Bits>(current.approximation);
}

template <bool kRoot>
void approximate(Warp& warp, const Instruction& i) {
  const Single a(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {
    const double x = a[lane];
    const double y = kRoot ? 1 / std::sqrt(x) : 1 / x;
    d[lane] = off(bits_of(static_cast<float>(y)), 0x7f80'0000U);
  });
}

// Of the upper half of a double, whose lower half is 0, the upper half of the result.
template <bool kRoot>
void approximate_upper(Warp& warp, const Instruction& i) {
  const Single a(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {
    const auto x = std::bit_cast<double>(u64{a.bits(lane)} << 32);
    const double y = kRoot ? 1 / std::sqrt(x) : 1 / x;
    d[lane] = off(static_cast<u32>(bits_of(y) >> 32), 0x7ff0'0000U);
  });
}

// Whether a / b must go the long way: the short one would meet subnormal numbers, overflow or what
// is no number.
void check_division(Warp& warp, const Instruction& i) {
  const Single a(warp, i, 0), b(warp, i, 1);
  u32 found = 0;
  for_lanes(warp.lanes, [&](int lane) {
    const auto over = static_cast<int>(a.bits(lane) >> 23 & 255);
    const auto under = static_cast<int>(b.bits(lane) >> 23 & 255);
    const bool is_long = over < 26 || over > 252 || under < 3 || under > 252 ||
                         std::abs(over - under) > 124 || current.long_divisions;
    found |= u32{is_long} << lane;
  });
  write_predicate(warp, i.slots[kWrites], found);
}

// ---- comparisons -------------------------------------------------------------------------------

struct Comparison {
  std::string_view name;
  bool less, equal, greater, unordered;  // what holds
};
constexpr Comparison kComparisons[] = {
    {"LT", true, false, false, false}, {"LE", true, true, false, false},
    {"GT", false, false, true, false}, {"GE", false, true, true, false},
    {"EQ", false, true, false, false}, {"NE", true, false, true, false},
    {"LTU", true, false, false, true}, {"LEU", true, true, false, true},
    {"GTU", false, false, true, true}, {"GEU", false, true, true, true},
    {"EQU", false, true, false, true}, {"NEU", true, false, true, true},
    {"NUM", true, true, true, false},  {"NAN", false, false, false, true},
};

template <class Operand, bool kFlushes, std::size_t kIndex>
void compare(Warp& warp, const Instruction& i) {
  constexpr Comparison kHow = kComparisons[kIndex];
  const Operand a(warp, i, 0), b(warp, i, 1);
  u32 found = 0;
  for_lanes(warp.lanes, [&](int lane) {
    auto x = a[lane], y = b[lane];
    if constexpr (kFlushes) {
      x = flushed(x);
      y = flushed(y);
    }
    const bool unordered = x != x || y != y;
    found |= u32{(kHow.less && x < y) || (kHow.equal && x == y) || (kHow.greater && x > y) ||
                 (kHow.unordered && unordered)}
             << lane;
  });
  const u32 joining = lanes_holding(warp, i, 0);
  write_predicate(warp, i.slots[kWrites], joined(found, joining, i.number));
  write_predicate(warp, i.slots[kWrites + 1], joined(~found, joining, i.number));
}

template <class Operand, bool kFlushes, std::size_t... kIndices>
Handler comparison(std::string_view name, std::index_sequence<kIndices...>) {
  Handler found = nullptr;
  ((kComparisons[kIndices].name == name ? void(found = compare<Operand, kFlushes, kIndices>)
                                        : void()),
   ...);
  return found;
}

// Whether the first of two is the one that max or min takes, which of a number and a NaN is the
// number; and whether both are NaN.
template <bool kGreater>
void takes_the_first(Warp& warp, const Instruction& i) {
  const Double a(warp, i, 0), b(warp, i, 1);
  u32 first = 0, neither = 0;
  for_lanes(warp.lanes, [&](int lane) {
    const double x = a[lane], y = b[lane];
    first |= u32{(kGreater ? x > y : x < y) || (y != y && x == x)} << lane;
    neither |= u32{x != x && y != y} << lane;
  });
  const u32 joining = lanes_holding(warp, i, 0);
  write_predicate(warp, i.slots[kWrites], first & joining);
  write_predicate(warp, i.slots[kWrites + 1], neither & joining);
}

std::optional<Computation> comparing(const OpcodeParts& parts) {
  const bool is_double = parts[0] == "DSETP";
  const std::string_view operands = is_double ? "PPddp" : "PPrrp";
  const Kind kind = is_double ? Kind::f64 : Kind::f32;
  if (parts == OpcodeParts{"DSETP", "MAX", "AND"})
    return Computation{takes_the_first<true>, kind, operands, "-|"};
  if (parts == OpcodeParts{"DSETP", "MIN", "AND"})
    return Computation{takes_the_first<false>, kind, operands, "-|"};
  const bool flushes = parts.size() == 4 && parts[2] == "FTZ" && !is_double;
  if (parts.size() != (flushes ? 4 : 3)) return std::nullopt;
  const std::string_view join = parts.back();
  if (join != "AND" && join != "OR" && join != "XOR") return std::nullopt;
  constexpr auto kAll = std::make_index_sequence<std::size(kComparisons)>();
  const Handler found = is_double ? comparison<Double, false>(parts[1], kAll)
                        : flushes ? comparison<Single, true>(parts[1], kAll)
                                  : comparison<Single, false>(parts[1], kAll);
  if (found == nullptr) return std::nullopt;
  return Computation{found, kind, operands, "-|"};
}

// ---- conversions -------------------------------------------------------------------------------

u32 to_f16(float x) {
  return x != x ? 0x7fff : static_cast<u16>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
}
u32 to_bf16(float x) {
  if (x != x) return 0x7fff;
  const u32 bits = std::bit_cast<u32>(x);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
// Two numbers of 16 bits, a in the upper half.
template <auto kNarrow>
void pack(Warp& warp, const Instruction& i) {
  const Single a(warp, i, 0), b(warp, i, 1);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = kNarrow(a[lane]) << 16 | kNarrow(b[lane]); });
}

// -0 + half a register; the translator has seen to the -0.
void from_half(Warp& warp, const Instruction& i) {
  const u32* b = warp.in<u32>(i.slots[kOperands + 2]);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {
    d[lane] = bits_of(_cvtsh_ss(static_cast<u16>(b[lane] >> (16 * i.number))));
  });
}

void narrow(Warp& warp, const Instruction& i) {
  const Double a(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = bits_of(static_cast<float>(a[lane])); });
}
void widen(Warp& warp, const Instruction& i) {
  const Single a(warp, i, 0);
  const ResultPair d(warp, i);
  for_lanes(warp.lanes, [&](int lane) { d.set(lane, bits_of(static_cast<double>(a[lane]))); });
}

template <class From>
float rounded_up(From x) {
  const auto nearest = static_cast<float>(x);
  return static_cast<long double>(nearest) < static_cast<long double>(x)
             ? std::nextafter(nearest, std::numeric_limits<float>::infinity())
             : nearest;
}
void up_from_u32(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = bits_of(rounded_up(a[lane])); });
}
void up_from_s32(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes,
            [&](int lane) { d[lane] = bits_of(rounded_up(static_cast<std::int32_t>(a[lane]))); });
}
void up_from_u64(Warp& warp, const Instruction& i) {
  const Pair a(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = bits_of(rounded_up(a[lane])); });
}
void single_from_s32(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {
    d[lane] = bits_of(static_cast<float>(static_cast<std::int32_t>(a[lane])));
  });
}
void double_from_s32(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0);
  const ResultPair d(warp, i);
  for_lanes(warp.lanes, [&](int lane) {
    d.set(lane, bits_of(static_cast<double>(static_cast<std::int32_t>(a[lane]))));
  });
}
void double_from_u32(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0);
  const ResultPair d(warp, i);
  for_lanes(warp.lanes, [&](int lane) { d.set(lane, bits_of(static_cast<double>(u32{a[lane]}))); });
}
void double_from_u64(Warp& warp, const Instruction& i) {
  const Pair a(warp, i, 0);
  const ResultPair d(warp, i);
  for_lanes(warp.lanes, [&](int lane) { d.set(lane, bits_of(static_cast<double>(u64{a[lane]}))); });
}
void single_from_u16(Warp& warp, const Instruction& i) {
  const Whole a(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = bits_of(static_cast<float>(a[lane] & 0xffff)); });
}
void single_from_s64(Warp& warp, const Instruction& i) {
  const Pair a(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {
    d[lane] = bits_of(static_cast<float>(static_cast<std::int64_t>(a[lane])));
  });
}
void double_from_s64(Warp& warp, const Instruction& i) {
  const Pair a(warp, i, 0);
  const ResultPair d(warp, i);
  for_lanes(warp.lanes, [&](int lane) {
    d.set(lane, bits_of(static_cast<double>(static_cast<std::int64_t>(a[lane]))));
  });
}

// Toward zero, within the range. What a NaN gives is not known.
template <class To, class From>
To cut(Warp& warp, const Instruction& i, From x) {
  if (x != x) fail(warp, i, "a NaN becomes a whole number");
  if (x <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return x >= static_cast<From>(std::numeric_limits<To>::max()) ? std::numeric_limits<To>::max()
                                                                : static_cast<To>(x);
}
void to_u32(Warp& warp, const Instruction& i) {
  const Single a(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) {  // .NTZ: of a NaN 0
    d[lane] = a[lane] != a[lane] ? 0 : cut<u32>(warp, i, a[lane]);
  });
}
void double_to_u32(Warp& warp, const Instruction& i) {
  const Double a(warp, i, 0);
  u32* d = warp.out<u32>(i.slots[kResult]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = cut<u32>(warp, i, a[lane]); });
}

void to_u64(Warp& warp, const Instruction& i) {
  const Single a(warp, i, 0);
  const ResultPair d(warp, i);
  for_lanes(warp.lanes, [&](int lane) { d.set(lane, cut<u64>(warp, i, a[lane])); });
}

template <class To>
void double_to_whole(Warp& warp, const Instruction& i) {
  const Double a(warp, i, 0);
  const ResultPair d(warp, i);
  for_lanes(warp.lanes,
            [&](int lane) { d.set(lane, static_cast<u64>(cut<To>(warp, i, a[lane]))); });
}

struct Row {
  std::string_view opcode;
  Computation computation;
};
template <unsigned kMode>
constexpr Handler kFusedSingle = single<Directed<kMode>, false, kFused>;
template <unsigned kMode>
constexpr Handler kFusedDouble = twice<Directed<kMode>, kFused>;

const Row kRows[] = {
    {"FADD", {single<Nearest, false, kAdd>, Kind::f32, "Rrr", "-|"}},
    {"FADD.FTZ", {single<Nearest, true, kAdd>, Kind::f32, "Rrr", "-|"}},
    {"FMUL", {single<Nearest, false, kMultiply>, Kind::f32, "Rrr", "-|"}},
    {"FMUL.FTZ", {single<Nearest, true, kMultiply>, Kind::f32, "Rrr", "-|"}},
    {"FFMA", {single<Nearest, false, kFused>, Kind::f32, "Rrrr", "-"}},
    {"FFMA.RP", {kFusedSingle<kUp>, Kind::f32, "Rrrr", "-"}},
    {"FFMA.RM", {kFusedSingle<kDown>, Kind::f32, "Rrrr", "-"}},
    {"FFMA.RZ", {kFusedSingle<kTowardZero>, Kind::f32, "Rrrr", "-"}},
    {"FSEL", {select, Kind::f32, "Rrrp", "-|"}},
    {"FSET.BF.GEU.AND", {one_where<kNotLess>, Kind::f32, "Rrrp", "-|"}},
    {"FSET.BF.EQU.AND", {one_where<kNotUnequal>, Kind::f32, "Rrrp", "-|"}},
    {"FMNMX", {least_or_most<false>, Kind::f32, "Rrrp", "-|"}},
    {"FMNMX.NAN", {least_or_most<true>, Kind::f32, "Rrrp", "-|"}},
    {"FCHK", {check_division, Kind::f32, "Prr", "-|"}},
    {"MUFU.RCP", {approximate<false>, Kind::f32, "Rr", "-|"}},
    {"MUFU.RSQ", {approximate<true>, Kind::f32, "Rr", "-|"}},
    {"MUFU.RCP64H", {approximate_upper<false>, Kind::f64, "Rr", "-|"}},
    {"MUFU.RSQ64H", {approximate_upper<true>, Kind::f64, "Rr", "-|"}},
    {"DADD", {twice<Nearest, kAdd>, Kind::f64, "Ddd", "-|"}},
    {"DMUL", {twice<Nearest, kMultiply>, Kind::f64, "Ddd", "-|"}},
    {"DMUL.RP", {twice<Directed<kUp>, kMultiply>, Kind::f64, "Ddd", "-|"}},
    {"DFMA", {twice<Nearest, kFused>, Kind::f64, "Dddd", "-"}},
    {"DFMA.RP", {kFusedDouble<kUp>, Kind::f64, "Dddd", "-"}},
    {"DFMA.RM", {kFusedDouble<kDown>, Kind::f64, "Dddd", "-"}},
    {"HADD2.F32", {from_half, Kind::convert, "Rrh", "-"}},
    {"F2FP.F16.F32.PACK_AB", {pack<to_f16>, Kind::convert, "Rrr"}},
    {"F2FP.BF16.F32.PACK_AB", {pack<to_bf16>, Kind::convert, "Rrr"}},
    {"F2F.F64.F32", {widen, Kind::convert, "Dr"}},
    {"F2F.F32.F64", {narrow, Kind::convert, "Rd"}},
    {"I2F.RP", {up_from_s32, Kind::convert, "Rr"}},
    {"I2FP.F32.S32", {single_from_s32, Kind::convert, "Rr"}},
    {"I2F.F64", {double_from_s32, Kind::convert, "Dr"}},
    {"I2F.U32.RP", {up_from_u32, Kind::convert, "Rr"}},
    {"I2F.U64.RP", {up_from_u64, Kind::convert, "Rd"}},
    {"I2F.S64", {single_from_s64, Kind::convert, "Rd"}},
    {"I2F.F64.S64", {double_from_s64, Kind::convert, "Dd"}},
    {"I2F.F64.U32", {double_from_u32, Kind::convert, "Dr"}},
    {"I2F.F64.U64", {double_from_u64, Kind::convert, "Dd"}},
    {"I2F.U16", {single_from_u16, Kind::convert, "Rr"}},
    {"F2I.FTZ.U32.TRUNC.NTZ", {to_u32, Kind::convert, "Rr"}},
    {"F2I.U32.F64.TRUNC", {double_to_u32, Kind::convert, "Rd"}},
    {"F2I.U64.TRUNC", {to_u64, Kind::convert, "Dr"}},
    {"F2I.U64.F64.TRUNC", {double_to_whole<u64>, Kind::convert, "Dd"}},
    {"F2I.S64.F64.TRUNC", {double_to_whole<std::int64_t>, Kind::convert, "Dd"}},
};

}  // namespace

std::optional<Computation> real_computation(const OpcodeParts& parts) {
  if (parts[0] == "FSETP" || parts[0] == "DSETP") return comparing(parts);
  const auto* row = std::ranges::find(kRows, together(parts), &Row::opcode);
  return row == std::end(kRows) ? std::nullopt : std::optional(row->computation);
}

}  // namespace isobit::executor
