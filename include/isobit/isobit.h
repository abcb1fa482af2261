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
 * - Any thread may call at any time. Nothing of a call is kept after it, but what isobit/packed.h
 *   gives to the caller.
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

/* The version of the order of summation, which the norms follow. isobit_operators() has a version
 * for each operator: libraries with the same number give the same bits. */
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
  ISOBIT_I32 = 5,
  ISOBIT_I64 = 6,
  ISOBIT_BOOL = 7, /* a byte that holds 0 or 1 */
  ISOBIT_U8 = 8
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
 * any threads, and returns when all are done. A task may wait for what another that has begun is
 * about to do: one thread takes them one after the other. A C++ exception may leave it only when no
 * task is running any more; the call then returns ISOBIT_INTERNAL and its outputs are undefined. */
typedef struct isobit_parallel_for {
  void (*run)(void* self, int64_t tasks, isobit_task task, void* context); /* null: the library's */
  void* self;
} isobit_parallel_for;

/* A caller's memory for workspace, taken and given back within the call. allocate may throw a C++
 * exception, release may not. */
typedef struct isobit_allocator {
  void* (*allocate)(void* self, size_t bytes); /* of any alignment; null when out of memory */
  void (*release)(void* self, void* memory, size_t bytes);
  void* self; /* both functions null: the library's memory, of which up to 64 MiB are kept for the
                 calls that follow */
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

/* The widest instruction set that calls of this process on the processor may use: "scalar", "avx2",
 * "avx512" or "neon", one that it has; null or "auto": all that it has. It changes speed, and no
 * bit of a result. Matrices that were packed for another are refused. */
ISOBIT_API isobit_status isobit_set_isa(const char* name);

/* The call by name: it serves every operator, also those that this header's reader does not know.
 *
 *     isobit_named_tensor tensors[] = {{"x", &x}, {"y", &y}};
 *     isobit_option options[] = {{"eps", ISOBIT_NUMBER, {.number = 1e-5}}};
 *     isobit_call("layernorm", "fwd", tensors, 2, options, 1, NULL);
 *
 * What is not named is absent, or has its default. The structs of isobit/operators.h say the same
 * in types. */
typedef struct isobit_named_tensor {
  const char* name;
  const isobit_tensor* tensor; /* null: absent */
} isobit_named_tensor;

typedef enum isobit_option_type {
  ISOBIT_NUMBER = 1,
  ISOBIT_INTEGER = 2, /* every bit counts, as of a seed; for yes or no, not 0 is yes */
  ISOBIT_TEXT = 3     /* one of the option's choices */
} isobit_option_type;

typedef struct isobit_option {
  const char* name;
  int32_t type; /* an isobit_option_type */
  union {
    double number;
    int64_t integer;
    const char* text;
  } value;
} isobit_option;

/* pass: "fwd" or "bwd"; null is "fwd". */
ISOBIT_API isobit_status isobit_call(const char* op, const char* pass,
                                     const isobit_named_tensor* tensors, int32_t tensor_count,
                                     const isobit_option* options, int32_t option_count,
                                     const isobit_context* context);

/* All operators with their passes, dimensions, arguments and options, as JSON. */
ISOBIT_API const char* isobit_operators(void);

/* A call that succeeded. bytes and operations: what it must move and compute at least. */
typedef struct isobit_event {
  size_t struct_size;
  const char* op;
  const char* pass;
  int32_t device; /* an isobit_device; on a GPU the time is that of handing over the kernels */
  int64_t begin;  /* nanoseconds, of a clock that never goes back */
  int64_t end;
  double bytes;
  double operations;
} isobit_event;

/* It may not call the library, nor throw. */
typedef void (*isobit_observer)(void* self, const isobit_event* event);

/* Has every call of the process, but those of isobit/packed.h, told to a function, on the thread
 * that makes it, until there is another; null: to none, and then a call costs nothing more. It
 * returns once no call is being told to the last one. */
ISOBIT_API isobit_status isobit_observe(isobit_observer observer, void* self);

/* Has every call of the process on the processor, but those of isobit/packed.h, written to a file,
 * with its inputs and hashes of its results, until there is another file; null: to none.
 * `isobit replay` computes them again. ISOBIT_UNSUPPORTED at the end: the file is complete but for
 * calls on a GPU. */
ISOBIT_API isobit_status isobit_record(const char* path);

#ifdef __cplusplus
}
#endif

#include "isobit/operators.h"
#include "isobit/packed.h"

#endif
