// SPDX-License-Identifier: Apache-2.0
// Every kernel in every schedule of threads: right, and the same bits as the processor's. Built
// for each place that simt/where.h knows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "simt/far_rows.h"
#include "simt/where.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

void set_knob(Configuration& configuration, std::string_view name, int value) {
  for (std::size_t i = 0; i < configuration.info.knobs.size(); ++i)
    if (configuration.info.knobs[i].name == name &&
        contains(configuration.info.knobs[i].values, value))
      configuration.plan[i] = value;
}

bool has_knob(const Configuration& configuration, std::string_view name) {
  return std::ranges::any_of(configuration.info.knobs,
                             [&](const Knob& knob) { return knob.name == name; });
}

bool multiplies(const Operation& operation) {
  return feeds_a_product(operation) || operation.op == "matmul" || operation.op.starts_with("conv");
}

// The emulator is a thousand times slower than the processor.
std::vector<Case> small_cases(const Operation& operation, std::int64_t rows, std::int64_t cols) {
  return cases_of_every_type(operation, rows, cols, 8'000);
}

class Kernels : public testing::TestWithParam<const Operation*> {
 protected:
  void SetUp() override {
    watch();
    attach_devices();
    ASSERT_NE(attached(kDevice), nullptr) << missing_device(kDevice);
    const auto infos = GetParam()->variants();
    if (std::none_of(infos.begin(), infos.end(),
                     [](const VariantInfo& info) { return info.device == kDevice; }))
      GTEST_SKIP() << "no kernel is written yet";
  }

  // The processor's best way, then all of the emulator's.
  static std::vector<Configuration> configurations(const Workload& workload, bool all_plans) {
    static std::size_t turn = 0;
    Flags flags;
    flags.device = {"cpu"};
    std::vector<Configuration> configurations =
        configurations_of(workload, flags, Unnamed::best).able;
    flags.device = {std::string(name_of(kDevice))};
    for (const Configuration& configuration :
         configurations_of(workload, flags, Unnamed::all).able) {
      // The detector's memory grows with the square of the blocks. Where these cannot be few, as in
      // scan, the operator has tests of its own.
      if (kDetectsRaces && !has_knob(configuration, "blocks")) continue;
      configurations.push_back(configuration);
      if (kDetectsRaces) set_knob(configurations.back(), "blocks", 1);
      if (!all_plans) continue;
      const std::vector<Configuration> others = other_plans(configuration);
      // Where cases are thinned, two of the others, in turn.
      const std::size_t some =
          one_in() == 1 ? others.size() : std::min<std::size_t>(2, others.size());
      for (std::size_t i = 0; i < some; ++i)
        configurations.push_back(others[turn++ % others.size()]);
    }
    return configurations;
  }
};

// Usual rows, and rows that go the long way; arrays on vectors of 16 bytes, and such that are not.
// Their numbers have no factor in common.
constexpr const char* kInputs[] = {"randn", "constant", "mean1e6", "denormal", "huge1e20"};
constexpr std::int64_t kOffsets[] = {0, 0, 1};
constexpr std::int64_t kGaps[] = {0, 8, 3, 16};

TEST_P(Kernels, AreRightInEverySchedule) {
  std::size_t index = 0;
  in_every_schedule([&](bool in_order) {
    for (const auto& [rows, cols] :
         {std::pair{5, 3}, {9, 64}, {7, 121}, {5, 513}, {3, 1024}, {2, 2100}, {2, 8192}}) {
      if (cols > 2100 && (kDetectsRaces || !in_order)) continue;
      const std::vector<Case> cases = small_cases(*GetParam(), rows, cols);
      // Types differ in what they convert, not in who waits for whom.
      for (std::size_t i = static_cast<std::size_t>(cols) % 3; i < cases.size();
           i += (kDetectsRaces || !in_order ? 5 : 1) * one_in()) {
        Case c = cases[i];
        const bool whole = !is_floating(c.types.x);
        if (!needs_forwards_own_results(*c.operation))
          c.input = kInputs[whole ? 0 : index % std::size(kInputs)];
        c.offset = kOffsets[index % std::size(kOffsets)];
        c.row_gap = kGaps[index % std::size(kGaps)];
        if (takes_any_strides(*c.operation)) c.layout = static_cast<Layout>(index % 3);
        ++index;
        Workload workload(c);
        workload.draw();
        std::vector<Configuration> all =
            configurations(workload, in_order && !kDetectsRaces && index % 4 == 0);
        // Few blocks, so that each goes on to another row, behind what may race with it.
        for (Configuration& configuration : all)
          if (kDetectsRaces && configuration.info.device == kDevice)
            set_knob(configuration, "blocks", 1);
        expect_right(workload, all);
        if (HasFatalFailure()) return;
      }
    }
  });
}

// The sums of so many blocks of the order do not fit a warp. Products add runs of 8192: the first
// width's are pairs of pairs, and one more. Thinned, others have one width too.
TEST_P(Kernels, WideRowsAreRight) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  constexpr std::int64_t kWidths[] = {33'000, 66'001, 200'000};
  const std::int64_t one = kWidths[GetParam()->op.size() % std::size(kWidths)];
  for (const std::int64_t cols : kWidths) {
    if (multiplies(*GetParam()) ? cols != kWidths[0] : thinned() && cols != one) continue;
    Case c = small_cases(*GetParam(), 1, cols).front();
    Workload workload(c);
    workload.draw();
    expect_right(workload, configurations(workload, false));
    if (HasFatalFailure()) return;
  }
}

TEST_P(Kernels, OptionalArgumentsMayBeAbsent) {
  for (const Case& c : small_cases(*GetParam(), 3, 70)) {
    Workload workload(c, [](const Case& of, const Argument& argument) -> std::optional<Form> {
      if (argument.presence == Presence::optional) return std::nullopt;
      return any_argument(of, argument);
    });
    workload.draw();
    expect_right(workload, configurations(workload, false));
    if (HasFatalFailure()) return;
  }
}

Arguments untouchable(const Operation& operation, std::int64_t rows, std::int64_t cols) {
  return untouchable(small_cases(operation, rows, cols).front());
}

// On a Hopper, an Ampere, and one smaller than any.
TEST_P(Kernels, ChooseAmongTheValuesOfTheirKnobs) {
  if (GetParam()->op == "attention") GTEST_SKIP() << "its heads are no rows of any width";
  const Operation& operation = *GetParam();
  const std::vector<VariantInfo> infos = operation.variants();
  Machine machine = execution_for(kDevice).machine;
  for (const Gpu& gpu : {Gpu{90, 132, 227 << 10, 50 << 20}, Gpu{80, 108, 163 << 10, 40 << 20},
                         Gpu{75, 1, 64 << 10, 1 << 20}})
    for (const auto& [rows, cols] : {std::pair{1, 1},
                                     {3, 64},
                                     {40, 513},
                                     {100'000, 100},
                                     {70'000, 768},
                                     {300, 5120},
                                     {17, 30'000},
                                     {2, 300'000}}) {
      machine.gpu = gpu;
      const Arguments args = untouchable(operation, rows, cols);
      int able = 0;
      for (int i = 0; i < static_cast<int>(infos.size()); ++i) {
        if (infos[i].device != kDevice || !operation.declines(i, args, machine).empty()) continue;
        ++able;
        const Plan plan = operation.choose(i, args, machine);
        for (std::size_t k = 0; k < infos[i].knobs.size(); ++k)
          EXPECT_TRUE(contains(infos[i].knobs[k].values, plan[k]))
              << infos[i].name << " " << infos[i].knobs[k].name << "=" << plan[k] << " for " << rows
              << " x " << cols;
      }
      EXPECT_GT(able, 0) << rows << " x " << cols << " on sm_" << gpu.capability;
      EXPECT_EQ(infos[operation.default_variant(args, machine)].device, kDevice);
    }
}

// The threads of a block are a knob, or follow from one that shapes its tile or group of threads.
// READMEs say why of those without: the tile or the row determines them, a textbook's bits depend
// on them, or the kernels are other operators', by their own plans.
TEST_P(Kernels, LetAPlanChooseTheThreadsOfABlock) {
  if (GetParam()->op == "attention") GTEST_SKIP() << "its tiles have shapes of their own";
  const std::set<std::string_view> shaping = {"threads", "each", "side", "across", "cluster"};
  const std::set<std::string_view> fixed = {"hillis_steele", "blelloch", "pieces", "unfused"};
  const std::set<std::string_view> of_tiles = {"tiled", "wgmma", "cublaslt"};
  for (const VariantInfo& info : GetParam()->variants()) {
    const bool of_matmul = GetParam()->op == "matmul" && of_tiles.contains(info.name);
    if (info.device != kDevice || fixed.contains(info.name) || of_matmul) continue;
    EXPECT_TRUE(std::ranges::any_of(info.knobs, [&](const Knob& knob) {
      return shaping.contains(knob.name);
    })) << info.name;
  }
}

#if !defined(ISOBIT_ON_GPU)
TEST_P(Kernels, RunOnTheStreamOfTheCaller) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  Workload workload(small_cases(*GetParam(), 20, 600).front());
  workload.draw();
  for (const Configuration& configuration : configurations(workload, false)) {
    if (configuration.info.device != kDevice) continue;
    int stream = 0;
    Execution execution = execution_for(configuration);
    execution.stream = &stream;
    simt::host::set_only_stream(&stream);
    EXPECT_NO_THROW(workload.operation().run(configuration.variant, configuration.plan,
                                             workload.args(), execution))
        << configuration.info.name;
    simt::host::set_only_stream(nullptr);
  }
}
#endif

// -0 and +0 are equal; the mean of a row of both is the first of them.
TEST_P(Kernels, ARowOfZerosHasTheMeanOfItsFirst) {
  if (GetParam()->find("x") == nullptr) GTEST_SKIP() << "it has no rows of x";
  for (const double first : {0.0, -0.0}) {
    Workload workload(small_cases(*GetParam(), 1, 600).front());
    workload.draw();
    if (workload.find("x") == nullptr) GTEST_SKIP() << "the first of its cases reads no x";
    const Array& x = *workload.find("x");
    std::vector<double> zeros(static_cast<std::size_t>(x.form().line_length()), -first);
    zeros[0] = first;
    x.store(0, 0, zeros);
    workload.seal();
    expect_right(workload, configurations(workload, false));
    if (HasFatalFailure()) return;
  }
}

// The bits of y, grad_x or new_param, with rows so far apart, and of grad_weight, norms or losses.
std::vector<std::uint16_t> bits_at_stride(const Operation& operation, std::int64_t stride,
                                          Device device, int variant) {
  constexpr std::int64_t kCols = FarRows::kCols;
  std::map<std::string_view, std::unique_ptr<FarRows>> arrays;
  std::vector<bf16> grad_weight(kCols), values(2 * kCols);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = from_float<bf16>(static_cast<float>(i * i % 17));
  OnDevice there(device);
  const Arguments args = operation.make_arguments();
  for (const std::string_view name :
       {"x", "target", "residual", "grad_y", "y", "grad_x", "param", "grad", "exp_avg",
        "exp_avg_sq", "new_param", "new_exp_avg", "new_exp_avg_sq"}) {
    const Argument* argument = operation.find(name);
    if (argument == nullptr) continue;
    auto& array = arrays[name] = std::make_unique<FarRows>(stride, attached(device));
    if (argument->role == Role::input) array->write(values);
    args[*argument] = array->view();
  }
  if (const Argument* argument = operation.find("grad_weight"))
    args[*argument] =
        vector_view(there(grad_weight.data(), 2 * kCols), 2 * kCols, DType::bf16, kCols);
  std::vector<float> norms(2);
  if (const Argument* argument = operation.find("norm"))
    args[*argument] = vector_view(there(norms.data(), 8), 8, DType::f32, 2);
  std::vector<float> losses(2 * kCols, 1.0f);  // of 32 bits, and near
  for (const std::string_view name : {"loss", "grad_loss"})
    if (const Argument* argument = operation.find(name))
      args[*argument] =
          matrix_view(there(losses.data(), 8 * kCols), 8 * kCols, DType::f32, 2, kCols, kCols);
  there.run(operation, variant, args);
  norms.insert(norms.end(), losses.begin(), losses.end());
  std::vector<std::uint16_t> bits;
  for (const std::string_view name : {"y", "grad_x", "new_param"})
    if (arrays.contains(name))
      for (const bf16 value : arrays[name]->read()) bits.push_back(value.bits);
  for (const float norm : norms) {
    bits.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(norm) >> 16));
    bits.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(norm)));
  }
  for (const bf16 value : grad_weight) bits.push_back(value.bits);
  return bits;
}

TEST_P(Kernels, RowsMayLieFartherApartThan31BitsTell) {
  if (!of_rows(GetParam())) GTEST_SKIP() << "its arrays are no rows";
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  const Operation& operation = *GetParam();
  const auto expected = bits_at_stride(operation, FarRows::kCols, Device::cpu, 0);
  const std::vector<VariantInfo> infos = operation.variants();
  for (int i = 0; i < static_cast<int>(infos.size()); ++i)
    if (infos[i].device == kDevice) {
      EXPECT_EQ(bits_at_stride(operation, (std::int64_t{1} << 31) + 8, kDevice, i), expected)
          << infos[i].name;
    }
}

// Enough runs of 16 rows for tiles of several, a last tile that is not full, and groups that take
// more than one.
TEST_P(Kernels, SumsOverManyRowsAreRight) {
  if (!sums_over_rows(GetParam())) GTEST_SKIP() << "it has none";
  const auto shapes = {std::pair{17, 40}, {100, 70}, {16 * 67 + 5, 20}, {16 * 9, 600}};
  for (const auto& [rows, cols] : shapes) {
    if (kDetectsRaces && rows > 100) continue;
    const std::vector<Case> cases = small_cases(*GetParam(), rows, cols);
    for (std::size_t i = static_cast<std::size_t>(rows) % 4; i < cases.size();
         i += (kDetectsRaces ? 8 : 4) * one_in()) {
      // A product for each row says nothing more of sums over them.
      const bool alone = GetParam()->op == "matmul" && rows > 100;
      Workload workload(cases[i], [&](const Case& of, const Argument& argument) {
        const bool is_product = argument.name == "grad_a" || argument.name == "grad_b";
        return alone && is_product ? std::nullopt : case_argument(of, argument);
      });
      workload.draw();
      std::vector<Configuration> all =
          configurations(workload, !kDetectsRaces && cols < 100 && i % 8 < 4);
      for (Configuration few : std::vector<Configuration>(all)) {
        if (few.info.device != kDevice) continue;
        set_knob(few, "blocks", 1);
        set_knob(few, "runs", 2);
        all.push_back(few);
      }
      expect_right(workload, all);
      if (HasFatalFailure()) return;
    }
  }
}

// Both are read once more after the rows: for the sums over rows.
TEST_P(Kernels, GradXMayTakeThePlaceOfXOrGradY) {
  const Operation& operation = *GetParam();
  if (!of_rows(&operation) || operation.find("grad_weight") == nullptr)
    GTEST_SKIP() << "it has none";
  constexpr std::int64_t kRows = 40;
  for (const std::int64_t cols : {72, 1100}) {
    const auto bits_of = [&](Device device, int variant, std::string_view covered) {
      const auto count = static_cast<std::size_t>(kRows * cols);
      std::map<std::string_view, std::vector<float>> arrays;
      for (const char* name : {"x", "grad_y", "grad_x"}) arrays[name].resize(count);
      for (std::size_t i = 0; i < count; ++i) {
        arrays["x"][i] = static_cast<float>(i * i % 101);
        arrays["grad_y"][i] = static_cast<float>(i * 7 % 31) - 15;
      }
      std::vector<float> grad_weight(static_cast<std::size_t>(cols));
      OnDevice there(device);
      const Arguments args = operation.make_arguments();
      for (auto& [name, array] : arrays) {
        std::vector<float>& at = arrays[name == "grad_x" ? covered : name];
        args[*operation.find(name)] =
            matrix_view(there(at.data(), 4 * count), 4 * static_cast<std::int64_t>(count),
                        DType::f32, kRows, cols, cols);
      }
      args[*operation.find("grad_weight")] = vector_view(
          there(grad_weight.data(), 4 * grad_weight.size()), 4 * cols, DType::f32, cols);
      there.run(operation, variant, args);
      return std::pair(arrays[covered], grad_weight);
    };
    const auto expected = bits_of(Device::cpu, 0, "grad_x");
    const std::vector<VariantInfo> infos = operation.variants();
    for (int i = 0; i < static_cast<int>(infos.size()); ++i)
      for (const char* covered : {"x", "grad_y"})
        if (infos[i].device == kDevice) {
          EXPECT_EQ(bits_of(kDevice, i, covered), expected) << infos[i].name << covered;
        }
  }
}

// Rows are not summed then, and the threads that have them meet only where the kernel sees to it.
TEST_P(Kernels, GradientsOfWeightsMayBeWantedAlone) {
  if (GetParam()->find("grad_weight") == nullptr) GTEST_SKIP() << "it has none";
  Case c = small_cases(*GetParam(), 40, 1024).front();
  c.given_statistics = true;
  Workload workload(c, [](const Case& of, const Argument& argument) -> std::optional<Form> {
    if (argument.name == "grad_x" || argument.name == "grad_residual") return std::nullopt;
    return case_argument(of, argument);
  });
  workload.draw();
  std::vector<Configuration> all = configurations(workload, false);
  for (Configuration& configuration : all)
    if (configuration.info.device == kDevice) set_knob(configuration, "blocks", 1);
  in_every_schedule([&](bool) { expect_right(workload, all); });
}

// The sum lies where x does, and a constant row is read once more after it was written.
TEST_P(Kernels, ASumMayTakeThePlaceOfARareRow) {
  const Operation& operation = *GetParam();
  const Argument* sum = operation.find("sum");
  if (sum == nullptr || operation.find("residual") == nullptr || feeds_a_product(operation))
    GTEST_SKIP() << "it has none of its own";
  const std::vector<VariantInfo> infos = operation.variants();
  for (int i = 0; i < static_cast<int>(infos.size()); ++i) {
    if (infos[i].device != kDevice) continue;
    constexpr std::int64_t kCols = 100;
    std::vector<float> x(kCols, 2), residual(kCols, 1), y(kCols), mean(1, 3);
    OnDevice there(kDevice);
    const Arguments args = operation.make_arguments();
    const auto row = [&](std::vector<float>& data) {
      return matrix_view(there(data.data(), 4 * kCols), 4 * kCols, DType::f32, 1, kCols, kCols);
    };
    args[*operation.find("x")] = args[*sum] = row(x);
    args[*operation.find("residual")] = row(residual);
    args[*operation.find("y")] = row(y);
    if (const Argument* argument = operation.find("mean"))
      args[*argument] = vector_view(there(mean.data(), 4), 4, DType::f32, 1);
    if (!operation.declines(i, args, execution_for(kDevice).machine).empty()) continue;
    there.run(operation, i, args);
    EXPECT_EQ(x, std::vector<float>(kCols, 3)) << infos[i].name;
    EXPECT_EQ(mean[0], 3) << infos[i].name;
  }
}

// A GPU cannot say which target is wrong, and reads nothing by it.
TEST(KernelsOfCrossEntropy, ATargetThatIsNoClassMakesItsRowNan) {
  constexpr std::int64_t kRows = 3, kCols = 70;
  for (const Operation* operation : catalog()) {
    if (operation->op != "cross_entropy") continue;
    const std::vector<VariantInfo> infos = operation->variants();
    for (int i = 0; i < static_cast<int>(infos.size()); ++i) {
      if (infos[i].device != kDevice) continue;
      std::vector<std::int64_t> target = {69, 70, -1};
      std::vector<float> x(kRows * kCols, 2), weight(kCols, 1), given(kRows, 1), found(kRows, 7);
      std::vector<float> total(1), count(1), grad_x(kRows * kCols, 7);
      OnDevice there(kDevice);
      const Arguments args = operation->make_arguments();
      const auto numbers = [&](std::vector<float>& data) {
        const std::int64_t bytes = std::ssize(data) * 4;
        return std::ssize(data) == kRows * kCols
                   ? matrix_view(there(data.data(), bytes), bytes, DType::f32, kRows, kCols, kCols)
                   : vector_view(there(data.data(), bytes), bytes, DType::f32, std::ssize(data));
      };
      args[*operation->find("x")] = numbers(x);
      args[*operation->find("weight")] = numbers(weight);
      args[*operation->find("target")] =
          vector_view(there(target.data(), 8 * kRows), 8 * kRows, DType::i64, kRows);
      const bool forward = operation->pass == "fwd";
      if (forward) {
        args[*operation->find("loss")] = numbers(found);
        args[*operation->find("total")] = numbers(total);
        args[*operation->find("count")] = numbers(count);
      } else {
        for (const char* name : {"grad_loss", "largest", "sum"})
          args[*operation->find(name)] = numbers(given);
        args[*operation->find("grad_x")] = numbers(grad_x);
      }
      there.run(*operation, i, args);
      for (std::int64_t row = 0; row < kRows; ++row) {
        const float value = forward ? found[row] : grad_x[row * kCols + 5];
        EXPECT_EQ(std::isnan(value), row > 0) << infos[i].name << " " << row;
      }
      EXPECT_EQ(std::isnan(total[0]) && std::isnan(count[0]), forward);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, Kernels, testing::ValuesIn(catalog().begin(), catalog().end()),
                         name_of_pass);

}  // namespace
}  // namespace isobit::lab
