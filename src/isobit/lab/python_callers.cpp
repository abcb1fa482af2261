// SPDX-License-Identifier: Apache-2.0
// Has Python compute a workload: the inputs go there as files, and the outputs come back so.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "isobit/lab/callers.h"
#include "isobit/lab/npy.h"
#include "isobit/lab/python.h"
#include "isobit/lab/temporary_folder.h"

namespace isobit::lab {
namespace {

constexpr const char* kConfigurations[] = {"NumPy", "PyTorch eager", "PyTorch compiled",
                                           "PyTorch eager on cuda", "PyTorch compiled on cuda"};

NpyArray to_file(const Array& array) {
  return {array.form().dtype, array.form().extents, array.packed()};
}

std::string bits_of(const NpyArray& file) {
  const Array array({file.dtype, {file.elements()}});
  array.unpack(file.data);
  return bits(array);
}

void write_call(const Workload& workload, int threads, const std::filesystem::path& folder) {
  Json call = describe(workload.the_case());
  call["threads"] = threads;
  call["inputs"] = Json::object();
  call["outputs"] = Json::array();
  for (const Argument& argument : workload.operation().arguments) {
    const Array* array = workload.find(argument.name);
    if (array == nullptr) continue;
    const std::string name(argument.name);
    if (argument.role == Role::output) {
      call["outputs"].push_back(name);
      continue;
    }
    call["inputs"][name] = name_of(array->form().dtype);
    write_npy(folder / (name + ".npy"), to_file(*array));
  }
  std::ofstream(folder / "case.json") << call.dump();
}

Called called_of(const Json& line, const std::filesystem::path& folder) {
  Called called{.configuration = line.at("configuration")};
  if (line.contains("unavailable")) {
    called.declined = line.at("unavailable");
    return called;
  }
  for (const std::string name : line.at("outputs"))
    called.outputs.emplace(name,
                           bits_of(read_npy(folder / called.configuration / (name + ".npy"))));
  return called;
}

}  // namespace

std::vector<Called> call_from_python(const Workload& workload, int threads) {
  const TemporaryFolder folder;
  write_call(workload, threads, folder.path());
  const PythonRun run = run_python({"-m", "isobit.lab.callers", folder.path()}, kPythonLimit);
  std::vector<Called> all;
  for (const Json& line : run.said) all.push_back(called_of(line, folder.path()));
  for (const char* configuration : kConfigurations) {
    if (std::ranges::find(all, configuration, &Called::configuration) != all.end()) continue;
    const std::string why = run.trouble.empty() ? "Python reported nothing about it" : run.trouble;
    all.push_back({configuration, {}, why + "; run `isobit doctor` for details"});
  }
  return all;
}

}  // namespace isobit::lab
