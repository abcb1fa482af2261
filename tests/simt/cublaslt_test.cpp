// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt, in whose place a library of the tests computes on the processor: what it is
// asked for, and what is declined.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "isobit/ops/matmul/matmul.h"
#include "simt/where.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

constexpr char kName[] = "cublaslt";
// Before anybody asks whether there is one.
[[maybe_unused]] const int kNamed = setenv("ISOBIT_CUBLASLT_LIBRARY", ISOBIT_STAND_IN, 1);

std::string asked_for() {
  static const auto kAsk = reinterpret_cast<const char* (*)()>(
      dlsym(dlopen(ISOBIT_STAND_IN, RTLD_NOW), "isobit_stands_in_for_cublaslt"));
  std::string told = kAsk();
  if (told.starts_with("create\n")) told.erase(0, 7);  // once a process
  return told;
}

// Both passes against the reference.
TEST(CublasLtKernels, IsRight) {
  attach_devices();
  Flags flags;
  flags.device = {std::string(name_of(kDevice))};
  flags.variant = {kName};
  flags.dtype = {"f32", "f64", "f16", "bf16"};
  for (const auto& [batch, m, n, k] :
       {std::array<std::int64_t, 4>{1, 7, 5, 13}, {3, 4, 6, 9}, {1, 1, 8, 5}, {1, 9, 1, 1}}) {
    flags.dims = {{"batch", {batch}}, {"m", {m}}, {"n", {n}}, {"k", {k}}};
    for (const Operation* operation :
         {&matmul::forward_operation(), &matmul::backward_operation()}) {
      int count = 0;
      for (const Case& c : cases_of(*operation, flags, "test")) {
        Workload workload(c);
        workload.draw();
        const std::vector<Configuration> ways =
            configurations_of(workload, flags, Unnamed::all).able;
        ASSERT_EQ(ways.size(), 1U);
        expect_right(workload, ways);
        ++count;
      }
      EXPECT_GE(count, 4);
    }
  }
  asked_for();
}

struct Matrices {
  std::vector<float> a = std::vector<float>(400, 1), b = a, c = a, y = a;
  Arguments args = operation().make_arguments();

  static const Operation& operation() { return matmul::forward_operation(); }
  static int variant() {
    attach_devices();
    const std::vector<VariantInfo> infos = operation().variants();
    for (int i = 0; i < static_cast<int>(infos.size()); ++i)
      if (infos[i].device == kDevice && infos[i].name == kName) return i;
    return -1;
  }
  matmul::ForwardArgs& typed() { return *static_cast<matmul::ForwardArgs*>(args.get()); }
  // (rows, cols) `apart` elements from one row to the next or, turned, from one column.
  static TensorView view(std::vector<float>& of, std::int64_t rows, std::int64_t cols,
                         std::int64_t apart, bool turned = false) {
    TensorView view = matrix_view(of.data(), 4 * static_cast<std::int64_t>(of.size()), DType::f32,
                                  rows, cols, apart);
    if (turned) {
      view.strides[0] = 1;
      view.strides[1] = apart;
    }
    return view;
  }
  std::string refusal(const Machine& machine) const {
    return operation().declines(variant(), args, machine);
  }
  // In a workspace that begins at no more than 64 bytes.
  void run() {
    operation().check(args);
    const int index = variant();
    Execution execution = execution_for(kDevice);
    execution.allocator = {
        .allocate = [](void*, std::size_t bytes) -> void* {
          return static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256)) + 64;
        },
        .release = [](void*, void* memory,
                      std::size_t) { std::free(static_cast<std::byte*>(memory) - 64); }};
    operation().run(index, {}, args, execution);
  }
};

// A matrix by rows is its transpose by columns: b comes first, and y' = b' a'.
TEST(CublasLtKernels, IsAskedForTheTransposedProduct) {
  Matrices all;
  auto& args = all.typed();
  for (const bool turned_a : {false, true})
    for (const bool turned_b : {false, true}) {
      args.a = Matrices::view(all.a, 3, 4, 6, turned_a);
      args.b = Matrices::view(all.b, 4, 5, 7, turned_b);
      args.y = Matrices::view(all.y, 3, 5, 8);
      asked_for();
      all.run();
      EXPECT_EQ(asked_for(),
                std::string("compute 68, scale 0\n") +
                    (turned_b ? "a T type 0, 4 x 5, ld 7\n" : "a N type 0, 5 x 4, ld 7\n") +
                    (turned_a ? "b T type 0, 3 x 4, ld 6\n" : "b N type 0, 4 x 3, ld 6\n") +
                    "c type 0, 5 x 3, ld 8\nd type 0, 5 x 3, ld 8\nworkspace 33554432\n");
      EXPECT_EQ(all.y[8], 4);
    }
  args.c = Matrices::view(all.c, 3, 5, 9);
  args.alpha = 2;
  args.beta = 0.5;
  all.run();
  EXPECT_NE(asked_for().find("c type 0, 5 x 3, ld 9\nd type 0, 5 x 3, ld 8\n"), std::string::npos);
  EXPECT_EQ(all.y[8], 8.5F);
}

// y by columns is a product by rows of the transposes.
TEST(CublasLtKernels, TakesYByColumns) {
  Matrices all;
  auto& args = all.typed();
  args.a = Matrices::view(all.a, 3, 4, 4);
  args.b = Matrices::view(all.b, 4, 5, 5);
  args.y = Matrices::view(all.y, 3, 5, 3, true);
  all.run();
  EXPECT_EQ(
      asked_for().find("compute 68, scale 0\na T type 0, 4 x 3, ld 4\nb T type 0, 5 x 4, ld 5\n"),
      0U);
}

TEST(CublasLtKernels, SaysWhatItDeclines) {
  Matrices all;
  auto& args = all.typed();
  args.a = Matrices::view(all.a, 3, 4, 4);
  args.b = Matrices::view(all.b, 4, 5, 5);
  args.y = Matrices::view(all.y, 3, 5, 5);
  Machine machine = execution_for(kDevice).machine;
  EXPECT_EQ(all.refusal(machine), "");
  EXPECT_NE(Matrices::operation().default_variant(all.args, machine), Matrices::variant());
  for (const Device device : {Device::ptx, Device::sass, Device::hip}) {
    machine.device = device;
    EXPECT_EQ(all.refusal(machine), "only NVIDIA's GPUs have cuBLASLt");
  }
  machine.device = kDevice;
  args.residual = Matrices::view(all.c, 3, 5, 5);
  EXPECT_EQ(all.refusal(machine), "it computes alpha a b + beta c alone");
  args.residual = {};
  args.a = Matrices::view(all.a, 3, 4, 10);
  args.a.strides[1] = 2;
  EXPECT_NE(all.refusal(machine).find("whose rows or columns are adjacent"), std::string::npos);
  args.a.strides[1] = 1;
  args.a.strides[0] = 0;  // rows that are all the same
  EXPECT_NE(all.refusal(machine).find("do not overlap"), std::string::npos);
  args.a = Matrices::view(all.a, 3, 0, 4);
  args.b = Matrices::view(all.b, 0, 5, 5);
  EXPECT_EQ(all.refusal(machine), "it takes no empty sums");
}

}  // namespace
}  // namespace isobit::lab
