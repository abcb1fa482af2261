// SPDX-License-Identifier: Apache-2.0
// The functions of isobit/operators.h: each hands on what its struct says.
// Made by tools/faces.py from the operators' descriptions; changes belong there.
#include "isobit/capi/arguments.h"
#include "isobit/capi/observing.h"

using namespace isobit;

isobit_status isobit_elementwise_add(const isobit_elementwise_add_args* args,
                                     const isobit_context* context) {
  return capi::call("elementwise", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("elementwise", read_args, execution,
                                     [&] { elementwise::run(read_args, execution); });
                    });
}

isobit_status isobit_elementwise_increment(const isobit_elementwise_increment_args* args,
                                           const isobit_context* context) {
  return capi::call("elementwise", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("elementwise", read_args, execution,
                                     [&] { elementwise::run(read_args, execution); });
                    });
}

isobit_status isobit_layernorm_forward(const isobit_layernorm_forward_args* args,
                                       const isobit_context* context) {
  return capi::call("layernorm", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("layernorm", read_args, execution,
                                     [&] { layernorm::forward(read_args, execution); });
                    });
}

isobit_status isobit_layernorm_backward(const isobit_layernorm_backward_args* args,
                                        const isobit_context* context) {
  return capi::call("layernorm backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("layernorm backward", read_args, execution,
                                     [&] { layernorm::backward(read_args, execution); });
                    });
}

isobit_status isobit_rmsnorm_forward(const isobit_rmsnorm_forward_args* args,
                                     const isobit_context* context) {
  return capi::call("rmsnorm", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("rmsnorm", read_args, execution,
                                     [&] { rmsnorm::forward(read_args, execution); });
                    });
}

isobit_status isobit_rmsnorm_backward(const isobit_rmsnorm_backward_args* args,
                                      const isobit_context* context) {
  return capi::call("rmsnorm backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("rmsnorm backward", read_args, execution,
                                     [&] { rmsnorm::backward(read_args, execution); });
                    });
}

isobit_status isobit_transpose(const isobit_transpose_args* args, const isobit_context* context) {
  return capi::call("transpose", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("transpose", read_args, execution,
                                     [&] { transpose::run(read_args, execution); });
                    });
}

isobit_status isobit_activation_forward(const isobit_activation_forward_args* args,
                                        const isobit_context* context) {
  return capi::call("activation", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("activation", read_args, execution,
                                     [&] { activation::forward(read_args, execution); });
                    });
}

isobit_status isobit_activation_backward(const isobit_activation_backward_args* args,
                                         const isobit_context* context) {
  return capi::call("activation backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("activation backward", read_args, execution,
                                     [&] { activation::backward(read_args, execution); });
                    });
}

isobit_status isobit_rope_forward(const isobit_rope_forward_args* args,
                                  const isobit_context* context) {
  return capi::call("rope", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("rope", read_args, execution,
                                     [&] { rope::forward(read_args, execution); });
                    });
}

isobit_status isobit_rope_backward(const isobit_rope_backward_args* args,
                                   const isobit_context* context) {
  return capi::call("rope backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("rope backward", read_args, execution,
                                     [&] { rope::backward(read_args, execution); });
                    });
}

isobit_status isobit_rope_tables(const isobit_rope_tables_args* args,
                                 const isobit_context* context) {
  return capi::call("rope_tables", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("rope_tables", read_args, execution,
                                     [&] { rope_tables::run(read_args, execution); });
                    });
}

isobit_status isobit_random(const isobit_random_args* args, const isobit_context* context) {
  return capi::call("random", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("random", read_args, execution,
                                     [&] { random::run(read_args, execution); });
                    });
}

isobit_status isobit_dropout(const isobit_dropout_args* args, const isobit_context* context) {
  return capi::call("dropout", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("dropout", read_args, execution,
                                     [&] { dropout::run(read_args, execution); });
                    });
}

isobit_status isobit_pointwise_loss_forward(const isobit_pointwise_loss_forward_args* args,
                                            const isobit_context* context) {
  return capi::call("pointwise_loss", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("pointwise_loss", read_args, execution,
                                     [&] { pointwise_loss::forward(read_args, execution); });
                    });
}

isobit_status isobit_pointwise_loss_backward(const isobit_pointwise_loss_backward_args* args,
                                             const isobit_context* context) {
  return capi::call("pointwise_loss backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("pointwise_loss backward", read_args, execution,
                                     [&] { pointwise_loss::backward(read_args, execution); });
                    });
}

isobit_status isobit_scan_sum(const isobit_scan_sum_args* args, const isobit_context* context) {
  return capi::call("scan", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("scan", read_args, execution,
                                     [&] { scan::run(read_args, execution); });
                    });
}

isobit_status isobit_scan_prod(const isobit_scan_prod_args* args, const isobit_context* context) {
  return capi::call("scan", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("scan", read_args, execution,
                                     [&] { scan::run(read_args, execution); });
                    });
}

isobit_status isobit_scan_max(const isobit_scan_max_args* args, const isobit_context* context) {
  return capi::call("scan", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("scan", read_args, execution,
                                     [&] { scan::run(read_args, execution); });
                    });
}

isobit_status isobit_scan_min(const isobit_scan_min_args* args, const isobit_context* context) {
  return capi::call("scan", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("scan", read_args, execution,
                                     [&] { scan::run(read_args, execution); });
                    });
}

isobit_status isobit_scan_logsumexp(const isobit_scan_logsumexp_args* args,
                                    const isobit_context* context) {
  return capi::call("scan", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("scan", read_args, execution,
                                     [&] { scan::run(read_args, execution); });
                    });
}

isobit_status isobit_matmul(const isobit_matmul_args* args, const isobit_context* context) {
  return capi::call("matmul", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("matmul", read_args, execution,
                                     [&] { matmul::forward(read_args, execution); });
                    });
}

isobit_status isobit_matmul_backward(const isobit_matmul_backward_args* args,
                                     const isobit_context* context) {
  return capi::call("matmul backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("matmul backward", read_args, execution,
                                     [&] { matmul::backward(read_args, execution); });
                    });
}

isobit_status isobit_layernorm_linear_forward(const isobit_layernorm_linear_forward_args* args,
                                              const isobit_context* context) {
  return capi::call("layernorm_linear", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("layernorm_linear", read_args, execution,
                                     [&] { layernorm_linear::forward(read_args, execution); });
                    });
}

isobit_status isobit_layernorm_linear_backward(const isobit_layernorm_linear_backward_args* args,
                                               const isobit_context* context) {
  return capi::call("layernorm_linear backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("layernorm_linear backward", read_args, execution,
                                     [&] { layernorm_linear::backward(read_args, execution); });
                    });
}

isobit_status isobit_rmsnorm_linear_forward(const isobit_rmsnorm_linear_forward_args* args,
                                            const isobit_context* context) {
  return capi::call("rmsnorm_linear", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("rmsnorm_linear", read_args, execution,
                                     [&] { rmsnorm_linear::forward(read_args, execution); });
                    });
}

isobit_status isobit_rmsnorm_linear_backward(const isobit_rmsnorm_linear_backward_args* args,
                                             const isobit_context* context) {
  return capi::call("rmsnorm_linear backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("rmsnorm_linear backward", read_args, execution,
                                     [&] { rmsnorm_linear::backward(read_args, execution); });
                    });
}

isobit_status isobit_conv1d(const isobit_conv1d_args* args, const isobit_context* context) {
  return capi::call("conv1d", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("conv1d", read_args, execution,
                                     [&] { conv1d::forward(read_args, execution); });
                    });
}

isobit_status isobit_conv1d_backward(const isobit_conv1d_backward_args* args,
                                     const isobit_context* context) {
  return capi::call("conv1d backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("conv1d backward", read_args, execution,
                                     [&] { conv1d::backward(read_args, execution); });
                    });
}

isobit_status isobit_conv2d(const isobit_conv2d_args* args, const isobit_context* context) {
  return capi::call("conv2d", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("conv2d", read_args, execution,
                                     [&] { conv2d::forward(read_args, execution); });
                    });
}

isobit_status isobit_conv2d_backward(const isobit_conv2d_backward_args* args,
                                     const isobit_context* context) {
  return capi::call("conv2d backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("conv2d backward", read_args, execution,
                                     [&] { conv2d::backward(read_args, execution); });
                    });
}

isobit_status isobit_attention_forward(const isobit_attention_forward_args* args,
                                       const isobit_context* context) {
  return capi::call("attention", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("attention", read_args, execution,
                                     [&] { attention::forward(read_args, execution); });
                    });
}

isobit_status isobit_attention_backward(const isobit_attention_backward_args* args,
                                        const isobit_context* context) {
  return capi::call("attention backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("attention backward", read_args, execution,
                                     [&] { attention::backward(read_args, execution); });
                    });
}

isobit_status isobit_softmax_forward(const isobit_softmax_forward_args* args,
                                     const isobit_context* context) {
  return capi::call("softmax", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("softmax", read_args, execution,
                                     [&] { softmax::forward(read_args, execution); });
                    });
}

isobit_status isobit_softmax_backward(const isobit_softmax_backward_args* args,
                                      const isobit_context* context) {
  return capi::call("softmax backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("softmax backward", read_args, execution,
                                     [&] { softmax::backward(read_args, execution); });
                    });
}

isobit_status isobit_pool2d_forward(const isobit_pool2d_forward_args* args,
                                    const isobit_context* context) {
  return capi::call("pool2d", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("pool2d", read_args, execution,
                                     [&] { pool2d::forward(read_args, execution); });
                    });
}

isobit_status isobit_pool2d_backward(const isobit_pool2d_backward_args* args,
                                     const isobit_context* context) {
  return capi::call("pool2d backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("pool2d backward", read_args, execution,
                                     [&] { pool2d::backward(read_args, execution); });
                    });
}

isobit_status isobit_cross_entropy_forward(const isobit_cross_entropy_forward_args* args,
                                           const isobit_context* context) {
  return capi::call("cross_entropy", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("cross_entropy", read_args, execution,
                                     [&] { cross_entropy::forward(read_args, execution); });
                    });
}

isobit_status isobit_cross_entropy_backward(const isobit_cross_entropy_backward_args* args,
                                            const isobit_context* context) {
  return capi::call("cross_entropy backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("cross_entropy backward", read_args, execution,
                                     [&] { cross_entropy::backward(read_args, execution); });
                    });
}

isobit_status isobit_linear_cross_entropy_forward(
    const isobit_linear_cross_entropy_forward_args* args, const isobit_context* context) {
  return capi::call("linear_cross_entropy", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("linear_cross_entropy", read_args, execution,
                                     [&] { linear_cross_entropy::forward(read_args, execution); });
                    });
}

isobit_status isobit_linear_cross_entropy_backward(
    const isobit_linear_cross_entropy_backward_args* args, const isobit_context* context) {
  return capi::call("linear_cross_entropy backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("linear_cross_entropy backward", read_args, execution,
                                     [&] { linear_cross_entropy::backward(read_args, execution); });
                    });
}

isobit_status isobit_embedding_forward(const isobit_embedding_forward_args* args,
                                       const isobit_context* context) {
  return capi::call("embedding", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("embedding", read_args, execution,
                                     [&] { embedding::forward(read_args, execution); });
                    });
}

isobit_status isobit_embedding_backward(const isobit_embedding_backward_args* args,
                                        const isobit_context* context) {
  return capi::call("embedding backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("embedding backward", read_args, execution,
                                     [&] { embedding::backward(read_args, execution); });
                    });
}

isobit_status isobit_group_norm_forward(const isobit_group_norm_forward_args* args,
                                        const isobit_context* context) {
  return capi::call("group_norm", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("group_norm", read_args, execution,
                                     [&] { group_norm::forward(read_args, execution); });
                    });
}

isobit_status isobit_group_norm_backward(const isobit_group_norm_backward_args* args,
                                         const isobit_context* context) {
  return capi::call("group_norm backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("group_norm backward", read_args, execution,
                                     [&] { group_norm::backward(read_args, execution); });
                    });
}

isobit_status isobit_batch_norm_forward(const isobit_batch_norm_forward_args* args,
                                        const isobit_context* context) {
  return capi::call("batch_norm", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("batch_norm", read_args, execution,
                                     [&] { batch_norm::forward(read_args, execution); });
                    });
}

isobit_status isobit_batch_norm_backward(const isobit_batch_norm_backward_args* args,
                                         const isobit_context* context) {
  return capi::call("batch_norm backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("batch_norm backward", read_args, execution,
                                     [&] { batch_norm::backward(read_args, execution); });
                    });
}

isobit_status isobit_sgd(const isobit_sgd_args* args, const isobit_context* context) {
  return capi::call("sgd", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("sgd", read_args, execution,
                                     [&] { sgd::run(read_args, execution); });
                    });
}

isobit_status isobit_adam(const isobit_adam_args* args, const isobit_context* context) {
  return capi::call("adam", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("adam", read_args, execution,
                                     [&] { adam::run(read_args, execution); });
                    });
}

isobit_status isobit_lion(const isobit_lion_args* args, const isobit_context* context) {
  return capi::call("lion", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("lion", read_args, execution,
                                     [&] { lion::run(read_args, execution); });
                    });
}

isobit_status isobit_vector_norm(const isobit_vector_norm_args* args,
                                 const isobit_context* context) {
  return capi::call("vector_norm", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("vector_norm", read_args, execution,
                                     [&] { vector_norm::run(read_args, execution); });
                    });
}

isobit_status isobit_interpolate_forward(const isobit_interpolate_forward_args* args,
                                         const isobit_context* context) {
  return capi::call("interpolate", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("interpolate", read_args, execution,
                                     [&] { interpolate::forward(read_args, execution); });
                    });
}

isobit_status isobit_interpolate_backward(const isobit_interpolate_backward_args* args,
                                          const isobit_context* context) {
  return capi::call("interpolate backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("interpolate backward", read_args, execution,
                                     [&] { interpolate::backward(read_args, execution); });
                    });
}

isobit_status isobit_reduce_forward(const isobit_reduce_forward_args* args,
                                    const isobit_context* context) {
  return capi::call("reduce", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("reduce", read_args, execution,
                                     [&] { reduce::forward(read_args, execution); });
                    });
}

isobit_status isobit_reduce_backward(const isobit_reduce_backward_args* args,
                                     const isobit_context* context) {
  return capi::call("reduce backward", args, context,
                    [](const auto& given, const capi::Reader& read, const Execution& execution) {
                      const auto read_args = capi::arguments(given, read);
                      capi::observed("reduce backward", read_args, execution,
                                     [&] { reduce::backward(read_args, execution); });
                    });
}
