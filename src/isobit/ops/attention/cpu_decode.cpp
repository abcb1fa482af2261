// SPDX-License-Identifier: Apache-2.0
// decode: a few queries and many keys. k and v are read once, as they lie in memory, by all queries
// of the heads that share them; threads share runs of keys. And the tables of variants.
#include <algorithm>
#include <span>

#include "isobit/ops/attention/cpu_parts.h"
#include "isobit/simd/prefetch.h"

namespace isobit::attention {
namespace {

constexpr std::int64_t kMostQueries = 8, kPitch = 512;  // a panel of matmul
constexpr std::int64_t kSideBySide = 16;  // keys whose k is read while their v is fetched

// Sizes are those of the longest sequence's call.
std::int64_t queries_of(const Problem& problem) { return problem.group() * problem.seq_q; }
// Of one sequence; none where it has no queries, or is not taken.
std::int64_t runs_of(const Problem& problem, std::int64_t s, Takes takes) {
  const Lengths lengths = problem.lengths(s);
  if (lengths.queries == 0 || !takes(problem, lengths)) return 0;
  return std::max<std::int64_t>(1, parts_of(lengths.keys, kRunKeys));
}
std::int64_t runs_of_all(const Problem& problem, Takes takes) {
  std::int64_t runs = 0;
  for (std::int64_t s = 0; s < problem.sequences; ++s) runs += runs_of(problem, s, takes);
  return runs;
}
// Of the numbers of runs before each sequence, and of all.
std::int64_t bytes_of_runs(const Problem& problem) {
  return parts_of((problem.sequences + 1) * 8, 64) * 64;
}
std::int64_t state_size(const Problem& problem) { return lines_of(problem.value_dim + 2); }
// Of one task: queries, weights, and a panel's part.
std::int64_t room_of(const Problem& problem) {
  return kMostQueries * (2 * kPitch + state_size(problem)) +
         kMostQueries * lines_of(problem.value_dim) + 2 * room_for_rows(problem);
}

std::string declines(const Problem& problem, const Machine&) {
  const std::string reason = decode_declines_call(problem);
  if (reason.empty() && queries_of(longest(problem)) > kMostQueries)
    return "needs at most 8 queries for each head of k";
  return reason;
}
bool suits(const Problem& problem, const Machine&) {
  const Problem all = longest(problem);
  return is_for_decode(problem, {all.seq_q, all.seq_k});
}

Problem longest_taken(const Problem& problem, Takes takes) {
  if (!takes(problem, {problem.seq_q, problem.seq_k}) && !problem.query_starts) {
    Problem none = problem;
    none.seq_q = none.seq_k = 0;
    return none;
  }
  return longest(problem, [&](const Lengths& lengths) { return takes(problem, lengths); });
}

template <class T, class Real>
class Decode {
 public:
  // before: of each sequence, how many runs the ones before it have.
  Decode(const Problem& problem, const Problem& longest, std::span<const std::int64_t> before,
         Isa isa, Real* states)
      : whole(problem),
        sized(longest),
        before(before),
        few(matmul::few_kernels_for(problem.dtype, isa)),
        kernels(kernels_for(problem.dtype, isa)),
        are_finite(kernels_for(problem.real(), isa).finite),
        states(states),
        scaling(Scaling<Real>::of(problem.scale, problem.softcap, problem.head_dim)),
        dropout(Dropout<Real>::of(problem.dropout, problem.dropout_seed)) {}

  // The keys of one run.
  void run_unit(Real* room, std::int64_t unit) const {
    const auto behind = std::upper_bound(before.begin(), before.end(), unit / whole.kv_heads);
    const std::int64_t batch = behind - before.begin() - 1;
    const std::int64_t of_sequence = unit - before[batch] * whole.kv_heads;
    const std::int64_t kv_head = of_sequence / runs_in(batch);
    const std::int64_t first = of_sequence % runs_in(batch) * kRunKeys;
    const Problem p = whole.of(batch);
    const std::int64_t rows = queries_of(p);
    for (std::int64_t i = 0; i < rows; ++i) {
      clear(state_of(unit, i));
      const std::byte* q = p.q.at(batch, head_of(p, kv_head, i), query_of(p, i));
      for (std::int64_t d = 0; d < p.head_dim; ++d)
        room[i * kPitch + d] = element<Real, T>(q + d * p.q.col * p.q.size);
    }
    for (std::int64_t key = first; key < std::min(p.seq_k, first + kRunKeys); key += kPanel)
      take(p, room, unit, batch, kv_head, key);
  }

  void finish(std::int64_t row) const {
    const std::int64_t rows = queries_of(sized), job = row / rows, i = row % rows;
    const std::int64_t batch = job / whole.kv_heads, runs = runs_in(batch);
    if (runs == 0) return;
    const Problem p = whole.of(batch);
    if (i >= queries_of(p)) return;
    const std::int64_t first = before[batch] * whole.kv_heads + job % whole.kv_heads * runs;
    // By pairs: an odd one is carried up.
    for (std::int64_t step = 1; step < runs; step *= 2)
      for (std::int64_t run = 0; run + step < runs; run += 2 * step)
        kernels.fold(state_of(first + run + step, i), state_of(first + run, i), p.value_dim, 1);
    finish(p, state_of(first, i), batch, head_of(p, job % p.kv_heads, i), query_of(p, i));
  }

  // A query that no packed sequence has.
  void finish_without_keys(Real* room, std::int64_t row) const {
    const Problem rest = whole.of(whole.sequences);
    const State state = state_at(room);
    clear(state);
    finish(rest, state, whole.sequences, row / rest.seq_q, row % rest.seq_q);
  }

 private:
  std::int64_t runs_in(std::int64_t s) const { return before[s + 1] - before[s]; }
  static std::int64_t head_of(const Problem& p, std::int64_t kv_head, std::int64_t row) {
    return kv_head * p.group() + row / p.seq_q;
  }
  static std::int64_t query_of(const Problem& p, std::int64_t row) { return row % p.seq_q; }
  void clear(const State& state) const {
    *static_cast<Real*>(state.max) = -kInfinity<Real>;
    std::fill_n(static_cast<Real*>(state.sum), whole.value_dim + 1, Real(0));
  }
  void finish(const Problem& p, const State& state, std::int64_t batch, std::int64_t head,
              std::int64_t query) const {
    const auto to = [&](const Array& array) {
      return array ? array.at(batch, head, query) : nullptr;
    };
    kernels.finish(state, p.value_dim, 1, 1,
                   {to(p.y), to(p.lse), to(p.max), to(p.sum), p.y.row, p.y.col, 0, 0, 0});
  }
  State state_at(Real* at) const { return {at, at + 1, at + 2}; }
  State state_of(std::int64_t unit, std::int64_t row) const {
    return state_at(states + (unit * queries_of(sized) + row) * state_size(whole));
  }

  // A panel's keys. kOneByOne: what is not there is not multiplied, in case v is not finite.
  template <bool kOneByOne = false>
  void take(const Problem& p, Real* room, std::int64_t unit, std::int64_t batch,
            std::int64_t kv_head, std::int64_t key) const {
    const std::int64_t rows = queries_of(p), keys = std::min<std::int64_t>(kPanel, p.seq_k - key);
    bool any = false;
    for (std::int64_t i = 0; i < p.seq_q; ++i) {
      const Range range = p.keys_of(i);
      any = any || (range.begin < key + keys && range.end > key);
    }
    if (!any) return;
    Real* const weights = room + kMostQueries * kPitch;
    Real* const part = weights + kMostQueries * kPitch;
    Real* const sums = part + kMostQueries * state_size(p);
    const std::int64_t pitch = lines_of(p.value_dim);
    Real* const gathered = sums + kMostQueries * pitch;
    const Rows k = rows_of<T>(p, p.k, batch, kv_head, key, keys, p.head_dim, gathered);
    const Rows v =
        rows_of<T>(p, p.v, batch, kv_head, key, keys, p.value_dim, gathered + room_for_rows(p));
    // Memory gives more if two places are read side by side.
    for (std::int64_t i = 0; i < keys; i += kSideBySide) {
      const std::int64_t count = std::min(kSideBySide, keys - i);
      for (std::int64_t j = i; j < i + count; ++j)
        for (std::int64_t line = 0; line < p.value_dim * p.v.size; line += 64)
          simd::fetch_to_second_cache(v.data + j * v.row * p.v.size + line);
      few.across({room,
                  kPitch,
                  rows,
                  p.head_dim,
                  {k.data + i * k.row * p.k.size, k.row, 1, count},
                  weights + i,
                  kPitch});
    }
    bool there[kMostQueries][kPanel];
    for (std::int64_t i = 0; i < rows; ++i) {
      Real* const line = weights + i * kPitch;
      const std::int64_t head = head_of(p, kv_head, i), query = query_of(p, i);
      const Range range = p.keys_of(query);
      const auto from = [&](const Array& array) {
        return array ? array.at(batch, head, query, key) : nullptr;
      };
      const bool plain = p.plain() && range.begin <= key && range.end >= key + keys;
      if (!plain)
        kernels.line(
            &scaling,
            {line, line, keys, std::clamp<std::int64_t>(range.begin - key, 0, keys),
             std::clamp<std::int64_t>(range.end - key, 0, keys), from(p.bias), from(p.mask),
             p.bias.col, p.mask.col, p.slope_of(batch, head), key - query - p.apart});
      for (std::int64_t j = 0; kOneByOne && j < keys; ++j)
        there[i][j] = Row<T, Real>::is_there(line[j]);
      const State state = state_at(part + i * state_size(p));
      kernels.weigh_keys(&scaling, {line, keys, plain, state.max, state.sum});
      for (std::int64_t j = 0; dropout && j < keys; ++j) {
        const bool keeps = dropout.keeps(batch, head, query, key + j);
        line[j] = keeps ? line[j] * dropout.scale : Real(0);
        if (kOneByOne) there[i][j] = there[i][j] && keeps;
      }
    }
    if constexpr (kOneByOne) {
      std::fill_n(sums, rows * pitch, Real(0));
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < keys; ++j)
          for (std::int64_t d = 0; there[i][j] && d < p.value_dim; ++d)
            sums[i * pitch + d] = std::fma(
                weights[i * kPitch + j],
                element<Real, T>(v.data + (j * v.row + d * v.col) * p.v.size), sums[i * pitch + d]);
    } else {
      few.along({weights, kPitch, rows, keys, {v.data, 1, v.row, p.value_dim}, sums, pitch});
      for (std::int64_t i = 0; i < rows; ++i)
        if (!are_finite(reinterpret_cast<const std::byte*>(sums + i * pitch), 1, p.value_dim))
          return take<true>(p, room, unit, batch, kv_head, key);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      State state = state_at(part + i * state_size(p));
      state.rows = sums + i * pitch;
      kernels.fold(state, state_of(unit, i), p.value_dim, 1);
    }
  }

  const Problem &whole, &sized;
  std::span<const std::int64_t> before;
  const matmul::FewKernels& few;
  const Kernels& kernels;
  decltype(Kernels::finite) are_finite;  // of sums
  Real* states;
  Scaling<Real> scaling;
  Dropout<Real> dropout;
};

}  // namespace

std::string decode_declines_call(const Problem& problem) {
  if (problem.arithmetic == Arithmetic::tensor) return "has no arithmetic but canonical";
  if (problem.head_dim > 1 && problem.k.col != 1) return "needs adjacent elements in rows of k";
  if (problem.value_dim > 1 && problem.v.col != 1) return "needs adjacent elements in rows of v";
  if (problem.head_dim > kPitch) return "needs heads of at most 512 elements";
  return "";
}
bool is_for_decode(const Problem& problem, const Lengths& lengths) {
  return problem.group() * lengths.queries <= 4;
}

std::size_t decode_workspace(const Problem& problem, const Machine& machine, Takes takes) {
  if (problem.empty()) return 0;
  const Problem sized = longest_taken(problem, takes);
  const std::int64_t states = runs_of_all(problem, takes) * problem.kv_heads * queries_of(sized);
  return static_cast<std::size_t>(bytes_of_runs(problem) +
                                  (states * state_size(sized) + machine.threads * room_of(sized)) *
                                      size_of(problem.real()));
}

void run_decode(const Problem& problem, const Execution& execution, Takes takes) {
  if (problem.empty()) return;
  const simd::FloatMode mode;  // of the numbers that all tasks share
  with_types(problem.dtype, [&]<class T, class Real>(T, Real) {
    auto* const before = reinterpret_cast<std::int64_t*>(execution.workspace);
    before[0] = 0;
    for (std::int64_t s = 0; s < problem.sequences; ++s)
      before[s + 1] = before[s] + runs_of(problem, s, takes);
    auto* const states = reinterpret_cast<Real*>(execution.workspace + bytes_of_runs(problem));
    const Problem sized = longest_taken(problem, takes);
    const std::int64_t units = before[problem.sequences] * problem.kv_heads;
    const std::int64_t queries = queries_of(sized);
    Real* const rooms = states + units * queries * state_size(sized);
    const Decode<T, Real> decode(problem, sized,
                                 {before, static_cast<std::size_t>(problem.sequences + 1)},
                                 execution.machine.isa, states);
    const std::int64_t tasks =
        simd::task_count(execution.machine, worth_of(problem), std::max<std::int64_t>(1, units));
    deal(execution, tasks, units, [&](std::int64_t task, std::int64_t unit) {
      decode.run_unit(rooms + task * room_of(sized), unit);
    });
    const std::int64_t rows = problem.sequences * problem.kv_heads * queries;
    deal(execution, std::min(tasks, rows), rows,
         [&](std::int64_t, std::int64_t row) { decode.finish(row); });
    if (!problem.query_starts || !takes(problem, problem.lengths(problem.sequences))) return;
    const std::int64_t rest = problem.heads * problem.queries_held(problem.sequences).count();
    deal(execution, std::min(tasks, rest), rest, [&](std::int64_t task, std::int64_t row) {
      decode.finish_without_keys(rooms + task * room_of(sized), row);
    });
  });
}

ForwardVariant decode_variant() {
  return {
      .name = "decode",
      .each_isa = true,
      .declines = declines,
      .suits = suits,
      .workspace = [](const Problem& p, const Plan&,
                      const Machine& machine) { return decode_workspace(p, machine, takes_all); },
      .run = [](const ForwardArgs&, const Problem& p, const Plan&,
                const Execution& execution) { run_decode(p, execution, takes_all); }};
}

std::span<const ForwardVariant> cpu_forward_variants() {
  static const ForwardVariant kVariants[] = {amx_forward_variant(), decode_variant(),
                                             mixed_variant(), flash_forward_variant(),
                                             naive_forward_variant()};
  return kVariants;
}
std::span<const BackwardVariant> cpu_backward_variants() {
  static const BackwardVariant kVariants[] = {flash_backward_variant(), naive_backward_variant()};
  return kVariants;
}

}  // namespace isobit::attention
