// SPDX-License-Identifier: Apache-2.0
// The CPU variants of reduce: vectors along rows or across rows side by side, and the
// specification.
#include <algorithm>

#include "isobit/core/pieces.h"
#include "isobit/ops/reduce/cpu_specified.h"

namespace isobit::reduce {
namespace {

using norms::Cut;

// How a call is computed.
struct Way {
  bool specified, side_by_side;

  Way(const Problem& p, bool specified)
      : specified(specified), side_by_side(!specified && p.side_by_side) {}

  Cut cut(const Problem& p, const Machine& machine) const {
    if (!side_by_side) return {p.rows, p.cols, 1, machine, specified};
    return {p.rows, p.cols, kMostAbreast, p.kept.innermost().extent, machine, false};
  }
  template <class T, class Real>
  Kernels kernels(const Problem& p, const Machine& machine) const {
    if (specified) return specified::kKernels<T, Real>;
    if (side_by_side) return abreast_for(p.dtype, machine.isa);
    const std::int64_t bytes = p.rows * p.cols * size_of(p.dtype);
    return along_for(p.dtype, machine.leaves_second_caches(bytes), machine.isa);
  }

 private:
  static Kernels along_for(DType dtype, bool fetches, Isa isa) {
    ISOBIT_RETURN_FOR_ISA(isa, kernels_along(dtype, fetches));
  }
  static Kernels abreast_for(DType dtype, Isa isa) {
    ISOBIT_RETURN_FOR_ISA(isa, kernels_abreast(dtype));
  }
};

// How many rounds there are over x before its gradient.
int rounds_of(Kind kind) {
  switch (kind) {
    case Kind::var:
    case Kind::std:
    case Kind::largest:
    case Kind::smallest:
    case Kind::max:
    case Kind::min:      return 2;
    case Kind::l2:       return 1;
    default:             return 0;
  }
}

// What a call keeps beside its arguments; without memory it only counts.
template <class Real>
struct Workspace {
  Real* centres;  // of the second round, one for each row
  Slope<Real>* slopes;
  Moments<Real>* waiting;
  std::size_t bytes;

  Workspace(const Problem& p, const Cut& cut, bool backward, std::byte* memory) {
    Pieces pieces(memory);
    const bool twice = rounds_of(p.kind) == 2;
    centres = take<Real>(pieces, twice ? p.rows : 0);
    slopes = take<Slope<Real>>(pieces, backward && rounds_of(p.kind) > 0 ? p.rows : 0);
    waiting = take<Moments<Real>>(pieces, cut.waiting());
    bytes = pieces.taken();
  }

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

template <bool kSpecified, bool kBackward>
std::size_t workspace(const Problem& p, const Plan&, const Machine& machine) {
  const Cut cut = Way(p, kSpecified).cut(p, machine);
  return p.real() == DType::f64 ? Workspace<double>(p, cut, kBackward, nullptr).bytes
                                : Workspace<float>(p, cut, kBackward, nullptr).bytes;
}

// Elements of y or its gradient, which has x's type or f32.
template <class T, class Real>
void put(const Problem& p, std::int64_t row, Real value) {
  const std::int64_t at = Walk(p.kept, row).y;
  if (p.y_dtype == p.dtype)
    reinterpret_cast<T*>(p.y)[at] = narrow<T>(value);
  else
    reinterpret_cast<Real*>(p.y)[at] = narrow<Real>(value);
}
template <class T, class Real>
Real get(const Problem& p, std::int64_t row) {
  const std::int64_t at = Walk(p.kept, row).y;
  if (p.y_dtype == p.dtype) return widen<Real>(reinterpret_cast<const T*>(p.y)[at]);
  return reinterpret_cast<const Real*>(p.y)[at];
}

// All rounds over x: done(row, first, second, of_second) gets the sums of the first round or, where
// there are two, the number between them and the sums of the second.
template <class Real, class Units, class Done>
void in_rounds(const Problem& p, const Measure<Real>& measure, const Kernels& kernels,
               Real* centres, const Units& units, bool twice, const Done& done) {
  const auto first = [&](const Part& part, Moments<Real>* sums) {
    kernels.moments(p, part, measure.first_round(), nullptr, sums);
  };
  const auto taken = [&](const Part& part, const Moments<Real>* sums) {
    for (std::int64_t i = 0; i < part.rows; ++i) {
      if (!twice)
        done(part.first + i, sums[i], Real(0), Moments<Real>{});
      else if (measure.centred())
        centres[part.first + i] = sums[i].sum / measure.n;
      else
        centres[part.first + i] = measure.extreme_of(sums[i]);
    }
  };
  if (measure.bound())
    units.template sum<ExtremePieces<Real, true>>(first, taken);
  else if (measure.extreme())
    units.template sum<ExtremePieces<Real, false>>(first, taken);
  else
    units.sum(first, taken);
  if (!twice) return;
  units.sum(
      [&](const Part& part, Moments<Real>* sums) {
        kernels.moments(p, part, measure.second_round(), centres + part.first, sums);
      },
      [&](const Part& part, const Moments<Real>* sums) {
        for (std::int64_t i = 0; i < part.rows; ++i)
          done(part.first + i, Moments<Real>{}, centres[part.first + i], sums[i]);
      });
}

template <class T, class Real>
void compute_forward(const Problem& p, const Way& way, const Execution& execution) {
  const Cut cut = way.cut(p, execution.machine);
  const Workspace<Real> memory(p, cut, false, execution.workspace);
  const Kernels kernels = way.kernels<T, Real>(p, execution.machine);
  const Measure<Real> measure(p.kind, p.cols, p.correction);
  norms::in_steps<Real>(cut, memory.waiting, execution, [&](const auto& units) {
    in_rounds<Real>(
        p, measure, kernels, memory.centres, units, measure.centred(),
        [&](std::int64_t row, const Moments<Real>& first, Real second,
            const Moments<Real>& of_second) {
          put<T>(p, row, result_of(measure, SummedRow<T, Real>{p, row}, first, second, of_second));
        });
  });
}

template <class T, class Real>
void compute_backward(const Problem& p, const Way& way, const Execution& execution) {
  const Cut cut = way.cut(p, execution.machine);
  const Workspace<Real> memory(p, cut, true, execution.workspace);
  const Kernels kernels = way.kernels<T, Real>(p, execution.machine);
  const Measure<Real> measure(p.kind, p.cols, p.correction);
  const int rounds = rounds_of(p.kind);
  const auto slope = [&](std::int64_t row, const Moments<Real>& first, Real second,
                         const Moments<Real>& of_second) {
    return slope_of(measure, SummedRow<T, Real>{p, row}, get<T, Real>(p, row), first, second,
                    of_second);
  };
  norms::in_steps<Real>(cut, memory.waiting, execution, [&](const auto& units) {
    if (rounds > 0)
      in_rounds<Real>(p, measure, kernels, memory.centres, units, rounds == 2,
                      [&](std::int64_t row, const auto&... found) {
                        memory.slopes[row] = slope(row, found...);
                      });
    units.map([&](const Part& part) {
      if (rounds > 0) return kernels.gradient(p, part, memory.slopes + part.first);
      Slope<Real> slopes[kMostAbreast];
      for (std::int64_t i = 0; i < part.rows; ++i) slopes[i] = slope(part.first + i, {}, 0, {});
      kernels.gradient(p, part, slopes);
    });
  });
}

template <bool kSpecified>
void run_forward(const ForwardArgs&, const Problem& p, const Plan&, const Execution& execution) {
  with_type(p.dtype, [&]<class T, class Real>(T, Real) {
    compute_forward<T, Real>(p, Way(p, kSpecified), execution);
  });
}
template <bool kSpecified>
void run_backward(const BackwardArgs&, const Problem& p, const Plan&, const Execution& execution) {
  with_type(p.dtype, [&]<class T, class Real>(T, Real) {
    compute_backward<T, Real>(p, Way(p, kSpecified), execution);
  });
}

constexpr ForwardVariant kForward[] = {
    {.name = "simd",
     .each_isa = true,
     .workspace = workspace<false, false>,
     .run = run_forward<false>},
    {.name = "scalar", .workspace = workspace<true, false>, .run = run_forward<true>},
};
constexpr BackwardVariant kBackward[] = {
    {.name = "simd",
     .each_isa = true,
     .workspace = workspace<false, true>,
     .run = run_backward<false>},
    {.name = "scalar", .workspace = workspace<true, true>, .run = run_backward<true>},
};

}  // namespace

std::span<const ForwardVariant> cpu_forward_variants() { return kForward; }
std::span<const BackwardVariant> cpu_backward_variants() { return kBackward; }

}  // namespace isobit::reduce
