// SPDX-License-Identifier: Apache-2.0
// How rows that are summed are dealt to threads: whole ones, or, where there are few, pieces of
// them.
#pragma once

#include <algorithm>

#include "isobit/core/order.h"
#include "isobit/norms/statistics.h"
#include "isobit/simd/tasks.h"

namespace isobit::norms {

// So many rows at most are summed side by side, where their elements are neighbours in memory.
inline constexpr std::int64_t kMostAbreast = 64;

// Elements [begin, end) of each of `rows` rows from the first on: of neighbours, or one.
struct Part {
  std::int64_t first, rows, begin, end;
};

// What the pieces of a row have given, added as the row's sum has them.
template <class Real>
class AddedPieces {
 public:
  void push(const Moments<Real>& piece) {
    sum_.push(piece.sum);
    squares_.push(piece.squares);
  }
  Moments<Real> total() const { return {sum_.total(), squares_.total()}; }

 private:
  order::PairTree<Real> sum_, squares_;
};

// Rows of `count` elements, `abreast` of them at a time, in pieces of so many elements: 2^k blocks
// of the order, so that the sums of pieces stand in the tree of the row's sum. Of all rows
// `neighbours` at a time follow each other in memory, and no others are abreast.
struct Cut {
  std::int64_t rows, count, abreast, neighbours, piece, tasks;

  Cut(std::int64_t rows, std::int64_t count, std::int64_t abreast, std::int64_t neighbours,
      const Machine& machine, bool whole)
      : rows(rows),
        count(count),
        abreast(abreast),
        neighbours(std::max<std::int64_t>(1, neighbours)),
        piece(std::max<std::int64_t>(1, count)) {
    constexpr std::int64_t kLeast = 4 * order::kBlock;  // worth a task's turn
    const std::int64_t most_pieces = whole ? 1 : std::max<std::int64_t>(1, count / kLeast);
    tasks =
        simd::task_count(machine, rows * count, std::max<std::int64_t>(1, units()) * most_pieces);
    if (whole || tasks == 1 || units() >= 2 * tasks || units() == 0) return;
    piece = kLeast;
    while (units() * ((count + 2 * piece - 1) / (2 * piece)) >= 2 * tasks) piece *= 2;
    if (pieces() == 1) piece = count;
  }
  Cut(std::int64_t rows, std::int64_t count, std::int64_t abreast, const Machine& machine,
      bool whole)
      : Cut(rows, count, abreast, rows, machine, whole) {}

  // Of so many neighbours.
  std::int64_t units_of_neighbours() const { return (neighbours + abreast - 1) / abreast; }
  std::int64_t units() const { return rows / neighbours * units_of_neighbours(); }
  std::int64_t pieces() const { return std::max<std::int64_t>(1, (count + piece - 1) / piece); }
  bool whole() const { return pieces() == 1; }
  Part part(std::int64_t unit, std::int64_t index) const {
    const std::int64_t before = unit % units_of_neighbours() * abreast;
    return {unit / units_of_neighbours() * neighbours + before,
            std::min(abreast, neighbours - before), index * piece,
            std::min(count, (index + 1) * piece)};
  }
  // Sums that wait for those of the other pieces.
  std::int64_t waiting() const { return whole() ? 0 : units() * pieces() * abreast; }
};

// Steps of one unit, by the task that has it.
template <class Real>
class OneUnit {
 public:
  OneUnit(const Cut& cut, std::int64_t unit) : part_(cut.part(unit, 0)) {}

  // of(part, sums) computes the sums of a part; done(part, sums) gets those of whole rows,
  // which Joined makes of those of their pieces.
  template <class Joined = AddedPieces<Real>, class Of, class Done>
  void sum(const Of& of, const Done& done) const {
    Moments<Real> sums[kMostAbreast];
    of(part_, sums);
    done(part_, sums);
  }
  template <class Body>
  void map(const Body& body) const {
    body(part_);
  }
  // body(part) gets whole rows.
  template <class Body>
  void for_rows(const Body& body) const {
    body(part_);
  }

 private:
  Part part_;
};

// The same steps, each of all units and their pieces.
template <class Real>
class AllUnits {
 public:
  AllUnits(const Cut& cut, Moments<Real>* waiting, const Execution& execution)
      : cut_(cut), waiting_(waiting), execution_(execution) {}

  template <class Joined = AddedPieces<Real>, class Of, class Done>
  void sum(const Of& of, const Done& done) const {
    for_each([&](std::int64_t unit, std::int64_t piece) {
      of(cut_.part(unit, piece), sums_of(unit, piece));
    });
    const simd::FloatMode mode;
    for (std::int64_t unit = 0; unit < cut_.units(); ++unit) {
      const Part part = cut_.part(unit, 0);
      Moments<Real> sums[kMostAbreast];
      for (std::int64_t row = 0; row < part.rows; ++row) {
        Joined joined;
        for (std::int64_t piece = 0; piece < cut_.pieces(); ++piece)
          joined.push(sums_of(unit, piece)[row]);
        sums[row] = joined.total();
      }
      done(part, sums);
    }
  }
  template <class Body>
  void map(const Body& body) const {
    for_each([&](std::int64_t unit, std::int64_t piece) { body(cut_.part(unit, piece)); });
  }
  template <class Body>
  void for_rows(const Body& body) const {
    const simd::FloatMode mode;
    for (std::int64_t unit = 0; unit < cut_.units(); ++unit) body(cut_.part(unit, 0));
  }

 private:
  template <class Body>
  void for_each(const Body& body) const {
    const std::int64_t pieces = cut_.pieces();
    simd::in_parts(execution_, cut_.tasks, cut_.units() * pieces, 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) body(i / pieces, i % pieces);
                   });
  }
  Moments<Real>* sums_of(std::int64_t unit, std::int64_t piece) const {
    return waiting_ + (unit * cut_.pieces() + piece) * cut_.abreast;
  }

  const Cut& cut_;
  Moments<Real>* waiting_;
  const Execution& execution_;
};

// Runs steps(OneUnit or AllUnits) for all rows.
template <class Real, class Steps>
void in_steps(const Cut& cut, Moments<Real>* waiting, const Execution& execution,
              const Steps& steps) {
  if (!cut.whole()) return steps(AllUnits<Real>(cut, waiting, execution));
  simd::in_parts(execution, std::max<std::int64_t>(1, std::min(cut.tasks, cut.units())),
                 cut.units(), 1, [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t unit = begin; unit < end; ++unit)
                     steps(OneUnit<Real>(cut, unit));
                 });
}

}  // namespace isobit::norms
