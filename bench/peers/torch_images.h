// SPDX-License-Identifier: Apache-2.0
// Images of another size as PyTorch's eager CPU operators compute them.
#pragma once

#include <ATen/ops/_upsample_nearest_exact2d.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bicubic2d_backward.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_bilinear2d_backward.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/upsample_nearest2d_backward.h>

#include <array>
#include <optional>
#include <string_view>

#include "bench/peers/adapter.h"
#include "bench/peers/torch_layers.h"

namespace isobit::peers {
namespace {

Call interpolate(const IsobitPeerCase& c, bool forward) {
  const std::array of_x{dim(c, "batch"), dim(c, "channels"), dim(c, "height"), dim(c, "width")};
  const std::array size{dim(c, "out_height"), dim(c, "out_width")};
  const std::array of_y{of_x[0], of_x[1], size[0], size[1]};
  const at::TensorOptions real(scalar_type_named(c.dtype));
  at::Tensor x = at::from_blob(array(c, forward ? "x" : "grad_x"), of_x, real);
  at::Tensor y = at::from_blob(array(c, forward ? "y" : "grad_y"), of_y, real);
  const auto scale = [&](const char* name) {
    const double number = option(c, name).number;
    return number == 0 ? std::optional<double>() : std::optional<double>(number);
  };
  const std::optional<double> h = scale("scale_h"), w = scale("scale_w");
  const bool aligned = option(c, "align_corners").number != 0;
  const std::string_view mode = option(c, "mode").text;
  if (mode == "nearest") {
    if (forward) return [=]() mutable { at::upsample_nearest2d_out(y, x, size, h, w); };
    return [=]() mutable { at::upsample_nearest2d_backward_out(x, y, size, of_x, h, w); };
  }
  if (mode == "nearest_exact") {
    if (forward) return [=]() mutable { at::_upsample_nearest_exact2d_out(y, x, size, h, w); };
    return [=]() mutable { at::_upsample_nearest_exact2d_backward_out(x, y, size, of_x, h, w); };
  }
  if (mode == "linear") {
    if (forward) return [=]() mutable { at::upsample_bilinear2d_out(y, x, size, aligned, h, w); };
    return [=]() mutable { at::upsample_bilinear2d_backward_out(x, y, size, of_x, aligned, h, w); };
  }
  if (forward) return [=]() mutable { at::upsample_bicubic2d_out(y, x, size, aligned, h, w); };
  return [=]() mutable { at::upsample_bicubic2d_backward_out(x, y, size, of_x, aligned, h, w); };
}

}  // namespace
}  // namespace isobit::peers
