// SPDX-License-Identifier: Apache-2.0
// Scans of PyTorch's tensors by the C ABI, along any dimension of any view.
#include "isobit/torch/scan.h"

#include <algorithm>
#include <array>
#include <vector>

#include "isobit/torch/call.h"
#include "isobit/torch/stack.h"

namespace isobit::torch {
namespace {

constexpr std::int32_t kScanned[] = {ISOBIT_F32, ISOBIT_F16, ISOBIT_BF16,
                                     ISOBIT_F64, ISOBIT_I32, ISOBIT_I64};
constexpr std::int32_t kFlags[] = {ISOBIT_BOOL, ISOBIT_U8};

enum Kind { kSum, kProd, kMax, kMin, kLogSumExp };
constexpr const char* kNames[] = {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"};

// Loops around the scanned dimension. Dimensions that all arrays allow to be one are one, so that
// few are left however many there were.
class Loops {
 public:
  static constexpr std::size_t kX = 0, kY = 1, kReset = 2, kInit = 3, kArrays = 4;
  using Strides = std::array<std::int64_t, kArrays>;

  Loops(const Tensor& x, const Tensor& init, const Tensor& reset, std::size_t dim) {
    const Shape sizes = x.shape(), steps = x.strides();
    const auto dense = dense_strides(sizes);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const Strides strides = {steps[i], dense[i], reset ? reset.strides()[i] : 0,
                               init && i != dim ? init.strides()[i < dim ? i : i - 1] : 0};
      if (i == dim)
        along_ = {sizes[i], strides};
      else if (sizes[i] != 1)
        add({sizes[i], strides});
    }
  }

  // Beside them the scanned one, and one after it.
  bool fit() const { return loops_.size() <= ISOBIT_MAX_RANK - 1; }

  // The innermost loop goes behind the scanned dimension, as the C ABI has it.
  isobit_tensor view(std::size_t array, const Tensor& tensor, Access access = Access::read) const {
    std::vector<std::int64_t> sizes, strides;
    const auto push = [&](const Loop& loop) {
      sizes.push_back(loop.extent);
      strides.push_back(loop.strides[array]);
    };
    for (std::size_t i = 0; i + 1 < loops_.size(); ++i) push(loops_[i]);
    if (array != kInit) push(along_);
    push(loops_.empty() ? Loop{} : loops_.back());
    return strided(tensor, sizes, strides, access);
  }

 private:
  struct Loop {
    std::int64_t extent = 1;
    Strides strides = {1, 1, 1, 1};
  };

  void add(const Loop& inner) {
    const auto continues = [&] {
      for (std::size_t i = 0; i < kArrays; ++i)
        if (loops_.back().strides[i] != inner.strides[i] * inner.extent) return false;
      return true;
    };
    if (loops_.empty() || !continues())
      loops_.push_back(inner);
    else
      loops_.back() = {loops_.back().extent * inner.extent, inner.strides};
  }

  Loop along_;
  std::vector<Loop> loops_;
};

// A call, whose arguments stand in this order.
struct Scan {
  Tensor x, init, reset;
  int kind;
  const char* op;
  std::size_t dim;
  bool exclusive, reverse;

  Scan(Stack& given, bool segmented, int first, int last)
      : x(given.tensor()),
        init(given.optional_tensor()),
        reset(segmented ? given.optional_tensor() : Tensor()),
        kind(kind_of(given.integer(), first, last)),
        op(kNames[kind]),
        dim(dim_of(op, "dim", given.integer(), x.rank())),
        exclusive(given.flag()),
        reverse(given.flag()) {}

  // y_dtype: of init too.
  void check(std::int32_t y_dtype) const {
    const Shape sizes = x.shape();
    if (init) {
      std::vector<std::int64_t> expected(sizes.begin(), sizes.end());
      if (!expected.empty()) expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(dim));
      require(same(init.shape(), expected), op, ": init has shape ", init.shape(),
              "; input without dim has ", Shape(expected));
      require_one_device(op, "init", init, "input", x.device());
      if (init.dtype() != y_dtype)
        require(false, op, ": init has dtype ", dtype_name(init.dtype()), "; must be ",
                dtype_name(y_dtype), ", as the result");
    }
    if (reset) {
      require(same(reset.shape(), sizes), op, ": reset has shape ", reset.shape(),
              "; input has shape ", sizes);
      require_one_device(op, "reset", reset, "input", x.device());
      require_dtype(op, "reset", reset.dtype(), kFlags);
    }
  }

  // index: absent, but for extremes.
  void run(const Tensor& y, const Tensor& index) {
    if (std::ranges::find(x.shape(), 0) != x.shape().end()) return;
    if (!Loops(x, init, reset, dim).fit())
      for (Tensor* each : {&x, &init, &reset})
        if (*each) *each = copied(*each, each->dtype());
    const Loops loops(x, init, reset, dim);
    switch (kind) {
      case kSum:  return enter(loops, y, index, isobit_scan_sum);
      case kProd: return enter(loops, y, index, isobit_scan_prod);
      case kMax:  return enter(loops, y, index, isobit_scan_max);
      case kMin:  return enter(loops, y, index, isobit_scan_min);
      default:    return enter(loops, y, index, isobit_scan_logsumexp);
    }
  }

 private:
  static int kind_of(std::int64_t kind, int first, int last) {
    const bool extreme = kind == kMax || kind == kMin;
    require(first <= kind && kind <= last && extreme == (first == kMax), "scan: kind is ", kind,
            "; allowed: ", first == kMax ? "2, 3" : "0, 1, 4");
    return static_cast<int>(kind);
  }

  template <class Args>
  void enter(const Loops& loops, const Tensor& y, const Tensor& index,
             isobit_status (*function)(const Args*, const isobit_context*)) const {
    auto args = empty_args<Args>();
    const isobit_tensor from = loops.view(Loops::kX, x);
    const isobit_tensor to = loops.view(Loops::kY, y, Access::write);
    isobit_tensor before{}, flags{}, found{};
    args.x = &from;
    args.y = &to;
    if (init) args.init = &(before = loops.view(Loops::kInit, init));
    if (reset) args.reset = &(flags = loops.view(Loops::kReset, reset));
    if constexpr (requires { args.index; })
      args.index = &(found = loops.view(Loops::kY, index, Access::write));
    args.exclusive = exclusive;
    args.reverse = reverse;
    const Lent lent(x);
    torch::check(function(&args, lent.context()));
  }
};

// In what a type is summed: its own, or one that it is converted to on the way.
std::int32_t wider(std::int32_t dtype) {
  switch (isobit_dtype(dtype)) {
    case ISOBIT_F16:
    case ISOBIT_BF16: return aoti_torch_dtype_float32();
    case ISOBIT_F32:  return aoti_torch_dtype_float64();
    case ISOBIT_I32:  return aoti_torch_dtype_int64();
    default:          return dtype;
  }
}

}  // namespace

void scan(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  Scan call(given, true, kSum, kLogSumExp);
  const std::int32_t own = call.x.dtype();
  const bool exact = own == aoti_torch_dtype_int32();
  const std::int32_t dtype = given.optional_dtype(exact ? wider(own) : own);
  require_dtype(call.op, "input", own,
                call.kind == kLogSumExp ? DTypes(kFloats) : DTypes(kScanned));
  if (dtype != own && dtype != wider(own))
    require(false, call.op, ": dtype is ", dtype_name(dtype), "; must be ", dtype_name(own), " or ",
            dtype_name(wider(own)), ", since input has dtype ", dtype_name(own));
  call.check(dtype);
  Tensor y = new_output(call.x, call.x.shape(), dtype);
  call.run(y, {});
  put(stack, y);
}

void scan_extreme(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Stack given(stack);
  Scan call(given, false, kMax, kMin);
  const std::int32_t dtype = call.x.dtype();
  require_dtype(call.op, "input", dtype, kScanned);
  call.check(dtype);
  Tensor y = new_output(call.x, call.x.shape(), dtype);
  Tensor index = new_output(call.x, call.x.shape(), aoti_torch_dtype_int64());
  call.run(y, index);
  put(stack, y, index);
}

}  // namespace isobit::torch
