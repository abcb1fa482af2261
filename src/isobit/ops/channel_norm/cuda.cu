// SPDX-License-Identifier: Apache-2.0
// group_norm and batch_norm on GPUs: a warp or a block takes a row, for its statistics, its sums
// and what it writes; what it reads again is in the caches. Of group_norm's weights a launch of its
// own takes the sums, a row for each channel.
#include <algorithm>
#include <cstdint>
#include <string>

#include "isobit/core/pieces.h"
#include "isobit/dispatch/threads.h"
#include "isobit/norms/cuda_launch.h"
#include "isobit/norms/cuda_row.h"
#include "isobit/ops/channel_norm/cuda_elements.h"
#include "isobit/ops/channel_norm/formula.h"
#include "isobit/ops/channel_norm/problem.h"
#include "isobit/simt/simt.h"
#include "isobit/tile/row_group.h"
#include "isobit/tile/scalar.h"

namespace isobit::channel_norm {
namespace {

// What both passes have of their rows.
template <class TOf, class GroupOf>
struct Rows {
  using T = TOf;
  using Group = GroupOf;
  using Real = RealOf<T>;
  using Scalar = tile::Scalar<Real>;
  using Memory = typename Group::template Memory<Real>;
  using Source = Elements<const T>;
  using InMemory = norms::RowInMemory<Group, Real, Source>;
  using Normaliser = layernorm::NormaliseAny<Scalar>;
  static constexpr int kElements = kPiece<T>;

  Given given;
  Numbers<T> weight;

  explicit Rows(const Given& given)
      : given(given), weight{given.weight, 1, given.weight_dtype == given.dtype} {}

  ISOBIT_DEVICE std::int64_t rows() const { return given.rows(); }
  ISOBIT_EITHER int cols() const {
    return static_cast<int>(given.groups == 0 ? given.batch * given.extent
                                              : given.channels / given.groups * given.extent);
  }
  ISOBIT_DEVICE static Real at(const std::byte* numbers, std::int64_t i) {
    return simt::load(reinterpret_cast<const Real*>(numbers) + i);
  }
  ISOBIT_DEVICE Statistics<Real> running(std::int64_t index) const {
    return running_statistics(at(given.running_mean, index), at(given.running_var, index),
                              given.eps);
  }
};

template <class T, class Group>
struct ForwardRows : Rows<T, Group> {
  using Base = Rows<T, Group>;
  using Real = typename Base::Real;
  using Memory = typename Base::Memory;

  Images y;
  Numbers<T> bias;
  OfRows mean, rstd, moments;
  Real *next_mean, *next_var;
  double momentum;

  explicit ForwardRows(const ForwardProblem& p)
      : Base(p),
        y(p.y),
        bias{p.bias, Real(-0.0), p.weight_dtype == p.dtype},
        mean(p.mean),
        rstd(p.rstd),
        moments(p.moments),
        next_mean(reinterpret_cast<Real*>(p.next_mean)),
        next_var(reinterpret_cast<Real*>(p.next_var)),
        momentum(p.momentum) {}

  ISOBIT_DEVICE void row(std::int64_t index, const Memory& memory) const {
    const Given& given = this->given;
    const Row row = given.row(index);
    const int cols = this->cols();
    const typename Base::InMemory in_memory({given.x, row}, cols, memory);
    Statistics<Real> statistics;
    if (given.training) {
      const Real first = Formula::first_round(in_memory, cols);
      const Moments<Real> deviations = Formula::second_round(in_memory, first);
      statistics =
          Formula::statistics(in_memory, first, deviations, cols, static_cast<Real>(given.eps));
      // Every thread of the group takes part in its sums.
      const Real variance =
          next_var == nullptr ? Real(0) : variance_of(in_memory, statistics, deviations, cols);
      if (Group::leads()) {
        move(index, statistics.saved_mean, variance, cols);
        put(moments, index, first, 0);
        put(moments, index, deviations.sum, 1);
        put(moments, index, deviations.squares, 2);
      }
    } else {
      statistics = this->running(index);
    }
    if (Group::leads()) {
      put(mean, index, statistics.saved_mean);
      put(rstd, index, statistics.saved_rstd);
    }
    const typename Base::Normaliser normalise(statistics);
    const Elements<T> to(y, row);
    in_memory.for_each_piece([&](const Place& place, const Real(&piece)[Base::kElements]) {
      Real result[Base::kElements] = {};
      for_each_segment(
          place, static_cast<int>(row.extent), Base::kElements, [&](int i, int segment) {
            const std::int64_t channel = row.channel_of(segment);
            result[i] = std::fma(normalise(piece[i]), this->weight.at(channel), bias.at(channel));
          });
      to.store(place, result);
    });
  }

 private:
  ISOBIT_DEVICE void move(std::int64_t index, Real current, Real variance, int cols) const {
    if (next_mean != nullptr) {
      const Real before = this->at(this->given.running_mean, index);
      next_mean[index] = narrow<Real>(cols == 0 ? before : moved(before, current, momentum));
    }
    if (next_var != nullptr) {
      const Real before = this->at(this->given.running_var, index);
      next_var[index] = narrow<Real>(
          cols == 0 ? before : moved(before, unbiased(variance, std::int64_t{cols}), momentum));
    }
  }
};

// A channel's gradients of weight and bias.
template <class T>
struct ChannelGradients {
  using Real = RealOf<T>;
  std::byte *weight, *bias;
  bool like_x;

  explicit ChannelGradients(const BackwardProblem& p)
      : weight(p.grad_weight), bias(p.grad_bias), like_x(p.weight_dtype == p.dtype) {}

  ISOBIT_DEVICE void put(std::int64_t channel, Real sum, Real dot) const {
    put_one(bias, channel, sum);
    put_one(weight, channel, dot);
  }

 private:
  ISOBIT_DEVICE void put_one(std::byte* to, std::int64_t channel, Real value) const {
    if (to == nullptr) return;
    if (like_x)
      reinterpret_cast<T*>(to)[channel] = simt::Conversions::narrow<T>(value);
    else
      reinterpret_cast<float*>(to)[channel] = simt::Conversions::narrow<float>(value);
  }
};

template <class T, class Group>
struct BackwardRows : Rows<T, Group> {
  using Base = Rows<T, Group>;
  using Real = typename Base::Real;
  using Memory = typename Base::Memory;

  Images grad_y, grad_x;
  OfRows moments;
  ChannelGradients<T> sums;
  Statistics<Real>* statistics;  // of all rows, for the sums that a later launch takes; or null
  bool wants_sums;

  BackwardRows(const BackwardProblem& p, Statistics<Real>* statistics)
      : Base(p),
        grad_y(p.grad_y),
        grad_x(p.grad_x),
        moments(p.moments),
        sums(p),
        statistics(statistics),
        wants_sums(p.wants_sums()) {}

  ISOBIT_DEVICE void row(std::int64_t index, const Memory& memory) const {
    const Given& given = this->given;
    const Row row = given.row(index);
    const int cols = this->cols();
    const typename Base::InMemory in_memory({given.x, row}, cols, memory);
    const Statistics<Real> known =
        given.training ? statistics_of(in_memory, index, cols) : this->running(index);
    if (statistics != nullptr && Group::leads()) statistics[index] = known;
    const typename Base::Normaliser normalise(known);
    const Elements<const T> gradients(grad_y, row);
    const bool over_images = given.groups == 0;
    Real mean_g = 0, mean_gx = 0;
    if ((grad_x && given.training) || (over_images && wants_sums)) {
      const auto of = in_memory.sum_and_dot([&](const Place& place, bool, const auto& piece,
                                                auto& g, auto& xhat) {
        gradients.load(place, g);
        if (!over_images)
          for_each_segment(
              place, static_cast<int>(row.extent), Base::kElements,
              [&](int i, int segment) { g[i] = g[i] * this->weight.at(row.channel_of(segment)); });
#pragma unroll
        for (int i = 0; i < Base::kElements; ++i)
          xhat[i] = i < place.left ? normalise(piece[i]) : Real(0);
      });
      const Real n = static_cast<Real>(cols);
      mean_g = of.sum / n;
      mean_gx = of.dot / n;
      if (over_images) {
        if (Group::leads()) sums.put(index, of.sum, of.dot);
        mean_g = this->weight.at(index) * mean_g;
        mean_gx = this->weight.at(index) * mean_gx;
      }
    }
    if (!grad_x) return;
    const Elements<T> to(grad_x, row);
    in_memory.for_each_piece([&](const Place& place, const Real(&piece)[Base::kElements]) {
      Real of_y[Base::kElements], result[Base::kElements] = {};
      gradients.load(place, of_y);
      for_each_segment(
          place, static_cast<int>(row.extent), Base::kElements, [&](int i, int segment) {
            const Real g = of_y[i] * this->weight.at(row.channel_of(segment));
            result[i] = given.training ? normalise.gradient(g, normalise(piece[i]), mean_g, mean_gx)
                                       : known.rstd * g;
          });
      to.store(place, result);
    });
  }

 private:
  // Of the moments that forward gave, or of both rounds over x.
  ISOBIT_DEVICE Statistics<Real> statistics_of(const typename Base::InMemory& row,
                                               std::int64_t index, int cols) const {
    Real first;
    Moments<Real> deviations;
    if (moments) {
      const auto number = [&](int i) { return this->at(moments.data, moments.place(index, i)); };
      first = number(0);
      deviations = {number(1), number(2)};
    } else {
      first = Formula::first_round(row, cols);
      deviations = Formula::second_round(row, first);
    }
    return Formula::statistics(row, first, deviations, cols, static_cast<Real>(this->given.eps));
  }
};

// The sums over each channel, of rows that groups of channels have.
template <class T, class Group>
struct ChannelRows : Rows<T, Group> {
  using Base = Rows<T, Group>;
  using Real = typename Base::Real;
  using Memory = typename Base::Memory;

  Images grad_y;
  ChannelGradients<T> sums;
  const Statistics<Real>* statistics;

  ChannelRows(const BackwardProblem& p, const Statistics<Real>* statistics)
      : Base(p), grad_y(p.grad_y), sums(p), statistics(statistics) {}

  ISOBIT_DEVICE std::int64_t rows() const { return this->given.channels; }
  ISOBIT_EITHER int cols() const {
    return static_cast<int>(this->given.batch * this->given.extent);
  }

  ISOBIT_DEVICE void row(std::int64_t channel, const Memory& memory) const {
    const Row row = this->given.of_channel(channel);
    const typename Base::InMemory in_memory({this->given.x, row}, cols(), memory);
    const Elements<const T> gradients(grad_y, row);
    const auto of = in_memory.sum_and_dot([&](const Place& place, bool, const auto& piece, auto& g,
                                              auto& xhat) {
      gradients.load(place, g);
#pragma unroll
      for (int i = 0; i < Base::kElements; ++i) xhat[i] = 0;
      for_each_segment(place, static_cast<int>(row.extent), Base::kElements, [&](int i, int image) {
        const typename Base::Normaliser normalise(statistics[this->given.row_of(image, channel)]);
        xhat[i] = normalise(piece[i]);
      });
    });
    if (Group::leads()) sums.put(channel, of.sum, of.dot);
  }
};

constexpr norms::MostThreads kMostThreads = {512, 256};

template <class Of>
struct Kernel {
  using Group = typename Of::Group;
  static constexpr int kMostThreads = channel_norm::kMostThreads.of<typename Of::Real>();

  Of rows;
  int threads;

  template <class Carver>
  ISOBIT_EITHER typename Of::Memory memory(Carver& carver) const {
    return Group::template memory<typename Of::Real>(carver, threads,
                                                     norms::blocks_of(rows.cols()));
  }
  ISOBIT_DEVICE void operator()(const typename Of::Memory& memory) const {
    for (std::int64_t row = Group::group(); row < rows.rows(); row += Group::groups())
      rows.row(row, memory);
  }
};

constexpr int kTurns[] = {0, 1, 2, 4, 8};
constexpr Knob kKnobs[] = {
    threads_knob(kMostThreads.with_floats,
                 "threads per block; of f64 at most 256, for which there are registers"),
    {"blocks", kTurns, "blocks per multiprocessor, which take rows in turn; 0: one turn per block"},
};

template <class Of>
void launch(const Of& rows, std::int64_t count, const Plan& plan, const Execution& execution) {
  if (count == 0) return;
  const int threads = std::min(plan[0], Kernel<Of>::kMostThreads);
  simt::launch(static_cast<simt::Stream>(execution.stream),
               {.blocks = norms::blocks_for(count, Of::Group::groups_of_block(threads), 1, plan[1],
                                            execution.machine),
                .threads = threads},
               Kernel<Of>{rows, threads});
}

// The statistics that rows leave to the sums over channels.
bool keeps_statistics(const BackwardProblem& p) { return p.groups != 0 && p.wants_sums(); }

std::size_t workspace(const BackwardProblem& p, const Plan&, const Machine&) {
  if (!keeps_statistics(p)) return 0;
  return p.rows() *
         (p.real() == DType::f64 ? sizeof(Statistics<double>) : sizeof(Statistics<float>));
}
std::size_t workspace(const ForwardProblem&, const Plan&, const Machine&) { return 0; }

template <class Group>
void run_in(const ForwardProblem& p, const Plan& plan, const Execution& execution) {
  norms::with_type(p.dtype, [&]<class T>(Type<T>) {
    launch(ForwardRows<T, Group>(p), p.rows(), plan, execution);
  });
}
template <class Group>
void run_in(const BackwardProblem& p, const Plan& plan, const Execution& execution) {
  norms::with_type(p.dtype, [&]<class T>(Type<T>) {
    auto* statistics = keeps_statistics(p)
                           ? reinterpret_cast<Statistics<RealOf<T>>*>(execution.workspace)
                           : nullptr;
    launch(BackwardRows<T, Group>(p, statistics), p.rows(), plan, execution);
    if (keeps_statistics(p))
      launch(ChannelRows<T, Group>(p, statistics), p.channels, plan, execution);
  });
}

// The longest row that is summed.
std::int64_t longest(const Given& p, bool channels) {
  const std::int64_t of_channel = p.batch * p.extent;
  if (p.groups == 0) return of_channel;
  const std::int64_t of_group = p.channels / p.groups * p.extent;
  return channels ? std::max(of_channel, of_group) : of_group;
}
std::int64_t longest(const ForwardProblem& p) { return longest(p, false); }
std::int64_t longest(const BackwardProblem& p) { return longest(p, p.wants_sums()); }

template <class Problem>
std::string too_wide_for_a_warp(const Problem& p, const Machine&) {
  return norms::wider_than(1 << 30, longest(p), "a count of 32 bits");
}
template <class Problem>
std::string too_wide_for_a_block(const Problem& p, const Machine& machine) {
  return norms::wider_than_streams(longest(p), p.dtype, machine);
}

template <class Args, class Problem>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "row_per_warp",
     .knobs = kKnobs,
     .declines = too_wide_for_a_warp<Problem>,
     // And what no block can hold the sums of.
     .suits =
         [](const Problem& p, const Machine& machine) {
           return longest(p) <= 1024 || !too_wide_for_a_block(p, machine).empty();
         },
     .choose = [](const Problem&, const Machine&) -> Plan { return {128, 0}; },
     .workspace = workspace,
     .run =
         [](const Args&, const Problem& p, const Plan& plan, const Execution& execution) {
           run_in<tile::Lanes<simt::kWarpThreads>>(p, plan, execution);
         }},
    {.name = "row_per_block",
     .knobs = kKnobs,
     .declines = too_wide_for_a_block<Problem>,
     .choose = [](const Problem&, const Machine&) -> Plan { return {256, 0}; },
     .workspace = workspace,
     .run = [](const Args&, const Problem& p, const Plan& plan,
               const Execution& execution) { run_in<tile::BlockOfWarps>(p, plan, execution); }},
};

}  // namespace

template <class Args>
std::span<const ForwardVariant<Args>> cuda_forward_variants() {
  return kVariants<Args, ForwardProblem>;
}
template <class Args>
std::span<const BackwardVariant<Args>> cuda_backward_variants() {
  return kVariants<Args, BackwardProblem>;
}

template std::span<const ForwardVariant<GroupForwardArgs>> cuda_forward_variants();
template std::span<const BackwardVariant<GroupBackwardArgs>> cuda_backward_variants();
template std::span<const ForwardVariant<BatchForwardArgs>> cuda_forward_variants();
template std::span<const BackwardVariant<BatchBackwardArgs>> cuda_backward_variants();

}  // namespace isobit::channel_norm
