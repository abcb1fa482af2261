// SPDX-License-Identifier: Apache-2.0
// Products by NVIDIA's cuBLASLt where it is installed, to compare with: in whatever order it likes.
#include "isobit/ops/matmul/cuda_cublaslt.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <type_traits>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/ops/matmul/problem.h"
#include "isobit/simt/current_device.h"

namespace isobit::matmul {
namespace cublaslt {
namespace {

constexpr const char* kVariable = "ISOBIT_CUBLASLT_LIBRARY";

Library load() {
  Library loaded;
  std::vector<const char*> files = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
  if (is_named()) files = {std::getenv(kVariable)};
  void* handle = nullptr;
  std::string why;
  for (const char* file : files) {
    handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) break;
    const char* error = dlerror();
    if (why.empty()) why = error != nullptr ? error : file;
  }
  if (handle == nullptr) {
    loaded.missing = text("cuBLASLt is missing (", why,
                          "): install CUDA's cuBLAS (PyPI has it as nvidia-cublas), or name its "
                          "libcublasLt in ",
                          kVariable);
    return loaded;
  }
  const auto find = [&](const char* name, auto& function) {
    void* const address = dlsym(handle, name);
    if (address == nullptr && loaded.missing.empty())
      loaded.missing = text("the library found as cuBLASLt has no ", name,
                            ": install CUDA's cuBLAS of version 12 or later");
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
#define ISOBIT_FIND(name, parameters) find(#name, loaded.name);
  ISOBIT_CUBLASLT(ISOBIT_FIND)
#undef ISOBIT_FIND
  loaded.stands_in = dlsym(handle, "isobit_stands_in_for_cublaslt") != nullptr;
  return loaded;
}

}  // namespace

bool is_named() {
  const char* named = std::getenv(kVariable);
  return named != nullptr && *named != '\0';
}

const Library& library() {
  static const Library& loaded = *new Library(load());
  return loaded;
}

}  // namespace cublaslt

namespace {

namespace lt = cublaslt;

void checked(const char* function, lt::Status status) {
  if (status != 0) throw DeviceError(text(function, ": error ", status));
}
#define ISOBIT_CALL(function, ...) checked(#function, lt::library().function(__VA_ARGS__))

// What one of the library's functions made and another takes back.
template <class Thing>
class Owned {
 public:
  explicit Owned(lt::Status (*destroy)(Thing)) : destroy_(destroy) {}
  ~Owned() {
    if (thing_ != nullptr) destroy_(thing_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  operator Thing() const { return thing_; }  // NOLINT(google-explicit-constructor)
  Thing* made() { return &thing_; }

 private:
  lt::Status (*destroy_)(Thing);
  Thing thing_ = nullptr;
};

// A matrix as the library has them, by columns: what is a row here is a column there, and so a
// matrix of y is one of y' = b' a'.
struct Columns {
  std::int64_t rows, cols, apart, step;
  bool turned;  // it is the transpose of the operand
};

// Of `inner` by `outer` elements, which lie so far apart. `rows` is 0 where it lies otherwise.
Columns columns(std::int64_t inner, std::int64_t inner_stride, std::int64_t outer,
                std::int64_t outer_stride, std::int64_t step) {
  const auto of = [&](std::int64_t rows, std::int64_t cols, std::int64_t apart, bool turned) {
    if (cols == 1) apart = rows;
    return apart < rows ? Columns{} : Columns{rows, cols, apart, step, turned};
  };
  if (inner_stride == 1 || inner == 1) return of(inner, outer, outer_stride, false);
  if (outer_stride == 1 || outer == 1) return of(outer, inner, inner_stride, true);
  return {};
}

struct Operands {
  Columns b, a, c, y;  // a and b change places

  explicit Operands(const Problem& problem) {
    const Arrays& first = problem.first;
    const auto step = [&](std::size_t which) {
      return problem.loop_count > 0 ? problem.loops[0].steps[which] : 0;
    };
    b = columns(problem.n, first.b.col, problem.k, first.b.row, step(1));
    a = columns(problem.k, first.a.col, problem.m, first.a.row, step(0));
    y = columns(problem.n, first.y.col, problem.m, first.y.row, step(5));
    c = first.c ? columns(problem.n, first.c.col, problem.m, first.c.row, step(3)) : y;
  }
  bool lie_by_columns() const {
    return a.rows > 0 && b.rows > 0 && c.rows > 0 && y.rows > 0 && !c.turned && !y.turned;
  }
};

lt::Type type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:  return lt::kF16;
    case DType::bf16: return lt::kBf16;
    case DType::f64:  return lt::kF64;
    default:          return lt::kF32;
  }
}

void lay_out(Owned<lt::Layout>& layout, const Columns& matrix, DType dtype, std::int64_t count) {
  ISOBIT_CALL(cublasLtMatrixLayoutCreate, layout.made(), type_of(dtype),
              static_cast<std::uint64_t>(matrix.rows), static_cast<std::uint64_t>(matrix.cols),
              matrix.apart);
  if (count == 1) return;
  const auto products = static_cast<std::int32_t>(count);
  ISOBIT_CALL(cublasLtMatrixLayoutSetAttribute, layout, lt::kBatchCount, &products,
              sizeof products);
  ISOBIT_CALL(cublasLtMatrixLayoutSetAttribute, layout, lt::kBatchStride, &matrix.step,
              sizeof matrix.step);
}

// It belongs to a device, and to make one takes long.
lt::Context context() {
  static std::mutex& mutex = *new std::mutex;
  static auto& contexts = *new std::map<int, lt::Context>;
  const std::scoped_lock lock(mutex);
  lt::Context& own = contexts[simt::current_device()];
  if (own == nullptr) ISOBIT_CALL(cublasLtCreate, &own);
  return own;
}

constexpr std::size_t kWorkspace = std::size_t{32} << 20, kWorkspaceAlignment = 256;

std::size_t cublaslt_workspace(const Problem& problem, const Plan&, const Machine&) {
  return problem.empty() ? 0 : kWorkspace + kWorkspaceAlignment;
}

// The multiple of a power of two that an address is, as far as the library asks.
std::uint32_t alignment_of(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address) | 256;
  return static_cast<std::uint32_t>(at & -at);
}

void run_cublaslt(const ForwardArgs&, const Problem& problem, const Plan&,
                  const Execution& execution) {
  if (problem.empty()) return;
  const lt::Library& library = lt::library();
  const Operands operands(problem);
  const Arrays& first = problem.first;
  const bool in_f64 = problem.real() == DType::f64;

  Owned<lt::Product> product(library.cublasLtMatmulDescDestroy);
  ISOBIT_CALL(cublasLtMatmulDescCreate, product.made(), in_f64 ? lt::kInF64 : lt::kInF32,
              type_of(problem.real()));
  const auto turn = [&](lt::ProductAttribute which, const Columns& matrix) {
    const lt::Turn turned = matrix.turned ? lt::kTransposed : lt::kPlain;
    ISOBIT_CALL(cublasLtMatmulDescSetAttribute, product, which, &turned, sizeof turned);
  };
  turn(lt::kTurnOfA, operands.b);
  turn(lt::kTurnOfB, operands.a);

  const auto layout = [&] { return Owned<lt::Layout>(library.cublasLtMatrixLayoutDestroy); };
  Owned<lt::Layout> b = layout(), a = layout(), c = layout(), y = layout();
  lay_out(b, operands.b, first.b.dtype, problem.products());
  lay_out(a, operands.a, first.a.dtype, problem.products());
  lay_out(c, operands.c, first.y.dtype, problem.products());
  lay_out(y, operands.y, first.y.dtype, problem.products());
  const void* const added = first.c ? first.c.data : first.y.data;

  Owned<lt::Preference> preference(library.cublasLtMatmulPreferenceDestroy);
  ISOBIT_CALL(cublasLtMatmulPreferenceCreate, preference.made());
  const auto prefer = [&](lt::PreferenceAttribute which, const auto& value) {
    ISOBIT_CALL(cublasLtMatmulPreferenceSetAttribute, preference, which, &value, sizeof value);
  };
  prefer(lt::kMostWorkspace, std::uint64_t{kWorkspace});
  prefer(lt::kAlignmentOfA, alignment_of(first.b.data));
  prefer(lt::kAlignmentOfB, alignment_of(first.a.data));
  prefer(lt::kAlignmentOfC, alignment_of(added));
  prefer(lt::kAlignmentOfD, alignment_of(first.y.data));

  lt::Found found{};
  int count = 0;
  ISOBIT_CALL(cublasLtMatmulAlgoGetHeuristic, context(), product, b, a, c, y, preference, 1, &found,
              &count);
  if (count == 0)
    throw DeviceError("cublasLtMatmulAlgoGetHeuristic: no algorithm for this product");
  const float scales_f32[] = {static_cast<float>(problem.alpha), static_cast<float>(problem.beta)};
  const double scales_f64[] = {problem.alpha, problem.beta};
  const auto scale = [&](int which) -> const void* {
    return in_f64 ? static_cast<const void*>(scales_f64 + which) : scales_f32 + which;
  };
  auto workspace = reinterpret_cast<std::uintptr_t>(execution.workspace);
  workspace = (workspace + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  ISOBIT_CALL(cublasLtMatmul, context(), product, scale(0), first.b.data, b, first.a.data, a,
              scale(1), added, c, first.y.data, y, &found.algorithm,
              reinterpret_cast<void*>(workspace), kWorkspace, execution.stream);
}

std::string declines_cublaslt(const Problem& problem, const Machine& machine) {
  const bool emulated = machine.device == Device::emu;
  if (machine.device != Device::cuda && !emulated) return "only NVIDIA's GPUs have cuBLASLt";
  if (emulated && (!lt::is_named() || !lt::library().stands_in))
    return "the emulator has no cuBLASLt";
  if (!lt::library().missing.empty()) return lt::library().missing;
  if (problem.empty()) return {};
  const Arrays& first = problem.first;
  if (first.bias || first.residual || first.pre || problem.activation != Activation::none)
    return "it computes alpha a b + beta c alone";
  if (first.y.dtype != problem.element && first.y.dtype != problem.real())
    return "it takes y in the type of a and b, or f32";
  if (problem.k == 0) return "it takes no empty sums";
  if (problem.loop_count > 1) return "it takes products in one dimension of a batch";
  if (problem.products() > std::numeric_limits<std::int32_t>::max())
    return "it takes less than 2^31 products";
  if (!Operands(problem).lie_by_columns())
    return "it takes matrices whose rows or columns are adjacent elements and do not overlap, and "
           "y "
           "and c by rows";
  return {};
}

}  // namespace

ForwardVariant cuda_cublaslt_variant() {
  return {.name = "cublaslt",
          .bits = Bits::unordered,
          .declines = declines_cublaslt,
          .workspace = cublaslt_workspace,
          .run = run_cublaslt};
}

}  // namespace isobit::matmul
