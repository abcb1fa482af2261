// SPDX-License-Identifier: Apache-2.0
// oneDNN as a peer: LayerNorm and products as its users get them, primitives and memory made once,
// then executed.
#include <omp.h>

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

#include "bench/peers/adapter.h"

namespace isobit::peers {
namespace {

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;

const auto kAffine = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;

memory::data_type data_type_named(std::string_view name) {
  if (name == "f32") return memory::data_type::f32;
  if (name == "bf16") return memory::data_type::bf16;
  throw Declined("no " + std::string(name) + " here");
}

// The three shapes of LayerNorm, and where its arrays live.
class Setting {
 public:
  explicit Setting(const IsobitPeerCase& c)
      : engine(dnnl::engine::kind::cpu, 0),
        stream(engine),
        matrix({dim(c, "rows"), dim(c, "cols")}, data_type_named(c.dtype), memory::format_tag::ab),
        per_col({dim(c, "cols")}, memory::data_type::f32, memory::format_tag::a),
        per_row({dim(c, "rows")}, memory::data_type::f32, memory::format_tag::a),
        case_(c) {
    if (c.weight_dtype != std::string_view("f32")) throw Declined("scale and shift must be f32");
  }

  memory at(const memory::desc& desc, std::string_view name) const {
    return memory(desc, engine, array(case_, name));
  }
  memory own(const memory::desc& desc) const { return memory(desc, engine); }

  dnnl::engine engine;
  dnnl::stream stream;
  memory::desc matrix, per_col, per_row;

 private:
  const IsobitPeerCase& case_;
};

dnnl::layer_normalization_forward::primitive_desc forward_desc(const Setting& s, double eps) {
  return {s.engine,  dnnl::prop_kind::forward_training, s.matrix, s.matrix,
          s.per_row, static_cast<float>(eps),           kAffine};
}

// oneDNN saves the variance where others save rstd, so the case's rstd stays unwritten; the bytes
// are the same.
Arguments forward_arguments(const Setting& s) {
  return {{DNNL_ARG_SRC, s.at(s.matrix, "x")},         {DNNL_ARG_DST, s.at(s.matrix, "y")},
          {DNNL_ARG_SCALE, s.at(s.per_col, "weight")}, {DNNL_ARG_SHIFT, s.at(s.per_col, "bias")},
          {DNNL_ARG_MEAN, s.at(s.per_row, "mean")},    {DNNL_ARG_VARIANCE, s.own(s.per_row)}};
}

memory variance_of(const Setting& s, const IsobitPeerCase& c) {
  const auto* rstd = static_cast<const float*>(array(c, "rstd"));
  memory variance = s.own(s.per_row);
  auto* out = static_cast<float*>(variance.get_data_handle());
  const double eps = option(c, "eps").number;
  std::transform(rstd, rstd + dim(c, "rows"), out, [&](double value) {
    return static_cast<float>(std::max(1 / (value * value) - eps, 0.0));
  });
  return variance;
}

// Version 3.2 refuses to run without a shift, though no gradient depends on it.
Arguments backward_arguments(const Setting& s, const IsobitPeerCase& c) {
  return {{DNNL_ARG_SRC, s.at(s.matrix, "x")},
          {DNNL_ARG_DIFF_DST, s.at(s.matrix, "grad_y")},
          {DNNL_ARG_DIFF_SRC, s.at(s.matrix, "grad_x")},
          {DNNL_ARG_SCALE, s.at(s.per_col, "weight")},
          {DNNL_ARG_SHIFT, s.own(s.per_col)},
          {DNNL_ARG_DIFF_SCALE, s.at(s.per_col, "grad_weight")},
          {DNNL_ARG_DIFF_SHIFT, s.at(s.per_col, "grad_bias")},
          {DNNL_ARG_MEAN, s.at(s.per_row, "mean")},
          {DNNL_ARG_VARIANCE, variance_of(s, c)}};
}

// One product, or a batch of them.
Call matmul(const IsobitPeerCase& c) {
  decline_unless_known(c, {"arithmetic"});  // it has its own
  for (const char* name : {"bias", "c", "residual", "pre"})
    if (find(c, name) != nullptr) throw Declined("no " + std::string(name) + " here");
  if (std::string_view(c.y_dtype) != c.dtype) throw Declined("y must have the dtype of a");
  const int threads = c.threads;
  omp_set_num_threads(threads);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto matrices = [&](const char* name, const char* rows, const char* cols) {
    return memory::desc({dim(c, "batch"), dim(c, rows), dim(c, cols)}, data_type_named(c.dtype),
                        is_transposed(c, name) ? memory::format_tag::acb : memory::format_tag::abc);
  };
  const memory::desc a = matrices("a", "m", "k"), b = matrices("b", "k", "n"),
                     y = matrices("y", "m", "n");
  const dnnl::matmul primitive(dnnl::matmul::primitive_desc(engine, a, b, y));
  const Arguments arguments = {{DNNL_ARG_SRC, memory(a, engine, array(c, "a"))},
                               {DNNL_ARG_WEIGHTS, memory(b, engine, array(c, "b"))},
                               {DNNL_ARG_DST, memory(y, engine, array(c, "y"))}};
  return [threads, primitive, arguments, stream = dnnl::stream(engine)]() mutable {
    omp_set_num_threads(threads);
    primitive.execute(stream, arguments);
    stream.wait();
  };
}

Call prepare(const IsobitPeerCase& c) {
  const std::string_view op = c.op, pass = c.pass;
  if (op == "matmul" && pass == "fwd") return matmul(c);
  if (op != "layernorm" || (pass != "fwd" && pass != "bwd"))
    throw Declined("no " + std::string(op) + ' ' + std::string(pass) + " here");
  decline_residual(c);
  decline_unless_known(c, {"eps"});
  if (std::string_view(c.y_dtype) != c.dtype) throw Declined("y must have the dtype of x");

  // A primitive remembers the number of threads it was made for; OpenMP's setting is the whole
  // process's, so that other peers may have changed it between the calls.
  const int threads = c.threads;
  omp_set_num_threads(threads);
  const Setting s(c);
  const auto call = [threads, stream = s.stream](dnnl::primitive primitive, Arguments arguments) {
    return [=]() mutable {
      omp_set_num_threads(threads);
      primitive.execute(stream, arguments);
      stream.wait();
    };
  };

  const double eps = option(c, "eps").number;
  const auto forward = forward_desc(s, eps);
  if (pass == "fwd") return call(dnnl::layer_normalization_forward(forward), forward_arguments(s));
  const dnnl::layer_normalization_backward::primitive_desc backward(
      s.engine, dnnl::prop_kind::backward, s.matrix, s.matrix, s.matrix, s.per_row,
      static_cast<float>(eps), kAffine, forward);
  return call(dnnl::layer_normalization_backward(backward), backward_arguments(s, c));
}

// Of the library that was loaded, not of the headers.
std::string loaded_version() {
  const dnnl_version_t& v = *dnnl_version();
  return std::to_string(v.major) + '.' + std::to_string(v.minor) + '.' + std::to_string(v.patch);
}

}  // namespace
}  // namespace isobit::peers

extern "C" __attribute__((visibility("default"))) const IsobitPeer* isobit_peer() {
  using namespace isobit::peers;
  static const std::string version = loaded_version();
  static const IsobitPeer peer = adapt<prepare>("onednn", version.c_str());
  return &peer;
}
