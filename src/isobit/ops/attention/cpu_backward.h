// SPDX-License-Identifier: Apache-2.0
// The gradients of one head of k and v, and of the heads of q that share it: in panels of 128
// queries and 128 keys, by matmul's packed panels. Scores and their gradients are made once for all
// three products. Many panels are taken in blocks, in the order of cpu_squares.h.
#pragma once

#include "isobit/ops/attention/cpu_backward_memory.h"
#include "isobit/ops/attention/cpu_pairs.h"

namespace isobit::attention {

template <class T, class Real>
class Backward {
 public:
  Backward(const Problem& problem, Isa isa, std::int64_t inner)
      : p(problem),
        pack(matmul::pack_kernels_for(problem.dtype, isa)),
        plain(matmul::pack_kernels_for(problem.real(), isa)),
        kernels(kernels_for(problem.dtype, isa)),
        sizes(problem, pack, inner),
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

  // share(count, body) calls body(task, index) for each index.
  template <class Share>
  void run(Real* memory, Real* rooms, std::int64_t batch, std::int64_t kv_head,
           const Share& share) const {
    Job<Real> job{sizes, memory, rooms, batch, kv_head};
    Steps<Share> steps{*this, job, share};
    sizes.squares.run(steps);
  }

 private:
  // What Squares asks for.
  template <class Share>
  struct Steps {
    const Backward& self;
    Job<Real>& job;
    const Share& share;

    void block(std::int64_t row, std::int64_t col, std::int64_t queries, std::int64_t keys) const {
      self.take_block(job, row, col, queries, keys, share);
    }
    template <class Body>
    void each(Side side, std::int64_t first, std::int64_t count, const Body& body) const {
      if (side == Side::queries && !self.p.grad_q) return;
      const Range panels = self.sizes.panels_of(side, first, count);
      share(panels.count(), [&](std::int64_t, std::int64_t i) { body(panels.begin + i, i); });
    }
    void clear(Side side, std::int64_t first, std::int64_t count, std::int64_t place) const {
      each(side, first, count, [&](std::int64_t, std::int64_t i) {
        std::fill_n(job.sums_at(side, place, i), self.sizes.sums_of(side), Real(0));
      });
    }
    void add(Side side, std::int64_t first, std::int64_t count, std::int64_t to,
             std::int64_t from) const {
      each(side, first, count, [&](std::int64_t, std::int64_t i) {
        self.add(job.sums_at(side, to, i), job.sums_at(side, from, i), self.sizes.sums_of(side));
      });
    }
    void finish(Side side, std::int64_t first, std::int64_t count, std::int64_t place) const {
      each(side, first, count, [&](std::int64_t panel, std::int64_t i) {
        const Real* const sums = job.sums_at(side, place, i);
        if (side == Side::keys) return self.write_keys(job, panel, sums);
        Job<Real> of_panel = job;
        self.aim(of_panel, panel);
        self.write_queries(of_panel, 0, of_panel.queries, sums);
      });
    }
    bool is_empty(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) const {
      const Range queries = self.sizes.panels_of(Side::queries, row, rows),
                  keys = self.sizes.panels_of(Side::keys, col, cols);
      Job<Real> each = job;
      for (std::int64_t at = queries.begin; at < queries.end; ++at) {
        self.aim(each, at);
        const Range band = self.band_of(each);
        if (band.begin < keys.end * kPanel && band.end > keys.begin * kPanel) return false;
      }
      return true;
    }
    void skip(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) const {
      if (!self.p.grad_bias) return;
      each(Side::keys, col, cols, [&](std::int64_t panel, std::int64_t) {
        const Range queries = self.sizes.panels_of(Side::queries, row, rows);
        Job<Real> each = job;
        for (std::int64_t at = queries.begin; at < queries.end; ++at) {
          self.aim(each, at);
          self.clear_bias(each, panel);
        }
      });
    }
  };

  static void add(Real* to, const Real* from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to[i] + from[i];
  }

  // Turns to a panel of queries.
  void aim(Job<Real>& j, std::int64_t at) const {
    const std::int64_t of_head = parts_of(p.seq_q, kPanel);
    j.head = j.kv_head * p.group() + at / of_head;
    j.query = at % of_head * kPanel;
    j.queries = std::min<std::int64_t>(kPanel, p.seq_q - j.query);
  }

  template <class Share>
  void take_block(Job<Real>& j, std::int64_t row, std::int64_t col, std::int64_t queries,
                  std::int64_t keys, const Share& share) const {
    const Range rows = sizes.panels_of(Side::queries, row, 1);
    j.panels = sizes.panels_of(Side::keys, col, 1);
    j.of_keys = j.sums_at(Side::keys, keys, 0);
    const auto each_panel = [&](const auto& body) {
      share(j.panels.count(),
            [&](std::int64_t task, std::int64_t i) { body(task, j.panels.begin + i); });
    };
    each_panel([&](std::int64_t, std::int64_t panel) {
      pack_keys(j, panel);
      if (rows.count() == 0) std::fill_n(j.sums_of_k(panel, 0), sizes.sums_of(Side::keys), Real(0));
    });
    j.depth = 0;
    for (std::int64_t at = rows.begin; at < rows.end; ++at) {
      aim(j, at);
      j.first_of_run = at % kRun == 0;
      j.of_queries = queries == Squares::kNowhere
                         ? nullptr
                         : j.sums_at(Side::queries, queries, at - rows.begin);
      pack_queries(j);
      const Range band = band_of(j);
      if (sizes.inner == 1) {
        begin_q(j);
        for (std::int64_t panel = j.panels.begin; panel < j.panels.end; ++panel) {
          take(j, 0, panel, band);
          add_to_q(j, 0, panel, band, 0, j.queries);
        }
        if (p.grad_q) finish_q(j, 0, j.queries);
      } else {
        each_panel([&](std::int64_t task, std::int64_t panel) { take(j, task, panel, band); });
        if (p.grad_q) {
          constexpr std::int64_t kRows = 32;
          share(parts_of(j.queries, kRows), [&](std::int64_t task, std::int64_t part) {
            Job<Real> mine = j;
            const std::int64_t begin = part * kRows, end = std::min(j.queries, begin + kRows);
            begin_q(mine);
            for (std::int64_t panel = j.panels.begin; panel < j.panels.end; ++panel)
              add_to_q(mine, task, panel, band, begin, end);
            finish_q(mine, begin, end);
          });
        }
      }
      if ((at + 1) % kRun == 0 || at + 1 == rows.end) {
        for (std::int64_t count = (at - rows.begin) / kRun; count & 1; count >>= 1, --j.depth)
          each_panel([&](std::int64_t, std::int64_t panel) { join_k(j, panel); });
        ++j.depth;
      }
    }
    for (--j.depth; j.depth > 0; --j.depth)
      each_panel([&](std::int64_t, std::int64_t panel) { join_k(j, panel); });
  }

  std::int64_t keys_in(std::int64_t panel) const {
    return std::min<std::int64_t>(kPanel, p.seq_k - panel * kPanel);
  }
  bool finite(const Array& array, std::int64_t batch, std::int64_t head, std::int64_t first,
              std::int64_t rows, std::int64_t cols) const {
    for (std::int64_t row = first; row < first + rows; ++row)
      if (!kernels.finite(array.at(batch, head, row), array.col, cols)) return false;
    return true;
  }

  void pack_keys(const Job<Real>& j, std::int64_t panel) const {
    const std::int64_t first = panel * kPanel, keys = keys_in(panel);
    const std::byte *k = p.k.at(j.batch, j.kv_head, first), *v = p.v.at(j.batch, j.kv_head, first);
    pack.pack_b({k, p.k.row, p.k.col, keys}, p.head_dim, j.k_as_cols(panel));
    pack.pack_b({v, p.v.row, p.v.col, keys}, p.value_dim, j.v_as_cols(panel));
    pack.pack_b({k, p.k.col, p.k.row, p.head_dim}, keys, j.k_as_rows(panel));
    const bool all = finite(p.k, j.batch, j.kv_head, first, keys, p.head_dim) &&
                     finite(p.v, j.batch, j.kv_head, first, keys, p.value_dim);
    j.flag_of(panel) = all ? 1 : 0;
  }

  void pack_queries(Job<Real>& j) const {
    const std::byte *q = p.q.at(j.batch, j.head, j.query),
                    *grad = p.grad_y.at(j.batch, j.head, j.query);
    pack.pack_a({q, p.q.row, p.q.col, j.queries}, p.head_dim, j.q_as_rows());
    pack.pack_a({grad, p.grad_y.row, p.grad_y.col, j.queries}, p.value_dim, j.y_as_rows());
    pack.pack_b({q, p.q.col, p.q.row, p.head_dim}, j.queries, j.q_as_terms());
    pack.pack_b({grad, p.grad_y.col, p.grad_y.row, p.value_dim}, j.queries, j.y_as_terms());
    j.queries_are_finite = finite(p.q, j.batch, j.head, j.query, j.queries, p.head_dim) &&
                           finite(p.grad_y, j.batch, j.head, j.query, j.queries, p.value_dim);
    const auto real = [&](const Array& array, std::int64_t i) {
      return *reinterpret_cast<const Real*>(array.at(j.batch, j.head, j.query + i));
    };
    for (std::int64_t i = 0; i < j.queries; ++i) {
      Real* const of_row = j.numbers() + i;
      const Real max = real(p.max, i);
      of_row[0] = max;
      of_row[kPanel] = inverse_of<ScalarOf<Real>>(max, real(p.sum, i));
      kernels.dot(p.grad_y.at(j.batch, j.head, j.query + i), p.grad_y.col,
                  p.y.at(j.batch, j.head, j.query + i), p.y.col, p.value_dim, of_row + 2 * kPanel);
      if (p.grad_lse) of_row[2 * kPanel] = of_row[2 * kPanel] - real(p.grad_lse, i);
    }
  }

  // Keys that a panel of queries may see.
  Range band_of(const Job<Real>& j) const {
    return {p.keys_of(j.query).begin, p.keys_of(j.query + j.queries - 1).end};
  }
  bool is_in(const Range& band, std::int64_t panel) const {
    return band.begin < panel * kPanel + keys_in(panel) && band.end > panel * kPanel;
  }
  // Whether all are finite, so that what is not there may be multiplied by 0.
  bool is_finite(const Job<Real>& j, std::int64_t panel) const {
    return j.queries_are_finite && j.flag_of(panel) != 0;
  }

  Pairs<Real> pairs_of(const Job<Real>& j, std::int64_t panel) const {
    return {p, pack, j.query, j.queries, panel * kPanel, keys_in(panel)};
  }

  // Queries and keys of two panels: weights, gradients of scores, and what they add to v and k.
  void take(const Job<Real>& j, std::int64_t task, std::int64_t panel, const Range& band) const {
    Real *of_k = j.sums_of_k(panel, j.depth), *of_v = j.sums_of_v(panel, j.depth);
    if (j.first_of_run) std::fill_n(of_k, sizes.sums_k + sizes.sums_v, Real(0));
    const std::int64_t keys = keys_in(panel);
    if (!is_in(band, panel)) {
      if (p.grad_bias) clear_bias(j, panel);
      return;
    }
    Real *const weights = j.weights_of(task), *const gradients = j.gradients_of(panel);
    const Pairs<Real> pairs = pairs_of(j, panel);
    pairs.multiply(j.q_as_rows(), j.k_as_cols(panel), p.head_dim, weights, kPitch);
    pairs.multiply(j.y_as_rows(), j.v_as_cols(panel), p.value_dim, gradients, kPitch);
    for (std::int64_t i = 0; i < j.queries; ++i) treat_row(j, task, panel, i, weights, gradients);
    if (!is_finite(j, panel)) return add_what_is_there(j, task, panel, weights, gradients);
    const auto add = [&](const Real* tile, const Real* terms, Real* to, std::int64_t pitch,
                         std::int64_t cols) {
      Real* const rows = j.packed_of(task);
      plain.pack_a({reinterpret_cast<const std::byte*>(tile), 1, kPitch, keys}, j.queries, rows);
      pairs.add_to_keys({rows, terms, to, pitch, keys, cols, j.queries, true});
    };
    if (p.grad_v) add(weights, j.y_as_terms(), of_v, sizes.pitch_v, p.value_dim);
    if (p.grad_k) add(gradients, j.q_as_terms(), of_k, sizes.pitch_k, p.head_dim);
  }

  void clear_bias(const Job<Real>& j, std::int64_t panel) const {
    for (std::int64_t i = 0; i < j.queries; ++i)
      for (std::int64_t key = panel * kPanel; key < panel * kPanel + keys_in(panel); ++key)
        *reinterpret_cast<T*>(p.grad_bias.at(j.batch, j.head, j.query + i, key)) =
            narrow<T>(Real(0));
  }

  void treat_row(const Job<Real>& j, std::int64_t task, std::int64_t panel, std::int64_t i,
                 Real* weights, Real* gradients) const {
    const std::int64_t keys = keys_in(panel), key = panel * kPanel, query = j.query + i;
    const Range range = p.keys_of(query);
    Real *const line = weights + i * kPitch, *const gradient = gradients + i * kPitch;
    Real* const room = j.kept_of(task);
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
    const Real* of_row = j.numbers() + i;
    kernels.gradients(
        &scaling, {exponents, line, kept, keys, of_row, of_row + kPanel, of_row + 2 * kPanel, line,
                   gradient, from(p.grad_bias), p.grad_bias.col, p.softcap != 0});
  }

  // Where something is not finite: only pairs that are there, one after the other.
  void add_what_is_there(const Job<Real>& j, std::int64_t task, std::int64_t panel,
                         const Real* weights, const Real* gradients) const {
    const std::int64_t keys = keys_in(panel), key = panel * kPanel;
    Real* const chain = j.packed_of(task);
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
      add(p.grad_y, p.value_dim, j.sums_of_v(panel, j.depth), sizes.pitch_v, weights, true);
    if (p.grad_k)
      add(p.q, p.head_dim, j.sums_of_k(panel, j.depth), sizes.pitch_k, gradients, false);
  }
  bool is_there(const Job<Real>& j, std::int64_t i, std::int64_t key, bool of_kept) const {
    const Row<T, Real> row(p, j.batch, j.head, j.query + i);
    if (!row.is_there(row.exponent(key))) return false;
    return !of_kept || !dropout || dropout.keeps(j.batch, j.head, j.query + i, key);
  }

  void begin_q(Job<Real>& j) const {
    j.fresh_q = true;
    j.depth_of_q = j.runs_of_q = 0;
  }
  // Some rows of a panel of queries, times a panel of keys.
  void add_to_q(Job<Real>& j, std::int64_t task, std::int64_t panel, const Range& band,
                std::int64_t begin, std::int64_t end) const {
    if (!p.grad_q) return;
    const std::int64_t pitch = sizes.pitch_k, keys = keys_in(panel);
    Real* const to = j.sums_of_q(j.depth_of_q) + begin * pitch;
    if (j.fresh_q) std::fill_n(to, (end - begin) * pitch, Real(0));
    j.fresh_q = false;
    if (is_in(band, panel)) {
      const Real* const tile = j.gradients_of(panel) + begin * kPitch;
      if (is_finite(j, panel)) {
        Real* const rows = j.packed_of(task);
        plain.pack_a({reinterpret_cast<const std::byte*>(tile), kPitch, 1, end - begin}, keys,
                     rows);
        pairs_of(j, panel).add_to_queries(
            {rows, j.k_as_rows(panel), to, pitch, end - begin, p.head_dim, keys, true}, begin);
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
    if ((panel + 1) % kRun != 0 && panel + 1 != j.panels.end) return;
    j.fresh_q = true;
    for (std::int64_t count = j.runs_of_q++; count & 1; count >>= 1) join_q(j, begin, end);
    ++j.depth_of_q;
  }
  void join_q(Job<Real>& j, std::int64_t begin, std::int64_t end) const {
    const std::int64_t from = begin * sizes.pitch_k, count = (end - begin) * sizes.pitch_k;
    add(j.sums_of_q(j.depth_of_q - 1) + from, j.sums_of_q(j.depth_of_q) + from, count);
    --j.depth_of_q;
  }
  void finish_q(Job<Real>& j, std::int64_t begin, std::int64_t end) const {
    if (j.panels.count() == 0)
      std::fill_n(j.sums_of_q(0) + begin * sizes.pitch_k, (end - begin) * sizes.pitch_k, Real(0));
    for (--j.depth_of_q; j.depth_of_q > 0;) join_q(j, begin, end);
    if (!j.of_queries) write_queries(j, begin, end, j.sums_of_q(0));
  }
  void write_queries(const Job<Real>& j, std::int64_t begin, std::int64_t end,
                     const Real* sums) const {
    for (std::int64_t i = begin; i < end; ++i)
      kernels.write(sums + i * sizes.pitch_k, p.head_dim, scaling.gradient,
                    p.grad_q.at(j.batch, j.head, j.query + i), p.grad_q.col);
  }

  void join_k(const Job<Real>& j, std::int64_t panel) const {
    add(j.sums_of_k(panel, j.depth - 1), j.sums_of_k(panel, j.depth), sizes.sums_of(Side::keys));
  }
  void write_keys(const Job<Real>& j, std::int64_t panel, const Real* of_k) const {
    const Real* const of_v = of_k + sizes.sums_k;
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
  Scaling<Real> scaling;
  Dropout<Real> dropout;
};

}  // namespace isobit::attention
