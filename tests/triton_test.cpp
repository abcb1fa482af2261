// SPDX-License-Identifier: Apache-2.0
// `--device triton`: what the lab makes of what Python tells it. A script takes Python's place
// here; tests/python/test_triton_lab.py has the real one.
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "command_line.h"
#include "workloads.h"

namespace isobit::lab {
namespace {

constexpr const char* kCase = " elementwise --kind increment --rows 2 --cols 9 --device triton ";

class TritonLab : public Lab {
 protected:
  // Of elementwise it has one variant, which does as `run` says with $folder/NAME, the arrays'
  // memory.
  void triton(const std::string& run, const std::string& executor = "interpreter",
              const std::string& support = R"({"plan": {"warps": 2}})") const {
    python(R"(while read -r asked; do
  folder=${asked#*\"file\":\"}; folder=${folder%%/x\"*}
  case $asked in
    *'"do":"list"'*) echo '{"executor": ")" +
           executor + R"(", "version": "9.8", "variants": [
      {"op": "elementwise", "pass": "fwd", "name": "wide", "knobs": [
        {"name": "warps", "values": [1, 2], "meaning": "how wide"}]}]}' | tr -d '\n'; echo;;
    *'"do":"support"'*) echo '{"wide": )" +
           support + R"(}';;
    *'"do":"run"'*) )" +
           run + R"( && echo {};;
    *'"do":"counters"'*) echo '{"kernels": []}';;
    *'"do":"bench"'*) echo "$asked" >)" +
           path("bench") + R"(
      echo '{"times": [{"median": 3e-6, "p20": 2e-6, "p80": 4e-6},
        {"median": 1.5e-6, "p20": 1e-6, "p80": 2e-6}]}' | tr -d '\n'; echo;;
  esac
done
)");
  }

  void python(const std::string& script) const {
    std::ofstream(path("python")) << "#!/bin/sh\n" << script;
    std::filesystem::permissions(path("python"), std::filesystem::perms::owner_all);
    setenv("ISOBIT_PYTHON", path("python").c_str(), 1);
  }

  // Leaves y's memory as the library does for kCase, but for what `change` does to it; a script's
  // command that copies it.
  std::string copied_y(const std::function<void(const Array&)>& change) const {
    Flags flags;
    flags.ops = {"elementwise"};
    flags.options["kind"] = {"increment"};
    flags.dims["rows"] = {2};
    flags.dims["cols"] = {9};
    Workload workload(cases_of(*operations_of(flags).front(), flags, "quick").front());
    workload.draw();
    flags.device = {"cpu"};
    run(workload, configurations_of(workload, flags, Unnamed::best).able.at(0));
    const Array& y = *workload.find("y");
    change(y);
    std::ofstream(path("y"), std::ios::binary)
        .write(reinterpret_cast<const char*>(y.storage().data()),
               static_cast<std::streamsize>(y.storage().size()));
    return "cp " + path("y") + " $folder/y";
  }
  std::string right_y() const {
    return copied_y([](const Array&) {});
  }

  // Whether parity finds it beside the library, and with the same bits. On parts of the batch the
  // script's y is wrong.
  static bool agrees_in_parity() {
    Json library, triton;
    for (const Json& line : isobit("parity elementwise --kind increment --rows 2 --cols 9 --json "
                                   "--device cpu,triton --isa scalar")
                                .lines()) {
      if (library.is_null()) library = line.at("outputs");
      if (line.at("configuration") == "wide on triton") triton = line.at("outputs");
    }
    EXPECT_TRUE(triton.is_object());
    return triton == library;
  }

  static void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
};

TEST_F(TritonLab, VariantsAreVerifiedAndComparedWithTheLibrary) {
  triton(right_y());
  const Outcome outcome = isobit(std::string("verify") + kCase + "--json");
  EXPECT_EQ(outcome.status, 0);
  ASSERT_EQ(outcome.lines().size(), 1u);
  const Json line = outcome.lines()[0];
  EXPECT_EQ(line.at("variant"), "wide");
  EXPECT_EQ(line.at("device"), "triton");
  EXPECT_EQ(line.at("executor"), "interpreter");
  EXPECT_EQ(line.at("plan"), Json({{"warps", 2}}));
  EXPECT_TRUE(line.at("passed"));
  EXPECT_TRUE(line.at("canonical"));
  EXPECT_FALSE(line.contains("isa"));
  EXPECT_EQ(isobit(std::string("verify") + kCase + "--plan all --json").lines().size(), 2u);
  EXPECT_TRUE(agrees_in_parity());
}

TEST_F(TritonLab, OtherBitsAreToldByVerifyAndParity) {
  triton(copied_y([](const Array& y) { y.line(0)[0] ^= std::byte{1}; }));
  const Outcome told = isobit(std::string("verify") + kCase);
  EXPECT_EQ(told.status, 0);
  expect_part(told.text, "different bits");
  expect_part(told.text, "1 passed, 0 failed, 1 with bits different from the library's");
  EXPECT_FALSE(isobit(std::string("verify") + kCase + "--json").lines()[0].at("canonical"));
  const std::string both = " elementwise --kind increment --rows 2 --cols 9 --device cpu,triton ";
  EXPECT_FALSE(agrees_in_parity());
  for (const Json& line : isobit("verify" + both + "--json").lines())
    EXPECT_EQ(line.contains("canonical"), line.at("device") == "triton");
}

TEST_F(TritonLab, WhatIsWrongFailsAndCanBeRepeated) {
  triton("true");  // y stays unwritten
  const std::string complaint_of_none = complaint(std::string("verify") + kCase, 1);
  expect_part(complaint_of_none, "failed: isobit verify elementwise ");
  expect_part(complaint_of_none, " --variant wide --device triton --plan warps=2\n");
  triton(copied_y([](const Array& y) { y.line(0)[-1] = std::byte{0}; }));
  expect_part(complaint(std::string("verify") + kCase, 1), "memory outside y was written");
  triton(right_y() + "; printf 1 | dd of=$folder/x conv=notrunc 2>/dev/null");
  expect_part(complaint(std::string("verify") + kCase, 1), "input x was modified");
}

TEST_F(TritonLab, ReasonsOfThoseWhoDeclineAreTold) {
  triton("true", "interpreter", R"({"unavailable": "it is too wide"})");
  expect_part(complaint(std::string("verify") + kCase, 1), "\n  wide on triton: it is too wide");
}

TEST_F(TritonLab, ErrorsOfPythonAreTold) {
  triton("echo '{\"error\": \"OutOfResources: shared memory\"}' && false");
  expect_part(complaint(std::string("verify") + kCase, 1), "isobit: OutOfResources: shared memory");
  triton("echo short >$folder/y");
  expect_part(complaint(std::string("verify") + kCase, 1), "/y: cannot be read");
  triton("kill -SEGV $$");
  expect_part(complaint(std::string("verify") + kCase, 1), "Python was killed by signal 11");
  triton("exit 0");
  expect_part(complaint(std::string("verify") + kCase, 1), "Python exited without an answer");
  triton("echo no object; false");
  expect_part(complaint(std::string("verify") + kCase, 1), "Python's answer is not a JSON object");
}

TEST_F(TritonLab, WhereTritonIsMissingThereIsAReason) {
  python("read -r asked; echo '{\"error\": \"No module named triton\"}'");
  const std::string reason = "Triton is unavailable: No module named triton";
  expect_part(complaint(std::string("verify") + kCase, 1), reason);
  expect_part(complaint("list --device triton", 1), reason);
  expect_part(isobit("list").text, "\n  triton: " + reason);
  expect_part(isobit("info").text, "\ntriton     none: " + reason);
  EXPECT_TRUE(isobit("info --json").lines().at(0).at("triton").is_null());
  python("echo \"No module named 'isobit'\" >&2; exit 1");
  expect_part(complaint(std::string("verify") + kCase, 1), "status 1: No module named 'isobit'");
  setenv("ISOBIT_PYTHON", "/no/python", 1);
  expect_part(complaint(std::string("verify") + kCase, 1), "no Python at /no/python");
}

TEST_F(TritonLab, AreListedWithTheOthersOrAlone) {
  triton("true");
  expect_part(isobit("list elementwise").text,
              "\n  triton  wide\n            --plan warps=1|2    how wide\n");
  expect_part(isobit("list").text, "\n  triton 9.8, in its interpreter");
  expect_part(isobit("info").text, "\ntriton     9.8, in its interpreter");
  const std::vector<Json> alone = isobit("list --device triton --json").lines();
  ASSERT_EQ(alone.size(), 1u);  // what has no such variant is not told
  EXPECT_EQ(alone[0].at("variants").size(), 1u);
  for (const Json& line : isobit("list --device cpu --json").lines())
    for (const Json& variant : line.at("variants")) EXPECT_EQ(variant.at("device"), "cpu");
  expect_part(complaint("list rmsnorm --device triton", 1), "no variant of rmsnorm runs on triton");
}

TEST_F(TritonLab, UnknownNamesAreAnsweredWithTheRightOnes) {
  triton("true");
  expect_part(complaint(std::string("verify") + kCase + "--variant wid"), "did you mean 'wide'?");
  expect_part(complaint(std::string("verify") + kCase + "--plan warp=1"), "did you mean 'warps'?");
  expect_part(complaint(std::string("verify") + kCase + "--plan warps=3"), "allowed: 1, 2");
  expect_part(complaint("verify elementwise --device trition"), "did you mean 'triton'?");
  expect_part(complaint("list --device trition"), "did you mean 'triton'?");
  expect_part(complaint("verify rmsnorm --device triton", 1),
              "rmsnorm fwd has no Triton variants; operators that do: elementwise");
}

TEST_F(TritonLab, AllLeavesOutOperatorsWithoutOne) {
  triton(right_y());
  const Outcome outcome =
      isobit("verify --all --kind increment --rows 2 --cols 9 --device triton --json");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.lines().size(), 1u);
  triton("true");
  EXPECT_EQ(isobit("parity --pass fwd --rows 2 --cols 9 --device triton").status, 0);
}

TEST_F(TritonLab, CallsAreSmallUnlessTheyAreNamed) {
  triton("true");
  for (const char* call : {"verify elementwise --device triton --json",
                           "verify elementwise --device triton --dtype bf16 --json",
                           "parity elementwise --device triton --json"})
    for (const Json& line : isobit(call).lines()) {
      EXPECT_EQ(line.at("rows"), 3);
      EXPECT_EQ(line.at("cols"), 600);
    }
  for (const Json& line :
       isobit("verify elementwise --device triton --dtype bf16 --rows 4 --json").lines())
    EXPECT_EQ(line.at("rows"), 4);
}

TEST_F(TritonLab, NeverIsAnInterpreterTimed) {
  triton("true");
  expect_part(complaint(std::string("bench") + kCase, 1),
              "wide cannot be timed: PyTorch finds no GPU");
  EXPECT_FALSE(std::filesystem::exists(path("bench")));
  expect_part(complaint("tune elementwise --device triton"), "tune does not support triton");
}

TEST_F(TritonLab, OnAGpuVariantsAreTimedBesideACopy) {
  triton("true", "a GPU");
  const Outcome outcome = isobit(std::string("bench") + kCase + "--plan warps=1 --json");
  ASSERT_EQ(outcome.status, 0);
  const Json line = outcome.lines().at(0);
  EXPECT_EQ(line.at("executor"), "a GPU");
  EXPECT_EQ(line.at("plan_from"), "flag");
  EXPECT_DOUBLE_EQ(line.at("median_us").get<double>(), 3);
  EXPECT_DOUBLE_EQ(line.at("copy_fraction").get<double>(), 0.5);
  EXPECT_NEAR(line.at("gbps").get<double>(), 2 * 9 * 2 * 4 / 3e-6 * 1e-9, 1e-9);
  Json asked;
  std::ifstream(path("bench")) >> asked;
  EXPECT_EQ(asked.at("configurations"),
            Json::array({{{"variant", "wide"}, {"plan", {{"warps", 1}}}}}));
  EXPECT_EQ(asked.at("copied_bytes"), 2 * 9 * 2 * 4);
  expect_part(isobit(std::string("bench") + kCase).text, "wide on triton  warps=2");
}

TEST_F(TritonLab, WhatIsCountedIsChecked) {
  if (!std::filesystem::exists(std::filesystem::path(ISOBIT_BINARY).parent_path() /
                               "libisobit_ptx.so"))
    GTEST_SKIP() << "`make kernels` was not run";
  const std::string call = std::string("profile") + kCase;
  triton(right_y(), "ptx");
  const Json line = isobit(call + "--json").lines().at(0);
  EXPECT_EQ(line.at("executor"), "ptx");
  EXPECT_EQ(line.at("triton"), "9.8");
  EXPECT_TRUE(line.at("canonical") && line.at("passed"));
  expect_part(isobit(call).text,
              "1 calls\nwith the library's bits, 0 with others, 0 of them wrong");
  triton(copied_y([](const Array& y) { y.line(0)[0] ^= std::byte{1}; }), "ptx");
  const Outcome others = isobit(call);
  EXPECT_EQ(others.status, 0);
  expect_part(others.text, "0 calls\nwith the library's bits, 1 with others, 0 of them wrong");
  triton("true", "ptx");  // y stays unwritten
  expect_part(complaint(call, 1), "failed: isobit profile elementwise ");
  triton(right_y() + "; printf 1 | dd of=$folder/x conv=notrunc 2>/dev/null", "ptx");
  expect_part(complaint(call, 1), "input x was modified");
}

TEST_F(TritonLab, FilesAreRunToo) {
  write("x", {2, 9}, 1);
  triton(right_y());
  const Json line =
      isobit("run elementwise --kind increment --device triton --json --in x=" + path("x.npy"))
          .lines()
          .at(0);
  EXPECT_EQ(line.at("variant"), "wide");
  EXPECT_FALSE(line.at("passed"));  // the script's y is another x's
}

}  // namespace
}  // namespace isobit::lab
