// SPDX-License-Identifier: Apache-2.0
// Rotary embeddings of PyTorch's tensors by the C ABI, and their tables.
#include "isobit/torch/rotary.h"

#include <utility>

#include "isobit/torch/call.h"

namespace isobit::torch {
namespace {

// What rope takes beside queries and keys.
struct Rotation {
  Tensor cos, sin, positions;
  std::int32_t style;
  std::int64_t offset;
  bool backward;

  explicit Rotation(Stack& given)
      : cos(given.tensor()),
        sin(given.tensor()),
        positions(given.optional_tensor()),
        style(static_cast<std::int32_t>(given.integer())),
        offset(given.integer()),
        backward(given.flag()) {}
};

void rotate(const char* op, const Tensor& q, const Tensor& k, const Rotation& rotation,
            const Tensor& y_q, const Tensor& y_k) {
  require_views(op, {{"q", q},
                     {"k", k},
                     {"cos", rotation.cos},
                     {"sin", rotation.sin},
                     {"positions", rotation.positions}});
  require_dtype(op, "q", q.dtype(), kFloats);
  isobit_tensor views[5]{}, *next = views;
  const auto view = [&](const Tensor& tensor, Access access = Access::read) -> isobit_tensor* {
    if (!tensor) return nullptr;
    *next = strided(tensor, access);
    return next++;
  };
  const Argument cos(rotation.cos, 1), sin(rotation.sin, 1);
  const Shape table = rotation.cos.shape();
  require(!table.empty(), op, ": cos must have a row for each position; it is one number");
  const auto run = [&](auto args, auto q_of, auto k_of, auto y_q_of, auto y_k_of, auto call) {
    args.*q_of = view(q);
    args.*k_of = view(k);
    args.positions = view(rotation.positions);
    args.*y_q_of = view(y_q, Access::write);
    args.*y_k_of = view(y_k, Access::write);
    args.cos = cos.get();
    args.sin = sin.get();
    args.style = rotation.style;
    args.offset_positions = rotation.offset;
    args.rotary_dim = 2 * table.back();
    const Lent lent(q);
    check(call(&args, lent.context()));
  };
  using Forward = isobit_rope_forward_args;
  using Backward = isobit_rope_backward_args;
  if (table.back() == 0 || q.shape().empty()) require(false, op, ": no elements of a head turn");
  if (rotation.backward)
    run(empty_args<Backward>(), &Backward::grad_y_q, &Backward::grad_y_k, &Backward::grad_q,
        &Backward::grad_k, isobit_rope_backward);
  else
    run(empty_args<Forward>(), &Forward::q, &Forward::k, &Forward::y_q, &Forward::y_k,
        isobit_rope_forward);
}

}  // namespace

void rope(StableIValue* stack, std::uint64_t, std::uint64_t) {
  static constexpr std::int64_t kNothing[] = {0};
  Stack given(stack);
  const Tensor q = given.tensor(), k = given.optional_tensor();
  const Rotation rotation(given);
  Tensor y_q = new_output(q, q.shape(), q.dtype());
  Tensor y_k = new_output(q, k ? k.shape() : Shape(kNothing), k ? k.dtype() : q.dtype());
  if (k)
    rotate("rope", q, k, rotation, y_q, y_k);
  else
    rotate("rope", q, k, rotation, y_q, {});
  put(stack, y_q, y_k);
}

void rope_in_place(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  const Tensor q = given.tensor(), k = given.optional_tensor();
  rotate("rope_", q, k, Rotation(given), q, k);
}

void rope_tables(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "rope_tables";
  constexpr std::int32_t kReals[] = {ISOBIT_F32, ISOBIT_F64};
  Stack given(stack);
  const Tensor inv_freq = given.tensor();
  const std::int64_t length = given.integer(), offset = given.integer();
  const Tensor positions = given.optional_tensor();
  const std::int32_t dtype = given.optional_dtype(aoti_torch_dtype_float32());
  require(inv_freq.rank() == 1, kName, ": inv_freq has ", std::int64_t{inv_freq.rank()},
          " dimensions; must have 1");
  require_dtype(kName, "inv_freq", inv_freq.dtype(), kReals);
  require_dtype(kName, "dtype", dtype, kReals);
  require(length >= 0, kName, ": length is ", length, "; must not be negative");
  if (positions) require_one_device(kName, "positions", positions, "inv_freq", inv_freq.device());
  const std::int64_t shape[] = {length, inv_freq.shape()[0]};
  Tensor cos = new_output(inv_freq, shape, dtype), sin = new_output(inv_freq, shape, dtype);
  const Argument frequencies(inv_freq, kAllDims), places(positions, kAllDims),
      cosines(cos, 1, Access::write), sines(sin, 1, Access::write);
  auto args = empty_args<isobit_rope_tables_args>();
  args.inv_freq = frequencies.get();
  args.positions = places.get();
  args.cos = cosines.get();
  args.sin = sines.get();
  args.offset_positions = offset;
  const Lent lent(inv_freq);
  check(isobit_rope_tables(&args, lent.context()));
  put(stack, cos, sin);
}

}  // namespace isobit::torch
