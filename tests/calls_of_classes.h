// SPDX-License-Identifier: Apache-2.0
// Right calls of the entries that take a class, or a token, for each row.
#pragma once

#include "calls_slots.h"
#include "isobit/isobit.h"

namespace isobit::calls {

class CallsOfClasses : public Slots {
 public:
  using Slots::Slots;

  isobit_tensor target = {classes_.data(), rows_ * 8, ISOBIT_I64, 1, {rows_}, {1}};
  isobit_tensor logits = matrix(0), grad_logits = matrix(6), class_weight = vector(3, kCols);
  isobit_tensor loss = vector(10, rows_), most = vector(7, rows_), weights = vector(8, rows_);
  isobit_tensor whole = vector(9, 1), count = vector(5, 1);
  isobit_cross_entropy_forward_args cross_entropy = {.struct_size = sizeof cross_entropy,
                                                     .x = &logits,
                                                     .target = &target,
                                                     .weight = &class_weight,
                                                     .loss = &loss,
                                                     .lse = nullptr,
                                                     .largest = &most,
                                                     .sum = &weights,
                                                     .total = &whole,
                                                     .count = &count,
                                                     .ignore_index = -100,
                                                     .label_smoothing = 0.25,
                                                     .z_loss = 0.5};
  isobit_cross_entropy_backward_args cross_entropy_backward = {
      .struct_size = sizeof cross_entropy_backward,
      .grad_loss = &most,
      .x = &logits,
      .target = &target,
      .weight = nullptr,
      .largest = &loss,
      .sum = &weights,
      .grad_x = &grad_logits,
      .ignore_index = -100,
      .label_smoothing = 0,
      .z_loss = 0};
  isobit_tensor of_classes = square(1), grad_of_classes = square(2), class_bias = vector(4, kCols),
                grad_of_bias = vector(11, kCols);
  isobit_linear_cross_entropy_forward_args linear_cross_entropy = {
      .struct_size = sizeof linear_cross_entropy,
      .x = &logits,
      .weight = &of_classes,
      .bias = &class_bias,
      .target = &target,
      .class_weight = &class_weight,
      .loss = &loss,
      .lse = nullptr,
      .largest = &most,
      .sum = &weights,
      .total = &whole,
      .count = &count,
      .ignore_index = -100,
      .label_smoothing = 0.25,
      .z_loss = 0.5};
  isobit_linear_cross_entropy_backward_args linear_cross_entropy_backward = {
      .struct_size = sizeof linear_cross_entropy_backward,
      .grad_loss = &most,
      .x = &logits,
      .weight = &of_classes,
      .bias = &class_bias,
      .target = &target,
      .class_weight = nullptr,
      .largest = &loss,
      .sum = &weights,
      .grad_x = &grad_logits,
      .grad_weight = &grad_of_classes,
      .grad_bias = &grad_of_bias,
      .ignore_index = -100,
      .label_smoothing = 0,
      .z_loss = 0};
  isobit_tensor embeddings = matrix(0), embedded = matrix(5);
  isobit_tensor grad_embedded = matrix(2), grad_embeddings = matrix(6);
  isobit_embedding_forward_args embedding = {
      .struct_size = sizeof embedding, .weight = &embeddings, .index = &target, .y = &embedded};
  isobit_embedding_backward_args embedding_backward = {.struct_size = sizeof embedding_backward,
                                                       .grad_y = &grad_embedded,
                                                       .index = &target,
                                                       .grad_weight = &grad_embeddings,
                                                       .padding_idx = 0,
                                                       .scale_grad_by_freq = 1};
};

}  // namespace isobit::calls
