/* SPDX-License-Identifier: Apache-2.0
 * Matrices that are packed once and multiplied by often; isobit.h includes this file.
 *
 *     isobit_packed_matrix* packed = NULL;
 *     if (isobit_matmul_pack(&weight, NULL, &packed) != ISOBIT_OK) puts(isobit_last_error());
 *     isobit_matmul_args args = {.struct_size = sizeof args, .a = &a, .y = &y, .alpha = 1};
 *     if (isobit_matmul_packed(&args, packed, NULL) != ISOBIT_OK) puts(isobit_last_error());
 *     isobit_packed_matrix_free(packed);
 */
#ifndef ISOBIT_PACKED_H
#define ISOBIT_PACKED_H

#include "isobit/isobit.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix as this process's kernels read it: its own copy, of the processor, and never stored. */
typedef struct isobit_packed_matrix isobit_packed_matrix;

/* Packs b, (k, n) in f32, f16, bf16 or f64 and of any strides, with the threads of the context. The
 * array may then change or go. On ISOBIT_OK *packed is the caller's, to be freed; otherwise it is
 * as it was. */
ISOBIT_API isobit_status isobit_matmul_pack(const isobit_tensor* b, const isobit_context* context,
                                            isobit_packed_matrix** packed);

/* isobit_matmul with the same bits, of args whose b is null: it is the packed one, for every matrix
 * of a batch. Any threads may use a packed matrix at once. */
ISOBIT_API isobit_status isobit_matmul_packed(const isobit_matmul_args* args,
                                              const isobit_packed_matrix* b,
                                              const isobit_context* context);

/* The bytes of its copy; of null 0. */
ISOBIT_API int64_t isobit_packed_matrix_bytes(const isobit_packed_matrix* packed);

/* Null is allowed. No call may be using it. */
ISOBIT_API void isobit_packed_matrix_free(isobit_packed_matrix* packed);

#ifdef __cplusplus
}
#endif

#endif
