// SPDX-License-Identifier: Apache-2.0
// Every kernel in every schedule of threads: right, and the same bits as the processor's. Built
// twice: plain, and with every access told to the detector of races.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <map>
#include <memory>

#include "isobit/simt/host/emulator.h"
#if defined(ISOBIT_RACES)
#include "isobit/simt/host/race.h"
#endif
#include "workloads.h"

namespace isobit::lab {
namespace {

using simt::host::Order;
using simt::host::Schedule;

#if defined(ISOBIT_RACES)
constexpr bool kDetectsRaces = true;
void watch() { simt::host::detect_races(); }
#else
constexpr bool kDetectsRaces = false;
void watch() {}
#endif

class Kernels : public testing::TestWithParam<const Operation*> {
 protected:
  void SetUp() override {
    watch();
    attach_devices();
    const auto infos = GetParam()->variants();
    if (std::none_of(infos.begin(), infos.end(),
                     [](const VariantInfo& info) { return info.device == Device::emu; }))
      GTEST_SKIP() << "no kernel is written yet";
  }
  void TearDown() override { simt::host::set_schedule({}); }

  // The processor's best way, then all of the emulator's.
  static std::vector<Way> ways(const Workload& workload, bool all_plans) {
    Flags flags;
    flags.device = {"cpu"};
    std::vector<Way> ways = ways_of(workload, flags, Unnamed::best).able;
    flags.device = {"emu"};
    for (const Way& way : ways_of(workload, flags, Unnamed::all).able) {
      ways.push_back(way);
      if (!all_plans) continue;
      const std::vector<Way> others = other_plans(way);
      ways.insert(ways.end(), others.begin(), others.end());
    }
    return ways;
  }
};

// Usual rows, and rows that go the long way; arrays on vectors of 16 bytes, and such that are not.
// Their numbers have no factor in common.
constexpr const char* kInputs[] = {"randn", "constant", "mean1e6", "denormal", "huge1e20"};
constexpr std::int64_t kOffsets[] = {0, 0, 1};
constexpr std::int64_t kGaps[] = {0, 8, 3, 16};

TEST_P(Kernels, AreRightInEverySchedule) {
  std::size_t index = 0;
  for (const Schedule& schedule :
       {Schedule{}, Schedule{.order = Order::reversed},
        Schedule{.order = Order::random, .seed = 1, .resident = 3, .shuffled_blocks = true},
        Schedule{.order = Order::starving, .seed = 1, .resident = 4}}) {
    // What races does so in every schedule.
    if (kDetectsRaces && schedule.order > Order::reversed) continue;
    simt::host::set_schedule(schedule);
    const bool in_order = schedule.order == Order::in_order;
    for (const auto& [rows, cols] :
         {std::pair{5, 3}, {9, 64}, {7, 121}, {5, 513}, {3, 1024}, {2, 2100}, {2, 8192}}) {
      if (cols > 2100 && (kDetectsRaces || !in_order)) continue;
      const std::vector<Case> cases = cases_of_every_type(*GetParam(), rows, cols);
      // Types differ in what they convert, not in who waits for whom.
      for (std::size_t i = static_cast<std::size_t>(cols) % 3; i < cases.size();
           i += (kDetectsRaces || !in_order ? 5 : 1) * ISOBIT_ONE_IN) {
        Case c = cases[i];
        const bool whole = c.types.x == DType::i32;
        c.input = kInputs[whole ? 0 : index % std::size(kInputs)];
        c.offset = kOffsets[index % std::size(kOffsets)];
        c.row_stride = cols + kGaps[index % std::size(kGaps)];
        ++index;
        Workload workload(c);
        workload.draw();
        expect_right(workload, ways(workload, in_order && !kDetectsRaces && index % 4 == 0));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The sums of so many blocks of the order do not fit a warp.
TEST_P(Kernels, WideRowsAreRight) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  for (const std::int64_t cols : {33'000, 66'001, 200'000}) {
    Case c = cases_of_every_type(*GetParam(), 1, cols).front();
    Workload workload(c);
    workload.draw();
    expect_right(workload, ways(workload, false));
    if (HasFatalFailure()) return;
  }
}

TEST_P(Kernels, OptionalArgumentsMayBeAbsent) {
  for (const Case& c : cases_of_every_type(*GetParam(), 3, 70)) {
    Workload workload(c, [](const Case& of, const Argument& argument) -> std::optional<Form> {
      if (argument.presence == Presence::optional) return std::nullopt;
      return any_argument(of, argument);
    });
    workload.draw();
    expect_right(workload, ways(workload, false));
    if (HasFatalFailure()) return;
  }
}

TEST_P(Kernels, RunOnTheStreamOfTheCaller) {
  Workload workload(cases_of_every_type(*GetParam(), 20, 600).front());
  workload.draw();
  for (const Way& way : ways(workload, false)) {
    if (way.info.device != Device::emu) continue;
    int stream = 0;
    Execution execution = execution_for(way);
    execution.stream = &stream;
    simt::host::set_only_stream(&stream);
    EXPECT_NO_THROW(workload.operation().run(way.variant, way.plan, workload.args(), execution))
        << way.info.name;
    simt::host::set_only_stream(nullptr);
  }
}

// -0 and +0 are equal; the mean of a row of both is the first of them.
TEST_P(Kernels, ARowOfZerosHasTheMeanOfItsFirst) {
  for (const double first : {0.0, -0.0}) {
    Workload workload(cases_of_every_type(*GetParam(), 1, 600).front());
    workload.draw();
    std::vector<double> zeros(600, -first);
    zeros[0] = first;
    workload.find("x")->store(0, 0, zeros);
    workload.seal();
    expect_right(workload, ways(workload, false));
    if (HasFatalFailure()) return;
  }
}

// Memory that is asked for and never touched costs nothing.
class Reserved {
 public:
  explicit Reserved(std::size_t bytes) : bytes_(bytes) {
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Reserved() { munmap(memory_, bytes_); }
  Reserved(const Reserved&) = delete;
  bf16* data() const { return static_cast<bf16*>(memory_); }

 private:
  std::size_t bytes_;
  void* memory_;
};

// The bits of y or grad_x, with rows so far apart; and of grad_weight.
std::vector<std::uint16_t> bits_at_stride(const Operation& operation, std::int64_t stride,
                                          Device device, int variant) {
  constexpr std::int64_t kCols = 40;
  std::map<std::string_view, std::unique_ptr<Reserved>> arrays;
  std::vector<bf16> grad_weight(kCols);
  const Arguments args = operation.make_arguments();
  for (const std::string_view name : {"x", "residual", "grad_y", "y", "grad_x"}) {
    const Argument* argument = operation.find(name);
    if (argument == nullptr) continue;
    const auto bytes = static_cast<std::size_t>(2 * (stride + kCols));
    auto& array = arrays[name] = std::make_unique<Reserved>(bytes);
    for (std::int64_t i = 0; i < kCols && argument->role == Role::input; ++i) {
      array->data()[i] = from_float<bf16>(static_cast<float>(i * i % 17));
      array->data()[stride + i] = from_float<bf16>(static_cast<float>(i % 13));
    }
    args[*argument] =
        matrix_view(array->data(), static_cast<std::int64_t>(bytes), DType::bf16, 2, kCols, stride);
  }
  if (const Argument* argument = operation.find("grad_weight"))
    args[*argument] = vector_view(grad_weight.data(), 2 * kCols, DType::bf16, kCols);
  const Execution execution =
      device == Device::cpu ? execution_for(Isa::scalar, 1) : execution_for(device);
  if (device == Device::cpu) variant = operation.default_variant(args, execution.machine);
  operation.run(variant, operation.choose(variant, args, execution.machine), args, execution);
  const bf16* to = arrays[arrays.contains("y") ? "y" : "grad_x"]->data();
  std::vector<std::uint16_t> bits;
  for (std::size_t i = 0; i < kCols; ++i)
    bits.insert(bits.end(),
                {to[i].bits, to[stride + static_cast<std::int64_t>(i)].bits, grad_weight[i].bits});
  return bits;
}

TEST_P(Kernels, RowsMayLieFartherApartThan31BitsTell) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  const Operation& operation = *GetParam();
  const auto expected = bits_at_stride(operation, 40, Device::cpu, 0);
  const std::vector<VariantInfo> infos = operation.variants();
  for (int i = 0; i < static_cast<int>(infos.size()); ++i)
    if (infos[i].device == Device::emu) {
      EXPECT_EQ(bits_at_stride(operation, (std::int64_t{1} << 31) + 8, Device::emu, i), expected)
          << infos[i].name;
    }
}

// Enough runs of 16 rows for tiles of several, a last tile that is not full, and groups that take
// more than one.
TEST_P(Kernels, SumsOverManyRowsAreRight) {
  if (!sums_over_rows(GetParam())) GTEST_SKIP() << "it has none";
  const auto shapes = {std::pair{17, 40}, {100, 70}, {16 * 67 + 5, 20}, {16 * 19, 513}};
  for (const auto& [rows, cols] : shapes) {
    if (kDetectsRaces && rows > 100) continue;
    const std::vector<Case> cases = cases_of_every_type(*GetParam(), rows, cols);
    for (std::size_t i = static_cast<std::size_t>(rows) % 4; i < cases.size();
         i += (kDetectsRaces ? 8 : 4) * ISOBIT_ONE_IN) {
      Workload workload(cases[i]);
      workload.draw();
      expect_right(workload, ways(workload, !kDetectsRaces && cols < 100 && i % 8 < 4));
      if (HasFatalFailure()) return;
    }
  }
}

// Both are read once more after the rows: for the sums over rows.
TEST_P(Kernels, GradXMayTakeThePlaceOfXOrGradY) {
  const Operation& operation = *GetParam();
  const Argument* grad_x = operation.find("grad_x");
  if (grad_x == nullptr) GTEST_SKIP() << "it has none";
  constexpr std::int64_t kRows = 40;
  for (const std::int64_t cols : {70, 1100}) {
    const auto bits_of = [&](Device device, int variant, std::string_view covered) {
      const auto count = static_cast<std::size_t>(kRows * cols);
      std::map<std::string_view, std::vector<float>> arrays;
      for (const char* name : {"x", "grad_y", "grad_x"}) arrays[name].resize(count);
      for (std::size_t i = 0; i < count; ++i) {
        arrays["x"][i] = static_cast<float>(i * i % 101);
        arrays["grad_y"][i] = static_cast<float>(i * 7 % 31) - 15;
      }
      std::vector<float> grad_weight(static_cast<std::size_t>(cols));
      const Arguments args = operation.make_arguments();
      for (auto& [name, array] : arrays)
        args[*operation.find(name)] =
            matrix_view(arrays[name == "grad_x" ? covered : name].data(),
                        4 * static_cast<std::int64_t>(count), DType::f32, kRows, cols, cols);
      args[*operation.find("grad_weight")] =
          vector_view(grad_weight.data(), 4 * cols, DType::f32, cols);
      const Execution execution =
          device == Device::cpu ? execution_for(Isa::scalar, 1) : execution_for(device);
      if (device == Device::cpu) variant = operation.default_variant(args, execution.machine);
      operation.run(variant, operation.choose(variant, args, execution.machine), args, execution);
      return std::pair(arrays[covered], grad_weight);
    };
    const auto expected = bits_of(Device::cpu, 0, "grad_x");
    const std::vector<VariantInfo> infos = operation.variants();
    for (int i = 0; i < static_cast<int>(infos.size()); ++i)
      for (const char* covered : {"x", "grad_y"})
        if (infos[i].device == Device::emu) {
          EXPECT_EQ(bits_of(Device::emu, i, covered), expected) << infos[i].name << covered;
        }
  }
}

// The sum lies where x does, and a constant row is read once more after it was written.
TEST_P(Kernels, ASumMayTakeThePlaceOfARareRow) {
  const Operation& operation = *GetParam();
  const Argument* sum = operation.find("sum");
  if (sum == nullptr) GTEST_SKIP() << "it has none";
  const std::vector<VariantInfo> infos = operation.variants();
  for (int i = 0; i < static_cast<int>(infos.size()); ++i) {
    if (infos[i].device != Device::emu) continue;
    constexpr std::int64_t kCols = 100;
    std::vector<float> x(kCols, 2), residual(kCols, 1), y(kCols), rstd(1);
    const Arguments args = operation.make_arguments();
    const auto row = [](std::vector<float>& data) {
      return matrix_view(data.data(), 4 * kCols, DType::f32, 1, kCols, kCols);
    };
    args[*operation.find("x")] = args[*sum] = row(x);
    args[*operation.find("residual")] = row(residual);
    args[*operation.find("y")] = row(y);
    std::vector<float> mean(1, 3);
    if (const Argument* argument = operation.find("mean"))
      args[*argument] = vector_view(mean.data(), 4, DType::f32, 1);
    const Execution execution = execution_for(Device::emu);
    if (!operation.declines(i, args, execution.machine).empty()) continue;
    operation.run(i, operation.choose(i, args, execution.machine), args, execution);
    EXPECT_EQ(x, std::vector<float>(kCols, 3)) << infos[i].name;
    EXPECT_EQ(mean[0], 3) << infos[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, Kernels, testing::ValuesIn(catalog().begin(), catalog().end()),
                         name_of_pass);

}  // namespace
}  // namespace isobit::lab
