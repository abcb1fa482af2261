// SPDX-License-Identifier: Apache-2.0
// Matrices that are packed once and multiplied by often; isobit.hpp includes this file.
//
//     const isobit::PackedMatrix weight({elements, {k, n}});
//     isobit::matmul({.a = {x, {rows, k}}, .y = {y, {rows, n}}}, weight);
#ifndef ISOBIT_PACKED_HPP
#define ISOBIT_PACKED_HPP

#include <cstdint>
#include <memory>

#include "isobit/isobit.hpp"

namespace isobit {

// Its own copy of b; see isobit_matmul_pack.
class PackedMatrix {
 public:
  explicit PackedMatrix(const Tensor& b, const Context& context = {}) {
    isobit_packed_matrix* packed = nullptr;
    detail::check(isobit_matmul_pack(b.get(), &context, &packed));
    packed_.reset(packed);
  }

  std::int64_t bytes() const { return isobit_packed_matrix_bytes(packed_.get()); }
  const isobit_packed_matrix* get() const { return packed_.get(); }

 private:
  struct Free {
    void operator()(isobit_packed_matrix* packed) const { isobit_packed_matrix_free(packed); }
  };

  std::unique_ptr<isobit_packed_matrix, Free> packed_;
};

// matmul of arguments without b, with the same bits.
inline void matmul(const Matmul& given, const PackedMatrix& b, const Context& context = {}) {
  const isobit_matmul_args args = detail::arguments(given);
  detail::check(isobit_matmul_packed(&args, b.get(), &context));
}

}  // namespace isobit

#endif
