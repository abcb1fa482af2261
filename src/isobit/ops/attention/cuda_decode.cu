// SPDX-License-Identifier: Apache-2.0
// decode for GPUs: a few queries a sequence and many keys. A block takes a run of keys with the
// queries of all heads that share them; where there are several runs, another kernel joins them.
#include "isobit/ops/attention/cuda_call.h"
#include "isobit/ops/attention/cuda_weights.h"
#include "isobit/tile/register_tile.h"

namespace isobit::attention {
namespace {

constexpr int kBlock = 2 * kPanel;  // threads: a key, and later a column, with either half of rows
constexpr int kRows = kBlock / simt::kWarpThreads;  // a warp makes the weights of one
constexpr int kHalf = kRows / 2;
constexpr int kDepth = 16;          // of a product that shared memory holds at once
constexpr int kPitch = kPanel + 1;  // keys in different banks, whichever way they are brought
constexpr std::int64_t kRunKeys = std::int64_t{kPanel} * kRun;

std::int64_t runs_of(const Problem& p) {
  return std::max<std::int64_t>(1, (p.seq_k + kRunKeys - 1) / kRunKeys);
}

// Runs of keys that wait: the largest exponent, the sum of weights, and the sums of y.
template <class T>
struct Runs {
  using Real = RealOf<T>;
  Call<T> call;
  std::int64_t runs;  // of a sequence, at most
  Real* states;       // row of y, run

  ISOBIT_EITHER std::int64_t width() const { return call.p.value_dim + 2; }
  ISOBIT_DEVICE Real* state(std::int64_t batch, std::int64_t head, std::int64_t row,
                            std::int64_t run) const {
    const Problem& p = call.p;
    return states + (((batch * p.heads + head) * p.seq_q + row) * runs + run) * width();
  }
  // Runs of all sequences, some of which have fewer than there are places. The queries that belong
  // to none have one, without keys.
  ISOBIT_EITHER Parts packed() const { return {call.p.seq_k, call.p.sequences, kRunKeys}; }
  ISOBIT_EITHER std::int64_t places() const {
    if (call.p.key_starts) return packed().places();
    return (call.p.sequences + (call.p.query_starts ? 1 : 0)) * runs;
  }
  ISOBIT_DEVICE Parts::Part at(std::int64_t place) const {
    if (call.p.key_starts) return packed().at(call.p.key_starts, place);
    return {place / runs, place % runs};
  }
  // Those that a sequence has.
  ISOBIT_DEVICE std::int64_t held(const Sequence& in) const {
    const std::int64_t count = (in.held.count() + kRunKeys - 1) / kRunKeys;
    return count < 1 ? 1 : count;
  }
};

template <class T>
struct Decode {
  static constexpr int kMostThreads = kBlock;
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;
  Runs<T> all;

  struct Memory {
    Real *queries, *part, *weights, *sums, *first, *second;
    const std::byte **k, **v;  // rows of a panel
  };
  template <class Carver>
  ISOBIT_EITHER Memory memory(Carver& carver) const {
    const Problem& p = all.call.p;
    Memory m{};
    m.queries = carver.template take<Real>((p.head_dim + kDepth - 1) / kDepth * kDepth * kRows);
    m.part = carver.template take<Real>(kDepth * kPitch);
    m.weights = carver.template take<Real>(kRows * kPanel);
    m.sums = carver.template take<Real>(kRows * p.value_dim);
    m.first = carver.template take<Real>(kRows);
    m.second = carver.template take<Real>(kRows);
    m.k = carver.template take<const std::byte*>(kPanel);
    m.v = carver.template take<const std::byte*>(kPanel);
    return m;
  }
  // Parts of the queries of the heads that share keys, for a block each. Those of packed sequences
  // follow one another: only the device knows how many there are.
  ISOBIT_EITHER std::int64_t parts() const {
    const Problem& p = all.call.p;
    return p.query_starts ? 1 : (p.group() * p.seq_q + kRows - 1) / kRows;
  }
  ISOBIT_EITHER std::int64_t jobs() const { return all.places() * all.call.p.kv_heads * parts(); }

  ISOBIT_DEVICE void operator()(const Memory& m) const {
#pragma unroll 1
    for (std::int64_t index = simt::block(); index < jobs(); index += simt::blocks()) {
      const std::int64_t of_head = index / parts(), place = of_head / all.call.p.kv_heads;
      const Parts::Part run = all.at(place);
      Job job{all.call.sequence(run.sequence), of_head - place * all.call.p.kv_heads,
              (index - of_head * parts()) * kRows, run.number};
      if (job.run < 0 || job.run >= all.held(job.in)) continue;
#pragma unroll 1
      for (; job.first_row < rows_of(job); job.first_row += parts() * kRows) compute(m, job);
    }
  }

 private:
  struct Job {
    Sequence in;
    std::int64_t kv_head, first_row, run;
  };
  // One of a job's queries, if there are so many.
  struct Row {
    bool given;
    std::int64_t head, query;  // counted in its sequence
    Range keys;
  };

  ISOBIT_DEVICE static int half() { return simt::thread() / kPanel; }
  ISOBIT_DEVICE static int warp() { return simt::thread() / simt::kWarpThreads; }

  ISOBIT_DEVICE std::int64_t rows_of(const Job& job) const {
    return all.call.p.group() * job.in.queries.count();
  }
  ISOBIT_DEVICE Row row_of(const Job& job, int i) const {
    const std::int64_t queries = job.in.queries.count();
    const std::int64_t row = job.first_row + i, head = row / queries;
    Row found{
        row < rows_of(job), job.kv_head * all.call.p.group() + head, row - head * queries, {0, 0}};
    if (found.given) found.keys = all.call.keys_of(job.in, found.query);
    return found;
  }

  ISOBIT_DEVICE void compute(const Memory& m, const Job& job) const {
    const Problem& p = all.call.p;
    simt::sync_block();  // what was there has been read
    const std::int64_t depth = (p.head_dim + kDepth - 1) / kDepth * kDepth;
#pragma unroll 1
    for (std::int64_t i = simt::thread(); i < depth * kRows; i += kBlock) {
      const std::int64_t d = i / kRows;
      const Row row = row_of(job, static_cast<int>(i - d * kRows));
      m.queries[i] = row.given && d < p.head_dim
                         ? Line<T>(p.q, job.in.batch, row.head, job.in.queries.begin + row.query)[d]
                         : Real(0);
    }
#pragma unroll 1
    for (std::int64_t i = simt::thread(); i < kRows * p.value_dim; i += kBlock) m.sums[i] = 0;
    Real max = -kInfinity<Real>, sum = 0;  // of the warp's row
    const std::int64_t begin = job.in.held.begin + job.run * kRunKeys;
    const std::int64_t end =
        begin + kRunKeys < job.in.held.end ? begin + kRunKeys : job.in.held.end;
    // Keys that any of the queries sees.
    const Range seen{all.call.keys_of(job.in, 0).begin,
                     all.call.keys_of(job.in, job.in.queries.count() - 1).end};
#pragma unroll 1
    for (std::int64_t first = begin; first < end; first += kPanel) {
      if (first >= seen.end || first + kPanel <= seen.begin) continue;
      simt::sync_block();  // what was there has been read, and zeros are written
      const int keys = static_cast<int>(Problem::within(end - first, kPanel));
      if (simt::thread() < keys) {
        m.k[simt::thread()] = all.call.key_at(p.k, job.in, job.kv_head, first + simt::thread());
        m.v[simt::thread()] = all.call.key_at(p.v, job.in, job.kv_head, first + simt::thread());
      }
      multiply_keys(m, job, first, keys);
      weigh(m, job, first, max, sum);
      simt::sync_block();
      multiply_values(m, keys);
    }
    finish(m, job, max, sum);
  }

  // A key a thread, with half of the rows: exponents in the place of weights.
  ISOBIT_DEVICE void multiply_keys(const Memory& m, const Job& job, std::int64_t first,
                                   int keys) const {
    const Problem& p = all.call.p;
    const int key = simt::thread() % kPanel;
    Real products[kHalf] = {};
#pragma unroll 1
    for (std::int64_t d = 0; d < p.head_dim; d += kDepth) {
      simt::sync_block();
      tile::bring<kPanel, kDepth, kPitch>(
          p.k.col == 1, keys, p.head_dim - d,
          [&](int of, int at) {
            return simt::Conversions::template widen<Real>(
                reinterpret_cast<const T*>(m.k[of])[(d + at) * p.k.col]);
          },
          m.part);
      simt::sync_block();
#pragma unroll
      for (int at = 0; at < kDepth; ++at) {
        const Real element = m.part[at * kPitch + key];
#pragma unroll
        for (int i = 0; i < kHalf; ++i)
          products[i] =
              S::fma(m.queries[(d + at) * kRows + half() * kHalf + i], element, products[i]);
      }
    }
    const Scaling<Real> scaling = all.call.scaling();
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const Row row = row_of(job, half() * kHalf + i);
      m.weights[(half() * kHalf + i) * kPanel + key] =
          row.given && key < keys ? all.call.exponent(scaling, job.in, row.head, row.query,
                                                      first + key, products[i], row.keys)
                                  : -kInfinity<Real>;
    }
    simt::sync_block();
  }

  // A row a warp.
  ISOBIT_DEVICE void weigh(const Memory& m, const Job& job, std::int64_t first, Real& max,
                           Real& sum) const {
    constexpr int kEach = kPanel / simt::kWarpThreads;
    const Row row = row_of(job, warp());
    Real* const own = m.weights + warp() * kPanel + simt::lane();
    Real exponents[kEach], terms[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) exponents[i] = own[i * simt::kWarpThreads];
    Real top = nearest<S>(exponents[0]);
#pragma unroll
    for (int i = 1; i < kEach; ++i) top = S::max(top, nearest<S>(exponents[i]));
#pragma unroll
    for (int apart = simt::kWarpThreads / 2; apart > 0; apart /= 2)
      top = S::max(top, simt::shuffle_xor(top, apart));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t key = first + simt::lane() + i * simt::kWarpThreads;
      terms[i] = weight_of<S>(exponents[i], base_of<S>(top));
      Real weight = terms[i];
      if (!Call<T>::is_there(exponents[i]) || !all.call.keeps(job.in, row.head, row.query, key))
        weight = -Real(0);
      else if (all.call.p.dropout > 0)
        weight = S::mul(weight, all.call.dropout().scale);
      own[i * simt::kWarpThreads] = weight;
    }
#pragma unroll
    for (int count = kEach / 2; count > 0; count /= 2)
#pragma unroll
      for (int i = 0; i < count; ++i) terms[i] = S::add(terms[i], terms[i + count]);
#pragma unroll
    for (int apart = simt::kWarpThreads / 2; apart > 0; apart /= 2)
      terms[0] = S::add(terms[0], simt::shuffle_xor(terms[0], apart));
    const auto fold = Fold<S>::of(max, top);
    max = fold.max;
    sum = fold(sum, terms[0]);
    if (simt::lane() == 0) {
      m.first[warp()] = fold.first;
      m.second[warp()] = fold.second;
    }
  }

  // A column a thread, with half of the rows.
  ISOBIT_DEVICE void multiply_values(const Memory& m, int keys) const {
    const Problem& p = all.call.p;
    const int first = half() * kHalf;
#pragma unroll 1
    for (std::int64_t c = simt::thread() % kPanel; c < p.value_dim; c += kPanel) {
      Real chain[kHalf] = {};
#pragma unroll 4
      for (int key = 0; key < keys; ++key) {
        const Real value = simt::Conversions::template widen<Real>(
            reinterpret_cast<const T*>(m.v[key])[c * p.v.col]);
#pragma unroll
        for (int i = 0; i < kHalf; ++i) {
          const Real weight = m.weights[(first + i) * kPanel + key];
          if (!is_left_out(weight)) chain[i] = S::fma(weight, value, chain[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kHalf; ++i) {
        Real& sum = m.sums[(first + i) * p.value_dim + c];
        sum = S::fma(sum, m.first[first + i], S::mul(chain[i], m.second[first + i]));
      }
    }
  }

  // A run waits, if it is not the only one.
  ISOBIT_DEVICE void finish(const Memory& m, const Job& job, Real max, Real sum) const {
    const Problem& p = all.call.p;
    const Row own = row_of(job, warp());
    const std::int64_t begin = job.in.queries.begin;
    const bool waits = all.runs > 1;
    simt::sync_block();  // sums of other threads are written, and folds have been read
    if (simt::lane() == 0 && own.given) {
      if (waits) {
        Real* const state = all.state(job.in.batch, own.head, begin + own.query, job.run);
        state[0] = max;
        state[1] = sum;
      } else {
        m.first[warp()] = inverse_of<S>(max, sum);
        all.call.put(job.in.batch, own.head, begin + own.query, max, sum);
      }
    }
    simt::sync_block();
#pragma unroll 1
    for (int i = 0; i < kRows; ++i) {
      const Row row = row_of(job, i);
      if (!row.given) return;
#pragma unroll 1
      for (std::int64_t c = simt::thread(); c < p.value_dim; c += kBlock) {
        const Real value = m.sums[i * p.value_dim + c];
        if (waits)
          all.state(job.in.batch, row.head, begin + row.query, job.run)[2 + c] = value;
        else
          *reinterpret_cast<T*>(p.y.at(job.in.batch, row.head, begin + row.query, c)) =
              simt::Conversions::template narrow<T>(y_of<S>(value, m.first[i]));
      }
    }
  }
};

// A query a block: its runs by adjacent pairs, level by level, where they wait.
template <class T>
struct JoinRuns {
  static constexpr int kMostThreads = kThreads;
  using Real = RealOf<T>;
  using S = tile::Scalar<Real>;
  Runs<T> all;

  ISOBIT_EITHER std::int64_t rows() const {
    return all.call.p.batch * all.call.p.heads * all.call.p.seq_q;
  }

  ISOBIT_DEVICE void operator()() const {
    const Problem& p = all.call.p;
#pragma unroll 1
    for (std::int64_t index = simt::block(); index < rows(); index += simt::blocks()) {
      const std::int64_t of_head = index / p.seq_q, batch = of_head / p.heads;
      const std::int64_t head = of_head - batch * p.heads, row = index - of_head * p.seq_q;
      const std::int64_t runs = all.held(all.call.sequence_of(p.query_starts, batch, row));
      Real* const states = all.state(batch, head, row, 0);
#pragma unroll 1
      for (std::int64_t step = 1; step < runs; step *= 2)
#pragma unroll 1
        for (std::int64_t at = 0; at + step < runs; at += 2 * step)
          join(states + at * all.width(), states + (at + step) * all.width());
      const Real inverse = inverse_of<S>(states[0], states[1]);
#pragma unroll 1
      for (std::int64_t c = simt::thread(); c < p.value_dim; c += kThreads)
        *reinterpret_cast<T*>(p.y.at(batch, head, row, c)) =
            simt::Conversions::template narrow<T>(y_of<S>(states[2 + c], inverse));
      if (simt::thread() == 0) all.call.put(batch, head, row, states[0], states[1]);
    }
  }

 private:
  ISOBIT_DEVICE void join(Real* to, const Real* from) const {
    const auto fold = Fold<S>::of(to[0], from[0]);
    simt::sync_block();  // all have read the largest
#pragma unroll 1
    for (std::int64_t i = simt::thread(); i < all.width(); i += kThreads)
      to[i] = i == 0 ? fold.max : fold(to[i], from[i]);
    simt::sync_block();
  }
};

std::int64_t shared_bytes(const Problem& p) {
  const std::int64_t depth = (p.head_dim + kDepth - 1) / kDepth * kDepth;
  return (kRows * (depth + p.value_dim + kPanel + 2) + kDepth * kPitch) * size_of(p.real()) +
         2 * kPanel * 8 + 64;  // arrays begin at 16 bytes
}

std::string declines_decode(const Problem& p, const Machine& machine) {
  if (p.arithmetic == Arithmetic::tensor) return kNotTensor;
  return without_room(p, shared_bytes(p), machine);
}

// Of runs that wait: of each query as many as the longest sequence may have.
std::int64_t waiting_bytes(const Problem& p) {
  if (p.empty() || runs_of(p) == 1) return 0;
  return p.batch * p.heads * p.seq_q * runs_of(p) * (p.value_dim + 2) * size_of(p.real());
}

std::size_t decode_workspace(const Problem& p, const Plan&, const Machine&) {
  return static_cast<std::size_t>(waiting_bytes(p));
}

void run_decode(const ForwardArgs&, const Problem& p, const Plan&, const Execution& execution) {
  if (p.empty()) return;
  with_type(p.dtype, [&]<class T>(T) {
    const Runs<T> all{Call<T>{p}, runs_of(p), reinterpret_cast<RealOf<T>*>(execution.workspace)};
    const Decode<T> kernel{all};
    simt::launch(static_cast<simt::Stream>(execution.stream),
                 {.blocks = std::min(kernel.jobs(), simt::kMostBlocks), .threads = kBlock}, kernel);
    if (all.runs > 1) launch(JoinRuns<T>{all}, execution);
  });
}

}  // namespace

// Few queries a sequence, by which a tile would be almost empty. Any of several that are packed may
// have all keys: there may be room for runs of so many in the memory that k and v have.
bool suits_decode(const Problem& p) {
  if (!p.query_starts) return p.seq_q <= 4;
  const std::int64_t bytes = p.seq_k * p.kv_heads * (p.head_dim + p.value_dim) * size_of(p.dtype);
  return p.seq_q <= 4 * p.sequences && (!p.key_starts || waiting_bytes(p) <= bytes);
}

ForwardVariant cuda_decode_variant() {
  return {.name = "decode",
          .declines = declines_decode,
          .suits = [](const Problem& p, const Machine&) { return suits_decode(p); },
          .workspace = decode_workspace,
          .run = run_decode};
}

}  // namespace isobit::attention
