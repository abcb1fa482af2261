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

TEST_P(Kernels, RowsMayLieFartherApartThan31BitsTell) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  constexpr std::int64_t kCols = 40, kStride = (std::int64_t{1} << 31) + 8;
  const Operation& operation = *GetParam();
  const auto result = [&](std::int64_t stride, Device device, int variant) {
    std::map<std::string_view, std::unique_ptr<Reserved>> arrays;
    const Arguments args = operation.make_arguments();
    for (const std::string_view name : {"x", "residual", "y"}) {
      const auto bytes = static_cast<std::size_t>(2 * (stride + kCols));
      auto& array = arrays[name] = std::make_unique<Reserved>(bytes);
      for (std::int64_t i = 0; i < kCols; ++i) {
        array->data()[i] = from_float<bf16>(static_cast<float>(i * i % 17));
        array->data()[stride + i] = from_float<bf16>(static_cast<float>(i % 13));
      }
      args[*operation.find(name)] = matrix_view(array->data(), static_cast<std::int64_t>(bytes),
                                                DType::bf16, 2, kCols, stride);
    }
    const Execution execution =
        device == Device::cpu ? execution_for(Isa::scalar, 1) : execution_for(device);
    if (device == Device::cpu) variant = operation.default_variant(args, execution.machine);
    operation.run(variant, operation.choose(variant, args, execution.machine), args, execution);
    const bf16* y = arrays["y"]->data();
    std::vector<int> bits;
    for (std::int64_t i = 0; i < kCols; ++i) {
      bits.push_back(y[i].bits);
      bits.push_back(y[stride + i].bits);
    }
    return bits;
  };
  const std::vector<int> expected = result(kCols, Device::cpu, 0);
  const std::vector<VariantInfo> infos = operation.variants();
  for (int i = 0; i < static_cast<int>(infos.size()); ++i)
    if (infos[i].device == Device::emu) {
      EXPECT_EQ(result(kStride, Device::emu, i), expected) << infos[i].name;
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
