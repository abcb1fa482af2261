// SPDX-License-Identifier: Apache-2.0
// What factors in the inputs of an operator become in its results.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace isobit::lab {

// What becomes of a call when some of its inputs are multiplied by f: an argument of degree d,
// input or output, is multiplied by f^d, and eps by f^2 if x is. Arguments that are not named stay.
struct Law {
  std::string_view of;  // it must be there
  bool negates;         // f is -1 instead of a power of two
  std::map<std::string_view, int> degrees;
};

inline const std::vector<Law> kLawsOfNorms = {
    {"x",
     false,
     {{"x", 1},
      {"residual", 1},
      {"sum", 1},
      {"mean", 1},
      {"rstd", -1},
      {"grad_x", -1},
      {"grad_residual", -1},
      {"grad_sum", -1}}},
    {"x",
     true,
     {{"x", 1},
      {"residual", 1},
      {"sum", 1},
      {"mean", 1},
      {"bias", 1},
      {"y", 1},
      {"grad_weight", 1}}},
    {"weight",
     false,
     {{"weight", 1}, {"bias", 1}, {"y", 1}, {"grad_x", 1}, {"grad_residual", 1}, {"grad_sum", 1}}},
    {"grad_y",
     false,
     {{"grad_y", 1},
      {"grad_x", 1},
      {"grad_residual", 1},
      {"grad_weight", 1},
      {"grad_bias", 1},
      {"grad_sum", 1}}},
};
// A sum is not normalised.
inline const std::vector<Law> kLawsOfSums = {
    {"x", false, {{"x", 1}, {"residual", 1}, {"y", 1}}},
    {"x", true, {{"x", 1}, {"residual", 1}, {"y", 1}}},
};
// Nor is what is moved.
inline const std::vector<Law> kLawsOfMoves = {{"x", false, {{"x", 1}, {"y", 1}}},
                                              {"x", true, {{"x", 1}, {"y", 1}}}};
// Of either factor; what is added must follow.
inline const std::vector<Law> kLawsOfProducts = {
    {"a", false, {{"a", 1}, {"bias", 1}, {"c", 1}, {"residual", 1}, {"y", 1}, {"pre", 1}}},
    {"b", false, {{"b", 1}, {"bias", 1}, {"c", 1}, {"residual", 1}, {"y", 1}, {"pre", 1}}},
};
inline const std::vector<Law> kLawsOfGradientsOfProducts = {
    {"a", false, {{"a", 1}, {"grad_b", 1}}},
    {"b", false, {{"b", 1}, {"grad_a", 1}}},
    {"grad_y",
     false,
     {{"grad_y", 1}, {"grad_a", 1}, {"grad_b", 1}, {"grad_bias", 1}, {"grad_c", 1}}},
};
inline const std::vector<Law> kLawsOfLinear = {
    {"weight", false, {{"weight", 1}, {"bias", 1}, {"residual", 1}, {"z", 1}, {"pre", 1}}},
};
inline const std::vector<Law> kLawsOfGradientsOfLinear = {
    {"grad_z",
     false,
     {{"grad_z", 1},
      {"grad_x", 1},
      {"grad_x_residual", 1},
      {"grad_norm_weight", 1},
      {"grad_norm_bias", 1},
      {"grad_weight", 1},
      {"grad_bias", 1},
      {"grad_sum", 1}}},
};
// The same of windows and weights.
inline const std::vector<Law> kLawsOfConvolutions = {
    {"x", false, {{"x", 1}, {"bias", 1}, {"residual", 1}, {"y", 1}, {"pre", 1}}},
    {"weight", false, {{"weight", 1}, {"bias", 1}, {"residual", 1}, {"y", 1}, {"pre", 1}}},
};
inline const std::vector<Law> kLawsOfGradientsOfConvolutions = {
    {"x", false, {{"x", 1}, {"grad_weight", 1}}},
    {"weight", false, {{"weight", 1}, {"grad_x", 1}}},
    {"grad_y", false, {{"grad_y", 1}, {"grad_x", 1}, {"grad_weight", 1}, {"grad_bias", 1}}},
};
// Weights depend on products of q and k alone; results are sums of rows of v.
inline const std::vector<Law> kLawsOfAttention = {
    {"v", false, {{"v", 1}, {"y", 1}}},
    {"q", false, {{"q", 1}, {"k", -1}}},
};
inline const std::vector<Law> kLawsOfGradientsOfAttention = {
    {"grad_y",
     false,
     {{"grad_y", 1},
      {"grad_lse", 1},
      {"grad_q", 1},
      {"grad_k", 1},
      {"grad_v", 1},
      {"grad_bias", 1}}},
    {"v",
     false,
     {{"v", 1}, {"y", 1}, {"grad_lse", 1}, {"grad_q", 1}, {"grad_k", 1}, {"grad_bias", 1}}},
    {"q", false, {{"q", 1}, {"k", -1}, {"grad_q", -1}, {"grad_k", 1}}},
};
// Of a gradient and what flows into it.
inline const std::vector<Law> kLawsOfGradientsOfPointwiseLosses = {
    {"grad_loss", false, {{"grad_loss", 1}, {"grad_x", 1}}},
    {"grad_loss", true, {{"grad_loss", 1}, {"grad_x", 1}}},
    {"weight", false, {{"weight", 1}, {"grad_x", 1}}},
};
// What is dropped is +0, whatever the sign.
inline const std::vector<Law> kLawsOfDropout = {{"x", false, {{"x", 1}, {"y", 1}}}};
// Of a gradient, what it is made of.
inline const std::vector<Law> kLawsOfGradientsOfSoftmax = {
    {"grad_y", false, {{"grad_y", 1}, {"grad_x", 1}}},
    {"grad_y", true, {{"grad_y", 1}, {"grad_x", 1}}},
};
// The largest of negative elements is another.
inline const std::vector<Law> kLawsOfPooling = {{"x", false, {{"x", 1}, {"y", 1}}}};
inline const std::vector<Law> kLawsOfGradientsOfPooling = {
    {"grad_y", false, {{"grad_y", 1}, {"grad_x", 1}}},
    {"grad_y", true, {{"grad_y", 1}, {"grad_x", 1}}},
};
// Losses are sums of products with the weights of classes, the squares of lse among them.
inline const std::vector<Law> kLawsOfCrossEntropy = {
    {"weight", false, {{"weight", 1}, {"loss", 1}, {"total", 1}, {"count", 1}}},
};
inline const std::vector<Law> kLawsOfGradientsOfCrossEntropy = {
    {"grad_loss", false, {{"grad_loss", 1}, {"grad_x", 1}}},
    {"grad_loss", true, {{"grad_loss", 1}, {"grad_x", 1}}},
    {"weight", false, {{"weight", 1}, {"grad_x", 1}}},
};
inline const std::vector<Law> kLawsOfLinearCrossEntropy = {
    {"class_weight", false, {{"class_weight", 1}, {"loss", 1}, {"total", 1}, {"count", 1}}},
};
inline const std::vector<Law> kLawsOfGradientsOfLinearCrossEntropy = {
    {"grad_loss", false, {{"grad_loss", 1}, {"grad_x", 1}, {"grad_weight", 1}, {"grad_bias", 1}}},
    {"grad_loss", true, {{"grad_loss", 1}, {"grad_x", 1}, {"grad_weight", 1}, {"grad_bias", 1}}},
};
// Rows of a table, and sums of rows of gradients.
inline const std::vector<Law> kLawsOfEmbedding = {
    {"weight", false, {{"weight", 1}, {"y", 1}}},
    {"weight", true, {{"weight", 1}, {"y", 1}}},
};
inline const std::vector<Law> kLawsOfGradientsOfEmbedding = {
    {"grad_y", false, {{"grad_y", 1}, {"grad_weight", 1}}},
    {"grad_y", true, {{"grad_y", 1}, {"grad_weight", 1}}},
};
// Running statistics stay what they are, whatever is done to x.
inline const std::vector<Law> kLawsOfBatchNorm = {
    {"weight", false, {{"weight", 1}, {"bias", 1}, {"y", 1}}},
};
inline const std::vector<Law> kLawsOfGradientsOfBatchNorm = {
    {"grad_y", false, {{"grad_y", 1}, {"grad_x", 1}, {"grad_weight", 1}, {"grad_bias", 1}}},
    {"weight", false, {{"weight", 1}, {"grad_x", 1}}},
};
// Averages of gradients keep any factor, and where steps are signs only the sign matters.
inline const std::vector<Law> kLawsOfDescent = {
    {"grad",
     false,
     {{"param", 1},
      {"grad", 1},
      {"momentum_buffer", 1},
      {"new_param", 1},
      {"new_momentum_buffer", 1},
      {"narrow", 1}}},
    {"grad",
     true,
     {{"param", 1},
      {"grad", 1},
      {"momentum_buffer", 1},
      {"new_param", 1},
      {"new_momentum_buffer", 1},
      {"narrow", 1}}},
};
inline const std::vector<Law> kLawsOfAdam = {
    {"grad",
     true,
     {{"param", 1},
      {"grad", 1},
      {"exp_avg", 1},
      {"new_param", 1},
      {"new_exp_avg", 1},
      {"narrow", 1}}},
};
inline const std::vector<Law> kLawsOfLion = {
    {"grad", false, {{"grad", 1}, {"exp_avg", 1}, {"new_exp_avg", 1}}},
    {"grad",
     true,
     {{"param", 1},
      {"grad", 1},
      {"exp_avg", 1},
      {"new_param", 1},
      {"new_exp_avg", 1},
      {"narrow", 1}}},
};
// Gradients of reductions, whatever they are, are linear.
inline const std::vector<Law> kLawsOfGradientsOfReductions = {
    {"grad_y", false, {{"grad_y", 1}, {"grad_x", 1}}}};
inline const std::vector<Law> kLawsOfVectorNorms = {{"x", false, {{"x", 1}, {"norm", 1}}},
                                                    {"x", true, {{"x", 1}}}};
// By operator, or by one of its passes; one that keeps no such law is left out.
inline const std::map<std::string, std::vector<Law>, std::less<>> kLaws = {
    {"adam", kLawsOfAdam},
    {"attention", kLawsOfAttention},
    {"attention bwd", kLawsOfGradientsOfAttention},
    {"conv1d", kLawsOfConvolutions},
    {"conv1d bwd", kLawsOfGradientsOfConvolutions},
    {"conv2d", kLawsOfConvolutions},
    {"conv2d bwd", kLawsOfGradientsOfConvolutions},
    {"cross_entropy", kLawsOfCrossEntropy},
    {"cross_entropy bwd", kLawsOfGradientsOfCrossEntropy},
    {"dropout", kLawsOfDropout},
    {"elementwise", kLawsOfSums},
    {"linear_cross_entropy", kLawsOfLinearCrossEntropy},
    {"linear_cross_entropy bwd", kLawsOfGradientsOfLinearCrossEntropy},
    {"embedding", kLawsOfEmbedding},
    {"embedding bwd", kLawsOfGradientsOfEmbedding},
    {"batch_norm", kLawsOfBatchNorm},
    {"batch_norm bwd", kLawsOfGradientsOfBatchNorm},
    {"group_norm", kLawsOfNorms},
    {"interpolate", kLawsOfMoves},
    {"interpolate bwd", kLawsOfGradientsOfPooling},
    {"layernorm", kLawsOfNorms},
    {"layernorm_linear", kLawsOfLinear},
    {"layernorm_linear bwd", kLawsOfGradientsOfLinear},
    {"lion", kLawsOfLion},
    {"matmul", kLawsOfProducts},
    {"matmul bwd", kLawsOfGradientsOfProducts},
    {"pointwise_loss bwd", kLawsOfGradientsOfPointwiseLosses},
    {"pool2d", kLawsOfPooling},
    {"pool2d bwd", kLawsOfGradientsOfPooling},
    {"rmsnorm", kLawsOfNorms},
    {"rmsnorm_linear", kLawsOfLinear},
    {"rmsnorm_linear bwd", kLawsOfGradientsOfLinear},
    {"sgd", kLawsOfDescent},
    {"softmax bwd", kLawsOfGradientsOfSoftmax},
    {"transpose", kLawsOfMoves},
    {"vector_norm", kLawsOfVectorNorms},
    {"reduce bwd", kLawsOfGradientsOfReductions},
};

}  // namespace isobit::lab
