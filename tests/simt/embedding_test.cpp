// SPDX-License-Identifier: Apache-2.0
// embedding's kernels in every schedule: sorting by several digits and in several tiles, tokens
// with many chunks, and indices that are no tokens.
#include <gtest/gtest.h>

#include <cmath>

#include "isobit/ops/embedding/embedding.h"
#include "simt/where.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

Case case_of(const Operation& operation, std::int64_t rows, std::int64_t tokens,
             std::int64_t cols) {
  Case c = cases_of(operation, Flags{}, "quick").at(0);
  c.extent("rows") = rows;
  c.extent("tokens") = tokens;
  c.extent("cols") = cols;
  c.types = {DType::f32, DType::f32};
  return c;
}

std::vector<Configuration> ways(const Workload& workload) {
  Flags flags;
  flags.device = {"cpu"};
  std::vector<Configuration> all = configurations_of(workload, flags, Unnamed::best).able;
  flags.device = {std::string(name_of(kDevice))};
  for (const Configuration& each : configurations_of(workload, flags, Unnamed::all).able)
    all.push_back(each);
  return all;
}

TEST(EmbeddingKernels, SortsOfSeveralDigitsAndTilesAreRightInEverySchedule) {
  watch();
  attach_devices();
  in_every_schedule([&](bool in_order) {
    for (const std::int64_t tokens : {3, 255, 256, 300}) {
      if (!in_order && tokens < 256) continue;
      Case c = case_of(embedding::backward_operation(), 1100, tokens, 5);
      c.options = {{"padding_idx", 1}, {"scale_grad_by_freq", 1}};
      Workload workload(c);
      workload.draw();
      expect_right(workload, ways(workload));
      if (HasFatalFailure()) return;
    }
  });
}

// 257 occurrences are two chunks; two such tokens begin and end between the same slots.
TEST(EmbeddingKernels, ChunksOfFrequentTokensHaveTheBitsOfTheProcessorsInEverySchedule) {
  watch();
  attach_devices();
  in_every_schedule([&](bool in_order) {
    for (const std::int64_t count : {256, 257, 512, 513, 700}) {
      if ((kDetectsRaces || !in_order) && count != 257) continue;
      Workload workload(case_of(embedding::backward_operation(), 2 * count + 40, 4, 9));
      workload.draw();
      std::vector<double> index;
      for (std::int64_t i = 0; i < count; ++i) index.insert(index.end(), {2, 1});
      for (int i = 0; i < 40; ++i) index.push_back(i % 2 == 0 ? 0 : 3);
      workload.find("index")->store(0, 0, index);
      workload.seal();
      expect_right(workload, ways(workload));
      if (HasFatalFailure()) return;
    }
  });
}

// Above 2^16 a third digit decides.
TEST(EmbeddingKernels, ManyTokensAreRight) {
  if (kDetectsRaces) GTEST_SKIP() << "they race no more than others";
  attach_devices();
  Workload workload(case_of(embedding::backward_operation(), 90, 70'000, 1));
  workload.draw();
  expect_right(workload, ways(workload));
}

// A GPU cannot say which index is wrong, and reads nothing by it.
TEST(EmbeddingKernels, AnIndexThatIsNoTokenMakesItsRowNanAndHasNoPartInTheGradient) {
  watch();
  attach_devices();
  constexpr std::int64_t kTokens = 4;
  for (const std::int64_t cols : {3, 64}) {
    for (const Operation* operation :
         {&embedding::forward_operation(), &embedding::backward_operation()}) {
      const std::vector<VariantInfo> infos = operation->variants();
      for (int i = 0; i < static_cast<int>(infos.size()); ++i) {
        if (infos[i].device != kDevice) continue;
        std::vector<std::int64_t> index = {3, 4, -1, std::int64_t{1} << 32, 3};
        const auto rows = std::ssize(index);
        std::vector<float> table(kTokens * cols, 2), lines(rows * cols, 3);
        OnDevice there(kDevice);
        const Arguments args = operation->make_arguments();
        const auto matrix = [&](std::vector<float>& data) {
          const std::int64_t bytes = std::ssize(data) * 4;
          return matrix_view(there(data.data(), bytes), bytes, DType::f32, std::ssize(data) / cols,
                             cols, cols);
        };
        const bool forward = operation->pass == "fwd";
        args[*operation->find(forward ? "weight" : "grad_weight")] = matrix(table);
        args[*operation->find(forward ? "y" : "grad_y")] = matrix(lines);
        args[*operation->find("index")] =
            vector_view(there(index.data(), 8 * rows), 8 * rows, DType::i64, rows);
        there.run(*operation, i, args);
        for (std::int64_t row = 0; forward && row < rows; ++row)
          for (std::int64_t col = 0; col < cols; ++col) {
            const float value = lines[row * cols + col];
            if (row == 0 || row == 4)
              EXPECT_EQ(value, 2);
            else
              EXPECT_TRUE(std::isnan(value)) << row;
          }
        for (std::int64_t at = 0; !forward && at < kTokens * cols; ++at)
          EXPECT_EQ(table[at], at < 3 * cols ? 0 : 6) << at;
      }
    }
  }
}

}  // namespace
}  // namespace isobit::lab
