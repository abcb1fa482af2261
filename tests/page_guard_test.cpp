// SPDX-License-Identifier: Apache-2.0
// Every operator on arrays that begin right after a page that nobody may touch, or end right before
// one: through the C interface, and in every variant, plan and instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "calls.h"
#include "guarded_pages.h"
#include "isobit/core/amx.h"
#include "isobit/core/dtype.h"
#include "isobit/core/error.h"
#include "isobit/dispatch/operation.h"
#include "isobit/ops/catalog.h"
#include "workloads.h"

namespace isobit {
namespace {

using calls::World;
using guarded::Edge;
using guarded::Pages;

// Of all matrices but y and grad_y, of these two, and of vectors with an element for each column.
struct DTypes {
  DType x, y, weight;
};
constexpr DTypes kTypes[] = {
    {DType::f32, DType::f32, DType::f32},  {DType::f16, DType::f16, DType::f16},
    {DType::f16, DType::f32, DType::f32},  {DType::bf16, DType::bf16, DType::bf16},
    {DType::bf16, DType::f16, DType::f32}, {DType::f32, DType::bf16, DType::f32},
    {DType::f64, DType::f64, DType::f64},  {DType::i32, DType::i32, DType::i32},
};

// Every remainder of a vector, of the order's 64 lanes and of its block of 512.
std::vector<std::int64_t> widths() {
  std::vector<std::int64_t> all;
  for (std::int64_t width = 1; width <= 129; width += width < 34 ? 1 : 2) all.push_back(width);
  for (std::int64_t width : {255, 257, 449, 511, 513, 769, 1023, 1025, 1087}) all.push_back(width);
  return all;
}

constexpr std::int64_t kWholeWidth = 9;

enum class Per { element, column, row, transposed };  // of x

// The arrays that operators have, by name.
struct Named {
  const char* name;
  isobit_tensor World::* tensor;
  Per per;
};
constexpr Named kArrays[] = {
    {"x", &World::x, Per::element},
    {"residual", &World::residual, Per::element},
    {"grad_y", &World::grad_y, Per::element},
    {"y", &World::y, Per::element},
    {"sum", &World::sum, Per::element},
    {"grad_sum", &World::grad_sum, Per::element},
    {"grad_x", &World::grad_x, Per::element},
    {"grad_residual", &World::grad_residual, Per::element},
    {"weight", &World::weight, Per::column},
    {"bias", &World::bias, Per::column},
    {"grad_weight", &World::grad_weight, Per::column},
    {"grad_bias", &World::grad_bias, Per::column},
    {"transposed", &World::transposed, Per::transposed},
    {"mean", &World::mean, Per::row},
    {"rstd", &World::rstd, Per::row},
};

std::int32_t code_of(DType dtype) {
  switch (dtype) {
    case DType::f32:  return ISOBIT_F32;
    case DType::f16:  return ISOBIT_F16;
    case DType::bf16: return ISOBIT_BF16;
    case DType::f64:  return ISOBIT_F64;
    default:          return ISOBIT_I32;
  }
}

struct Shape {
  std::int64_t rows, cols, stride;
  Edge edge;
};

// A World whose arrays lie between forbidden pages.
class Fenced {
 public:
  World world;

  Fenced() {
    for (std::size_t i = 0; i < std::size(kArrays); ++i)
      pages_.push_back(std::make_unique<Pages>(kBytes));
    world.context.threads = 1;
  }

  void take(const DTypes& types) {
    for (std::size_t i = 0; i < std::size(kArrays); ++i) {
      const Named& named = kArrays[i];
      const bool is_y = named.tensor == &World::y || named.tensor == &World::grad_y ||
                        named.per == Per::transposed;
      dtypes_[i] = named.per == Per::column ? types.weight
                   : named.per == Per::row  ? types.x == DType::f64 ? DType::f64 : DType::f32
                   : is_y                   ? types.y
                                            : types.x;
      fill(dtypes_[i], pages_[i]->at(Edge::front, kBytes));
    }
  }

  void lay(const Shape& shape) {
    for (std::size_t i = 0; i < std::size(kArrays); ++i) {
      isobit_tensor& tensor = world.*kArrays[i].tensor;
      const Per per = kArrays[i].per;
      const bool turned = per == Per::transposed, matrix = turned || per == Per::element;
      const std::int64_t count = turned || per == Per::column ? shape.cols : shape.rows;
      const std::int64_t others = turned ? shape.rows : shape.cols;
      const std::int64_t stride = others + shape.stride - shape.cols;
      const std::int64_t elements = matrix ? (count - 1) * stride + others : count;
      tensor = {nullptr, elements * size_of(dtypes_[i]), code_of(dtypes_[i]), 1, {count}, {1}};
      if (matrix) {
        tensor.rank = 2;
        tensor.shape[1] = others;
        tensor.strides[0] = stride;
        tensor.strides[1] = 1;
      }
      tensor.data = pages_[i]->at(shape.edge, static_cast<std::size_t>(tensor.bytes));
    }
  }

  // An operator's view of the array of this name; none where there is no such array.
  TensorView view(std::string_view name) const {
    for (std::size_t i = 0; i < std::size(kArrays); ++i) {
      const isobit_tensor& tensor = world.*kArrays[i].tensor;
      if (kArrays[i].name == name)
        return {tensor.data,
                tensor.bytes,
                dtypes_[i],
                tensor.rank,
                std::to_array(tensor.shape),
                std::to_array(tensor.strides)};
    }
    return {};
  }

  // What lies at an address that nobody may touch.
  std::string place_of(const void* address) const {
    for (std::size_t i = 0; i < std::size(kArrays); ++i)
      if (std::string place = pages_[i]->place_of(address); !place.empty())
        return std::string(kArrays[i].name) + ", " + place;
    return "what is no array";
  }

 private:
  static constexpr std::size_t kBytes = 72 << 10;

  static void fill(DType dtype, std::byte* memory) {
    visit(dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      if constexpr (!std::is_same_v<T, quad>) {
        T* elements = reinterpret_cast<T*>(memory);
        for (std::size_t i = 0; i < kBytes / sizeof(T); ++i)
          if constexpr (std::is_same_v<T, std::int32_t>)
            elements[i] = static_cast<std::int32_t>(i);
          else
            elements[i] = narrow<T>(std::sin(static_cast<double>(i)));
      }
    });
  }

  std::vector<std::unique_ptr<Pages>> pages_;
  DType dtypes_[std::size(kArrays)] = {};
};

// visit() with every layout of the arrays in all types that a call takes, or in slow builds one of
// some layouts. `refusal` says why a call is refused as the arrays are; empty: it is not.
template <class Refusal, class Visit>
void for_each_layout(Fenced& fenced, Refusal refusal, Visit visit) {
  int layouts = 0, taken = 0;
  std::string refused;
  for (const DTypes& types : kTypes) {
    fenced.take(types);
    fenced.lay({1, 1, 1, Edge::front});
    if (const std::string why = refusal(); !why.empty()) {
      refused += "\n" + why;
      continue;
    }
    ++taken;
    for (const std::int64_t cols : widths())
      for (const std::int64_t rows : {1, 3})
        for (const std::int64_t gap : {0, 5})
          for (const Edge edge : {Edge::front, Edge::back}) {
            if (rows == 1 && gap != 0) continue;
            if (lab::thinned() && layouts++ % lab::one_in() != 0) continue;
            fenced.lay({rows, cols, cols + gap, edge});
            visit(text(name_of(types.x), " ", rows, " x ", cols, " at stride ", cols + gap, ", ",
                       guarded::name_of(edge)));
            if (testing::Test::HasFailure()) return;
          }
  }
  EXPECT_GE(taken, 3) << "types were accepted of " << std::size(kTypes) << refused;
}

TEST(PageGuards, NoEntryTouchesWhatLiesBesideItsArrays) {
  Fenced fenced;
  World& world = fenced.world;
  world.forward.residual = &world.residual;
  world.forward.sum = &world.sum;
  world.backward.grad_sum = &world.grad_sum;
  for (const calls::Entry& entry : calls::kEntriesAndObjects) {
    const auto refusal = [&]() -> std::string {
      return entry.call(world) == ISOBIT_OK ? "" : isobit_last_error();
    };
    for_each_layout(fenced, refusal, [&](const std::string& layout) {
      isobit_status status = ISOBIT_INTERNAL;
      const auto address = guarded::trapped([&] { status = entry.call(world); });
      ASSERT_FALSE(address) << entry.name << " of " << layout << " touches "
                            << fenced.place_of(*address);
      ASSERT_EQ(status, ISOBIT_OK) << entry.name << " of " << layout << ": " << isobit_last_error();
    });
  }
}

// Workspace that ends right before a forbidden page.
class FencedMemory {
 public:
  Allocator allocator() {
    return {[](void* self, std::size_t bytes) -> void* {
              auto pages = std::make_unique<Pages>(bytes);
              void* memory = pages->at(Edge::back, bytes);
              static_cast<FencedMemory*>(self)->taken_[memory] = std::move(pages);
              return memory;
            },
            [](void* self, void* memory, std::size_t) {
              static_cast<FencedMemory*>(self)->taken_.erase(memory);
            },
            this};
  }
  std::string place_of(const void* address) const {
    for (const auto& [memory, pages] : taken_)
      if (std::string place = pages->place_of(address); !place.empty())
        return "workspace, " + place;
    return "";
  }

 private:
  std::map<void*, std::unique_ptr<Pages>> taken_;
};

// A variant's own plan, and every other that differs from it in one knob.
std::vector<Plan> plans_of(const VariantInfo& info, const Plan& own) {
  std::vector<Plan> plans = {own};
  for (std::size_t knob = 0; knob < info.knobs.size(); ++knob)
    for (const int value : info.knobs[knob].values)
      if (value != own[knob]) {
        plans.push_back(own);
        plans.back()[knob] = value;
      }
  return plans;
}

// Which arguments a call has, and what else it says.
struct Dress {
  const char* name;
  bool optional, extra;
  double dropout, kind;
};
constexpr Dress kDresses[] = {
    {"with what is required", false, false, 0, 0},
    {"with optional arguments", true, false, 0, 1},
    {"with all arguments", true, true, 0.5, 0},
};

class PageGuardsOf : public testing::TestWithParam<const Operation*> {
 protected:
  const Operation& operation = *GetParam();

  Arguments dressed(const Fenced& fenced, const Dress& dress) const {
    Arguments args = operation.make_arguments();
    for (const Option& option : operation.options) {
      if (option.name == "dropout") option.set(args.get(), dress.dropout);
      if (option.name == "kind") option.set(args.get(), dress.kind);
    }
    for (const Argument& argument : operation.arguments) {
      const bool given = argument.presence == Presence::required ||
                         (argument.presence == Presence::optional ? dress.optional : dress.extra);
      if (given && args.applies(argument)) args[argument] = fenced.view(argument.name);
    }
    return args;
  }

  // Runs every variant that can, on every instruction set, with its plan and others.
  template <class PlaceOf>
  void expect_all_stay_within(const Arguments& args, const std::string& call,
                              const PlaceOf& place_of) {
    const std::vector<VariantInfo> infos = operation.variants();
    for (std::size_t i = 0; i < infos.size(); ++i) {
      if (infos[i].device != Device::cpu || !infos[i].elsewhere.empty()) continue;
      for (const Isa isa : Machine::isas_here()) {
        if (isa != Isa::scalar && !infos[i].has_instruction_sets()) continue;
        Machine machine = Machine::here();
        machine.isa = isa;
        machine.threads = 1;
        const int variant = static_cast<int>(i);
        if (!operation.declines(variant, args, machine).empty()) continue;
        std::vector<Plan> plans = plans_of(infos[i], operation.choose(variant, args, machine));
        // The portable kernels are slow, and plans the same for all: its own and another in turn.
        if (isa == Isa::scalar && infos[i].has_instruction_sets() && plans.size() > 2 &&
            Machine::isas_here().size() > 1 && lab::one_in() > 1)
          plans = {plans[0], plans[1 + turn++ % (plans.size() - 1)]};
        for (const Plan& plan : plans) {
          FencedMemory memory;
          Execution execution;
          execution.machine = machine;
          execution.allocator = memory.allocator();
          const auto address =
              guarded::trapped([&] { operation.run(variant, plan, args, execution); });
          ++runs[infos[i].name];
          ASSERT_FALSE(address) << infos[i].name << " on " << name_of(isa) << " of " << call
                                << " touches " << memory.place_of(*address) << place_of(*address);
        }
      }
    }
  }

  void expect_every_variant_ran() {
    for (const VariantInfo& info : operation.variants()) {
      // Its kernels are built where those of AVX-512 are, which sanitizers leave out.
      const bool lacks_amx =
          info.name == "amx" && (!amx::why_not().empty() || Machine::here().isa != Isa::avx512);
      EXPECT_TRUE(runs[info.name] > 0 || info.device != Device::cpu || !info.elsewhere.empty() ||
                  lacks_amx)
          << info.name << " declined every call";
    }
  }

  std::map<std::string_view, int> runs;
  std::size_t turn = 0;
};

class PageGuardsOfShapes : public PageGuardsOf {};

TEST_P(PageGuardsOf, NoVariantTouchesWhatLiesBesideItsArrays) {
  Fenced fenced;
  for (const Dress& dress : kDresses) {
    const auto refusal = [&]() -> std::string {
      try {
        operation.check(dressed(fenced, dress));
      } catch (const InvalidArgument& error) { return error.what(); }
      return "";
    };
    for_each_layout(fenced, refusal, [&](const std::string& layout) {
      expect_all_stay_within(dressed(fenced, dress), layout + ", " + dress.name,
                             [&](const void* address) { return fenced.place_of(address); });
    });
  }
  expect_every_variant_ran();
}

// Strides of the same elements where the second dimension is the fastest, as channels often are.
void lay_second_last(TensorView& view) {
  std::int64_t step = view.shape[1];
  view.strides[1] = 1;
  for (int i = view.rank - 1; i >= 0; --i)
    if (i != 1) {
      view.strides[i] = step;
      step *= view.shape[i];
    }
}

// The same for arrays of any other shape: every type and option, each array between pages of its
// own.
TEST_P(PageGuardsOfShapes, NoVariantTouchesWhatLiesBesideItsArrays) {
  enum class Order { first, second_last };
  const auto expect_all_within = [&](const lab::Case& c, Edge edge, Order order) {
    lab::Workload workload(c);
    workload.draw();  // an index that nobody drew is out of range
    std::map<std::string_view, std::unique_ptr<Pages>> pages;
    for (const Argument& argument : operation.arguments) {
      const lab::Array* array = workload.find(argument.name);
      if (array == nullptr) continue;
      const std::vector<std::byte> bytes = array->packed();
      auto& own = pages[argument.name] = std::make_unique<Pages>(bytes.size());
      TensorView& view = workload.args()[argument];
      view.data = own->at(edge, bytes.size());
      std::ranges::copy(bytes, static_cast<std::byte*>(view.data));
      if (order == Order::second_last && argument.strides == Strides::any && view.rank > 2)
        lay_second_last(view);
    }
    expect_all_stay_within(workload.args(),
                           text(lab::extents_text(c), " ", guarded::name_of(edge),
                                order == Order::second_last ? ", second dimension last" : ""),
                           [&](const void* address) {
                             for (const auto& [name, own] : pages)
                               if (std::string place = own->place_of(address); !place.empty())
                                 return std::string(name) + ", " + place;
                             return std::string("what is no array");
                           });
  };
  for (const std::int64_t width : widths()) {
    std::vector<lab::Case> cases = lab::cases_of_every_type(operation, 2, width);
    // All once, so that a variant for few of them is met however many are left out.
    if (width != kWholeWidth) cases = lab::some_of(cases);
    for (const lab::Case& c : cases)
      for (const Edge edge : {Edge::front, Edge::back}) {
        expect_all_within(c, edge, Order::first);
        if (HasFatalFailure()) return;
      }
  }
  if (std::ranges::any_of(operation.arguments, [](const Argument& argument) {
        return argument.strides == Strides::any && argument.presence == Presence::required;
      }))
    for (const lab::Case& c : lab::cases_of(operation, {}, "quick"))
      for (const Edge edge : {Edge::front, Edge::back}) {
        // What is packed, or lies in blocks, has no other batch, and so was not among those above.
        if (!c.has_free_batch()) expect_all_within(c, edge, Order::first);
        expect_all_within(c, edge, Order::second_last);
        if (HasFatalFailure()) return;
      }
  expect_every_variant_ran();
}

// Whether a World has the arrays that every call has.
bool is_in_a_world(const Operation* operation) {
  return lab::of_rows(operation) &&
         std::ranges::all_of(operation->arguments, [](const Argument& argument) {
           return argument.presence != Presence::required ||
                  std::ranges::find(kArrays, argument.name, &Named::name) != std::end(kArrays);
         });
}

INSTANTIATE_TEST_SUITE_P(Operations, PageGuardsOf,
                         testing::ValuesIn(lab::operations_where(is_in_a_world)),
                         lab::name_of_pass);
INSTANTIATE_TEST_SUITE_P(Operations, PageGuardsOfShapes,
                         testing::ValuesIn(lab::operations_where([](const Operation* operation) {
                           return !is_in_a_world(operation);
                         })),
                         lab::name_of_pass);

}  // namespace
}  // namespace isobit
