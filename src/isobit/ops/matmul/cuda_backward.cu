// SPDX-License-Identifier: Apache-2.0
// Gradients on GPUs: s once, as an array; each product by a variant of forward; and sums of columns
// of s.
#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "isobit/core/pieces.h"
#include "isobit/ops/matmul/cuda_slopes.h"
#include "isobit/ops/matmul/cuda_tiles.h"
#include "isobit/tile/pairs.h"

namespace isobit::matmul {
namespace {

// s as an operand of products.
template <class T>
struct WriteSlopes {
  static constexpr int kMostThreads = 256;
  Slopes<T> slopes;
  T* to;

  ISOBIT_DEVICE void operator()() const {
    const std::int64_t n = slopes.call.n, step = simt::blocks() * simt::threads();
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < slopes.rows() * n;
         at += step)
      to[at] = simt::Conversions::template narrow<T>(slopes(at / n, at % n));
  }
};

constexpr int kGroupRows = 32 * order::kRun;

// Sums of columns over groups of rows, each a node of the tree of `order::sum_rows`; and beta s.
template <class T>
struct SumGroups {
  static constexpr int kMostThreads = 256;
  using Real = RealOf<T>;
  Slopes<T> slopes;
  Real* sums;  // group, column; null where none are wanted
  bool added;  // c, to what forward computed: beta may be too small for a Real

  ISOBIT_EITHER std::int64_t groups() const {
    return (slopes.rows() + kGroupRows - 1) / kGroupRows;
  }
  ISOBIT_DEVICE void operator()() const {
    const Call<T>& call = slopes.call;
    const std::int64_t step = simt::blocks() * simt::threads();
    for (std::int64_t at = simt::block() * simt::threads() + simt::thread(); at < groups() * call.n;
         at += step) {
      const std::int64_t group = at / call.n, col = at - group * call.n;
      const std::int64_t first = group * kGroupRows;
      const std::int64_t last =
          first + kGroupRows < slopes.rows() ? first + kGroupRows : slopes.rows();
      order::PairTree<Real> runs;
#pragma unroll 1
      for (std::int64_t start = first; start < last; start += order::kRun) {
        Real run = 0;
#pragma unroll 1
        for (std::int64_t row = start; row < last && row < start + order::kRun; ++row) {
          const Real s = slopes(row, col);
          run = run + s;
          if (call.y.data != nullptr) write_c(row, col, s);
        }
        runs.push(run);
      }
      if (sums != nullptr) sums[at] = runs.total();
    }
  }

 private:
  ISOBIT_DEVICE void write_c(std::int64_t row, std::int64_t col, Real s) const {
    const Call<T>& call = slopes.call;
    const std::int64_t product = row / call.m, i = row - product * call.m;
    s = added ? s + Real(0) : Real(0);
    if (call.alpha != Real(1)) s = Call<T>::S::mul(call.alpha, s);
    write(call.y, call.start(call.y, product) + call.y.at(i, col), s);
  }
};

// Sums of groups, added by adjacent pairs, are those of columns.
template <class T>
struct AddGroups {
  static constexpr int kMostThreads = 256;
  using Real = RealOf<T>;
  Operand bias;
  const Real* sums;
  std::int64_t groups, n;

  ISOBIT_DEVICE void operator()() const {
    for (std::int64_t col = simt::block() * simt::threads() + simt::thread(); col < n;
         col += simt::blocks() * simt::threads()) {
      Real waiting[tile::kMostWaiting];
      tile::PairTree<Real> total(waiting);
#pragma unroll 1
      for (std::int64_t group = 0; group < groups; ++group) total.push(sums[group * n + col]);
      write(bias, bias.at(0, col), total.total() + Real(0));
    }
  }
};

std::int64_t blocks_for(std::int64_t count) {
  return std::max<std::int64_t>(1, (count + 255) / 256);
}

template <class Real>
void sum_columns(const Problem& rows, std::byte* workspace, const Execution& execution) {
  Real* const sums = rows.first.bias ? reinterpret_cast<Real*>(workspace) : nullptr;
  const SumGroups<Real> groups{Slopes<Real>(rows), sums, rows.alpha != 0};
  launch(groups, blocks_for(groups.groups() * rows.n), 256, execution);
  if (!rows.first.bias) return;
  const AddGroups<Real> add{groups.slopes.call.bias, sums, groups.groups(), rows.n};
  launch(add, blocks_for(rows.n), 256, execution);
}

bool writes_slopes(const BackwardProblem& problem) {
  return (problem.wants_a && problem.to_a.derived != Derived::none) ||
         (problem.wants_b && problem.to_b.derived != Derived::none);
}

// The product with s as an array, whose rows are adjacent. `own`: what s is of the product, unless
// that has been transposed.
Problem with_slopes(Problem product, Derived own, std::int64_t n, std::byte* slopes) {
  if (product.derived == Derived::none) return product;
  const bool is_a = product.derived == Derived::a;
  Array& array = is_a ? product.first.a : product.first.b;
  array = {slopes, product.element, n, 1};
  if (product.derived != own) array = array.transposed();
  std::int64_t step = product.k * (is_a ? product.m : product.n);
  for (int i = product.loop_count - 1; i >= 0; --i) {
    Loop& loop = product.loops[static_cast<std::size_t>(i)];
    loop.steps[is_a ? 0 : 1] = step;
    step *= loop.extent;
  }
  product.derived = Derived::none;
  return product;
}

// A plan of backward is that of both products, but that each has splits of its own: their k differ.
constexpr std::size_t kSplitsOfA = 1, kSplitsOfB = 2;

bool splits(const ForwardVariant& variant) {
  return variant.knobs.size() > kSplitsOfA && variant.knobs[kSplitsOfA].name == "splits";
}
Plan plan_of_b(const ForwardVariant& variant, Plan plan) {
  if (splits(variant)) plan[kSplitsOfA] = plan[kSplitsOfB];
  return plan;
}

// The workspace of a call: s, what the products need, and sums of groups.
struct Room {
  std::byte *slopes = nullptr, *products = nullptr, *sums = nullptr;
  std::size_t bytes = 0;

  Room(const BackwardProblem& problem, const ForwardVariant& variant, const Plan& plan,
       const Machine& machine, std::byte* memory = nullptr) {
    Pieces pieces(memory);
    const Problem& rows = problem.rows;
    const std::int64_t count = rows.products() * rows.m;
    if (writes_slopes(problem)) slopes = pieces.take(count * rows.n * size_of(rows.element));
    std::size_t most = 0;
    if (problem.wants_a) most = variant.workspace(problem.to_a, plan, machine);
    if (problem.wants_b)
      most = std::max(most, variant.workspace(problem.to_b, plan_of_b(variant, plan), machine));
    products = pieces.take(static_cast<std::int64_t>(most));
    if (rows.first.bias)
      sums = pieces.take((count + kGroupRows - 1) / kGroupRows * rows.n * size_of(rows.real()));
    bytes = pieces.taken();
  }
};

// The variant of backward by one of forward.
template <std::size_t kIndex>
struct By {
  static const ForwardVariant& forward() { return cuda_forward_variants()[kIndex]; }

  static std::string declines(const BackwardProblem& problem, const Machine& machine) {
    Problem rows = problem.rows;
    rows.m = 0;  // what is left to ask is not about its arrays
    std::string why = forward().declines(rows, machine);
    const auto look = [&](bool wanted, const Problem& product, Derived own) {
      // s will be where any array may begin.
      if (why.empty() && wanted)
        why = forward().declines(with_slopes(product, own, rows.n, nullptr), machine);
    };
    look(problem.wants_a, problem.to_a, Derived::a);
    look(problem.wants_b, problem.to_b, Derived::b);
    return why;
  }
  static Plan choose(const BackwardProblem& problem, const Machine& machine) {
    const Plan a = forward().choose(problem.wants_a ? problem.to_a : problem.to_b, machine);
    const Plan b = forward().choose(problem.wants_b ? problem.to_b : problem.to_a, machine);
    Plan plan = a;
    for (std::size_t i = 0; i < forward().knobs.size(); ++i) plan[i] = std::min(a[i], b[i]);
    if (splits(forward())) {
      plan[kSplitsOfA] = a[kSplitsOfA];
      plan[kSplitsOfB] = b[kSplitsOfA];
    }
    return plan;
  }
  static std::size_t workspace(const BackwardProblem& problem, const Plan& plan,
                               const Machine& machine) {
    return Room(problem, forward(), plan, machine).bytes;
  }
  static void run(const BackwardArgs&, const BackwardProblem& problem, const Plan& plan,
                  const Execution& execution) {
    const Room room(problem, forward(), plan, execution.machine, execution.workspace);
    const Problem& rows = problem.rows;
    if (room.slopes != nullptr)
      with_type(rows, [&]<class T>(T) {
        const WriteSlopes<T> write{Slopes<T>(rows), reinterpret_cast<T*>(room.slopes)};
        launch(write, blocks_for(write.slopes.rows() * rows.n), 256, execution);
      });
    Execution of_products = execution;
    of_products.workspace = room.products;
    const auto multiply = [&](const Problem& product, Derived own, const Plan& by) {
      forward().run({}, with_slopes(product, own, rows.n, room.slopes), by, of_products);
    };
    if (problem.wants_a) multiply(problem.to_a, Derived::a, plan);
    if (problem.wants_b) multiply(problem.to_b, Derived::b, plan_of_b(forward(), plan));
    if (rows.n == 0 || !problem.wants_rows()) return;
    // The type of sums is all that matters, and there may be no rows.
    if (rows.real() == DType::f64)
      sum_columns<double>(rows, room.sums, execution);
    else
      sum_columns<float>(rows, room.sums, execution);
  }
};

constexpr Knob kSplitKnobsOfBoth[] = {
    kTileKnobs[0],
    {"splits_a", kSplits, "blocks that share the panels of a run of k, of grad_a's product"},
    {"splits_b", kSplits, "the same of grad_b's"}};

std::span<const Knob> knobs_of(const ForwardVariant& forward) {
  return splits(forward) ? kSplitKnobsOfBoth : forward.knobs;
}

template <std::size_t... kIndices>
std::array<BackwardVariant, sizeof...(kIndices)> all(std::index_sequence<kIndices...>) {
  const auto forward = cuda_forward_variants();
  return {BackwardVariant{.name = forward[kIndices].name,
                          .knobs = knobs_of(forward[kIndices]),
                          .bits = forward[kIndices].bits,
                          .declines = By<kIndices>::declines,
                          .choose = By<kIndices>::choose,
                          .workspace = By<kIndices>::workspace,
                          .run = By<kIndices>::run}...};
}

}  // namespace

std::span<const BackwardVariant> cuda_backward_variants() {
  static const auto kVariants = all(std::make_index_sequence<6>());
  return kVariants;
}

}  // namespace isobit::matmul
