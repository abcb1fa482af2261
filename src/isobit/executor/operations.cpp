// SPDX-License-Identifier: Apache-2.0
// Opcodes that compute on registers alone, by the rules of the PTX manual: each rounds once, to
// nearest even; a NaN in f32 is 0x7fffffff.
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "isobit/executor/warp.h"

namespace isobit::executor {
namespace {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;
using f64 = double;

template <class T>
constexpr int kWidth = static_cast<int>(sizeof(T));

// ---- handlers ----------------------------------------------------------------------------------

template <class D, class A, auto kFormula>
void unary(Warp& warp, const Instruction& i) {
  D* d = warp.out<D>(i.slots[0]);
  const A* a = warp.in<A>(i.slots[1]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = kFormula(a[lane]); });
}

template <class D, class A, class B, auto kFormula>
void binary(Warp& warp, const Instruction& i) {
  D* d = warp.out<D>(i.slots[0]);
  const A* a = warp.in<A>(i.slots[1]);
  const B* b = warp.in<B>(i.slots[2]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = kFormula(a[lane], b[lane]); });
}

template <class D, class A, class C, auto kFormula>
void ternary(Warp& warp, const Instruction& i) {
  D* d = warp.out<D>(i.slots[0]);
  const A* a = warp.in<A>(i.slots[1]);
  const A* b = warp.in<A>(i.slots[2]);
  const C* c = warp.in<C>(i.slots[3]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = kFormula(a[lane], b[lane], c[lane]); });
}

void set_predicate(Warp& warp, Slot slot, u32 bits) {
  u32* d = warp.out<u32>(slot);
  *d = (*d & ~warp.lanes) | (bits & warp.lanes);
}

template <class A, auto kFormula>
void compare(Warp& warp, const Instruction& i) {
  const A* a = warp.in<A>(i.slots[1]);
  const A* b = warp.in<A>(i.slots[2]);
  u32 bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) bits |= u32{kFormula(a[lane], b[lane])} << lane;
  set_predicate(warp, i.slots[0], bits);
}

template <auto kFormula>
void predicate1(Warp& warp, const Instruction& i) {
  set_predicate(warp, i.slots[0], kFormula(*warp.in<u32>(i.slots[1])));
}
template <auto kFormula>
void predicate2(Warp& warp, const Instruction& i) {
  set_predicate(warp, i.slots[0], kFormula(*warp.in<u32>(i.slots[1]), *warp.in<u32>(i.slots[2])));
}

template <class T>
void select(Warp& warp, const Instruction& i) {
  T* d = warp.out<T>(i.slots[0]);
  const T* a = warp.in<T>(i.slots[1]);
  const T* b = warp.in<T>(i.slots[2]);
  const u32 chosen = *warp.in<u32>(i.slots[3]);
  for_lanes(warp.lanes, [&](int lane) { d[lane] = (chosen >> lane & 1) != 0 ? a[lane] : b[lane]; });
}

// ---- arithmetic --------------------------------------------------------------------------------

inline f32 whole(f32 x) { return x == x ? x : std::bit_cast<f32>(0x7fff'ffffU); }
inline f64 whole(f64 x) { return x; }

u16 to_f16(f32 x) {
  return x != x ? u16{0x7fff} : static_cast<u16>(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
}
f32 of_f16(u16 x) { return whole(_cvtsh_ss(x)); }
u16 to_bf16(f32 x) {
  if (x != x) return 0x7fff;
  const u32 bits = std::bit_cast<u32>(x);
  return static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
f32 of_bf16(u16 x) { return std::bit_cast<f32>(u32{x} << 16); }

// Of a number and a NaN the number; -0 is less than +0.
template <class T>
T least(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return whole(b);
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
  }
  return a < b ? a : b;
}
template <class T>
T most(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a) return whole(b);
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a > b ? a : b;
}

template <class T>
T shift_left(T a, u32 by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
}
template <class T>
T shift_right(T a, u32 by) {
  if (by >= 8 * sizeof(T)) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
  return static_cast<T>(a >> by);
}
// What a GPU gives for a division by 0 is all ones.
template <class T>
T divide(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
  return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}

// The low bits of a, so many, put into b from a position on.
template <class T>
void insert_bits(Warp& warp, const Instruction& i) {
  T* d = warp.out<T>(i.slots[0]);
  const T* a = warp.in<T>(i.slots[1]);
  const T* b = warp.in<T>(i.slots[2]);
  const u32* position = warp.in<u32>(i.slots[3]);
  const u32* length = warp.in<u32>(i.slots[4]);
  for_lanes(warp.lanes, [&](int lane) {
    const u32 from = position[lane] & 255;
    const u32 bits = length[lane] & 255;
    const T ones =
        bits >= 8 * sizeof(T) ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << bits) - 1);
    const T mask = shift_left(ones, from);
    d[lane] = static_cast<T>((b[lane] & ~mask) | (shift_left(a[lane], from) & mask));
  });
}
template <class T>
void extract_bits(Warp& warp, const Instruction& i) {
  using Unsigned = std::make_unsigned_t<T>;
  constexpr u32 kBits = 8 * sizeof(T);
  T* d = warp.out<T>(i.slots[0]);
  const Unsigned* a = warp.in<Unsigned>(i.slots[1]);
  const u32* position = warp.in<u32>(i.slots[2]);
  const u32* length = warp.in<u32>(i.slots[3]);
  for_lanes(warp.lanes, [&](int lane) {
    const u32 from = position[lane] & 255;
    const u32 bits = length[lane] & 255;
    Unsigned found = shift_right(a[lane], from);
    const u32 taken = std::min(bits, from >= kBits ? 0 : kBits - from);
    if (taken < kBits) found &= static_cast<Unsigned>((Unsigned{1} << taken) - 1);
    if constexpr (std::is_signed_v<T>) {
      const u32 last = std::min(from + bits - 1, kBits - 1);
      if (bits > 0 && (shift_right(a[lane], last) & 1) != 0 && taken < kBits)
        found |= static_cast<Unsigned>(~Unsigned{0} << taken);
    }
    d[lane] = static_cast<T>(found);
  });
}

// Bytes of a and b by the nibbles of a selector; the top bit of a nibble repeats the byte's sign.
u32 permute(u32 a, u32 b, u32 selector) {
  const u64 both = a | u64{b} << 32;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i) & 15;
    u32 byte = static_cast<u32>(both >> (8 * (nibble & 7))) & 255;
    if ((nibble & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
}

template <class To, class From>
To to_nearest(From x) {
  return static_cast<To>(x);
}
// Toward zero, within the range; 0 for a NaN.
template <class To, class From>
To truncated(From x) {
  if (x != x) return 0;
  constexpr From kTop = static_cast<From>(std::numeric_limits<To>::max());
  if (x <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  if (x >= kTop) return std::numeric_limits<To>::max();
  return static_cast<To>(x);
}

// ---- the table ---------------------------------------------------------------------------------

using Table = std::unordered_map<std::string, Operation>;

#define ISOBIT_1(D, A, formula)                                                                   \
  Operation {                                                                                     \
    unary<D, A, [](A a) -> D { return static_cast<D>(formula); }>, kind, { kWidth<D>, kWidth<A> } \
  }
#define ISOBIT_2(D, A, B, formula)                               \
  Operation {                                                    \
    binary<D, A, B,                                              \
           []([[maybe_unused]] A a, [[maybe_unused]] B b) -> D { \
             return static_cast<D>(formula);                     \
           }>,                                                   \
        kind, {                                                  \
      kWidth<D>, kWidth<A>, kWidth<B>                            \
    }                                                            \
  }
#define ISOBIT_3(D, A, C, formula)                                                        \
  Operation {                                                                             \
    ternary<D, A, C, [](A a, A b, C c) -> D { return static_cast<D>(formula); }>, kind, { \
      kWidth<D>, kWidth<A>, kWidth<A>, kWidth<C>                                          \
    }                                                                                     \
  }
#define ISOBIT_COMPARE(A, formula)                                                            \
  Operation {                                                                                 \
    compare<A, [](A a, A b) -> bool { return (formula); }>, kind, { 0, kWidth<A>, kWidth<A> } \
  }

template <class Signed, class Unsigned>
void add_integers(Table& table, const std::string& bits) {
  const Kind kind = Kind::integer;
  for (const char* sign : {".s", ".u"}) {
    const std::string type = sign + bits;
    table["add" + type] = ISOBIT_2(Unsigned, Unsigned, Unsigned, a + b);
    table["sub" + type] = ISOBIT_2(Unsigned, Unsigned, Unsigned, a - b);
    table["mul.lo" + type] = ISOBIT_2(Unsigned, Unsigned, Unsigned, u64{a} * b);
    table["mad.lo" + type] = ISOBIT_3(Unsigned, Unsigned, Unsigned, u64{a} * b + c);
  }
  const std::string s = ".s" + bits, u = ".u" + bits, b = ".b" + bits;
  table["and" + b] = ISOBIT_2(Unsigned, Unsigned, Unsigned, a & b);
  table["or" + b] = ISOBIT_2(Unsigned, Unsigned, Unsigned, a | b);
  table["xor" + b] = ISOBIT_2(Unsigned, Unsigned, Unsigned, a ^ b);
  table["not" + b] = ISOBIT_1(Unsigned, Unsigned, ~a);
  table["neg" + s] = ISOBIT_1(Unsigned, Unsigned, Unsigned{0} - a);
  table["abs" + s] = ISOBIT_1(Unsigned, Signed, a < 0 ? Unsigned{0} - static_cast<Unsigned>(a) : a);
  table["min" + s] = ISOBIT_2(Signed, Signed, Signed, least(a, b));
  table["max" + s] = ISOBIT_2(Signed, Signed, Signed, most(a, b));
  table["min" + u] = ISOBIT_2(Unsigned, Unsigned, Unsigned, least(a, b));
  table["max" + u] = ISOBIT_2(Unsigned, Unsigned, Unsigned, most(a, b));
  table["div" + s] = ISOBIT_2(Signed, Signed, Signed, divide(a, b));
  table["div" + u] = ISOBIT_2(Unsigned, Unsigned, Unsigned, divide(a, b));
  table["rem" + s] = ISOBIT_2(Signed, Signed, Signed, remainder(a, b));
  table["rem" + u] = ISOBIT_2(Unsigned, Unsigned, Unsigned, remainder(a, b));
  table["shl" + b] = ISOBIT_2(Unsigned, Unsigned, u32, shift_left(a, b));
  table["shr" + b] = table["shr" + u] = ISOBIT_2(Unsigned, Unsigned, u32, shift_right(a, b));
  table["shr" + s] = ISOBIT_2(Signed, Signed, u32, shift_right(a, b));
  for (const std::string& type : {s, u, b}) {
    table["setp.eq" + type] = ISOBIT_COMPARE(Unsigned, a == b);
    table["setp.ne" + type] = ISOBIT_COMPARE(Unsigned, a != b);
  }
  table["setp.lt" + s] = ISOBIT_COMPARE(Signed, a < b);
  table["setp.le" + s] = ISOBIT_COMPARE(Signed, a <= b);
  table["setp.gt" + s] = ISOBIT_COMPARE(Signed, a > b);
  table["setp.ge" + s] = ISOBIT_COMPARE(Signed, a >= b);
  table["setp.lt" + u] = table["setp.lo" + u] = ISOBIT_COMPARE(Unsigned, a < b);
  table["setp.le" + u] = table["setp.ls" + u] = ISOBIT_COMPARE(Unsigned, a <= b);
  table["setp.gt" + u] = table["setp.hi" + u] = ISOBIT_COMPARE(Unsigned, a > b);
  table["setp.ge" + u] = table["setp.hs" + u] = ISOBIT_COMPARE(Unsigned, a >= b);
}

template <class T>
void add_reals(Table& table, const std::string& type, Kind kind) {
  table["add.rn" + type] = ISOBIT_2(T, T, T, whole(a + b));
  table["sub.rn" + type] = ISOBIT_2(T, T, T, whole(a - b));
  table["mul.rn" + type] = ISOBIT_2(T, T, T, whole(a * b));
  table["div.rn" + type] = ISOBIT_2(T, T, T, whole(a / b));
  table["rcp.rn" + type] = ISOBIT_1(T, T, whole(T{1} / a));
  table["sqrt.rn" + type] = ISOBIT_1(T, T, whole(std::sqrt(a)));
  table["fma.rn" + type] = ISOBIT_3(T, T, T, whole(std::fma(a, b, c)));
  using Bits = std::conditional_t<sizeof(T) == 4, u32, u64>;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
  table["neg" + type] = ISOBIT_1(Bits, Bits, a ^ kSign);
  table["abs" + type] = ISOBIT_1(Bits, Bits, a & ~kSign);
  table["min" + type] = ISOBIT_2(T, T, T, least(a, b));
  table["max" + type] = ISOBIT_2(T, T, T, most(a, b));
  table["setp.eq" + type] = ISOBIT_COMPARE(T, a == b);
  table["setp.ne" + type] = ISOBIT_COMPARE(T, a < b || a > b);
  table["setp.lt" + type] = ISOBIT_COMPARE(T, a < b);
  table["setp.le" + type] = ISOBIT_COMPARE(T, a <= b);
  table["setp.gt" + type] = ISOBIT_COMPARE(T, a > b);
  table["setp.ge" + type] = ISOBIT_COMPARE(T, a >= b);
  table["setp.equ" + type] = ISOBIT_COMPARE(T, !(a < b || a > b));
  table["setp.neu" + type] = ISOBIT_COMPARE(T, a != b);
  table["setp.ltu" + type] = ISOBIT_COMPARE(T, !(a >= b));
  table["setp.leu" + type] = ISOBIT_COMPARE(T, !(a > b));
  table["setp.gtu" + type] = ISOBIT_COMPARE(T, !(a <= b));
  table["setp.geu" + type] = ISOBIT_COMPARE(T, !(a < b));
  table["setp.num" + type] = ISOBIT_COMPARE(T, a == a && b == b);
  table["setp.nan" + type] = ISOBIT_COMPARE(T, a != a || b != b);
}

template <class T>
void add_moves(Table& table, const std::string& bits, std::initializer_list<const char*> types) {
  const Kind kind = Kind::move;
  for (const char* type : types) {
    table["mov." + (type + bits)] = ISOBIT_1(T, T, a);
    table["selp." + (type + bits)] = {select<T>, kind, {kWidth<T>, kWidth<T>, kWidth<T>, 0}};
  }
}

void add_halves(Table& table) {
  const Kind kind = Kind::half;
  table["setp.eq.f16"] = ISOBIT_COMPARE(u16, of_f16(a) == of_f16(b));
  table["setp.eq.bf16"] = ISOBIT_COMPARE(u16, of_bf16(a) == of_bf16(b));
}

void add_conversions(Table& table) {
  const Kind kind = Kind::convert;
  table["cvt.f32.f16"] = ISOBIT_1(f32, u16, of_f16(a));
  table["cvt.rn.f16.f32"] = ISOBIT_1(u16, f32, to_f16(a));
  table["cvt.rn.bf16.f32"] = ISOBIT_1(u16, f32, to_bf16(a));
  table["cvt.rn.f16x2.f32"] = ISOBIT_2(u32, f32, f32, u32{to_f16(a)} << 16 | to_f16(b));
  table["cvt.rn.bf16x2.f32"] = ISOBIT_2(u32, f32, f32, u32{to_bf16(a)} << 16 | to_bf16(b));
  table["cvt.f32.bf16"] = ISOBIT_1(u32, u16, u32{a} << 16);
  table["cvt.f64.f32"] = ISOBIT_1(f64, f32, a);
  table["cvt.rn.f32.f64"] = ISOBIT_1(f32, f64, whole(to_nearest<f32>(a)));
  table["cvt.rn.f32.u16"] = ISOBIT_1(f32, u16, a);
  table["cvt.rn.f32.s32"] = ISOBIT_1(f32, s32, a);
  table["cvt.rn.f32.u32"] = ISOBIT_1(f32, u32, a);
  table["cvt.rn.f32.s64"] = ISOBIT_1(f32, s64, a);
  table["cvt.rn.f32.u64"] = ISOBIT_1(f32, u64, a);
  table["cvt.rn.f64.s32"] = ISOBIT_1(f64, s32, a);
  table["cvt.rn.f64.u32"] = ISOBIT_1(f64, u32, a);
  table["cvt.rn.f64.s64"] = ISOBIT_1(f64, s64, a);
  table["cvt.rn.f64.u64"] = ISOBIT_1(f64, u64, a);
  table["cvt.rzi.s32.f32"] = ISOBIT_1(s32, f32, truncated<s32>(a));
  table["cvt.rzi.s64.f32"] = ISOBIT_1(s64, f32, truncated<s64>(a));
  table["cvt.rzi.s32.f64"] = ISOBIT_1(s32, f64, truncated<s32>(a));
  table["cvt.rzi.u32.f64"] = ISOBIT_1(u32, f64, truncated<u32>(a));
  table["cvt.rzi.s64.f64"] = ISOBIT_1(s64, f64, truncated<s64>(a));
  table["cvt.rzi.u64.f64"] = ISOBIT_1(u64, f64, truncated<u64>(a));
  table["cvt.rni.f32.f32"] = ISOBIT_1(f32, f32, whole(std::nearbyint(a)));
  table["cvt.rni.f64.f64"] = ISOBIT_1(f64, f64, std::nearbyint(a));
#define ISOBIT_INTEGER(to, from) table["cvt." #to "." #from] = ISOBIT_1(to, from, a);
// Of a register that is wider than what is asked of it.
#define ISOBIT_LOWER_BITS(to, from, wide)                             \
  table["cvt." #to "." #from " of " + std::to_string(sizeof(wide))] = \
      ISOBIT_1(to, wide, static_cast<from>(a));
#define ISOBIT_INTEGERS(to)                                        \
  ISOBIT_INTEGER(to, u16)                                          \
  ISOBIT_INTEGER(to, s16)                                          \
  ISOBIT_INTEGER(to, u32)                                          \
  ISOBIT_INTEGER(to, s32)                                          \
  ISOBIT_INTEGER(to, u64)                                          \
  ISOBIT_INTEGER(to, s64)                                          \
  ISOBIT_LOWER_BITS(to, u16, u32)                                  \
  ISOBIT_LOWER_BITS(to, s16, u32)                                  \
  ISOBIT_LOWER_BITS(to, u16, u64)                                  \
  ISOBIT_LOWER_BITS(to, s16, u64)                                  \
  ISOBIT_LOWER_BITS(to, u32, u64)                                  \
  ISOBIT_LOWER_BITS(to, s32, u64)                                  \
  /* a byte lies in a register of 16 bits */                       \
  table["cvt." #to ".u8"] = ISOBIT_1(to, u16, static_cast<u8>(a)); \
  table["cvt." #to ".s8"] = ISOBIT_1(to, u16, static_cast<s8>(a));
  ISOBIT_INTEGERS(u16)
  ISOBIT_INTEGERS(s16)
  ISOBIT_INTEGERS(u32)
  ISOBIT_INTEGERS(s32)
  ISOBIT_INTEGERS(u64)
  ISOBIT_INTEGERS(s64)
#undef ISOBIT_INTEGERS
#undef ISOBIT_LOWER_BITS
#undef ISOBIT_INTEGER
}

void add_wide(Table& table) {
  const Kind kind = Kind::integer;
  table["mul.wide.s16"] = ISOBIT_2(s32, s16, s16, s32{a} * b);
  table["mul.wide.u16"] = ISOBIT_2(u32, u16, u16, u32{a} * b);
  table["mul.wide.s32"] = ISOBIT_2(s64, s32, s32, s64{a} * b);
  table["mul.wide.u32"] = ISOBIT_2(u64, u32, u32, u64{a} * b);
  table["mad.wide.s16"] = ISOBIT_3(s32, s16, s32, s32{a} * b + c);
  table["mad.wide.u16"] = ISOBIT_3(u32, u16, u32, u32{a} * b + c);
  table["mad.wide.s32"] = ISOBIT_3(s64, s32, s64, s64{a} * b + c);
  table["mad.wide.u32"] = ISOBIT_3(u64, u32, u64, u64{a} * b + c);
  table["mul.hi.s32"] = ISOBIT_2(s32, s32, s32, s64{a} * b >> 32);
  table["mul.hi.u32"] = ISOBIT_2(u32, u32, u32, u64{a} * b >> 32);
  __extension__ using s128 = __int128;
  __extension__ using u128 = unsigned __int128;
  table["mul.hi.s64"] = ISOBIT_2(s64, s64, s64, s128{a} * b >> 64);
  table["mul.hi.u64"] = ISOBIT_2(u64, u64, u64, u128{a} * b >> 64);
  table["bfi.b32"] = {insert_bits<u32>, kind, {4, 4, 4, 4, 4}};
  table["bfi.b64"] = {insert_bits<u64>, kind, {8, 8, 8, 4, 4}};
  table["bfe.u32"] = {extract_bits<u32>, kind, {4, 4, 4, 4}};
  table["bfe.s32"] = {extract_bits<s32>, kind, {4, 4, 4, 4}};
  table["bfe.u64"] = {extract_bits<u64>, kind, {8, 8, 4, 4}};
  table["bfe.s64"] = {extract_bits<s64>, kind, {8, 8, 4, 4}};
  table["clz.b32"] = ISOBIT_1(u32, u32, std::countl_zero(a));
  table["clz.b64"] = ISOBIT_1(u32, u64, std::countl_zero(a));
  table["popc.b32"] = ISOBIT_1(u32, u32, std::popcount(a));
  table["popc.b64"] = ISOBIT_1(u32, u64, std::popcount(a));
  table["prmt.b32"] = ISOBIT_3(u32, u32, u32, permute(a, b, c));
  table["shf.l.wrap.b32"] = ISOBIT_3(u32, u32, u32, (a | u64{b} << 32) << (c & 31) >> 32);
  table["shf.r.wrap.b32"] = ISOBIT_3(u32, u32, u32, (a | u64{b} << 32) >> (c & 31));
  table["mapa.u64"] = {map_to_rank, Kind::move, {8, 8, 4}};
  table["cvta.shared.u64"] = {generic_of_shared, Kind::move, {8, 8}};
  table["cvta.to.shared.u64"] = {shared_of_generic, Kind::move, {8, 8}};
  // Global, local and parameter memory have their generic addresses.
  for (const char* space : {"global", "local", "param"})
    for (const char* to : {"cvta.", "cvta.to."}) {
      const Kind kind = Kind::move;
      table[std::string(to) + space + ".u64"] = ISOBIT_1(u64, u64, a);
    }
}

void add_predicates(Table& table) {
  const Kind kind = Kind::integer;
  table["mov.pred"] = {predicate1<[](u32 a) { return a; }>, kind, {0, 0}};
  table["not.pred"] = {predicate1<[](u32 a) { return ~a; }>, kind, {0, 0}};
  table["and.pred"] = {predicate2<[](u32 a, u32 b) { return a & b; }>, kind, {0, 0, 0}};
  table["or.pred"] = {predicate2<[](u32 a, u32 b) { return a | b; }>, kind, {0, 0, 0}};
  table["xor.pred"] = {predicate2<[](u32 a, u32 b) { return a ^ b; }>, kind, {0, 0, 0}};
}

Table make_table() {
  Table table;
  add_integers<s16, u16>(table, "16");
  add_integers<s32, u32>(table, "32");
  add_integers<s64, u64>(table, "64");
  add_reals<f32>(table, ".f32", Kind::f32);
  add_reals<f64>(table, ".f64", Kind::f64);
  add_moves<u16>(table, "16", {"b", "u", "s", "f"});
  add_moves<u32>(table, "32", {"b", "u", "s", "f"});
  add_moves<u64>(table, "64", {"b", "u", "s", "f"});
  add_halves(table);
  add_conversions(table);
  add_wide(table);
  add_predicates(table);
  return table;
}

#undef ISOBIT_1
#undef ISOBIT_2
#undef ISOBIT_3
#undef ISOBIT_COMPARE

// Why the project's kernels may not have an opcode; empty where they may.
std::string reason_to_refuse(std::string_view opcode) {
  const auto has = [&](std::string_view part) {
    const std::size_t at = opcode.find(part);
    return at != std::string_view::npos &&
           (at + part.size() == opcode.size() || opcode[at + part.size()] == '.');
  };
  if (has(".ftz")) return "it flushes subnormal numbers to zero";
  if (has(".approx") || has(".full")) return "its result is an approximation";
  if (has(".sat")) return "it saturates";
  for (const char* rounding : {".rz", ".rm", ".rp"})
    if (has(rounding)) return "it does not round to nearest even";
  const bool real = has(".f16") || has(".bf16") || has(".f32") || has(".f64");
  for (const char* base : {"add.", "sub.", "mul."})
    if (opcode.starts_with(base) && real && !has(".rn"))
      return "without .rn, ptxas may contract it to an fma; compile with -fmad=false";
  return {};
}

}  // namespace

const Operation* operation_named(std::string_view opcode) {
  static const Table* const kTable = new Table(make_table());
  if (const std::string reason = reason_to_refuse(opcode); !reason.empty())
    throw PtxError("refused: " + std::string(opcode) + ": " + reason);
  const auto found = kTable->find(std::string(opcode));
  return found == kTable->end() ? nullptr : &found->second;
}

}  // namespace isobit::executor
