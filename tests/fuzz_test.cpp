// SPDX-License-Identifier: Apache-2.0
// The promises of the C interface on calls made from bytes: those that libFuzzer kept, and random
// ones. And the judge sees calls that break each promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <regex>
#include <set>
#include <span>
#include <utility>

#include "fuzz/promises.h"
#include "isobit/ops/catalog.h"

namespace isobit::fuzz {
namespace {

using Input = std::vector<std::uint8_t>;

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string hex(const Input& input) {
  std::string digits;
  for (std::uint8_t byte : input)
    digits += "0123456789abcdef"[byte >> 4], digits += "0123456789abcdef"[byte & 15];
  return digits;
}

Input random_input(std::mt19937& random) {
  Input input(random() % 160);
  for (std::uint8_t& byte : input) byte = static_cast<std::uint8_t>(random());
  return input;
}

TEST(Fuzz, CorpusReplays) {
  int files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(ISOBIT_SOURCE_DIR "/tests/fuzz/corpus")) {
    const std::string bytes = read(file.path());
    EXPECT_EQ(broken_promise(entries(), Input(bytes.begin(), bytes.end())), "") << file.path();
    ++files;
  }
  EXPECT_GE(files, 50);
}

TEST(Fuzz, RandomCallsKeepThePromises) {
  std::mt19937 random(20260801);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    const Input input = random_input(random);
    ASSERT_EQ(broken_promise(entries(), input), "") << hex(input);
    accepted += *isobit_last_error() == '\0';
  }
  EXPECT_GE(accepted, 4000);  // both sides of the check are reached
}

// What is always refused is judged by its refusals alone.
TEST(Fuzz, PackedMatricesAreMultiplied) {
  const auto entry = std::ranges::find(entries(), "isobit_matmul_packed", &Entry::function);
  ASSERT_NE(entry, entries().end());
  std::mt19937 random(20261125);
  int accepted = 0;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(broken_promise({&*entry, 1}, random_input(random)), "");
    accepted += *isobit_last_error() == '\0';
  }
  EXPECT_GE(accepted, 30);
}

TEST(Fuzz, TableHoldsEveryEntry) {
  const std::string header = read(ISOBIT_SOURCE_DIR "/include/isobit/operators.h") +
                             read(ISOBIT_SOURCE_DIR "/include/isobit/packed.h");
  const std::regex entry(R"(ISOBIT_API isobit_status (\w+)\(\s*const \w+_args\*)");
  std::set<std::string_view> table;
  for (const Entry& one : entries()) table.insert(one.function);
  std::set<std::string> declared;
  for (std::sregex_iterator match(header.begin(), header.end(), entry), end; match != end; ++match)
    declared.insert((*match)[1]);
  EXPECT_EQ(declared, std::set<std::string>(table.begin(), table.end()));
}

TEST(Fuzz, TableHoldsEveryOperation) {
  for (const Operation* operation : catalog())
    EXPECT_TRUE(std::ranges::any_of(entries(), [&](const Entry& entry) {
      return entry.operation == operation->op;
    })) << operation->op;
}

using Args = isobit_elementwise_increment_args;

isobit_status succeed() {
  const isobit_tensor nothing = {nullptr, 0, ISOBIT_F32, 1, {0}, {1}};
  const Args args = {sizeof args, &nothing, &nothing};
  return isobit_elementwise_increment(&args, nullptr);
}

isobit_status refuse(isobit_status status) {
  isobit_elementwise_increment(nullptr, nullptr);  // leaves a message
  return status;
}

std::byte* bytes_of(const isobit_tensor* tensor) { return static_cast<std::byte*>(tensor->data); }

bool has_elements(const isobit_tensor& tensor) {
  return std::ranges::none_of(std::span(tensor.shape).first(tensor.rank),
                              [](std::int64_t extent) { return extent == 0; });
}

// What the judge says about 20,000 random calls of isobit_elementwise_increment done by `call`.
std::set<std::string> complaints(isobit_status (*call)(const void*, const isobit_context*)) {
  Entry entry = fuzz::entry<isobit_elementwise_increment>("increment", "elementwise", "fwd", "x y");
  entry.call = call;
  std::mt19937 random(1);
  std::set<std::string> result;
  for (int i = 0; i < 20000; ++i) result.insert(broken_promise({&entry, 1}, random_input(random)));
  return result;
}

// The same where something is done after each success.
template <auto kAfter>
std::set<std::string> complaints() {
  return complaints([](const void* untyped, const isobit_context* context) {
    const auto* args = static_cast<const Args*>(untyped);
    const isobit_status status = isobit_elementwise_increment(args, context);
    return status == ISOBIT_OK && has_elements(*args->y) ? kAfter(*args, context) : status;
  });
}

TEST(FuzzJudge, IsContentWithARightEntry) {
  const auto nothing = [](const Args&, const isobit_context*) { return ISOBIT_OK; };
  EXPECT_EQ(complaints<nothing>(), std::set<std::string>{""});
}

TEST(FuzzJudge, SeesWritesBetweenRows) {
  const auto write = [](const Args& args, const isobit_context*) {
    const isobit_tensor& y = *args.y;
    if (y.rank == 2 && y.dtype == ISOBIT_F32 && y.shape[0] > 1 && y.strides[0] > y.shape[1])
      bytes_of(&y)[y.shape[1] * 4] ^= std::byte{1};
    return ISOBIT_OK;
  };
  EXPECT_TRUE(complaints<write>().contains("increment: wrote beside its outputs"));
}

TEST(FuzzJudge, SeesChangedInputs) {
  const auto change = [](const Args& args, const isobit_context*) {
    bytes_of(args.x)[0] ^= std::byte{1};
    return ISOBIT_OK;
  };
  EXPECT_TRUE(complaints<change>().contains("increment: wrote beside its outputs"));
}

TEST(FuzzJudge, SeesUnwrittenElements) {
  static std::byte kept;
  const auto unwrite = [](const Args& args, const isobit_context*) {
    std::swap(kept, bytes_of(args.y)[0]);
    return ISOBIT_OK;
  };
  EXPECT_TRUE(complaints<unwrite>().contains("increment: the same call gave other bits"));
}

TEST(FuzzJudge, SeesRefusalsThatWrote) {
  const auto refuse_late = [](const Args&, const isobit_context*) {
    return refuse(ISOBIT_INVALID_ARGUMENT);
  };
  EXPECT_TRUE(
      complaints<refuse_late>().contains("increment: wrote, then said: elementwise: args is null"));
}

TEST(FuzzJudge, SeesSilentRefusals) {
  const auto refuse_silently = [](const Args&, const isobit_context*) {
    return ISOBIT_UNSUPPORTED;
  };
  EXPECT_TRUE(
      complaints<refuse_silently>().contains("increment: a refusal that names no operator: "));
}

TEST(FuzzJudge, SeesMessagesOfSuccess) {
  const auto talk = [](const Args&, const isobit_context*) { return refuse(ISOBIT_OK); };
  EXPECT_TRUE(complaints<talk>().contains("increment: success says: elementwise: args is null"));
}

TEST(FuzzJudge, SeesStrangeStatuses) {
  const auto fail = [](const Args&, const isobit_context*) { return refuse(ISOBIT_INTERNAL); };
  EXPECT_TRUE(complaints<fail>().contains("increment: status 5: elementwise: args is null"));
  const auto starve = [](const Args&, const isobit_context*) {
    return refuse(ISOBIT_OUT_OF_MEMORY);
  };
  EXPECT_TRUE(complaints<starve>().contains("increment: out of memory, though none was denied"));
}

TEST(FuzzJudge, SeesStrangeNans) {
  const auto write = [](const Args& args, const isobit_context*) {
    if (args.y->dtype == ISOBIT_F32) std::memcpy(args.y->data, "\1\0\xc0\x7f", 4);
    return ISOBIT_OK;
  };
  EXPECT_TRUE(complaints<write>().contains("increment: y holds a NaN with other bits"));
}

TEST(FuzzJudge, SeesKeptWorkspace) {
  static std::vector<void*> kept;
  const auto keep = [](const Args&, const isobit_context* context) {
    if (context != nullptr && context->allocator.allocate != nullptr)
      kept.push_back(context->allocator.allocate(context->allocator.self, 64));
    return ISOBIT_OK;
  };
  EXPECT_TRUE(complaints<keep>().contains("increment: workspace was kept"));
  for (void* memory : kept) std::free(memory);
}

TEST(FuzzJudge, KnowsWhatMustBeRefused) {
  const std::set<std::string> all =
      complaints([](const void*, const isobit_context*) { return succeed(); });
  for (const char* why :
       {"x describes no tensor", "x reaches beyond its storage", "x is nowhere", "x is not aligned",
        "y overlaps an output", "y overlaps an input", "a required array is missing",
        "args is null", "struct_size is wrong", "context is wrong"})
    EXPECT_TRUE(all.contains(std::string("increment: accepted, though ") + why)) << why;
}

}  // namespace
}  // namespace isobit::fuzz
