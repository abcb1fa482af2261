// SPDX-License-Identifier: Apache-2.0
// The grids and floors of pool2d.
#include "isobit/ops/pool2d/cases.h"

#include <algorithm>
#include <cmath>

namespace isobit::pool2d {
namespace {

const std::vector<Types> kAll = {{DType::f32, DType::f32},
                                 {DType::f16, DType::f16},
                                 {DType::bf16, DType::bf16},
                                 {DType::f64, DType::f64}};
const std::vector<Types> kTwo = {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}};
const std::vector<Types> kF32 = {{DType::f32, DType::f32}};

constexpr double kMax = 0, kAverage = 1;

// The numbers of a window, of both sides or of each.
struct Pair {
  double h, w;

  Pair(double both) : h(both), w(both) {}
  Pair(double h, double w) : h(h), w(w) {}
};
struct Windows {
  Pair window = 0, stride = 0, padding = 0, dilation = 1, bins = 1;
  std::vector<double> ceil_mode = {0}, with_padding = {0};
  double divisor = 0;
};

struct Shape {
  std::int64_t batch, channels, height, width;
};

class Grids {
 public:
  explicit Grids(bool forward) : forward_(forward) {}

  void add(const std::vector<Types>& types, double reduction, const std::vector<Shape>& shapes,
           const Windows& windows, std::vector<std::string_view> inputs = {"randn"}) {
    CaseGrid grid{.types = types, .inputs = std::move(inputs)};
    for (const Shape& s : shapes)
      grid.shapes.push_back({s.batch, s.channels, s.height, s.width, 0, 0, 0});
    grid.options["reduction"] = {reduction};
    const auto set = [&](std::string_view h, std::string_view w, const Pair& pair) {
      grid.options[h] = {pair.h};
      grid.options[w] = {pair.w};
    };
    set("window_h", "window_w", windows.window);
    set("bins_h", "bins_w", windows.bins);
    set("stride_h", "stride_w", windows.stride);
    set("padding_h", "padding_w", windows.padding);
    set("dilation_h", "dilation_w", windows.dilation);
    grid.options["ceil_mode"] = windows.ceil_mode;
    grid.options["count_include_pad"] = windows.with_padding;
    grid.options["divisor"] = {windows.divisor};
    if (forward_ && reduction == kMax) grid.with = {"", "index"};
    grids_.push_back(std::move(grid));
  }
  void both(const std::vector<Types>& types, const std::vector<Shape>& shapes,
            const Windows& windows) {
    add(types, kMax, shapes, windows);
    add(types, kAverage, shapes, windows);
  }

  std::vector<CaseGrid> take() { return std::move(grids_); }

 private:
  bool forward_;
  std::vector<CaseGrid> grids_;
};

// The windows of image networks: halves, the first pooling of a ResNet, and its last.
std::vector<CaseGrid> timed(bool forward, bool all) {
  Grids grids(forward);
  grids.add(kF32, kMax, {{1, 64, 112, 112}}, {.window = 3, .stride = 2, .padding = 1});
  grids.add(kF32, kAverage, {{1, 64, 112, 112}}, {.window = 2});
  if (all) {
    grids.add(kTwo, kMax, {{8, 64, 112, 112}}, {.window = 2});
    grids.add(kTwo, kAverage, {{8, 64, 56, 56}},
              {.window = 3, .stride = 1, .padding = 1, .with_padding = {1}});
    grids.add(kTwo, kAverage, {{8, 2048, 7, 7}}, {.bins = 1});
    grids.add(kF32, kAverage, {{8, 256, 56, 56}}, {.bins = 7});
  }
  return grids.take();
}

std::vector<CaseGrid> cases(bool forward, std::string_view grid) {
  if (grid == "bench" || grid == "bench-quick") return timed(forward, grid == "bench");
  Grids grids(forward);
  if (grid == "quick") {
    grids.both(kAll, {{2, 3, 7, 9}}, {.window = 3, .stride = 2, .padding = 1, .ceil_mode = {0, 1}});
    grids.both(kTwo, {{1, 5, 6, 20}}, {.window = {2, 3}, .stride = 1, .padding = {0, 1}});
    grids.both(kTwo, {{1, 18, 5, 6}}, {.bins = {2, 3}});
    grids.add(kF32, kMax, {{1, 2, 9, 11}}, {.window = 2, .stride = 1, .dilation = {3, 2}});
    grids.add(kF32, kAverage, {{1, 2, 5, 8}},
              {.window = 3, .padding = 1, .with_padding = {1}, .divisor = 0});
    grids.add(kF32, kAverage, {{1, 2, 5, 8}}, {.window = 2, .divisor = -3});
    return grids.take();
  }
  grids.both(kAll, {{1, 1, 1, 1}, {2, 3, 9, 40}},
             {.window = 1, .stride = {1, 2}, .ceil_mode = {0, 1}});
  grids.both(kAll, {{2, 3, 7, 9}, {1, 20, 12, 35}, {1, 2, 3, 150}},
             {.window = {3, 2}, .stride = {2, 1}, .padding = 1, .ceil_mode = {0, 1}});
  grids.both(kTwo, {{1, 3, 11, 33}},
             {.window = {5, 7}, .stride = {3, 4}, .padding = {2, 3}, .ceil_mode = {0, 1}});
  grids.both(kAll, {{2, 37, 7, 9}, {1, 3, 12, 33}}, {.bins = {3, 4}});
  grids.both(kAll, {{2, 20, 9, 13}, {1, 2, 30, 41}}, {.bins = 1});
  grids.both(kTwo, {{2, 18, 1, 21}}, {.window = {1, 0}, .bins = 1});
  grids.both(kTwo, {{2, 18, 5, 7}}, {.window = {5, 7}});
  grids.both(kF32, {{1, 3, 4, 5}}, {.bins = {7, 9}});
  grids.both(kF32, {{1, 3, 9, 14}}, {.window = {0, 3}, .stride = {0, 1}, .bins = {2, 1}});
  grids.both(kF32, {{1, 2, 30, 29}, {1, 17, 29, 23}}, {.window = 23, .stride = 1, .padding = 11});
  grids.add(kAll, kMax, {{1, 3, 9, 14}, {1, 17, 8, 9}},
            {.window = {3, 2}, .stride = {1, 2}, .padding = {2, 1}, .dilation = {3, 2}});
  grids.add(kF32, kMax, {{1, 2, 2, 3}}, {.window = 2, .stride = 1, .padding = 2, .dilation = 4});
  grids.add(kAll, kAverage, {{2, 3, 7, 10}},
            {.window = 3, .stride = 2, .padding = 1, .ceil_mode = {0, 1}, .with_padding = {0, 1}});
  grids.add(kTwo, kAverage, {{1, 3, 6, 10}}, {.window = 2, .padding = 1, .divisor = 7});
  grids.add(kTwo, kAverage, {{1, 5, 6, 19}}, {.window = 3, .stride = 1, .padding = 1},
            {"uniform", "alternating", "fltmax", "denormal", "constant", "outlier"});
  grids.add(kTwo, kMax, {{1, 5, 6, 19}}, {.window = 3, .stride = 1, .padding = 1},
            {"constant", "fltmax", "denormal"});
  if (grid != "test") {
    grids.both(kAll, {{2, 33, 30, 31}, {1, 64, 28, 28}},
               {.window = 3, .stride = 2, .padding = 1, .ceil_mode = {0, 1}});
    grids.both(kTwo, {{1, 4, 56, 57}}, {.bins = {1, 7}});
    grids.add(kAll, kAverage, {{2, 33, 30, 31}}, {.window = 5, .stride = 1, .padding = 2},
              {"randn", "uniform", "alternating", "lognormal", "denormal", "outlier", "constant"});
  }
  return grids.take();
}

double elements(const TensorView& view) {
  double count = view.given() ? 1 : 0;
  for (int i = 0; i < view.rank; ++i) count *= static_cast<double>(view.shape[i]);
  return count;
}
double bytes(const TensorView& view) {
  return elements(view) * static_cast<double>(view.given() ? size_of(view.dtype) : 0);
}

// How many elements the largest windows have.
template <class Args>
double taps(const Args& args, const TensorView& x) {
  const auto along = [](std::int64_t window, std::int64_t extent, std::int64_t bins) {
    return static_cast<double>(window == 0 ? std::min(extent, extent / bins + 2)
                                           : std::min(window, extent));
  };
  return along(args.window_h, x.shape[2], args.bins_h) *
         along(args.window_w, x.shape[3], args.bins_w);
}

// How many windows may have an element in common.
double windows(const BackwardArgs& args) {
  const auto along = [](std::int64_t window, std::int64_t dilation, std::int64_t stride,
                        std::int64_t extent, std::int64_t results) {
    const std::int64_t span = window == 0 ? 1 : dilation * (window - 1) + 1;
    const std::int64_t step = stride == 0 ? std::max<std::int64_t>(window, 1) : stride;
    const std::int64_t most = window == 0 ? results / extent + 2 : (span + step - 1) / step;
    return static_cast<double>(std::min(results, most));
  };
  return along(args.window_h, args.dilation_h, args.stride_h, args.grad_x.shape[2],
               args.grad_y.shape[2]) *
         along(args.window_w, args.dilation_w, args.stride_w, args.grad_x.shape[3],
               args.grad_y.shape[3]);
}

// Equal terms round alike, so that errors grow as they do not at random (docs/numerics.md).
double limit_of(double terms) { return 8 * std::sqrt(std::max(1.0, terms)); }

}  // namespace

std::vector<CaseGrid> forward_cases(std::string_view grid) { return cases(true, grid); }
std::vector<CaseGrid> backward_cases(std::string_view grid) { return cases(false, grid); }

Cost forward_cost(const ForwardArgs& args) {
  return {.bytes = bytes(args.x) + bytes(args.y) + bytes(args.index),
          .flops = elements(args.y) * taps(args, args.x)};
}
Cost backward_cost(const BackwardArgs& args) {
  const double terms = args.reduction == Reduction::max ? 1 : taps(args, args.grad_x);
  return {.bytes = bytes(args.grad_y) + bytes(args.index) + bytes(args.grad_x),
          .flops = elements(args.grad_y) * terms};
}

// What is the largest element is exact.
double forward_limit(const ForwardArgs& args) {
  return args.reduction == Reduction::max ? 0 : limit_of(taps(args, args.x));
}
double backward_limit(const BackwardArgs& args) { return limit_of(windows(args)); }

}  // namespace isobit::pool2d
