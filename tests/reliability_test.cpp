// SPDX-License-Identifier: Apache-2.0
// Failures that other libraries had, one by one, for every operation: docs/reliability.md says
// which test holds which. What the generic suite and the properties hold is not repeated here.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/lab/limits.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

// A number in (-1, 1) that depends on its place alone.
double noise(std::int64_t row, std::int64_t col) {
  std::uint64_t z = static_cast<std::uint64_t>(row * 1'000'003 + col) * 0x9e3779b97f4a7c15;
  z = (z ^ z >> 29) * 0xbf58476d1ce4e5b9;
  return static_cast<double>(static_cast<std::int64_t>(z ^ z >> 32)) * 0x1p-63;
}

template <class Value>
void fill(const Workload& workload, std::string_view name, Value value) {
  const Array* array = workload.find(name);
  if (array == nullptr) return;
  const Form& form = array->form();
  const double limit = limits_of(form.dtype).largest();
  std::vector<double> values(static_cast<std::size_t>(form.line_length()));
  for (std::int64_t row = 0; row < form.lines(); ++row) {
    for (std::int64_t col = 0; col < form.line_length(); ++col)
      values[col] = std::clamp(static_cast<double>(value(row, col)), -limit, limit);
    array->store(row, 0, values);
  }
}

class Reliability : public testing::TestWithParam<const Operation*> {
 protected:
  static const Operation& operation() { return *GetParam(); }

  // For every type and choice, with eps as usual and without.
  template <class Visit>
  static void for_each_case(std::int64_t rows, std::int64_t cols, Visit visit) {
    for (Case c : some_of(cases_of_every_type(operation(), rows, cols)))
      for (const double eps : {1e-5, 0.0}) {
        if (c.options.contains("eps"))
          c.options["eps"] = eps;
        else if (eps == 0)
          continue;
        SCOPED_TRACE(text(types_text(c.types), " ", c.with, ", eps ", eps));
        visit(c);
        if (HasFatalFailure()) return;
      }
  }

  // x has these values; every way must be right.
  template <class Value>
  static void expect_right_on(std::int64_t rows, std::int64_t cols, Value value) {
    if (operation().find("x") == nullptr) return;  // there is nothing to fill
    if (needs_forwards_own_results(operation())) return;
    for_each_case(rows, cols, [&](const Case& c) {
      Workload workload(c);
      workload.draw();
      fill(workload, "x", value);
      draw_produced(workload);
      workload.seal();
      expect_right(workload, every_configuration(workload, {1, 3}));
    });
  }
};

TEST_P(Reliability, ASmallSpreadOnALargeMeanKeepsItsVariance) {
  expect_right_on(3, 32768, [](auto row, auto col) { return 100 + 0.01 * noise(row, col); });
  expect_right_on(5, 4, [](auto row, auto col) { return 2000 + noise(row, col); });
  expect_right_on(1, 4, [](auto, auto col) { return 40000 + col; });
  expect_right_on(7, 1024, [](auto row, auto col) { return 1449 + noise(row, col) / 8; });
}

TEST_P(Reliability, SquaresMayLeaveTheRangeOfTheType) {
  expect_right_on(2, 64, [](auto row, auto col) { return (col + row) % 2 ? 1e30 : -1e30; });
  expect_right_on(2, 300, [](auto row, auto col) { return 300 * noise(row, col); });
  expect_right_on(2, 300, [](auto row, auto col) { return 60000 * noise(row, col); });
  expect_right_on(2, 300, [](auto row, auto col) { return 1e-30 * noise(row, col); });
}

TEST_P(Reliability, RowsOfZerosAreRight) {
  expect_right_on(3, 70, [](auto, auto) { return 0.0; });
  expect_right_on(3, 70, [](auto, auto) { return -0.0; });
}

TEST_P(Reliability, RaggedRowsFarFromZeroCountNoPadding) {
  for (const std::int64_t cols : {769, 3584})
    expect_right_on(4, cols, [](auto row, auto col) { return 1000 + noise(row, col); });
}

// A result cannot be divided by its weight to find what was normalised.
TEST_P(Reliability, WeightsOfZeroSpoilNoGradient) {
  for_each_case(19, 70, [](const Case& c) {
    Workload workload(c);
    workload.draw();
    fill(workload, "weight", [](auto, auto col) { return col % 3 ? 0 : noise(0, col); });
    workload.seal();
    expect_right(workload, every_configuration(workload, {1}));
  });
}

TEST_P(Reliability, WideRowsAreNotRefused) {
  for (const std::int64_t cols : {65537, 262145}) {
    Workload workload(cases_of_every_type(operation(), 2, cols).at(0));
    workload.draw();
    expect_right(workload, every_configuration(workload, {2}));
  }
}

// The number of rows crosses what 16 bits count.
TEST_P(Reliability, RowsBeyond16BitsAreRight) {
  for (const std::int64_t rows : {65535, 65536, 65537, 100000}) {
    Workload workload(cases_of_every_type(operation(), rows, 3).at(0));
    workload.draw();
    const bool thorough = rows == 65537 && !thinned();
    expect_right(workload, thorough ? every_configuration(workload, {3})
                                    : std::vector{default_configuration(workload)});
  }
}

// Batches on both sides of where a call begins to be shared out, and to leave the caches.
TEST_P(Reliability, ThresholdsOfDispatchDoNotShow) {
  if (!of_rows(&operation())) GTEST_SKIP() << "its arrays are no rows";
  if (operation().batch() < 0) GTEST_SKIP() << "it has no batch";
  constexpr std::int64_t kCols = 1024;
  const Machine& machine = Machine::here();
  const std::int64_t shared = 2 * machine.elements_a_thread / kCols;
  std::int64_t kept = 1;  // rows whose x and y of 32 bits stay in the caches
  while (!machine.leaves_caches(2 * 4 * kCols * (kept + 1))) ++kept;
  for (const Case& c : some_of(cases_of_every_type(operation(), 1, kCols))) {
    Workload alone(c);
    alone.draw();
    run(alone, default_configuration(alone));
    for (const std::int64_t threshold : {shared, kept})
      for (const std::int64_t rows : {threshold - 1, threshold, threshold + 1}) {
        Case batch_case = c;
        batch_case.extents[c.operation->batch()] = rows;
        Workload batch(batch_case);
        batch.draw();
        run(batch, default_configuration(batch));
        EXPECT_EQ(row_bits(alone, 0), row_bits(batch, 0))
            << rows << " rows " << types_text(c.types);
      }
  }
}

TEST_P(Reliability, AThousandRunsGiveTheSameBits) {
  Workload workload(cases_of_every_type(operation(), 300, 257, 400'000).at(0));
  workload.draw();
  const Configuration configuration = default_configuration(workload);
  run(workload, configuration);
  const std::string expected = bits_of_outputs(workload);
  for (int i = 0; i < (thinned() ? 50 : 1000); ++i) {
    run(workload, configuration);
    ASSERT_EQ(bits_of_outputs(workload), expected) << "run " << i;
  }
}

// Inputs at aligned addresses, outputs an element past one, and the other way round.
TEST_P(Reliability, EachArrayMayBeMisalignedByItself) {
  for (const Case& c : cases_of_every_type(operation(), 5, 769)) {
    Case shifted_case = c;
    shifted_case.offset = 1;
    Workload aligned(c), shifted(shifted_case);
    aligned.draw();
    shifted.draw();
    run(aligned, default_configuration(aligned));
    const std::string expected = bits_of_outputs(aligned);
    for (const Argument& moved : operation().arguments) {
      if (aligned.find(moved.name) == nullptr) continue;
      const TensorView home = aligned.args()[moved];
      aligned.args()[moved] = shifted.args()[moved];
      aligned.poison();
      shifted.poison();
      run(aligned, default_configuration(aligned));
      std::string bits_found;
      for (const Argument* output : aligned.outputs())
        bits_found += bits(*(output == &moved ? shifted : aligned).find(output->name));
      EXPECT_EQ(bits_found, expected) << moved.name << " " << types_text(c.types);
      EXPECT_EQ(aligned.damage() + shifted.damage(), "");
      aligned.args()[moved] = home;
    }
  }
}

// What a framework makes of the gradient of a sum.
TEST_P(Reliability, AnExpandedRowEqualsItsCopies) {
  for (const Case& c : cases_of_every_type(operation(), 37, 130))
    for (const Argument& expanded : operation().arguments) {
      if (expanded.role == Role::output || !is_matrix(operation(), expanded)) continue;
      Workload copies(c);
      if (!copies.find(expanded.name)) continue;
      copies.draw();
      const Array& array = *copies.find(expanded.name);
      for (std::int64_t row = 1; row < c.batch(); ++row) put_part(array, row, part_of(array, 0));
      const Configuration configuration = default_configuration(copies);
      run(copies, configuration);
      const std::string expected = bits_of_outputs(copies);
      copies.args()[expanded].strides[0] = 0;
      run(copies, configuration);
      EXPECT_EQ(bits_of_outputs(copies), expected) << expanded.name << " " << types_text(c.types);
    }
}

// Matrices as (a, b, cols) with gaps between their rows.
TEST_P(Reliability, LeadingDimensionsCollapse) {
  if (!of_rows(&operation())) GTEST_SKIP() << "its arrays are no rows";
  for (Case c : cases_of_every_type(operation(), 24, 70)) {
    c.row_stride = 77;
    Workload workload(c);
    workload.draw();
    const Configuration configuration = default_configuration(workload);
    run(workload, configuration);
    const std::string expected = bits_of_outputs(workload);
    for (const Argument& argument : operation().arguments) {
      TensorView& view = workload.args()[argument];
      if (!is_matrix(operation(), argument) || !view.given()) continue;
      view.rank = 4;
      view.shape = {4, 1, 6, 70};
      view.strides = {6 * 77, 5, 77, 1};
    }
    run(workload, configuration);
    EXPECT_EQ(bits_of_outputs(workload), expected) << types_text(c.types);
  }
}

TEST_P(Reliability, AnEmptyDimensionAmongOthersIsEmpty) {
  if (!of_rows(&operation())) GTEST_SKIP() << "its arrays are no rows";
  const Workload workload(cases_of_every_type(operation(), 0, 10).at(0));
  for (const Argument& argument : operation().arguments) {
    TensorView& view = workload.args()[argument];
    if (!is_matrix(operation(), argument) || !view.given()) continue;
    view.rank = 3;
    view.shape = {1, 0, 10};
    view.strides = {0, 10, 1};
    view.data = nullptr;
  }
  const Configuration configuration = default_configuration(workload);
  EXPECT_NO_THROW(run(workload, configuration));
}

// A type that an operation does not take is refused as an argument, with elements or without.
TEST_P(Reliability, UnknownTypesAreRefusedEvenWhenEmpty) {
  for (const std::int64_t rows : {0, 3}) {
    const Workload workload(cases_of_every_type(operation(), rows, 4).at(0));
    for (const Argument& argument : operation().arguments)
      if (TensorView& view = workload.args()[argument]; view.given()) view.dtype = DType::f128;
    EXPECT_THROW(operation().check(workload.args()), InvalidArgument);
  }
}

// Pages that are nobody's until they are touched.
class Expanse {
 public:
  explicit Expanse(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Expanse() {
    if (made()) munmap(data_, bytes_);
  }
  Expanse(const Expanse&) = delete;
  Expanse& operator=(const Expanse&) = delete;
  bool made() const { return data_ != MAP_FAILED; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// The third row lies more than 2^31 elements and 2^33 bytes after the first.
TEST_P(Reliability, RowsMayLieFurtherApartThan32BitsTell) {
  if (!of_rows(&operation())) GTEST_SKIP() << "its arrays are no rows";
  constexpr std::int64_t kRows = 3, kCols = 130, kStride = (std::int64_t{1} << 30) + 64;
  Workload together(cases_of_every_type(operation(), kRows, kCols).at(0));
  together.draw();
  const Configuration configuration = default_configuration(together);
  run(together, configuration);
  for (const Argument& apart : operation().arguments) {
    if (!is_matrix(operation(), apart) || !together.find(apart.name)) continue;
    const Array& array = *together.find(apart.name);
    const std::int64_t size = size_of(array.form().dtype);
    const auto bytes = static_cast<std::size_t>(((kRows - 1) * kStride + kCols) * size);
    const Expanse expanse(bytes);
    if (!expanse.made()) GTEST_SKIP() << "no address space for " << bytes << " bytes";
    const std::string expected = bits_of_outputs(together);
    const TensorView home = together.args()[apart];
    together.args()[apart] = matrix_view(expanse.data(), static_cast<std::int64_t>(bytes),
                                         home.dtype, kRows, kCols, kStride);
    const auto row_bytes = static_cast<std::size_t>(kCols * size);
    const auto far_row = [&](std::int64_t row) { return expanse.data() + row * kStride * size; };
    for (std::int64_t row = 0; row < kRows; ++row)
      std::memcpy(far_row(row), array.line(row), row_bytes);
    run(together, configuration);
    if (apart.role == Role::output)
      for (std::int64_t row = 0; row < kRows; ++row)
        std::memcpy(array.line(row), far_row(row), row_bytes);
    EXPECT_EQ(bits_of_outputs(together), expected) << apart.name;
    together.args()[apart] = home;
  }
}

class SumsOverRows : public Reliability {};

// Whether no row has a single number, whose stride cannot be 0.
bool rows_are_matrices(const Operation& operation) {
  return std::ranges::all_of(operation.arguments, [&](const Argument& argument) {
    return argument.presence != Presence::required || !has_rows(operation, argument) ||
           is_matrix(operation, argument);
  });
}

// 2^31 + 4096 elements in 2^23 + 16 equal rows: the tree over their runs doubles the sum of one run
// 19 times, and adds it once more.
TEST_P(SumsOverRows, CountMoreElementsThan31BitsTell) {
  if (thinned()) GTEST_SKIP() << "takes minutes in such a build";
  constexpr std::int64_t kRun = 16, kDoublings = 19, kCols = 256;
  const Case c = cases_of_every_type(operation(), kRun, kCols).at(0);
  Workload workload(c, [](const Case& of, const Argument& argument) -> std::optional<Form> {
    if (argument.role == Role::output && is_matrix(operation(), argument)) return std::nullopt;
    return case_argument(of, argument);
  });
  workload.draw();
  for (const Argument& argument : operation().arguments)
    if (TensorView& view = workload.args()[argument];
        view.given() && is_matrix(operation(), argument))
      view.strides[0] = 0;
  const Configuration configuration = default_configuration(workload);
  run(workload, configuration);
  std::vector<std::vector<double>> of_a_run;
  for (const Argument* output : workload.outputs())
    of_a_run.push_back(values_of(workload, output->name));

  for (const Argument& argument : operation().arguments)
    if (TensorView& view = workload.args()[argument];
        view.given() && is_matrix(operation(), argument))
      view.shape[0] = (kRun << kDoublings) + kRun;
  run(workload, default_configuration(workload));
  for (std::size_t i = 0; i < of_a_run.size(); ++i) {
    std::vector<double> expected = of_a_run[i];
    for (double& sum : expected)
      sum = static_cast<float>(std::ldexp(sum, kDoublings)) + static_cast<float>(sum);
    EXPECT_EQ(values_of(workload, workload.outputs()[i]->name), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, SumsOverRows,
                         testing::ValuesIn(operations_where([](const Operation* operation) {
                           return sums_over_rows(operation) && !feeds_a_product(*operation) &&
                                  rows_are_matrices(*operation);
                         })),
                         name_of_pass);
class Centring : public Reliability {};

TEST_P(Centring, MakesConstantRowsExactlyTheBias) {
  for (const std::int64_t cols : {1, 2, 769})
    for_each_case(4, cols, [&](const Case& c) {
      if (drops(c) || !c.with.empty()) return;  // what is normalised is not constant then
      constexpr double kConstants[] = {1e4, 1.0 / 3, 1e30, -1e-30};
      Workload workload(c);
      workload.draw();
      fill(workload, "x", [&](auto row, auto) { return kConstants[row]; });
      fill(workload, "bias", [](auto, auto col) { return (col % 64 - 32) / 8.0; });
      workload.seal();
      const std::vector<double> bias = values_of(workload, "bias");
      for (const Configuration& configuration : every_configuration(workload, {1})) {
        run(workload, configuration);
        const std::vector<double> y = values_of(workload, "y");
        for (std::size_t i = 0; i < y.size(); ++i)
          ASSERT_EQ(y[i], bias[i % bias.size()]) << label(configuration) << " element " << i;
      }
    });
}

INSTANTIATE_TEST_SUITE_P(Operations, Centring,
                         testing::ValuesIn(operations_where([](const Operation* operation) {
                           return centres_rows(operation) && operation->find("y") &&
                                  !feeds_a_product(*operation);
                         })),
                         name_of_pass);
INSTANTIATE_TEST_SUITE_P(Operations, Reliability,
                         testing::ValuesIn(catalog().begin(), catalog().end()), name_of_pass);

}  // namespace
}  // namespace isobit::lab
