// SPDX-License-Identifier: Apache-2.0
// The CPU variants of group_norm and batch_norm: vectors, and the specification.
#include <algorithm>

#include "isobit/core/pieces.h"
#include "isobit/norms/cpu_summed_rows.h"
#include "isobit/ops/channel_norm/cpu_way.h"

namespace isobit::channel_norm {
namespace {

using norms::in_steps;
using norms::OneUnit;

// What a call keeps beside its arguments; without memory it only counts.
template <class Real>
struct Workspace {
  std::int64_t of_channel;  // weights, which are alike
  Real *weight, *bias, *centres;
  Statistics<Real>* statistics;
  Moments<Real>*means, *waiting;
  std::byte* copies;
  std::size_t bytes;

  Workspace(const Given& p, const Way& way, std::int64_t sums, std::byte* memory)
      : of_channel(way.spread ? p.extent : 1) {
    Pieces pieces(memory);
    weight = take<Real>(pieces, p.channels * of_channel);
    bias = take<Real>(pieces, p.channels * of_channel);
    centres = take<Real>(pieces, p.rows());
    statistics = take<Statistics<Real>>(pieces, p.rows());
    means = take<Moments<Real>>(pieces, p.rows());
    waiting = take<Moments<Real>>(pieces, sums);
    copies = pieces.take(way.staging.bytes() + way.turning.bytes());  // one of both is 0
    bytes = pieces.taken();
  }

  Known known(bool streams) const { return {weight, bias, statistics, means, streams}; }

 private:
  template <class Element>
  static Element* take(Pieces& pieces, std::int64_t count) {
    return reinterpret_cast<Element*>(
        pieces.take(count * static_cast<std::int64_t>(sizeof(Element))));
  }
};

template <class Call>
auto with_type(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::f16:  return call(f16{}, float{});
    case DType::bf16: return call(bf16{}, float{});
    case DType::f64:  return call(double{}, double{});
    default:          return call(float{}, float{});
  }
}

std::int64_t waiting(const ForwardProblem& p, const Way& way, const Machine& machine) {
  return way.of_rows(p, machine).waiting();
}
std::int64_t waiting(const BackwardProblem& p, const Way& way, const Machine& machine) {
  return std::max(way.of_rows(p, machine).waiting(), way.of_channels(p, machine).waiting());
}

template <class Problem, bool kSpecified>
std::size_t workspace(const Problem& p, const Plan&, const Machine& machine) {
  const Way way(p, kSpecified, machine);
  const std::int64_t sums = waiting(p, way, machine);
  return p.real() == DType::f64 ? Workspace<double>(p, way, sums, nullptr).bytes
                                : Workspace<float>(p, way, sums, nullptr).bytes;
}

// Numbers of any type as what is computed in; `neutral` where there are none.
template <class Real>
void widen_all(const std::byte* from, DType dtype, std::int64_t count, Real neutral, Real* to) {
  if (from == nullptr) return std::fill(to, to + count, neutral), void();
  with_type(dtype, [&]<class T>(T, auto) {
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<Real>(widen<std::conditional_t<sizeof(T) == 8, double, float>>(
          reinterpret_cast<const T*>(from)[i]));
  });
}

// One for each channel becomes one for each of its elements.
template <class Real>
void spread(Real* numbers, std::int64_t channels, std::int64_t extent) {
  for (std::int64_t c = channels - 1; c >= 0 && extent > 1; --c) {
    const Real number = numbers[c];
    std::fill_n(numbers + c * extent, extent, number);
  }
}

template <class Real>
void put(std::byte* to, std::int64_t i, Real value) {
  if (to != nullptr) reinterpret_cast<Real*>(to)[i] = narrow<Real>(value);
}
void put_as(DType dtype, std::byte* to, std::int64_t i, auto value) {
  if (to == nullptr) return;
  with_type(dtype, [&]<class T, class Real>(T, Real) {
    reinterpret_cast<T*>(to)[i] =
        narrow<T>(static_cast<std::conditional_t<sizeof(T) == 8, double, decltype(value)>>(value));
  });
}
template <class Real>
Real at(const std::byte* numbers, std::int64_t i) {
  return reinterpret_cast<const Real*>(numbers)[i];
}

// Both rounds over the rows of x: done(row, deviations) when a row's statistics are known.
template <class T, class Real, class Units, class Done>
void find_statistics(const Given& p, const Kernels& kernels, const Workspace<Real>& memory,
                     const Units& units, std::int64_t count, const Done& done) {
  units.sum([&](const Part& part, Moments<Real>* sums) { kernels.moments(p, part, nullptr, sums); },
            [&](const Part& part, const Moments<Real>* sums) {
              for (std::int64_t i = 0; i < part.rows; ++i)
                memory.centres[part.first + i] = sums[i].sum / static_cast<Real>(count);
            });
  units.sum(
      [&](const Part& part, Moments<Real>* sums) {
        kernels.moments(p, part, memory.centres + part.first, sums);
      },
      [&](const Part& part, const Moments<Real>* sums) {
        for (std::int64_t i = 0; i < part.rows; ++i) {
          const std::int64_t row = part.first + i;
          memory.statistics[row] =
              Formula::statistics(SummedRow<T, Real>{p, row}, memory.centres[row], sums[i], count,
                                  static_cast<Real>(p.eps));
          done(row, sums[i]);
        }
      });
}

// The statistics of all rows, of what forward has found of them.
template <class T, class Real, class Units>
void take_moments(const BackwardProblem& p, const Workspace<Real>& memory, const Units& units,
                  std::int64_t count) {
  units.for_rows([&](const Part& part) {
    for (std::int64_t row = part.first; row < part.first + part.rows; ++row) {
      const auto number = [&](int i) { return at<Real>(p.moments.data, p.moments.place(row, i)); };
      memory.statistics[row] =
          Formula::statistics(SummedRow<T, Real>{p, row}, number(0), {number(1), number(2)}, count,
                              static_cast<Real>(p.eps));
    }
  });
}

// Calls sum(problem, units) and write(problem, units) for all rows: with problems that have them in
// their place or copied.
template <class Real, class Problem, class Sum, class Write>
void in_steps(const Problem& p, const Way& way, const Cut& cut, const Workspace<Real>& memory,
              const Execution& execution, const Sum& sum, const Write& write) {
  const auto one = [&](const Problem& summed, const Problem& written, std::int64_t unit) {
    const OneUnit<Real> steps(cut, unit);
    sum(summed, steps);
    if (!way.wide) write(written, steps);
  };
  if (way.staging)
    way.staging.for_each_row(
        p, !way.wide, execution, memory.copies,
        [&](const Problem& staged, std::int64_t row) { one(staged, staged, row); });
  else if (way.turning && p.groups == 0)
    way.turning.for_each_unit(
        p, cut, execution, memory.copies,
        [&](const Problem& turned, std::int64_t unit) { one(turned, p, unit); });
  else
    in_steps<Real>(cut, memory.waiting, execution, [&](const auto& units) {
      sum(p, units);
      if (!way.wide) write(p, units);
    });
  if (way.wide)
    in_steps<Real>(way.of_written(p, execution.machine), nullptr, execution,
                   [&](const auto& units) { write(p, units); });
}

template <class Real>
void take_running_statistics(const Given& p, const Workspace<Real>& memory) {
  for (std::int64_t row = 0; row < p.rows(); ++row)
    memory.statistics[row] =
        running_statistics(at<Real>(p.running_mean, row), at<Real>(p.running_var, row), p.eps);
}

template <class T, class Real>
void compute(const ForwardProblem& given, const Way& way, const Execution& execution) {
  const ForwardProblem p = way.spread ? joined(given) : given;
  const Machine& machine = execution.machine;
  const Cut cut = way.of_rows(p, machine);
  const Workspace<Real> memory(given, way, waiting(p, way, machine), execution.workspace);
  const Kernels kernels = way.kernels_of_rows<T, Real>(p, machine.isa);
  const Known known = memory.known(way.streams(p, 2, machine));
  const auto put_statistics = [&](std::int64_t row) {
    put(p.mean.data, p.mean.place(row), memory.statistics[row].saved_mean);
    put(p.rstd.data, p.rstd.place(row), memory.statistics[row].saved_rstd);
  };
  {
    const simd::FloatMode mode;
    widen_all(p.weight, p.weight_dtype, given.channels, Real(1), memory.weight);
    widen_all(p.bias, p.weight_dtype, given.channels, Real(-0.0), memory.bias);
    spread(memory.weight, given.channels, memory.of_channel);
    spread(memory.bias, given.channels, memory.of_channel);
    if (!p.training) {
      take_running_statistics(p, memory);
      for (std::int64_t row = 0; row < p.rows(); ++row) put_statistics(row);
    }
  }
  const auto done = [&](std::int64_t row, const Moments<Real>& deviations) {
    const Statistics<Real>& statistics = memory.statistics[row];
    put_statistics(row);
    const Real numbers[kMoments] = {memory.centres[row], deviations.sum, deviations.squares};
    for (int i = 0; i < kMoments; ++i) put(p.moments.data, p.moments.place(row, i), numbers[i]);
    if (p.next_mean != nullptr) {
      const Real running = at<Real>(p.running_mean, row);
      put(p.next_mean, row,
          cut.count == 0 ? running : moved(running, statistics.saved_mean, p.momentum));
    }
    if (p.next_var != nullptr) {
      const Real running = at<Real>(p.running_var, row);
      const SummedRow<T, Real> summed{p, row};
      put(p.next_var, row,
          cut.count == 0
              ? running
              : moved(running,
                      unbiased(variance_of(summed, statistics, deviations, cut.count), cut.count),
                      p.momentum));
    }
  };
  const Writers writers = way.writers_of_rows<T, Real>(p, machine.isa);
  in_steps(
      p, way, cut, memory, execution,
      [&](const ForwardProblem& of, const auto& units) {
        if (p.training) find_statistics<T>(of, kernels, memory, units, cut.count, done);
      },
      [&](const ForwardProblem& to, const auto& units) {
        units.map([&](const Part& part) { writers.normalise(to, known, part); });
      });
}

// The gradients of weight and bias, which are sums over all that share them. In batch_norm these
// sums are those that the gradient of x needs.
template <class Real, class Units, class Also>
void add_channels(const BackwardProblem& p, const Kernels& kernels, const Known& known,
                  const Units& units, const Also& also) {
  units.sum([&](const Part& part,
                Moments<Real>* sums) { kernels.channel_products(p, known, part, sums); },
            [&](const Part& part, const Moments<Real>* sums) {
              for (std::int64_t i = 0; i < part.rows; ++i) {
                put_as(p.weight_dtype, p.grad_bias, part.first + i, sums[i].sum);
                put_as(p.weight_dtype, p.grad_weight, part.first + i, sums[i].squares);
                also(part.first + i, sums[i]);
              }
            });
}

template <class T, class Real>
void compute(const BackwardProblem& given, const Way& way, const Execution& execution) {
  const Machine& machine = execution.machine;
  const BackwardProblem p = way.spread ? joined(given) : given;
  const Workspace<Real> memory(given, way, waiting(given, way, machine), execution.workspace);
  const Kernels kernels = way.kernels_of_rows<T, Real>(p, machine.isa);
  const Known known = memory.known(way.streams(p, 3, machine));
  {
    const simd::FloatMode mode;
    widen_all(p.weight, p.weight_dtype, given.channels, Real(1), memory.weight);
    spread(memory.weight, given.channels, memory.of_channel);
    if (!p.training) take_running_statistics(p, memory);
  }
  const Cut cut = way.of_rows(p, machine), of_channels = way.of_channels(given, machine);
  const auto n = static_cast<Real>(cut.count);
  const auto sum = [&](const BackwardProblem& of, const auto& units) {
    if (p.training && p.moments)
      take_moments<T>(of, memory, units, cut.count);
    else if (p.training)
      find_statistics<T>(of, kernels, memory, units, cut.count,
                         [](std::int64_t, const Moments<Real>&) {});
    const bool needs_means = p.grad_x && p.training;
    if (p.groups == 0) {
      if (needs_means || p.wants_sums())
        add_channels<Real>(
            of, kernels, known, units, [&](std::int64_t row, const Moments<Real>& sums) {
              const Real weight = memory.weight[row];
              memory.means[row] = {weight * (sums.sum / n), weight * (sums.squares / n)};
            });
    } else if (needs_means) {
      units.sum([&](const Part& part,
                    Moments<Real>* sums) { kernels.row_products(of, known, part, sums); },
                [&](const Part& part, const Moments<Real>* sums) {
                  for (std::int64_t i = 0; i < part.rows; ++i)
                    memory.means[part.first + i] = {sums[i].sum / n, sums[i].squares / n};
                });
    }
  };
  const Writers writers = way.writers_of_rows<T, Real>(p, machine.isa);
  const auto write = [&](const BackwardProblem& to, const auto& units) {
    if (p.grad_x) units.map([&](const Part& part) { writers.gradient(to, known, part); });
  };
  const auto add = [&](const BackwardProblem& of, const auto& units) {
    add_channels<Real>(of, way.kernels_of_channels<T, Real>(of, machine.isa), known, units,
                       [](std::int64_t, const Moments<Real>&) {});
  };
  if (way.takes_groups(p, cut, of_channels)) {
    const std::int64_t of_group = given.channels / given.groups;
    simd::in_parts(execution, std::min(cut.tasks, p.groups), p.groups, 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t group = begin; group < end; ++group) {
                       for (std::int64_t image = 0; image < p.batch; ++image) {
                         const OneUnit<Real> unit(cut, image * p.groups + group);
                         sum(p, unit);
                         write(p, unit);
                       }
                       for (std::int64_t i = 0; i < of_group; ++i)
                         add(given, OneUnit<Real>(of_channels, group * of_group + i));
                     }
                   });
    return;
  }
  in_steps(p, way, cut, memory, execution, sum, write);
  if (p.groups == 0 || !p.wants_sums()) return;
  if (way.turning)
    way.turning.for_each_unit(given, of_channels, execution, memory.copies,
                              [&](const BackwardProblem& turned, std::int64_t unit) {
                                add(turned, OneUnit<Real>(of_channels, unit));
                              });
  else
    in_steps<Real>(of_channels, memory.waiting, execution,
                   [&](const auto& units) { add(given, units); });
}

template <class Args, class Problem, bool kSpecified>
void run_in(const Args&, const Problem& p, const Plan&, const Execution& execution) {
  with_type(p.dtype, [&]<class T, class Real>(T, Real) {
    compute<T, Real>(p, Way(p, kSpecified, execution.machine), execution);
  });
}

template <class Args, class Problem>
constexpr Variant<Args, Problem> kVariants[] = {
    {.name = "simd",
     .each_isa = true,
     .workspace = workspace<Problem, false>,
     .run = run_in<Args, Problem, false>},
    {.name = "scalar", .workspace = workspace<Problem, true>, .run = run_in<Args, Problem, true>},
};

}  // namespace

template <class Args>
std::span<const ForwardVariant<Args>> cpu_forward_variants() {
  return kVariants<Args, ForwardProblem>;
}
template <class Args>
std::span<const BackwardVariant<Args>> cpu_backward_variants() {
  return kVariants<Args, BackwardProblem>;
}

template std::span<const ForwardVariant<GroupForwardArgs>> cpu_forward_variants();
template std::span<const BackwardVariant<GroupBackwardArgs>> cpu_backward_variants();
template std::span<const ForwardVariant<BatchForwardArgs>> cpu_forward_variants();
template std::span<const BackwardVariant<BatchBackwardArgs>> cpu_backward_variants();

}  // namespace isobit::channel_norm
