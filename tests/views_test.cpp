// SPDX-License-Identifier: Apache-2.0
// What the check makes of views: of every small one the rows that it has, or a complaint that is
// true; of large ones numbers that do not wrap.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "isobit/core/check.h"
#include "isobit/core/error.h"

namespace isobit {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::int64_t p2(int exponent) { return std::int64_t{1} << exponent; }

alignas(64) float memory[1024];

template <std::size_t N>
TensorView view_of(const std::array<std::int64_t, N>& shape,
                   const std::array<std::int64_t, N>& strides) {
  TensorView view{memory, sizeof memory, DType::f32, N, {}, {}};
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  std::copy(strides.begin(), strides.end(), view.strides.begin());
  return view;
}

// Where the elements lie, in the order of the view's indices.
std::vector<std::int64_t> offsets_of(const TensorView& view) {
  std::vector<std::int64_t> offsets = {0};
  for (int i = 0; i < view.rank; ++i) {
    std::vector<std::int64_t> more;
    for (const std::int64_t offset : offsets)
      for (std::int64_t k = 0; k < view.shape[i]; ++k) more.push_back(offset + k * view.strides[i]);
    offsets = more;
  }
  return offsets;
}

std::vector<std::int64_t> offsets_of(const Matrix& matrix) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t col = 0; col < matrix.cols; ++col)
      offsets.push_back(row * matrix.stride + col);
  return offsets;
}

std::string text_of(const TensorView& view) {
  std::string shape, strides;
  for (int i = 0; i < view.rank; ++i) {
    shape += text(' ', view.shape[i]);
    strides += text(' ', view.strides[i]);
  }
  return "shape" + shape + ", strides" + strides;
}

bool negative(const TensorView& view) {
  for (int i = 0; i < view.rank; ++i)
    if (view.shape[i] > 1 && view.strides[i] < 0) return true;
  return false;
}

// Whether rows of the last dimension's length can give these offsets.
bool are_rows(const std::vector<std::int64_t>& offsets, std::int64_t cols) {
  const auto count = std::ssize(offsets);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = i / cols;
    const std::int64_t stride = count > cols ? offsets[cols] : 0;
    if (offsets[i] != row * stride + i % cols) return false;
  }
  return true;
}

template <class Call>
std::string complaint(const Call& call) {
  try {
    call();
  } catch (const InvalidArgument& error) { return error.what(); }
  return "";
}

// Every view of rank 3 with these extents and strides.
template <class Visit>
void for_each_small_view(Visit visit) {
  constexpr std::int64_t kExtents[] = {0, 1, 2, 3}, kStrides[] = {-2, -1, 0, 1, 2, 3, 4, 6, 9};
  std::array<std::int64_t, 3> shape, strides;
  for (int i = 0; i < 4 * 4 * 4; ++i)
    for (int j = 0; j < 9 * 9 * 9; ++j) {
      shape = {kExtents[i / 16], kExtents[i / 4 % 4], kExtents[i % 4]};
      strides = {kStrides[j / 81], kStrides[j / 9 % 9], kStrides[j % 9]};
      visit(view_of(shape, strides));
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Views, AreRowsOfTheirElementsOrRefusedForAReason) {
  for_each_small_view([](const TensorView& view) {
    const std::vector<std::int64_t> offsets = offsets_of(view);
    const bool repeats = std::set(offsets.begin(), offsets.end()).size() < offsets.size();
    const bool fits = !negative(view) && are_rows(offsets, view.shape[2]);
    for (const Access access : {Access::read, Access::write}) {
      Matrix rows;
      const std::string told = complaint([&] { rows = Checker("op").matrix("x", view, access); });
      const bool right = offsets.empty() || (fits && !(repeats && access == Access::write));
      ASSERT_EQ(told.empty(), right) << text_of(view) << ": " << told;
      if (!told.empty()) continue;
      ASSERT_EQ(rows.rows, view.shape[0] * view.shape[1]) << text_of(view);
      ASSERT_EQ(rows.cols, view.shape[2]) << text_of(view);
      ASSERT_EQ(offsets_of(rows), offsets) << text_of(view);
    }
  });
}

TEST(Views, AreVectorsOfAdjacentElementsOrRefused) {
  for_each_small_view([](const TensorView& view) {
    const std::vector<std::int64_t> offsets = offsets_of(view);
    std::vector<std::int64_t> adjacent(offsets.size());
    for (std::size_t i = 0; i < adjacent.size(); ++i) adjacent[i] = static_cast<std::int64_t>(i);
    const std::string told =
        complaint([&] { Checker("op").vector("x", view, std::ssize(offsets), "columns"); });
    ASSERT_EQ(told.empty(), offsets == adjacent) << text_of(view) << ": " << told;
  });
}

TEST(Views, LastDimensionsAreOneOrRefused) {
  for_each_small_view([](const TensorView& view) {
    for (const std::int64_t dims : {2, 3}) {
      TensorView inner = view;  // the last dimensions alone
      inner.rank = static_cast<int>(dims);
      std::copy_n(view.shape.begin() + 3 - dims, dims, inner.shape.begin());
      std::copy_n(view.strides.begin() + 3 - dims, dims, inner.strides.begin());
      const std::vector<std::int64_t> offsets = offsets_of(inner);
      const bool right =
          offsets_of(view).empty() || (!negative(view) && are_rows(offsets, std::ssize(offsets)));
      TensorView merged;
      const std::string told = complaint([&] { merged = Checker("op").merged("x", view, dims); });
      ASSERT_EQ(told.empty(), right) << dims << " of " << text_of(view) << ": " << told;
      if (!told.empty()) continue;
      ASSERT_EQ(merged.rank, 4 - dims);
      ASSERT_EQ(merged.shape[merged.rank - 1], std::ssize(offsets)) << text_of(view);
    }
  });
}

TEST(Views, HaveNoNegativeStrideWhereThereIsASecondElement) {
  for (int rank = 1; rank <= kMaxRank; ++rank)
    for (int at = 0; at < rank; ++at) {
      TensorView view{memory, sizeof memory, DType::f32, rank, {}, {}};
      std::fill_n(view.shape.begin(), rank, 1);
      std::fill_n(view.strides.begin(), rank, -5);
      EXPECT_EQ(complaint([&] { Checker("op").matrix("x", view, Access::write); }), "");
      view.shape[at] = 3;
      const std::string says = text("op: x has negative stride -5 in dimension ", at);
      EXPECT_EQ(complaint([&] { Checker("op").matrix("x", view, Access::read); }), says);
      EXPECT_EQ(complaint([&] { Checker("op").vector("x", view, 3, "rows"); }), says);
      EXPECT_EQ(complaint([&] { Checker("op").merged("x", view, rank); }), rank > 1 ? says : "");
    }
}

// Sizes and workspaces are computed from rows and columns, whether there are elements or not.
TEST(Views, HaveExtentsWhoseProductDoesNotWrapWhereverTheZeroStands) {
  const auto told = [](std::array<std::int64_t, 3> shape, std::int64_t dims) {
    const TensorView view = view_of(shape, {0, 0, 0});
    return complaint([&] {
      const Checker checker("op");
      checker.matrix("x", checker.merged("x", view, dims), Access::read);
    });
  };
  for (const std::array<std::int64_t, 3> shape : {std::array{0 * p2(0), p2(40), p2(40)},
                                                  {p2(40), 0, p2(40)},
                                                  {p2(40), p2(40), 0},
                                                  {0, kMost, kMost},
                                                  {kMost, kMost, 0},
                                                  {0, 1, p2(62)},
                                                  {0, p2(62), 1},
                                                  {p2(62), 1, 0},
                                                  {0, p2(32), p2(32)},
                                                  {p2(32), 0, p2(32)},
                                                  {0, p2(48), 2}})
    for (const std::int64_t dims : {1, 2, 3})
      EXPECT_NE(told(shape, dims).find("2^48"), std::string::npos)
          << text_of(view_of(shape, {0, 0, 0})) << ", " << dims << " merged: " << told(shape, dims);
  for (const std::array<std::int64_t, 3> shape : {std::array{0 * p2(0), p2(24), p2(24)},
                                                  {p2(24), 0, p2(24)},
                                                  {p2(48), 0, 1},
                                                  {1, p2(48), 0},
                                                  {0, 0, p2(48)}})
    for (const std::int64_t dims : {1, 2, 3})
      EXPECT_EQ(told(shape, dims), "") << text_of(view_of(shape, {0, 0, 0}));
  EXPECT_NE(complaint([] {
              Checker("op").vector("x", view_of<2>({0, kMost}, {1, 1}), 0, "rows");
            }).find("2^48"),
            std::string::npos);
}

}  // namespace
}  // namespace isobit
