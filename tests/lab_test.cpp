// SPDX-License-Identifier: Apache-2.0
// The built command line, as scripts and people use it: flags, JSON, files, exit statuses, help for
// typing errors.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "isobit/lab/npy.h"

namespace isobit::lab {
namespace {

using Json = nlohmann::json;

struct Outcome {
  int status;
  std::string text;

  std::vector<Json> lines() const {
    std::vector<Json> objects;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) objects.push_back(Json::parse(line));
    return objects;
  }
};

Outcome shell(const std::string& command) {
  Outcome outcome{};
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    outcome.text.append(buffer, n);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

Outcome isobit(const std::string& arguments) {
  return shell(std::string(ISOBIT_BINARY) + " " + arguments + " 2>/dev/null");
}

// What it says on stderr when it is called wrongly.
std::string complaint(const std::string& arguments, int status = 2) {
  const Outcome outcome = shell(std::string(ISOBIT_BINARY) + " " + arguments + " 2>&1 >/dev/null");
  EXPECT_EQ(outcome.status, status) << arguments;
  return outcome.text;
}

class Lab : public testing::Test {
 protected:
  Lab() { std::filesystem::create_directories(folder_); }
  ~Lab() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void write(const std::string& name, std::vector<std::int64_t> shape, float first) const {
    NpyArray array{DType::f32, std::move(shape), {}};
    array.data.resize(static_cast<std::size_t>(array.elements()) * sizeof(float));
    auto* values = reinterpret_cast<float*>(array.data.data());
    for (std::int64_t i = 0; i < array.elements(); ++i)
      values[i] = first + std::sin(static_cast<float>(i));
    write_npy(folder_ / (name + ".npy"), array);
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("isobit_lab_test_" + std::to_string(getpid()));
};

TEST_F(Lab, VerifyResolvesEveryFlag) {
  const Outcome outcome =
      isobit("verify layernorm --pass fwd --variant scalar --rows 3 --cols 5 --json");
  ASSERT_EQ(outcome.status, 0);
  const std::vector<Json> lines = outcome.lines();
  ASSERT_EQ(lines.size(), 1u);
  const Json& line = lines[0];
  for (const auto& [key, value] : std::vector<std::pair<const char*, Json>>{{"op", "layernorm"},
                                                                            {"pass", "fwd"},
                                                                            {"variant", "scalar"},
                                                                            {"device", "cpu"},
                                                                            {"rows", 3},
                                                                            {"cols", 5},
                                                                            {"dtype", "f32"},
                                                                            {"weight_dtype", "f32"},
                                                                            {"eps", 1e-5},
                                                                            {"input", "randn"},
                                                                            {"seed", 0},
                                                                            {"offset", 0},
                                                                            {"row_stride", 5},
                                                                            {"passed", true}})
    EXPECT_EQ(line.at(key), value) << key;
  EXPECT_NE(line.at("isa"), "auto");
  EXPECT_GE(line.at("threads"), 1);
  EXPECT_TRUE(line.at("plan").is_object());
  for (const char* output : {"y", "mean", "rstd"}) {
    EXPECT_TRUE(line.at("outputs").at(output).at("C").is_number());
    EXPECT_EQ(line.at("outputs").at(output).at("bits").get<std::string>().size(), 16u);
  }
}

TEST_F(Lab, CommasMakeAGrid) {
  const Outcome outcome = isobit(
      "verify elementwise --kind add,increment --rows 1,2 --cols 3,4,5 --dtype f32,i32 "
      "--variant simd --threads 1,2 --json");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.lines().size(), 2u * 2 * 3 * 2 * 2);
}

TEST_F(Lab, VerifyWritesItsLinesIntoTheFolder) {
  const Outcome outcome =
      isobit("verify elementwise --rows 2 --cols 9 --json --out " + path("results"));
  std::ifstream file(path("results") + "/verify.jsonl");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), outcome.text);
}

TEST_F(Lab, PlansAreResolvedByName) {
  const std::vector<Json> lines =
      isobit("verify elementwise --variant simd --plan stream=1 --rows 2 --cols 9 --json").lines();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("plan").at("stream"), 1);
}

TEST_F(Lab, OffsetAndRowStrideDoNotChangeTheBits) {
  const std::string call = "verify layernorm --rows 4 --cols 77 --pass bwd --json ";
  const Json plain = isobit(call).lines().at(0),
             odd = isobit(call + "--offset 3 --row-stride 80").lines().at(0);
  EXPECT_EQ(odd.at("row_stride"), 80);
  EXPECT_EQ(plain.at("outputs"), odd.at("outputs"));
}

TEST_F(Lab, WrongNamesAreAnsweredWithTheRightOnes) {
  EXPECT_NE(complaint("verfy").find("did you mean 'verify'?"), std::string::npos);
  EXPECT_NE(complaint("verify layernrom").find("did you mean 'layernorm'?"), std::string::npos);
  EXPECT_NE(complaint("verify layernorm --rowz 3").find("did you mean '--rows'?"),
            std::string::npos);
  EXPECT_NE(complaint("verify layernorm --dtype fp32").find("did you mean 'f32'?"),
            std::string::npos);
  EXPECT_NE(complaint("verify layernorm --input rand").find("did you mean 'randn'?"),
            std::string::npos);
  EXPECT_NE(complaint("verify layernorm --variant smid").find("did you mean 'simd"),
            std::string::npos);
  EXPECT_NE(complaint("verify layernorm --variant two_pas").find("did you mean 'two_pass'?"),
            std::string::npos);
  EXPECT_NE(complaint("verify layernorm --statistics givn").find("did you mean 'given'?"),
            std::string::npos);
  EXPECT_NE(complaint("verify layernorm --isa avx51").find("did you mean 'avx512'?"),
            std::string::npos);
  EXPECT_NE(complaint("verify elementwise --kind ad").find("did you mean 'add'?"),
            std::string::npos);
  EXPECT_NE(complaint("verify elementwise --plan streem=1").find("did you mean 'stream'?"),
            std::string::npos);
  EXPECT_NE(complaint("verify layernorm --grid quik").find("did you mean 'quick'?"),
            std::string::npos);
}

TEST_F(Lab, WrongValuesAreNamed) {
  EXPECT_NE(complaint("verify").find("needs an operator"), std::string::npos);
  EXPECT_NE(complaint("verify layernorm --rows x").find("--rows"), std::string::npos);
  EXPECT_NE(complaint("verify layernorm --rows -1").find("--rows is -1"), std::string::npos);
  EXPECT_NE(complaint("verify layernorm --threads 0").find("--threads is 0"), std::string::npos);
  EXPECT_NE(complaint("verify layernorm --eps big").find("--eps is 'big'"), std::string::npos);
  EXPECT_NE(complaint("verify layernorm --dtype i32").find("no layernorm dtype 'i32'"),
            std::string::npos);
  EXPECT_NE(complaint("verify elementwise --eps 1").find("no option --eps"), std::string::npos);
  EXPECT_NE(complaint("verify elementwise --plan stream=7").find("it takes 0, 1"),
            std::string::npos);
  EXPECT_NE(complaint("verify layernorm --cols 9 --row-stride 8").find("--row-stride is 8"),
            std::string::npos);
  EXPECT_NE(complaint("").find("Usage"), std::string::npos);
}

TEST_F(Lab, ADeviceWithoutVariantsIsAnError) {
  EXPECT_NE(complaint("verify layernorm --device cuda", 1).find("no variant for cuda"),
            std::string::npos);
}

TEST_F(Lab, ParityGivesOneHashInEveryWay) {
  for (const char* op : {"layernorm", "elementwise"}) {
    const Outcome outcome = isobit(std::string("parity ") + op + " --rows 7 --cols 130 --json");
    EXPECT_EQ(outcome.status, 0);
    std::map<std::string, std::set<std::string>> hashes;
    int declined = 0;
    for (const Json& line : outcome.lines()) {
      EXPECT_TRUE(line.at("way").is_string());
      EXPECT_NE(line.contains("declined"), line.contains("outputs"));
      declined += line.contains("declined");
      if (line.contains("outputs"))
        for (const auto& [name, output] : line.at("outputs").items())
          hashes[line.at("pass").get<std::string>() + name].insert(output.at("bits"));
    }
    EXPECT_GE(declined, 4);
    EXPECT_FALSE(hashes.empty());
    for (const auto& [name, values] : hashes) EXPECT_EQ(values.size(), 1u) << name;
  }
}

TEST_F(Lab, ParityNamesAnInstructionSetOnlyWhereItMatters) {
  std::set<std::string> ways;
  for (const Json& line : isobit("parity elementwise --rows 2 --cols 70 --json").lines()) {
    const std::string key = line.at("kind").get<std::string>() + line.at("way").get<std::string>();
    EXPECT_TRUE(ways.insert(key).second) << key << " is told twice";
  }
  EXPECT_TRUE(ways.contains("addscalar 1 thread"));
  EXPECT_TRUE(ways.contains("addsimd scalar 1 thread"));
}

TEST_F(Lab, StatisticsAreComputedOrGiven) {
  const std::string call = "layernorm --pass bwd --rows 5 --cols 70 --json";
  const auto told = [&](const std::string& arguments) {
    const Outcome outcome = isobit(arguments);
    EXPECT_EQ(outcome.status, 0) << arguments;
    return outcome.lines().at(0).at("statistics").get<std::string>();
  };
  EXPECT_EQ(told("verify " + call), "computed");
  EXPECT_EQ(told("verify --statistics given " + call), "given");
  EXPECT_EQ(told("parity --statistics given " + call), "given");
  EXPECT_EQ(told("bench --quick " + call), "given");
  EXPECT_EQ(told("bench --quick --statistics computed " + call), "computed");
  EXPECT_EQ(isobit("verify --variant scalar --statistics computed,given " + call).lines().size(),
            2u);
  EXPECT_EQ(isobit("verify --variant scalar --statistics computed,given --pass fwd --rows 5 "
                   "--cols 70 --json layernorm")
                .lines()
                .size(),
            1u);
}

TEST_F(Lab, BenchTellsItsFigures) {
  const Outcome outcome = isobit("bench elementwise --quick --rows 1 --cols 5000 --json");
  ASSERT_EQ(outcome.status, 0);
  ASSERT_EQ(outcome.lines().size(), 1u);
  const Json line = outcome.lines()[0];
  for (const char* key : {"median_us", "p20_us", "p80_us", "gbps", "copy_fraction"})
    EXPECT_GT(line.at(key).get<double>(), 0) << key;
  EXPECT_TRUE(line.at("peers").is_array());
  EXPECT_NEAR(line.at("gbps").get<double>() * line.at("median_us").get<double>(), 60, 0.01);
}

TEST_F(Lab, RunWritesEveryOutput) {
  write("x", {2, 3, 50}, 1);
  write("weight", {50}, 1);
  const std::string call = "run layernorm --in x=" + path("x.npy") +
                           " --in weight=" + path("weight.npy") + " --out " + path("out") +
                           " --dump --json";
  const Outcome outcome = isobit(call);
  ASSERT_EQ(outcome.status, 0);
  EXPECT_TRUE(outcome.lines().at(0).at("passed"));
  EXPECT_EQ(read_npy(path("out/y.npy")).shape, (std::vector<std::int64_t>{2, 3, 50}));
  EXPECT_EQ(read_npy(path("out/mean.npy")).shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_FALSE(std::filesystem::is_empty(path("out/intermediates")));
  EXPECT_EQ(isobit(call + " --variant scalar").lines().at(0).at("outputs"),
            outcome.lines().at(0).at("outputs"));
}

TEST_F(Lab, RunPrintsAbbreviatedArrays) {
  write("x", {20, 20}, 0);
  const Outcome outcome = isobit("run layernorm --print --in x=" + path("x.npy"));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.text.find("x (20, 20) f32\n ["), std::string::npos);
  EXPECT_NE(outcome.text.find("..."), std::string::npos);
}

TEST_F(Lab, RunNamesWhatIsMissingOrDoesNotFit) {
  write("x", {3, 8}, 0);
  write("weight", {7}, 0);
  const std::string x = " --in x=" + path("x.npy");
  EXPECT_NE(complaint("run layernorm").find("needs --in x="), std::string::npos);
  EXPECT_NE(complaint("run layernorm --pass bwd" + x).find("needs --in grad_y="),
            std::string::npos);
  EXPECT_NE(complaint("run layernorm --in wieght=w.npy" + x).find("did you mean 'weight'?"),
            std::string::npos);
  EXPECT_NE(complaint("run layernorm --in weight=" + path("weight.npy") + x)
                .find("weight has 7 elements"),
            std::string::npos);
  EXPECT_NE(complaint("run layernorm --in x=" + path("none.npy"), 1).find("cannot be opened"),
            std::string::npos);
}

TEST_F(Lab, ListDescribesEveryPass) {
  const std::vector<Json> lines = isobit("list --json").lines();
  std::set<std::string> passes;
  for (const Json& line : lines)
    passes.insert(line.at("op").get<std::string>() + " " + line.at("pass").get<std::string>());
  EXPECT_TRUE(passes.contains("elementwise fwd"));
  EXPECT_TRUE(passes.contains("layernorm bwd"));
  for (const Json& line : lines) {
    EXPECT_FALSE(line.at("variants").empty());
    const bool takes_f64 = line.at("dtypes").dump().find("f64") != std::string::npos;
    for (const Json& argument : line.at("arguments")) {
      if (argument.at("shape") != "(rows)") continue;
      EXPECT_EQ(argument.at("dtype"), takes_f64 ? "f32; f64 where x is f64" : "f32");
    }
  }
}

TEST_F(Lab, InfoAndDoctorSucceed) {
  const Outcome info = isobit("info --json");
  EXPECT_EQ(info.status, 0);
  EXPECT_GE(info.lines().at(0).at("threads"), 1);
  EXPECT_EQ(isobit("doctor").status, 0);
  EXPECT_EQ(isobit("--version").status, 0);
  EXPECT_EQ(isobit("verify --help").status, 0);
}

TEST_F(Lab, NoProgressBarInAPipe) {
  const Outcome outcome =
      shell(std::string(ISOBIT_BINARY) + " verify elementwise --rows 2 --cols 3 2>&1");
  EXPECT_EQ(outcome.text.find('\r'), std::string::npos);
}

}  // namespace
}  // namespace isobit::lab
