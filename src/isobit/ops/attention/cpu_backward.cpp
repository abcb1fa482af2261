// SPDX-License-Identifier: Apache-2.0
// Backward in panels of 128 queries and 128 keys, by matmul's packed panels: scores and their
// gradients are made once for all three products. Heads of k are shared out among threads, or where
// those are few a head's keys, and then its queries.
#include <utility>

#include "isobit/ops/attention/cpu_pairs.h"

namespace isobit::attention {
namespace {

constexpr std::int64_t kPitch = kPanel + 16;  // of tiles, whose rows would meet in the caches

struct Sizes {
  std::int64_t as_a, as_b;        // a panel's rows as rows, and as columns, of a product
  std::int64_t pitch_k, pitch_v;  // of rows of sums
  std::int64_t job, queries, room, gradients, sums_k, sums_v, sums_q, levels, levels_q, panels;

  Sizes(const Problem& p, const matmul::PackKernels& pack, std::int64_t inner) {
    const std::int64_t dim = std::max(p.head_dim, p.value_dim);
    const auto across = [&](std::int64_t cols) { return parts_of(cols, pack.cols) * pack.cols; };
    as_a = lines_of(parts_of(kPanel, pack.rows) * pack.row_pitch *
                    std::max<std::int64_t>(dim, kPanel));
    as_b = lines_of(std::max(across(kPanel) * dim, across(dim) * kPanel));
    panels = parts_of(p.seq_k, kPanel);
    job = panels * (3 * as_b) + lines_of(panels);
    pitch_k = across(p.head_dim);
    pitch_v = across(p.value_dim);
    queries = 2 * as_a + 2 * as_b + 3 * kPanel;
    sums_k = lines_of(kPanel * pitch_k);
    sums_v = lines_of(kPanel * pitch_v);
    sums_q = sums_k;
    levels = levels_of(parts_of(p.group() * parts_of(p.seq_q, kPanel), kRun));
    levels_q = levels_of(parts_of(p.seq_k, kRunKeys));
    job += panels * levels * (sums_k + sums_v) + queries + levels_q * sums_q;
    room = kPanel * kPitch + as_a + lines_of(kPanel);
    gradients = (inner > 1 ? panels : 1) * kPanel * kPitch;
    job += gradients;
  }
};

// A task holds the sums of all keys of a head, at every level of their order.
constexpr double kMostSums = 256 << 20;
double bytes_of_sums(const Problem& p) {
  const std::int64_t levels = levels_of(parts_of(p.group() * parts_of(p.seq_q, kPanel), kRun));
  return static_cast<double>(p.seq_k) * static_cast<double>(p.head_dim + p.value_dim) *
         static_cast<double>(levels * size_of(p.real()));
}

Shares shares_of(const Problem& p, const Machine& machine) {
  const std::int64_t panels =
      std::max(parts_of(p.seq_k, kPanel), p.group() * parts_of(p.seq_q, kPanel));
  const std::int64_t units = p.calls() * p.kv_heads * panels;
  const std::int64_t tasks =
      simd::task_count(machine, worth_of(p), std::max<std::int64_t>(1, units));
  Problem one_key = longest(p);
  one_key.seq_k = 1;
  const double most =
      kMostSums / static_cast<double>(tasks) / std::max(1.0, bytes_of_sums(one_key));
  return {p, tasks, static_cast<std::int64_t>(most)};
}

std::size_t workspace(const Problem& problem, const Plan&, const Machine& machine) {
  const Shares shares = shares_of(problem, machine);
  if (shares.jobs == 0) return 0;
  const matmul::PackKernels& pack = matmul::pack_kernels_for(problem.dtype, machine.isa);
  const Sizes brief(shares.brief, pack, 1), lasting(shares.lasting, pack, shares.tasks);
  const std::int64_t side_by_side = shares.tasks * (brief.job + brief.room),
                     together = lasting.job + shares.tasks * lasting.room;
  return static_cast<std::size_t>(
      std::max(shares.any_brief ? side_by_side : 0, shares.any_lasting ? together : 0) *
      size_of(problem.real()));
}

template <class T, class Real>
class Backward {
 public:
  Backward(const Problem& problem, Isa isa, std::int64_t inner)
      : p(problem),
        pack(matmul::pack_kernels_for(problem.dtype, isa)),
        plain(matmul::pack_kernels_for(problem.real(), isa)),
        kernels(kernels_for(problem.dtype, isa)),
        sizes(problem, pack, inner),
        inner(inner),
        scaling(Scaling<Real>::of(problem.scale, problem.softcap, problem.head_dim)),
        dropout(Dropout<Real>::of(problem.dropout, problem.dropout_seed)) {}

  // Those of keys that the sequence does not have: zeros.
  void clear_absent(const Problem& whole, std::int64_t batch, std::int64_t kv_head) const {
    const auto clear = [](const Array& array, std::int64_t b, std::int64_t head, std::int64_t row,
                          std::int64_t cols, Real zero) {
      for (std::int64_t c = 0; array && c < cols; ++c)
        *reinterpret_cast<T*>(array.at(b, head, row, c)) = narrow<T>(zero);
    };
    for_each_absent(whole, batch, [&](std::int64_t key) {
      clear(whole.grad_k, batch, kv_head, key, whole.head_dim, Real(0) * scaling.gradient);
      clear(whole.grad_v, batch, kv_head, key, whole.value_dim, Real(0));
      if (!whole.grad_bias) return;
      for (std::int64_t head = kv_head * p.group(); head < (kv_head + 1) * p.group(); ++head)
        for (std::int64_t query = 0; query < p.seq_q; ++query)
          *reinterpret_cast<T*>(whole.grad_bias.at(batch, head, query, key)) = narrow<T>(Real(0));
    });
  }

  // The gradients of one head of k and v, and of the heads of q that share it. share(count, body)
  // calls body(task, index) for each index.
  template <class Share>
  void run(Real* job, Real* rooms, std::int64_t batch, std::int64_t kv_head,
           const Share& share) const {
    Job j{job, rooms, batch, kv_head};
    share(sizes.panels, [&](std::int64_t, std::int64_t panel) { pack_keys(j, panel); });
    const std::int64_t of_head = parts_of(p.seq_q, kPanel), panels = p.group() * of_head;
    std::int64_t depth = 0;
    for (std::int64_t at = 0; at < panels; ++at) {
      j.head = kv_head * p.group() + at / of_head;
      j.query = at % of_head * kPanel;
      j.queries = std::min<std::int64_t>(kPanel, p.seq_q - j.query);
      j.first_of_run = at % kRun == 0;
      j.depth = depth;
      pack_queries(j);
      const Range band = band_of(j);
      if (inner == 1) {
        clear_run_of_q(j);
        for (std::int64_t panel = 0; panel < sizes.panels; ++panel) {
          take(j, 0, panel, band);
          add_to_q(j, 0, panel, band, 0, j.queries);
        }
        if (p.grad_q) finish_q(j, 0, j.queries);
      } else {
        share(sizes.panels,
              [&](std::int64_t task, std::int64_t panel) { take(j, task, panel, band); });
        if (p.grad_q) {
          constexpr std::int64_t kRows = 32;
          share(parts_of(j.queries, kRows), [&](std::int64_t task, std::int64_t part) {
            Job mine = j;
            const std::int64_t begin = part * kRows, end = std::min(j.queries, begin + kRows);
            clear_run_of_q(mine);
            for (std::int64_t panel = 0; panel < sizes.panels; ++panel)
              add_to_q(mine, task, panel, band, begin, end);
            finish_q(mine, begin, end);
          });
        }
      }
      if ((at + 1) % kRun == 0 || at + 1 == panels) {
        for (std::int64_t count = at / kRun; count & 1; count >>= 1, --depth)
          share(sizes.panels, [&](std::int64_t, std::int64_t panel) { join(j, panel, depth); });
        ++depth;
      }
    }
    for (--depth; depth > 0; --depth)
      share(sizes.panels, [&](std::int64_t, std::int64_t panel) { join(j, panel, depth); });
    share(sizes.panels,
          [&](std::int64_t, std::int64_t panel) { finish_keys(j, panel, panels == 0); });
  }

 private:
  struct Job {
    Real *memory, *rooms;
    std::int64_t batch, kv_head;
    bool queries_are_finite = true;
    std::int64_t head = 0, query = 0, queries = 0;
    bool first_of_run = false;
    std::int64_t depth = 0;                      // of the run of queries
    std::int64_t depth_of_q = 0, runs_of_q = 0;  // of runs of keys
    bool fresh_q = true;
  };

  std::int64_t keys_in(std::int64_t panel) const {
    return std::min<std::int64_t>(kPanel, p.seq_k - panel * kPanel);
  }
  Real* k_as_cols(const Job& j, std::int64_t panel) const {
    return j.memory + panel * 3 * sizes.as_b;
  }
  Real* v_as_cols(const Job& j, std::int64_t panel) const {
    return k_as_cols(j, panel) + sizes.as_b;
  }
  Real* k_as_rows(const Job& j, std::int64_t panel) const {
    return v_as_cols(j, panel) + sizes.as_b;
  }
  Real* flags_of(const Job& j) const { return k_as_cols(j, sizes.panels); }
  Real* sums_of_k(const Job& j, std::int64_t panel, std::int64_t depth) const {
    return flags_of(j) + lines_of(sizes.panels) +
           (panel * sizes.levels + depth) * (sizes.sums_k + sizes.sums_v);
  }
  Real* sums_of_v(const Job& j, std::int64_t panel, std::int64_t depth) const {
    return sums_of_k(j, panel, depth) + sizes.sums_k;
  }
  Real* q_as_rows(const Job& j) const { return sums_of_k(j, sizes.panels, 0); }
  Real* y_as_rows(const Job& j) const { return q_as_rows(j) + sizes.as_a; }
  Real* q_as_terms(const Job& j) const { return y_as_rows(j) + sizes.as_a; }
  Real* y_as_terms(const Job& j) const { return q_as_terms(j) + sizes.as_b; }
  Real* numbers(const Job& j) const { return y_as_terms(j) + sizes.as_b; }
  Real* sums_of_q(const Job& j, std::int64_t depth) const {
    return numbers(j) + 3 * kPanel + depth * sizes.sums_q;
  }
  Real* gradients_of(const Job& j, std::int64_t panel) const {
    return sums_of_q(j, sizes.levels_q) + (inner > 1 ? panel : 0) * kPanel * kPitch;
  }
  Real* weights_of(const Job& j, std::int64_t task) const { return j.rooms + task * sizes.room; }
  Real* packed_of(const Job& j, std::int64_t task) const {
    return weights_of(j, task) + kPanel * kPitch;
  }
  Real* kept_of(const Job& j, std::int64_t task) const { return packed_of(j, task) + sizes.as_a; }

  bool finite(const Array& array, std::int64_t batch, std::int64_t head, std::int64_t first,
              std::int64_t rows, std::int64_t cols) const {
    for (std::int64_t row = first; row < first + rows; ++row)
      if (!kernels.finite(array.at(batch, head, row), array.col, cols)) return false;
    return true;
  }

  void pack_keys(const Job& j, std::int64_t panel) const {
    const std::int64_t first = panel * kPanel, keys = keys_in(panel);
    const std::byte *k = p.k.at(j.batch, j.kv_head, first), *v = p.v.at(j.batch, j.kv_head, first);
    pack.pack_b({k, p.k.row, p.k.col, keys}, p.head_dim, k_as_cols(j, panel));
    pack.pack_b({v, p.v.row, p.v.col, keys}, p.value_dim, v_as_cols(j, panel));
    pack.pack_b({k, p.k.col, p.k.row, p.head_dim}, keys, k_as_rows(j, panel));
    const bool all = finite(p.k, j.batch, j.kv_head, first, keys, p.head_dim) &&
                     finite(p.v, j.batch, j.kv_head, first, keys, p.value_dim);
    flags_of(j)[panel] = all ? 1 : 0;
  }

  void pack_queries(Job& j) const {
    const std::byte *q = p.q.at(j.batch, j.head, j.query),
                    *grad = p.grad_y.at(j.batch, j.head, j.query);
    pack.pack_a({q, p.q.row, p.q.col, j.queries}, p.head_dim, q_as_rows(j));
    pack.pack_a({grad, p.grad_y.row, p.grad_y.col, j.queries}, p.value_dim, y_as_rows(j));
    pack.pack_b({q, p.q.col, p.q.row, p.head_dim}, j.queries, q_as_terms(j));
    pack.pack_b({grad, p.grad_y.col, p.grad_y.row, p.value_dim}, j.queries, y_as_terms(j));
    j.queries_are_finite = finite(p.q, j.batch, j.head, j.query, j.queries, p.head_dim) &&
                           finite(p.grad_y, j.batch, j.head, j.query, j.queries, p.value_dim);
    const auto real = [&](const Array& array, std::int64_t i) {
      return *reinterpret_cast<const Real*>(array.at(j.batch, j.head, j.query + i));
    };
    for (std::int64_t i = 0; i < j.queries; ++i) {
      Real* const of_row = numbers(j) + i;
      const Real max = real(p.max, i);
      of_row[0] = max;
      of_row[kPanel] = inverse_of<ScalarOf<Real>>(max, real(p.sum, i));
      kernels.dot(p.grad_y.at(j.batch, j.head, j.query + i), p.grad_y.col,
                  p.y.at(j.batch, j.head, j.query + i), p.y.col, p.value_dim, of_row + 2 * kPanel);
      if (p.grad_lse) of_row[2 * kPanel] = of_row[2 * kPanel] - real(p.grad_lse, i);
    }
  }

  // Keys that a panel of queries may see.
  Range band_of(const Job& j) const {
    return {p.keys_of(j.query).begin, p.keys_of(j.query + j.queries - 1).end};
  }
  bool is_in(const Range& band, std::int64_t panel) const {
    return band.begin < panel * kPanel + keys_in(panel) && band.end > panel * kPanel;
  }
  // Whether all are finite, so that what is not there may be multiplied by 0.
  bool is_finite(const Job& j, std::int64_t panel) const {
    return j.queries_are_finite && flags_of(j)[panel] != 0;
  }

  Pairs<Real> pairs_of(const Job& j, std::int64_t panel) const {
    return {p, pack, j.query, j.queries, panel * kPanel, keys_in(panel)};
  }

  // Queries and keys of two panels: weights, gradients of scores, and what they add to v and k.
  void take(const Job& j, std::int64_t task, std::int64_t panel, const Range& band) const {
    Real *of_k = sums_of_k(j, panel, j.depth), *of_v = sums_of_v(j, panel, j.depth);
    if (j.first_of_run) std::fill_n(of_k, sizes.sums_k + sizes.sums_v, Real(0));
    const std::int64_t keys = keys_in(panel);
    if (!is_in(band, panel)) {
      if (p.grad_bias) clear_bias(j, panel);
      return;
    }
    Real *const weights = weights_of(j, task), *const gradients = gradients_of(j, panel);
    const Pairs<Real> pairs = pairs_of(j, panel);
    pairs.multiply(q_as_rows(j), k_as_cols(j, panel), p.head_dim, weights, kPitch);
    pairs.multiply(y_as_rows(j), v_as_cols(j, panel), p.value_dim, gradients, kPitch);
    for (std::int64_t i = 0; i < j.queries; ++i) treat_row(j, task, panel, i, weights, gradients);
    if (!is_finite(j, panel)) return add_what_is_there(j, task, panel, weights, gradients);
    const auto add = [&](const Real* tile, const Real* terms, Real* to, std::int64_t pitch,
                         std::int64_t cols) {
      Real* const rows = packed_of(j, task);
      plain.pack_a({reinterpret_cast<const std::byte*>(tile), 1, kPitch, keys}, j.queries, rows);
      pairs.add_to_keys({rows, terms, to, pitch, keys, cols, j.queries, true});
    };
    if (p.grad_v) add(weights, y_as_terms(j), of_v, sizes.pitch_v, p.value_dim);
    if (p.grad_k) add(gradients, q_as_terms(j), of_k, sizes.pitch_k, p.head_dim);
  }

  void clear_bias(const Job& j, std::int64_t panel) const {
    for (std::int64_t i = 0; i < j.queries; ++i)
      for (std::int64_t key = panel * kPanel; key < panel * kPanel + keys_in(panel); ++key)
        *reinterpret_cast<T*>(p.grad_bias.at(j.batch, j.head, j.query + i, key)) =
            narrow<T>(Real(0));
  }

  void treat_row(const Job& j, std::int64_t task, std::int64_t panel, std::int64_t i, Real* weights,
                 Real* gradients) const {
    const std::int64_t keys = keys_in(panel), key = panel * kPanel, query = j.query + i;
    const Range range = p.keys_of(query);
    Real *const line = weights + i * kPitch, *const gradient = gradients + i * kPitch;
    Real* const room = kept_of(j, task);
    const Real* exponents = nullptr;
    const Real* kept = nullptr;
    Real exponents_of_row[kPanel];
    const auto from = [&](const Array& array) {
      return array ? array.at(j.batch, j.head, query, key) : nullptr;
    };
    if (!p.plain() || range.begin > key || range.end < key + keys) {
      const std::int64_t begin = std::clamp<std::int64_t>(range.begin - key, 0, keys);
      exponents = exponents_of_row;
      kernels.line(&scaling, {line, exponents_of_row, keys, begin,
                              std::clamp<std::int64_t>(range.end - key, begin, keys), from(p.bias),
                              from(p.mask), p.bias.col, p.mask.col, p.slope_of(j.batch, j.head),
                              key - query - p.apart});
    }
    if (dropout) {
      kept = room;
      for (std::int64_t at = 0; at < keys; at += 4) {
        const auto words = dropout.words(j.batch, j.head, query, (key + at) / 4);
        for (std::int64_t lane = 0; lane < std::min<std::int64_t>(4, keys - at); ++lane)
          room[at + lane] =
              words[static_cast<std::size_t>(lane)] < dropout.threshold ? Real(0) : dropout.scale;
      }
    }
    const Real* of_row = numbers(j) + i;
    kernels.gradients(
        &scaling, {exponents, line, kept, keys, of_row, of_row + kPanel, of_row + 2 * kPanel, line,
                   gradient, from(p.grad_bias), p.grad_bias.col, p.softcap != 0});
  }

  // Where something is not finite: only pairs that are there, one after the other.
  void add_what_is_there(const Job& j, std::int64_t task, std::int64_t panel, const Real* weights,
                         const Real* gradients) const {
    const std::int64_t keys = keys_in(panel), key = panel * kPanel;
    Real* const chain = packed_of(j, task);
    const auto add = [&](const Array& from, std::int64_t cols, Real* to, std::int64_t pitch,
                         const Real* tile, bool of_kept) {
      for (std::int64_t at = 0; at < keys; ++at) {
        std::fill_n(chain, cols, Real(0));
        for (std::int64_t i = 0; i < j.queries; ++i) {
          if (!is_there(j, i, key + at, of_kept)) continue;
          for (std::int64_t c = 0; c < cols; ++c) {
            const Real b = element<Real, T>(from.at(j.batch, j.head, j.query + i, c));
            chain[c] = std::fma(tile[i * kPitch + at], b, chain[c]);
          }
        }
        Real* const row = to + at * pitch;
        for (std::int64_t c = 0; c < cols; ++c) row[c] = row[c] + chain[c];
      }
    };
    if (p.grad_v)
      add(p.grad_y, p.value_dim, sums_of_v(j, panel, j.depth), sizes.pitch_v, weights, true);
    if (p.grad_k)
      add(p.q, p.head_dim, sums_of_k(j, panel, j.depth), sizes.pitch_k, gradients, false);
  }
  bool is_there(const Job& j, std::int64_t i, std::int64_t key, bool of_kept) const {
    const Row<T, Real> row(p, j.batch, j.head, j.query + i);
    if (!row.is_there(row.exponent(key))) return false;
    return !of_kept || !dropout || dropout.keeps(j.batch, j.head, j.query + i, key);
  }

  void clear_run_of_q(Job& j) const {
    j.fresh_q = true;
    j.depth_of_q = j.runs_of_q = 0;
  }
  // Some rows of a panel of queries, times a panel of keys.
  void add_to_q(Job& j, std::int64_t task, std::int64_t panel, const Range& band,
                std::int64_t begin, std::int64_t end) const {
    if (!p.grad_q) return;
    const std::int64_t pitch = sizes.pitch_k, keys = keys_in(panel);
    Real* const to = sums_of_q(j, j.depth_of_q) + begin * pitch;
    if (j.fresh_q) std::fill_n(to, (end - begin) * pitch, Real(0));
    j.fresh_q = false;
    if (is_in(band, panel)) {
      const Real* const tile = gradients_of(j, panel) + begin * kPitch;
      if (is_finite(j, panel)) {
        Real* const rows = packed_of(j, task);
        plain.pack_a({reinterpret_cast<const std::byte*>(tile), kPitch, 1, end - begin}, keys,
                     rows);
        pairs_of(j, panel).add_to_queries(
            {rows, k_as_rows(j, panel), to, pitch, end - begin, p.head_dim, keys, true}, begin);
      } else {
        for (std::int64_t i = begin; i < end; ++i) {
          bool there[kPanel];
          for (std::int64_t at = 0; at < keys; ++at)
            there[at] = is_there(j, i, panel * kPanel + at, false);
          for (std::int64_t c = 0; c < p.head_dim; ++c) {
            Real chain = 0;
            for (std::int64_t at = 0; at < keys; ++at)
              if (there[at])
                chain = std::fma(
                    tile[(i - begin) * kPitch + at],
                    element<Real, T>(p.k.at(j.batch, j.kv_head, panel * kPanel + at, c)), chain);
            Real& sum = to[(i - begin) * pitch + c];
            sum = sum + chain;
          }
        }
      }
    }
    if ((panel + 1) % kRun != 0 && panel + 1 != sizes.panels) return;
    j.fresh_q = true;
    for (std::int64_t count = j.runs_of_q++; count & 1; count >>= 1) join_q(j, begin, end);
    ++j.depth_of_q;
  }
  void join_q(Job& j, std::int64_t begin, std::int64_t end) const {
    const std::int64_t pitch = sizes.pitch_k;
    const Real* from = sums_of_q(j, j.depth_of_q);
    Real* to = sums_of_q(j, j.depth_of_q - 1);
    for (std::int64_t i = begin * pitch; i < end * pitch; ++i) to[i] = to[i] + from[i];
    --j.depth_of_q;
  }
  void finish_q(Job& j, std::int64_t begin, std::int64_t end) const {
    const std::int64_t pitch = sizes.pitch_k;
    if (sizes.panels == 0)
      std::fill_n(sums_of_q(j, 0) + begin * pitch, (end - begin) * pitch, Real(0));
    for (--j.depth_of_q; j.depth_of_q > 0;) join_q(j, begin, end);
    for (std::int64_t i = begin; i < end; ++i)
      kernels.write(sums_of_q(j, 0) + i * pitch, p.head_dim, scaling.gradient,
                    p.grad_q.at(j.batch, j.head, j.query + i), p.grad_q.col);
  }

  void join(const Job& j, std::int64_t panel, std::int64_t depth) const {
    const Real* from = sums_of_k(j, panel, depth);
    Real* to = sums_of_k(j, panel, depth - 1);
    for (std::int64_t i = 0; i < sizes.sums_k + sizes.sums_v; ++i) to[i] = to[i] + from[i];
  }
  void finish_keys(const Job& j, std::int64_t panel, bool empty) const {
    Real *of_k = sums_of_k(j, panel, 0), *of_v = sums_of_v(j, panel, 0);
    if (empty) std::fill_n(of_k, sizes.sums_k + sizes.sums_v, Real(0));
    for (std::int64_t at = 0; at < keys_in(panel); ++at) {
      const std::int64_t key = panel * kPanel + at;
      if (p.grad_k)
        kernels.write(of_k + at * sizes.pitch_k, p.head_dim, scaling.gradient,
                      p.grad_k.at(j.batch, j.kv_head, key), p.grad_k.col);
      if (p.grad_v)
        kernels.write(of_v + at * sizes.pitch_v, p.value_dim, 1,
                      p.grad_v.at(j.batch, j.kv_head, key), p.grad_v.col);
    }
  }

  const Problem& p;
  const matmul::PackKernels &pack, &plain;  // of x, and of numbers
  const Kernels& kernels;
  Sizes sizes;
  std::int64_t inner;
  Scaling<Real> scaling;
  Dropout<Real> dropout;
};

template <class T, class Real>
void run_typed(const Problem& problem, const Execution& execution) {
  const simd::FloatMode mode;  // of the numbers that all tasks share
  const Shares shares = shares_of(problem, execution.machine);
  const std::int64_t tasks = shares.tasks;
  const matmul::PackKernels& pack = matmul::pack_kernels_for(problem.dtype, execution.machine.isa);
  auto* const memory = reinterpret_cast<Real*>(execution.workspace);
  const auto run_job = [&](std::int64_t job, std::int64_t inner, Real* of_job, Real* rooms,
                           const auto& share) {
    const std::int64_t sequence = job / problem.kv_heads, head = job % problem.kv_heads;
    const Problem alone = problem.of(sequence);
    const Backward<T, Real> backward(alone, execution.machine.isa, inner);
    backward.clear_absent(problem, sequence, head);
    backward.run(of_job, rooms, sequence, head, share);
  };
  const auto is_brief = [&](std::int64_t job) {
    return shares.is_brief(problem.lengths(job / problem.kv_heads));
  };
  if (shares.any_lasting) {
    const Sizes sizes(shares.lasting, pack, tasks);
    for (std::int64_t job = 0; job < shares.jobs; ++job)
      if (!is_brief(job))
        run_job(job, tasks, memory, memory + sizes.job, [&](std::int64_t count, const auto& body) {
          deal(execution, std::min(tasks, count), count, body);
        });
  }
  if (!shares.any_brief) return;
  const Sizes sizes(shares.brief, pack, 1);
  Real* const rooms = memory + tasks * sizes.job;
  deal(execution, tasks, shares.jobs, [&](std::int64_t task, std::int64_t job) {
    if (is_brief(job))
      run_job(job, 1, memory + task * sizes.job, rooms + task * sizes.room,
              [](std::int64_t count, const auto& body) {
                for (std::int64_t i = 0; i < count; ++i) body(std::int64_t{0}, i);
              });
  });
}

void run(const BackwardArgs&, const Problem& problem, const Plan&, const Execution& execution) {
  with_types(problem.dtype,
             [&]<class T, class Real>(T, Real) { run_typed<T, Real>(problem, execution); });
}

}  // namespace

BackwardVariant flash_backward_variant() {
  return {.name = "flash", .each_isa = true, .workspace = workspace, .run = run};
}

}  // namespace isobit::attention
