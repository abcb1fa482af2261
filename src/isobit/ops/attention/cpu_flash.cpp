// SPDX-License-Identifier: Apache-2.0
// flash, and amx: keys as rows of matmul's packed panels, queries as their columns, so that scores
// lie as the second product reads its weights. Nothing as large as all scores is stored.
#include <limits>

#include "isobit/ops/attention/cpu_products.h"

namespace isobit::attention {

const Kernels& kernels_for(DType x, Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, kernels(x)); }
const TileKernels* tile_kernels_for(Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, tile_kernels()); }

namespace {

constexpr std::int64_t kPart = Products::kPart;  // keys that may be left out together
constexpr int kColumns[] = {1, 2, 4, 8, 16};
constexpr Knob kKnobs[] = {
    {"columns", kColumns, "vectors' blocks of queries that pass the keys together"}};

// How much memory the parts of a task take, in elements.
struct Sizes {
  std::int64_t part, k, v, panels;  // a part of a panel of k, a panel of k and of v
  std::int64_t lanes, queries, tile, weights, state;  // of one block of columns
  std::int64_t levels, job, rows, unit;               // rows: before those that a unit gathers

  Sizes(const Problem& p, const Products& products, std::int64_t columns) {
    part = products.part;
    k = kPanel / kPart * part;
    v = products.values;
    panels = parts_of(p.seq_k, kPanel);
    lanes = products.lanes;
    queries = products.queries;
    tile = lines_of(kPanel * lanes);
    weights = products.weights;
    state = lines_of((products.rows + 2) * lanes);
    levels = levels_of(parts_of(p.seq_k, kRunKeys));
    job = panels * (k + v) + lines_of(panels);  // a flag a panel
    rows = columns * (queries + levels * state) + 2 * tile + weights + state;
    unit = rows + room_for_rows(p);
  }
};

Shares shares_of(const Problem& p, const Machine& machine, Takes takes) {
  const std::int64_t units = p.calls() * p.kv_heads * p.seq_q;
  return {p, simd::task_count(machine, worth_of(p), std::max<std::int64_t>(1, units)),
          std::numeric_limits<std::int64_t>::max(), takes};
}

std::int64_t most_columns(const Problem& p, const Plan& plan, const Products& products) {
  return std::clamp<std::int64_t>(parts_of(p.seq_q, products.lanes), 1, plan[0]);
}
// Of heads whose queries are shared out.
std::int64_t fewer_columns(const Problem& p, const Plan& plan, const Products& products,
                           std::int64_t tasks) {
  std::int64_t columns = most_columns(p, plan, products);
  while (columns > 1 && p.group() * parts_of(p.seq_q, columns * products.lanes) < 2 * tasks)
    columns = (columns + 1) / 2;
  return columns;
}

template <class T, class Real>
class Flash {
 public:
  Flash(const Problem& problem, const Products& products, Isa isa, std::int64_t columns)
      : p(problem),
        products(products),
        kernels(kernels_for(problem.dtype, isa)),
        sizes(problem, products, columns),
        columns(columns),
        in_turn(units() == 1),
        scaling(Scaling<Real>::of(problem.scale, problem.softcap, problem.head_dim)),
        dropout(Dropout<Real>::of(problem.dropout, problem.dropout_seed)) {}

  std::int64_t panels() const { return sizes.panels; }
  std::int64_t units() const { return p.group() * parts_of(p.seq_q, columns * products.lanes); }

  // Whether a unit packs each panel where the one before it stood: nobody else reads them.
  bool packs_in_turn() const { return in_turn; }

  // A panel of the keys and values of a job. The room is that of a unit.
  void pack_panel(Real* job, Real* room, std::int64_t batch, std::int64_t kv_head,
                  std::int64_t panel) const {
    const std::int64_t first = panel * kPanel, keys = keys_in(panel);
    room += sizes.rows;
    const Rows k = rows_of<T>(p, p.k, batch, kv_head, first, keys, p.head_dim, room);
    for (std::int64_t at = 0; at < keys; at += kPart)
      products.pack_keys({k.data + at * k.row * p.k.size, k.row, k.col, std::min(kPart, keys - at)},
                         k_of(job, panel) + at / kPart * sizes.part);
    Rows v = rows_of<T>(p, p.v, batch, kv_head, first, keys, p.value_dim, room);
    bool finite = true;
    for (std::int64_t i = 0; finite && i < keys; ++i)
      finite = kernels.finite(v.data + i * v.row * p.v.size, v.col, p.value_dim);
    if constexpr (std::is_same_v<T, bf16>)
      if (!finite && is_tensor()) v = finite_rows<T>(v, keys, p.value_dim, room);
    products.pack_values({v.data, v.col, v.row, p.value_dim}, keys, v_of(job, panel));
    flags_of(job)[slot_of(panel)] = finite ? 1 : 0;
  }

  // Some queries of one head.
  void run_unit(Real* job, Real* room, std::int64_t batch, std::int64_t kv_head,
                std::int64_t unit) const {
    const std::int64_t blocks = parts_of(p.seq_q, columns * products.lanes);
    Unit u{job, room, batch, kv_head * p.group() + unit / blocks,
           unit % blocks * columns * products.lanes};
    u.queries = std::min(p.seq_q - u.first, columns * products.lanes);
    u.columns = parts_of(u.queries, products.lanes);
    for (std::int64_t c = 0; c < u.columns; ++c)
      products.pack_queries(
          {p.q.at(u.batch, u.head, u.first + c * products.lanes), p.q.row, p.q.col, count_of(u, c)},
          queries_of(u, c));
    products.begin();
    const std::int64_t begin = p.keys_of(u.first).begin;
    const std::int64_t end = p.keys_of(u.first + u.queries - 1).end;
    const std::int64_t runs = std::max<std::int64_t>(1, parts_of(end, kRunKeys));
    std::int64_t depth = 0;
    for (std::int64_t run = 0; run < runs; ++run) {
      bool fresh[16];
      std::fill_n(fresh, u.columns, true);
      for (std::int64_t panel = run * kRun;
           panel < std::min((run + 1) * kRun, parts_of(end, kPanel)); ++panel) {
        if ((panel + 1) * kPanel <= begin) continue;
        if (in_turn) pack_panel(job, room, batch, kv_head, panel);
        for (std::int64_t c = 0; c < u.columns; ++c) take(u, c, panel, depth, fresh[c]);
      }
      for (std::int64_t c = 0; c < u.columns; ++c)
        if (fresh[c]) clear(state_of(u, c, depth), cols_of(u, c));
      for (std::int64_t count = run; count & 1; count >>= 1) join(u, depth--);
      ++depth;
    }
    for (--depth; depth > 0;) join(u, depth--);
    for (std::int64_t c = 0; c < u.columns; ++c) finish(u, c);
    products.end();
  }

 private:
  struct Unit {
    const Real* job;  // packed panels
    Real* room;
    std::int64_t batch, head, first;  // query
    std::int64_t queries = 0, columns = 0;
  };

  bool is_tensor() const { return p.arithmetic == Arithmetic::tensor; }
  std::int64_t keys_in(std::int64_t panel) const {
    return std::min<std::int64_t>(kPanel, p.seq_k - panel * kPanel);
  }
  std::int64_t slot_of(std::int64_t panel) const { return in_turn ? 0 : panel; }
  template <class Job>
  Job* k_of(Job* job, std::int64_t panel) const {
    return job + slot_of(panel) * (sizes.k + sizes.v);
  }
  template <class Job>
  Job* v_of(Job* job, std::int64_t panel) const {
    return k_of(job, panel) + sizes.k;
  }
  template <class Job>
  Job* flags_of(Job* job) const {
    return job + sizes.panels * (sizes.k + sizes.v);
  }
  Real* queries_of(const Unit& u, std::int64_t column) const {
    return u.room + column * sizes.queries;
  }
  Real* states_of(const Unit& u) const { return u.room + columns * sizes.queries; }
  State state_at(Real* at, std::int64_t cols) const { return {at, at + cols, at + 2 * cols}; }
  State state_of(const Unit& u, std::int64_t column, std::int64_t depth) const {
    return state_at(states_of(u) + (depth * columns + column) * sizes.state, cols_of(u, column));
  }
  Real* tile_of(const Unit& u) const { return states_of(u) + sizes.levels * columns * sizes.state; }
  Real* weights_of(const Unit& u) const { return tile_of(u) + 2 * sizes.tile; }
  State scratch_of(const Unit& u, std::int64_t cols) const {
    return state_at(weights_of(u) + sizes.weights, cols);
  }
  std::int64_t count_of(const Unit& u, std::int64_t column) const {
    return std::min(products.lanes, u.queries - column * products.lanes);
  }
  // Lanes of a block of columns: the last has fewer where those are enough.
  std::int64_t cols_of(const Unit& u, std::int64_t column) const {
    return count_of(u, column) <= products.width ? products.width : products.lanes;
  }

  void clear(const State& state, std::int64_t cols) const {
    std::fill_n(static_cast<Real*>(state.max), cols, -kInfinity<Real>);
    std::fill_n(static_cast<Real*>(state.sum), cols * (1 + p.value_dim), Real(0));
  }
  void join(const Unit& u, std::int64_t depth) const {
    for (std::int64_t c = 0; c < u.columns; ++c)
      kernels.fold(state_of(u, c, depth), state_of(u, c, depth - 1), p.value_dim, cols_of(u, c));
  }

  // Products of q and some of a panel's first keys.
  void multiply_keys(const Unit& u, std::int64_t c, std::int64_t panel, std::int64_t keys,
                     Real* tile) const {
    const std::int64_t cols = cols_of(u, c), all = keys_in(panel);
    for (std::int64_t at = 0; at < keys; at += kPart)
      products.multiply_keys(k_of(u.job, panel) + at / kPart * sizes.part, queries_of(u, c),
                             tile + at * cols, std::min(kPart, all - at), cols);
  }

  // What is not there gets an exponent of -infinity; says whether the rest are still products.
  bool treat_lines(const Unit& u, std::int64_t c, std::int64_t panel, std::int64_t keys,
                   Real* tile) const {
    const std::int64_t cols = cols_of(u, c), count = count_of(u, c);
    const std::int64_t query = u.first + c * products.lanes, key = panel * kPanel;
    const Range first = p.keys_of(query), last = p.keys_of(query + count - 1);
    const bool whole = last.begin <= key && first.end >= key + keys;
    if (p.plain() && whole) return true;
    for (std::int64_t j = 0; j < keys; ++j) {
      const Range queries = p.queries_of(key + j);
      const std::int64_t begin = std::clamp<std::int64_t>(queries.begin - query, 0, count);
      const std::int64_t end = std::clamp<std::int64_t>(queries.end - query, begin, count);
      Real* const row = tile + j * cols;
      if (p.plain()) {
        std::fill(row, row + begin, -kInfinity<Real>);
        std::fill(row + end, row + count, -kInfinity<Real>);
      } else {
        const auto from = [&](const Array& array) {
          return array ? array.at(u.batch, u.head, query, key + j) : nullptr;
        };
        kernels.line(&scaling,
                     {row, row, count, begin, end, from(p.bias), from(p.mask), p.bias.row,
                      p.mask.row, p.slope_of(u.batch, u.head), query + p.apart - key - j});
      }
    }
    return p.plain();
  }

  void take(const Unit& u, std::int64_t c, std::int64_t panel, std::int64_t depth,
            bool& fresh) const {
    const std::int64_t cols = cols_of(u, c), query = u.first + c * products.lanes;
    const std::int64_t key = panel * kPanel;
    const Range keys_of_first = p.keys_of(query),
                keys_of_last = p.keys_of(query + count_of(u, c) - 1);
    const std::int64_t keys = std::min(keys_in(panel), keys_of_last.end - key);
    if (keys <= 0 || keys_of_first.begin >= key + keys_in(panel)) return;
    Real* const tile = tile_of(u);
    const State now = state_of(u, c, depth), part = fresh ? now : scratch_of(u, cols);
    multiply_keys(u, c, panel, keys, tile);
    const bool are_products = treat_lines(u, c, panel, keys, tile);
    products.weigh(kernels, &scaling, {tile, cols, keys, are_products, part.max, part.sum},
                   weights_of(u), bool{dropout}, [&] { drop(u, c, panel, keys, tile); });
    const bool finite = flags_of(u.job)[slot_of(panel)] != 0;
    if (finite || is_tensor())
      products.multiply_values(v_of(u.job, panel), tile, weights_of(u),
                               static_cast<Real*>(part.rows), keys, keys_in(panel), cols);
    else
      std::fill_n(static_cast<Real*>(part.rows), p.value_dim * cols, Real(0));
    if (!finite) add_values_one_by_one(u, c, panel, keys, part);
    if (!fresh) kernels.fold(part, now, p.value_dim, cols);
    fresh = false;
  }

  // Where v is not finite: what is not there is not multiplied. Of arithmetic tensor only what is
  // not finite is left.
  void add_values_one_by_one(const Unit& u, std::int64_t c, std::int64_t panel, std::int64_t keys,
                             const State& part) const {
    const std::int64_t cols = cols_of(u, c);
    Real* const exponents = tile_of(u) + sizes.tile;
    multiply_keys(u, c, panel, keys, exponents);
    treat_lines(u, c, panel, keys, exponents);
    for (std::int64_t j = 0; j < keys; ++j) {
      const std::int64_t key = panel * kPanel + j;
      const auto value = [&](std::int64_t d) {
        return element<Real, T>(p.key_at(p.v, u.batch, u.head / p.group(), key, d));
      };
      if (is_tensor() &&
          kernels.finite(p.key_at(p.v, u.batch, u.head / p.group(), key), p.v.col, p.value_dim))
        continue;
      for (std::int64_t i = 0; i < count_of(u, c); ++i) {
        const std::int64_t query = u.first + c * products.lanes + i;
        if (exponents[j * cols + i] == -kInfinity<Real>) continue;
        if (dropout && !dropout.keeps(u.batch, u.head, query, key)) continue;
        const Real weight = products.weight(tile_of(u), weights_of(u), cols, j, i);
        for (std::int64_t d = 0; d < p.value_dim; ++d) {
          if (is_tensor() && std::isfinite(value(d))) continue;
          Real& sum = static_cast<Real*>(part.rows)[d * cols + i];
          sum = std::fma(weight, value(d), sum);
        }
      }
    }
  }

  void drop(const Unit& u, std::int64_t c, std::int64_t panel, std::int64_t keys,
            Real* tile) const {
    const std::int64_t cols = cols_of(u, c);
    for (std::int64_t i = 0; i < count_of(u, c); ++i)
      for (std::int64_t j = 0; j < keys; j += 4) {
        const auto words = dropout.words(u.batch, u.head, u.first + c * products.lanes + i,
                                         (panel * kPanel + j) / 4);
        for (std::int64_t lane = 0; lane < std::min<std::int64_t>(4, keys - j); ++lane) {
          Real& weight = tile[(j + lane) * cols + i];
          weight = words[static_cast<std::size_t>(lane)] < dropout.threshold
                       ? Real(0)
                       : weight * dropout.scale;
        }
      }
  }

  void finish(const Unit& u, std::int64_t c) const {
    const std::int64_t query = u.first + c * products.lanes;
    const auto to = [&](const Array& array) {
      return array ? array.at(u.batch, u.head, query) : nullptr;
    };
    kernels.finish(state_of(u, c, 0), p.value_dim, cols_of(u, c), count_of(u, c),
                   {to(p.y), to(p.lse), to(p.max), to(p.sum), p.y.row, p.y.col, p.lse.row,
                    p.max.row, p.sum.row});
  }

  const Problem& p;
  const Products& products;
  const Kernels& kernels;
  Sizes sizes;
  std::int64_t columns;
  bool in_turn;
  Scaling<Real> scaling;
  Dropout<Real> dropout;
};

template <class T, class Real>
void run_of_type(const Problem& problem, const Plan& plan, const Execution& execution, Takes takes,
                 By by) {
  const Products products(problem, execution.machine.isa, by);
  const Shares shares = shares_of(problem, execution.machine, takes);
  const std::int64_t tasks = shares.tasks;
  auto* const memory = reinterpret_cast<Real*>(execution.workspace);
  for (std::int64_t job = 0; shares.any_lasting && job < shares.jobs; ++job) {
    const std::int64_t sequence = job / problem.kv_heads, head = job % problem.kv_heads;
    const Lengths lengths = problem.lengths(sequence);
    if (!takes(problem, lengths) || shares.is_brief(lengths)) continue;
    const std::int64_t columns = fewer_columns(shares.lasting, plan, products, tasks);
    const Sizes sizes(shares.lasting, products, columns);
    Real* const units = memory + sizes.job;
    const Problem of_job = problem.of(sequence);
    const Flash<T, Real> flash(of_job, products, execution.machine.isa, columns);
    const std::int64_t beforehand = flash.packs_in_turn() ? 0 : flash.panels();
    if (beforehand > 0)
      deal(execution, tasks, beforehand, [&](std::int64_t task, std::int64_t panel) {
        flash.pack_panel(memory, units + task * sizes.unit, sequence, head, panel);
      });
    // The last queries may see the most keys.
    deal(execution, tasks, flash.units(), [&](std::int64_t task, std::int64_t unit) {
      flash.run_unit(memory, units + task * sizes.unit, sequence, head, flash.units() - 1 - unit);
    });
  }
  if (!shares.any_brief) return;
  const std::int64_t columns = most_columns(shares.brief, plan, products);
  const Sizes sizes(shares.brief, products, columns);
  Real* const units = memory + tasks * sizes.job;
  deal(execution, tasks, shares.jobs, [&](std::int64_t task, std::int64_t job) {
    const std::int64_t sequence = job / problem.kv_heads, head = job % problem.kv_heads;
    const Lengths lengths = problem.lengths(sequence);
    if (!takes(problem, lengths) || !shares.is_brief(lengths)) return;
    const Problem of_job = problem.of(sequence);
    const Flash<T, Real> flash(of_job, products, execution.machine.isa, columns);
    if (flash.units() == 0) return;
    Real *const packed = memory + task * sizes.job, *const room = units + task * sizes.unit;
    for (std::int64_t panel = 0; !flash.packs_in_turn() && panel < flash.panels(); ++panel)
      flash.pack_panel(packed, room, sequence, head, panel);
    for (std::int64_t unit = 0; unit < flash.units(); ++unit)
      flash.run_unit(packed, room, sequence, head, unit);
  });
}

Plan choose(const Problem&, const Machine&) { return kFlashPlan; }

}  // namespace

std::size_t flash_workspace(const Problem& problem, const Plan& plan, const Machine& machine,
                            Takes takes, By by) {
  if (problem.empty()) return 0;
  const Products products(problem, machine.isa, by);
  const Shares shares = shares_of(problem, machine, takes);
  const Sizes brief(shares.brief, products, most_columns(shares.brief, plan, products));
  const Sizes lasting(shares.lasting, products,
                      fewer_columns(shares.lasting, plan, products, shares.tasks));
  const std::int64_t side_by_side = shares.tasks * (brief.job + brief.unit),
                     together = lasting.job + shares.tasks * lasting.unit;
  return static_cast<std::size_t>(
      std::max(shares.any_brief ? side_by_side : 0, shares.any_lasting ? together : 0) *
      size_of(problem.real()));
}

void run_flash(const Problem& problem, const Plan& plan, const Execution& execution, Takes takes,
               By by) {
  if (problem.empty()) return;
  const simd::FloatMode mode;  // of the numbers that all tasks share
  with_types(problem.dtype, [&]<class T, class Real>(T, Real) {
    run_of_type<T, Real>(problem, plan, execution, takes, by);
  });
}

ForwardVariant amx_forward_variant() {
  return {
      .name = "amx",
      .knobs = kKnobs,
      .each_isa = true,
      .declines = [](const Problem& p, const Machine& machine) -> std::string {
        if (p.arithmetic != Arithmetic::tensor) return "has no arithmetic but tensor";
        if (p.dtype != DType::bf16) return "needs bf16";
        return matmul::declines_tiles(machine);
      },
      .suits = [](const Problem& p, const Machine&) { return p.arithmetic == Arithmetic::tensor; },
      .choose = choose,
      .workspace =
          [](const Problem& p, const Plan& plan, const Machine& machine) {
            return flash_workspace(p, plan, machine, takes_all, By::tiles);
          },
      .run =
          [](const ForwardArgs&, const Problem& p, const Plan& plan, const Execution& execution) {
            run_flash(p, plan, execution, takes_all, By::tiles);
          }};
}

ForwardVariant flash_forward_variant() {
  return {.name = "flash",
          .knobs = kKnobs,
          .each_isa = true,
          .choose = choose,
          .workspace =
              [](const Problem& p, const Plan& plan, const Machine& machine) {
                return flash_workspace(p, plan, machine, takes_all);
              },
          .run = [](const ForwardArgs&, const Problem& p, const Plan& plan,
                    const Execution& execution) { run_flash(p, plan, execution, takes_all); }};
}

}  // namespace isobit::attention
