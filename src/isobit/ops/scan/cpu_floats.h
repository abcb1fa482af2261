// SPDX-License-Identifier: Apache-2.0
// Scans of floats in the order of formula_order.h, in vectors: along rows, and across columns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "isobit/ops/scan/cpu_block.h"
#include "isobit/ops/scan/cpu_exact.h"
#include "isobit/ops/scan/cpu_lanes.h"
#include "isobit/ops/scan/formula_order.h"
#include "isobit/simd/lines.h"

namespace isobit::scan::ISOBIT_ISA {

ISOBIT_INLINE std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

template <class S, class T>
ISOBIT_INLINE typename S::V load_as(const T* from) {
  using Real = typename S::Real;
  if constexpr (sizeof(Real) == sizeof(double) && !std::is_same_v<T, double>) {
    Real wide[S::kWidth];
    for (int i = 0; i < S::kWidth; ++i) wide[i] = widen<Real>(from[i]);
    return S::load(wide);
  } else {
    return S::load(from);
  }
}

template <class S, class T>
void read_lines(const std::byte* from, std::int64_t from_stride, std::int64_t lines,
                std::int64_t length, void* to, std::int64_t to_stride) {
  constexpr int kWidth = S::kWidth;
  const auto* x = reinterpret_cast<const T*>(from);
  auto* wide = static_cast<typename S::Real*>(to);
  for (; lines > 0; --lines, x += from_stride, wide += to_stride) {
    std::int64_t i = 0;
    for (; i + kWidth <= length; i += kWidth) S::store(wide + i, load_as<S>(x + i));
    for (; i < length; ++i) wide[i] = in_real<typename S::Real>(x[i]);
  }
}
template <class S, class T>
void write_lines(const void* from, std::int64_t from_stride, std::int64_t lines,
                 std::int64_t length, std::byte* to, std::int64_t to_stride) {
  constexpr int kWidth = S::kWidth;
  const auto* wide = static_cast<const typename S::Real*>(from);
  auto* y = reinterpret_cast<T*>(to);
  for (; lines > 0; --lines, wide += from_stride, y += to_stride) {
    std::int64_t i = 0;
    for (; i + kWidth <= length; i += kWidth) S::store(y + i, S::load(wide + i));
    for (; i < length; ++i) y[i] = from_real<T>(wide[i]);
  }
}
template <class S, class T>
constexpr Elements kRead = {sizeof(T), std::is_same_v<T, typename S::Real>, read_lines<S, T>,
                            nullptr};
template <class S, class T>
constexpr Elements kWritten = {sizeof(T), std::is_same_v<T, typename S::Real>, read_lines<S, T>,
                               write_lines<S, T>};

template <class M>
struct Floats {
  using S = typename M::S;
  using Real = typename S::Real;
  using V = typename S::V;
  using Value = typename M::Value;
  using Carry = typename M::Carry;
  using AnyTree = Tree<M>;
  static constexpr int kWidth = S::kWidth;
  static_assert(sizeof(AnyTree) <= kTreeBytes);
  // There are so many vectors of one lane that copies would take minutes to compile.
  static constexpr bool kUnrolled = kWidth > 1;

  static void start(void* tree) { new (tree) AnyTree(); }
  static void copy(void* tree, const void* other) {
    new (tree) AnyTree(*static_cast<const AnyTree*>(other));
  }
  static void push(void* tree, const void* node, int level) {
    static_cast<AnyTree*>(tree)->push(static_cast<const AnyTree*>(node)->node(level), level);
  }
  static void total(const Segment& segment, std::int64_t begin, std::int64_t end, void* node,
                    std::int64_t ahead) {
    AnyTree tree;
    alignas(64) Real in[kBlock];
    for (std::int64_t start = begin; start < end; start += kBlock) {
      const Fetched<Real> fetched = block_ahead(segment, start + ahead, 0);
      for (int group = 0; group < kFetchedByTotals; ++group) fetched.group(group);
      tree.push(M::carry(block_total(source(segment, start, kBlock, in))));
    }
    *static_cast<AnyTree*>(node) = tree;
  }

  static void scan(const Segment& segment, std::int64_t begin, std::int64_t end, const void* before,
                   bool streaming, std::int64_t ahead) {
    AnyTree tree;
    if (before != nullptr) tree = *static_cast<const AnyTree*>(before);
    const bool direct = segment.types->y.computed_in && segment.y == 1 && !segment.exclusive;
    auto* y = reinterpret_cast<Real*>(segment.at.y);  // if it is direct
    streaming = streaming && kWidth > 1 && direct && simd::streamable(y + begin);
    const std::optional<Value> init = init_value(segment);
    Shifted shifted(segment, begin, end, init);
    alignas(64) Real in[kBlock], out[kBlock];
    for (std::int64_t start = begin; start < end; start += kBlock) {
      const std::int64_t count = least(kBlock, end - start);
      Block<M> block;
      const Value total =
          block.lift(source(segment, start, count, in),
                     block_ahead(segment, start + ahead, before == nullptr ? 0 : kFetchedByTotals));
      const Value carry = M::value(tree.carry());
      const bool whole = direct && count == kBlock;
      if (whole && streaming)
        finish<simd::Stores::streaming>(block, carry, init, y + start);
      else
        finish<simd::Stores::cached>(block, carry, init, whole ? y + start : out);
      if (!whole) shifted.write(start, count, out);
      if (start + kBlock < end) tree.push(M::carry(total));
    }
    shifted.end();
    if (streaming) simd::fence();
  }

  static void columns(const Columns& columns, std::byte* state, bool streaming) {
    const State arrays(state);
    const Segment& segment = columns.segment;
    const bool direct = segment.types->x.computed_in && segment.types->y.computed_in;
    if constexpr (kWidth * sizeof(Real) == 64)  // others store less than a line at a time
      streaming = streaming && direct && segment.y * std::int64_t{sizeof(Real)} % 64 == 0 &&
                  simd::streamable(reinterpret_cast<Real*>(segment.at.y));
    else
      streaming = false;
    for (std::int64_t j = 0; j < columns.count; j += kWidth) arrays.start(columns, j);
    for (std::int64_t group = 0; group * kGroup < segment.length; ++group)
      for (std::int64_t j = 0; j < columns.count; j += kWidth)
        if (!direct || columns.count - j < kWidth || segment.length - group * kGroup < kGroup)
          group_of_columns<false>(columns, arrays, group, j);
        else if (streaming)
          group_of_columns<true, simd::Stores::streaming>(columns, arrays, group, j);
        else
          group_of_columns<true>(columns, arrays, group, j);
    if (streaming) simd::fence();
  }
  static std::int64_t state_bytes(std::int64_t length) {
    return State::arrays(length) * kStrip * static_cast<std::int64_t>(sizeof(Real));
  }

 private:
  ISOBIT_INLINE static std::optional<Value> init_value(const Segment& segment) {
    if (segment.at.init == nullptr) return std::nullopt;
    Real init;
    segment.types->y.read(segment.at.init, 1, 1, 1, &init, 1);
    return M::lift(S::all(init));
  }

  // The last of Sklansky's results, in all lanes: what neighbours make, and these, and so on.
  ISOBIT_INLINE static Value block_total(const Real* in) {
    using L = Lanes<S>;
    constexpr int kVectors = kBlock / kWidth;
    Value values[kVectors / 2];
    for (int j = 0; j < kVectors / 2; ++j)
      values[j] = L::template pairs<M>(M::lift(S::load(in + 2 * j * kWidth)),
                                       M::lift(S::load(in + (2 * j + 1) * kWidth)));
    for (int count = kVectors / 4; count > 0; count /= 2)
      for (int j = 0; j < count; ++j)
        values[j] = L::template pairs<M>(values[2 * j], values[2 * j + 1]);
    for (int width = kWidth; width > 1; width /= 2)
      values[0] = L::template pairs<M>(values[0], values[0]);
    return values[0];
  }

  // Of the groups of a block ahead, those that `total` fetches, in proportion to its time: the
  // memory would rest meanwhile.
  static constexpr int kFetchedByTotals = 6;
  ISOBIT_INLINE static Fetched<Real> block_ahead(const Segment& segment, std::int64_t start,
                                                 int first_group) {
    const std::int64_t group_bytes = kGroup * segment.x * segment.types->x.bytes;
    return {segment.at.x + start / kGroup * group_bytes, group_bytes, first_group};
  }

  template <simd::Stores kStores>
  ISOBIT_INLINE static void finish(Block<M>& block, const Value& carry,
                                   const std::optional<Value>& init, Real* out) {
    block.carry_on(carry);
    if (init)
      block.template write<kStores>(
          out, [&](const Value& value) ISOBIT_INLINE_LAMBDA { return M::combine(*init, value); });
    else
      block.template write<kStores>(out,
                                    [](const Value& value) ISOBIT_INLINE_LAMBDA { return value; });
  }

  // A block's elements, adjacent and wide: where they lie, or in `buffer`.
  ISOBIT_INLINE static const Real* source(const Segment& segment, std::int64_t start,
                                          std::int64_t count, Real* buffer) {
    const Elements& type = segment.types->x;
    const std::byte* const x = segment.at.x + start * segment.x * type.bytes;
    if (type.computed_in && segment.x == 1 && count == kBlock)
      return reinterpret_cast<const Real*>(x);
    if (segment.x == 1)
      type.read(x, 0, 1, count, buffer, 0);
    else
      type.read(x, segment.x, count, 1, buffer, 1);
    for (std::int64_t i = count; i < kBlock; ++i) buffer[i] = 0;
    return buffer;
  }

  // Writes results in order; in an exclusive scan each where the next element is, which may be what
  // is read next: so the last of a block waits.
  class Shifted {
   public:
    Shifted(const Segment& segment, std::int64_t begin, std::int64_t end,
            const std::optional<Value>& init)
        : segment_(segment), end_(end) {
      if (begin > 0 || !segment.exclusive) return;
      waits_ = true;
      alignas(64) Real first[kWidth];
      S::store(first, M::number(init ? *init : M::neutral()));
      waiting_ = first[0];
    }
    ISOBIT_INLINE void write(std::int64_t start, std::int64_t count, const Real* results) {
      if (!segment_.exclusive) return put(start, results, count);
      if (waits_) put(start, &waiting_, 1);
      put(start + 1, results, count - 1);
      waits_ = true;
      waiting_ = results[count - 1];
    }
    ISOBIT_INLINE void end() {
      if (segment_.exclusive && end_ < segment_.length) put(end_, &waiting_, 1);
    }

   private:
    ISOBIT_INLINE void put(std::int64_t at, const Real* from, std::int64_t count) const {
      const Elements& type = segment_.types->y;
      std::byte* const y = segment_.at.y + at * segment_.y * type.bytes;
      if (segment_.y == 1)
        type.write(from, 0, 1, count, y, 0);
      else
        type.write(from, 1, count, 1, y, segment_.y);
    }

    const Segment& segment_;
    std::int64_t end_;
    bool waits_ = false;
    Real waiting_ = 0;
  };

  // What columns keep from group to group, an array of kStrip numbers for each part.
  class State {
   public:
    static std::int64_t levels(std::int64_t length) {
      std::int64_t count = 1;
      while (length / kBlock >> count != 0) ++count;
      return count;
    }
    static std::int64_t arrays(std::int64_t length) {
      return kFixed + M::kCarryParts * levels(length);
    }
    explicit State(std::byte* memory) : memory_(reinterpret_cast<Real*>(memory)) {}

    ISOBIT_INLINE void start(const Columns& columns, std::int64_t j) const {
      put(before(j), kStrip, M::neutral());
      put(carry(j), kStrip, M::carry(M::neutral()));
      Value first = M::neutral();
      if (columns.segment.at.init != nullptr) {
        alignas(64) Real values[kWidth] = {};
        const Elements& type = columns.segment.types->y;
        type.read(columns.segment.at.init + j * columns.init * type.bytes, columns.init,
                  least(kWidth, columns.count - j), 1, values, 1);
        first = M::lift(S::load(values));
      }
      put(init(j), kStrip, first);
      S::store(waiting(j), M::number(first));
    }

    ISOBIT_INLINE Real* before(std::int64_t j) const { return array(0) + j; }
    ISOBIT_INLINE Real* init(std::int64_t j) const { return array(M::kParts) + j; }
    ISOBIT_INLINE Real* group(std::int64_t j, int level) const {
      return array((2 + level) * M::kParts) + j;
    }
    ISOBIT_INLINE Real* waiting(std::int64_t j) const { return array(7 * M::kParts) + j; }
    ISOBIT_INLINE Real* carry(std::int64_t j) const { return array(7 * M::kParts + 1) + j; }
    ISOBIT_INLINE Real* node(std::int64_t j, int level) const {
      return array(kFixed + level * M::kCarryParts) + j;
    }

   private:
    static constexpr std::int64_t kFixed = 7 * M::kParts + 1 + M::kCarryParts;
    ISOBIT_INLINE Real* array(std::int64_t number) const { return memory_ + number * kStrip; }
    Real* memory_;
  };

  // 16 rows of a vector of columns: kDirect of all in the type that is computed in, else of fewer
  // or of other types.
  template <bool kDirect, simd::Stores kStores = simd::Stores::cached>
  ISOBIT_INLINE static void group_of_columns(const Columns& columns, const State& state,
                                             std::int64_t group, std::int64_t j) {
    const Segment& segment = columns.segment;
    const Elements &x_type = segment.types->x, &y_type = segment.types->y;
    const std::int64_t start = group * kGroup;
    const std::int64_t width = kDirect ? kWidth : least(kWidth, columns.count - j);
    const std::int64_t rows = kDirect ? kGroup : least(kGroup, segment.length - start);
    const std::byte* const x = segment.at.x + (start * segment.x + j) * x_type.bytes;
    std::byte* const y = segment.at.y + (start * segment.y + j) * y_type.bytes;
    alignas(64) Real buffer[kDirect ? 1 : kGroup * kWidth];
    if constexpr (!kDirect) {
      if (width < kWidth) std::fill(std::begin(buffer), std::end(buffer), Real{0});
      x_type.read(x, segment.x, rows, width, buffer, kWidth);
    }
    const Real* const from = kDirect ? reinterpret_cast<const Real*>(x) : buffer;
    Real* const to = kDirect ? reinterpret_cast<Real*>(y) : buffer;
    const std::int64_t from_stride = kDirect ? segment.x : kWidth;
    const std::int64_t to_stride = kDirect ? segment.y : kWidth;
    Value values[kGroup];
    for_each<kUnrolled, kGroup>([&](int i) ISOBIT_INLINE_LAMBDA {
      values[i] = M::lift(i < rows ? S::load(from + i * from_stride) : functions::all<S>(0));
    });
    if constexpr (kUnrolled)
      sklansky<M>(values);
    else
      sklansky_in_memory<M>(values);
    const Value base = M::combine(M::value(get<Carry>(state.carry(j), kStrip)),
                                  get<Value>(state.before(j), kStrip));
    const bool has_init = segment.at.init != nullptr;
    const Value init = get<Value>(state.init(j), kStrip);
    if (segment.exclusive) S::template store<kStores>(to, S::load(state.waiting(j)));
    V last = functions::all<S>(0);
    for_each<kUnrolled, kGroup>([&](int i) ISOBIT_INLINE_LAMBDA {
      if (i >= rows) return;
      Value result = M::combine(base, values[i]);
      if (has_init) result = M::combine(init, result);
      last = M::number(result);
      const int at = segment.exclusive ? i + 1 : i;
      if (at < rows) S::template store<kStores>(to + at * to_stride, last);
    });
    if constexpr (!kDirect) y_type.write(buffer, kWidth, rows, width, y, segment.y);
    S::store(state.waiting(j), last);
    if (start + kGroup < segment.length) advance(state, group, j, values[kGroup - 1]);
  }

  // E of the next group; after the last of a block, C of the next.
  ISOBIT_INLINE static void advance(const State& state, std::int64_t group, std::int64_t j,
                                    Value total) {
    const auto place = static_cast<int>(group % kGroups);
    Value next = total;
    for (int level = 0; level < 5; ++level)
      if (place >> level & 1) next = M::combine(get<Value>(state.group(j, level), kStrip), next);
    if (place + 1 < kGroups) {
      int level = 0;
      for (; place >> level & 1; ++level)
        total = M::combine(get<Value>(state.group(j, level), kStrip), total);
      put(state.group(j, level), kStrip, total);
      return put(state.before(j), kStrip, next);
    }
    put(state.before(j), kStrip, M::neutral());
    const std::int64_t block = group / kGroups;
    Carry node = M::carry(next);
    int level = 0;
    for (; block >> level & 1; ++level)
      node = M::join(get<Carry>(state.node(j, level), kStrip), node);
    put(state.node(j, level), kStrip, node);
    const std::int64_t blocks = block + 1;
    Carry carry = M::join(M::carry(M::neutral()), node);
    for (++level; blocks >> level != 0; ++level)
      if (blocks >> level & 1) carry = M::join(get<Carry>(state.node(j, level), kStrip), carry);
    put(state.carry(j), kStrip, carry);
  }
};

}  // namespace isobit::scan::ISOBIT_ISA
