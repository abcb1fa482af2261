/* SPDX-License-Identifier: Apache-2.0
 * RMSNorm in place through isobit.h. */
#include <isobit/isobit.h>
#include <stdio.h>

int main(void) {
  float data[2][3] = {{1, 2, 3}, {4, 5, 9}};
  isobit_tensor x = {.data = data,
                     .bytes = sizeof data,
                     .dtype = ISOBIT_F32,
                     .rank = 2,
                     .shape = {2, 3},
                     .strides = {3, 1}};
  isobit_rmsnorm_forward_args args = {.struct_size = sizeof args, .x = &x, .y = &x, .eps = 1e-5};
  if (isobit_rmsnorm_forward(&args, NULL) != ISOBIT_OK) {
    fprintf(stderr, "%s\n", isobit_last_error());
    return 1;
  }
  printf("%a %a %a\n", data[0][0], data[0][1], data[0][2]);
  return 0;
}
