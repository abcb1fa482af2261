// SPDX-License-Identifier: Apache-2.0
// What the CPU variants share: where things lie, which lines of scores there are, how tasks are
// dealt.
#pragma once

#include <atomic>
#include <bit>
#include <cstring>
#include <type_traits>

#include "isobit/core/amx.h"
#include "isobit/core/execution.h"
#include "isobit/ops/attention/cpu_kernels.h"
#include "isobit/ops/attention/formula.h"
#include "isobit/ops/attention/problem.h"
#include "isobit/ops/matmul/cpu_panels.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::attention {

ForwardVariant amx_forward_variant();
ForwardVariant flash_forward_variant();
ForwardVariant decode_variant();
ForwardVariant mixed_variant();
ForwardVariant naive_forward_variant();
BackwardVariant flash_backward_variant();
BackwardVariant naive_backward_variant();

inline constexpr std::int64_t kRunKeys = std::int64_t{kPanel} * kRun;

const Kernels& kernels_for(DType x, Isa isa);

inline std::int64_t parts_of(std::int64_t count, std::int64_t part) {
  return (count + part - 1) / part;
}
// Elements that begin at a cache line each.
inline std::int64_t lines_of(std::int64_t elements) { return parts_of(elements, 16) * 16; }

// How many states of runs there are at once.
inline std::int64_t levels_of(std::int64_t runs) {
  return std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(1, runs)));
}

// Calls visit(T{}, Real{}) with the types of elements and of sums.
template <class Visit>
void with_types(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::f16:  return visit(f16{}, float{});
    case DType::bf16: return visit(bf16{}, float{});
    case DType::f64:  return visit(double{}, double{});
    default:          return visit(float{}, float{});
  }
}

using simd::ScalarOf;

template <class Real, class T>
Real element(const std::byte* from) {
  return widen<Real>(*reinterpret_cast<const T*>(from));
}

// Tasks take one unit after the other, whoever is first.
template <class Body>
void deal(const Execution& execution, std::int64_t tasks, std::int64_t units, const Body& body) {
  std::atomic<std::int64_t> next{0};
  execution.parallel_for(tasks, [&](std::int64_t task) {
    const simd::FloatMode mode;
    for (std::int64_t unit = next++; unit < units; unit = next++) body(task, unit);
  });
}

// Calls visit(key) for each key that a sequence does not have. Of packed ones those behind the last
// are the affair of the queries there.
template <class Visit>
void for_each_absent(const Problem& problem, std::int64_t sequence, const Visit& visit) {
  if (problem.key_starts && sequence < problem.sequences) return;
  const Range held = problem.keys_held(sequence);
  for (std::int64_t key = 0; !problem.key_starts && key < held.begin; ++key) visit(key);
  for (std::int64_t key = held.end; key < problem.seq_k; ++key) visit(key);
}

// Pairs of a query and a key in all sequences.
inline double pairs_of(const Problem& problem) {
  if (!problem.query_starts && !problem.blocks)
    return static_cast<double>(problem.batch) * Lengths{problem.seq_q, problem.seq_k}.pairs();
  double pairs = 0;
  for (std::int64_t s = 0; s < problem.sequences; ++s) pairs += problem.lengths(s).pairs();
  return pairs;
}

// Products and additions of a call, in elements that wake a thread.
inline std::int64_t worth_of(const Problem& problem) {
  const double fmas = pairs_of(problem) * static_cast<double>(problem.heads) *
                      static_cast<double>(problem.head_dim + problem.value_dim + 16);
  return static_cast<std::int64_t>(std::min(fmas / 8, 0x1p60));
}

// A call of as many sequences, each as long as the longest of those that count(lengths).
template <class Count>
Problem longest(const Problem& problem, const Count& count) {
  Problem result = problem;
  if (!problem.query_starts && !problem.blocks) return result;
  result.seq_q = result.seq_k = 0;
  for (std::int64_t s = 0; s < problem.sequences; ++s) {
    const Lengths lengths = problem.lengths(s);
    if (!count(lengths)) continue;
    result.seq_q = std::max(result.seq_q, lengths.queries);
    result.seq_k = std::max(result.seq_k, lengths.keys);
  }
  return result;
}
inline Problem longest(const Problem& problem) {
  return longest(problem, [](const Lengths&) { return true; });
}

// Which sequences of a call are computed.
using Takes = bool (*)(const Problem&, const Lengths&);
inline bool takes_all(const Problem&, const Lengths&) { return true; }

// decode and flash, of those that are taken; flash's default plan.
inline constexpr Plan kFlashPlan = {8};
std::string decode_declines_call(const Problem& problem);
bool is_for_decode(const Problem& problem, const Lengths& lengths);
std::size_t decode_workspace(const Problem& problem, const Machine& machine, Takes takes);
void run_decode(const Problem& problem, const Execution& execution, Takes takes);
enum class By { vectors, tiles };  // how flash multiplies
std::size_t flash_workspace(const Problem& problem, const Plan& plan, const Machine& machine,
                            Takes takes, By by = By::vectors);
void run_flash(const Problem& problem, const Plan& plan, const Execution& execution, Takes takes,
               By by = By::vectors);

// Which jobs, of a sequence and a head of k each, threads take side by side; for the others all
// threads come together. The latter are those with much of the work, or with more keys than a
// thread may hold.
struct Shares {
  std::int64_t jobs, tasks;
  double most_pairs;
  std::int64_t most_keys;
  Problem brief, lasting;  // as long as the longest of each kind
  bool any_brief = false, any_lasting = false;

  Shares(const Problem& p, std::int64_t threads, std::int64_t keys, Takes takes = takes_all)
      : jobs(p.calls() * p.kv_heads), tasks(threads), most_keys(keys) {
    constexpr int kMany = 8;  // jobs of a thread, so that the last ones to end are a small part
    const bool even = jobs % tasks == 0 || jobs >= kMany * tasks;
    const double share =
        pairs_of(p) * static_cast<double>(p.kv_heads) / static_cast<double>(kMany * tasks);
    most_pairs = p.query_starts && tasks > 1 ? share : even ? 0x1p200 : -1;
    brief = longest(p, [&](const Lengths& job) { return takes(p, job) && is_brief(job); });
    lasting = longest(p, [&](const Lengths& job) { return takes(p, job) && !is_brief(job); });
    for (std::int64_t s = 0; s < p.calls(); ++s)
      if (const Lengths job = p.lengths(s); takes(p, job))
        (is_brief(job) ? any_brief : any_lasting) = true;
  }
  bool is_brief(const Lengths& job) const {
    return job.pairs() <= most_pairs && job.keys <= most_keys;
  }
};

// Rows of keys, as they lie in memory or gathered from blocks.
struct Rows {
  const std::byte* data;
  std::int64_t row, col;  // elements from one to the next
};

// Some rows of k or v. The room is of `count` rows side by side.
template <class T>
Rows rows_of(const Problem& p, const Array& array, std::int64_t batch, std::int64_t kv_head,
             std::int64_t first, std::int64_t count, std::int64_t cols, void* room) {
  const std::int64_t place = p.first + first;
  if (!p.blocks || count == 0 || place / p.block == (place + count - 1) / p.block)
    return {count == 0 ? array.data : p.key_at(array, batch, kv_head, first), array.row, array.col};
  auto* const to = static_cast<T*>(room);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* from = reinterpret_cast<const T*>(p.key_at(array, batch, kv_head, first + i));
    for (std::int64_t c = 0; c < cols; ++c) to[i * cols + c] = from[c * array.col];
  }
  return {static_cast<const std::byte*>(room), cols, 1};
}
// Numbers that their room takes, of any panel of k or v: gathered, or without what is not finite.
inline std::int64_t room_for_rows(const Problem& p) {
  return p.blocks || p.arithmetic == Arithmetic::tensor
             ? lines_of(kPanel * std::max(p.head_dim, p.value_dim))
             : 0;
}

// The same rows, with +0 for what is not finite.
template <class T>
Rows finite_rows(const Rows& rows, std::int64_t count, std::int64_t cols, void* room) {
  const auto* from = reinterpret_cast<const T*>(rows.data);
  auto* const to = static_cast<T*>(room);
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t c = 0; c < cols; ++c) {
      const T each = from[i * rows.row + c * rows.col];
      to[i * cols + c] = std::isfinite(to_float(each)) ? each : T{};
    }
  return {static_cast<const std::byte*>(room), cols, 1};
}

// Which keys of a query are there, element by element: the exponents of their scores, -infinity
// where they are not.
template <class T, class Real>
class Row {
 public:
  Row(const Problem& problem, std::int64_t batch, std::int64_t head, std::int64_t query)
      : problem_(problem),
        scaling_(Scaling<Real>::of(problem.scale, problem.softcap, problem.head_dim)),
        batch_(batch),
        head_(head),
        query_(query),
        keys_(problem.keys_of(query)) {}

  Real product(std::int64_t key) const {
    const auto q = [&](std::int64_t d) {
      return element<Real, T>(problem_.q.at(batch_, head_, query_, d));
    };
    const auto k = [&](std::int64_t d) {
      return element<Real, T>(
          problem_.key_at(problem_.k, batch_, head_ / problem_.group(), key, d));
    };
    if constexpr (std::is_same_v<T, bf16>)
      if (problem_.arithmetic == Arithmetic::tensor) return amx::run(0, problem_.head_dim, q, k);
    Real sum = 0;
    for (std::int64_t d = 0; d < problem_.head_dim; ++d) sum = std::fma(q(d), k(d), sum);
    return sum;
  }
  Real exponent(std::int64_t key, Real product) const {
    using S = ScalarOf<Real>;
    if (key < keys_.begin || key >= keys_.end) return -kInfinity<Real>;
    if (problem_.mask && *problem_.mask.at(batch_, head_, query_, key) == std::byte{0})
      return -kInfinity<Real>;
    Real exponent = exponent_of<S>(scaling_, product);
    if (problem_.bias)
      exponent = biased<S>(scaling_, exponent,
                           element<Real, T>(problem_.bias.at(batch_, head_, query_, key)));
    if (problem_.slopes)
      exponent = sloped<S>(scaling_, exponent,
                           *reinterpret_cast<const Real*>(problem_.slopes.at(batch_, head_)),
                           static_cast<Real>(problem_.distance(query_, key)), bool{problem_.bias});
    return exponent;
  }
  Real exponent(std::int64_t key) const { return exponent(key, product(key)); }
  static bool is_there(Real exponent) { return !(exponent == -kInfinity<Real>); }

 private:
  const Problem& problem_;
  Scaling<Real> scaling_;
  std::int64_t batch_, head_, query_;
  Range keys_;
};

}  // namespace isobit::attention
