// SPDX-License-Identifier: Apache-2.0
// A call as the kernels for GPUs see it: rows of elements, where a query and a key meet, sums over
// a block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "isobit/ops/attention/formula.h"
#include "isobit/ops/attention/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/scalar.h"

namespace isobit::attention {

constexpr int kThreads = kPanel;
constexpr int kLanes = 64;               // of the row order
constexpr std::int64_t kMostDim = 5120;  // of heads, whose sums are in shared memory

inline constexpr const char* kNotTensor = "has no tensor arithmetic";

template <class T>
using RealOf = std::conditional_t<sizeof(T) == 8, double, float>;

inline std::int64_t levels_of(std::int64_t panels) {
  std::int64_t levels = 1;
  for (std::int64_t runs = (panels + kRun - 1) / kRun; runs > 1; runs /= 2) ++levels;
  return levels;
}

inline std::int64_t levels_of_keys(const Problem& p) {
  return levels_of((p.seq_k + kPanel - 1) / kPanel);
}
inline std::int64_t levels_of_queries(const Problem& p) {
  return levels_of(p.group() * ((p.seq_q + kPanel - 1) / kPanel));
}

// One row of elements.
template <class T>
struct Line {
  const T* data;
  std::int64_t step;

  ISOBIT_DEVICE Line(const Array& array, std::int64_t batch, std::int64_t head, std::int64_t row)
      : Line(array, array.at(batch, head, row)) {}
  ISOBIT_DEVICE Line(const Array& array, const std::byte* at)
      : data(reinterpret_cast<const T*>(at)), step(array.col) {}
  ISOBIT_DEVICE RealOf<T> operator[](std::int64_t i) const {
    return simt::Conversions::template widen<RealOf<T>>(data[i * step]);
  }
};

template <class Real, class A, class B>
ISOBIT_DEVICE Real chain_of(std::int64_t count, const A& a, const B& b) {
  Real sum = 0;
#pragma unroll 1
  for (std::int64_t i = 0; i < count; ++i) sum = tile::Scalar<Real>::fma(a[i], b[i], sum);
  return sum;
}

// A lane of the row order's sum of products, of a block of them from `first` on.
template <class S, class T>
ISOBIT_DEVICE RealOf<T> lane_of_products(const Line<T>& a, const Line<T>& b, std::int64_t first,
                                         int lane, std::int64_t count) {
  using Real = RealOf<T>;
  const auto at = [&](const Line<T>& line, std::int64_t i) {
    return i < count ? line[i] : Real(0);
  };
  Real rows[4] = {};
#pragma unroll 4
  for (int i = 0; i < 4; ++i) {
    const std::int64_t low = first + i * kLanes + lane, high = low + 4 * kLanes;
    rows[i] = S::fma(at(a, high), at(b, high), S::mul(at(a, low), at(b, low)));
  }
  return S::add(S::add(rows[0], rows[2]), S::add(rows[1], rows[3]));
}

// One sequence of a call: of the batch, or of those that are packed. Of the latter there is one
// more: the queries that belong to none, without keys.
struct Sequence {
  std::int64_t number;         // as dropout counts it
  std::int64_t batch;          // as arrays have it
  Range queries;               // rows of q
  std::int64_t first_key;      // the row of k of key 0
  Range held;                  // keys that it has
  std::int64_t offset, apart;  // as in Problem

  ISOBIT_DEVICE std::int64_t distance(std::int64_t query, std::int64_t key) const {
    const std::int64_t distance = query + apart - key;
    return distance < 0 ? -distance : distance;
  }
};

// Packed sequences in parts of so many rows. Of each there are as many places as its parts take at
// most, wherever it begins; and behind them those of the rows that belong to none.
struct Parts {
  std::int64_t rows, sequences, size;

  ISOBIT_EITHER std::int64_t places() const { return rows / size + sequences + 1; }
  ISOBIT_DEVICE std::int64_t places_before(const Array& starts, std::int64_t s) const {
    return Problem::within(Problem::number(starts, s), rows) / size + s;
  }
  // A part may be one that its sequence does not have; below 0 where starts are none.
  struct Part {
    std::int64_t sequence, number;
  };
  ISOBIT_DEVICE Part at(const Array& starts, std::int64_t place) const {
    std::int64_t found = 0;
#pragma unroll 1
    for (std::int64_t end = sequences + 1; end - found > 1;) {
      const std::int64_t middle = found + (end - found) / 2;
      if (places_before(starts, middle) <= place)
        found = middle;
      else
        end = middle;
    }
    return {found, place - places_before(starts, found)};
  }
};

// All of a call, and where a query and a key meet. Queries and keys are counted in their sequence.
template <class T>
struct Call {
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;
  Problem p;

  // Made where they are used, by the rounding of kernels.
  ISOBIT_DEVICE Scaling<Real> scaling() const {
    return Scaling<Real>::of(p.scale, p.softcap, p.head_dim);
  }
  ISOBIT_DEVICE Dropout<Real> dropout() const {
    return Dropout<Real>::of(p.dropout, p.dropout_seed);
  }

  ISOBIT_DEVICE std::int64_t kv_head(std::int64_t head) const { return head / p.group(); }

  // Whole numbers may be anything here: what leads out of the arrays is clamped.
  ISOBIT_DEVICE Sequence sequence(std::int64_t s) const {
    Sequence all{s, p.query_starts ? 0 : s, {0, p.seq_q}, 0, {0, 0}, p.offset, p.apart};
    const auto between = [&](const Array& starts, std::int64_t rows) -> Range {
      const std::int64_t begin = Problem::within(Problem::number(starts, s), rows);
      if (s == p.sequences) return {begin, rows};
      const std::int64_t end = Problem::within(Problem::number(starts, s + 1), rows);
      return {begin, end < begin ? begin : end};
    };
    if (p.query_starts) all.queries = between(p.query_starts, p.seq_q);
    if (p.query_starts && s == p.sequences) return all;
    if (p.key_starts) {
      const Range keys = between(p.key_starts, p.seq_k);
      all.first_key = keys.begin;
      all.held = {0, keys.end - keys.begin};
    } else if (!p.blocks || p.pool > 0) {
      all.held = p.held(s);
    }
    if (p.key_starts || p.blocks) {
      all.apart = all.held.end - all.queries.count();
      all.offset = p.from_the_end ? all.apart : 0;
    }
    return all;
  }
  // That of a row of q, or of k.
  ISOBIT_DEVICE Sequence sequence_of(const Array& starts, std::int64_t batch,
                                     std::int64_t row) const {
    return sequence(starts ? p.sequence_of(starts, row) : batch);
  }

  ISOBIT_DEVICE Range keys_of(const Sequence& in, std::int64_t query) const {
    const Range keys = p.keys_at(query + in.offset);
    return {keys.begin < in.held.begin ? in.held.begin : keys.begin,
            keys.end < in.held.end ? keys.end : in.held.end};
  }
  // A row of k or v.
  ISOBIT_DEVICE const std::byte* key_at(const Array& array, const Sequence& in,
                                        std::int64_t kv_head, std::int64_t key) const {
    if (!p.blocks) return array.at(in.batch, kv_head, in.first_key + key);
    const std::int64_t place = key / p.block, found = Problem::number(p.blocks, in.number, place);
    return array.at(Problem::within(found, p.pool - 1), kv_head, key - place * p.block);
  }

  // What makes products of a query exponents, found once for all of its keys.
  struct Row {
    std::int64_t query = 0;
    Range keys{0, 0};
    const std::byte* mask = nullptr;
    const std::byte* bias = nullptr;
    Real slope = 0;
  };
  ISOBIT_DEVICE Row row(const Sequence& in, std::int64_t head, std::int64_t query,
                        const Range& keys) const {
    Row row{.query = query, .keys = keys};
    if (p.mask) row.mask = p.mask.at(in.batch, head, query);
    if (p.bias) row.bias = p.bias.at(in.batch, head, query);
    if (p.slopes) row.slope = real(p.slopes, in.batch, head, 0);
    return row;
  }
  ISOBIT_DEVICE Real exponent(const Scaling<Real>& scaling, const Sequence& in, const Row& row,
                              std::int64_t key, Real product) const {
    return exponent_by(
        scaling, in, row.query, key, product, row.keys, [&] { return row.mask + key * p.mask.col; },
        [&] { return Line<T>(p.bias, row.bias)[key]; }, [&] { return row.slope; });
  }
  ISOBIT_DEVICE Real exponent(const Scaling<Real>& scaling, const Sequence& in, std::int64_t head,
                              std::int64_t query, std::int64_t key, Real product,
                              const Range& keys) const {
    return exponent_by(
        scaling, in, query, key, product, keys,
        [&] { return p.mask.at(in.batch, head, query, key); },
        [&] { return Line<T>(p.bias, in.batch, head, query)[key]; },
        [&] { return real(p.slopes, in.batch, head, 0); });
  }
  ISOBIT_DEVICE bool keeps(const Sequence& in, std::int64_t head, std::int64_t query,
                           std::int64_t key) const {
    return p.dropout == 0 || dropout().keeps(in.number, head, query, key - in.held.begin);
  }
  ISOBIT_DEVICE Real real(const Array& array, std::int64_t batch, std::int64_t head,
                          std::int64_t query) const {
    return *reinterpret_cast<const Real*>(array.at(batch, head, query));
  }
  ISOBIT_DEVICE static bool is_there(Real exponent) { return !(exponent == -kInfinity<Real>); }

  template <class Mask, class Bias, class Slope>
  ISOBIT_DEVICE Real exponent_by(const Scaling<Real>& scaling, const Sequence& in,
                                 std::int64_t query, std::int64_t key, Real product,
                                 const Range& keys, const Mask& mask, const Bias& bias,
                                 const Slope& slope) const {
    if (key < keys.begin || key >= keys.end) return -kInfinity<Real>;
    if (p.mask && *mask() == std::byte{0}) return -kInfinity<Real>;
    Real exponent = exponent_of<S>(scaling, product);
    if (p.bias) exponent = biased<S>(scaling, exponent, bias());
    if (p.slopes)
      exponent = sloped<S>(scaling, exponent, slope(), static_cast<Real>(in.distance(query, key)),
                           bool{p.bias});
    return exponent;
  }

  // What becomes of a query's sums, but for y.
  ISOBIT_DEVICE void put(std::int64_t batch, std::int64_t head, std::int64_t row, Real max,
                         Real sum) const {
    const auto put = [&](const Array& array, Real value) {
      if (array)
        *reinterpret_cast<Real*>(array.at(batch, head, row)) =
            simt::Conversions::template narrow<Real>(value);
    };
    put(p.lse, lse_of<S>(max, sum));
    put(p.max, returned_max<S>(max, sum));
    put(p.sum, sum);
  }
};

// terms[0] = all of them, halves onto each other; every thread has one.
template <class Real, class Join>
ISOBIT_DEVICE Real folded(Real* terms, Real value, int count, const Join& join) {
  if (simt::thread() < count) terms[simt::thread()] = value;
  simt::sync_block();
#pragma unroll 1
  for (int half = count / 2; half >= 1; half /= 2) {
    if (simt::thread() < half)
      terms[simt::thread()] = join(terms[simt::thread()], terms[simt::thread() + half]);
    simt::sync_block();
  }
  const Real all = terms[0];
  simt::sync_block();
  return all;
}

template <class Real>
ISOBIT_DEVICE Real sum_of(Real* terms, Real value, int count) {
  return folded(terms, value, count, [](Real a, Real b) { return tile::Scalar<Real>::add(a, b); });
}

template <class Run>
void with_type(DType dtype, const Run& run) {
  switch (dtype) {
    case DType::f16:  return run(f16{});
    case DType::bf16: return run(bf16{});
    case DType::f64:  return run(double{});
    default:          return run(float{});
  }
}

template <class Kernel>
void launch(const Kernel& kernel, const Execution& execution) {
  if (kernel.rows() == 0) return;
  simt::launch(static_cast<simt::Stream>(execution.stream),
               {.blocks = std::min(kernel.rows(), simt::kMostBlocks), .threads = kThreads}, kernel);
}

// `numbers`: that the largest of its kernels has in shared memory.
inline std::string declines(const Problem& problem, std::int64_t numbers, const Machine& machine) {
  if (std::max(problem.head_dim, problem.value_dim) > kMostDim)
    return "needs heads of at most 5120 elements";
  if (numbers * size_of(problem.real()) > machine.gpu.shared_bytes)
    return "needs the sums of a head at every level of their order in shared memory";
  return {};
}

// What is told of heads whose numbers a block has no shared memory for, or nothing.
inline std::string without_room(const Problem& p, std::int64_t needed, const Machine& machine) {
  if (needed <= machine.gpu.shared_bytes) return {};
  return "needs " + std::to_string(needed) + " bytes of shared memory for heads of " +
         std::to_string(p.head_dim) + " and " + std::to_string(p.value_dim) +
         " elements; a block has " + std::to_string(machine.gpu.shared_bytes);
}

ForwardVariant cuda_flash_variant();
ForwardVariant cuda_decode_variant();
ForwardVariant cuda_mma_variant();
BackwardVariant cuda_mma_backward_variant();
ForwardVariant cuda_wgmma_variant();
bool suits_decode(const Problem& p);  // else tiles of queries are faster

}  // namespace isobit::attention
