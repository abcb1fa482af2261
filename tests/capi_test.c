/* SPDX-License-Identifier: Apache-2.0
 * A program in C, with isobit.h and libisobit.so alone: what another language meets. */
#include "isobit/isobit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

static void expect(int condition, const char* what, int line) {
  if (condition) return;
  printf("%s:%d: %s\n    last error: %s\n", __FILE__, line, what, isobit_last_error());
  ++failures;
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

static isobit_tensor matrix(void* data, int32_t dtype, int64_t element, int64_t rows,
                            int64_t cols) {
  isobit_tensor tensor = {0};
  tensor.data = data;
  tensor.bytes = rows * cols * element;
  tensor.dtype = dtype;
  tensor.rank = 2;
  tensor.shape[0] = rows;
  tensor.shape[1] = tensor.strides[0] = cols;
  tensor.strides[1] = 1;
  return tensor;
}

static isobit_tensor vector(float* data, int64_t count) {
  isobit_tensor tensor = matrix(data, ISOBIT_F32, sizeof(float), 1, count);
  tensor.rank = 1;
  tensor.shape[0] = count;
  tensor.strides[0] = 1;
  return tensor;
}

static isobit_tensor f32(float* data, int64_t rows, int64_t cols) {
  return matrix(data, ISOBIT_F32, sizeof(float), rows, cols);
}

static int near(const float* actual, const double* expected, int count) {
  for (int i = 0; i < count; ++i)
    if (!(fabs(actual[i] - expected[i]) <= 1e-6 * fmax(1, fabs(expected[i])))) {
      printf("element %d is %.9g, expected %.9g\n", i, actual[i], expected[i]);
      return 0;
    }
  return 1;
}

/* One row 1 2 3 4 with eps = 1: mean 5/2, variance 5/4, rstd 2/3. */
static float x_data[4] = {1, 2, 3, 4};
static float weight_data[4] = {1, 2, 3, 4};
static float bias_data[4] = {10, 20, 30, 40};

static void versions(void) {
  EXPECT(strchr(isobit_version(), '.') != NULL);
  EXPECT(isobit_order_version() >= 1);
}

static void layernorm_forward(void) {
  float y_data[4], mean_data, rstd_data;
  const isobit_tensor x = f32(x_data, 1, 4), y = f32(y_data, 1, 4);
  const isobit_tensor weight = vector(weight_data, 4), bias = vector(bias_data, 4);
  const isobit_tensor mean = vector(&mean_data, 1), rstd = vector(&rstd_data, 1);
  const isobit_layernorm_forward_args args = {.struct_size = sizeof args,
                                              .x = &x,
                                              .weight = &weight,
                                              .bias = &bias,
                                              .y = &y,
                                              .mean = &mean,
                                              .rstd = &rstd,
                                              .eps = 1};
  const double expected[] = {9, 20 - 2.0 / 3, 31, 44};
  EXPECT(isobit_layernorm_forward(&args, NULL) == ISOBIT_OK);
  EXPECT(near(y_data, expected, 4));
  EXPECT(mean_data == 2.5f);
  EXPECT(fabsf(rstd_data - 2.0f / 3) < 1e-6f);
}

static void layernorm_backward(void) {
  float grad_data[4] = {1, 0, 0, 0}, grad_weight_data[4], grad_bias_data[4];
  const isobit_tensor x = f32(x_data, 1, 4), grad = f32(grad_data, 1, 4); /* grad_x in place */
  const isobit_tensor weight = vector(weight_data, 4);
  const isobit_tensor grad_weight = vector(grad_weight_data, 4);
  const isobit_tensor grad_bias = vector(grad_bias_data, 4);
  const isobit_layernorm_backward_args args = {.struct_size = sizeof args,
                                               .x = &x,
                                               .grad_y = &grad,
                                               .weight = &weight,
                                               .grad_x = &grad,
                                               .grad_weight = &grad_weight,
                                               .grad_bias = &grad_bias,
                                               .eps = 1};
  const double grad_x[] = {1.0 / 3, -2.0 / 9, -1.0 / 9, 0};
  const double sums[] = {-1, 0, 0, 0, 1, 0, 0, 0};
  EXPECT(isobit_layernorm_backward(&args, NULL) == ISOBIT_OK);
  EXPECT(near(grad_data, grad_x, 4));
  EXPECT(near(grad_weight_data, sums, 4));
  EXPECT(near(grad_bias_data, sums + 4, 4));
}

static void elementwise(void) {
  float sum_data[4];
  const isobit_tensor x = f32(x_data, 1, 4), bias = f32(bias_data, 1, 4), sum = f32(sum_data, 1, 4);
  const isobit_elementwise_add_args add = {sizeof add, &x, &bias, &sum};
  const double expected[] = {11, 22, 33, 44};
  EXPECT(isobit_elementwise_add(&add, NULL) == ISOBIT_OK);
  EXPECT(near(sum_data, expected, 4));

  int32_t counts[3] = {-1, 41, INT32_MAX};
  const isobit_tensor count = matrix(counts, ISOBIT_I32, sizeof(int32_t), 3, 1);
  const isobit_elementwise_increment_args increment = {sizeof increment, &count, &count};
  EXPECT(isobit_elementwise_increment(&increment, NULL) == ISOBIT_OK);
  EXPECT(counts[0] == 0 && counts[1] == 42 && counts[2] == INT32_MIN);
}

static void errors(void) {
  float y_data[4] = {-7, -7, -7, -7};
  const double untouched[] = {-7, -7, -7, -7};
  const isobit_tensor x = f32(x_data, 1, 4), y = f32(y_data, 1, 4), weight = vector(weight_data, 3);
  isobit_layernorm_forward_args args = {
      .struct_size = sizeof args, .x = &x, .weight = &weight, .y = &y, .eps = 1};
  EXPECT(isobit_layernorm_forward(&args, NULL) == ISOBIT_INVALID_ARGUMENT);
  EXPECT(!strcmp(isobit_last_error(), "layernorm: weight has 3 elements; x has 4 columns"));
  EXPECT(isobit_layernorm_forward(NULL, NULL) == ISOBIT_INVALID_ARGUMENT);
  EXPECT(!strcmp(isobit_last_error(), "layernorm: args is null"));
  EXPECT(near(y_data, untouched, 4));
  args.weight = NULL;
  EXPECT(isobit_layernorm_forward(&args, NULL) == ISOBIT_OK);
  EXPECT(!strcmp(isobit_last_error(), ""));
}

struct usage {
  int runs, allocations, releases;
};

static void run_backwards(void* self, int64_t tasks, isobit_task task, void* context) {
  ++((struct usage*)self)->runs;
  while (tasks-- > 0) task(context, tasks);
}

static void* allocate(void* self, size_t bytes) {
  void* memory = NULL;
  ++((struct usage*)self)->allocations;
  return posix_memalign(&memory, 64, bytes) == 0 ? memory : NULL;
}

static void* allocate_nothing(void* self, size_t bytes) {
  (void)self, (void)bytes;
  return NULL;
}

static void release(void* self, void* memory, size_t bytes) {
  (void)bytes;
  ++((struct usage*)self)->releases;
  free(memory);
}

/* The caller's threads and memory give the bits of the library's own. */
static void contexts(void) {
  enum { kRows = 600, kCols = 300, kCount = kRows * kCols };
  static float x_values[kCount], grad_y_values[kCount], own[kCount], lent[kCount];
  static float own_sums[kCols], lent_sums[kCols];
  for (int i = 0; i < kCount; ++i) {
    x_values[i] = sinf((float)i);
    grad_y_values[i] = cosf(3 * (float)i);
  }
  const isobit_tensor x = f32(x_values, kRows, kCols), grad_y = f32(grad_y_values, kRows, kCols);
  isobit_tensor grad_x = f32(own, kRows, kCols), grad_weight = vector(own_sums, kCols);
  const isobit_layernorm_backward_args args = {.struct_size = sizeof args,
                                               .x = &x,
                                               .grad_y = &grad_y,
                                               .grad_x = &grad_x,
                                               .grad_weight = &grad_weight,
                                               .eps = 1e-5};
  EXPECT(isobit_layernorm_backward(&args, NULL) == ISOBIT_OK);

  struct usage usage = {0, 0, 0};
  isobit_context context = {.struct_size = sizeof context,
                            .threads = 4,
                            .parallel_for = {run_backwards, &usage},
                            .allocator = {allocate, release, &usage}};
  grad_x.data = lent;
  grad_weight.data = lent_sums;
  EXPECT(isobit_layernorm_backward(&args, &context) == ISOBIT_OK);
  EXPECT(memcmp(own, lent, sizeof own) == 0);
  EXPECT(memcmp(own_sums, lent_sums, sizeof own_sums) == 0);
  EXPECT(usage.runs > 0);
  EXPECT(usage.allocations > 0 && usage.allocations == usage.releases);

  context.allocator.allocate = allocate_nothing;
  EXPECT(isobit_layernorm_backward(&args, &context) == ISOBIT_OUT_OF_MEMORY);
  EXPECT(strstr(isobit_last_error(), "layernorm backward: out of memory: ") != NULL);
  EXPECT(strstr(isobit_last_error(), "use fewer rows or threads") != NULL);
  EXPECT(memcmp(own, lent, sizeof own) == 0);
  EXPECT(usage.allocations == usage.releases);
}

/* A matrix that is packed once, in a wrong call too, gives the bits of one that is not. */
static void packed_matrices(void) {
  enum { kRows = 20, kDepth = 600, kCols = 70 };
  static float left[kRows * kDepth], right[kDepth * kCols];
  static float by_array[kRows * kCols], by_packed[kRows * kCols], bias_values[kCols];
  for (int i = 0; i < kRows * kDepth; ++i) left[i] = sinf((float)i);
  for (int i = 0; i < kDepth * kCols; ++i) right[i] = cosf((float)i);
  for (int i = 0; i < kCols; ++i) bias_values[i] = (float)i;
  const isobit_tensor a = f32(left, kRows, kDepth), bias = vector(bias_values, kCols);
  isobit_tensor b = f32(right, kDepth, kCols), y = f32(by_array, kRows, kCols);
  isobit_matmul_args args = {.struct_size = sizeof args,
                             .a = &a,
                             .b = &b,
                             .bias = &bias,
                             .residual = &y,
                             .y = &y,
                             .alpha = 0.5,
                             .activation = 4};
  EXPECT(isobit_matmul(&args, NULL) == ISOBIT_OK);

  isobit_packed_matrix* packed = NULL;
  const isobit_context one_thread = {.struct_size = sizeof one_thread, .threads = 1};
  EXPECT(isobit_matmul_pack(&b, &one_thread, &packed) == ISOBIT_OK);
  EXPECT(packed != NULL);
  EXPECT(isobit_packed_matrix_bytes(packed) >= (int64_t)sizeof right);
  memset(right, 0, sizeof right);
  y.data = by_packed;
  EXPECT(isobit_matmul_packed(&args, packed, NULL) == ISOBIT_INVALID_ARGUMENT);
  EXPECT(strstr(isobit_last_error(), "matmul: b is given twice") != NULL);
  args.b = NULL;
  EXPECT(isobit_matmul_packed(&args, NULL, NULL) == ISOBIT_INVALID_ARGUMENT);
  EXPECT(strcmp(isobit_last_error(), "matmul: the packed matrix is null") == 0);
  EXPECT(isobit_matmul_packed(NULL, packed, NULL) == ISOBIT_INVALID_ARGUMENT);
  EXPECT(by_packed[0] == 0);
  EXPECT(isobit_matmul_packed(&args, packed, NULL) == ISOBIT_OK);
  EXPECT(strcmp(isobit_last_error(), "") == 0);
  EXPECT(memcmp(by_array, by_packed, sizeof by_array) == 0);

  isobit_packed_matrix* const before = packed;
  b.rank = 1;
  EXPECT(isobit_matmul_pack(&b, NULL, &packed) == ISOBIT_INVALID_ARGUMENT);
  EXPECT(strcmp(isobit_last_error(), "matmul pack: b has 1 dimensions; must have 2") == 0);
  EXPECT(isobit_matmul_pack(NULL, NULL, &packed) == ISOBIT_INVALID_ARGUMENT);
  EXPECT(strcmp(isobit_last_error(), "matmul pack: b is missing") == 0);
  EXPECT(isobit_matmul_pack(&a, NULL, NULL) == ISOBIT_INVALID_ARGUMENT);
  EXPECT(strcmp(isobit_last_error(), "matmul pack: packed is null") == 0);
  EXPECT(packed == before);
  isobit_packed_matrix_free(packed);
  isobit_packed_matrix_free(NULL);
  EXPECT(isobit_packed_matrix_bytes(NULL) == 0);
}

/* Without a GPU a call says so, and leaves its outputs alone. */
static void a_gpu_may_be_missing(void) {
  if (isobit_device_status(ISOBIT_CUDA) == ISOBIT_OK) return;
  EXPECT(isobit_device_status(ISOBIT_CPU) == ISOBIT_OK);
  EXPECT(isobit_device_status(ISOBIT_CUDA) == ISOBIT_UNSUPPORTED);
  EXPECT(strstr(isobit_last_error(), "no usable GPU: ") != NULL);
  EXPECT(isobit_device_status(7) == ISOBIT_INVALID_ARGUMENT);

  float data[4] = {1, 2, 3, 4}, out[4] = {9, 9, 9, 9};
  const isobit_tensor x = {data, sizeof data, ISOBIT_F32, 1, {4}, {1}};
  isobit_tensor y = x;
  y.data = out;
  const isobit_elementwise_increment_args args = {sizeof args, &x, &y};
  const isobit_context context = {.struct_size = sizeof context, .device = ISOBIT_CUDA};
  EXPECT(isobit_elementwise_increment(&args, &context) == ISOBIT_UNSUPPORTED);
  EXPECT(strstr(isobit_last_error(), "elementwise: no usable GPU: ") != NULL);
  EXPECT(out[0] == 9);
}

/* What is loaded and not yet called has started nothing. (ThreadSanitizer and QEMU have a thread of
 * their own.) */
static void no_threads(void) {
#if !defined(__SANITIZE_THREAD__) && !defined(ISOBIT_EMULATED)
  char line[256];
  int threads = 0;
  FILE* status = fopen("/proc/self/status", "r");
  while (status != NULL && fgets(line, sizeof line, status) != NULL)
    if (sscanf(line, "Threads: %d", &threads) == 1) break;
  if (status != NULL) fclose(status);
  EXPECT(threads == 1);
#endif
}

int main(void) {
  no_threads();
  versions();
  layernorm_forward();
  layernorm_backward();
  elementwise();
  errors();
  contexts();
  packed_matrices();
  a_gpu_may_be_missing();
  printf("%d failures\n", failures);
  return failures > 0;
}
