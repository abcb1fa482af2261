// SPDX-License-Identifier: Apache-2.0
// The variant for GPUs that computes a query a block: threads share the keys of a panel, and then
// the columns. And the table of variants.
#include "isobit/ops/attention/cuda_call.h"

namespace isobit::attention {
namespace {

// A query a block. States of runs lie in shared memory: max, sum, and the columns of y.
template <class T>
struct OnlineRow {
  static constexpr int kMostThreads = kThreads;
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;
  Call<T> call;
  std::int64_t levels;

  struct Memory {
    Real *q, *weights, *terms, *states;
    int* there;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Memory m{};
    m.q = carver.template take<Real>(call.p.head_dim);
    m.weights = carver.template take<Real>(kPanel);
    m.terms = carver.template take<Real>(kPanel);
    m.states = carver.template take<Real>(levels * width());
    m.there = carver.template take<int>(kPanel);
    return m;
  }
  ISOBIT_EITHER std::int64_t width() const { return call.p.value_dim + 2; }
  ISOBIT_EITHER std::int64_t rows() const { return call.p.batch * call.p.heads * call.p.seq_q; }

  ISOBIT_DEVICE void operator()(const Memory& m) const {
#pragma unroll 1
    for (std::int64_t row = simt::block(); row < rows(); row += simt::blocks()) {
      const std::int64_t head = row / call.p.seq_q;
      compute(m, head / call.p.heads, head % call.p.heads, row - head * call.p.seq_q);
    }
  }

 private:
  ISOBIT_DEVICE void compute(const Memory& m, std::int64_t batch, std::int64_t head,
                             std::int64_t row) const {
    const Problem& p = call.p;
    const Line<T> q(p.q, batch, head, row);
#pragma unroll 1
    for (std::int64_t d = simt::thread(); d < p.head_dim; d += kThreads) m.q[d] = q[d];
    simt::sync_block();
    const Sequence in = call.sequence_of(p.query_starts, batch, row);
    const std::int64_t query = row - in.queries.begin;
    const Range keys = call.keys_of(in, query);
    const std::int64_t seen = keys.end - in.held.begin;  // and those before them
    const std::int64_t runs = seen <= 0 ? 1 : (seen + kPanel * kRun - 1) / (kPanel * kRun);
    std::int64_t depth = 0;
#pragma unroll 1
    for (std::int64_t run = 0; run < runs; ++run) {
      clear(m.states + depth * width());
#pragma unroll 1
      for (std::int64_t at = 0; at < kRun; ++at) {
        const std::int64_t first = in.held.begin + (run * kRun + at) * kPanel;
        if (first < keys.end && first + kPanel > keys.begin)
          take(m, in, head, query, first, keys, m.states + depth * width());
      }
#pragma unroll 1
      for (std::int64_t count = run; count & 1; count >>= 1, --depth) join(m, depth);
      ++depth;
    }
#pragma unroll 1
    for (--depth; depth > 0; --depth) join(m, depth);
    finish(m.states, batch, head, row);
    simt::sync_block();
  }

  ISOBIT_DEVICE void clear(Real* state) const {
#pragma unroll 1
    for (std::int64_t i = simt::thread(); i < width(); i += kThreads)
      state[i] = i == 0 ? -kInfinity<Real> : Real(0);
    simt::sync_block();
  }

  ISOBIT_DEVICE void take(const Memory& m, const Sequence& in, std::int64_t head,
                          std::int64_t query, std::int64_t first, const Range& seen,
                          Real* state) const {
    const Problem& p = call.p;
    const std::int64_t key = first + simt::thread(), kv_head = call.kv_head(head);
    const std::int64_t keys = in.held.end - first < kPanel ? in.held.end - first : kPanel;
    Real exponent = -kInfinity<Real>;
    if (key < in.held.end)
      exponent = call.exponent(
          call.scaling(), in, head, query, key,
          chain_of<Real>(p.head_dim, m.q, Line<T>(p.k, call.key_at(p.k, in, kv_head, key))), seen);
    const Real top =
        folded(m.terms, nearest<S>(exponent), kPanel, [](Real a, Real b) { return S::max(a, b); });
    const Real weight = weight_of<S>(exponent, base_of<S>(top));
    const Real sum = sum_of(m.terms, weight, kPanel);
    const bool there = Call<T>::is_there(exponent) && call.keeps(in, head, query, key);
    m.there[simt::thread()] = there ? 1 : 0;
    m.weights[simt::thread()] = p.dropout > 0 ? S::mul(weight, call.dropout().scale) : weight;
    simt::sync_block();
    const auto fold = Fold<S>::of(state[0], top);
#pragma unroll 1
    for (std::int64_t c = simt::thread(); c < p.value_dim; c += kThreads) {
      Real chain = 0;
#pragma unroll 1
      for (std::int64_t j = 0; j < keys; ++j)
        if (m.there[j] != 0)
          chain = S::fma(m.weights[j], Line<T>(p.v, call.key_at(p.v, in, kv_head, first + j))[c],
                         chain);
      state[2 + c] = fold(state[2 + c], chain);
    }
    simt::sync_block();
    if (simt::thread() == 0) {
      state[0] = fold.max;
      state[1] = fold(state[1], sum);
    }
    simt::sync_block();
  }

  // The state above becomes a part of the one below.
  ISOBIT_DEVICE void join(const Memory& m, std::int64_t depth) const {
    Real *to = m.states + (depth - 1) * width(), *from = to + width();
    const auto fold = Fold<S>::of(to[0], from[0]);
    simt::sync_block();
#pragma unroll 1
    for (std::int64_t i = simt::thread(); i < width(); i += kThreads)
      to[i] = i == 0 ? fold.max : fold(to[i], from[i]);
    simt::sync_block();
  }

  ISOBIT_DEVICE void finish(const Real* state, std::int64_t batch, std::int64_t head,
                            std::int64_t row) const {
    const Problem& p = call.p;
    const Real inverse = inverse_of<S>(state[0], state[1]);
#pragma unroll 1
    for (std::int64_t c = simt::thread(); c < p.value_dim; c += kThreads)
      *reinterpret_cast<T*>(p.y.at(batch, head, row, c)) =
          simt::Conversions::template narrow<T>(y_of<S>(state[2 + c], inverse));
    if (simt::thread() == 0) call.put(batch, head, row, state[0], state[1]);
  }
};

void run_forward(const ForwardArgs&, const Problem& problem, const Plan&,
                 const Execution& execution) {
  const std::int64_t levels = levels_of_keys(problem);
  with_type(problem.dtype,
            [&]<class T>(T) { launch(OnlineRow<T>{Call<T>{problem}, levels}, execution); });
}

std::string declines_forward(const Problem& p, const Machine& machine) {
  if (p.arithmetic == Arithmetic::tensor) return kNotTensor;
  const std::int64_t levels = levels_of_keys(p);
  return declines(p, levels * (p.value_dim + 2) + p.head_dim + 3 * kPanel, machine);
}

}  // namespace

std::span<const ForwardVariant> cuda_forward_variants() {
  static const ForwardVariant kVariants[] = {
      cuda_flash_variant(),
      cuda_decode_variant(),
      {.name = "online_row", .declines = declines_forward, .run = run_forward},
      cuda_mma_variant(),
      cuda_wgmma_variant(),
  };
  return kVariants;
}

}  // namespace isobit::attention
