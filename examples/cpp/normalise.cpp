// SPDX-License-Identifier: Apache-2.0
// LayerNorm and its gradients through isobit.hpp: the same bits on one thread and on all.
#include <cstdio>
#include <cstring>
#include <isobit/isobit.hpp>
#include <vector>

namespace {

constexpr std::int64_t kRows = 64, kColumns = 768;

struct Result {
  std::vector<float> y, grad_x, grad_weight, grad_bias;
};

std::vector<float> some(std::size_t count, float scale) {
  std::vector<float> values(count);
  int step = 0;
  for (float& value : values) value = scale * static_cast<float>((step += 37) % 101 - 50);
  return values;
}

Result normalise(const isobit::Context& context) {
  const auto x = some(kRows * kColumns, 0.1f), grad_y = some(kRows * kColumns, 0.01f);
  const auto weight = some(kColumns, 0.02f), bias = some(kColumns, 0.5f);
  Result result = {std::vector<float>(x.size()), std::vector<float>(x.size()),
                   std::vector<float>(kColumns), std::vector<float>(kColumns)};
  isobit::layernorm_forward({.x = {x, {kRows, kColumns}},
                             .weight = {weight, {kColumns}},
                             .bias = {bias, {kColumns}},
                             .y = {result.y, {kRows, kColumns}}},
                            context);
  isobit::layernorm_backward({.x = {x, {kRows, kColumns}},
                              .grad_y = {grad_y, {kRows, kColumns}},
                              .weight = {weight, {kColumns}},
                              .grad_x = {result.grad_x, {kRows, kColumns}},
                              .grad_weight = {result.grad_weight, {kColumns}},
                              .grad_bias = {result.grad_bias, {kColumns}}},
                             context);
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

int main() {
  const Result one = normalise(isobit::Context::on_threads(1)), all = normalise({});
  const bool same = same_bits(one.y, all.y) && same_bits(one.grad_x, all.grad_x) &&
                    same_bits(one.grad_weight, all.grad_weight) &&
                    same_bits(one.grad_bias, all.grad_bias);
  std::printf("isobit %s: y[0] = %a, grad_weight[0] = %a, %s on one thread and on all\n",
              isobit_version(), static_cast<double>(one.y[0]),
              static_cast<double>(one.grad_weight[0]), same ? "the same bits" : "other bits");

  if (isobit_device_status(ISOBIT_CUDA) != ISOBIT_OK)
    std::printf("no GPU: %s\n", isobit_last_error());

  try {
    std::vector<float> y(6);
    isobit::layernorm_forward({.x = {y, {2, 3}}, .weight = {y, {4}}, .y = {y, {2, 3}}});
  } catch (const isobit::Error& error) { std::printf("a wrong call: %s\n", error.what()); }
  return same ? 0 : 1;
}
