// SPDX-License-Identifier: Apache-2.0
// The packed matrix of callers: its rules, and the products that it is a factor of.
#include <utility>

#include "isobit/core/check.h"
#include "isobit/core/error.h"
#include "isobit/dispatch/definition.h"
#include "isobit/ops/matmul/cpu_panels.h"

namespace isobit::matmul {
namespace {

std::unique_ptr<const Panels> packed(const TensorView& b, const Execution& execution) {
  const Checker checker("matmul pack");
  checker.any_strides("b", b, Access::read);
  checker.dtype("b", b, {DType::f32, DType::f16, DType::bf16, DType::f64});
  require(b.rank == 2, "matmul pack: b has ", b.rank, " dimensions; must have 2");
  if (execution.machine.device != Device::cpu)
    throw Unsupported("matmul pack: matrices are packed for the processor alone");
  const Array array{static_cast<std::byte*>(b.data), b.dtype, b.strides[0], b.strides[1]};
  return std::make_unique<const Panels>(array, b.shape[0], b.shape[1], execution);
}

// The arguments with b as an array of that shape, all of whose elements are in one place: none is
// read, and the rules of other calls hold for all else.
ForwardArgs completed(const ForwardArgs& args, const Panels& panels) {
  Checker("matmul").any_strides("a", args.a, Access::read);
  const int rank = args.a.rank;
  require(rank >= 2, "matmul: a has 1 dimension; must have at least 2");
  require(!args.b.given(), "matmul: b is given twice: as an array and packed");
  require(args.a.dtype == panels.element(), "matmul: b was packed of ", name_of(panels.element()),
          "; a is ", name_of(args.a.dtype));
  require(args.a.shape[rank - 1] == panels.k(), "matmul: b was packed with ", panels.k(),
          " rows; a has ", args.a.shape[rank - 1], " columns");
  ForwardArgs result = args;
  result.b = {const_cast<std::byte*>(panels.data()),
              panels.bytes(),
              panels.element(),
              rank,
              args.a.shape,
              {}};
  result.b.shape[rank - 2] = panels.k();
  result.b.shape[rank - 1] = panels.n();
  return result;
}

void check_machine(const Panels& panels, const Machine& machine) {
  if (machine.device != Device::cpu)
    throw Unsupported("matmul: b was packed for the processor; give it as an array");
  require(machine.isa == panels.isa(), "matmul: b was packed for ", name_of(panels.isa()),
          "; this call is for ", name_of(machine.isa), "; pack it for that");
}

}  // namespace

PackedMatrix::PackedMatrix(const TensorView& b, const Execution& execution)
    : panels_(packed(b, execution)) {}
PackedMatrix::~PackedMatrix() = default;
PackedMatrix::PackedMatrix(PackedMatrix&& other) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&& other) noexcept = default;

DType PackedMatrix::dtype() const { return panels_->element(); }
std::int64_t PackedMatrix::k() const { return panels_->k(); }
std::int64_t PackedMatrix::n() const { return panels_->n(); }
Isa PackedMatrix::isa() const { return panels_->isa(); }
std::int64_t PackedMatrix::bytes() const { return panels_->bytes(); }

void forward(const ForwardArgs& args, const PackedMatrix& b, const Execution& execution) {
  require(b.panels_ != nullptr, "matmul: b was moved to another packed matrix");
  const ForwardArgs complete = completed(args, *b.panels_);
  check_machine(*b.panels_, execution.machine);
  Problem problem = check_forward(complete);
  if (const std::string reason = refuses_forward(problem, execution.machine); !reason.empty())
    throw Unsupported("matmul: " + reason);
  problem = problem_of(complete, *b.panels_);
  const ForwardVariant variant = packed_variant();
  detail::run(variant, variant.choose(problem, execution.machine), args, problem, execution);
}

}  // namespace isobit::matmul
