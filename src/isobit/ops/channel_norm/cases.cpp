// SPDX-License-Identifier: Apache-2.0
// The grids and floors of group_norm and batch_norm.
#include "isobit/ops/channel_norm/cases.h"

#include <initializer_list>

namespace isobit::channel_norm {
namespace {

constexpr Types kF32{DType::f32, DType::f32}, kBf16{DType::bf16, DType::bf16},
    kMixed{DType::bf16, DType::f32};
const std::vector<Types> kThree = {kF32, kBf16, kMixed};
const std::vector<Types> kAll = {kF32,
                                 kBf16,
                                 kMixed,
                                 {DType::f16, DType::f16},
                                 {DType::f16, DType::f32},
                                 {DType::f64, DType::f64},
                                 {DType::f64, DType::f32}};
const std::vector<std::string_view> kFamilies = {
    "randn",   "uniform",   "offset100",   "mean1e4",   "mean1e6",  "constant",
    "outlier", "ramp",      "alternating", "lognormal", "huge1e18", "huge1e20",
    "fltmax",  "tiny1e-20", "denormal",    "const_grad"};

class Grids {
 public:
  Grids(bool forward, bool groups) : forward_(forward), groups_(groups) {}

  // (batch, channels, extent) of a case and, of group_norm, its groups.
  struct Shape {
    std::int64_t batch, channels, extent;
    double groups;
  };

  void add(const std::vector<Types>& types, std::initializer_list<Shape> shapes,
           std::vector<std::string_view> inputs = {"randn"}, std::vector<double> eps = {1e-5}) {
    for (const Shape& shape : shapes) {
      CaseGrid grid{.types = types, .inputs = inputs};
      grid.shapes.push_back({shape.batch, shape.channels, shape.extent});
      grid.options["eps"] = eps;
      if (groups_) {
        grid.options["groups"] = {shape.groups};
        grids_.push_back(std::move(grid));
        continue;
      }
      if (forward_) grid.options["momentum"] = {0.1};
      for (const double training : {1.0, 0.0}) {
        grid.options["training"] = {training};
        grids_.push_back(grid);
      }
    }
  }

  std::vector<CaseGrid> take() { return std::move(grids_); }

 private:
  bool forward_, groups_;
  std::vector<CaseGrid> grids_;
};

std::vector<CaseGrid> cases(bool forward, bool groups, std::string_view grid) {
  Grids grids(forward, groups);
  if (grid == "bench" || grid == "bench-quick") {
    grids.add({kF32}, {{8, 64, 56 * 56, 32}, {8, 256, 14 * 14, 32}});
    if (grid == "bench")
      grids.add({kF32, kBf16}, {{32, 64, 56 * 56, 32},
                                {32, 512, 7 * 7, 32},
                                {1, 3, 1024 * 1024, 1},
                                {2, 320, 64 * 64, 32},
                                {8, 256, 4 * 4, 32},
                                {8, 512, 2 * 2, 32},
                                {4096, 256, 1, 8}});
    return grids.take();
  }
  if (grid == "quick") {
    grids.add({kF32}, {{2, 4, 25, 1}});  // the first suits any channels
    grids.add(kAll, {{3, 6, 25, 3}});
    grids.add(kThree, {{2, 4, 600, 2}, {5, 3, 1, 1}, {2, 2, 1024, 2}},
              {"randn", "mean1e6", "constant", "huge1e20"});
    return grids.take();
  }
  // What stands beside a vector, a block and two blocks of the order of summation.
  grids.add(kAll, {{2, 6, 7, 2}, {2, 4, 49, 1}, {3, 5, 1, 5}}, {"randn", "mean1e4"});
  grids.add(kAll, {{5, 37, 4, 37}});  // more channels than lanes, of few elements
  grids.add(kThree, {{1, 4, 128, 2}, {2, 6, 171, 2}, {1, 2, 513, 1}, {17, 3, 31, 3}},
            {"randn", "mean1e6", "const_grad"}, {1e-5, 0});
  grids.add(kThree, {{3, 4, 200, 2}}, kFamilies, {1e-5, 0});
  if (grid != "test") {
    grids.add(kAll, {{4, 32, 196, 8}, {2, 64, 1024, 32}, {64, 70, 9, 7}},
              {"randn", "mean1e4", "huge1e18", "constant", "denormal"});
    grids.add(kThree, {{1, 2, 65536, 1}, {300, 65, 1, 5}, {2, 96, 784, 32}}, kFamilies, {1e-5, 0});
  }
  return grids.take();
}

double elements(const TensorView& view) {
  double count = view.given() ? 1 : 0;
  for (int i = 0; i < view.rank; ++i) count *= static_cast<double>(view.shape[i]);
  return count;
}
double bytes(std::initializer_list<const TensorView*> views) {
  double sum = 0;
  for (const TensorView* view : views)
    sum += elements(*view) * static_cast<double>(size_of(view->dtype));
  return sum;
}

// Operations of an element, an fma counted as two: as LayerNorm's.
constexpr double kStatistics = 6, kNormalise = 5, kSums = 4, kGradX = 7;

}  // namespace

std::vector<CaseGrid> forward_cases(bool groups, std::string_view grid) {
  return cases(true, groups, grid);
}
std::vector<CaseGrid> backward_cases(bool groups, std::string_view grid) {
  return cases(false, groups, grid);
}

Cost forward_cost(const ForwardCall& call) {
  return {.bytes = bytes({&call.x, &call.weight, &call.bias, &call.running_mean, &call.running_var,
                          &call.y, &call.mean, &call.rstd, &call.next_mean, &call.next_var,
                          &call.moments}),
          .flops = elements(call.x) * (kNormalise + (call.training ? kStatistics : 0))};
}
Cost backward_cost(const BackwardCall& call) {
  const bool summed = call.training && !call.moments.given();
  const bool sums = call.grad_weight.given() || call.grad_bias.given();
  return {
      .bytes = bytes({&call.x, &call.grad_y, &call.weight, &call.running_mean, &call.running_var,
                      &call.moments, &call.grad_x, &call.grad_weight, &call.grad_bias}),
      .flops = elements(call.x) * ((summed ? kStatistics : 0) + (sums ? kSums : 0) +
                                   (call.grad_x.given() ? kGradX : 0))};
}

}  // namespace isobit::channel_norm
