// SPDX-License-Identifier: Apache-2.0
// Calls the C interface with a workload's arrays, as a C program would.
#include <algorithm>
#include <string_view>

#include "isobit/isobit.h"
#include "isobit/lab/callers.h"
#include "isobit/ops/elementwise/elementwise.h"

namespace isobit::lab {
namespace {

constexpr isobit_dtype kDTypes[] = {ISOBIT_F32, ISOBIT_F16, ISOBIT_BF16, ISOBIT_F64, ISOBIT_I32};
static_assert(static_cast<int>(DType::bf16) == 2 && static_cast<int>(DType::i32) == 4);

isobit_tensor tensor_of(const TensorView& view) {
  isobit_tensor tensor{};
  tensor.data = view.data;
  tensor.bytes = view.bytes;
  tensor.dtype = kDTypes[static_cast<int>(view.dtype)];
  tensor.rank = view.rank;
  std::ranges::copy(view.shape, tensor.shape);
  std::ranges::copy(view.strides, tensor.strides);
  return tensor;
}

// A case and its arrays, in C's words.
class Call {
 public:
  explicit Call(const Workload& workload) : case_(workload.the_case()) {
    for (const Argument& argument : workload.operation().arguments)
      if (const TensorView& view = workload.args()[argument]; view.given())
        tensors_.emplace(argument.name, tensor_of(view));
  }

  double option(std::string_view name) const { return case_.options.at(name); }

  // Null where the case has no such array.
  const isobit_tensor* operator()(std::string_view name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }

 private:
  const Case& case_;
  std::map<std::string_view, isobit_tensor> tensors_;
};

template <class Args>
using Function = isobit_status(const Args*, const isobit_context*);

template <class Args>
isobit_status run_norm(Function<Args>& function, Args args, const Call& call,
                       const isobit_context& context) {
  args.struct_size = sizeof args;
  args.eps = call.option("eps");
  args.dropout = call.option("dropout");
  args.dropout_seed = static_cast<std::uint64_t>(call.option("dropout_seed"));
  args.zero_centred = call.option("zero_centred") != 0;
  return function(&args, &context);
}

template <class Args, Function<Args>& kFunction>
isobit_status forward(const Call& call, const isobit_context& context) {
  Args args{};
  args.x = call("x");
  args.residual = call("residual");
  args.weight = call("weight");
  args.y = call("y");
  args.sum = call("sum");
  args.rstd = call("rstd");
  if constexpr (requires { args.bias; }) {
    args.bias = call("bias");
    args.mean = call("mean");
  }
  return run_norm(kFunction, args, call, context);
}

template <class Args, Function<Args>& kFunction>
isobit_status backward(const Call& call, const isobit_context& context) {
  Args args{};
  args.x = call("x");
  args.grad_y = call("grad_y");
  args.weight = call("weight");
  args.rstd = call("rstd");
  args.grad_sum = call("grad_sum");
  args.grad_x = call("grad_x");
  args.grad_residual = call("grad_residual");
  args.grad_weight = call("grad_weight");
  if constexpr (requires { args.grad_bias; }) {
    args.mean = call("mean");
    args.grad_bias = call("grad_bias");
  }
  return run_norm(kFunction, args, call, context);
}

isobit_status elementwise(const Call& call, const isobit_context& context) {
  const auto kind = static_cast<elementwise::Kind>(call.option("kind"));
  if (kind == elementwise::Kind::add) {
    const isobit_elementwise_add_args args = {sizeof args, call("x"), call("residual"), call("y")};
    return isobit_elementwise_add(&args, &context);
  }
  const isobit_elementwise_increment_args args = {sizeof args, call("x"), call("y")};
  return isobit_elementwise_increment(&args, &context);
}

struct Entry {
  std::string_view op, pass;
  isobit_status (*run)(const Call&, const isobit_context&);
};
constexpr Entry kEntries[] = {
    {"elementwise", "fwd", elementwise},
    {"layernorm", "fwd", forward<isobit_layernorm_forward_args, isobit_layernorm_forward>},
    {"layernorm", "bwd", backward<isobit_layernorm_backward_args, isobit_layernorm_backward>},
    {"rmsnorm", "fwd", forward<isobit_rmsnorm_forward_args, isobit_rmsnorm_forward>},
    {"rmsnorm", "bwd", backward<isobit_rmsnorm_backward_args, isobit_rmsnorm_backward>},
};

}  // namespace

Called call_from_c(const Workload& workload, int threads) {
  Called called{.way = "C"};
  const Operation& operation = workload.operation();
  const auto entry = std::ranges::find_if(kEntries, [&](const Entry& known) {
    return known.op == operation.op && known.pass == operation.pass;
  });
  if (entry == std::end(kEntries)) {
    called.declined = "the lab knows no entry of isobit.h for it";
    return called;
  }
  isobit_context context{};
  context.struct_size = sizeof context;
  context.threads = threads;
  workload.poison();
  if (entry->run(Call(workload), context) != ISOBIT_OK) {
    called.declined = isobit_last_error();
    return called;
  }
  for (const Argument* output : workload.outputs())
    called.outputs.emplace(output->name, bits(*workload.find(output->name)));
  return called;
}

}  // namespace isobit::lab
