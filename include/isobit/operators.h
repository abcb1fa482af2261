/* SPDX-License-Identifier: Apache-2.0
 * Every operator as a struct and a function. isobit.h, which includes this file, has the
 * rules that hold for all. Made by tools/faces.py from the operators' descriptions; changes belong
 * there. */
#ifndef ISOBIT_H
#include "isobit/isobit.h"
#endif

#ifndef ISOBIT_OPERATORS_H
#define ISOBIT_OPERATORS_H

#ifdef __cplusplus
extern "C" {
#endif

/* y = x + residual (add) or x + 1 (increment), rounded once; integers wrap around. */
typedef struct isobit_elementwise_add_args {
  size_t struct_size;
  const isobit_tensor* x;        /* in f32, f16, bf16, f64 or i32; rows evenly spaced */
  const isobit_tensor* residual; /* like x; with kind add only */
  const isobit_tensor* y;        /* output, like x; may be x or residual */
} isobit_elementwise_add_args;

ISOBIT_API isobit_status isobit_elementwise_add(const isobit_elementwise_add_args* args,
                                                const isobit_context* context);

/* y = x + residual (add) or x + 1 (increment), rounded once; integers wrap around. */
typedef struct isobit_elementwise_increment_args {
  size_t struct_size;
  const isobit_tensor* x; /* in f32, f16, bf16, f64 or i32; rows evenly spaced */
  const isobit_tensor* y; /* output, like x; may be x or residual */
} isobit_elementwise_increment_args;

ISOBIT_API isobit_status isobit_elementwise_increment(const isobit_elementwise_increment_args* args,
                                                      const isobit_context* context);

/* y = (x - mean) / sqrt(variance + eps) * weight + bias, each row (the last dimensions) by
 * itself. With residual or dropout, s = dropout(x) + residual takes the place of x, rounded to
 * the dtype of x. `hidden` stands for the last hidden_dims dimensions of x, whose elements must
 * then be adjacent; rows are evenly spaced. */
typedef struct isobit_layernorm_forward_args {
  size_t struct_size;
  const isobit_tensor* x;        /* (..., hidden) in f32, f16, bf16 or f64 */
  const isobit_tensor* weight;   /* (hidden), in x's dtype or f32, optional */
  const isobit_tensor* bias;     /* (hidden), in weight's dtype, optional */
  const isobit_tensor* residual; /* like x, optional */
  const isobit_tensor*
      y; /* output, (..., hidden) in f32, f16 or bf16 (f64 beside f64); may be x or residual */
  const isobit_tensor*
      sum; /* output, like x: dropout(x) + residual; may be x or residual, optional */
  const isobit_tensor* mean; /* output, (rows) in f32 (f64 beside f64), optional */
  const isobit_tensor* rstd; /* output, (rows) in f32 (f64 beside f64), optional */
  double eps;                /* any number in the range of float */
  double dropout;            /* the probability with which an element of x is dropped; below 1 */
  uint64_t dropout_seed;     /* what is dropped depends on it, the row and the column alone */
  int64_t hidden_dims;       /* so many last dimensions of x are normalised together; 0 is 1 */
  int32_t zero_centered;     /* not 0: weight is stored less 1 */
} isobit_layernorm_forward_args;

ISOBIT_API isobit_status isobit_layernorm_forward(const isobit_layernorm_forward_args* args,
                                                  const isobit_context* context);

/* The gradients of layernorm_forward. Without mean and rstd both are computed from x again,
 * which costs no memory traffic and is more exact than what any float can hold. */
typedef struct isobit_layernorm_backward_args {
  size_t struct_size;
  const isobit_tensor* x;      /* (..., hidden): what was normalised, so sum where there was one */
  const isobit_tensor* grad_y; /* like forward's y */
  const isobit_tensor* weight; /* (hidden), optional */
  const isobit_tensor* mean; /* (rows), as forward gave it; both statistics or neither, optional */
  const isobit_tensor* rstd; /* (rows), as forward gave it, optional */
  const isobit_tensor* grad_sum; /* like x: the gradient that flows into sum elsewhere, optional */
  const isobit_tensor* grad_x;   /* output, like x; may be x, grad_y or grad_sum, optional */
  const isobit_tensor*
      grad_residual; /* output, the same; with dropout only: without, it equals grad_x, optional */
  const isobit_tensor* grad_weight; /* output, (hidden), in weight's dtype; without weight in x's
                                       dtype or f32, optional */
  const isobit_tensor* grad_bias;   /* output, (hidden), like grad_weight, optional */
  double eps;                       /* any number in the range of float */
  double dropout;        /* the probability with which an element of x is dropped; below 1 */
  uint64_t dropout_seed; /* what is dropped depends on it, the row and the column alone */
  int64_t hidden_dims;   /* so many last dimensions of x are normalised together; 0 is 1 */
  int32_t zero_centered; /* not 0: weight is stored less 1 */
} isobit_layernorm_backward_args;

ISOBIT_API isobit_status isobit_layernorm_backward(const isobit_layernorm_backward_args* args,
                                                   const isobit_context* context);

/* y = x / sqrt(mean(x^2) + eps) * weight, each row (the last dimensions) by itself. With
 * residual or dropout, s = dropout(x) + residual takes the place of x, rounded to the dtype of
 * x. `hidden` stands for the last hidden_dims dimensions of x, whose elements must then be
 * adjacent; rows are evenly spaced. */
typedef struct isobit_rmsnorm_forward_args {
  size_t struct_size;
  const isobit_tensor* x;        /* (..., hidden) in f32, f16, bf16 or f64 */
  const isobit_tensor* weight;   /* (hidden), in x's dtype or f32, optional */
  const isobit_tensor* residual; /* like x, optional */
  const isobit_tensor*
      y; /* output, (..., hidden) in f32, f16 or bf16 (f64 beside f64); may be x or residual */
  const isobit_tensor*
      sum; /* output, like x: dropout(x) + residual; may be x or residual, optional */
  const isobit_tensor* rstd; /* output, (rows) in f32 (f64 beside f64), optional */
  double eps;                /* any number in the range of float */
  double dropout;            /* the probability with which an element of x is dropped; below 1 */
  uint64_t dropout_seed;     /* what is dropped depends on it, the row and the column alone */
  int64_t hidden_dims;       /* so many last dimensions of x are normalised together; 0 is 1 */
  int32_t zero_centered;     /* not 0: weight is stored less 1 */
} isobit_rmsnorm_forward_args;

ISOBIT_API isobit_status isobit_rmsnorm_forward(const isobit_rmsnorm_forward_args* args,
                                                const isobit_context* context);

/* The gradients of rmsnorm_forward. Without rstd it is computed from x again, which costs no
 * memory traffic and is more exact than what any float can hold. */
typedef struct isobit_rmsnorm_backward_args {
  size_t struct_size;
  const isobit_tensor* x;      /* (..., hidden): what was normalised, so sum where there was one */
  const isobit_tensor* grad_y; /* like forward's y */
  const isobit_tensor* weight; /* (hidden), optional */
  const isobit_tensor* rstd;   /* (rows), as forward gave it, optional */
  const isobit_tensor* grad_sum; /* like x: the gradient that flows into sum elsewhere, optional */
  const isobit_tensor* grad_x;   /* output, like x; may be x, grad_y or grad_sum, optional */
  const isobit_tensor*
      grad_residual; /* output, the same; with dropout only: without, it equals grad_x, optional */
  const isobit_tensor* grad_weight; /* output, (hidden), in weight's dtype; without weight in x's
                                       dtype or f32, optional */
  double eps;                       /* any number in the range of float */
  double dropout;        /* the probability with which an element of x is dropped; below 1 */
  uint64_t dropout_seed; /* what is dropped depends on it, the row and the column alone */
  int64_t hidden_dims;   /* so many last dimensions of x are normalised together; 0 is 1 */
  int32_t zero_centered; /* not 0: weight is stored less 1 */
} isobit_rmsnorm_backward_args;

ISOBIT_API isobit_status isobit_rmsnorm_backward(const isobit_rmsnorm_backward_args* args,
                                                 const isobit_context* context);

/* y[..., j, i] = x[..., i, j]. Where the dtypes are equal, y has the very bytes of x; else each
 * element is rounded once. */
typedef struct isobit_transpose_args {
  size_t struct_size;
  const isobit_tensor* x; /* (..., rows, cols) in any dtype and of any strides */
  const isobit_tensor* y; /* output, (..., cols, rows) in x's dtype, or floating beside a floating
                             x; of any strides */
} isobit_transpose_args;

ISOBIT_API isobit_status isobit_transpose(const isobit_transpose_args* args,
                                          const isobit_context* context);

/* y = f(x), or x * f(gate), of each element; f is exp, log, sigmoid, tanh, gelu, gelu_tanh or
 * silu. */
typedef struct isobit_activation_forward_args {
  size_t struct_size;
  const isobit_tensor* x;    /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* gate; /* like x, or NULL; y = x * f(gate), optional */
  const isobit_tensor* y;    /* output, like x; may be x or gate */
  int32_t function;          /* 0 exp, 1 log, 2 sigmoid, 3 tanh, 4 gelu, 5 gelu_tanh, 6 silu */
} isobit_activation_forward_args;

ISOBIT_API isobit_status isobit_activation_forward(const isobit_activation_forward_args* args,
                                                   const isobit_context* context);

/* The gradients of activation_forward: grad_x = grad_y * f'(x); with a gate, grad_y * f(gate),
 * and grad_gate = grad_y * x * f'(gate). */
typedef struct isobit_activation_backward_args {
  size_t struct_size;
  const isobit_tensor* x;         /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* grad_y;    /* like x */
  const isobit_tensor* gate;      /* like x, or NULL, as in forward, optional */
  const isobit_tensor* grad_x;    /* output, like x; may be x, grad_y or gate */
  const isobit_tensor* grad_gate; /* output, like x, or NULL, as it is without a gate; may be x,
                                     grad_y or gate, optional */
  int32_t function;               /* 0 exp, 1 log, 2 sigmoid, 3 tanh, 4 gelu, 5 gelu_tanh, 6 silu */
} isobit_activation_backward_args;

ISOBIT_API isobit_status isobit_activation_backward(const isobit_activation_backward_args* args,
                                                    const isobit_context* context);

/* Rotary position embeddings of queries, and of keys with as many heads or others: each pair (a,
 * b) of a head becomes (a cos - b sin, b cos + a sin). */
typedef struct isobit_rope_forward_args {
  size_t struct_size;
  const isobit_tensor*
      q; /* (batch, seq, heads, head_dim) in f32, f16, bf16 or f64, of any strides */
  const isobit_tensor*
      k; /* (batch, seq, kv_heads, head_dim) in q's dtype, of any strides, optional */
  const isobit_tensor* cos; /* (positions, rotary_dim / 2) in f32, or f64 beside f64; NULL: computed
                               from base, optional */
  const isobit_tensor* sin; /* like cos; both are given or neither, optional */
  const isobit_tensor* positions; /* (batch, seq) or (seq) in i64; NULL: 0, 1, 2, ..., optional */
  const isobit_tensor* y_q;       /* output, like q; may be q */
  const isobit_tensor* y_k;       /* output, like k, beside it; may be k, optional */
  double base; /* of the frequencies, where tables are computed; from 1 to 2^100; 0 is 10000 */
  int64_t offset_positions; /* added to every position */
  int64_t rotary_dim;       /* elements of a head that turn, the first ones; 0: all pairs of it */
  int32_t style; /* 0 half: elements i and i + rotary_dim / 2 are a pair; 1 interleaved: 2i and 2i +
                    1 */
} isobit_rope_forward_args;

ISOBIT_API isobit_status isobit_rope_forward(const isobit_rope_forward_args* args,
                                             const isobit_context* context);

/* The gradients of rope_forward: each pair (a, b) of a head's gradient becomes (a cos + b sin, b
 * cos - a sin). */
typedef struct isobit_rope_backward_args {
  size_t struct_size;
  const isobit_tensor*
      grad_y_q; /* (batch, seq, heads, head_dim) in f32, f16, bf16 or f64, of any strides */
  const isobit_tensor*
      grad_y_k; /* (batch, seq, kv_heads, head_dim) in grad_y_q's dtype, of any strides, optional */
  const isobit_tensor* cos; /* (positions, rotary_dim / 2) in f32, or f64 beside f64; NULL: computed
                               from base, optional */
  const isobit_tensor* sin; /* like cos; both are given or neither, optional */
  const isobit_tensor* positions; /* (batch, seq) or (seq) in i64; NULL: 0, 1, 2, ..., optional */
  const isobit_tensor* grad_q;    /* output, like grad_y_q; may be grad_y_q */
  const isobit_tensor* grad_k;    /* output, like grad_y_k, beside it; may be grad_y_k, optional */
  double base; /* of the frequencies, where tables are computed; from 1 to 2^100; 0 is 10000 */
  int64_t offset_positions; /* added to every position */
  int64_t rotary_dim;       /* elements of a head that turn, the first ones; 0: all pairs of it */
  int32_t style; /* 0 half: elements i and i + rotary_dim / 2 are a pair; 1 interleaved: 2i and 2i +
                    1 */
} isobit_rope_backward_args;

ISOBIT_API isobit_status isobit_rope_backward(const isobit_rope_backward_args* args,
                                              const isobit_context* context);

/* The cosines and sines that rope turns by: of the angles position * inv_freq, in f64, rounded
 * once. */
typedef struct isobit_rope_tables_args {
  size_t struct_size;
  const isobit_tensor*
      inv_freq; /* f32 or f64, or NULL: base^(-i / pairs), rounded to f64, optional */
  const isobit_tensor* positions; /* i64, or NULL: 0, 1, 2, ..., optional */
  const isobit_tensor* cos;       /* output, f32 or f64; rows evenly spaced */
  const isobit_tensor* sin;       /* output, like cos */
  double base;                    /* of the frequencies; from 1 to 2^100; 0 is 10000 */
  int64_t offset_positions;       /* added to every position */
} isobit_rope_tables_args;

ISOBIT_API isobit_status isobit_rope_tables(const isobit_rope_tables_args* args,
                                            const isobit_context* context);

/* Random numbers, each a function of the seed and of its place: uniform, normal, normal within
 * bounds, or 0 and 1. */
typedef struct isobit_random_args {
  size_t struct_size;
  const isobit_tensor* y; /* output, in f32, f16, bf16 or f64; rows evenly spaced */
  double low;             /* the least number of uniform and of truncated_normal */
  double
      high; /* the end of uniform, which is not reached; the largest number of truncated_normal */
  double mean;            /* of normal; of truncated_normal, before it is cut */
  double std;             /* likewise; not negative, and above 0 where it is cut */
  double p;               /* of bernoulli: the probability of 1 */
  uint64_t random_seed;   /* names one of 2^64 sequences */
  uint64_t random_offset; /* of the first element in the sequence */
  int32_t distribution;   /* 0 uniform, 1 normal, 2 truncated_normal, 3 bernoulli */
} isobit_random_args;

ISOBIT_API isobit_status isobit_random(const isobit_random_args* args,
                                       const isobit_context* context);

/* Each element of x is 0 with probability p, else x / (1 - p); which ones depends on the seed
 * and on their places. */
typedef struct isobit_dropout_args {
  size_t struct_size;
  const isobit_tensor* x; /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* y; /* output, like x; may be x */
  double p;               /* the probability of an element to become 0; from 0 to 1 */
  uint64_t dropout_seed;  /* of the mask, with an element's row and column */
} isobit_dropout_args;

ISOBIT_API isobit_status isobit_dropout(const isobit_dropout_args* args,
                                        const isobit_context* context);

/* The loss of each element and its target: squared, absolute, either by distance, or the cross
 * entropy of a logit. */
typedef struct isobit_pointwise_loss_forward_args {
  size_t struct_size;
  const isobit_tensor* x;      /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* target; /* like x */
  const isobit_tensor* weight; /* like x, or NULL; what each loss is multiplied by, optional */
  const isobit_tensor*
      pos_weight; /* like x, or NULL; of bce_with_logits: how much targets of 1 count, optional */
  const isobit_tensor* loss; /* output, of each element in f32 (f64 beside f64) */
  double beta;      /* of smooth_l1 and huber: the distance from which they are straight; huber's is
                       above 0 */
  int32_t function; /* 0 mse, 1 l1, 2 smooth_l1, 3 huber, 4 bce_with_logits */
} isobit_pointwise_loss_forward_args;

ISOBIT_API isobit_status isobit_pointwise_loss_forward(
    const isobit_pointwise_loss_forward_args* args, const isobit_context* context);

/* The gradient of pointwise_loss_forward by x. */
typedef struct isobit_pointwise_loss_backward_args {
  size_t struct_size;
  const isobit_tensor* x;      /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* target; /* like x */
  const isobit_tensor* weight; /* like x, or NULL; what each loss is multiplied by, optional */
  const isobit_tensor*
      pos_weight; /* like x, or NULL; of bce_with_logits: how much targets of 1 count, optional */
  const isobit_tensor* grad_loss; /* of each element in f32 (f64 beside f64) */
  const isobit_tensor* grad_x;    /* output, like x; may be x or target */
  double beta;      /* of smooth_l1 and huber: the distance from which they are straight; huber's is
                       above 0 */
  int32_t function; /* 0 mse, 1 l1, 2 smooth_l1, 3 huber, 4 bce_with_logits */
} isobit_pointwise_loss_backward_args;

ISOBIT_API isobit_status isobit_pointwise_loss_backward(
    const isobit_pointwise_loss_backward_args* args, const isobit_context* context);

/* Running sums, products, maxima, minima or logsumexps along the dimension before the last. */
typedef struct isobit_scan_sum_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (..., length, inner) in f32, f16, bf16, f64, i32 or i64, and of any strides */
  const isobit_tensor*
      init; /* (..., inner) in the dtype of y, or NULL; what comes before the first, optional */
  const isobit_tensor*
      reset; /* like x in bool or u8, or NULL; not 0 where a segment begins, optional */
  const isobit_tensor*
      y;             /* output, like x, in its dtype or a wider one that is computed in; may be x */
  int32_t exclusive; /* not 0: of what comes before each element only */
  int32_t reverse;   /* not 0: from the end of each segment to its beginning */
} isobit_scan_sum_args;

ISOBIT_API isobit_status isobit_scan_sum(const isobit_scan_sum_args* args,
                                         const isobit_context* context);

/* Running sums, products, maxima, minima or logsumexps along the dimension before the last. */
typedef struct isobit_scan_prod_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (..., length, inner) in f32, f16, bf16, f64, i32 or i64, and of any strides */
  const isobit_tensor*
      init; /* (..., inner) in the dtype of y, or NULL; what comes before the first, optional */
  const isobit_tensor*
      reset; /* like x in bool or u8, or NULL; not 0 where a segment begins, optional */
  const isobit_tensor*
      y;             /* output, like x, in its dtype or a wider one that is computed in; may be x */
  int32_t exclusive; /* not 0: of what comes before each element only */
  int32_t reverse;   /* not 0: from the end of each segment to its beginning */
} isobit_scan_prod_args;

ISOBIT_API isobit_status isobit_scan_prod(const isobit_scan_prod_args* args,
                                          const isobit_context* context);

/* Running sums, products, maxima, minima or logsumexps along the dimension before the last. */
typedef struct isobit_scan_max_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (..., length, inner) in f32, f16, bf16, f64, i32 or i64, and of any strides */
  const isobit_tensor*
      init; /* (..., inner) in the dtype of y, or NULL; what comes before the first, optional */
  const isobit_tensor*
      reset; /* like x in bool or u8, or NULL; not 0 where a segment begins, optional */
  const isobit_tensor*
      y; /* output, like x, in its dtype or a wider one that is computed in; may be x */
  const isobit_tensor* index; /* output, like x in i64, or NULL; for max and min, where it stands;
                                 -1: in init or nowhere, optional */
  int32_t exclusive;          /* not 0: of what comes before each element only */
  int32_t reverse;            /* not 0: from the end of each segment to its beginning */
} isobit_scan_max_args;

ISOBIT_API isobit_status isobit_scan_max(const isobit_scan_max_args* args,
                                         const isobit_context* context);

/* Running sums, products, maxima, minima or logsumexps along the dimension before the last. */
typedef struct isobit_scan_min_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (..., length, inner) in f32, f16, bf16, f64, i32 or i64, and of any strides */
  const isobit_tensor*
      init; /* (..., inner) in the dtype of y, or NULL; what comes before the first, optional */
  const isobit_tensor*
      reset; /* like x in bool or u8, or NULL; not 0 where a segment begins, optional */
  const isobit_tensor*
      y; /* output, like x, in its dtype or a wider one that is computed in; may be x */
  const isobit_tensor* index; /* output, like x in i64, or NULL; for max and min, where it stands;
                                 -1: in init or nowhere, optional */
  int32_t exclusive;          /* not 0: of what comes before each element only */
  int32_t reverse;            /* not 0: from the end of each segment to its beginning */
} isobit_scan_min_args;

ISOBIT_API isobit_status isobit_scan_min(const isobit_scan_min_args* args,
                                         const isobit_context* context);

/* Running sums, products, maxima, minima or logsumexps along the dimension before the last. */
typedef struct isobit_scan_logsumexp_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (..., length, inner) in f32, f16, bf16, f64, i32 or i64, and of any strides */
  const isobit_tensor*
      init; /* (..., inner) in the dtype of y, or NULL; what comes before the first, optional */
  const isobit_tensor*
      reset; /* like x in bool or u8, or NULL; not 0 where a segment begins, optional */
  const isobit_tensor*
      y;             /* output, like x, in its dtype or a wider one that is computed in; may be x */
  int32_t exclusive; /* not 0: of what comes before each element only */
  int32_t reverse;   /* not 0: from the end of each segment to its beginning */
} isobit_scan_logsumexp_args;

ISOBIT_API isobit_status isobit_scan_logsumexp(const isobit_scan_logsumexp_args* args,
                                               const isobit_context* context);

/* y = activation(alpha a b + beta c + bias) + residual, of matrices or batches of them. */
typedef struct isobit_matmul_args {
  size_t struct_size;
  const isobit_tensor* a;    /* (..., m, k) in f32, f16, bf16 or f64, and of any strides */
  const isobit_tensor* b;    /* (..., k, n) in the dtype of a, and of any strides */
  const isobit_tensor* bias; /* (n) in the dtype of a or f32 (beside f64: f64), or NULL, optional */
  const isobit_tensor* c;    /* like y, or NULL; not read where beta is 0, optional */
  const isobit_tensor* residual; /* like y, or NULL; added last, optional */
  const isobit_tensor* y; /* output, (..., m, n) in the dtype of a, f32 beside f16 and bf16, or f16
                             or bf16 beside f32; may be c or residual */
  const isobit_tensor*
      pre;      /* output, like y, or NULL; what the activation is applied to, rounded, optional */
  double alpha; /* times a b */
  double beta;  /* times c; 0: c is not read */
  int32_t activation; /* 0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu */
  int32_t arithmetic; /* 0 canonical, the same bits everywhere; 1 tensor, those of a GPU's tensor
                         cores or of AMX */
} isobit_matmul_args;

ISOBIT_API isobit_status isobit_matmul(const isobit_matmul_args* args,
                                       const isobit_context* context);

/* The gradients of matmul: with s = grad_y activation'(pre), grad_a = alpha s b', grad_b = alpha
 * a' s, grad_bias the sum of s over its rows, grad_c = beta s. */
typedef struct isobit_matmul_backward_args {
  size_t struct_size;
  const isobit_tensor* grad_y; /* (..., m, n), like y of forward */
  const isobit_tensor* a;      /* (..., m, k) in f32, f16, bf16 or f64, and of any strides */
  const isobit_tensor* b;      /* (..., k, n) in the dtype of a, and of any strides */
  const isobit_tensor*
      pre; /* like grad_y: what forward put there; NULL without an activation, optional */
  const isobit_tensor* grad_a;    /* output, like a, or NULL, optional */
  const isobit_tensor* grad_b;    /* output, like b, or NULL, optional */
  const isobit_tensor* grad_bias; /* output, (n) in the dtype of a or f32 (beside f64: f64), or
                                     NULL; the sum over all rows, optional */
  const isobit_tensor*
      grad_c; /* output, like grad_y, or NULL; beta times what forward's c is added to, optional */
  double alpha;       /* times a b */
  double beta;        /* times c; 0: c is not read */
  int32_t activation; /* 0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu */
  int32_t arithmetic; /* 0 canonical, the same bits everywhere; 1 tensor, those of a GPU's tensor
                         cores or of AMX */
} isobit_matmul_backward_args;

ISOBIT_API isobit_status isobit_matmul_backward(const isobit_matmul_backward_args* args,
                                                const isobit_context* context);

/* z = activation(y weight' + bias) + residual, where y = LayerNorm(x), with norm_weight and
 * norm_bias, rounded to the dtype of weight. With x_residual or dropout, s = dropout(x) +
 * x_residual takes the place of x, rounded to the dtype of x. */
typedef struct isobit_layernorm_linear_forward_args {
  size_t struct_size;
  const isobit_tensor* x;           /* (..., cols) in f32, f16, bf16 or f64 */
  const isobit_tensor* norm_weight; /* (cols), in the dtype of x or f32, or NULL, optional */
  const isobit_tensor* norm_bias;   /* (cols), in the dtype of norm_weight, or NULL, optional */
  const isobit_tensor*
      weight; /* (features, cols) in f32, f16 or bf16 (beside f64: f64), of any strides */
  const isobit_tensor*
      bias; /* (features) in the dtype of weight or f32 (beside f64: f64), or NULL, optional */
  const isobit_tensor* x_residual; /* like x, or NULL, optional */
  const isobit_tensor* residual;   /* like z, or NULL; added last, optional */
  const isobit_tensor* z; /* output, (..., features) in the dtype of weight; may be residual */
  const isobit_tensor*
      pre; /* output, like z, or NULL; what the activation is applied to, rounded, optional */
  const isobit_tensor*
      sum; /* output, like x: dropout(x) + x_residual; may be x or x_residual, optional */
  const isobit_tensor*
      y; /* output, like x in the dtype of weight, or NULL; the normalised rows, optional */
  const isobit_tensor* mean; /* output, (rows) in f32 (f64 beside f64), or NULL, optional */
  const isobit_tensor* rstd; /* output, (rows) in f32 (f64 beside f64), or NULL, optional */
  double eps;                /* any number in the range of float */
  double dropout;            /* the probability with which an element of x is dropped; below 1 */
  uint64_t dropout_seed;     /* what is dropped depends on it, the row and the column alone */
  int32_t zero_centered;     /* not 0: norm_weight is stored less 1 */
  int32_t activation;        /* 0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu */
  int32_t arithmetic; /* 0 canonical, the same bits everywhere; 1 tensor, those of a GPU's tensor
                         cores or of AMX */
} isobit_layernorm_linear_forward_args;

ISOBIT_API isobit_status isobit_layernorm_linear_forward(
    const isobit_layernorm_linear_forward_args* args, const isobit_context* context);

/* The gradients of layernorm_linear_forward. Of forward's results it takes pre alone, and that
 * only where there is an activation: statistics and y are computed from x again. */
typedef struct isobit_layernorm_linear_backward_args {
  size_t struct_size;
  const isobit_tensor* grad_z; /* like forward's z */
  const isobit_tensor* x;      /* (..., cols): what was normalised, so sum where there was one */
  const isobit_tensor* norm_weight; /* (cols), optional */
  const isobit_tensor* norm_bias;   /* (cols), for grad_weight, optional */
  const isobit_tensor* weight;      /* (features, cols), of any strides */
  const isobit_tensor*
      pre; /* like grad_z: what forward put there; NULL without an activation, optional */
  const isobit_tensor* grad_sum; /* like x: the gradient that flows into sum elsewhere, optional */
  const isobit_tensor* grad_x;   /* output, like x, or NULL; may be x or grad_sum, optional */
  const isobit_tensor* grad_x_residual; /* output, the same; with dropout only: without, it equals
                                           grad_x, optional */
  const isobit_tensor*
      grad_norm_weight; /* output, (cols), in the dtype of norm_weight, or NULL, optional */
  const isobit_tensor*
      grad_norm_bias; /* output, (cols), like grad_norm_weight, or NULL, optional */
  const isobit_tensor*
      grad_weight; /* output, (features, cols) in the dtype of weight, or NULL, optional */
  const isobit_tensor* grad_bias; /* output, (features) in the dtype of weight or f32 (beside f64:
                                     f64), or NULL, optional */
  double eps;                     /* any number in the range of float */
  double dropout;        /* the probability with which an element of x is dropped; below 1 */
  uint64_t dropout_seed; /* what is dropped depends on it, the row and the column alone */
  int32_t zero_centered; /* not 0: norm_weight is stored less 1 */
  int32_t activation;    /* 0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu */
  int32_t arithmetic;    /* 0 canonical, the same bits everywhere; 1 tensor, those of a GPU's tensor
                            cores or of AMX */
} isobit_layernorm_linear_backward_args;

ISOBIT_API isobit_status isobit_layernorm_linear_backward(
    const isobit_layernorm_linear_backward_args* args, const isobit_context* context);

/* z = activation(y weight' + bias) + residual, where y = RMSNorm(x), with norm_weight, rounded
 * to the dtype of weight. With x_residual or dropout, s = dropout(x) + x_residual takes the
 * place of x, rounded to the dtype of x. */
typedef struct isobit_rmsnorm_linear_forward_args {
  size_t struct_size;
  const isobit_tensor* x;           /* (..., cols) in f32, f16, bf16 or f64 */
  const isobit_tensor* norm_weight; /* (cols), in the dtype of x or f32, or NULL, optional */
  const isobit_tensor*
      weight; /* (features, cols) in f32, f16 or bf16 (beside f64: f64), of any strides */
  const isobit_tensor*
      bias; /* (features) in the dtype of weight or f32 (beside f64: f64), or NULL, optional */
  const isobit_tensor* x_residual; /* like x, or NULL, optional */
  const isobit_tensor* residual;   /* like z, or NULL; added last, optional */
  const isobit_tensor* z; /* output, (..., features) in the dtype of weight; may be residual */
  const isobit_tensor*
      pre; /* output, like z, or NULL; what the activation is applied to, rounded, optional */
  const isobit_tensor*
      sum; /* output, like x: dropout(x) + x_residual; may be x or x_residual, optional */
  const isobit_tensor*
      y; /* output, like x in the dtype of weight, or NULL; the normalised rows, optional */
  const isobit_tensor* rstd; /* output, (rows) in f32 (f64 beside f64), or NULL, optional */
  double eps;                /* any number in the range of float */
  double dropout;            /* the probability with which an element of x is dropped; below 1 */
  uint64_t dropout_seed;     /* what is dropped depends on it, the row and the column alone */
  int32_t zero_centered;     /* not 0: norm_weight is stored less 1 */
  int32_t activation;        /* 0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu */
  int32_t arithmetic; /* 0 canonical, the same bits everywhere; 1 tensor, those of a GPU's tensor
                         cores or of AMX */
} isobit_rmsnorm_linear_forward_args;

ISOBIT_API isobit_status isobit_rmsnorm_linear_forward(
    const isobit_rmsnorm_linear_forward_args* args, const isobit_context* context);

/* The gradients of rmsnorm_linear_forward. Of forward's results it takes pre alone, and that
 * only where there is an activation: statistics and y are computed from x again. */
typedef struct isobit_rmsnorm_linear_backward_args {
  size_t struct_size;
  const isobit_tensor* grad_z; /* like forward's z */
  const isobit_tensor* x;      /* (..., cols): what was normalised, so sum where there was one */
  const isobit_tensor* norm_weight; /* (cols), optional */
  const isobit_tensor* weight;      /* (features, cols), of any strides */
  const isobit_tensor*
      pre; /* like grad_z: what forward put there; NULL without an activation, optional */
  const isobit_tensor* grad_sum; /* like x: the gradient that flows into sum elsewhere, optional */
  const isobit_tensor* grad_x;   /* output, like x, or NULL; may be x or grad_sum, optional */
  const isobit_tensor* grad_x_residual; /* output, the same; with dropout only: without, it equals
                                           grad_x, optional */
  const isobit_tensor*
      grad_norm_weight; /* output, (cols), in the dtype of norm_weight, or NULL, optional */
  const isobit_tensor*
      grad_weight; /* output, (features, cols) in the dtype of weight, or NULL, optional */
  const isobit_tensor* grad_bias; /* output, (features) in the dtype of weight or f32 (beside f64:
                                     f64), or NULL, optional */
  double eps;                     /* any number in the range of float */
  double dropout;        /* the probability with which an element of x is dropped; below 1 */
  uint64_t dropout_seed; /* what is dropped depends on it, the row and the column alone */
  int32_t zero_centered; /* not 0: norm_weight is stored less 1 */
  int32_t activation;    /* 0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu */
  int32_t arithmetic;    /* 0 canonical, the same bits everywhere; 1 tensor, those of a GPU's tensor
                            cores or of AMX */
} isobit_rmsnorm_linear_backward_args;

ISOBIT_API isobit_status isobit_rmsnorm_linear_backward(
    const isobit_rmsnorm_linear_backward_args* args, const isobit_context* context);

/* y = activation(pre) + residual; pre = the sums of x times weight over windows of one
 * dimension, plus bias. */
typedef struct isobit_conv1d_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (batch, channels, length) in f32, f16, bf16 or f64, and of any strides */
  const isobit_tensor*
      weight; /* (filters, channels / groups, kernel) in the dtype of x, and of any strides */
  const isobit_tensor*
      bias; /* (filters) in the dtype of x or f32 (beside f64: f64), or NULL, optional */
  const isobit_tensor* residual; /* like y, or NULL; added last, optional */
  const isobit_tensor* y; /* output, (batch, filters, out_length) in the dtype of x, f32 beside f16
                             and bf16, or f16 or bf16 beside f32; may be residual */
  const isobit_tensor*
      pre; /* output, like y, or NULL; what the activation is applied to, rounded, optional */
  int64_t stride;        /* from a window to the next; 0 is 1 */
  int64_t dilation;      /* from a tap to the next; 0 is 1 */
  int64_t padding;       /* elements before the first */
  int64_t extra_padding; /* so many more behind the last than before the first */
  int64_t groups;        /* groups of channels and filters, each for itself; 0 is 1 */
  int32_t padding_mode;  /* what windows see beyond the edge: 0 zeros, 1 reflect, 2 replicate, 3
                            circular */
  int32_t activation;    /* 0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu */
} isobit_conv1d_args;

ISOBIT_API isobit_status isobit_conv1d(const isobit_conv1d_args* args,
                                       const isobit_context* context);

/* The gradients of conv1d without an activation; grad_x alone is a transposed convolution. */
typedef struct isobit_conv1d_backward_args {
  size_t struct_size;
  const isobit_tensor*
      grad_y;             /* (batch, filters, out_length) in the dtype of x, and of any strides */
  const isobit_tensor* x; /* as in forward; its elements are read for grad_weight alone */
  const isobit_tensor* weight;      /* as in forward; its elements are read for grad_x alone */
  const isobit_tensor* grad_x;      /* output, like x, or NULL, optional */
  const isobit_tensor* grad_weight; /* output, like weight, or NULL, optional */
  const isobit_tensor* grad_bias;   /* output, (filters) in the dtype of x or f32 (beside f64: f64),
                                       or NULL, optional */
  int64_t stride;                   /* from a window to the next; 0 is 1 */
  int64_t dilation;                 /* from a tap to the next; 0 is 1 */
  int64_t padding;                  /* elements before the first */
  int64_t extra_padding;            /* so many more behind the last than before the first */
  int64_t groups;                   /* groups of channels and filters, each for itself; 0 is 1 */
  int32_t padding_mode; /* what windows see beyond the edge: 0 zeros, 1 reflect, 2 replicate, 3
                           circular */
} isobit_conv1d_backward_args;

ISOBIT_API isobit_status isobit_conv1d_backward(const isobit_conv1d_backward_args* args,
                                                const isobit_context* context);

/* y = activation(pre) + residual; pre = the sums of x times weight over windows of images, plus
 * bias. */
typedef struct isobit_conv2d_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (batch, channels, height, width) in f32, f16, bf16 or f64, and of any strides */
  const isobit_tensor* weight; /* (filters, channels / groups, kernel_h, kernel_w) in the dtype of
                                  x, and of any strides */
  const isobit_tensor*
      bias; /* (filters) in the dtype of x or f32 (beside f64: f64), or NULL, optional */
  const isobit_tensor* residual; /* like y, or NULL; added last, optional */
  const isobit_tensor* y; /* output, (batch, filters, out_height, out_width) in the dtype of x, f32
                             beside f16 and bf16, or f16 or bf16 beside f32; may be residual */
  const isobit_tensor*
      pre; /* output, like y, or NULL; what the activation is applied to, rounded, optional */
  int64_t stride_h;        /* from a row of windows to the next; 0 is 1 */
  int64_t stride_w;        /* from a window to the next; 0 is 1 */
  int64_t dilation_h;      /* from a row of taps to the next; 0 is 1 */
  int64_t dilation_w;      /* from a tap to the next; 0 is 1 */
  int64_t padding_h;       /* rows before the first */
  int64_t padding_w;       /* elements before the first of a row */
  int64_t extra_padding_h; /* so many more behind the last row than before the first */
  int64_t extra_padding_w; /* so many more behind a row than before it */
  int64_t groups;          /* groups of channels and filters, each for itself; 0 is 1 */
  int32_t padding_mode;    /* what windows see beyond the edge: 0 zeros, 1 reflect, 2 replicate, 3
                              circular */
  int32_t activation;      /* 0 none, 1 relu, 2 gelu, 3 gelu_tanh, 4 silu */
} isobit_conv2d_args;

ISOBIT_API isobit_status isobit_conv2d(const isobit_conv2d_args* args,
                                       const isobit_context* context);

/* The gradients of conv2d without an activation; grad_x alone is a transposed convolution. */
typedef struct isobit_conv2d_backward_args {
  size_t struct_size;
  const isobit_tensor*
      grad_y; /* (batch, filters, out_height, out_width) in the dtype of x, and of any strides */
  const isobit_tensor* x;           /* as in forward; its elements are read for grad_weight alone */
  const isobit_tensor* weight;      /* as in forward; its elements are read for grad_x alone */
  const isobit_tensor* grad_x;      /* output, like x, or NULL, optional */
  const isobit_tensor* grad_weight; /* output, like weight, or NULL, optional */
  const isobit_tensor* grad_bias;   /* output, (filters) in the dtype of x or f32 (beside f64: f64),
                                       or NULL, optional */
  int64_t stride_h;                 /* from a row of windows to the next; 0 is 1 */
  int64_t stride_w;                 /* from a window to the next; 0 is 1 */
  int64_t dilation_h;               /* from a row of taps to the next; 0 is 1 */
  int64_t dilation_w;               /* from a tap to the next; 0 is 1 */
  int64_t padding_h;                /* rows before the first */
  int64_t padding_w;                /* elements before the first of a row */
  int64_t extra_padding_h;          /* so many more behind the last row than before the first */
  int64_t extra_padding_w;          /* so many more behind a row than before it */
  int64_t groups;                   /* groups of channels and filters, each for itself; 0 is 1 */
  int32_t padding_mode; /* what windows see beyond the edge: 0 zeros, 1 reflect, 2 replicate, 3
                           circular */
} isobit_conv2d_backward_args;

ISOBIT_API isobit_status isobit_conv2d_backward(const isobit_conv2d_backward_args* args,
                                                const isobit_context* context);

/* y = softmax(q k' scale + bias) v, of each query over the keys that it sees. */
typedef struct isobit_attention_forward_args {
  size_t struct_size;
  const isobit_tensor*
      q; /* (batch, heads, seq_q, head_dim) in f32, f16, bf16 or f64, of any strides */
  const isobit_tensor*
      k; /* (batch, kv_heads, seq_k, head_dim) like q; heads is a multiple of kv_heads */
  const isobit_tensor* v;    /* (batch, kv_heads, seq_k, value_dim) like q */
  const isobit_tensor* bias; /* (batch, heads, seq_q, seq_k) like q, or NULL; added to scores;
                                strides of 0 repeat it, optional */
  const isobit_tensor* mask; /* (batch, heads, seq_q, seq_k) in bool, or NULL; true where a key is
                                allowed, optional */
  const isobit_tensor* y;    /* output, (batch, heads, seq_q, value_dim) like q */
  const isobit_tensor* lse;  /* output, (batch, heads, seq_q) in f32 (f64 beside f64), or NULL: the
                                logarithm of the sum of e^score, optional */
  const isobit_tensor* max;  /* output, like lse, or NULL; for backward: a whole number, the largest
                                score times log2 e, optional */
  const isobit_tensor*
      sum; /* output, like lse, or NULL; for backward: the sum of e^score / 2^max, optional */
  int64_t window; /* keys less than this far from the query's own position; 0: all */
  double scale;   /* of q k'; 0: 1 / sqrt(head_dim) */
  double softcap; /* scores become softcap tanh(score / softcap); 0: they do not */
  double dropout; /* probability that a weight is dropped, from 0 to below 1 */
  uint64_t
      dropout_seed; /* of the weights that are dropped, with their batch, head, query and key */
  int32_t causal;   /* 0 no; 1 top_left: query i sees keys up to i; 2 bottom_right: the last query
                       sees keys up to the last */
  const isobit_tensor*
      slopes; /* (batch, heads) in f32 (f64 beside f64), or NULL; scores are lessened by slope |i +
                 seq_k - seq_q - j| of query i and key j; without gradient, optional */
  const isobit_tensor*
      key_begin; /* (batch) in i64, or NULL; the first key that a sequence has; NULL: 0, optional */
  const isobit_tensor* key_end; /* (batch) in i64, or NULL; behind the last key that a sequence has;
                                   NULL: seq_k, optional */
  const isobit_tensor*
      query_starts; /* (sequences + 1) in i64, or NULL; sequences are packed in a batch of 1: the
                       s-th has the queries from query_starts[s] to before query_starts[s + 1], and
                       the bits that it has alone; the first is 0, optional */
  const isobit_tensor* key_starts; /* like query_starts, or NULL; the same of keys, optional */
  const isobit_tensor*
      blocks; /* (sequences, places) in i64, or NULL; k and v are then pools (blocks, kv_heads, keys
                 of a block, elements): key j of sequence s is in block blocks[s, j / keys of a
                 block], and key_end[s] is the number of its keys, optional */
  int32_t arithmetic; /* 0 canonical, the same bits everywhere; 1 tensor, those of a GPU's tensor
                         cores or, of forward on a processor, of AMX */
} isobit_attention_forward_args;

ISOBIT_API isobit_status isobit_attention_forward(const isobit_attention_forward_args* args,
                                                  const isobit_context* context);

/* The gradients of attention, from what forward gave: weights are made anew, and never stored as
 * a whole. */
typedef struct isobit_attention_backward_args {
  size_t struct_size;
  const isobit_tensor* grad_y; /* (batch, heads, seq_q, value_dim) like q */
  const isobit_tensor*
      grad_lse; /* (batch, heads, seq_q) in f32 (f64 beside f64), or NULL, optional */
  const isobit_tensor*
      q; /* (batch, heads, seq_q, head_dim) in f32, f16, bf16 or f64, of any strides */
  const isobit_tensor*
      k; /* (batch, kv_heads, seq_k, head_dim) like q; heads is a multiple of kv_heads */
  const isobit_tensor* v;      /* (batch, kv_heads, seq_k, value_dim) like q */
  const isobit_tensor* bias;   /* (batch, heads, seq_q, seq_k) like q, or NULL; added to scores;
                                  strides of 0 repeat it, optional */
  const isobit_tensor* mask;   /* (batch, heads, seq_q, seq_k) in bool, or NULL; true where a key is
                                  allowed, optional */
  const isobit_tensor* y;      /* as forward gave it */
  const isobit_tensor* max;    /* as forward gave it */
  const isobit_tensor* sum;    /* as forward gave it */
  const isobit_tensor* grad_q; /* output, like q, or NULL, optional */
  const isobit_tensor* grad_k; /* output, like k, or NULL, optional */
  const isobit_tensor* grad_v; /* output, like v, or NULL, optional */
  const isobit_tensor* grad_bias; /* output, (batch, heads, seq_q, seq_k) like q, or NULL; of a bias
                                     that repeats, the terms, optional */
  int64_t window; /* keys less than this far from the query's own position; 0: all */
  double scale;   /* of q k'; 0: 1 / sqrt(head_dim) */
  double softcap; /* scores become softcap tanh(score / softcap); 0: they do not */
  double dropout; /* probability that a weight is dropped, from 0 to below 1 */
  uint64_t
      dropout_seed; /* of the weights that are dropped, with their batch, head, query and key */
  int32_t causal;   /* 0 no; 1 top_left: query i sees keys up to i; 2 bottom_right: the last query
                       sees keys up to the last */
  const isobit_tensor*
      slopes; /* (batch, heads) in f32 (f64 beside f64), or NULL; scores are lessened by slope |i +
                 seq_k - seq_q - j| of query i and key j; without gradient, optional */
  const isobit_tensor*
      key_begin; /* (batch) in i64, or NULL; the first key that a sequence has; NULL: 0, optional */
  const isobit_tensor* key_end; /* (batch) in i64, or NULL; behind the last key that a sequence has;
                                   NULL: seq_k, optional */
  const isobit_tensor*
      query_starts; /* (sequences + 1) in i64, or NULL; sequences are packed in a batch of 1: the
                       s-th has the queries from query_starts[s] to before query_starts[s + 1], and
                       the bits that it has alone; the first is 0, optional */
  const isobit_tensor* key_starts; /* like query_starts, or NULL; the same of keys, optional */
  int32_t arithmetic; /* 0 canonical, the same bits everywhere; 1 tensor, those of a GPU's tensor
                         cores or, of forward on a processor, of AMX */
} isobit_attention_backward_args;

ISOBIT_API isobit_status isobit_attention_backward(const isobit_attention_backward_args* args,
                                                   const isobit_context* context);

/* y = exp(scale x) / sum of exp(scale x) over each row, the last dimension, or with log its
 * logarithm. Where a mask is 0 there is no element: y is 0, or -infinity. */
typedef struct isobit_softmax_forward_args {
  size_t struct_size;
  const isobit_tensor* x; /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor*
      mask;               /* like x in bool or u8, or NULL; 0 where there is no element, optional */
  const isobit_tensor* y; /* output, like x, or f32 beside 16 bits; may be x */
  double scale;           /* of x; 1 for none, and never 0 */
  int32_t log;            /* not 0: y is its logarithm */
} isobit_softmax_forward_args;

ISOBIT_API isobit_status isobit_softmax_forward(const isobit_softmax_forward_args* args,
                                                const isobit_context* context);

/* The gradient of softmax_forward, from its result: scale y (grad_y - sum of grad_y y), or with
 * log scale (grad_y - exp(y) sum of grad_y). 0 where a mask is 0. */
typedef struct isobit_softmax_backward_args {
  size_t struct_size;
  const isobit_tensor* y;      /* as forward gave it; rows evenly spaced */
  const isobit_tensor* grad_y; /* like y */
  const isobit_tensor*
      mask; /* like x in bool or u8, or NULL; 0 where there is no element, optional */
  const isobit_tensor* grad_x; /* output, like y, or 16 bits beside f32; may be grad_y or y */
  double scale;                /* of x; 1 for none, and never 0 */
  int32_t log;                 /* not 0: y is its logarithm */
} isobit_softmax_backward_args;

ISOBIT_API isobit_status isobit_softmax_backward(const isobit_softmax_backward_args* args,
                                                 const isobit_context* context);

/* The largest element or the mean of each window of images. */
typedef struct isobit_pool2d_forward_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (batch, channels, height, width) in f32, f16, bf16 or f64, and of any strides */
  const isobit_tensor* y; /* output, (batch, channels, out_height, out_width) in the dtype of x */
  const isobit_tensor* index; /* output, like y in i64, or NULL; for max, where it stands: row *
                                 width + column; -1: nowhere, optional */
  int64_t window_h;           /* rows of a window; 0: bins_h windows share the height */
  int64_t window_w;           /* elements of a row of it; 0: bins_w windows share the width */
  int64_t bins_h;             /* windows above one another, where window_h is 0; 0 is 1 */
  int64_t bins_w;             /* windows side by side, where window_w is 0; 0 is 1 */
  int64_t stride_h;           /* from a row of windows to the next; 0: window_h */
  int64_t stride_w;           /* from a window to the next; 0: window_w */
  int64_t padding_h;          /* rows before the first and behind the last */
  int64_t padding_w;          /* elements before the first and behind the last of a row */
  int64_t dilation_h;         /* from a row of a window to its next, of max; 0 is 1 */
  int64_t dilation_w;         /* from an element to its next, of max; 0 is 1 */
  int64_t divisor;   /* what sums are divided by to be means; 0: how many elements they have */
  int32_t reduction; /* 0 max, 1 average */
  int32_t ceil_mode; /* not 0: windows may end behind the padding */
  int32_t count_include_pad; /* not 0: means are divided by a count that has the padding too */
} isobit_pool2d_forward_args;

ISOBIT_API isobit_status isobit_pool2d_forward(const isobit_pool2d_forward_args* args,
                                               const isobit_context* context);

/* The gradient of pool2d_forward: the sums of the gradients of windows that an element was the
 * largest of, or had a part in the mean of. */
typedef struct isobit_pool2d_backward_args {
  size_t struct_size;
  const isobit_tensor* grad_y; /* (batch, channels, out_height, out_width) in the dtype of grad_x */
  const isobit_tensor* index;  /* like grad_y in i64, as forward gave it; for average NULL */
  const isobit_tensor* grad_x; /* output, (batch, channels, height, width) in f32, f16, bf16 or f64,
                                  and of any strides */
  int64_t window_h;            /* rows of a window; 0: bins_h windows share the height */
  int64_t window_w;            /* elements of a row of it; 0: bins_w windows share the width */
  int64_t bins_h;              /* windows above one another, where window_h is 0; 0 is 1 */
  int64_t bins_w;              /* windows side by side, where window_w is 0; 0 is 1 */
  int64_t stride_h;            /* from a row of windows to the next; 0: window_h */
  int64_t stride_w;            /* from a window to the next; 0: window_w */
  int64_t padding_h;           /* rows before the first and behind the last */
  int64_t padding_w;           /* elements before the first and behind the last of a row */
  int64_t dilation_h;          /* from a row of a window to its next, of max; 0 is 1 */
  int64_t dilation_w;          /* from an element to its next, of max; 0 is 1 */
  int64_t divisor;   /* what sums are divided by to be means; 0: how many elements they have */
  int32_t reduction; /* 0 max, 1 average */
  int32_t ceil_mode; /* not 0: windows may end behind the padding */
  int32_t count_include_pad; /* not 0: means are divided by a count that has the padding too */
} isobit_pool2d_backward_args;

ISOBIT_API isobit_status isobit_pool2d_backward(const isobit_pool2d_backward_args* args,
                                                const isobit_context* context);

/* The loss of each row of logits beside the class that it should have named, w[target] ((1 -
 * label_smoothing) (lse - x[target]) + z_loss lse^2) + label_smoothing / cols * sum of w[c] (lse
 * - x[c]), with lse = log(sum of exp(x)) and w the weights. Where a target is ignore_index it is
 * 0; any other that is no class is an error, on a device NaN. */
typedef struct isobit_cross_entropy_forward_args {
  size_t struct_size;
  const isobit_tensor* x; /* logits in f32, f16, bf16 or f64, of a class each; rows evenly spaced */
  const isobit_tensor* target; /* a class for each row in i64, or ignore_index; adjacent */
  const isobit_tensor*
      weight; /* of each class in f32 (f64 beside f64), or NULL; adjacent, optional */
  const isobit_tensor* loss; /* output, for each row in f32 (f64 beside f64); adjacent */
  const isobit_tensor*
      lse; /* output, like loss, or NULL; the logarithm of the sum of exp(logit), optional */
  const isobit_tensor*
      largest; /* output, like loss, or NULL; for backward: the largest logit, optional */
  const isobit_tensor*
      sum; /* output, like loss, or NULL; for backward: the sum of exp(logit - largest), optional */
  const isobit_tensor*
      total; /* output, one element like loss's, or NULL; the sum of loss, optional */
  const isobit_tensor* count; /* output, like total, or NULL; the sum of the targets' weights: total
                                 / count is the mean, optional */
  int64_t ignore_index;       /* rows of this target have no part in any loss; -100 for none */
  double label_smoothing;     /* 0 to 1: the part of the loss that all classes share */
  double z_loss;              /* the factor of lse^2; 0 for none */
} isobit_cross_entropy_forward_args;

ISOBIT_API isobit_status isobit_cross_entropy_forward(const isobit_cross_entropy_forward_args* args,
                                                      const isobit_context* context);

/* The gradient of the logits of cross_entropy_forward, from those of its losses. 0 in rows whose
 * target is ignore_index. */
typedef struct isobit_cross_entropy_backward_args {
  size_t struct_size;
  const isobit_tensor* grad_loss; /* for each row in f32 (f64 beside f64); adjacent */
  const isobit_tensor* x; /* logits in f32, f16, bf16 or f64, of a class each; rows evenly spaced */
  const isobit_tensor* target; /* a class for each row in i64, or ignore_index; adjacent */
  const isobit_tensor*
      weight; /* of each class in f32 (f64 beside f64), or NULL; adjacent, optional */
  const isobit_tensor* largest; /* as forward gave it */
  const isobit_tensor* sum;     /* as forward gave it */
  const isobit_tensor* grad_x;  /* output, like x; may be x */
  int64_t ignore_index;         /* rows of this target have no part in any loss; -100 for none */
  double label_smoothing;       /* 0 to 1: the part of the loss that all classes share */
  double z_loss;                /* the factor of lse^2; 0 for none */
} isobit_cross_entropy_backward_args;

ISOBIT_API isobit_status isobit_cross_entropy_backward(
    const isobit_cross_entropy_backward_args* args, const isobit_context* context);

/* The losses of cross_entropy_forward of logits = x weight' + bias, each rounded to the dtype of
 * x, with its bits. Only some rows of logits exist at a time. */
typedef struct isobit_linear_cross_entropy_forward_args {
  size_t struct_size;
  const isobit_tensor* x;      /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* weight; /* like x, a row for each class; rows evenly spaced */
  const isobit_tensor* bias;   /* like x, or f32 beside 16 bits, or NULL; adjacent, optional */
  const isobit_tensor* target; /* a class for each row in i64, or ignore_index; adjacent */
  const isobit_tensor*
      class_weight; /* of each class in f32 (f64 beside f64), or NULL; adjacent, optional */
  const isobit_tensor* loss; /* output, for each row in f32 (f64 beside f64); adjacent */
  const isobit_tensor*
      lse; /* output, like loss, or NULL; the logarithm of the sum of exp(logit), optional */
  const isobit_tensor*
      largest; /* output, like loss, or NULL; for backward: the largest logit, optional */
  const isobit_tensor*
      sum; /* output, like loss, or NULL; for backward: the sum of exp(logit - largest), optional */
  const isobit_tensor*
      total; /* output, one element like loss's, or NULL; the sum of loss, optional */
  const isobit_tensor* count; /* output, like total, or NULL; the sum of the targets' weights: total
                                 / count is the mean, optional */
  int64_t ignore_index;       /* rows of this target have no part in any loss; -100 for none */
  double label_smoothing;     /* 0 to 1: the part of the loss that all classes share */
  double z_loss;              /* the factor of lse^2; 0 for none */
} isobit_linear_cross_entropy_forward_args;

ISOBIT_API isobit_status isobit_linear_cross_entropy_forward(
    const isobit_linear_cross_entropy_forward_args* args, const isobit_context* context);

/* The gradients of linear_cross_entropy_forward, with the bits of matmul's of those of the
 * logits, which are made anew, some rows at a time. */
typedef struct isobit_linear_cross_entropy_backward_args {
  size_t struct_size;
  const isobit_tensor* grad_loss; /* for each row in f32 (f64 beside f64); adjacent */
  const isobit_tensor* x;         /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* weight;    /* like x, a row for each class; rows evenly spaced */
  const isobit_tensor* bias;      /* like x, or f32 beside 16 bits, or NULL; adjacent, optional */
  const isobit_tensor* target;    /* a class for each row in i64, or ignore_index; adjacent */
  const isobit_tensor*
      class_weight; /* of each class in f32 (f64 beside f64), or NULL; adjacent, optional */
  const isobit_tensor* largest;     /* as forward gave it */
  const isobit_tensor* sum;         /* as forward gave it */
  const isobit_tensor* grad_x;      /* output, like x, or NULL; may be x, optional */
  const isobit_tensor* grad_weight; /* output, like weight, or NULL, optional */
  const isobit_tensor*
      grad_bias; /* output, (classes) like x, or f32 beside 16 bits, or NULL; adjacent, optional */
  int64_t ignore_index;   /* rows of this target have no part in any loss; -100 for none */
  double label_smoothing; /* 0 to 1: the part of the loss that all classes share */
  double z_loss;          /* the factor of lse^2; 0 for none */
} isobit_linear_cross_entropy_backward_args;

ISOBIT_API isobit_status isobit_linear_cross_entropy_backward(
    const isobit_linear_cross_entropy_backward_args* args, const isobit_context* context);

/* y[i] = weight[index[i]]: rows of a table by their numbers, the very bytes. An index that is no
 * token is an error; on a device its row is NaN. */
typedef struct isobit_embedding_forward_args {
  size_t struct_size;
  const isobit_tensor* weight; /* (tokens, cols) in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* index;  /* (...) in i64 or i32, a token for each row; adjacent */
  const isobit_tensor* y;      /* output, (..., cols) in weight's dtype; rows evenly spaced */
} isobit_embedding_forward_args;

ISOBIT_API isobit_status isobit_embedding_forward(const isobit_embedding_forward_args* args,
                                                  const isobit_context* context);

/* The gradient of embedding's table: for each token the sum of grad_y over the rows where it
 * occurs, in their order. 0 for tokens that do not, and for padding_idx. */
typedef struct isobit_embedding_backward_args {
  size_t struct_size;
  const isobit_tensor* grad_y; /* (..., cols) in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* index;  /* (...) in i64 or i32, a token for each row; adjacent */
  const isobit_tensor*
      grad_weight;     /* output, (tokens, cols) in grad_y's dtype; rows evenly spaced */
  int64_t padding_idx; /* the token whose row of grad_weight is 0, whatever occurs; -1 for none */
  int32_t scale_grad_by_freq; /* not 0: rows of grad_weight are divided by how often their token
                                 occurs */
} isobit_embedding_backward_args;

ISOBIT_API isobit_status isobit_embedding_backward(const isobit_embedding_backward_args* args,
                                                   const isobit_context* context);

/* y = (x - mean) / sqrt(variance + eps) * weight + bias, with mean and variance of each group of
 * adjacent channels of an image, and a weight and a bias for each channel. */
typedef struct isobit_group_norm_forward_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (batch, channels, extent) in f32, f16, bf16 or f64, and of any strides */
  const isobit_tensor*
      weight;                /* (channels) in the dtype of x or f32, or NULL; adjacent, optional */
  const isobit_tensor* bias; /* like weight, or NULL, optional */
  const isobit_tensor* y;    /* output, like x, and of any strides; may be x */
  const isobit_tensor*
      mean; /* output, (batch, groups) in f32 (f64 beside f64), or NULL; of any strides, optional */
  const isobit_tensor* rstd;    /* output, like mean, or NULL; 1 / sqrt(variance + eps), optional */
  int64_t groups;               /* of an image, which share its channels evenly; 0 is 1 */
  double eps;                   /* added to the variance; of any sign */
  const isobit_tensor* moments; /* output, three numbers for each mean, of its dtype, or NULL;
                                   backward takes them, optional */
} isobit_group_norm_forward_args;

ISOBIT_API isobit_status isobit_group_norm_forward(const isobit_group_norm_forward_args* args,
                                                   const isobit_context* context);

/* The gradients of group_norm_forward. The statistics are those of the moments that forward gave
 * or, without them, computed from x again. */
typedef struct isobit_group_norm_backward_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (batch, channels, extent) in f32, f16, bf16 or f64, and of any strides */
  const isobit_tensor* grad_y; /* like x, and of any strides */
  const isobit_tensor*
      weight; /* (channels) in the dtype of x or f32, or NULL; adjacent, optional */
  const isobit_tensor* grad_x; /* output, like x, and of any strides, or NULL, optional */
  const isobit_tensor*
      grad_weight; /* output, (channels) in the dtype of weight, or NULL; adjacent, optional */
  const isobit_tensor* grad_bias; /* output, like grad_weight, or NULL, optional */
  int64_t groups;                 /* of an image, which share its channels evenly; 0 is 1 */
  double eps;                     /* added to the variance; of any sign */
  const isobit_tensor* moments;   /* as forward gave them, or NULL; then x is summed again, to the
                                     same bits, optional */
} isobit_group_norm_backward_args;

ISOBIT_API isobit_status isobit_group_norm_backward(const isobit_group_norm_backward_args* args,
                                                    const isobit_context* context);

/* y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel: in training with mean
 * and variance of the channel over all images, otherwise with the running ones. */
typedef struct isobit_batch_norm_forward_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (batch, channels, extent) in f32, f16, bf16 or f64, and of any strides */
  const isobit_tensor*
      weight;                /* (channels) in the dtype of x or f32, or NULL; adjacent, optional */
  const isobit_tensor* bias; /* like weight, or NULL, optional */
  const isobit_tensor*
      running_mean; /* (channels) in f32 (f64 beside f64); in training or NULL; adjacent */
  const isobit_tensor* running_var; /* like running_mean */
  const isobit_tensor* y;           /* output, like x, and of any strides; may be x */
  const isobit_tensor* mean; /* output, like running_mean, or NULL; what was subtracted, optional */
  const isobit_tensor*
      rstd; /* output, like running_mean, or NULL; 1 / sqrt(variance + eps), optional */
  const isobit_tensor* next_mean; /* output, like running_mean, or NULL; (1 - momentum) running_mean
                                     + momentum mean; may be running_mean, optional */
  const isobit_tensor* next_var;  /* output, like running_mean, or NULL; the same of running_var and
                                     the variance times n / (n - 1); may be running_var, optional */
  double momentum; /* how much of the new statistics enters the running ones, in training */
  double eps;      /* added to the variance; of any sign */
  int32_t
      training; /* not 0: statistics of x; otherwise the running ones, which then must be given */
  const isobit_tensor* moments; /* output, three numbers for each mean, of its dtype, or NULL;
                                   backward takes them, optional */
} isobit_batch_norm_forward_args;

ISOBIT_API isobit_status isobit_batch_norm_forward(const isobit_batch_norm_forward_args* args,
                                                   const isobit_context* context);

/* The gradients of batch_norm_forward. In training the statistics are those of the moments that
 * forward gave or, without them, computed from x again; otherwise the running ones. */
typedef struct isobit_batch_norm_backward_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (batch, channels, extent) in f32, f16, bf16 or f64, and of any strides */
  const isobit_tensor* grad_y; /* like x, and of any strides */
  const isobit_tensor*
      weight; /* (channels) in the dtype of x or f32, or NULL; adjacent, optional */
  const isobit_tensor* running_mean; /* as in forward; in training not read, or NULL */
  const isobit_tensor* running_var;  /* as in forward; in training not read, or NULL */
  const isobit_tensor* grad_x;       /* output, like x, and of any strides, or NULL, optional */
  const isobit_tensor*
      grad_weight; /* output, (channels) in the dtype of weight, or NULL; adjacent, optional */
  const isobit_tensor* grad_bias; /* output, like grad_weight, or NULL, optional */
  double eps;                     /* added to the variance; of any sign */
  int32_t
      training; /* not 0: statistics of x; otherwise the running ones, which then must be given */
  const isobit_tensor* moments; /* as forward gave them, or NULL; then x is summed again, to the
                                   same bits, optional */
} isobit_batch_norm_backward_args;

ISOBIT_API isobit_status isobit_batch_norm_backward(const isobit_batch_norm_backward_args* args,
                                                    const isobit_context* context);

/* A step of gradient descent, along the gradient or its average. */
typedef struct isobit_sgd_args {
  size_t struct_size;
  const isobit_tensor* param; /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* grad;  /* like param, or f16 or bf16 beside f32 */
  const isobit_tensor*
      momentum_buffer; /* like param, or NULL at the first step; with momentum only, optional */
  const isobit_tensor* new_param; /* output, like param; may be param */
  const isobit_tensor*
      new_momentum_buffer;     /* output, like param; may be momentum_buffer; with momentum only */
  const isobit_tensor* narrow; /* output, new_param in the type of grad, or NULL, optional */
  double lr;                   /* the learning rate */
  double momentum;             /* of the average of gradients; 0: none */
  double dampening;            /* 1 - the factor of the gradient in it */
  double weight_decay;         /* times the parameter */
  int32_t nesterov;            /* not 0: looks ahead */
  int32_t maximize;            /* not 0: climbs */
} isobit_sgd_args;

ISOBIT_API isobit_status isobit_sgd(const isobit_sgd_args* args, const isobit_context* context);

/* A step of Adam or, with decoupled, AdamW: the parameter moves by the average of gradients over
 * the root of that of their squares. */
typedef struct isobit_adam_args {
  size_t struct_size;
  const isobit_tensor* param;          /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* grad;           /* like param, or f16 or bf16 beside f32 */
  const isobit_tensor* exp_avg;        /* like param */
  const isobit_tensor* exp_avg_sq;     /* like param */
  const isobit_tensor* max_exp_avg_sq; /* like param, or NULL; of AMSGrad, optional */
  const isobit_tensor* new_param;      /* output, like param; may be param */
  const isobit_tensor* new_exp_avg;    /* output, like param; may be exp_avg */
  const isobit_tensor* new_exp_avg_sq; /* output, like param; may be exp_avg_sq */
  const isobit_tensor*
      new_max_exp_avg_sq; /* output, like param; may be max_exp_avg_sq; NULL without it, optional */
  const isobit_tensor* narrow; /* output, new_param in the type of grad, or NULL, optional */
  double lr;                   /* the learning rate */
  double beta1;                /* of the average of gradients; in [0, 1) */
  double beta2;                /* of the average of their squares; in [0, 1) */
  double eps;                  /* added to the root */
  double weight_decay;         /* times the parameter */
  int64_t step;                /* counted from 1 */
  int32_t decoupled;           /* not 0: the decay of AdamW, which the averages do not see */
  int32_t maximize;            /* not 0: climbs */
} isobit_adam_args;

ISOBIT_API isobit_status isobit_adam(const isobit_adam_args* args, const isobit_context* context);

/* A step of Lion: the parameter moves by lr against the sign of an average of gradients. */
typedef struct isobit_lion_args {
  size_t struct_size;
  const isobit_tensor* param;       /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* grad;        /* like param, or f16 or bf16 beside f32 */
  const isobit_tensor* exp_avg;     /* like param */
  const isobit_tensor* new_param;   /* output, like param; may be param */
  const isobit_tensor* new_exp_avg; /* output, like param; may be exp_avg */
  const isobit_tensor* narrow;      /* output, new_param in the type of grad, or NULL, optional */
  double lr;                        /* the learning rate */
  double beta1;                     /* of the average whose sign is taken; in [0, 1) */
  double beta2;                     /* of the average that is kept; in [0, 1) */
  double weight_decay;              /* times the parameter, which no average sees */
  int32_t maximize;                 /* not 0: climbs */
} isobit_lion_args;

ISOBIT_API isobit_status isobit_lion(const isobit_lion_args* args, const isobit_context* context);

/* The length of each row: the root of its sum of squares, its sum of magnitudes, or its largest
 * magnitude. */
typedef struct isobit_vector_norm_args {
  size_t struct_size;
  const isobit_tensor* x;    /* in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* norm; /* output, one number for each row, in f32, or f64 beside f64 */
  int32_t order;             /* 0 l2, 1 l1, 2 max */
} isobit_vector_norm_args;

ISOBIT_API isobit_status isobit_vector_norm(const isobit_vector_norm_args* args,
                                            const isobit_context* context);

/* Images of another size, whose elements are the nearest of x or weighted sums of 2 x 2 or 4 x 4
 * of them. */
typedef struct isobit_interpolate_forward_args {
  size_t struct_size;
  const isobit_tensor*
      x; /* (batch, channels, height, width) in f32, f16, bf16 or f64, and of any strides */
  const isobit_tensor* y; /* output, (batch, channels, out_height, out_width) in the dtype of x */
  double scale_h; /* rows of results a row of x, where results lie by it; 0: as the heights say */
  double scale_w; /* results an element of a row, where they lie by it; 0: as the widths say */
  int32_t mode;   /* 0 nearest, 1 nearest_exact, 2 linear, 3 cubic */
  int32_t align_corners; /* not 0: of linear and cubic: the first and last results are the first and
                            last elements */
} isobit_interpolate_forward_args;

ISOBIT_API isobit_status isobit_interpolate_forward(const isobit_interpolate_forward_args* args,
                                                    const isobit_context* context);

/* The gradient of interpolate_forward: the weighted sums of the gradients of results that an
 * element had a part in. */
typedef struct isobit_interpolate_backward_args {
  size_t struct_size;
  const isobit_tensor* grad_y; /* (batch, channels, out_height, out_width) in the dtype of grad_x */
  const isobit_tensor* grad_x; /* output, (batch, channels, height, width) in f32, f16, bf16 or f64,
                                  and of any strides */
  double scale_h; /* rows of results a row of x, where results lie by it; 0: as the heights say */
  double scale_w; /* results an element of a row, where they lie by it; 0: as the widths say */
  int32_t mode;   /* 0 nearest, 1 nearest_exact, 2 linear, 3 cubic */
  int32_t align_corners; /* not 0: of linear and cubic: the first and last results are the first and
                            last elements */
} isobit_interpolate_backward_args;

ISOBIT_API isobit_status isobit_interpolate_backward(const isobit_interpolate_backward_args* args,
                                                     const isobit_context* context);

/* The sum, the mean, the variance, its root, a norm, or the largest or smallest of the elements
 * of x at each index of the dimensions that y keeps. */
typedef struct isobit_reduce_forward_args {
  size_t struct_size;
  const isobit_tensor* x; /* in f32, f16, bf16 or f64, of any strides; y's dimensions, and more,
                             over which it is reduced */
  const isobit_tensor* y; /* output, in x's dtype or, beside 16 bits, f32; of any strides */
  double correction;      /* var and std divide by the count less this, by 0 at least */
  int32_t reduction;      /* 0 sum, 1 mean, 2 var, 3 std; of magnitudes 4 l2, 5 l1, 6 largest, 7
                             smallest; 8 how many are not 0; of elements 9 max, 10 min */
} isobit_reduce_forward_args;

ISOBIT_API isobit_status isobit_reduce_forward(const isobit_reduce_forward_args* args,
                                               const isobit_context* context);

/* The gradient of reduce_forward. What it must know of x it finds again. */
typedef struct isobit_reduce_backward_args {
  size_t struct_size;
  const isobit_tensor* x;      /* as in forward; of sum, mean and nonzero not read, or NULL */
  const isobit_tensor* grad_y; /* like y of forward */
  const isobit_tensor* grad_x; /* output, like x */
  double correction;           /* var and std divide by the count less this, by 0 at least */
  int32_t reduction; /* 0 sum, 1 mean, 2 var, 3 std; of magnitudes 4 l2, 5 l1, 6 largest, 7
                        smallest; 8 how many are not 0; of elements 9 max, 10 min */
} isobit_reduce_backward_args;

ISOBIT_API isobit_status isobit_reduce_backward(const isobit_reduce_backward_args* args,
                                                const isobit_context* context);

#ifdef __cplusplus
}
#endif

#endif
