// SPDX-License-Identifier: Apache-2.0
// The vector loops of group_norm and batch_norm, compiled once for each instruction set.
#pragma once

#include "isobit/core/isas.h"
#include "isobit/norms/cpu_summed_rows.h"
#include "isobit/ops/channel_norm/problem.h"

namespace isobit::channel_norm {

using norms::kMostAbreast;
using norms::Part;

// writers_of_lines takes so many elements of an image at most in a part. Where nothing is summed it
// is used for lines of up to so many elements of a channel; longer ones fill vectors by themselves.
inline constexpr int kMostLanes = 1024;
inline constexpr std::int64_t kLongestLine = 64;

// So many channels that come last are written abreast: pixels as a whole follow each other in
// memory, parts of them do not.
inline constexpr std::int64_t kMostWritten = 512;

// So many channels at most are summed abreast where their statistics change within a block.
inline constexpr std::int64_t kGroupedAbreast = 16;

// Arrays of what is computed in. Statistics and means are those of all rows.
struct Known {
  const void *weight, *bias;  // (channels), or of all elements of an image
  const void* statistics;     // Statistics<Real>
  const void* means;          // Moments<Real>: of g and g * x̂, with g the gradient of x̂
  bool streams;               // whether results of rows are stored past the caches
};

// What is made of the elements of rows that have statistics and means.
struct Writers {
  void (*normalise)(const ForwardProblem& problem, const Known& known, const Part& part);
  void (*gradient)(const BackwardProblem& problem, const Known& known, const Part& part);
};

// Sums are Moments<Real>, one for each row of the part.
struct Kernels {
  // Of x - centre and of its square; without centres, of x alone.
  void (*moments)(const Given& given, const Part& part, const void* centres, void* moments);
  // Of g and of g * x̂ in a row that has statistics.
  void (*row_products)(const BackwardProblem& problem, const Known& known, const Part& part,
                       void* moments);
  // Of grad_y and of grad_y * x̂ of a channel.
  void (*channel_products)(const BackwardProblem& problem, const Known& known, const Part& part,
                           void* moments);
  Writers writers;
};

// along: one row at a time, of any strides; with weights of its elements, not of channels, if they
// are spread. abreast: adjacent channels side by side, over all images; of groups the products of
// channels, and what is written. lines: adjacent channels of images that lie as a whole where they
// are.
ISOBIT_IN_EACH_ISA(Kernels kernels_along(DType dtype, bool spread);
                   Kernels kernels_abreast(DType dtype); Writers writers_of_lines(DType dtype);)

}  // namespace isobit::channel_norm
