// SPDX-License-Identifier: Apache-2.0
// The functions of isobit/packed.h, whose objects outlive calls.
#include "isobit/capi/arguments.h"

using namespace isobit;

struct isobit_packed_matrix {
  matmul::PackedMatrix matrix;
};

isobit_status isobit_matmul_pack(const isobit_tensor* b, const isobit_context* context,
                                 isobit_packed_matrix** packed) {
  constexpr std::string_view kOp = "matmul pack";
  capi::LentThreads lent;
  isobit_packed_matrix* made = nullptr;
  const isobit_status status = capi::guarded(kOp, [&] {
    require(packed != nullptr, kOp, ": packed is null");
    const Execution execution = capi::execution(kOp, context, lent);
    made = new isobit_packed_matrix{matmul::PackedMatrix(capi::Reader{kOp}("b", b), execution)};
  });
  if (status == ISOBIT_OK) *packed = made;
  return lent.interrupted ? ISOBIT_INTERNAL : status;
}

isobit_status isobit_matmul_packed(const isobit_matmul_args* args, const isobit_packed_matrix* b,
                                   const isobit_context* context) {
  return capi::call("matmul", args, context,
                    [&](const auto& given, const capi::Reader& read, const Execution& execution) {
                      require(b != nullptr, "matmul: the packed matrix is null");
                      matmul::forward(capi::arguments(given, read), b->matrix, execution);
                    });
}

int64_t isobit_packed_matrix_bytes(const isobit_packed_matrix* packed) {
  return packed == nullptr ? 0 : packed->matrix.bytes();
}

void isobit_packed_matrix_free(isobit_packed_matrix* packed) { delete packed; }
