// SPDX-License-Identifier: Apache-2.0
// The grids and floors of interpolate.
#include "isobit/ops/interpolate/cases.h"

#include <algorithm>
#include <cmath>

namespace isobit::interpolate {
namespace {

const std::vector<Types> kAll = {{DType::f32, DType::f32},
                                 {DType::f16, DType::f16},
                                 {DType::bf16, DType::bf16},
                                 {DType::f64, DType::f64}};
const std::vector<Types> kTwo = {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}};
const std::vector<Types> kF32 = {{DType::f32, DType::f32}};

constexpr double kNearest = 0, kLinear = 2, kCubic = 3;

struct Shape {
  std::int64_t batch, channels, height, width, out_height, out_width;
};

class Grids {
 public:
  void add(const std::vector<Types>& types, const std::vector<Shape>& shapes,
           const std::vector<double>& modes, double aligned = 0, double scale_h = 0,
           double scale_w = 0, std::vector<std::string_view> inputs = {"randn"}) {
    CaseGrid grid{.types = types, .inputs = std::move(inputs)};
    for (const Shape& s : shapes)
      grid.shapes.push_back({s.batch, s.channels, s.height, s.width, s.out_height, s.out_width});
    grid.options["mode"] = modes;
    grid.options["align_corners"] = {aligned};
    grid.options["scale_h"] = {scale_h};
    grid.options["scale_w"] = {scale_w};
    grids_.push_back(std::move(grid));
  }
  // By the sizes: every mode, and those with corners aligned, too.
  void all(const std::vector<Types>& types, const std::vector<Shape>& shapes) {
    add(types, shapes, {kNearest, 1, kLinear, kCubic});
    add(types, shapes, {kLinear, kCubic}, 1);
  }

  std::vector<CaseGrid> take() { return std::move(grids_); }

 private:
  std::vector<CaseGrid> grids_;
};

// Twice as large, as in decoders, and an image brought to the size of a classifier's.
std::vector<CaseGrid> timed(bool all) {
  Grids grids;
  grids.add(kF32, {{1, 64, 56, 56, 112, 112}}, {kNearest, kLinear});
  if (all) {
    grids.add(kTwo, {{8, 64, 56, 56, 112, 112}}, {kNearest, kLinear, kCubic});
    grids.add(kF32, {{8, 3, 480, 640, 224, 224}}, {kLinear, kCubic});
  }
  return grids.take();
}

std::vector<CaseGrid> cases(std::string_view grid) {
  if (grid == "bench" || grid == "bench-quick") return timed(grid == "bench");
  Grids grids;
  if (grid == "quick") {
    grids.all(kAll, {{2, 3, 7, 9, 11, 5}});
    grids.all(kTwo, {{1, 18, 5, 6, 10, 13}});
    grids.add(kTwo, {{1, 2, 9, 11, 6, 23}}, {kNearest, 1, kLinear, kCubic}, 0, 0.7, 2.1);
    return grids.take();
  }
  grids.all(kAll, {{1, 1, 1, 1, 1, 1}, {2, 3, 7, 9, 11, 5}, {1, 20, 12, 35, 24, 70}});
  grids.all(kTwo,
            {{1, 2, 1, 5, 3, 1}, {1, 2, 2, 1, 1, 9}, {1, 3, 3, 2, 40, 33}, {1, 2, 4, 4, 4, 4}});
  grids.all(kF32, {{1, 1, 2, 3, 5, 1100}, {1, 1, 2, 3, 1100, 2}, {1, 17, 30, 41, 7, 9}});
  grids.add(kAll, {{2, 3, 7, 10, 4, 7}, {1, 18, 9, 20, 6, 14}}, {kNearest, 1, kLinear, kCubic}, 0,
            0.7, 0.7);
  grids.add(kTwo, {{1, 3, 10, 8, 15, 16}}, {kNearest, 1, kLinear, kCubic}, 0, 1.5, 2);
  grids.add(kTwo, {{1, 2, 5, 6, 3, 20}}, {kNearest, 1, kLinear, kCubic}, 0, 1e-30, 1e30);
  grids.add(kF32, {{1, 2, 5, 6, 9, 7}}, {kLinear, kCubic}, 0, 0, 1.3);
  grids.add(kTwo, {{1, 5, 6, 19, 13, 11}}, {kNearest, kLinear, kCubic}, 0, 0, 0,
            {"uniform", "alternating", "fltmax", "denormal", "constant", "outlier"});
  if (grid != "test") {
    grids.all(kAll, {{2, 33, 30, 31, 60, 62}, {1, 64, 28, 28, 17, 45}});
    grids.add(kAll, {{2, 5, 30, 31, 64, 37}}, {kLinear, kCubic}, 1, 0, 0,
              {"randn", "uniform", "alternating", "lognormal", "denormal", "outlier", "constant"});
  }
  return grids.take();
}

double elements(const TensorView& view) {
  double count = 1;
  for (int i = 0; i < view.rank; ++i) count *= static_cast<double>(view.shape[i]);
  return count;
}
double bytes(const TensorView& view) {
  return elements(view) * static_cast<double>(size_of(view.dtype));
}

double taps(Mode mode) { return mode == Mode::cubic ? 4 : mode == Mode::linear ? 2 : 1; }

// How many results of one side may have an element in common; beyond the last of a scale all have.
double shared_by(Mode mode, double scale, std::int64_t sources, std::int64_t results) {
  const auto from = static_cast<double>(sources), to = static_cast<double>(results);
  const double each = scale == 0 ? to / from : scale;
  return std::min(to, taps(mode) * (each + 1) + 2 + std::max(0.0, to - each * from));
}

// Each element is widened, each result the sum of products of rows.
template <class Args>
double flops(const Args& args, const TensorView& x, const TensorView& y) {
  return elements(x) + elements(y) * taps(args.mode) * (taps(args.mode) + 1);
}

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) { return cases(grid); }
std::vector<CaseGrid> backward_cases(std::string_view grid) { return cases(grid); }

Cost forward_cost(const ForwardArgs& args) {
  return {.bytes = bytes(args.x) + bytes(args.y), .flops = flops(args, args.x, args.y)};
}
Cost backward_cost(const BackwardArgs& args) {
  return {.bytes = bytes(args.grad_y) + bytes(args.grad_x),
          .flops = flops(args, args.grad_x, args.grad_y)};
}

// Two weights, and sums of as many terms of each side; the nearest element is exact.
double forward_limit(const ForwardArgs& args) {
  return args.mode == Mode::cubic ? 16 : args.mode == Mode::linear ? 8 : 0;
}
// Equal terms round alike, so that errors grow as they do not at random (docs/numerics.md).
double backward_limit(const BackwardArgs& args) {
  const double terms =
      shared_by(args.mode, args.scale_h, args.grad_x.shape[2], args.grad_y.shape[2]) *
      shared_by(args.mode, args.scale_w, args.grad_x.shape[3], args.grad_y.shape[3]);
  return 8 * std::sqrt(std::max(1.0, terms));
}

}  // namespace isobit::interpolate
