// SPDX-License-Identifier: Apache-2.0
// What is checked of a loss beside its logits, for every operator that computes one.
#pragma once

#include <string_view>

#include "isobit/core/check.h"
#include "isobit/core/error.h"
#include "isobit/ops/cross_entropy/problem.h"

namespace isobit::cross_entropy {

// Checks what both passes take, and knows the arrays of a row's numbers.
class Check {
 public:
  // logits: what is known of them. weight is that of classes, which are the `unit` of `of`.
  template <class Args>
  Check(std::string_view op, const Given& logits, const Args& args, std::string_view weight_name,
        const TensorView& weight_view, std::string_view unit, std::string_view of)
      : op_(op), checker_(op), given_(logits) {
    require(args.target.given(), op, ": target is missing");
    checker_.dtype("target", args.target, {DType::i64});
    target = checker_.vector("target", args.target, given_.rows, "rows");
    given_.target = reinterpret_cast<const std::int64_t*>(target.data);
    weight = numbers(weight_name, weight_view, given_.cols, unit, of);
    given_.weight = weight.data;
    given_.ignore_index = args.ignore_index;
    given_.label_smoothing = args.label_smoothing;
    require(args.label_smoothing >= 0 && args.label_smoothing <= 1, op, ": label_smoothing is ",
            args.label_smoothing, "; allowed: 0 to 1");
    given_.z_loss = checker_.finite("z_loss", args.z_loss, given_.real());
  }

  // `count` numbers of the type that is computed in, if they are there.
  Matrix numbers(std::string_view name, const TensorView& view, std::int64_t count,
                 std::string_view unit, std::string_view of = "x") const {
    if (view.given()) checker_.dtype(name, view, {given_.real()});
    return checker_.vector(name, view, count, unit, of);
  }
  Matrix of_rows(std::string_view name, const TensorView& view) const {
    return numbers(name, view, given_.rows, "rows");
  }
  Matrix required_of_rows(std::string_view name, const TensorView& view) const {
    require(view.given(), op_, ": ", name, " is missing");
    return of_rows(name, view);
  }

  const Checker& checker() const { return checker_; }
  const Given& given() const { return given_; }

  Matrix target, weight;

 private:
  std::string_view op_;
  Checker checker_;
  Given given_;
};

// Where memory may be read, before anything is written. Without classes no target is one, and
// losses are NaN.
inline void check_targets(std::string_view op, const Given& given) {
  if (given.cols == 0) return;
  for (std::int64_t row = 0; row < given.rows; ++row) {
    const std::int64_t target = given.target[row];
    require((target >= 0 && target < given.cols) || target == given.ignore_index, op, ": target[",
            row, "] is ", target, "; there are classes from 0 to ", given.cols - 1,
            ", and ignore_index is ", given.ignore_index);
  }
}

}  // namespace isobit::cross_entropy
