// SPDX-License-Identifier: Apache-2.0
// Windows of one tap that move by one: a convolution is a product of matrices as they lie, and so
// are its gradients. They are matmul's, whose order of sums is theirs.
#include <algorithm>
#include <cstring>

#include "isobit/dispatch/step.h"
#include "isobit/ops/convolution/cpu_parts.h"

namespace isobit::convolution {
namespace {

using ProductStep = Step<matmul::ForwardArgs, matmul::Problem>;

bool moves_by_one(const Axis& axis) {
  return axis.taps == 1 && axis.stride == 1 && axis.padding == 0 && axis.padding_end == 0;
}
bool is_pointwise(const Problem& p) { return moves_by_one(p.h) && moves_by_one(p.w); }

// Whether all positions of an image lie as far apart, and how far.
bool is_even(const Problem& p, const Images& images) {
  return !images || p.h.results == 1 || p.w.results == 1 || images.h == p.w.results * images.w;
}
std::int64_t step_of(const Problem& p, const Images& images) {
  return p.w.results == 1 ? images.h : images.w;
}

ProductStep chosen(const matmul::Problem& product, const Machine& machine) {
  return default_step(matmul::cpu_forward_variants(), product, machine);
}

// For each image and group, and each line where lines do not follow one another evenly: weights
// times sources, with a column for each position.
class Products {
 public:
  explicit Products(const Problem& p) {
    const bool even =
        is_even(p, p.source) && is_even(p, p.result) && is_even(p, p.residual) && is_even(p, p.pre);
    product_.element = p.element;
    product_.activation = p.activation;
    product_.m = p.outs;
    product_.n = even ? p.positions() : p.w.results;
    product_.k = p.ins;
    const auto pixels = [&](const Images& images) {
      return matmul::Array{images.data, images.dtype, images.c, step_of(p, images)};
    };
    matmul::Arrays& first = product_.first;
    first.a = {p.weight.data, p.element, p.weight.out, p.weight.in};
    first.b = pixels(p.source);
    first.bias = p.bias;
    first.residual = pixels(p.residual);
    first.y = pixels(p.result);
    first.pre = pixels(p.pre);
    loop(p.batch, 0, p.source.n, 0, {p.residual.n, p.result.n, p.pre.n});
    loop(p.groups, p.weight.group, p.ins * p.source.c, p.outs * p.bias.row,
         {p.outs * p.residual.c, p.outs * p.result.c, p.outs * p.pre.c});
    if (!even) loop(p.h.results, 0, p.source.h, 0, {p.residual.h, p.result.h, p.pre.h});
    // Rows of results are adjacent.
    if (p.result.c == 1 && step_of(p, p.result) != 1) product_ = product_.transposed();
  }
  Products(const Products&) = delete;

  ProductStep step(const Machine& machine) const { return chosen(product_, machine); }

 private:
  struct OfResults {
    std::int64_t residual, y, pre;
  };
  void loop(std::int64_t extent, std::int64_t a, std::int64_t b, std::int64_t bias,
            const OfResults& steps) {
    product_.loops[static_cast<std::size_t>(product_.loop_count++)] = {
        extent, {a, b, bias, 0, steps.residual, steps.y, steps.pre, 0}};
  }

  matmul::Problem product_;
};

// Positions of all images one after the other, a row or a column of a matrix for each channel: made
// where they are packed, as no view is such.
struct Positions {
  const Problem& p;
  const Images& images;

  template <class T>
  void copy(std::int64_t channel, std::int64_t begin, std::int64_t count, T* to,
            std::int64_t pitch) const {
    const std::int64_t step = step_of(p, images);
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t n = (begin + done) / p.positions(), at = (begin + done) % p.positions();
      const std::int64_t some = std::min(count - done, p.positions() - at);
      const T* const from = reinterpret_cast<const T*>(images.at(n, channel, 0, 0)) + at * step;
      if (step == 1 && pitch == 1)
        std::memcpy(to + done, from, static_cast<std::size_t>(some) * sizeof(T));
      else
        for (std::int64_t i = 0; i < some; ++i) to[(done + i) * pitch] = from[i * step];
      done += some;
    }
  }

  // Channels are rows.
  static void as_rows(const void* self, std::int64_t row, std::int64_t col, std::int64_t rows,
                      std::int64_t cols, void* to, std::int64_t pitch) {
    const auto& all = *static_cast<const Positions*>(self);
    matmul::with_types(all.p.element, [&]<class T>(T, auto) {
      for (std::int64_t i = 0; i < rows; ++i)
        all.copy(row + i, col, cols, static_cast<T*>(to) + i * pitch, 1);
    });
  }
  // Channels are columns.
  static void as_columns(const void* self, std::int64_t row, std::int64_t col, std::int64_t rows,
                         std::int64_t cols, void* to, std::int64_t pitch) {
    const auto& all = *static_cast<const Positions*>(self);
    matmul::with_types(all.p.element, [&]<class T>(T, auto) {
      for (std::int64_t i = 0; i < cols; ++i)
        all.copy(col + i, row, rows, static_cast<T*>(to) + i, pitch);
    });
  }
};

// The gradient of weights: gradients of results times sources, over the positions of all images.
class Gradient {
 public:
  explicit Gradient(const Problem& p) : grads_{p, p.result}, sources_{p, p.source} {
    const auto even = [&](const Images& images) {
      return p.batch == 1 || images.n == p.positions() * step_of(p, images);
    };
    product_.element = p.element;
    product_.m = p.outs;
    product_.n = p.ins;
    product_.k = p.batch * p.positions();
    matmul::Arrays& first = product_.first;
    first.a = {p.result.data, p.result.dtype, p.result.c, step_of(p, p.result)};
    first.b = {p.source.data, p.source.dtype, step_of(p, p.source), p.source.c};
    first.y = {p.weight.data, p.element, p.weight.out, p.weight.in};
    if (!even(p.result)) product_.made_a = {Positions::as_rows, &grads_};
    if (!even(p.source)) product_.made_b = {Positions::as_columns, &sources_};
    matmul::Loop& groups = product_.loops[0];
    groups.extent = p.groups;
    groups.steps = {p.outs * p.result.c, p.ins * p.source.c, 0, 0, 0, p.weight.group, 0, 0};
    product_.loop_count = 1;
  }
  Gradient(const Gradient&) = delete;

  // What is made knows nothing of groups.
  static bool takes(const Problem& p) {
    const Gradient gradient(p);
    return p.groups == 1 || !(gradient.product_.made_a || gradient.product_.made_b);
  }

  ProductStep step(const Machine& machine) const {
    if (!product_.made_a && !product_.made_b) return chosen(product_, machine);
    static const matmul::ForwardVariant kPacked = matmul::packed_variant();
    return {product_, kPacked, kPacked.choose(product_, machine)};
  }

 private:
  Positions grads_, sources_;
  matmul::Problem product_;
};

// Of fewer channels a product of matrices is not worth its packing.
constexpr std::int64_t kFewChannels = 8;
bool has_channels(const Problem& p) { return std::min(p.ins, p.outs) >= kFewChannels; }

}  // namespace

constinit const AnyVariant<Problem> kPointwise = {
    .name = "pointwise",
    .each_isa = true,
    .declines = [](const Problem& p, const Machine&) -> std::string {
      return is_pointwise(p) ? "" : "needs windows of one tap that move by one, without padding";
    },
    .suits = [](const Problem& p, const Machine&) { return has_channels(p); },
    .workspace = [](const Problem& p, const Machine& machine) -> std::size_t {
      return p.empty() ? 0 : Products(p).step(machine).workspace(machine);
    },
    .run =
        [](const Problem& p, const Execution& execution) {
          if (p.empty()) return;
          const Products products(p);
          products.step(execution.machine).run(execution, execution.workspace);
        }};

bool pointwise_weights(const Problem& p) {
  const bool even = is_even(p, p.source) && is_even(p, p.result);
  return is_pointwise(p) && has_channels(p) && even && Gradient::takes(p);
}
std::size_t pointwise_weights_workspace(const Problem& p, const Machine& machine) {
  return Gradient(p).step(machine).workspace(machine);
}
void add_pointwise_weights(const Problem& p, const Execution& execution) {
  const Gradient gradient(p);
  gradient.step(execution.machine).run(execution, execution.workspace);
}

}  // namespace isobit::convolution
