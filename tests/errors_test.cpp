// SPDX-License-Identifier: Apache-2.0
// Bad calls: each is refused with a message that names operator, argument, rule and value, nothing
// is written, and the next right call works.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <locale>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "calls.h"
#include "isobit/core/error.h"
#include "isobit/ops/catalog.h"
#include "isobit/ops/elementwise/elementwise.h"
#include "isobit/ops/layernorm/layernorm.h"
#include "isobit/simd/parallel_for.h"
#include "workloads.h"

namespace isobit {
namespace {

using namespace calls;

constexpr double kInf = std::numeric_limits<double>::infinity();

const std::vector<Call> kBadCalls = {
    // What is missing or of the wrong size before any tensor is read.
    {forward, [](World& w) { w.forward.struct_size = 0; }, "layernorm: args has struct_size 0"},
    {forward, [](World& w) { w.forward.struct_size += 8; }, "layernorm: args has struct_size"},
    {backward, [](World& w) { w.backward.struct_size = 1; },
     "layernorm backward: args has struct_size 1"},
    {add, [](World& w) { w.add.struct_size = 0; }, "elementwise: args has struct_size 0"},
    {increment, [](World& w) { w.increment.struct_size = ~0u; },
     "elementwise: args has struct_size 4294967295"},
    {forward, [](World& w) { w.context.struct_size = 4; }, "layernorm: context has struct_size 4"},
    {forward, [](World& w) { w.context.threads = -1; },
     "layernorm: context has -1 threads; allowed: 0 to 1024"},
    {forward, [](World& w) { w.context.threads = 1025; }, "layernorm: context has 1025 threads"},
    {add, [](World& w) { w.context.allocator.release = [](void*, void*, std::size_t) {}; },
     "elementwise: context has only one of allocate and release"},
    {forward, [](World& w) { w.forward.x = nullptr; }, "layernorm: x is missing"},
    {forward, [](World& w) { w.forward.y = nullptr; }, "layernorm: y is missing"},
    {backward, [](World& w) { w.backward.grad_y = nullptr; },
     "layernorm backward: grad_y is missing"},
    {backward, [](World& w) { w.backward.rstd = nullptr; },
     "layernorm backward: mean is given without rstd"},
    {backward, [](World& w) { w.backward.mean = nullptr; },
     "layernorm backward: rstd is given without mean"},
    {add, [](World& w) { w.add.residual = nullptr; }, "elementwise: residual is missing"},
    {increment, [](World& w) { w.increment.y = nullptr; }, "elementwise: y is missing"},
    {forward, [](World& w) { w.x.data = nullptr; }, "layernorm: x is null"},
    {forward, [](World& w) { w.rstd.data = nullptr; }, "layernorm: rstd is null"},
    {backward, [](World& w) { w.grad_bias.data = nullptr; },
     "layernorm backward: grad_bias is null"},

    // Rank and dtype.
    {forward, [](World& w) { w.x.rank = 0; }, "layernorm: x has 0 dimensions; allowed: 1 to 8"},
    {forward, [](World& w) { w.bias.rank = 9; }, "layernorm: bias has 9 dimensions"},
    {add, [](World& w) { w.y.rank = -1; }, "elementwise: y has -1 dimensions"},
    {forward, [](World& w) { w.x.dtype = 0; }, "layernorm: x has dtype code 0; allowed: 1 to 8"},
    {forward, [](World& w) { w.x.dtype = ISOBIT_I64; }, "layernorm: x has dtype i64; allowed: f32"},
    {add, [](World& w) { w.x.dtype = ISOBIT_U8; }, "elementwise: x has dtype u8; allowed: f32"},
    {forward, [](World& w) { w.weight.dtype = 9; }, "layernorm: weight has dtype code 9"},
    {backward, [](World& w) { w.grad_x.dtype = -1; },
     "layernorm backward: grad_x has dtype code -1"},
    {forward, [](World& w) { w.x.dtype = ISOBIT_I32; },
     "layernorm: x has dtype i32; allowed: f32, f16, bf16, f64"},
    {backward, [](World& w) { w.x.dtype = ISOBIT_F16; },
     "layernorm backward: grad_x has dtype f32; x has f16"},
    {forward, [](World& w) { w.y.dtype = ISOBIT_I32; },
     "layernorm: y has dtype i32; allowed: f32, f16, bf16"},
    {backward, [](World& w) { w.grad_y.dtype = ISOBIT_F64; },
     "layernorm backward: grad_y has dtype f64; allowed: f32, f16, bf16"},
    {rms_forward, [](World& w) { w.residual.dtype = ISOBIT_BF16; },
     "rmsnorm: residual has dtype bf16; x has f32"},
    {rms_forward, [](World& w) { w.rstd.dtype = ISOBIT_F64; },
     "rmsnorm: rstd has dtype f64; allowed: f32"},
    {rms_backward, [](World& w) { w.grad_sum.dtype = ISOBIT_F64; },
     "rmsnorm backward: grad_sum has dtype f64; x has f32"},

    // Options.
    {rms_forward, [](World& w) { w.rms_forward.dropout = 1; },
     "rmsnorm: dropout is 1; must be at least 0 and less than 1"},
    {rms_backward, [](World& w) { w.rms_backward.dropout = -0.25; },
     "rmsnorm backward: dropout is -0.25"},
    {forward, [](World& w) { w.forward.dropout = std::nan(""); }, "layernorm: dropout is nan"},
    {forward, [](World& w) { w.forward.hidden_dims = 3; },
     "layernorm: hidden_dims is 3; x has 2 dimensions"},
    {forward, [](World& w) { w.forward.hidden_dims = -1; },
     "layernorm: hidden_dims is -1; x has 2 dimensions"},
    {rms_backward, [](World& w) { w.rms_backward.hidden_dims = kMost; },
     "rmsnorm backward: hidden_dims is 9223372036854775807; x has 2 dimensions"},
    {forward, [](World& w) { w.forward.sum = &w.sum; },
     "layernorm: sum is given without residual or dropout; it would be a copy of x"},
    {backward, [](World& w) { w.backward.grad_residual = &w.grad_residual; },
     "layernorm backward: grad_residual is given without dropout"},
    {forward, [](World& w) { w.weight.dtype = ISOBIT_BF16; },
     "layernorm: weight has dtype bf16; allowed: f32"},
    {backward, [](World& w) { w.mean.dtype = ISOBIT_BF16; },
     "layernorm backward: mean has dtype bf16; allowed: f32"},
    {backward, [](World& w) { w.grad_bias.dtype = ISOBIT_BF16; },
     "layernorm backward: grad_bias has dtype bf16; weight has f32"},
    {add, [](World& w) { w.y.dtype = ISOBIT_F64; }, "elementwise: y has dtype f64; x has f32"},
    {increment, [](World& w) { w.x.dtype = 99; }, "elementwise: x has dtype code 99"},
    {forward, [](World& w) { w.x.dtype = w.y.dtype = w.bias.dtype = ISOBIT_BF16; },
     "layernorm: bias has dtype bf16; weight has f32"},
    {forward, [](World& w) { w.mean.dtype = ISOBIT_F64; },
     "layernorm: mean has dtype f64; allowed: f32"},
    {backward, [](World& w) { w.grad_weight.dtype = ISOBIT_F16; },
     "layernorm backward: grad_weight has dtype f16"},
    {add, [](World& w) { w.residual.dtype = ISOBIT_I32; },
     "elementwise: residual has dtype i32; x has f32"},

    // Shapes.
    {forward, [](World& w) { w.weight.shape[0] = 7; },
     "layernorm: weight has 7 elements; x has 8 columns"},
    {forward, [](World& w) { w.bias.shape[0] = 9; },
     "layernorm: bias has 9 elements; x has 8 columns"},
    {forward, [](World& w) { w.mean.shape[0] = 2; },
     "layernorm: mean has 2 elements; x has 3 rows"},
    {backward, [](World& w) { w.rstd.shape[0] = 4; },
     "layernorm backward: rstd has 4 elements; x has 3 rows"},
    {backward, [](World& w) { w.grad_bias.shape[0] = 1; },
     "layernorm backward: grad_bias has 1 elements; x has 8"},
    {forward, [](World& w) { w.y.shape[1] = 7; }, "layernorm: y has shape (3, 7); x has (3, 8)"},
    {forward,
     [](World& w) {
       w.y.rank = 1;
       w.y.shape[0] = 24;
       w.y.strides[0] = 1;
     },
     "layernorm: y has shape (24); x has (3, 8)"},
    {backward, [](World& w) { w.grad_x.shape[0] = 2; },
     "layernorm backward: grad_x has shape (2, 8); x has (3, 8)"},
    {add, [](World& w) { w.residual.shape[0] = 1; },
     "elementwise: residual has shape (1, 8); x has (3, 8)"},
    {forward, [](World& w) { w.x.shape[0] = -3; },
     "layernorm: x has a negative extent in shape (-3, 8)"},
    {forward, [](World& w) { w.weight.shape[0] = -8; },
     "layernorm: weight has a negative extent in shape (-8)"},

    {backward, [](World& w) { w.grad_weight.shape[0] = 16; },
     "layernorm backward: grad_weight has 16 elements; x has 8 columns"},
    {backward, [](World& w) { w.grad_y.shape[1] = 4; },
     "layernorm backward: grad_y has shape (3, 4); x has (3, 8)"},
    {forward, [](World& w) { w.rstd = {w.rstd.data, kSlot, ISOBIT_F32, 2, {3, 2}, {2, 1}}; },
     "layernorm: rstd has 6 elements; x has 3 rows"},
    {forward, [](World& w) { w.x.shape[1] = 0; }, "layernorm: y has shape (3, 8); x has (3, 0)"},
    {increment, [](World& w) { w.y.shape[0] = 4; },
     "elementwise: y has shape (4, 8); x has (3, 8)"},
    {add, [](World& w) { w.y = {w.y.data, kSlot, ISOBIT_F32, 3, {1, 3, 8}, {24, 8, 1}}; },
     "elementwise: y has shape (1, 3, 8); x has (3, 8)"},

    // Storage, and arithmetic that would wrap.
    {backward, [](World& w) { w.x.bytes = 0; },
     "layernorm backward: x of shape (3, 8) and strides (8, 1) needs 96 bytes; its storage has "
     "0"},
    {increment, [](World& w) { w.y.bytes = 95; },
     "elementwise: y of shape (3, 8) and strides (8, 1) needs 96 bytes; its storage has 95"},
    {forward, [](World& w) { w.mean.bytes = 11; },
     "layernorm: mean of shape (3) and strides (1) needs 12 bytes; its storage has 11"},
    {backward, [](World& w) { w.x.shape[0] = kMost; },
     "layernorm backward: x of shape (9223372036854775807, 8) and strides (8, 1) reaches beyond "
     "2^63 bytes"},
    {backward, [](World& w) { w.grad_x.bytes = std::numeric_limits<std::int64_t>::min(); },
     "layernorm backward: grad_x has a storage of -9223372036854775808 bytes"},
    {forward, [](World& w) { w.x.bytes = 95; },
     "layernorm: x of shape (3, 8) and strides (8, 1) needs 96 bytes; its storage has 95"},
    {forward, [](World& w) { w.y.bytes = 0; },
     "layernorm: y of shape (3, 8) and strides (8, 1) needs 96 bytes; its storage has 0"},
    {forward, [](World& w) { w.weight.bytes = 28; },
     "layernorm: weight of shape (8) and strides (1) needs 32 bytes; its storage has 28"},
    {backward, [](World& w) { w.grad_weight.bytes = -1; },
     "layernorm backward: grad_weight has a storage of -1 bytes"},
    {forward, [](World& w) { w.x.strides[0] = kSlot; },
     "layernorm: x of shape (3, 8) and strides (1024, 1) needs 8224 bytes"},
    {forward, [](World& w) { w.x.shape[0] = kMost / 8; },
     "layernorm: x of shape (1152921504606846975, 8) and strides (8, 1) reaches beyond 2^63"},
    {forward, [](World& w) { w.x.strides[0] = kMost; },
     "layernorm: x of shape (3, 8) and strides (9223372036854775807, 1) reaches beyond 2^63 bytes"},
    {add, [](World& w) { w.y.strides[0] = kMost / 2; },
     "elementwise: y of shape (3, 8) and strides (4611686018427387903, 1) reaches beyond 2^63 "
     "bytes"},
    {backward,
     [](World& w) {
       w.grad_y.shape[0] = kMost / 4;
       w.grad_y.strides[0] = 0;
     },
     "layernorm backward: grad_y of shape (2305843009213693951, 8) has more than 2^48 elements"},
    {forward,
     [](World& w) {
       w.x.data = reinterpret_cast<void*>(~std::uintptr_t{4095});
       w.x.bytes = kMost;
     },
     "layernorm: x has a storage of 9223372036854775807 bytes at 0xfffffffffffff000 "
     "that wraps around the address space"},

    {forward,
     [](World& w) {
       w.x.shape[0] = kMost;
       w.x.shape[1] = 0;
     },
     "layernorm: x of shape (9223372036854775807, 0) has non-zero extents whose product "
     "exceeds 2^48"},
    {forward,  // its workspace would wrap to nothing
     [](World& w) {
       w.x.shape[0] = w.y.shape[0] = 0;
       w.x.shape[1] = w.y.shape[1] = kMost / 2 + 1;
       w.y.dtype = ISOBIT_BF16;
       w.forward.weight = w.forward.bias = w.forward.mean = w.forward.rstd = nullptr;
     },
     "layernorm: x of shape (0, 4611686018427387904) has non-zero extents whose product "
     "exceeds 2^48"},
    {backward,  // nothing but memory bounds a call's work
     [](World& w) {
       w.backward.mean = w.backward.rstd = w.backward.grad_x = nullptr;
       w.x.shape[0] = w.grad_y.shape[0] = (std::int64_t{1} << 29) + 1;
       w.x.strides[0] = w.grad_y.strides[0] = 0;
     },
     "layernorm backward: x of shape (536870913, 8) and strides (0, 1) repeats memory: it has "
     "4294967304 elements; the call's arrays hold 40, of which beyond 2^32 elements 1024 times as "
     "many are allowed"},
    {rms_backward,
     [](World& w) {
       w.rms_backward.rstd = w.rms_backward.grad_x = w.rms_backward.grad_residual = nullptr;
       w.rms_backward.grad_sum = nullptr;
       w.x.shape[0] = w.grad_y.shape[0] = (std::int64_t{1} << 29) + 1;
       w.x.strides[0] = w.grad_y.strides[0] = 0;
     },
     "rmsnorm backward: x of shape (536870913, 8) and strides (0, 1) repeats memory: it has "},

    // Alignment and strides.
    {forward, [](World& w) { move(w.x, 1); },
     "layernorm: x starts 1 bytes past a multiple of its element size 4"},
    {forward, [](World& w) { move(w.mean, 2); }, "layernorm: mean starts 2 bytes past"},
    {backward, [](World& w) { move(w.grad_weight, 3); },
     "layernorm backward: grad_weight starts 3 bytes past"},
    {add,
     [](World& w) {
       w.x.dtype = w.y.dtype = w.residual.dtype = ISOBIT_F64;
       move(w.residual, 4);
     },
     "elementwise: residual starts 4 bytes past a multiple of its element size 8"},
    {forward, [](World& w) { w.x.strides[0] = -8; },
     "layernorm: x has negative stride -8 in dimension 0"},
    {forward, [](World& w) { w.weight.strides[0] = -1; },
     "layernorm: weight has negative stride -1"},
    {forward, [](World& w) { w.x.strides[1] = 2; },
     "layernorm: x has stride 2 in its last dimension; must be 1"},
    {backward, [](World& w) { w.grad_y.strides[1] = 0; },
     "layernorm backward: grad_y has stride 0 in its last dimension"},
    {forward, [](World& w) { w.weight.strides[0] = 2; },
     "layernorm: weight has stride 2 in dimension 0; must be 1 for contiguous elements"},
    {backward, [](World& w) { w.mean.strides[0] = 0; },
     "layernorm backward: mean has stride 0 in dimension 0"},
    {forward, [](World& w) { w.x = {w.x.data, kSlot, ISOBIT_F32, 3, {2, 2, 8}, {17, 8, 1}}; },
     "layernorm: x of shape (2, 2, 8) has stride 17 in dimension 0; must be 16 for evenly "
     "spaced rows"},
    {forward, [](World& w) { w.y.strides[0] = 7; },
     "layernorm: y is an output, but its rows of 8 elements overlap at row stride 7"},
    {backward, [](World& w) { w.grad_x.strides[0] = 0; },
     "layernorm backward: grad_x is an output, but its rows"},

    // Memory that is shared.
    {forward, [](World& w) { w.y.data = w.slot(0) + 1; },
     "layernorm: y overlaps x: it starts 4 bytes after x, with 3 rows of 8 f32 at stride 8; x has "
     "3 "
     "rows of 8 f32 at stride 8"},
    {forward,
     [](World& w) {
       w.y.data = w.x.data;
       w.y.strides[0] = 9;
     },
     "layernorm: y overlaps x: it starts 0 bytes after x, with 3 rows of 8 f32 at stride 9; x has "
     "3 "
     "rows of 8 f32 at stride 8"},
    {forward,
     [](World& w) {
       w.y.data = w.x.data;
       w.y.dtype = ISOBIT_BF16;
     },
     "layernorm: y overlaps x: it starts 0 bytes after x, with 3 rows of 8 bf16 at stride 8; x has "
     "3 rows of 8 f32 at stride 8"},
    {forward,
     [](World& w) {
       w.y.data = w.x.data;
       w.x.strides[0] = 0;
     },
     "layernorm: y overlaps x"},
    {forward, [](World& w) { w.y.data = w.weight.data; }, "layernorm: y overlaps weight"},
    {forward, [](World& w) { w.mean.data = w.slot(5) + 23; },
     "layernorm: mean overlaps y: it starts 92 bytes after y, with 1 rows of 3 f32 at stride 3; y "
     "has 3 rows of 8 f32 at stride 8"},
    {forward, [](World& w) { w.rstd.data = w.mean.data; }, "layernorm: rstd overlaps mean"},
    {forward, [](World& w) { w.mean.data = w.x.data; }, "layernorm: mean overlaps x"},
    {forward, [](World& w) { w.rstd.data = w.slot(4) + 7; }, "layernorm: rstd overlaps bias"},
    {backward, [](World& w) { w.grad_x.data = w.slot(2) + 8; },
     "layernorm backward: grad_x overlaps grad_y"},
    {backward, [](World& w) { w.grad_x.data = w.rstd.data; },
     "layernorm backward: grad_x overlaps rstd"},
    {backward, [](World& w) { w.grad_weight.data = w.weight.data; },
     "layernorm backward: grad_weight overlaps weight"},
    {backward, [](World& w) { w.grad_bias.data = w.grad_weight.data; },
     "layernorm backward: grad_bias overlaps grad_weight"},
    {backward, [](World& w) { w.grad_bias.data = w.slot(6) + 16; },
     "layernorm backward: grad_bias overlaps grad_x"},
    {backward, [](World& w) { w.grad_weight.data = w.x.data; },
     "layernorm backward: grad_weight overlaps x"},
    {backward, [](World& w) { w.grad_bias.data = w.slot(2) - 7; },
     "layernorm backward: grad_bias overlaps grad_y: it starts 28 bytes before grad_y"},
    {backward, [](World& w) { w.grad_bias.data = w.mean.data; },
     "layernorm backward: grad_bias overlaps mean"},
    {forward,
     [](World& w) {  // y's rows fall into the gaps of x, all but their last element
       w.y.data = w.slot(0) + 1;
       w.x.strides[0] = w.y.strides[0] = 16;
     },
     "layernorm: y overlaps x"},
    {rms_backward,
     [](World& w) {
       w.rms_backward.grad_sum = &w.grad_sum;
       w.grad_x.data = static_cast<float*>(w.grad_sum.data) + 8;
     },
     "rmsnorm backward: grad_x overlaps grad_sum"},
    {add, [](World& w) { w.y.data = w.slot(1) + 1; }, "elementwise: y overlaps residual"},
    {increment, [](World& w) { w.y.data = w.slot(0) + 4; }, "elementwise: y overlaps x"},

    // Numbers.
    {forward, [](World& w) { w.forward.eps = std::nan(""); },
     "layernorm: eps is nan; must be finite"},
    {forward, [](World& w) { w.forward.eps = kInf; }, "layernorm: eps is inf; must be finite"},
    {backward, [](World& w) { w.backward.eps = -kInf; }, "layernorm backward: eps is -inf"},
    {forward, [](World& w) { w.forward.eps = 1e39; },
     "layernorm: eps is 1e+39; must be within the range of float"},
    {backward, [](World& w) { w.backward.eps = -1e300; }, "layernorm backward: eps is -1e+300"},
};

TEST(BadCalls, AreRefusedAndWriteNothing) {
  EXPECT_GE(kBadCalls.size(), 100u);
  for (const Call& call : kBadCalls) {
    SCOPED_TRACE(call.says);
    World world;
    call.change(world);
    const std::vector<float> before = world.memory();
    EXPECT_EQ(call.entry(world), ISOBIT_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(isobit_last_error()).find(call.says), 0u) << isobit_last_error();
    EXPECT_EQ(world.memory(), before);

    World right;
    EXPECT_EQ(call.entry(right), ISOBIT_OK) << isobit_last_error();
    EXPECT_STREQ(isobit_last_error(), "");
  }
}

TEST(BadCalls, NeedArguments) {
  EXPECT_EQ(isobit_layernorm_forward(nullptr, nullptr), ISOBIT_INVALID_ARGUMENT);
  EXPECT_STREQ(isobit_last_error(), "layernorm: args is null");
  EXPECT_EQ(isobit_layernorm_backward(nullptr, nullptr), ISOBIT_INVALID_ARGUMENT);
  EXPECT_STREQ(isobit_last_error(), "layernorm backward: args is null");
  EXPECT_EQ(isobit_elementwise_add(nullptr, nullptr), ISOBIT_INVALID_ARGUMENT);
  EXPECT_STREQ(isobit_last_error(), "elementwise: args is null");
  EXPECT_EQ(isobit_elementwise_increment(nullptr, nullptr), ISOBIT_INVALID_ARGUMENT);
  EXPECT_STREQ(isobit_last_error(), "elementwise: args is null");
}

// A program may have given all its streams a locale that groups digits.
TEST(BadCalls, AreToldInNoLocale) {
  struct Grouped : std::numpunct<char> {
    char do_thousands_sep() const override { return ','; }
    std::string do_grouping() const override { return "\3"; }
  };
  World world;
  world.forward.struct_size = 123456;
  const std::locale before =
      std::locale::global(std::locale(std::locale::classic(), new Grouped));  // which frees it
  EXPECT_EQ(isobit_layernorm_forward(&world.forward, nullptr), ISOBIT_INVALID_ARGUMENT);
  std::locale::global(before);
  EXPECT_EQ(std::string(isobit_last_error()).find("layernorm: args has struct_size 123456;"), 0u)
      << isobit_last_error();
}

// What the C interface cannot express.
TEST(BadCalls, AreRefusedByTheCppFaceToo) {
  float data[8] = {};
  const auto view = [&](DType dtype) { return matrix_view(data, sizeof data, dtype, 2, 4, 4); };
  const auto message = [](auto call) -> std::string {
    try {
      call();
    } catch (const InvalidArgument& error) { return error.what(); }
    return "accepted";
  };
  const auto increment = [&](TensorView x) {
    elementwise::run({.x = x, .residual = {}, .y = x, .kind = elementwise::Kind::increment},
                     simd::here());
  };
  EXPECT_EQ(message([&] {
              increment(view(static_cast<DType>(99)));
            }).find("elementwise: x has dtype unknown (99); allowed: f32,"),
            0u);
  EXPECT_EQ(message([&] { increment(view(DType::f128)); }).find("elementwise: x has dtype f128"),
            0u);
  EXPECT_EQ(message([&] {
              TensorView x = view(DType::f32);
              x.rank = 9;
              increment(x);
            }),
            "elementwise: x has 9 dimensions; allowed: 1 to 8");
  EXPECT_EQ(message([&] {
              elementwise::run({.x = view(DType::f32),
                                .residual = view(DType::f32),
                                .y = view(DType::f32),
                                .kind = elementwise::Kind::increment},
                               simd::here());
            }),
            "elementwise: residual is given, but increment has none");
  EXPECT_EQ(message([&] { layernorm::forward({}, simd::here()); }), "layernorm: x is missing");
}

// Whatever is thrown, the outputs may be half written by then: no other status would tell.
TEST(CallersThreads, MayThrowOnceTheirTasksAreDone) {
  using Run = void (*)(void*, std::int64_t, isobit_task, void*);
  const std::pair<Run, const char*> kThrowers[] = {
      {[](void*, std::int64_t, isobit_task, void*) {
         throw std::runtime_error("no threads today");
       },
       "no threads today"},
      {[](void*, std::int64_t tasks, isobit_task task, void* context) {
         for (std::int64_t i = 0; i < tasks / 2; ++i) task(context, i);
         throw std::bad_alloc();
       },
       "out of memory"},
      {[](void*, std::int64_t, isobit_task, void*) { throw 42; }, "an exception of unknown type"},
  };
  std::size_t turn = 0;
  for (const Entry& entry : kEntriesAndObjects) {
    ++turn;
    for (const auto& [run, says] : kThrowers) {
      if (lab::one_in() > 1 && says != kThrowers[turn % std::size(kThrowers)].second) continue;
      World world(1 << 14);  // enough rows to be shared out
      world.context.threads = 4;
      world.context.parallel_for.run = run;
      EXPECT_EQ(entry.call(world), ISOBIT_INTERNAL) << entry.name;
      EXPECT_EQ(std::string(isobit_last_error()).find(std::string(entry.name) + ": " + says), 0u)
          << isobit_last_error();
      world.context.parallel_for.run = nullptr;
      EXPECT_EQ(entry.call(world), ISOBIT_OK) << isobit_last_error();
    }
  }
}

}  // namespace
}  // namespace isobit
