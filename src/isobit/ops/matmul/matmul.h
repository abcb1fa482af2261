// SPDX-License-Identifier: Apache-2.0
// What a caller of matmul includes: products of matrices, with what is usually done to them next,
// and their gradients.
#pragma once

#include <cstdint>
#include <memory>

#include "isobit/core/execution.h"
#include "isobit/core/tensor_view.h"

namespace isobit {
class Operation;
}

namespace isobit::matmul {

class Panels;

enum class Activation { none, relu, gelu, gelu_tanh, silu };

// In what order and with what roundings products are added. canonical: the same everywhere. tensor:
// as the tensor cores of a GPU do, of f16 and bf16 alone, with bits of its generation; or as AMX
// does, of bf16 on processors alone, with the same bits on all of them.
enum class Arithmetic { canonical, tensor };

// pre = alpha a b + beta c + bias; y = activation(pre) + residual, rounded once. All arrays may
// have any strides: a transposed matrix is one with its strides exchanged, and one that serves all
// products of a batch has strides of 0. c is not read where beta is 0. y may be c or residual.
struct ForwardArgs {
  TensorView a;              // (..., m, k)
  TensorView b;              // (..., k, n)
  TensorView bias = {};      // (n), optional
  TensorView c = {};         // like y, optional
  TensorView residual = {};  // like y, optional
  TensorView y;              // (..., m, n)
  TensorView pre = {};       // like y, optional
  double alpha = 1;
  double beta = 0;
  Activation activation = Activation::none;
  Arithmetic arithmetic = Arithmetic::canonical;
};

// The gradients of alpha a b + beta c + bias, each where it is given: with
// s = grad_y activation'(pre), in the type of y as pre is,
// grad_a = alpha s b', grad_b = alpha a' s, grad_bias = the sum of s over all its rows, grad_c =
// beta s (0 where beta is 0). Products take s in the type of a and b. A matrix that served a whole
// batch has its gradient from a call whose batch is a part of m.
struct BackwardArgs {
  TensorView grad_y;          // (..., m, n)
  TensorView a;               // (..., m, k)
  TensorView b;               // (..., k, n)
  TensorView pre = {};        // like grad_y; not read without an activation
  TensorView grad_a = {};     // like a, optional
  TensorView grad_b = {};     // like b, optional
  TensorView grad_bias = {};  // (n), optional
  TensorView grad_c = {};     // like grad_y, optional
  double alpha = 1;
  double beta = 0;
  Activation activation = Activation::none;
  Arithmetic arithmetic = Arithmetic::canonical;
};

// A matrix b as the processor's kernels read it, for those who multiply by it often. It owns a
// copy, in about as many bytes (twice as many of f16, and of bf16 where the processor cannot
// multiply pairs of them), so that b may go or change. Any threads may use it at once; one that was
// moved from takes nothing but another.
class PackedMatrix {
 public:
  // b: (k, n) in f32, f16, bf16 or f64, and of any strides. Packed by the threads of `execution`,
  // for its instruction set, into memory of the library.
  PackedMatrix(const TensorView& b, const Execution& execution);
  ~PackedMatrix();
  PackedMatrix(PackedMatrix&& other) noexcept;
  PackedMatrix& operator=(PackedMatrix&& other) noexcept;

  DType dtype() const;
  std::int64_t k() const;
  std::int64_t n() const;
  Isa isa() const;             // no call on another takes it
  std::int64_t bytes() const;  // of its copy

 private:
  friend void forward(const ForwardArgs& args, const PackedMatrix& b, const Execution& execution);

  std::unique_ptr<const Panels> panels_;
};

void forward(const ForwardArgs& args, const Execution& execution);
// The same bits, of args without b. On the processor alone; arrays as before, but for a batch of b.
void forward(const ForwardArgs& args, const PackedMatrix& b, const Execution& execution);
void backward(const BackwardArgs& args, const Execution& execution);

const Operation& forward_operation();
const Operation& backward_operation();

}  // namespace isobit::matmul
