// SPDX-License-Identifier: Apache-2.0
// The vector loops of the simd variant, compiled once for each instruction set.
#include "isobit/ops/rope_tables/cpu_kernels.h"

#include "isobit/ops/rope_tables/formula.h"
#include "isobit/simd/vec.h"

namespace isobit::rope_tables::ISOBIT_ISA {
namespace {

template <class T>
void run_row(double position, const double* frequencies, std::byte* cosines, std::byte* sines,
             std::int64_t count) {
  table_row<simd::F64>(position, frequencies, reinterpret_cast<T*>(cosines),
                       reinterpret_cast<T*>(sines), count);
}

}  // namespace

Kernel kernel(DType dtype) { return dtype == DType::f64 ? run_row<double> : run_row<float>; }

}  // namespace isobit::rope_tables::ISOBIT_ISA
