// SPDX-License-Identifier: Apache-2.0
// Calls of attention that its tests make: arrays of one call, its gradients, every way to compute
// it.
#pragma once

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attention_backward_of.h"
#include "float_arrays.h"
#include "isobit/dispatch/operation.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/devices.h"
#include "isobit/ops/attention/attention.h"
#include "workloads.h"

namespace isobit::attention {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

// One call's arrays, dense.
struct Call {
  std::int64_t batch = 1, heads = 1, kv_heads = 1, seq_q = 1, seq_k = 1, dim = 8, value_dim = 8;
  Floats q, k, v, y, lse, max, sum;

  Call(std::int64_t b, std::int64_t h, std::int64_t g, std::int64_t m, std::int64_t n,
       std::int64_t d, std::int64_t e)
      : batch(b), heads(h), kv_heads(g), seq_q(m), seq_k(n), dim(d), value_dim(e) {
    q = numbers(b * h * m * d, 1);
    k = numbers(b * g * n * d, 2);
    v = numbers(b * g * n * e, 3);
    y.assign(static_cast<std::size_t>(b * h * m * e), kNan);
    lse.assign(static_cast<std::size_t>(b * h * m), kNan);
    max = sum = lse;
  }
  ForwardArgs args(const Options& options = {}) {
    ForwardArgs args;
    static_cast<Options&>(args) = options;
    args.q = view(q.data(), {batch, heads, seq_q, dim});
    args.k = view(k.data(), {batch, kv_heads, seq_k, dim});
    args.v = view(v.data(), {batch, kv_heads, seq_k, value_dim});
    args.y = view(y.data(), {batch, heads, seq_q, value_dim});
    args.lse = view(lse.data(), {batch, heads, seq_q});
    args.max = view(max.data(), {batch, heads, seq_q});
    args.sum = view(sum.data(), {batch, heads, seq_q});
    return args;
  }
  const float* row(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return y.data() + ((b * heads + h) * seq_q + i) * value_dim;
  }
};

struct Gradients {
  Floats q, k, v, bias;
};
// The gradients of a call that ran, by numbers that stand in the place of those of y.
inline Gradients gradients(Call& call, const ForwardArgs& forward, const Floats& grad_y,
                           const std::function<void(const BackwardArgs&)>& run) {
  Gradients result{
      Floats(call.q.size(), kNan), Floats(call.k.size(), kNan), Floats(call.v.size(), kNan), {}};
  BackwardArgs args = backward_of(forward);
  args.grad_y = view(grad_y.data(), {call.batch, call.heads, call.seq_q, call.value_dim});
  args.grad_q = view(result.q.data(), {call.batch, call.heads, call.seq_q, call.dim});
  args.grad_k = view(result.k.data(), {call.batch, call.kv_heads, call.seq_k, call.dim});
  args.grad_v = view(result.v.data(), {call.batch, call.kv_heads, call.seq_k, call.value_dim});
  if (forward.bias.given()) {
    result.bias.assign(static_cast<std::size_t>(call.batch * call.heads * call.seq_q * call.seq_k),
                       kNan);
    args.grad_bias = view(result.bias.data(), {call.batch, call.heads, call.seq_q, call.seq_k});
  }
  run(args);
  return result;
}
inline Gradients gradients(Call& call, const ForwardArgs& forward, const Execution& execution,
                           const Floats& grad_y) {
  return gradients(call, forward, grad_y,
                   [&](const BackwardArgs& args) { backward(args, execution); });
}

inline bool equal(const float* a, const float* b, std::int64_t count) {
  return std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(float)) == 0;
}

inline void for_each_isa(const std::function<void(const Execution&)>& body) {
  for (Isa isa : Machine::isas_here())
    for (int threads : {1, 3}) body(lab::execution_for(isa, threads));
}

// The emulator is slow: a thinned run has it in one call of five.
inline bool emulator_has_its_turn() {
  static int calls = 0;
  return !lab::thinned() || calls++ % 5 == 0;
}

// Calls body(execution, run), whose run(args) computes either pass by one variant, once for every
// variant of `pass` that there is here: the processor's on each instruction set, with one thread
// and with three, a thinned run with three alone; and the emulator's, if they are wanted.
template <class Args>
void for_each_way(const Operation& operation,
                  const std::function<void(const std::string& name,
                                           const std::function<bool(const Args&)>& run)>& body,
                  bool emulated = emulator_has_its_turn()) {
  lab::attach_devices();
  const std::vector<VariantInfo> infos = operation.variants();
  for (std::size_t i = 0; i < infos.size(); ++i) {
    std::vector<Execution> executions;
    if (infos[i].name.starts_with("flash_") || infos[i].name == "amx")
      continue;  // they have another arithmetic
    if (infos[i].device == Device::emu && emulated)
      executions.push_back(lab::execution_for(Device::emu));
    else if (infos[i].device == Device::cpu)
      for (Isa isa : Machine::isas_here())
        for (int threads : {1, 3})
          if ((infos[i].each_isa || isa == Isa::scalar) && !(lab::thinned() && threads == 1))
            executions.push_back(lab::execution_for(isa, threads));
    for (const Execution& execution : executions)
      body(std::string(infos[i].name) + " on " + std::string(name_of(infos[i].device)) + " " +
               std::string(name_of(execution.machine.isa)),
           [&](const Args& args) {
             const int variant = static_cast<int>(i);
             const Arguments given = operation.make_arguments();
             *static_cast<Args*>(given.get()) = args;
             if (!operation.declines(variant, given, execution.machine).empty()) return false;
             operation.run(variant, operation.choose(variant, given, execution.machine), given,
                           execution);
             return true;
           });
  }
}

}  // namespace isobit::attention
