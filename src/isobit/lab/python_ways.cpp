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

constexpr const char* kWays[] = {"NumPy", "PyTorch eager", "PyTorch compiled",
                                 "PyTorch eager on cuda", "PyTorch compiled on cuda"};

NpyArray to_file(const Array& array, Extent extent) {
  const Form& form = array.form();
  NpyArray file{form.dtype, {form.elements()}, {}};
  if (extent == Extent::matrix) file.shape = {form.rows, form.cols};
  for (std::int64_t row = 0; row < form.rows; ++row)
    file.data.insert(file.data.end(), array.row(row),
                     array.row(row) + form.cols * size_of(form.dtype));
  return file;
}

std::string bits_of(const NpyArray& file) {
  const Array array({file.dtype, 1, file.elements()}, file.elements(), 0, {});
  std::ranges::copy(file.data, array.row(0));
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
    write_npy(folder / (name + ".npy"), to_file(*array, argument.extent));
  }
  std::ofstream(folder / "case.json") << call.dump();
}

Called called_of(const Json& line, const std::filesystem::path& folder) {
  Called called{.way = line.at("way")};
  if (line.contains("declined")) {
    called.declined = line.at("declined");
    return called;
  }
  for (const std::string name : line.at("outputs"))
    called.outputs.emplace(name, bits_of(read_npy(folder / called.way / (name + ".npy"))));
  return called;
}

}  // namespace

std::vector<Called> call_from_python(const Workload& workload, int threads) {
  const TemporaryFolder folder;
  write_call(workload, threads, folder.path());
  const PythonRun run = run_python({"-m", "isobit.ways", folder.path()}, kPythonLimit);
  std::vector<Called> all;
  for (const Json& line : run.said) all.push_back(called_of(line, folder.path()));
  for (const char* way : kWays) {
    if (std::ranges::find(all, way, &Called::way) != all.end()) continue;
    const std::string why = run.trouble.empty() ? "Python said nothing of it" : run.trouble;
    all.push_back({way, {}, why + "; `isobit doctor` says more"});
  }
  return all;
}

}  // namespace isobit::lab
