// SPDX-License-Identifier: Apache-2.0
// Recorded calls are repeated with their bits; broken files are refused; observers see each call.
#include "isobit/lab/recorded.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "command_line.h"
#include "isobit/core/error.h"
#include "isobit/isobit.h"
#include "isobit/lab/callers.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

class Recording : public Lab {
 protected:
  const std::filesystem::path file_ = folder_ / "calls.bin";

  std::string bytes() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) const { std::ofstream(file_, std::ios::binary) << bytes; }

  // Of reading all of it; empty where nothing is wrong.
  std::string refusal() const {
    try {
      Recorded file(file_);
      while (file.next()) {}
    } catch (const InvalidArgument& error) { return error.what(); }
    return "";
  }

  // Two calls of few numbers.
  void record_little() const {
    float data[6] = {1, 2, 3, 4, 5, 9}, result[6] = {};
    isobit_tensor x{data, sizeof data, ISOBIT_F32, 2, {2, 3}, {3, 1}};
    isobit_tensor y{result, sizeof result, ISOBIT_F32, 2, {2, 3}, {3, 1}};
    ASSERT_EQ(isobit_record(file_.c_str()), ISOBIT_OK) << isobit_last_error();
    const isobit_named_tensor tensors[] = {{"x", &x}, {"y", &y}};
    for (const char* op : {"layernorm", "rmsnorm"})
      ASSERT_EQ(isobit_call(op, "fwd", tensors, 2, nullptr, 0, nullptr), ISOBIT_OK);
    isobit_tensor wrong = y;
    wrong.shape[1] = 2;
    const isobit_named_tensor refused[] = {{"x", &x}, {"y", &wrong}};
    ASSERT_EQ(isobit_call("layernorm", "fwd", refused, 2, nullptr, 0, nullptr),
              ISOBIT_INVALID_ARGUMENT);
    ASSERT_EQ(isobit_record(nullptr), ISOBIT_OK) << isobit_last_error();
  }
};

// (where its contents begin, their length) of each part.
std::vector<std::pair<std::size_t, std::size_t>> parts_of(const std::string& file) {
  std::uint32_t version = 0;
  std::memcpy(&version, file.data() + 12, sizeof version);
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  for (std::size_t at = 16 + version; at < file.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data() + at + 4, sizeof length);
    parts.emplace_back(at + 12, length);
    at += 12 + length + 8;
  }
  return parts;
}

void seal(std::string& file, std::pair<std::size_t, std::size_t> part) {
  const auto all = std::as_bytes(std::span(file));
  const std::uint64_t hash = recording::hash_of(all.subspan(part.first, part.second));
  std::memcpy(file.data() + part.first + part.second, &hash, sizeof hash);
}

TEST_F(Recording, OfEveryOperationIsRepeatedEverywhereWithItsBits) {
  std::uint64_t calls = 0;
  ASSERT_EQ(isobit_record(file_.c_str()), ISOBIT_OK);
  for (const Operation* operation : catalog())
    for (const Case& c : cases_of_every_type(*operation, 3, 40)) {
      Workload workload(c);
      workload.draw();
      calls += call_from_c(workload, 2).declined.empty() ? 1 : 0;
    }
  ASSERT_EQ(isobit_record(nullptr), ISOBIT_OK);
  const Outcome outcome = isobit("replay " + file_.string() + " --isa all --threads 1,3 --json");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_GE(outcome.lines().size(), 2u);
  for (const Json& line : outcome.lines()) {
    EXPECT_GE(line["calls"].get<std::uint64_t>(), calls) << line;
    EXPECT_EQ(line["different"], 0) << line;
  }
}

// By its own function and by name, with a seed of which no double holds every bit.
TEST_F(Recording, OfAResultInThePlaceOfItsInputIsRepeatedWithEveryBitOfTheSeed) {
  constexpr std::uint64_t kSeed = 0x8000'0000'0000'0001;
  float data[64];
  std::iota(std::begin(data), std::end(data), 1.0f);
  isobit_tensor x{data, sizeof data, ISOBIT_F32, 2, {4, 16}, {16, 1}};
  ASSERT_EQ(isobit_record(file_.c_str()), ISOBIT_OK);
  isobit_layernorm_forward_args args{};
  args.struct_size = sizeof args;
  args.x = args.y = &x;
  args.eps = 1e-5;
  args.dropout = 0.5;
  args.dropout_seed = kSeed;
  EXPECT_EQ(isobit_layernorm_forward(&args, nullptr), ISOBIT_OK) << isobit_last_error();
  const isobit_named_tensor tensors[] = {{"x", &x}, {"y", &x}};
  isobit_option options[] = {{"dropout", ISOBIT_NUMBER, {}}, {"dropout_seed", ISOBIT_INTEGER, {}}};
  options[0].value.number = 0.5;
  options[1].value.integer = static_cast<std::int64_t>(kSeed);
  EXPECT_EQ(isobit_call("layernorm", "fwd", tensors, 2, options, 2, nullptr), ISOBIT_OK);
  ASSERT_EQ(isobit_record(nullptr), ISOBIT_OK);
  const Outcome outcome = isobit("replay " + file_.string() + " --isa scalar --threads 1 --json");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(outcome.lines().front()["calls"], 2);
}

TEST_F(Recording, WithAnotherResultIsAFailure) {
  record_little();
  std::string file = bytes();
  const auto first = parts_of(file).front();
  file[first.first + first.second - 1] ^= 1;  // of the hash of the last output
  seal(file, first);
  write(file);
  const Outcome outcome = isobit("replay " + file_.string());
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.text.find("call 1, layernorm: y has the hash "), std::string::npos)
      << outcome.text;
  EXPECT_NE(outcome.text.find("the bits differ"), std::string::npos);
}

TEST_F(Recording, HasTheCallsThatSucceeded) {
  record_little();
  Recorded file(file_);
  std::vector<std::string> names;
  while (const auto call = file.next()) {
    names.emplace_back(call->operation->op);
    EXPECT_EQ(call->arrays.size(), 2u);
    EXPECT_EQ(call->arrays[0].shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(call->arrays[0].data.size(), 24u);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"layernorm", "rmsnorm"}));
  EXPECT_EQ(file.left_out(), 0u);
}

TEST_F(Recording, ThatWasCutOffIsRefused) {
  record_little();
  const std::string file = bytes();
  EXPECT_EQ(refusal(), "");
  for (std::size_t length = 0; length < file.size(); ++length) {
    write(file.substr(0, length));
    const std::string why = refusal();
    EXPECT_NE(why.find(length < 8 ? "is no recording" : "was cut off"), std::string::npos)
        << length << ": " << why;
  }
  write(file + "x");
  EXPECT_NE(refusal().find("goes on behind its end"), std::string::npos);
}

TEST_F(Recording, OfSomethingElseIsRefused) {
  EXPECT_NE(complaint("replay " + (folder_ / "none").string()).find("cannot read"),
            std::string::npos);
  EXPECT_NE(complaint("replay " + folder_.string()).find("cannot read"), std::string::npos);
  write("\x93NUMPY, or anything that is long enough");
  EXPECT_NE(complaint("replay " + file_.string()).find("is no recording"), std::string::npos);
  record_little();
  const std::string file = bytes();
  std::string other = file;
  other[8] = 9;
  write(other);
  EXPECT_NE(complaint("replay " + file_.string()).find("has format 9; this program reads"),
            std::string::npos);
  other = file;
  other[parts_of(file).front().first + 5] ^= 1;
  write(other);
  EXPECT_NE(complaint("replay " + file_.string()).find("is damaged"), std::string::npos);
  EXPECT_NE(complaint("replay " + file_.string() + " --threads 0").find("--threads is 0"),
            std::string::npos);
  EXPECT_NE(complaint("replay " + file_.string() + " --device abacus").find("no device 'abacus'"),
            std::string::npos);
}

TEST_F(Recording, WhoseBytesWereChangedIsRefusedOrReadAndNeverMore) {
  record_little();
  const std::string file = bytes();
  const auto parts = parts_of(file);
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string other = file;
    const auto part = parts[random() % parts.size()];
    for (std::uint32_t changes = 1 + random() % 3; changes > 0; --changes) {
      char& byte = other[part.first + random() % part.second];
      byte = random() % 2 == 0 ? static_cast<char>(random()) : static_cast<char>(byte ^ 0x80);
    }
    seal(other, part);
    write(other);
    refused += !refusal().empty();
  }
  EXPECT_GT(refused, 200);
  EXPECT_LT(refused, 1000);
}

TEST_F(Recording, CannotBeWrittenEverywhere) {
  EXPECT_EQ(isobit_record((folder_ / "none" / "file").c_str()), ISOBIT_INVALID_ARGUMENT);
  EXPECT_NE(std::string(isobit_last_error()).find("cannot write"), std::string::npos);
}

TEST(Observer, SeesEachCallUntilItEnds) {
  std::vector<std::string> seen;
  const isobit_observer observer = [](void* self, const isobit_event* event) {
    EXPECT_EQ(event->struct_size, sizeof *event);
    EXPECT_LE(event->begin, event->end);
    EXPECT_GT(event->bytes, 0);
    static_cast<std::vector<std::string>*>(self)->push_back(std::string(event->op) + " " +
                                                            event->pass);
  };
  std::set<std::string> expected;
  ASSERT_EQ(isobit_observe(observer, &seen), ISOBIT_OK);
  for (const Operation* operation : catalog()) {
    const Case c = cases_of_every_type(*operation, 3, 40).front();
    Workload workload(c);
    workload.draw();
    const std::size_t before = seen.size();
    EXPECT_EQ(call_from_c(workload, 1).declined, "");
    EXPECT_GT(seen.size(), before) << operation->title();
    expected.insert(std::string(operation->op) + " " + std::string(operation->pass));
  }
  ASSERT_EQ(isobit_observe(nullptr, nullptr), ISOBIT_OK);
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()), expected);
  const std::size_t count = seen.size();
  Workload workload(cases_of_every_type(*catalog().front(), 3, 40).front());
  workload.draw();
  call_from_c(workload, 1);
  EXPECT_EQ(seen.size(), count);
}

}  // namespace
}  // namespace isobit::lab
