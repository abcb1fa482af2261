// SPDX-License-Identifier: Apache-2.0
// PyTorch's eager CPU operators as a peer, writing into memory that lives from call to call.
#include <ATen/Parallel.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/cummin.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/log.h>
#include <ATen/ops/logcumsumexp.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <c10/core/InferenceMode.h>
#include <torch/headeronly/version.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bench/peers/adapter.h"
#include "bench/peers/torch_channel_norms.h"
#include "bench/peers/torch_images.h"
#include "bench/peers/torch_layers.h"
#include "bench/peers/torch_memory.h"
#include "bench/peers/torch_tables.h"

namespace isobit::peers {
namespace {

// The case's arrays as tensors.
class Setting {
 public:
  // `normalised` is the array that stands for x.
  explicit Setting(const IsobitPeerCase& c, std::string_view normalised = "x")
      : case_(c),
        normalised_(normalised),
        dtype_(scalar_type_named(c.dtype)),
        weight_dtype_(scalar_type_named(c.weight_dtype)) {}

  void require_layernorm_types() const {
    const bool mixed = weight_dtype_ == at::kFloat && at::isReducedFloatingType(dtype_);
    if (!at::isFloatingType(dtype_) || (weight_dtype_ != dtype_ && !mixed))
      throw Declined(std::string("no x in ") + case_.dtype + " with weights in " +
                     case_.weight_dtype);
  }

  std::int64_t rows() const { return dim(case_, "rows"); }
  std::int64_t cols() const { return dim(case_, "cols"); }
  double eps() const { return option(case_, "eps").number; }

  at::Tensor matrix(std::string_view name) const {
    return view(name == "x" ? normalised_ : name, {rows(), cols()}, dtype_);
  }
  at::Tensor per_col(std::string_view name) const { return view(name, {cols()}, weight_dtype_); }
  at::Tensor per_row(std::string_view name) const {
    return view(name, {rows()}, dtype_ == at::kDouble ? at::kDouble : at::kFloat);
  }
  // PyTorch keeps mean and rstd in the weight's dtype: a copy where that is not the case's.
  at::Tensor statistic(std::string_view name) const { return per_row(name).to(weight_dtype_); }

 private:
  at::Tensor view(std::string_view name, at::IntArrayRef sizes, at::ScalarType dtype) const {
    return at::from_blob(array(case_, name), sizes, at::TensorOptions(dtype));
  }

  const IsobitPeerCase& case_;
  std::string_view normalised_;
  at::ScalarType dtype_, weight_dtype_;
};

// These call the kernels below native_layer_norm and native_layer_norm_backward: the public
// functions allocate what they return, and their out= forms copy it from there.
Call layernorm_forward(const Setting& s) {
  return [x = s.matrix("x"), weight = s.per_col("weight"), bias = s.per_col("bias"),
          rows = s.rows(), cols = s.cols(), eps = s.eps(), y = s.matrix("y"),
          mean = s.statistic("mean"), rstd = s.statistic("rstd")]() mutable {
    at::native::LayerNormKernel(at::kCPU, x, weight, bias, rows, cols, eps, &y, &mean, &rstd);
  };
}

Call layernorm_backward(const Setting& s) {
  return [grad_y = s.matrix("grad_y"), x = s.matrix("x"), mean = s.statistic("mean"),
          rstd = s.statistic("rstd"), weight = s.per_col("weight"), rows = s.rows(),
          cols = s.cols(), grad_x = s.matrix("grad_x"), grad_weight = s.per_col("grad_weight"),
          grad_bias = s.per_col("grad_bias")]() mutable {
    at::native::LayerNormBackwardKernel(at::kCPU, grad_y, x, mean, rstd, weight, rows, cols,
                                        &grad_x, &grad_weight, &grad_bias);
  };
}

// A composite of operators that allocate, as users have it; there is no form with an output.
Call rmsnorm_forward(const Setting& s) {
  return [x = s.matrix("x"), weight = s.per_col("weight"), cols = s.cols(), eps = s.eps(),
          y = s.matrix("y")]() mutable { y = at::rms_norm(x, {cols}, weight, eps); };
}

// x + residual into sum, of which the norm then makes y.
Call of_sum(const Setting& s, Call norm) {
  return [x = s.matrix("x"), residual = s.matrix("residual"), sum = s.matrix("sum"),
          norm = std::move(norm)]() mutable {
    at::add_out(sum, x, residual);
    norm();
  };
}

// The gradient that flows into sum elsewhere is added to the norm's.
Call with_grad_sum(const Setting& s, Call norm) {
  return [grad_x = s.matrix("grad_x"), grad_sum = s.matrix("grad_sum"),
          norm = std::move(norm)]() mutable {
    norm();
    at::add_out(grad_x, grad_x, grad_sum);
  };
}

Call elementwise(const Setting& s, std::string_view kind) {
  const at::Tensor x = s.matrix("x");
  at::Tensor y = s.matrix("y");
  if (kind == "add")
    return [x, residual = s.matrix("residual"), y]() mutable { at::add_out(y, x, residual); };
  if (kind == "increment")
    return [x, one = at::ones({}, x.options()), y]() mutable { at::add_out(y, x, one); };
  throw Declined("no elementwise " + std::string(kind) + " here");
}

// y = f(x), into memory that is there.
using OfTensor = void (*)(at::Tensor& y, const at::Tensor& x);
OfTensor function_named(std::string_view name) {
  if (name == "exp") return [](at::Tensor& y, const at::Tensor& x) { at::exp_out(y, x); };
  if (name == "log") return [](at::Tensor& y, const at::Tensor& x) { at::log_out(y, x); };
  if (name == "sigmoid") return [](at::Tensor& y, const at::Tensor& x) { at::sigmoid_out(y, x); };
  if (name == "tanh") return [](at::Tensor& y, const at::Tensor& x) { at::tanh_out(y, x); };
  if (name == "silu") return [](at::Tensor& y, const at::Tensor& x) { at::silu_out(y, x); };
  if (name == "gelu") return [](at::Tensor& y, const at::Tensor& x) { at::gelu_out(y, x); };
  if (name == "gelu_tanh")
    return [](at::Tensor& y, const at::Tensor& x) { at::gelu_out(y, x, "tanh"); };
  throw Declined("no " + std::string(name) + " here");
}

// With a gate, two operators and what lies between them.
Call activation(const IsobitPeerCase& c, const Setting& s) {
  const OfTensor function = function_named(option(c, "function").text);
  if (find(c, "gate") == nullptr)
    return [function, x = s.matrix("x"), y = s.matrix("y")]() mutable { function(y, x); };
  const at::Tensor gate = s.matrix("gate");
  return [function, x = s.matrix("x"), gate, activated = at::empty_like(gate),
          y = s.matrix("y")]() mutable {
    function(activated, gate);
    at::mul_out(y, x, activated);
  };
}

// Of those whose gradients are one operator of x.
Call activation_backward(const IsobitPeerCase& c, const Setting& s) {
  const std::string_view function = option(c, "function").text;
  if (find(c, "gate") != nullptr) throw Declined("no gradient of a gate here");
  const at::Tensor x = s.matrix("x"), grad_y = s.matrix("grad_y");
  at::Tensor grad_x = s.matrix("grad_x");
  if (function == "silu")
    return [x, grad_y, grad_x]() mutable { at::silu_backward_out(grad_x, grad_y, x); };
  if (function == "gelu" || function == "gelu_tanh")
    return [x, grad_y, grad_x, kind = function == "gelu" ? "none" : "tanh"]() mutable {
      at::gelu_backward_out(grad_x, grad_y, x, kind);
    };
  throw Declined("no gradient of " + std::string(function) + " here");
}

Call softmax(const IsobitPeerCase& c, const Setting& s, bool forward) {
  if (find(c, "mask") != nullptr) throw Declined("no mask here");
  if (std::string_view(c.y_dtype) != c.dtype) throw Declined("no result of another type here");
  const bool log = option(c, "log").number != 0;
  if (forward)
    return [log, x = s.matrix("x"), y = s.matrix("y")]() mutable {
      log ? at::_log_softmax_out(y, x, -1, false) : at::_softmax_out(y, x, -1, false);
    };
  const at::Tensor y = s.matrix("y"), grad_y = s.matrix("grad_y");
  return [log, y, grad_y, dtype = y.scalar_type(), grad_x = s.matrix("grad_x")]() mutable {
    log ? at::_log_softmax_backward_data_out(grad_x, grad_y, y, -1, dtype)
        : at::_softmax_backward_data_out(grad_x, grad_y, y, -1, dtype);
  };
}

// One sweep, which casts on its way.
Call transpose(const IsobitPeerCase& c) {
  const std::int64_t batch = dim(c, "batch"), rows = dim(c, "rows"), cols = dim(c, "cols");
  const at::Tensor x =
      at::from_blob(array(c, "x"), {batch, rows, cols}, at::dtype(scalar_type_named(c.dtype)));
  const at::Tensor y =
      at::from_blob(array(c, "y"), {batch, cols, rows}, at::dtype(scalar_type_named(c.y_dtype)));
  return [from = x.transpose(-1, -2), y] { y.copy_(from); };
}

// Extremes come with where they stand, whether the case asks for it or not.
Call scan(const IsobitPeerCase& c) {
  for (const char* name : {"init", "reset"})
    if (find(c, name) != nullptr) throw Declined("no " + std::string(name) + " here");
  const at::IntArrayRef::value_type sizes[] = {dim(c, "outer"), dim(c, "length"), dim(c, "inner")};
  const at::ScalarType y_dtype = scalar_type_named(c.y_dtype);
  const at::Tensor x =
      at::from_blob(array(c, "x"), sizes, at::TensorOptions(scalar_type_named(c.dtype)));
  at::Tensor y = at::from_blob(array(c, "y"), sizes, at::TensorOptions(y_dtype));
  const std::string_view kind = option(c, "kind").text;
  if (kind == "sum") return [x, y, y_dtype]() mutable { at::cumsum_out(y, x, 1, y_dtype); };
  if (kind == "prod") return [x, y, y_dtype]() mutable { at::cumprod_out(y, x, 1, y_dtype); };
  if (x.scalar_type() != y_dtype) throw Declined("y must have the dtype of x");
  if (kind == "logsumexp") return [x, y]() mutable { at::logcumsumexp_out(y, x, 1); };
  void* const places = find(c, "index");
  at::Tensor index = places != nullptr ? at::from_blob(places, sizes, at::TensorOptions(at::kLong))
                                       : at::empty(sizes, at::TensorOptions(at::kLong));
  if (kind == "max") return [x, y, index]() mutable { at::cummax_out(y, index, x, 1); };
  if (kind == "min") return [x, y, index]() mutable { at::cummin_out(y, index, x, 1); };
  throw Declined("no scan " + std::string(kind) + " here");
}

// The index of what is largest is always found, since PyTorch has no form without.
Call pool2d(const IsobitPeerCase& c, bool forward) {
  const auto sides = [&](const std::string& name) {
    return std::array{static_cast<std::int64_t>(option(c, (name + "_h").c_str()).number),
                      static_cast<std::int64_t>(option(c, (name + "_w").c_str()).number)};
  };
  const std::int64_t of_x[] = {dim(c, "batch"), dim(c, "channels"), dim(c, "height"),
                               dim(c, "width")};
  const std::int64_t of_y[] = {of_x[0], of_x[1], dim(c, "out_height"), dim(c, "out_width")};
  const at::TensorOptions real(scalar_type_named(c.dtype)), places(at::kLong);
  at::Tensor x = at::from_blob(array(c, forward ? "x" : "grad_x"), of_x, real);
  at::Tensor y = at::from_blob(array(c, forward ? "y" : "grad_y"), of_y, real);
  const auto window = sides("window"), padding = sides("padding"), dilation = sides("dilation");
  auto stride = sides("stride");
  for (std::size_t i = 0; i < 2; ++i)
    if (stride[i] == 0) stride[i] = window[i];
  const bool late = option(c, "ceil_mode").number != 0;
  const bool largest = std::string_view(option(c, "reduction").text) == "max";
  if (window[0] == 0 || window[1] == 0) {
    if (largest || !forward || window[0] != window[1]) throw Declined("no such bins here");
    return [x, y, bins = sides("bins")]() mutable { at::adaptive_avg_pool2d_out(y, x, bins); };
  }
  if (largest) {
    void* const given = find(c, "index");
    at::Tensor index =
        given != nullptr ? at::from_blob(given, of_y, places) : at::empty(of_y, places);
    if (forward)
      return [=]() mutable {
        at::max_pool2d_with_indices_out(y, index, x, window, stride, padding, dilation, late);
      };
    return [=, like = at::empty(of_x, real)]() mutable {
      at::max_pool2d_with_indices_backward_out(x, y, like, window, stride, padding, dilation, late,
                                               index);
    };
  }
  const bool counts = option(c, "count_include_pad").number != 0;
  const auto divisor = static_cast<std::int64_t>(option(c, "divisor").number);
  const std::optional<std::int64_t> by =
      divisor == 0 ? std::nullopt : std::optional<std::int64_t>(divisor);
  if (forward)
    return [=]() mutable { at::avg_pool2d_out(y, x, window, stride, padding, late, counts, by); };
  return [=, like = at::empty(of_x, real)]() mutable {
    at::avg_pool2d_backward_out(x, y, like, window, stride, padding, late, counts, by);
  };
}

// As models write it: q cos + rotate_half(q) sin, in the dtype of q.
Call rope(const IsobitPeerCase& c) {
  if (find(c, "cos") == nullptr) throw Declined("no rope without tables here");
  if (find(c, "positions") != nullptr) throw Declined("no positions here");
  if (std::string_view(option(c, "style").text) != "half") throw Declined("no other style here");
  const at::ScalarType dtype = scalar_type_named(c.dtype);
  const std::int64_t batch = dim(c, "batch"), seq = dim(c, "seq"), head_dim = dim(c, "head_dim");
  if (dim(c, "pairs") * 2 != head_dim) throw Declined("no partial rotation here");
  const auto table = [&](const char* name) {
    const at::Tensor given =
        at::from_blob(array(c, name), {dim(c, "table"), head_dim / 2},
                      at::TensorOptions(dtype == at::kDouble ? at::kDouble : at::kFloat));
    return at::cat({given, given}, -1).narrow(0, 0, seq).to(dtype).unsqueeze(1);
  };
  const auto turned = [cos = table("cos"), sin = table("sin"), head_dim](const at::Tensor& of) {
    const at::Tensor first = of.narrow(-1, 0, head_dim / 2);
    const at::Tensor second = of.narrow(-1, head_dim / 2, head_dim / 2);
    return of.mul(cos).add(at::cat({second.neg(), first}, -1).mul(sin));
  };
  const auto heads = [&](const char* name, const char* count) {
    return at::from_blob(array(c, name), {batch, seq, dim(c, count), head_dim},
                         at::TensorOptions(dtype));
  };
  const at::Tensor q = heads("q", "heads");
  at::Tensor y_q = heads("y_q", "heads");
  if (find(c, "k") == nullptr) return [turned, q, y_q]() mutable { y_q = turned(q); };
  return [turned, q, y_q, k = heads("k", "kv_heads"), y_k = heads("y_k", "kv_heads")]() mutable {
    y_q = turned(q);
    y_k = turned(k);
  };
}

at::Tensor matrices(const IsobitPeerCase& c, const char* name, const char* rows, const char* cols) {
  const bool transposed = is_transposed(c, name);
  const at::Tensor all = at::from_blob(
      array(c, name),
      {dim(c, "batch"), dim(c, transposed ? cols : rows), dim(c, transposed ? rows : cols)},
      at::TensorOptions(scalar_type_named(c.dtype)));
  const at::Tensor some = dim(c, "batch") == 1 ? all[0] : all;
  return transposed ? some.mT() : some;
}

Call matmul_backward(const IsobitPeerCase& c) {
  for (const char* name : {"pre", "grad_c"})
    if (find(c, name) != nullptr) throw Declined("no " + std::string(name) + " here");
  if (std::string_view(c.y_dtype) != c.dtype) throw Declined("grad_y must have the dtype of a");
  if (dim(c, "batch") != 1) throw Declined("one product only");
  const at::Tensor grad = matrices(c, "grad_y", "m", "n"), a = matrices(c, "a", "m", "k"),
                   b = matrices(c, "b", "k", "n");
  at::Tensor grad_a = matrices(c, "grad_a", "m", "k"), grad_b = matrices(c, "grad_b", "k", "n"),
             grad_bias;
  if (find(c, "grad_bias") != nullptr)
    grad_bias = at::from_blob(array(c, "grad_bias"), {dim(c, "n")},
                              at::TensorOptions(scalar_type_named(c.weight_dtype)));
  return [=]() mutable {
    at::mm_out(grad_a, grad, b.t());
    at::mm_out(grad_b, a.t(), grad);
    if (grad_bias.defined()) at::sum_out(grad_bias, grad, at::IntArrayRef{0});
  };
}

Call matmul(const IsobitPeerCase& c) {
  for (const char* name : {"bias", "c", "residual", "pre"})
    if (find(c, name) != nullptr) throw Declined("no " + std::string(name) + " here");
  if (std::string_view(c.y_dtype) != c.dtype) throw Declined("y must have the dtype of a");
  const at::Tensor a = matrices(c, "a", "m", "k"), b = matrices(c, "b", "k", "n");
  at::Tensor y = matrices(c, "y", "m", "n");
  if (dim(c, "batch") == 1) return [a, b, y]() mutable { at::mm_out(y, a, b); };
  return [a, b, y]() mutable { at::bmm_out(y, a, b); };
}

Call choose(const IsobitPeerCase& c) {
  const std::string op = c.op, pass = c.pass;
  const Setting s(c);
  const bool norm_op = op == "layernorm" || op == "rmsnorm";
  if (norm_op) decline_unless_known(c, {"eps"});
  if (norm_op && std::string_view(c.y_dtype) != c.dtype)
    throw Declined("y must have the dtype of x");
  if (op == "layernorm") s.require_layernorm_types();
  const bool sums = find(c, "residual") != nullptr;
  const Setting norm(c, sums ? "sum" : "x");
  if (op == "layernorm" && pass == "fwd")
    return sums ? of_sum(s, layernorm_forward(norm)) : layernorm_forward(norm);
  if (op == "rmsnorm" && pass == "fwd")
    return sums ? of_sum(s, rmsnorm_forward(norm)) : rmsnorm_forward(norm);
  if (op == "layernorm" && pass == "bwd")
    return find(c, "grad_sum") != nullptr ? with_grad_sum(s, layernorm_backward(s))
                                          : layernorm_backward(s);
  if (op == "elementwise" && pass == "fwd") {
    decline_unless_known(c, {"kind"});
    return elementwise(s, option(c, "kind").text);
  }
  if (op == "activation") {
    decline_unless_known(c, {"function"});
    return pass == "fwd" ? activation(c, s) : activation_backward(c, s);
  }
  if (op == "softmax") {
    decline_unless_known(c, {"log"});
    return softmax(c, s, pass == "fwd");
  }
  if (op == "scan" && pass == "fwd") {
    decline_unless_known(c, {"kind"});
    return scan(c);
  }
  if (op == "rope" && pass == "fwd") {
    decline_unless_known(c, {"style"});
    return rope(c);
  }
  if (op == "matmul") {  // its own arithmetic, whichever is asked for
    decline_unless_known(c, {"arithmetic"});
    return pass == "fwd" ? matmul(c) : matmul_backward(c);
  }
  if (op == "layernorm_linear" || op == "rmsnorm_linear") {
    const Linear linear(c, op == "layernorm_linear");
    return pass == "fwd" ? linear.forward() : linear.backward();
  }
  if (op == "attention") {
    decline_unless_known(c, {"causal"});
    return attention(c, pass);
  }
  if (op == "conv1d") {
    decline_unless_known(c, {"stride", "padding", "dilation", "extra_padding", "groups"});
    return convolution(c, pass == "fwd");
  }
  if (op == "conv2d") {
    decline_unless_known(c, {"stride_h", "stride_w", "padding_h", "padding_w", "dilation_h",
                             "dilation_w", "extra_padding_h", "extra_padding_w", "groups"});
    return convolution(c, pass == "fwd");
  }
  if (op == "batch_norm") {
    decline_unless_known(c, {"training", "momentum", "eps"});
    return ChannelNorm(c).batch(pass == "fwd");
  }
  if (op == "group_norm") {
    decline_unless_known(c, {"groups", "eps"});
    return ChannelNorm(c).group(pass == "fwd");
  }
  if (op == "pool2d") {
    decline_unless_known(c, {"reduction", "window_h", "window_w", "bins_h", "bins_w", "stride_h",
                             "stride_w", "padding_h", "padding_w", "dilation_h", "dilation_w",
                             "ceil_mode", "count_include_pad", "divisor"});
    return pool2d(c, pass == "fwd");
  }
  if (op == "interpolate") {
    decline_unless_known(c, {"mode", "align_corners", "scale_h", "scale_w"});
    return interpolate(c, pass == "fwd");
  }
  if (op == "embedding") {
    decline_unless_known(c, {"padding_idx", "scale_grad_by_freq"});
    return embedding(c, pass == "fwd");
  }
  if (op == "transpose" && pass == "fwd") {
    decline_unless_known(c, {});
    return transpose(c);
  }
  throw Declined("no " + op + ' ' + pass + " here");
}

Call prepare(const IsobitPeerCase& c) {
  const c10::InferenceMode no_autograd;
  // The setting is the whole process's, so that other peers may have changed it between the calls.
  return [run = choose(c), threads = c.threads] {
    const c10::InferenceMode no_autograd;
    if (at::get_num_threads() != threads) at::set_num_threads(threads);
    run();
  };
}

}  // namespace
}  // namespace isobit::peers

extern "C" __attribute__((visibility("default"))) const IsobitPeer* isobit_peer() {
  using namespace isobit::peers;
  static const IsobitPeer peer = [] {
    IsobitPeer made = adapt<prepare>("torch", TORCH_VERSION);
    made.most_allocated = [](void* handle) { return most_allocated(*static_cast<Call*>(handle)); };
    return made;
  }();
  return &peer;
}
