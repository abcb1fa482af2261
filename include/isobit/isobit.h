/* SPDX-License-Identifier: Apache-2.0
 * The C interface of Isobit: what other languages call, and all that libisobit.so shows.
 *
 * A call names its arrays by tensors (a pointer, how many bytes may be touched from there, a shape
 * and strides), puts these into the struct of its operator and gets a status:
 *
 *     float data[2][3] = {{1, 2, 3}, {4, 5, 9}};
 *     isobit_tensor x = {.data = data, .bytes = sizeof data, .dtype = ISOBIT_F32,
 *                        .rank = 2, .shape = {2, 3}, .strides = {3, 1}};
 *     isobit_layernorm_forward_args args = {.struct_size = sizeof args,
 *                                           .x = &x, .y = &x, .eps = 1e-5};
 *     if (isobit_layernorm_forward(&args, NULL) != ISOBIT_OK) puts(isobit_last_error());
 *
 * Rules that hold for every call:
 * - The result depends on the inputs alone: threads, instruction set, alignment and the other rows
 *   of the batch never change a bit of it. Every NaN in a result has the same bits, 0x7fc00000 in
 *   f32.
 * - All arguments are checked before anything is written: on ISOBIT_INVALID_ARGUMENT,
 *   ISOBIT_UNSUPPORTED and ISOBIT_OUT_OF_MEMORY every output is as it was.
 * - An output shares no memory with an input or another output, except where a struct says "may
 *   be": then it is exactly that input (start, dtype and strides). Columns of one buffer side by
 *   side do not overlap.
 * - Pointers are aligned to the size of an element; more is never needed.
 * - Extents may be 0. Tensors without elements may have null data.
 * - Any thread may call at any time. Nothing of a call is kept after it.
 */
#ifndef ISOBIT_H
#define ISOBIT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ISOBIT_API __attribute__((visibility("default")))
#else
#define ISOBIT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, such as "1.2.3". */
ISOBIT_API const char* isobit_version(void);

/* The version of the order of summation. Two libraries with the same number give the same bits. */
ISOBIT_API int32_t isobit_order_version(void);

typedef enum isobit_status {
  ISOBIT_OK = 0,
  ISOBIT_INVALID_ARGUMENT = 1, /* the call breaks a rule */
  ISOBIT_UNSUPPORTED = 2,      /* the call is right, yet nothing on this machine can run it */
  ISOBIT_DEVICE_ERROR = 3,     /* a device failed */
  ISOBIT_OUT_OF_MEMORY = 4,
  ISOBIT_INTERNAL = 5 /* anything else, such as an exception out of a caller's function */
} isobit_status;

/* What was wrong with the last call on this thread, naming operator, argument, rule and value:
 *     layernorm: weight has 1024 elements; x has 4096 columns
 * Empty after success. Never null; valid until the thread's next call. */
ISOBIT_API const char* isobit_last_error(void);

typedef enum isobit_dtype {
  ISOBIT_F32 = 1,
  ISOBIT_F16 = 2, /* IEEE binary16 */
  ISOBIT_BF16 = 3,
  ISOBIT_F64 = 4,
  ISOBIT_I32 = 5
} isobit_dtype;

#define ISOBIT_MAX_RANK 8
#define ISOBIT_MAX_THREADS 1024

typedef struct isobit_tensor {
  void* data;    /* the first element */
  int64_t bytes; /* the storage that may be touched, counted from data */
  int32_t dtype; /* an isobit_dtype */
  int32_t rank;  /* 1 to ISOBIT_MAX_RANK */
  int64_t shape[ISOBIT_MAX_RANK];
  int64_t strides[ISOBIT_MAX_RANK]; /* in elements; not negative, and 0 only in inputs */
} isobit_tensor;

/* Called with each task from 0 to tasks - 1. It never throws. */
typedef void (*isobit_task)(void* context, int64_t task);

/* A caller's threads: run calls task(context, i) once for every i in [0, tasks), in any order, on
 * any threads, and returns when all are done. A C++ exception may leave it only when no task is
 * running any more; the call then returns ISOBIT_INTERNAL and its outputs are undefined. */
typedef struct isobit_parallel_for {
  void (*run)(void* self, int64_t tasks, isobit_task task, void* context); /* null: the library's */
  void* self;
} isobit_parallel_for;

/* A caller's memory for workspace, taken and given back within the call. allocate may throw a C++
 * exception, release may not. */
typedef struct isobit_allocator {
  void* (*allocate)(void* self, size_t bytes); /* of any alignment; null when out of memory */
  void (*release)(void* self, void* memory, size_t bytes);
  void* self; /* both functions null: the C library's memory */
} isobit_allocator;

typedef enum isobit_device {
  ISOBIT_CPU = 0,
  ISOBIT_CUDA = 1 /* the GPU that is current, by libisobit_cuda.so: pointers are its addresses */
} isobit_device;

/* What a caller lends to a call. A null context stands for the processor, with the library's own
 * threads and memory. On a GPU a call returns as soon as its kernels are on the stream; `allocator`
 * then gives the GPU's memory, which must stay until the stream has come past the call (by default
 * cudaMallocAsync's). */
typedef struct isobit_context {
  size_t struct_size; /* sizeof(isobit_context), as in every struct below: it lets them grow */
  int32_t threads;    /* at most ISOBIT_MAX_THREADS; 0: one for each processor */
  isobit_parallel_for parallel_for;
  isobit_allocator allocator;
  int32_t device; /* an isobit_device */
  void* stream;   /* of a GPU: its cudaStream_t */
} isobit_context;

/* Whether the library can compute on a device: ISOBIT_OK, or ISOBIT_UNSUPPORTED, and then
 * isobit_last_error() says what is missing. */
ISOBIT_API isobit_status isobit_device_status(int32_t device);

/* y = (x - mean) / sqrt(variance + eps) * weight + bias, each row (the last dimensions) by itself.
 * With residual or dropout, s = dropout(x) + residual takes the place of x, rounded to x's dtype.
 * `hidden` stands for the last hidden_dims dimensions of x, whose elements must then be adjacent.
 * Null: not there. */
typedef struct isobit_layernorm_forward_args {
  size_t struct_size;
  const isobit_tensor* x;        /* (..., hidden) in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* residual; /* like x, optional */
  const isobit_tensor* weight;   /* (hidden), optional; in x's dtype or f32 */
  const isobit_tensor* bias;     /* (hidden), optional; in weight's dtype */
  const isobit_tensor* y;    /* output (..., hidden) in f32, f16 or bf16 (f64 beside f64); may be
                              * x or residual */
  const isobit_tensor* sum;  /* output like x, optional: s; may be x or residual */
  const isobit_tensor* mean; /* output (rows) in f32 (f64 beside f64), optional */
  const isobit_tensor* rstd; /* the same: 1 / sqrt(variance + eps) */
  double eps;                /* any number in the range of float; 1e-5 is usual */
  double dropout;            /* the probability with which an element of x is dropped; below 1 */
  uint64_t dropout_seed;     /* what is dropped depends on it, the row and the column alone */
  int64_t hidden_dims;       /* 0 is 1, the last dimension alone */
  int32_t zero_centred;      /* not 0: weight is stored less 1 */
} isobit_layernorm_forward_args;

ISOBIT_API isobit_status isobit_layernorm_forward(const isobit_layernorm_forward_args* args,
                                                  const isobit_context* context);

/* The gradients of layernorm_forward. Without mean and rstd both are computed from x again, which
 * costs no memory traffic and is more exact than what any float can hold. */
typedef struct isobit_layernorm_backward_args {
  size_t struct_size;
  const isobit_tensor* x;      /* (..., hidden): what was normalised, so sum where there was one */
  const isobit_tensor* grad_y; /* like forward's y */
  const isobit_tensor* weight; /* (hidden), optional */
  const isobit_tensor* mean;   /* (rows), as forward gave them; both statistics or neither */
  const isobit_tensor* rstd;
  const isobit_tensor* grad_sum; /* like x, optional: the gradient that flows into sum elsewhere */
  const isobit_tensor* grad_x;   /* output like x, optional; may be x, grad_y or grad_sum */
  const isobit_tensor* grad_residual; /* the same; with dropout only: without, it equals grad_x */
  const isobit_tensor*
      grad_weight;                /* output (hidden), optional; in weight's dtype; without weight */
  const isobit_tensor* grad_bias; /* in x's dtype or f32, both the same */
  double eps;                     /* as in forward; not used with given statistics */
  double dropout;                 /* as in forward, like all that follow */
  uint64_t dropout_seed;
  int64_t hidden_dims;
  int32_t zero_centred;
} isobit_layernorm_backward_args;

ISOBIT_API isobit_status isobit_layernorm_backward(const isobit_layernorm_backward_args* args,
                                                   const isobit_context* context);

/* y = x / sqrt(mean(x^2) + eps) * weight, each row (the last dimensions) by itself.
 * With residual or dropout, s = dropout(x) + residual takes the place of x, rounded to x's dtype.
 * `hidden` stands for the last hidden_dims dimensions of x, whose elements must then be adjacent.
 * Null: not there. */
typedef struct isobit_rmsnorm_forward_args {
  size_t struct_size;
  const isobit_tensor* x;        /* (..., hidden) in f32, f16, bf16 or f64; rows evenly spaced */
  const isobit_tensor* residual; /* like x, optional */
  const isobit_tensor* weight;   /* (hidden), optional; in x's dtype or f32 */
  const isobit_tensor* y;   /* output (..., hidden) in f32, f16 or bf16 (f64 beside f64); may be
                             * x or residual */
  const isobit_tensor* sum; /* output like x, optional: s; may be x or residual */
  const isobit_tensor*
      rstd;       /* output (rows) in f32 (f64 beside f64), optional: 1 / sqrt(mean(x^2) + eps) */
  double eps;     /* any number in the range of float; 1e-5 is usual */
  double dropout; /* the probability with which an element of x is dropped; below 1 */
  uint64_t dropout_seed; /* what is dropped depends on it, the row and the column alone */
  int64_t hidden_dims;   /* 0 is 1, the last dimension alone */
  int32_t zero_centred;  /* not 0: weight is stored less 1 */
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
  const isobit_tensor* rstd;   /* (rows), as forward gave it; optional */
  const isobit_tensor* grad_sum; /* like x, optional: the gradient that flows into sum elsewhere */
  const isobit_tensor* grad_x;   /* output like x, optional; may be x, grad_y or grad_sum */
  const isobit_tensor* grad_residual; /* the same; with dropout only: without, it equals grad_x */
  const isobit_tensor* grad_weight; /* output (hidden), optional; in weight's dtype; without weight
                                     * in x's dtype or f32 */
  double eps;                       /* as in forward; not used with given statistics */
  double dropout;                   /* as in forward, like all that follow */
  uint64_t dropout_seed;
  int64_t hidden_dims;
  int32_t zero_centred;
} isobit_rmsnorm_backward_args;

ISOBIT_API isobit_status isobit_rmsnorm_backward(const isobit_rmsnorm_backward_args* args,
                                                 const isobit_context* context);

/* y = x + residual, in any dtype; integers wrap around. */
typedef struct isobit_elementwise_add_args {
  size_t struct_size;
  const isobit_tensor* x;
  const isobit_tensor* residual; /* like x */
  const isobit_tensor* y;        /* output like x; may be x or residual */
} isobit_elementwise_add_args;

ISOBIT_API isobit_status isobit_elementwise_add(const isobit_elementwise_add_args* args,
                                                const isobit_context* context);

/* y = x + 1, in any dtype; integers wrap around. */
typedef struct isobit_elementwise_increment_args {
  size_t struct_size;
  const isobit_tensor* x;
  const isobit_tensor* y; /* output like x; may be x */
} isobit_elementwise_increment_args;

ISOBIT_API isobit_status isobit_elementwise_increment(const isobit_elementwise_increment_args* args,
                                                      const isobit_context* context);

#ifdef __cplusplus
}
#endif

#endif
