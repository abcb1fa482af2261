// SPDX-License-Identifier: Apache-2.0
// A tile of results and the part of the images that it is made of. Several small images lie side by
// side, an element of each after the other. At the edge of an image some taps of a window meet
// elements, and others the zeros beyond it: so each tap can be multiplied for those results alone
// for which it meets elements, where columns are gathered. The products that are left out are zeros
// if weights are finite, and change no bit, since the order of products adds +0 to each sum.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "isobit/ops/convolution/cpu_windows.h"

namespace isobit::convolution {

// Results from (row, col) of the phases on, of images from one on.
struct TileOfResults {
  std::int64_t n, images, row, col, h, w;

  std::int64_t columns() const { return h * w * images; }
};

// Which results of a tile a tap lands for.
class Landing {
 public:
  // Of each image, from the tile's first result.
  struct Part {
    std::int64_t top, bottom, left, right;

    bool empty() const { return top >= bottom || left >= right; }
  };

  Landing(const Problem& problem, const Phases& phases, const TileOfResults& tile)
      : p_(problem), phases_(phases), tile_(tile) {}

  // Of other padding than zeros all taps land.
  static bool may_skip(const Problem& problem) {
    return problem.gradient || problem.mode == PaddingMode::zeros;
  }

  Part part(std::int64_t tap) const {
    const Phase &h = phases_.h, &w = phases_.w;
    const Phase::Range rows = h.landing(tap / w.taps, p_.h.sources),
                       cols = w.landing(tap % w.taps, p_.w.sources);
    const auto within = [](std::int64_t index, std::int64_t first, std::int64_t count) {
      return std::clamp<std::int64_t>(index - first, 0, count);
    };
    return {within(rows.begin, tile_.row, tile_.h), within(rows.end, tile_.row, tile_.h),
            within(cols.begin, tile_.col, tile_.w), within(cols.end, tile_.col, tile_.w)};
  }
  std::int64_t columns(const Part& part) const {
    return part.empty() ? 0 : (part.bottom - part.top) * (part.right - part.left) * tile_.images;
  }
  bool everywhere(const Part& part) const { return columns(part) == tile_.columns(); }

  // Thirds of panels that a tap costs, on an average: of all results, or of those it lands for if
  // that is less, though their sums have to be brought to their places.
  std::int64_t thirds(std::int64_t cols) const {
    return pays(cols) ? parts_of(thirds_of_landing(cols), taps() * p_.ins)
                      : thirds_of_panels(tile_.columns(), cols);
  }
  // Compared unrounded: of eight images of 2 x 2 a tap costs 2.1 thirds, and all results cost 3.
  bool pays(std::int64_t cols) const {
    return may_skip(p_) &&
           thirds_of_landing(cols) < thirds_of_panels(tile_.columns(), cols) * taps() * p_.ins;
  }

 private:
  static constexpr std::int64_t kChannels = 8;  // bringing sums there takes as long as so many

  std::int64_t taps() const { return phases_.h.taps * phases_.w.taps; }
  // Of the products of all taps and channels.
  std::int64_t thirds_of_landing(std::int64_t cols) const {
    std::int64_t sum = 0;
    for (std::int64_t tap = 0; tap < taps(); ++tap)
      sum += thirds_of_panels(columns(part(tap)), cols);
    return sum * (p_.ins + kChannels);
  }

  const Problem& p_;
  const Phases& phases_;
  TileOfResults tile_;
};

// A tile's part of the images of a group, staged, and products of its windows.
class StagedTile {
 public:
  struct Room {
    std::byte* staged;      // as many elements(), and what vectors read beyond
    std::int64_t* numbers;  // as many as numbers() says
    std::byte* sums;        // a buffer beside those of Runs
    std::int64_t bytes_of_sums;
  };

  StagedTile(const Problem& problem, const Phases& phases, const TileOfResults& tile, Isa isa,
             const Room& room)
      : p_(problem),
        phases_(phases),
        tile_(tile),
        isa_(isa),
        room_(room),
        staged_(phases, tile.h, tile.w),
        landing_(problem, phases, tile),
        kernel_(product_kernel_for(problem.real(), isa)),
        size_(size_of(problem.real())),
        lines_(room.numbers + phases.entries()) {}

  // Of so many images whose staged channels have so many elements; and of so many entries and
  // lines.
  static std::int64_t elements(const Problem& problem, std::int64_t images, std::int64_t channel) {
    return count_of({images, problem.ins + (images > 1 ? 1 : 0), channel});
  }
  static std::int64_t numbers(std::int64_t entries, std::int64_t lines) {
    return entries + 3 * lines;
  }

  const Landing& landing() const { return landing_; }
  // A line of results begins there at entry 0, and so far behind at the others.
  std::byte* line(std::int64_t row) const { return room_.staged + lines_[row] * size_; }
  const std::int64_t* offsets() const { return room_.numbers; }

  // Stages the sources of a group.
  void stage(std::int64_t group) const {
    const std::int64_t channel = group * p_.ins;
    if (tile_.images == 1)
      Stager(p_, isa_)(phases_, staged_, {tile_.n, channel, p_.ins}, tile_.row, tile_.col,
                       room_.staged);
    else if (Landing::may_skip(p_) && p_.source.w == 1)
      stage_side_by_side(channel);
    else
      stage_apart(channel);
    find_offsets(phases_, staged_, tile_.images, room_.numbers);
    for (std::int64_t row = 0; row < tile_.h; ++row)
      lines_[row] = row * staged_.cols * tile_.images;
  }

  // Makes all results the columns of a product whose b this is.
  void gather(Product& product) const {
    product.b = room_.staged;
    gather(product, {0, tile_.h, 0, tile_.w});
  }

  // Calls visit(product, entry) for each tap of a panel of k, whose first entry is given: the
  // product of its entries, from that one on, and of the results for which it lands.
  template <class Visit>
  void for_each_tap(const Product& whole, std::int64_t first, const Visit& visit) const {
    Product product = whole;
    product.a_k = whole.k;
    const std::int64_t end = first + whole.k;
    for (std::int64_t entry = first; entry < end; entry += product.k) {
      const std::int64_t tap = entry / p_.ins;
      product.k = std::min(end, (tap + 1) * p_.ins) - entry;
      const Landing::Part part = landing_.part(tap);
      if (part.empty()) continue;
      product.a = static_cast<const std::byte*>(whole.a) + (entry - first) * kernel_.rows * size_;
      gather(product, part);
      visit(product, entry);
    }
  }

  // Multiplies a panel of k in that way. set_b(product, entry) sets where b of an entry is.
  template <class SetB>
  void multiply_where_it_lands(const Product& whole, std::int64_t first, const SetB& set_b) const {
    const bool one_tap = first / p_.ins == (first + whole.k - 1) / p_.ins;
    if (one_tap && landing_.everywhere(landing_.part(first / p_.ins)))
      return kernel_.multiply(whole);
    Product product = whole;
    const bool begins = whole.start == Product::from_zero;
    product.start = one_tap ? Product::onto_sum : Product::going_on;
    if (!one_tap && !begins) product.c = room_.sums;
    const auto bytes = static_cast<std::size_t>(room_.bytes_of_sums);
    if (!one_tap || begins) std::memset(product.c, 0, bytes);
    for_each_tap(product, first, [&](Product& of_tap, std::int64_t entry) {
      set_b(of_tap, entry);
      kernel_.multiply(of_tap);
    });
    if (product.c != whole.c)
      matmul::add_kernel_for(p_.real(), isa_)(room_.sums, static_cast<std::byte*>(whole.c),
                                              room_.bytes_of_sums / size_);
  }

  // Sums of so many channels, line after line of one image after the other.
  std::byte* sums_of_images(std::byte* sums, std::int64_t pitch, std::int64_t channels) const {
    if (tile_.images == 1) return sums;
    const TurnKernel turn = turn_kernel_for(p_.real(), isa_);
    const std::int64_t positions = tile_.h * tile_.w;
    for (std::int64_t i = 0; i < channels; ++i)
      turn({sums + i * pitch * size_, tile_.images, tile_.images, positions,
            room_.sums + i * pitch * size_, positions});
    return room_.sums;
  }

 private:
  void gather(Product& product, const Landing::Part& part) const {
    std::int64_t *const from = lines_ + tile_.h, *const to = from + tile_.h;
    const std::int64_t count = part.bottom - part.top;
    for (std::int64_t i = 0; i < count; ++i) {
      from[i] = lines_[part.top + i] + part.left * tile_.images;
      to[i] = ((part.top + i) * tile_.w + part.left) * tile_.images;
    }
    product.lines = from;
    product.line_cols = (part.right - part.left) * tile_.images;
    product.n = count * product.line_cols;
    product.places = landing_.everywhere(part) ? nullptr : to;
  }

  std::byte* staged_at(std::int64_t in) const {
    return room_.staged + in * staged_.channel * tile_.images * size_;
  }
  // Each image by itself, behind the staged ones, and then all.
  void stage_apart(std::int64_t channel) const {
    const Stager stage(p_, isa_);
    const TurnKernel turn = turn_kernel_for(p_.real(), isa_);
    std::byte* const apart = staged_at(p_.ins);
    for (std::int64_t c = 0; c < p_.ins; ++c) {
      for (std::int64_t i = 0; i < tile_.images; ++i)
        stage(phases_, staged_, {tile_.n + i, channel + c, 1}, tile_.row, tile_.col,
              apart + i * staged_.channel * size_);
      turn({apart, staged_.channel, staged_.channel, tile_.images, staged_at(c), tile_.images});
    }
  }
  // Adjacent elements of the images, and zeros around them.
  void stage_side_by_side(std::int64_t channel) const {
    std::memset(room_.staged, 0, static_cast<std::size_t>(staged_at(p_.ins) - room_.staged));
    const std::int64_t first_h = phases_.h.least(tile_.row), first_w = phases_.w.least(tile_.col);
    const std::int64_t scale_h = staged_.scale_h, scale_w = staged_.scale_w;
    const std::int64_t top = std::max<std::int64_t>(0, first_h),
                       bottom = std::min(p_.h.sources, first_h + staged_.rows * scale_h);
    const std::int64_t left = std::max<std::int64_t>(0, first_w),
                       right = std::min(p_.w.sources, first_w + staged_.cols * scale_w);
    if (left >= right) return;
    for (std::int64_t row = top; row < bottom; ++row) {
      if (!phases_.h.meets((row - first_h) % scale_h)) continue;
      for (std::int64_t c = 0; c < p_.ins; ++c)
        stage_row(p_.source.at(tile_.n, channel + c, row, left), right - left, left - first_w,
                  staged_at(c), (row - first_h) % scale_h, (row - first_h) / scale_h);
    }
  }
  // So many adjacent elements, of which the first is that of a column.
  void stage_row(const std::byte* from, std::int64_t count, std::int64_t col, std::byte* channel,
                 std::int64_t residue_h, std::int64_t row) const {
    const std::int64_t scale = staged_.scale_w;
    std::byte* const line =
        channel + (residue_h * scale * staged_.plane + row * staged_.cols) * tile_.images * size_;
    turn_kernel_for(p_.element, isa_)({from, p_.source.n, count, tile_.images,
                                       line + col / scale * tile_.images * size_, tile_.images,
                                       scale, staged_.plane * tile_.images, col % scale});
  }

  const Problem& p_;
  const Phases& phases_;
  TileOfResults tile_;
  Isa isa_;
  Room room_;
  Staged staged_;
  Landing landing_;
  const ProductKernel& kernel_;
  std::int64_t size_;
  std::int64_t* lines_;
};

}  // namespace isobit::convolution
