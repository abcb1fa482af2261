// SPDX-License-Identifier: Apache-2.0
// Steps of optimisers over lists of PyTorch's tensors by the C ABI: one call for all parameters of
// a group, whose threads share them.
#include "isobit/torch/optimizers.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "isobit/torch/flat.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

using List = std::vector<Tensor>;

// Lists of as many tensors as there are parameters, or empty ones.
struct Lists {
  const char* op;
  List params, grads, states[3], masters;
  const char* names[3];  // of the states

  void check() const {
    require(!params.empty(), op, ": params is empty");
    of_all("grads", grads);
    for (int k = 0; k < 3; ++k)
      if (names[k] != nullptr && !states[k].empty()) of_all(names[k], states[k]);
    if (!masters.empty()) of_all("masters", masters);
    for (std::size_t i = 0; i < params.size(); ++i) types_of(i);
  }
  void of_all(const char* name, const List& list) const {
    require(list.size() == params.size(), op, ": ", name, " has ", std::ssize(list),
            " tensors; params has ", std::ssize(params));
  }

 private:
  // Everything is looked at before the first parameter moves.
  void types_of(std::size_t i) const {
    require_dtype(op, "params", params[i].dtype(), kFloats);
    require_one_device(op, "params", params[i], "the first of them", params[0].device());
    const std::int32_t own = masters.empty() ? params[i].dtype() : masters[i].dtype();
    if (masters.empty()) {
      const std::int32_t it[] = {isobit_dtype(own), ISOBIT_F16, ISOBIT_BF16};
      require_dtype(op, "grads", grads[i].dtype(), DTypes(it).first(it[0] == ISOBIT_F32 ? 3 : 1));
    } else {
      constexpr std::int32_t kReal[] = {ISOBIT_F32};
      require_dtype(op, "masters", own, kReal);
      const std::int32_t it[] = {isobit_dtype(params[i].dtype())};
      require_dtype(op, "grads", grads[i].dtype(), it);
    }
    const std::int32_t its[] = {isobit_dtype(own)};
    for (int k = 0; k < 3; ++k)
      if (!states[k].empty()) require_dtype(op, names[k], states[k][i].dtype(), its);
  }
};

// The arrays of one parameter.
struct Views {
  isobit_tensor param{}, grad{}, state[3]{}, narrow{};
};

// Of each list the part that one call of the C ABI is about.
struct Arrays {
  isobit_tensor param, grad, state[3], narrow;

  Arrays(const Views& views, std::int64_t from, std::int64_t count)
      : param(part(views.param, from, count)),
        grad(part(views.grad, from, count)),
        state{part(views.state[0], from, count), part(views.state[1], from, count),
              part(views.state[2], from, count)},
        narrow(part(views.narrow, from, count)) {}

  static const isobit_tensor* given(const isobit_tensor& view) {
    return view.rank == 0 ? nullptr : &view;
  }
};

// step(item, arrays, context) for all parameters.
template <class Step>
void run(const Lists& lists, const Step& step) {
  lists.check();
  std::deque<Flat> flats;  // each stays where it is
  std::vector<Views> views(lists.params.size());
  std::vector<std::int64_t> elements;
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    Flat& flat = flats.emplace_back(lists.op, lists.params[i]);
    const isobit_tensor param = flat.add("params", lists.params[i], Access::write);
    views[i].grad = flat.add("grads", lists.grads[i], Access::read);
    for (int k = 0; k < 3; ++k)
      if (!lists.states[k].empty())
        views[i].state[k] = flat.add(lists.names[k], lists.states[k][i], Access::write);
    if (lists.masters.empty()) {
      views[i].param = param;
    } else {
      views[i].param = flat.add("masters", lists.masters[i], Access::write);
      views[i].narrow = param;
    }
    elements.push_back(flat.elements());
  }
  const Lent lent(lists.params[0]);
  run_parts(
      elements, lent.context(),
      [&](std::size_t item, std::int64_t from, std::int64_t count, const isobit_context* context) {
        return step(item, Arrays(views[item], from, count), context);
      });
  for (const Flat& flat : flats) flat.finish();
}

// How many steps each parameter has taken: PyTorch keeps a float beside it.
class Steps {
 public:
  Steps(const char* op, List&& tensors) : tensors_(std::move(tensors)) {
    for (const Tensor& tensor : tensors_) {
      require(tensor.shape().empty() && tensor.device().type == aoti_torch_device_type_cpu(), op,
              ": steps must be single numbers in CPU memory");
      constexpr std::int32_t kReals[] = {ISOBIT_F32, ISOBIT_F64};
      require_dtype(op, "steps", tensor.dtype(), kReals);
      const double taken = is_double(tensor) ? read<double>(tensor) : read<float>(tensor);
      require(taken >= 0 && taken <= 0x1p52 && taken == std::floor(taken), op, ": steps has ",
              taken, "; must be a whole number, and not negative");
      steps_.push_back(static_cast<std::int64_t>(taken) + 1);
    }
  }

  const List& tensors() const { return tensors_; }
  // The one that is being taken.
  std::int64_t operator[](std::size_t item) const { return steps_[item]; }
  void store() const {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const auto taken = static_cast<double>(steps_[i]);
      if (is_double(tensors_[i]))
        write(tensors_[i], taken);
      else
        write(tensors_[i], static_cast<float>(taken));
    }
  }

 private:
  static bool is_double(const Tensor& tensor) { return isobit_dtype(tensor.dtype()) == ISOBIT_F64; }
  template <class Real>
  static Real read(const Tensor& tensor) {
    Real value;
    std::memcpy(&value, tensor.input(), sizeof value);
    return value;
  }
  template <class Real>
  static void write(const Tensor& tensor, Real value) {
    std::memcpy(tensor.output(), &value, sizeof value);
  }

  List tensors_;
  std::vector<std::int64_t> steps_;
};

void adam(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  Lists lists{"adam_",
              given.tensors(),
              given.tensors(),
              {},
              {},
              {"exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"}};
  for (List& state : lists.states) state = given.tensors();
  lists.masters = given.tensors();
  const Steps steps(lists.op, given.tensors());
  auto options = empty_args<isobit_adam_args>();
  options.lr = given.number();
  options.beta1 = given.number();
  options.beta2 = given.number();
  options.eps = given.number();
  options.weight_decay = given.number();
  options.decoupled = given.flag();
  options.maximize = given.flag();
  lists.of_all("steps", steps.tensors());
  lists.of_all("exp_avgs", lists.states[0]);
  lists.of_all("exp_avg_sqs", lists.states[1]);
  run(lists, [&](std::size_t item, const Arrays& arrays, const isobit_context* context) {
    isobit_adam_args args = options;
    args.param = args.new_param = &arrays.param;
    args.grad = &arrays.grad;
    args.exp_avg = args.new_exp_avg = &arrays.state[0];
    args.exp_avg_sq = args.new_exp_avg_sq = &arrays.state[1];
    args.max_exp_avg_sq = args.new_max_exp_avg_sq = Arrays::given(arrays.state[2]);
    args.narrow = Arrays::given(arrays.narrow);
    args.step = steps[item];
    return isobit_adam(&args, context);
  });
  steps.store();
}

// `first`: the buffers are written alone.
void sgd(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  Lists lists{"sgd_", given.tensors(),     given.tensors(), {given.tensors()},
              {},     {"momentum_buffers"}};
  lists.masters = given.tensors();
  auto options = empty_args<isobit_sgd_args>();
  options.lr = given.number();
  options.momentum = given.number();
  options.dampening = given.number();
  options.weight_decay = given.number();
  options.nesterov = given.flag();
  options.maximize = given.flag();
  const bool first = given.flag();
  run(lists, [&](std::size_t, const Arrays& arrays, const isobit_context* context) {
    isobit_sgd_args args = options;
    args.param = args.new_param = &arrays.param;
    args.grad = &arrays.grad;
    args.new_momentum_buffer = Arrays::given(arrays.state[0]);
    args.momentum_buffer = first ? nullptr : args.new_momentum_buffer;
    args.narrow = Arrays::given(arrays.narrow);
    return isobit_sgd(&args, context);
  });
}

void lion(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  Lists lists{"lion_", given.tensors(), given.tensors(), {given.tensors()}, {}, {"exp_avgs"}};
  lists.masters = given.tensors();
  auto options = empty_args<isobit_lion_args>();
  options.lr = given.number();
  options.beta1 = given.number();
  options.beta2 = given.number();
  options.weight_decay = given.number();
  options.maximize = given.flag();
  lists.of_all("exp_avgs", lists.states[0]);
  run(lists, [&](std::size_t, const Arrays& arrays, const isobit_context* context) {
    isobit_lion_args args = options;
    args.param = args.new_param = &arrays.param;
    args.grad = &arrays.grad;
    args.exp_avg = args.new_exp_avg = &arrays.state[0];
    args.narrow = Arrays::given(arrays.narrow);
    return isobit_lion(&args, context);
  });
}

// The norm of each tensor, whose elements are taken in the order of its dimensions, in one vector.
void vector_norms(StableIValue* stack, std::uint64_t, std::uint64_t) {
  constexpr const char* kName = "vector_norms";
  Stack given(stack);
  const List tensors = given.tensors();
  auto args = empty_args<isobit_vector_norm_args>();
  args.order = static_cast<std::int32_t>(given.integer());
  require(!tensors.empty(), kName, ": tensors is empty");
  const Tensor& first = tensors[0];
  bool wide = false;
  for (const Tensor& tensor : tensors) {
    require_dtype(kName, "tensors", tensor.dtype(), kFloats);
    require_one_device(kName, "tensors", tensor, "the first of them", first.device());
    wide = wide || isobit_dtype(tensor.dtype()) == ISOBIT_F64;
  }
  const std::int64_t count[] = {std::ssize(tensors)}, none[] = {0};
  const std::int32_t f32 = aoti_torch_dtype_float32(), f64 = aoti_torch_dtype_float64();
  // Each in the type that it is computed in; a float is a double without another rounding.
  Tensor floats = new_output(first, count, f32);
  Tensor doubles = new_output(first, wide ? Shape(count) : Shape(none), f64);
  isobit_tensor to_floats = strided(floats, Access::write);
  isobit_tensor to_doubles = strided(doubles, Access::write);
  const Lent lent(first);
  const auto norms_of = [&](bool of_doubles) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if ((isobit_dtype(tensors[i].dtype()) == ISOBIT_F64) != of_doubles) continue;
      const Argument x(tensors[i], kAllDims);
      const isobit_tensor norm =
          part(of_doubles ? to_doubles : to_floats, static_cast<std::int64_t>(i), 1);
      args.x = x.get();
      args.norm = &norm;
      check(isobit_vector_norm(&args, lent.context()));
    }
  };
  norms_of(false);
  if (!wide) {
    put(stack, floats);
    return;
  }
  copy(doubles, floats);
  norms_of(true);
  put(stack, doubles);
}

struct Operator {
  const char *name, *signature;
  Kernel kernel;
};
constexpr Operator kOperators[] = {
    {"adam_",
     "(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
     "Tensor(d!)[] max_exp_avg_sqs, Tensor(e!)[] masters, Tensor(f!)[] steps, float lr, "
     "float beta1, float beta2, float eps, float weight_decay, bool decoupled=False, "
     "bool maximize=False) -> ()",
     adam},
    {"sgd_",
     "(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_buffers, "
     "Tensor(c!)[] masters, float lr, float momentum=0.0, float dampening=0.0, "
     "float weight_decay=0.0, bool nesterov=False, bool maximize=False, bool first=False) -> ()",
     sgd},
    {"lion_",
     "(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] masters, "
     "float lr, float beta1, float beta2, float weight_decay=0.0, bool maximize=False) -> ()",
     lion},
    {"vector_norms", "(Tensor[] tensors, int order=0) -> Tensor", vector_norms},
};

}  // namespace

void define_optimizers(Registration& definitions) {
  for (const auto& [name, signature, kernel] : kOperators)
    definitions.define(joined(name, signature));
}

void implement_optimizers(Registration& implementations) {
  for (const auto& [name, signature, kernel] : kOperators) implementations.implement(name, kernel);
}

}  // namespace isobit::torch
