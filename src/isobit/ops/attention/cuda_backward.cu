// SPDX-License-Identifier: Apache-2.0
// Backward on GPUs: two kernels without a lock, by queries and by keys, of which each is a block.
#include "isobit/core/order.h"
#include "isobit/ops/attention/cuda_call.h"

namespace isobit::attention {
namespace {

// Sums over panels of columns, in shared memory: runs, and pairs of runs.
template <class Real>
struct Sums {
  Real* levels;
  std::int64_t cols;
  std::int64_t depth = 0, panels = 0, runs = 0;

  ISOBIT_DEVICE Real* now() const { return levels + depth * cols; }
  ISOBIT_DEVICE void clear() {
#pragma unroll 1
    for (std::int64_t c = simt::thread(); c < cols; c += simt::threads()) now()[c] = 0;
  }
  // Each thread has added to its own columns of now().
  ISOBIT_DEVICE void end_panel() {
    if (++panels % kRun == 0) end_run();
  }
  ISOBIT_DEVICE void end_run() {
#pragma unroll 1
    for (std::int64_t count = runs++; count & 1; count >>= 1) join();
    ++depth;
    if (panels % kRun == 0) clear();
  }
  ISOBIT_DEVICE Real* total() {
    if (panels % kRun != 0 || panels == 0) end_run();
#pragma unroll 1
    for (--depth; depth > 0;) join();
    return levels;
  }

 private:
  ISOBIT_DEVICE void join() {
    Real *from = now(), *to = from - cols;
#pragma unroll 1
    for (std::int64_t c = simt::thread(); c < cols; c += simt::threads())
      to[c] = tile::Scalar<Real>::add(to[c], from[c]);
    --depth;
  }
};

// What both kernels of backward know of a query and a key.
template <class Real>
struct Pair {
  bool there, kept;
  Real weight, of_score, of_bias;
};

template <class T, class Q, class K, class G, class V>
ISOBIT_DEVICE Pair<RealOf<T>> pair_of(const Call<T>& call, const Sequence& in, std::int64_t head,
                                      std::int64_t query, std::int64_t key, const Q& q, const K& k,
                                      const G& grad, const V& v, RealOf<T> mean) {
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;
  const Problem& p = call.p;
  Pair<Real> pair{};
  const Real product = chain_of<Real>(p.head_dim, q, k);
  const Real exponent =
      call.exponent(call.scaling(), in, head, query, key, product, call.keys_of(in, query));
  pair.there = Call<T>::is_there(exponent);
  if (!pair.there) return pair;
  pair.kept = call.keeps(in, head, query, key);
  const std::int64_t row = in.queries.begin + query;
  const Real max = call.real(p.max, in.batch, head, row);
  const Real probability =
      probability_of<S>(exponent, max, inverse_of<S>(max, call.real(p.sum, in.batch, head, row)));
  Real of_weight = 0;
  if (pair.kept) {
    of_weight = chain_of<Real>(p.value_dim, grad, v);
    pair.weight = probability;
    if (p.dropout > 0) {
      pair.weight = S::mul(probability, call.dropout().scale);
      of_weight = S::mul(of_weight, call.dropout().scale);
    }
  }
  pair.of_bias = pair.of_score = score_gradient<S>(probability, of_weight, mean);
  if (p.softcap != 0) pair.of_score = before_cap<S>(call.scaling(), pair.of_bias, product);
  return pair;
}

template <class T>
ISOBIT_DEVICE void write_row(const Array& array, std::int64_t batch, std::int64_t head,
                             std::int64_t row, std::int64_t cols, const RealOf<T>* sums,
                             RealOf<T> scale) {
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;
#pragma unroll 1
  for (std::int64_t c = simt::thread(); c < cols; c += kThreads)
    *reinterpret_cast<T*>(array.at(batch, head, row, c)) =
        simt::Conversions::template narrow<T>(S::mul(S::add(sums[c], Real(0)), scale));
}

// A query a block: its mean, the gradients of its scores, and of q.
template <class T>
struct Queries {
  static constexpr int kMostThreads = kThreads;
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;
  Call<T> call;
  std::int64_t levels;
  Real* means;

  struct Memory {
    Real *terms, *scores, *sums;
    int* there;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Memory m{};
    m.terms = carver.template take<Real>(kLanes);
    m.scores = carver.template take<Real>(kPanel);
    m.sums = carver.template take<Real>((levels + 1) * call.p.head_dim);
    m.there = carver.template take<int>(kPanel);
    return m;
  }
  ISOBIT_EITHER std::int64_t rows() const { return call.p.batch * call.p.heads * call.p.seq_q; }

  ISOBIT_DEVICE void operator()(const Memory& m) const {
#pragma unroll 1
    for (std::int64_t row = simt::block(); row < rows(); row += simt::blocks()) {
      const std::int64_t head = row / call.p.seq_q;
      compute(m, row, head / call.p.heads, head % call.p.heads, row - head * call.p.seq_q);
      simt::sync_block();
    }
  }

 private:
  // The row order's sum of products.
  ISOBIT_DEVICE Real mean_of(const Memory& m, std::int64_t batch, std::int64_t head,
                             std::int64_t query) const {
    const Line<T> grad(call.p.grad_y, batch, head, query), y(call.p.y, batch, head, query);
    order::PairTree<Real> blocks;
#pragma unroll 1
    for (std::int64_t first = 0; first < call.p.value_dim; first += order::kBlock) {
      Real lane = 0;
      if (simt::thread() < kLanes)
        lane = lane_of_products<S>(grad, y, first, simt::thread(), call.p.value_dim);
      blocks.push(sum_of(m.terms, lane, kLanes));
    }
    return blocks.total();
  }

  // Gradients of the bias of keys that the sequence does not have.
  ISOBIT_DEVICE void clear_absent(std::int64_t batch, std::int64_t head, std::int64_t query,
                                  const Range& held) const {
#pragma unroll 1
    for (std::int64_t key = simt::thread(); key < call.p.seq_k; key += kThreads)
      if (key < held.begin || key >= held.end)
        *reinterpret_cast<T*>(call.p.grad_bias.at(batch, head, query, key)) =
            simt::Conversions::template narrow<T>(Real(0));
  }

  ISOBIT_DEVICE void compute(const Memory& m, std::int64_t index, std::int64_t batch,
                             std::int64_t head, std::int64_t row) const {
    const Problem& p = call.p;
    Real mean = mean_of(m, batch, head, row);
    if (p.grad_lse) mean = S::sub(mean, call.real(p.grad_lse, batch, head, row));
    if (simt::thread() == 0) means[index] = mean;
    const Line<T> q(p.q, batch, head, row), grad(p.grad_y, batch, head, row);
    const std::int64_t kv_head = call.kv_head(head);
    Sums<Real> sums{m.sums, p.head_dim};
    sums.clear();
    const Sequence in = call.sequence_of(p.query_starts, batch, row);
    const Range held = in.held;
    if (p.grad_bias) clear_absent(batch, head, row, held);
#pragma unroll 1
    for (std::int64_t first = held.begin; first < held.end; first += kPanel) {
      const std::int64_t key = first + simt::thread();
      const std::int64_t keys = held.end - first < kPanel ? held.end - first : kPanel;
      Pair<Real> pair{};
      if (key < held.end) {
        pair = pair_of(call, in, head, row - in.queries.begin, key, q,
                       Line<T>(p.k, call.key_at(p.k, in, kv_head, key)), grad,
                       Line<T>(p.v, call.key_at(p.v, in, kv_head, key)), mean);
        if (p.grad_bias)
          *reinterpret_cast<T*>(p.grad_bias.at(batch, head, row, key)) =
              simt::Conversions::template narrow<T>(pair.of_bias);
      }
      m.scores[simt::thread()] = pair.of_score;
      m.there[simt::thread()] = pair.there ? 1 : 0;
      simt::sync_block();
      if (p.grad_q) {
#pragma unroll 1
        for (std::int64_t d = simt::thread(); d < p.head_dim; d += kThreads) {
          Real chain = 0;
#pragma unroll 1
          for (std::int64_t j = 0; j < keys; ++j)
            if (m.there[j] != 0)
              chain = S::fma(m.scores[j], Line<T>(p.k, call.key_at(p.k, in, kv_head, first + j))[d],
                             chain);
          sums.now()[d] = S::add(sums.now()[d], chain);
        }
      }
      sums.end_panel();
      simt::sync_block();
    }
    if (p.grad_q)
      write_row<T>(p.grad_q, batch, head, row, p.head_dim, sums.total(), call.scaling().gradient);
  }
};

// A key a block: the gradients of k and v.
template <class T>
struct Keys {
  static constexpr int kMostThreads = kThreads;
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;
  Call<T> call;
  std::int64_t levels;
  const Real* means;

  struct Memory {
    Real *scores, *weights, *of_k, *of_v;
    int *there, *kept;
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    Memory m{};
    m.scores = carver.template take<Real>(kPanel);
    m.weights = carver.template take<Real>(kPanel);
    m.of_k = carver.template take<Real>((levels + 1) * call.p.head_dim);
    m.of_v = carver.template take<Real>((levels + 1) * call.p.value_dim);
    m.there = carver.template take<int>(kPanel);
    m.kept = carver.template take<int>(kPanel);
    return m;
  }
  ISOBIT_EITHER std::int64_t rows() const { return call.p.batch * call.p.kv_heads * call.p.seq_k; }

  ISOBIT_DEVICE void operator()(const Memory& m) const {
#pragma unroll 1
    for (std::int64_t row = simt::block(); row < rows(); row += simt::blocks()) {
      const std::int64_t head = row / call.p.seq_k;
      compute(m, head / call.p.kv_heads, head % call.p.kv_heads, row - head * call.p.seq_k);
      simt::sync_block();
    }
  }

 private:
  ISOBIT_DEVICE void compute(const Memory& m, std::int64_t batch, std::int64_t kv_head,
                             std::int64_t row) const {
    const Problem& p = call.p;
    const Line<T> k(p.k, batch, kv_head, row), v(p.v, batch, kv_head, row);
    Sums<Real> of_k{m.of_k, p.head_dim}, of_v{m.of_v, p.value_dim};
    of_k.clear();
    of_v.clear();
    const Sequence in = call.sequence_of(p.key_starts, batch, row);
    const std::int64_t key = row - in.first_key, end = in.queries.end;
    const bool is_held = key >= in.held.begin && key < in.held.end;
    const std::int64_t heads = is_held ? p.group() : 0;
#pragma unroll 1
    for (std::int64_t head = kv_head * p.group(); head < kv_head * p.group() + heads; ++head) {
#pragma unroll 1
      for (std::int64_t first = in.queries.begin; first < end; first += kPanel) {
        const std::int64_t at = first + simt::thread();
        const std::int64_t queries = end - first < kPanel ? end - first : kPanel;
        Pair<Real> pair{};
        if (at < end)
          pair = pair_of(call, in, head, at - in.queries.begin, key,
                         Line<T>(p.q, in.batch, head, at), k, Line<T>(p.grad_y, in.batch, head, at),
                         v, means[(in.batch * p.heads + head) * p.seq_q + at]);
        m.scores[simt::thread()] = pair.of_score;
        m.weights[simt::thread()] = pair.weight;
        m.there[simt::thread()] = pair.there ? 1 : 0;
        m.kept[simt::thread()] = pair.there && pair.kept ? 1 : 0;
        simt::sync_block();
        if (p.grad_k) add(of_k, p.q, batch, head, first, queries, p.head_dim, m.scores, m.there);
        if (p.grad_v)
          add(of_v, p.grad_y, batch, head, first, queries, p.value_dim, m.weights, m.kept);
        of_k.end_panel();
        of_v.end_panel();
        simt::sync_block();
      }
    }
    if (p.grad_k)
      write_row<T>(p.grad_k, batch, kv_head, row, p.head_dim, of_k.total(),
                   call.scaling().gradient);
    if (p.grad_v) write_row<T>(p.grad_v, batch, kv_head, row, p.value_dim, of_v.total(), 1);
  }

  ISOBIT_DEVICE static void add(const Sums<Real>& sums, const Array& from, std::int64_t batch,
                                std::int64_t head, std::int64_t first, std::int64_t queries,
                                std::int64_t cols, const Real* factors, const int* there) {
#pragma unroll 1
    for (std::int64_t c = simt::thread(); c < cols; c += kThreads) {
      Real chain = 0;
#pragma unroll 1
      for (std::int64_t i = 0; i < queries; ++i)
        if (there[i] != 0)
          chain = S::fma(factors[i], Line<T>(from, batch, head, first + i)[c], chain);
      sums.now()[c] = S::add(sums.now()[c], chain);
    }
  }
};

std::size_t room_for_means(const Problem& problem, const Plan&, const Machine&) {
  return static_cast<std::size_t>(problem.batch * problem.heads * problem.seq_q *
                                  size_of(problem.real()));
}

void run_backward(const BackwardArgs&, const Problem& problem, const Plan&,
                  const Execution& execution) {
  with_type(problem.dtype, [&]<class T>(T) {
    auto* const means = reinterpret_cast<RealOf<T>*>(execution.workspace);
    launch(Queries<T>{Call<T>{problem}, levels_of_keys(problem), means}, execution);
    launch(Keys<T>{Call<T>{problem}, levels_of_queries(problem), means}, execution);
  });
}

std::string declines_backward(const Problem& p, const Machine& machine) {
  if (p.arithmetic == Arithmetic::tensor) return kNotTensor;
  const std::int64_t most = std::max((levels_of_keys(p) + 1) * p.head_dim,
                                     (levels_of_queries(p) + 1) * (p.head_dim + p.value_dim));
  return declines(p, most + 4 * kPanel, machine);
}

}  // namespace

std::span<const BackwardVariant> cuda_backward_variants() {
  static const BackwardVariant kVariants[] = {{.name = "dq_dkdv",
                                               .declines = declines_backward,
                                               .workspace = room_for_means,
                                               .run = run_backward},
                                              cuda_mma_backward_variant()};
  return kVariants;
}

}  // namespace isobit::attention
