// SPDX-License-Identifier: Apache-2.0
// The specification: one query, or one key, after the other.
#include "isobit/core/order.h"
#include "isobit/ops/attention/cpu_parts.h"

namespace isobit::attention {
namespace {

// What is known of one query's keys so far.
template <class Real>
struct Known {
  Real* rows;  // max, sum, and the sums of weights times v

  Real& max() const { return rows[0]; }
  Real& sum() const { return rows[1]; }
  Real& at(std::int64_t col) const { return rows[2 + col]; }

  void clear(std::int64_t cols) const {
    max() = -kInfinity<Real>;
    for (std::int64_t i = 1; i < cols + 2; ++i) rows[i] = 0;
  }
  void take(const Known& other, std::int64_t cols) const {
    const auto fold = Fold<ScalarOf<Real>>::of(max(), other.max());
    max() = fold.max;
    for (std::int64_t i = 1; i < cols + 2; ++i) rows[i] = fold(rows[i], other.rows[i]);
  }
};

// Where a row of queries or keys of all heads is.
struct Place {
  std::int64_t sequence, head, row;  // among the rows of all packed sequences

  static Place of(const Problem& p, std::int64_t heads, const Array& starts, std::int64_t index,
                  std::int64_t rows) {
    const std::int64_t head = index / rows, row = index % rows;
    if (starts) return {p.sequence_of(starts, row), head, row};
    return {head / heads, head % heads, row};
  }
};

std::size_t forward_workspace(const Problem& problem, const Plan&, const Machine& machine) {
  const std::int64_t levels = levels_of(parts_of(problem.seq_k, kRunKeys)) + 2;
  return static_cast<std::size_t>(machine.threads *
                                  lines_of((problem.value_dim + 2) * levels + kPanel) * 8);
}

// A panel's weights times values, of the keys that count.
template <class T, class Real, class Value>
Real values_of(const Problem& p, std::int64_t keys, const bool* counts, const Real* weights,
               const Value& value) {
  Real sum = 0;
  const auto add = [&](std::int64_t j, Real weight) { sum = std::fma(weight, value(j), sum); };
  if constexpr (std::is_same_v<T, bf16>)
    if (p.arithmetic == Arithmetic::tensor) {
      const auto weight = [&](std::int64_t j) { return to_float(narrow<bf16>(weights[j])); };
      sum = amx::run(
          0, keys, [&](std::int64_t j) { return counts[j] ? weight(j) : 0.0F; },
          [&](std::int64_t j) { return counts[j] && std::isfinite(value(j)) ? value(j) : 0.0F; });
      for (std::int64_t j = 0; j < keys; ++j)
        if (counts[j] && !std::isfinite(value(j))) add(j, weight(j));
      return sum;
    }
  for (std::int64_t j = 0; j < keys; ++j)
    if (counts[j]) add(j, weights[j]);
  return sum;
}

template <class T, class Real>
void forward_row(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t query, Real* room) {
  using S = ScalarOf<Real>;
  const Row<T, Real> row(p, b, h, query);
  const auto dropout = Dropout<Real>::of(p.dropout, p.dropout_seed);
  const std::int64_t cols = p.value_dim, width = cols + 2;
  Real exponents[kPanel], weights[kPanel], terms[kPanel];
  const Known<Real> panel{room};
  const auto level = [&](std::int64_t depth) { return Known<Real>{room + width * (1 + depth)}; };
  std::int64_t depth = 0, done = 0;
  for (std::int64_t run = 0; run == 0 || run < p.seq_k; run += kRunKeys) {
    const Known<Real> now = level(depth);
    now.clear(cols);
    for (std::int64_t first = run; first < std::min(p.seq_k, run + kRunKeys); first += kPanel) {
      const std::int64_t keys = std::min<std::int64_t>(kPanel, p.seq_k - first);
      Real top = -kInfinity<Real>;
      for (std::int64_t j = 0; j < keys; ++j) {
        exponents[j] = row.exponent(first + j);
        top = S::max(top, nearest<S>(exponents[j]));
      }
      for (std::int64_t j = 0; j < kPanel; ++j)
        terms[j] = weights[j] = j < keys ? weight_of<S>(exponents[j], base_of<S>(top)) : Real(0);
      panel.max() = top;
      panel.sum() = order::detail::fold(terms, kPanel);
      bool counts[kPanel];
      for (std::int64_t j = 0; j < keys; ++j) {
        counts[j] =
            row.is_there(exponents[j]) && (!dropout || dropout.keeps(b, h, query, first + j));
        if (dropout) weights[j] = weights[j] * dropout.scale;
      }
      for (std::int64_t c = 0; c < cols; ++c)
        panel.at(c) = values_of<T, Real>(p, keys, counts, weights, [&](std::int64_t j) {
          return element<Real, T>(p.key_at(p.v, b, h / p.group(), first + j, c));
        });
      now.take(panel, cols);
    }
    for (std::int64_t count = done++; count & 1; count >>= 1, --depth)
      level(depth - 1).take(level(depth), cols);
    ++depth;
  }
  for (--depth; depth > 0; --depth) level(depth - 1).take(level(depth), cols);
  const Known<Real> all = level(0);
  const Real inverse = inverse_of<S>(all.max(), all.sum());
  for (std::int64_t c = 0; c < cols; ++c)
    *reinterpret_cast<T*>(p.y.at(b, h, query, c)) = narrow<T>(y_of<S>(all.at(c), inverse));
  const auto put = [&](const Array& array, Real value) {
    if (array) *reinterpret_cast<Real*>(array.at(b, h, query)) = narrow<Real>(value);
  };
  put(p.lse, lse_of<S>(all.max(), all.sum()));
  put(p.max, returned_max<S>(all.max(), all.sum()));
  put(p.sum, all.sum());
}

void run_forward(const ForwardArgs&, const Problem& problem, const Plan&,
                 const Execution& execution) {
  if (problem.empty()) return;
  const std::int64_t rows = problem.batch * problem.heads * problem.seq_q;
  const std::int64_t tasks = simd::task_count(execution.machine, worth_of(problem), rows);
  const std::int64_t room = static_cast<std::int64_t>(
      forward_workspace(problem, {}, execution.machine) / execution.machine.threads);
  deal(execution, tasks, rows, [&](std::int64_t task, std::int64_t row) {
    const Place place = Place::of(problem, problem.heads, problem.query_starts, row, problem.seq_q);
    with_types(problem.dtype, [&]<class T, class Real>(T, Real) {
      forward_row<T, Real>(problem.of(place.sequence), place.sequence, place.head,
                           place.row - problem.queries_held(place.sequence).begin,
                           reinterpret_cast<Real*>(execution.workspace + task * room));
    });
  });
}

// Sums over keys or queries that are there: panels, runs of them, and pairs of runs.
template <class Real>
class Chains {
 public:
  template <class A, class B>
  void add(bool there, const A& a, const B& b) {
    if (there) chain_ = std::fma(a(), b(), chain_);
  }
  void end_panel() {
    run_ = run_ + chain_;
    chain_ = 0;
    if (++panels_ % kRun == 0) end_run();
  }
  Real total() {
    if (panels_ % kRun != 0) end_run();
    return runs_.total();
  }

 private:
  void end_run() {
    runs_.push(run_);
    run_ = 0;
  }
  Real chain_ = 0, run_ = 0;
  std::int64_t panels_ = 0;
  order::PairTree<Real> runs_;
};

// What a query and a key have in backward.
template <class Real>
struct Pair {
  bool there = false, kept = false;
  Real weight = 0;    // that reaches y
  Real of_score = 0;  // the gradient of what the scale multiplies
  Real of_bias = 0;
};

template <class T, class Real>
Real mean_of(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t query) {
  const Real mean = order::dot<Real>(
      p.value_dim, [&](std::int64_t c) { return element<Real, T>(p.grad_y.at(b, h, query, c)); },
      [&](std::int64_t c) { return element<Real, T>(p.y.at(b, h, query, c)); });
  return p.grad_lse ? mean - *reinterpret_cast<const Real*>(p.grad_lse.at(b, h, query)) : mean;
}

template <class T, class Real>
Pair<Real> pair_of(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t query,
                   std::int64_t key, Real mean) {
  using S = ScalarOf<Real>;
  const auto dropout = Dropout<Real>::of(p.dropout, p.dropout_seed);
  const Row<T, Real> row(p, b, h, query);
  Pair<Real> pair;
  const Real product = row.product(key), exponent = row.exponent(key, product);
  pair.there = row.is_there(exponent);
  if (!pair.there) return pair;
  pair.kept = !dropout || dropout.keeps(b, h, query, key);
  const auto real = [&](const Array& array) {
    return *reinterpret_cast<const Real*>(array.at(b, h, query));
  };
  const Real probability =
      probability_of<S>(exponent, real(p.max), inverse_of<S>(real(p.max), real(p.sum)));
  Real of_weight = 0;
  if (pair.kept) {
    for (std::int64_t c = 0; c < p.value_dim; ++c)
      of_weight = std::fma(element<Real, T>(p.grad_y.at(b, h, query, c)),
                           element<Real, T>(p.v.at(b, h / p.group(), key, c)), of_weight);
    pair.weight = dropout ? probability * dropout.scale : probability;
    if (dropout) of_weight = of_weight * dropout.scale;
  }
  pair.of_bias = pair.of_score = score_gradient<S>(probability, of_weight, mean);
  if (p.softcap != 0)
    pair.of_score =
        before_cap<S>(Scaling<Real>::of(p.scale, p.softcap, p.head_dim), pair.of_bias, product);
  return pair;
}

template <class Real>
Real scale_of(const Problem& p) {
  return Scaling<Real>::of(p.scale, p.softcap, p.head_dim).gradient;
}

template <class T, class Real>
void write(const Array& array, std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t col,
           Real sum, Real scale) {
  *reinterpret_cast<T*>(array.at(b, h, row, col)) = narrow<T>((sum + Real(0)) * scale);
}

template <class T, class Real>
void backward_query(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t query,
                    Pair<Real>* pairs) {
  const Real mean = mean_of<T, Real>(p, b, h, query);
  for (std::int64_t key = 0; key < p.seq_k; ++key) {
    pairs[key] = pair_of<T, Real>(p, b, h, query, key, mean);
    if (p.grad_bias)
      *reinterpret_cast<T*>(p.grad_bias.at(b, h, query, key)) = narrow<T>(pairs[key].of_bias);
  }
  if (!p.grad_q) return;
  for (std::int64_t d = 0; d < p.head_dim; ++d) {
    Chains<Real> sum;
    for (std::int64_t key = 0; key < p.seq_k; ++key) {
      sum.add(
          pairs[key].there, [&] { return pairs[key].of_score; },
          [&] { return element<Real, T>(p.k.at(b, h / p.group(), key, d)); });
      if (key + 1 == p.seq_k || (key + 1) % kPanel == 0) sum.end_panel();
    }
    write<T, Real>(p.grad_q, b, h, query, d, sum.total(), scale_of<Real>(p));
  }
}

// mean_at(head, query): what mean_of gave.
template <class T, class Real, class MeanAt>
void backward_key(const Problem& p, std::int64_t b, std::int64_t kv_head, std::int64_t key,
                  const MeanAt& mean_at, Pair<Real>* pairs) {
  const std::int64_t queries = p.group() * p.seq_q, first = kv_head * p.group();
  for (std::int64_t i = 0; i < queries; ++i)
    pairs[i] = pair_of<T, Real>(p, b, first + i / p.seq_q, i % p.seq_q, key,
                                mean_at(first + i / p.seq_q, i % p.seq_q));
  const auto columns = [&](const Array& to, const Array& from, std::int64_t cols, Real scale,
                           auto is_there, auto factor) {
    for (std::int64_t c = 0; to && c < cols; ++c) {
      Chains<Real> sum;
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::int64_t query = i % p.seq_q;
        sum.add(
            is_there(pairs[i]), [&] { return factor(pairs[i]); },
            [&] { return element<Real, T>(from.at(b, first + i / p.seq_q, query, c)); });
        if (query + 1 == p.seq_q || (query + 1) % kPanel == 0) sum.end_panel();
      }
      write<T, Real>(to, b, kv_head, key, c, sum.total(), scale);
    }
  };
  columns(
      p.grad_k, p.q, p.head_dim, scale_of<Real>(p),
      [](const Pair<Real>& pair) { return pair.there; },
      [](const Pair<Real>& pair) { return pair.of_score; });
  columns(
      p.grad_v, p.grad_y, p.value_dim, Real(1), [](const Pair<Real>& pair) { return pair.kept; },
      [](const Pair<Real>& pair) { return pair.weight; });
}

// A key that the sequence does not have.
template <class T, class Real>
void clear_key(const Problem& p, std::int64_t b, std::int64_t kv_head, std::int64_t key) {
  for (std::int64_t c = 0; p.grad_k && c < p.head_dim; ++c)
    write<T, Real>(p.grad_k, b, kv_head, key, c, 0, scale_of<Real>(p));
  for (std::int64_t c = 0; p.grad_v && c < p.value_dim; ++c)
    write<T, Real>(p.grad_v, b, kv_head, key, c, 0, 1);
}

// Pairs of each task, and a mean of each query.
std::int64_t pairs_room(const Problem& problem) {
  return std::max(problem.seq_k, problem.group() * problem.seq_q) *
         static_cast<std::int64_t>(sizeof(Pair<double>));
}
std::size_t backward_workspace(const Problem& problem, const Plan&, const Machine& machine) {
  const std::int64_t queries = problem.batch * problem.heads * problem.seq_q;
  return static_cast<std::size_t>(machine.threads * pairs_room(problem) +
                                  queries * size_of(problem.real()));
}

void run_backward(const BackwardArgs&, const Problem& problem, const Plan&,
                  const Execution& execution) {
  const std::int64_t of_q = problem.batch * problem.heads * problem.seq_q;
  const std::int64_t of_k = problem.batch * problem.kv_heads * problem.seq_k;
  const std::int64_t rows = of_q + of_k;
  const std::int64_t tasks = simd::task_count(execution.machine, worth_of(problem), rows);
  const std::int64_t room = pairs_room(problem);
  with_types(problem.dtype, [&]<class T, class Real>(T, Real) {
    auto* means = reinterpret_cast<Real*>(execution.workspace + execution.machine.threads * room);
    deal(execution, std::min(tasks, of_q), of_q, [&](std::int64_t, std::int64_t row) {
      const std::int64_t head = row / problem.seq_q;
      means[row] = mean_of<T, Real>(problem, head / problem.heads, head % problem.heads,
                                    row % problem.seq_q);
    });
    deal(execution, tasks, rows, [&](std::int64_t task, std::int64_t row) {
      auto* pairs = reinterpret_cast<Pair<Real>*>(execution.workspace + task * room);
      if (row < of_q) {
        const auto [sequence, head, query] =
            Place::of(problem, problem.heads, problem.query_starts, row, problem.seq_q);
        const std::int64_t begin = problem.queries_held(sequence).begin;
        backward_query<T, Real>(problem.of(sequence), sequence, head, query - begin, pairs);
        if (problem.grad_bias)
          for_each_absent(problem, sequence, [&, b = sequence, h = head, i = query](auto key) {
            *reinterpret_cast<T*>(problem.grad_bias.at(b, h, i, key)) = narrow<T>(Real(0));
          });
      } else {
        const Place of_key =
            Place::of(problem, problem.kv_heads, problem.key_starts, row - of_q, problem.seq_k);
        const std::int64_t sequence = of_key.sequence, kv_head = of_key.head, key = of_key.row;
        const Range held = problem.keys_held(sequence);
        const std::int64_t begin = problem.queries_held(sequence).begin;
        const std::int64_t batch = problem.query_starts ? 0 : sequence;
        const auto mean_at = [&](std::int64_t head, std::int64_t query) {
          return means[(batch * problem.heads + head) * problem.seq_q + begin + query];
        };
        if (held.begin <= key && key < held.end)
          backward_key<T, Real>(problem.of(sequence), sequence, kv_head, key - held.begin, mean_at,
                                pairs);
        else
          clear_key<T, Real>(problem, sequence, kv_head, key);
      }
    });
  });
}

}  // namespace

ForwardVariant naive_forward_variant() {
  return {.name = "naive", .workspace = forward_workspace, .run = run_forward};
}
BackwardVariant naive_backward_variant() {
  return {.name = "naive", .workspace = backward_workspace, .run = run_backward};
}

}  // namespace isobit::attention
