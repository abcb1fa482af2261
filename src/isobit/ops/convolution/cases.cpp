// SPDX-License-Identifier: Apache-2.0
// The grids and floors of convolutions.
#include "isobit/ops/convolution/cases.h"

#include <algorithm>
#include <cmath>

namespace isobit::convolution {
namespace {

const std::vector<Types> kSame = {{DType::f32, DType::f32},
                                  {DType::f16, DType::f16},
                                  {DType::bf16, DType::bf16},
                                  {DType::f64, DType::f64}};
const std::vector<Types> kFloat = {{DType::f32, DType::f32}};
const std::vector<Types> kTwo = {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}};
const std::vector<Types> kMixed = {{DType::f32, DType::f32, DType::bf16},
                                   {DType::bf16, DType::f32, DType::f32},
                                   {DType::f16, DType::f16, DType::f32},
                                   {DType::bf16, DType::f32}};

constexpr double kZeros = 0, kReflect = 1, kReplicate = 2, kCircular = 3;
constexpr double kNone = 0, kRelu = 1, kGelu = 2, kSilu = 4;

struct Shape {
  std::int64_t batch, channels, filters, height, width, kernel_h, kernel_w;
};

// Numbers of a window, the same in both dimensions.
struct Window {
  double groups = 1, stride = 1, dilation = 1, padding = 0, extra = 0;
  std::vector<double> modes = {kZeros}, activations = {kNone};
};

class Grids {
 public:
  Grids(int dims, bool forward) : two_(dims == 2), forward_(forward) {}

  // In one dimension each shape loses its height.
  void add(const std::vector<Types>& types, const std::vector<Shape>& shapes, const Window& window,
           std::vector<std::string_view> inputs = {"randn"},
           std::vector<std::string_view> with = {""}) {
    CaseGrid grid{.types = types, .inputs = std::move(inputs), .with = std::move(with)};
    for (const Shape& s : shapes)
      grid.shapes.push_back(two_ ? std::vector<std::int64_t>{s.batch, s.channels, s.filters,
                                                             s.height, s.width, s.kernel_h,
                                                             s.kernel_w, 0, 0, 0}
                                 : std::vector<std::int64_t>{s.batch, s.channels, s.filters,
                                                             s.width, s.kernel_w, 0, 0});
    grid.options["groups"] = {window.groups};
    grid.options["padding_mode"] = window.modes;
    if (forward_) grid.options["activation"] = window.activations;
    const auto set = [&](std::string_view name, std::string_view h, std::string_view w,
                         double value) {
      if (two_)
        grid.options[h] = grid.options[w] = {value};
      else
        grid.options[name] = {value};
    };
    set("stride", "stride_h", "stride_w", window.stride);
    set("dilation", "dilation_h", "dilation_w", window.dilation);
    set("padding", "padding_h", "padding_w", window.padding);
    set("extra_padding", "extra_padding_h", "extra_padding_w", window.extra);
    grids_.push_back(std::move(grid));
  }
  // Channels, 1 or more in a group; windows of all kinds.
  void add_kinds(const std::vector<Types>& types, std::vector<std::string_view> with) {
    add(types, {{2, 3, 5, 9, 11, 3, 3}}, {.padding = 1}, {"randn"}, with);
    add(types, {{2, 4, 6, 12, 13, 3, 2}}, {.groups = 2, .stride = 2, .dilation = 2, .padding = 2},
        {"randn"}, with);
    add(types, {{1, 4, 4, 8, 21, 3, 5}}, {.groups = 4, .padding = 2, .extra = -1}, {"randn"}, with);
  }

  std::vector<CaseGrid> take() { return std::move(grids_); }

 private:
  bool two_, forward_;
  std::vector<CaseGrid> grids_;
};

std::vector<CaseGrid> bench_cases(int dims, bool forward, bool all) {
  Grids grids(dims, forward);
  const std::vector<std::string_view> with = {""};
  if (dims == 1) {
    constexpr std::int64_t kSamples = 1 << 20;
    grids.add(kFloat, {{1, 1, 1, 1, kSamples, 1, 15}}, {.padding = 7}, {"randn"}, with);
    if (all) {
      grids.add(kFloat, {{1, 1, 1, 1, kSamples, 1, 3}, {8, 64, 64, 1, 1024, 1, 3}}, {.padding = 1},
                {"randn"}, with);
      grids.add(kFloat, {{1, 1, 1, 1, 1024, 1, 15}}, {.padding = 7}, {"randn"}, with);
    }
    return grids.take();
  }
  grids.add(kFloat, {{1, 64, 64, 56, 56, 3, 3}}, {.padding = 1}, {"randn"}, with);
  if (all) {
    grids.add(kFloat, {{1, 1, 1, 1024, 1024, 3, 3}, {1, 1, 1, 32, 32, 3, 3}}, {.padding = 1},
              {"randn"}, with);
    grids.add(kFloat, {{1, 1, 1, 2048, 2048, 9, 9}}, {.padding = 4}, {"randn"}, with);
    grids.add(kFloat, {{1, 3, 64, 224, 224, 7, 7}}, {.stride = 2, .padding = 3}, {"randn"}, with);
    grids.add(kFloat, {{1, 64, 64, 112, 112, 3, 3}}, {.groups = 64, .padding = 1}, {"randn"}, with);
    grids.add(kFloat, {{1, 256, 64, 56, 56, 1, 1}, {4, 512, 512, 7, 7, 1, 1}}, {}, {"randn"}, with);
    grids.add(kFloat,
              {{4, 512, 512, 7, 7, 3, 3}, {8, 256, 256, 4, 4, 3, 3}, {8, 512, 512, 2, 2, 3, 3}},
              {.padding = 1}, {"randn"}, with);
  }
  return grids.take();
}

}  // namespace

std::vector<CaseGrid> forward_cases(int dims, std::string_view grid) {
  if (grid == "bench" || grid == "bench-quick") return bench_cases(dims, true, grid == "bench");
  Grids grids(dims, true);
  if (grid == "quick") {
    grids.add_kinds(kSame, {""});
    grids.add(kFloat, {{1, 2, 3, 7, 8, 3, 3}},
              {.padding = 2, .modes = {kReflect, kReplicate, kCircular}});
    grids.add(kTwo, {{2, 3, 8, 6, 20, 2, 3}}, {.padding = 1, .activations = {kNone, kGelu}},
              {"randn"}, {"bias+residual+pre"});
    grids.add(kMixed, {{1, 2, 3, 5, 9, 3, 3}}, {}, {"randn"}, {"bias"});
    grids.add(kTwo, {{2, 9, 12, 11, 12, 1, 1}}, {});
    return grids.take();
  }
  const bool test = grid == "test";
  grids.add_kinds(kSame, {"", "bias"});
  grids.add(kSame, {{1, 1, 1, 1, 1, 1, 1}, {2, 1, 1, 9, 40, 3, 3}, {1, 1, 1, 11, 300, 5, 7}},
            {.padding = 0});
  // Rows that are read where they lie, but for their edges.
  grids.add(kSame, {{1, 1, 1, 11, 300, 5, 7}}, {.padding = 3}, {"randn"}, {"bias"});
  grids.add(kFloat, {{1, 70, 7, 4, 18, 3, 3}, {1, 1000, 2, 3, 9, 3, 9}}, {.padding = 1});
  grids.add(kSame, {{1, 3, 9, 19, 23, 7, 7}}, {.stride = 3, .padding = 3});
  // Small images, many filters: a tile has several.
  grids.add(kTwo, {{5, 3, 90, 4, 3, 3, 3}}, {.padding = 1}, {"randn"}, {"bias+residual+pre"});
  grids.add(kFloat, {{1, 2, 3, 7, 8, 3, 4}},
            {.padding = 2, .modes = {kReflect, kReplicate, kCircular}});
  // Depthwise: rows of sums that vectors do not fill, and more of them than are finished at once.
  grids.add(kSame, {{2, 3, 3, 75, 35, 3, 3}}, {.groups = 3, .padding = 1}, {"randn"},
            {"bias+residual+pre"});
  grids.add(kTwo, {{2, 3, 8, 6, 20, 2, 3}},
            {.padding = 1, .activations = {kNone, kRelu, kGelu, kSilu}}, {"randn"},
            {"bias", "bias+residual+pre"});
  grids.add(kMixed, {{1, 2, 3, 5, 9, 3, 3}}, {}, {"randn", "fltmax"}, {"bias"});
  // Pointwise: one image and several, few and many positions, groups.
  grids.add(kSame, {{1, 9, 12, 11, 13, 1, 1}, {3, 600, 8, 11, 12, 1, 1}}, {}, {"randn"}, {"bias"});
  grids.add(kTwo, {{2, 20, 36, 11, 12, 1, 1}}, {.groups = 2, .activations = {kNone, kGelu}},
            {"randn"}, {"bias+residual+pre"});
  grids.add(kTwo, {{1, 5, 3, 6, 9, 3, 3}}, {.padding = 1},
            {"uniform", "integers", "alternating", "fltmax", "denormal"});
  if (!test) {
    grids.add(kSame, {{2, 20, 33, 30, 31, 3, 3}, {1, 300, 20, 9, 10, 5, 5}}, {.padding = 2},
              {"randn", "uniform", "integers", "alternating", "lognormal", "denormal", "outlier"});
    grids.add(kSame, {{1, 24, 24, 30, 31, 3, 3}}, {.groups = 24, .padding = 1},
              {"randn", "uniform", "lognormal", "fltmax"});
  }
  return grids.take();
}

std::vector<CaseGrid> backward_cases(int dims, std::string_view grid) {
  if (grid == "bench" || grid == "bench-quick") return bench_cases(dims, false, grid == "bench");
  Grids grids(dims, false);
  if (grid == "quick") {
    grids.add_kinds(kSame, {"grad_bias"});
    grids.add(kFloat, {{1, 2, 3, 7, 8, 3, 3}},
              {.padding = 2, .modes = {kReflect, kReplicate, kCircular}});
    return grids.take();
  }
  grids.add_kinds(kSame, {"", "grad_bias"});
  grids.add(kSame, {{1, 1, 1, 1, 1, 1, 1}, {2, 1, 1, 9, 40, 3, 3}}, {}, {"randn"}, {"grad_bias"});
  grids.add(kSame, {{1, 1, 1, 11, 300, 5, 7}}, {.padding = 3});
  grids.add(kFloat, {{2, 3, 70, 4, 18, 3, 3}, {1, 2, 1000, 5, 9, 3, 9}}, {.padding = 1});
  // Pointwise: one image and several, more positions than a panel has, groups.
  grids.add(kSame, {{1, 9, 12, 23, 29, 1, 1}, {3, 30, 8, 13, 21, 1, 1}}, {}, {"randn"},
            {"grad_bias"});
  grids.add(kTwo, {{1, 20, 36, 11, 12, 1, 1}, {2, 20, 36, 11, 12, 1, 1}}, {.groups = 2});
  grids.add(kFloat, {{3, 2, 3, 30, 32, 3, 3}}, {.stride = 3, .padding = 3});
  // Depthwise: more channels than are side by side, several panels of positions.
  grids.add(kSame, {{2, 19, 19, 12, 45, 3, 3}}, {.groups = 19, .padding = 1}, {"randn"},
            {"grad_bias"});
  grids.add(kFloat, {{2, 18, 18, 9, 1100, 5, 2}},
            {.groups = 18, .stride = 2, .dilation = 2, .padding = 3});
  grids.add(kFloat, {{1, 17, 17, 7, 8, 3, 4}},
            {.groups = 17, .padding = 2, .modes = {kReflect, kReplicate, kCircular}});
  // Small images, many channels: a tile has several.
  grids.add(kTwo, {{5, 90, 3, 5, 4, 3, 3}}, {.stride = 2, .padding = 1});
  grids.add(kFloat, {{1, 2, 3, 7, 8, 3, 4}},
            {.padding = 2, .modes = {kReflect, kReplicate, kCircular}});
  grids.add(kTwo, {{1, 5, 3, 6, 9, 3, 3}}, {.padding = 1},
            {"uniform", "integers", "alternating", "denormal"}, {"grad_bias"});
  if (grid != "test")
    grids.add(kSame, {{2, 20, 33, 30, 31, 3, 3}, {1, 20, 300, 9, 10, 5, 5}}, {.padding = 2},
              {"randn", "uniform", "integers", "alternating", "lognormal", "denormal", "outlier"},
              {"grad_bias"});
  return grids.take();
}

namespace {

double elements(const TensorView& view) {
  double count = view.given() ? 1 : 0;
  for (int i = 0; i < view.rank; ++i)  // what is repeated is read once
    if (view.strides[i] != 0) count *= static_cast<double>(view.shape[i]);
  return count;
}
double bytes(const TensorView& view) {
  return view.given() ? elements(view) * static_cast<double>(size_of(view.dtype)) : 0;
}
double product_of(const TensorView& view, int first) {
  double count = 1;
  for (int i = first; i < view.rank; ++i) count *= static_cast<double>(view.shape[i]);
  return count;
}

// Equal terms round alike, so that errors grow as they do not at random (docs/numerics.md).
double limit_of(double terms) { return 8 * std::sqrt(std::max(1.0, terms)); }

}  // namespace

Cost forward_cost(const ForwardArgs& args) {
  return {.bytes = bytes(args.x) + bytes(args.weight) + bytes(args.bias) + bytes(args.residual) +
                   bytes(args.y) + bytes(args.pre),
          .flops = 2 * product_of(args.y, 0) * product_of(args.weight, 1)};
}

Cost backward_cost(const BackwardArgs& args) {
  const bool to_x = args.grad_x.given(), to_weight = args.grad_weight.given();
  return {
      .bytes = bytes(args.grad_y) + (to_weight ? bytes(args.x) : 0) +
               (to_x ? bytes(args.weight) : 0) + bytes(args.grad_x) + bytes(args.grad_weight) +
               bytes(args.grad_bias),
      .flops = 2 * (to_x + to_weight) * product_of(args.grad_y, 0) * product_of(args.weight, 1)};
}

double forward_limit(const ForwardArgs& args) { return limit_of(product_of(args.weight, 1)); }

// Of the longest sum: over taps and filters for x, over positions for weights.
double backward_limit(const BackwardArgs& args) {
  const double positions = static_cast<double>(args.grad_y.shape[0]) * product_of(args.grad_y, 2);
  const double filters = static_cast<double>(args.weight.shape[0] / args.groups);  // of a group
  return limit_of(std::max(positions, filters * product_of(args.weight, 2)));
}

}  // namespace isobit::convolution
