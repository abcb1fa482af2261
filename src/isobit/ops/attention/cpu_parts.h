// SPDX-License-Identifier: Apache-2.0
// What the CPU variants share: where things lie, which lines of scores there are, how tasks are
// dealt.
#pragma once

#include <atomic>
#include <bit>
#include <cstring>
#include <type_traits>

#include "isobit/core/execution.h"
#include "isobit/ops/attention/cpu_kernels.h"
#include "isobit/ops/attention/formula.h"
#include "isobit/ops/attention/problem.h"
#include "isobit/ops/matmul/cpu_panels.h"
#include "isobit/simd/tasks.h"
#include "isobit/simd/vec.h"

namespace isobit::attention {

ForwardVariant flash_forward_variant();
ForwardVariant decode_variant();
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

template <class Real>
using ScalarOf =
    std::conditional_t<std::is_same_v<Real, double>, simd::scalar::F64, simd::scalar::F32>;

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

// Calls visit(key) for each key that a sequence does not have.
template <class Visit>
void for_each_absent(const Problem& problem, std::int64_t batch, const Visit& visit) {
  const Range held = problem.held(batch);
  for (std::int64_t key = 0; key < held.begin; ++key) visit(key);
  for (std::int64_t key = held.end; key < problem.seq_k; ++key) visit(key);
}

// Products and additions of a call, in elements that wake a thread.
inline std::int64_t worth_of(const Problem& problem) {
  const double fmas = static_cast<double>(problem.batch) * static_cast<double>(problem.heads) *
                      static_cast<double>(problem.seq_q) * static_cast<double>(problem.seq_k) *
                      static_cast<double>(problem.head_dim + problem.value_dim + 16);
  return static_cast<std::int64_t>(std::min(fmas / 8, 0x1p60));
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
    const std::byte* q = problem_.q.at(batch_, head_, query_);
    const std::byte* k = problem_.k.at(batch_, head_ / problem_.group(), key);
    Real sum = 0;
    for (std::int64_t d = 0; d < problem_.head_dim; ++d)
      sum = std::fma(element<Real, T>(q + d * problem_.q.col * problem_.q.size),
                     element<Real, T>(k + d * problem_.k.col * problem_.k.size), sum);
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
