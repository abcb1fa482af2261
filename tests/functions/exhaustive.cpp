// SPDX-License-Identifier: Apache-2.0
// `make functions`: every function of every float, on every instruction set; and samples of f64.
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "functions/calls.h"
#include "isobit/core/machine.h"

namespace isobit::function_calls {
namespace {

constexpr std::int64_t kChunk = 1 << 16;
constexpr int kSlowStride = 61;  // of the portable back ends, whose fma may be a call

std::span<const Calls> calls_of(Isa isa) { ISOBIT_RETURN_FOR_ISA(isa, calls()); }

template <class Real>
struct Worst {
  double error = -1, at = 0;
  std::int64_t different = 0;
  double first_different = 0;

  void merge(const Worst& other) {
    if (other.error > error) error = other.error, at = other.at;
    if (different == 0) first_different = other.first_different;
    different += other.different;
  }
};

template <class Real>
bool same(Real a, Real b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

// Chunks of inputs, of which `input(i)` gives the i-th, over all threads.
template <class Real, class Input>
Worst<Real> sweep(std::int64_t count, const Function& function,
                  const std::vector<Call<Real>>& calls, const Input& input) {
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Worst<Real>> worst(threads);
  std::atomic<std::int64_t> next = 0;
  const auto work = [&](unsigned self) {
    std::vector<Real> x(kChunk), y(kChunk), other(kChunk);
    for (std::int64_t first; (first = next.fetch_add(kChunk)) < count;) {
      for (std::int64_t i = 0; i < kChunk; ++i) x[i] = input(std::min(first + i, count - 1));
      calls[0](x.data(), y.data(), kChunk);
      Worst<Real>& mine = worst[self];
      for (std::size_t k = 1; k < calls.size(); ++k) {
        calls[k](x.data(), other.data(), kChunk);
        for (std::int64_t i = 0; i < kChunk; ++i)
          if (!same(y[i], other[i]) && mine.different++ == 0) mine.first_different = x[i];
      }
      for (std::int64_t i = 0; i < kChunk; ++i) {
        const double error = error_of(function, x[i], y[i]);
        if (error > mine.error) mine.error = error, mine.at = x[i];
      }
    }
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < threads; ++i) pool.emplace_back(work, i);
  for (std::thread& thread : pool) thread.join();
  Worst<Real> result;
  for (const Worst<Real>& part : worst) result.merge(part);
  return result;
}

template <class Real>
bool report(const Function& function, const char* type, const char* how, double limit,
            const Worst<Real>& worst) {
  const bool good = worst.error <= limit && worst.different == 0;
  std::printf("%-22s %s  %-24s worst %.3f at %a (%.9g), limit %g%s", function.name, type, how,
              worst.error, worst.at, worst.at, limit, good ? "\n" : "  FAILED");
  if (worst.different > 0)
    std::printf("; %lld differ, first at %a", static_cast<long long>(worst.different),
                worst.first_different);
  if (!good) std::printf("\n");
  std::fflush(stdout);
  return good;
}

// Half of them near what models see, the others of any size at all.
double drawn(std::int64_t i) {
  std::mt19937_64 random(static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15u);
  const std::uint64_t bits = random();
  if (i % 4 == 0) return std::bit_cast<double>(bits);
  if (i % 4 == 1) return std::ldexp(static_cast<double>(static_cast<std::int64_t>(bits)), -63 + 10);
  return std::ldexp(static_cast<double>(static_cast<std::int64_t>(bits)),
                    -63 - static_cast<int>(random() % 12) + 5);
}

int run(const std::vector<std::string_view>& names, std::int64_t samples, int stride) {
  bool good = true;
  const auto isas = Machine::isas_here();
  for (std::size_t index = 0; index < kFunctions.size(); ++index) {
    const Function& function = kFunctions[index];
    if (!names.empty() && std::find(names.begin(), names.end(), function.name) == names.end())
      continue;
    std::vector<Call<float>> wide, all;
    std::vector<Call<double>> doubles;
    for (Isa isa : isas) {
      const Calls& calls = calls_of(isa)[index];
      if (isa != Isa::scalar) wide.insert(wide.begin(), calls.f32);
      all.insert(all.begin(), calls.f32);
      doubles.insert(doubles.begin(), calls.f64);
    }
    all.push_back(calls_in_kernels()[index].f32);
    doubles.push_back(calls_in_kernels()[index].f64);
    if (wide.empty()) wide = {all[0]};
    const auto float_at = [](std::int64_t i) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(i));
    };
    if (wide[0] != nullptr) {
      good &= report(function, "f32", stride == 1 ? "every float" : "a stride", function.f32_limit,
                     sweep<float>((std::int64_t{1} << 32) / stride, function, wide,
                                  [&](std::int64_t i) { return float_at(i * stride); }));
      const int slow = stride == 1 ? kSlowStride : 61 * stride;
      good &= report(function, "f32", "all back ends, 1 in 61", function.f32_limit,
                     sweep<float>((std::int64_t{1} << 32) / slow, function, all,
                                  [&](std::int64_t i) { return float_at(i * slow); }));
    }
    const bool angle = function.f32_limit == 0;  // sine and cosine promise |x| < 2^27
    good &= report(function, "f64", "all back ends, samples", function.f64_limit,
                   sweep<double>(samples, function, doubles, [&](std::int64_t i) {
                     return angle ? std::remainder(drawn(i | 1) * 0x1p17, 0x1p27) : drawn(i);
                   }));
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace isobit::function_calls

// functions [--samples N] [--stride N] [NAME ...]
int main(int argc, char** argv) {
  std::vector<std::string_view> names;
  std::int64_t samples = 10'000'000;
  int stride = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--samples" && i + 1 < argc)
      samples = std::atoll(argv[++i]);
    else if (word == "--stride" && i + 1 < argc)
      stride = std::atoi(argv[++i]);
    else
      names.push_back(word);
  }
  return isobit::function_calls::run(names, samples, stride);
}
