// SPDX-License-Identifier: Apache-2.0
// `isobit parity`: one hash in every way, those of C and Python among them. A script takes Python's
// place here; tests/python/test_callers.py has the real one.
#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "command_line.h"
#include "isobit/core/error.h"
#include "isobit/lab/callers.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/python.h"
#include "isobit/lab/settings.h"

namespace isobit::lab {
namespace {

// A script for Python, which is called with -m isobit.lab.callers FOLDER.
class Parity : public Lab {
 protected:
  void python(const std::string& script) const {
    std::ofstream(path("python")) << "#!/bin/sh\nfolder=$3\n" << script << "\n";
    std::filesystem::permissions(path("python"), std::filesystem::perms::owner_all);
    setenv("ISOBIT_PYTHON", path("python").c_str(), 1);
  }

  // Lines by way.
  static std::map<std::string, Json> by_way(const Outcome& outcome) {
    std::map<std::string, Json> ways;
    for (const Json& line : outcome.lines())
      ways[line.at("configuration").get<std::string>()] = line;
    return ways;
  }

  static Outcome elementwise() { return isobit("parity elementwise --rows 3 --cols 5 --json"); }

  static std::string reason(const Outcome& outcome, const std::string& way) {
    return by_way(outcome).at(way).value("unavailable", "");
  }

  // Parts of a script: `command` fills the folder of a way, which then has its outputs.
  static std::string way(const std::string& name, const std::string& command) {
    return "way=\"$folder/" + name + "\"\nmkdir \"$way\"\n" + command +
           "\necho '{\"configuration\": \"" + name + "\", \"outputs\": [\"y\"]}'\n";
  }
  static std::string right(const std::string& name) {
    return way(name, std::string(ISOBIT_BINARY) +
                         " run elementwise --in x=$folder/x.npy --in residual=$folder/residual.npy"
                         " --out \"$way\" >/dev/null");
  }
  static std::string wrong(const std::string& name) {
    return way(name, "cp $folder/x.npy \"$way/y.npy\"");
  }
};

constexpr const char* kPythonWays[] = {"NumPy", "PyTorch eager", "PyTorch compiled",
                                       "PyTorch eager on cuda", "PyTorch compiled on cuda"};

// What is compiled for each instruction set is compared on each, whatever its name is.
TEST_F(Parity, ShowsTheInstructionSetsOfAllVariantsThatHaveThem) {
  for (const auto& [call, variant] : {std::pair{"matmul --m 3 --n 5 --k 4", "packed"},
                                      {"scan --outer 2 --length 9 --inner 3", "blocks"}}) {
    const auto ways = by_way(isobit("parity " + std::string(call) + " --threads 1 --json"));
    for (const std::string& isa : isas_here())
      EXPECT_TRUE(ways.contains(text(variant, " ", isa, " 1 thread"))) << variant << " " << isa;
  }
}

#ifdef ISOBIT_EMULATOR
TEST_F(Parity, ABetaThatFloatsLackHasOneGradientOnAllDevices) {
  const Outcome outcome = isobit(
      "parity matmul --pass bwd --with grad_c --beta 1e-300 --m 3 --n 5 --k 4 --dtype f32 "
      "--device cpu,emu --isa scalar --threads 1");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
}
#endif

// A variant for few queries took sequences as long as memory had it before they were drawn.
TEST_F(Parity, PackedSequencesAndKeysInBlocksHaveOneHash) {
  for (const char* call : {"--batch 1 --starts 5 --with query_starts+key_starts+slopes "
                           "--causal bottom_right --dropout 0.25 --dtype f32,bf16",
                           "--batch 3 --places 2 --with key_begin+key_end+blocks --pass fwd",
                           "--batch 3 --starts 4 --places 2 --causal bottom_right --pass fwd "
                           "--with query_starts+key_end+blocks+slopes --dropout 0.25"}) {
    const auto ways =
        by_way(isobit("parity attention --device cpu --threads 1,3 --json " + std::string(call)));
    std::set<Json> outputs;
    for (const auto& [name, line] : ways)
      if (line.contains("outputs")) outputs.insert(line.at("outputs"));
    // Those of forward and of backward, or of forward alone, in the last type.
    EXPECT_EQ(outputs.size(), std::string(call).find("fwd") == std::string::npos ? 2U : 1U) << call;
    EXPECT_TRUE(ways.contains("naive 1 thread")) << call;
    EXPECT_FALSE(ways.contains("naive within a larger batch")) << call;
  }
}

TEST_F(Parity, GivesOneHashInEveryWay) {
  for (const char* op : {"layernorm", "elementwise"}) {
    const Outcome outcome = isobit(std::string("parity ") + op + " --rows 7 --cols 130 --json");
    EXPECT_EQ(outcome.status, 0);
    std::map<std::string, std::set<std::string>> hashes;
    int declined = 0;
    for (const Json& line : outcome.lines()) {
      EXPECT_TRUE(line.at("configuration").is_string());
      EXPECT_NE(line.contains("unavailable"), line.contains("outputs"));
      declined += line.contains("unavailable");
      if (line.contains("outputs"))
        for (const auto& [name, output] : line.at("outputs").items())
          hashes[line.at("pass").get<std::string>() + name].insert(output.at("bits"));
    }
    EXPECT_GE(declined, 4);
    EXPECT_FALSE(hashes.empty());
    for (const auto& [name, values] : hashes) EXPECT_EQ(values.size(), 1u) << name;
  }
}

TEST_F(Parity, NamesAnInstructionSetOnlyWhereItMatters) {
  std::set<std::string> ways;
  for (const Json& line : isobit("parity elementwise --rows 2 --cols 70 --json").lines()) {
    const std::string key =
        line.at("kind").get<std::string>() + line.at("configuration").get<std::string>();
    EXPECT_TRUE(ways.insert(key).second) << key << " is told twice";
  }
  EXPECT_TRUE(ways.contains("addscalar 1 thread"));
  EXPECT_TRUE(ways.contains("addsimd scalar 1 thread"));
}

TEST_F(Parity, CGivesEveryOutputOfEveryOperation) {
  for (const char* call : {"elementwise --kind add,increment --dtype f32,f16,bf16,f64,i32",
                           "layernorm,rmsnorm --dtype bf16 --weight-dtype f32 --y-dtype f16",
                           "layernorm,rmsnorm --pass fwd --with residual+sum --zero-centered yes",
                           "layernorm,rmsnorm --pass bwd --with grad_sum --statistics given",
                           "layernorm,rmsnorm --pass fwd --with sum --dropout 0.3",
                           "layernorm,rmsnorm --pass bwd --with grad_sum+grad_residual "
                           "--dropout 0.3 --dropout-seed 7 --offset 3 --row-stride 45"}) {
    const Outcome outcome = isobit("parity --rows 4 --cols 40 --json " + std::string(call));
    EXPECT_EQ(outcome.status, 0) << call;
    Json expected;  // a case's first way has all outputs
    int cases = 0;
    for (const Json& line : outcome.lines()) {
      if (expected.is_null() && line.contains("outputs")) expected = line.at("outputs");
      if (line.at("configuration") != "C") continue;
      EXPECT_EQ(line.at("outputs"), std::exchange(expected, {})) << line;
      ++cases;
    }
    EXPECT_GT(cases, 1) << call;
  }
}

TEST_F(Parity, CSaysWhatItRefuses) {
  const Outcome outcome = isobit("parity elementwise --rows 3 --cols 5 --threads 1025 --json");
  EXPECT_NE(reason(outcome, "C").find("1025 threads; allowed: 0 to 1024"), std::string::npos);
}

TEST_F(Parity, WaysOfPythonStandBesideTheOthers) {
  std::string script;
  for (const char* way : kPythonWays) script += right(way);
  python(script);
  const Outcome outcome = elementwise();
  EXPECT_EQ(outcome.status, 0);
  auto ways = by_way(outcome);
  for (const char* way : kPythonWays) {
    EXPECT_EQ(ways[way].at("outputs"), ways["C"].at("outputs")) << way;
    EXPECT_EQ(ways[way].at("rows"), 3);
  }
  const std::string text = isobit("parity elementwise --rows 3 --cols 5").text;
  EXPECT_NE(text.find("\nPyTorch compiled  "), std::string::npos) << text;
  EXPECT_NE(text.find("all configurations give the same bits"), std::string::npos) << text;
}

TEST_F(Parity, OtherBitsOfPythonAreAFailure) {
  python(right("NumPy") + wrong("PyTorch eager") + right("PyTorch compiled"));
  EXPECT_EQ(elementwise().status, 1);
  const Outcome told = isobit("parity elementwise --rows 3 --cols 5");
  EXPECT_EQ(told.status, 1);
  EXPECT_NE(told.text.find(" differs\nPyTorch compiled"), std::string::npos) << told.text;
}

TEST_F(Parity, AResultOfAnotherSizeIsADifference) {
  write("smaller", {3, 4}, 0);
  python(way("NumPy", "cp " + path("smaller.npy") + " \"$way/y.npy\""));
  EXPECT_EQ(elementwise().status, 1);
}

TEST_F(Parity, AResultThatCannotBeReadIsAnError) {
  python(way("NumPy", ""));
  EXPECT_NE(complaint("parity elementwise --rows 3 --cols 5", 1).find("y.npy: cannot be opened"),
            std::string::npos);
}

TEST_F(Parity, AWayThatDeclinesTellsItsReason) {
  python(R"(echo '{"configuration": "PyTorch eager", "unavailable": "no module named torch"}')");
  const Outcome outcome = elementwise();
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(reason(outcome, "PyTorch eager"), "no module named torch");
  EXPECT_EQ(reason(outcome, "NumPy"),
            "Python reported nothing about it; run `isobit doctor` for details");
  EXPECT_NE(isobit("parity elementwise --rows 3 --cols 5")
                .text.find("\nPyTorch eager: unavailable: no module named torch\n"),
            std::string::npos);
}

TEST_F(Parity, APythonThatCrashesIsToldAndHidesNoResult) {
  python(right("NumPy") + "printf '{\"configuration\": \"PyTorch ea'\nkill -SEGV $$");
  const Outcome crashed = elementwise();
  EXPECT_EQ(crashed.status, 0);
  EXPECT_EQ(by_way(crashed).at("NumPy").at("outputs"), by_way(crashed).at("C").at("outputs"));
  for (const char* way : std::span(kPythonWays).subspan(1))
    EXPECT_EQ(reason(crashed, way).find("Python was killed by signal 11 (Segmentation fault)"), 0u);

  python(wrong("NumPy") + "kill -SEGV $$");
  EXPECT_EQ(elementwise().status, 1);
}

TEST_F(Parity, APythonThatFailsIsQuoted) {
  python("echo Traceback >&2\necho \"No module named 'isobit'\" >&2\nexit 3");
  EXPECT_EQ(
      reason(elementwise(), "NumPy"),
      "Python exited with status 3: No module named 'isobit'; run `isobit doctor` for details");
  EXPECT_NE(isobit("doctor").text.find("missing  Python"), std::string::npos);
}

TEST_F(Parity, AMissingPythonIsNamed) {
  setenv("ISOBIT_PYTHON", "/no/python", 1);
  EXPECT_EQ(reason(elementwise(), "NumPy").find("no Python at /no/python; run `make build`"), 0u);
  EXPECT_EQ(isobit("doctor").status, 0);
  EXPECT_EQ(complaint("report " + path(""), 1).find("isobit: no Python at /no/python"), 0u);
}

TEST_F(Parity, APythonThatHangsIsEnded) {
  python("echo '{\"configuration\": \"NumPy\"}'\nexec sleep 60");
  const auto start = std::chrono::steady_clock::now();
  const PythonRun run = run_python({"-m", "isobit.lab.callers"}, std::chrono::seconds(3));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(40));
  EXPECT_EQ(run.trouble, "Python timed out after 3 s");
  EXPECT_EQ(run.said.size(), 1u);
}

TEST_F(Parity, FlagsThatChooseAWayLeaveOutThoseWhoChooseThemselves) {
  python("touch " + path("started"));
  for (const char* flag : {"--device cpu", "--variant simd", "--isa scalar", "--plan stream=1"}) {
    const auto ways =
        by_way(isobit(std::string("parity elementwise --rows 3 --cols 5 --json ") + flag));
    EXPECT_FALSE(ways.empty());
    for (const char* way : {"C", "NumPy", "PyTorch eager"}) EXPECT_FALSE(ways.contains(way)) << way;
  }
  EXPECT_FALSE(std::filesystem::exists(path("started")));
  EXPECT_TRUE(
      by_way(isobit("parity elementwise --rows 3 --cols 5 --threads 1 --json")).contains("C"));
  EXPECT_TRUE(std::filesystem::exists(path("started")));
}

TEST_F(Parity, WhatIsDroppedDependsOnARowsNumberSoNoBatchIsCut) {
  const Outcome outcome =
      isobit("parity rmsnorm --pass fwd --dropout 0.5 --rows 9 --cols 40 --json");
  EXPECT_EQ(outcome.status, 0);
  const auto ways = by_way(outcome);
  EXPECT_TRUE(ways.contains("simd misaligned by one element"));
  EXPECT_FALSE(ways.contains("simd one row per call"));
}

TEST_F(Parity, PythonFindsTheProjectsModulesBeforeTheUsers) {
  python("echo \"$PYTHONPATH\" >&2\nexit 1");
  const std::string call = std::string(ISOBIT_BINARY) + " parity elementwise --json ";
  const std::string own = std::string(ISOBIT_SOURCE_DIR) + "/python";
  for (const auto& [users, expected] : std::vector<std::pair<std::string, std::string>>{
           {"", own + ";"}, {"/a/folder", own + ":/a/folder;"}})
    EXPECT_NE(reason(shell("PYTHONPATH=" + users + " " + call), "NumPy").find(expected),
              std::string::npos);
}

TEST_F(Parity, NothingIsLeftInTheFolderForTemporaryFiles) {
  setenv("TMPDIR", path("").c_str(), 1);
  elementwise();
  unsetenv("TMPDIR");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace isobit::lab
