// SPDX-License-Identifier: Apache-2.0
// `isobit info` and `isobit doctor`: what this machine is, and what is missing on it.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>

#include "isobit/core/amx.h"
#include "isobit/dispatch/gpu_library.h"
#include "isobit/dispatch/plan_file.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/configurations.h"
#include "isobit/lab/devices.h"
#include "isobit/lab/output.h"
#include "isobit/lab/peers.h"
#include "isobit/lab/program_folder.h"
#include "isobit/lab/python.h"
#include "isobit/lab/triton.h"
#include "isobit/lab/verdict.h"
#include "isobit/ops/catalog.h"

namespace isobit::lab {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = __VERSION__;  // it says its name
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

std::string operating_system() {
  std::ifstream release("/etc/os-release");
  for (std::string line; std::getline(release, line);)
    if (line.starts_with("PRETTY_NAME=")) return line.substr(13, line.size() - 14);
  return "unknown";
}

std::string kernel() {
  utsname system{};
  uname(&system);
  return fmt::format("{} {} {}", system.sysname, system.release, system.machine);
}

std::string gpu_text(const DeviceLibrary& library) {
  const Gpu gpu = library.gpu();
  const std::string units =
      gpu.gfx != 0 ? fmt::format("gfx {}.{}, {} compute units", gpu.gfx / 10, gpu.gfx % 10,
                                 gpu.multiprocessors)
                   : fmt::format("sm_{}, {} multiprocessors", gpu.capability, gpu.multiprocessors);
  return fmt::format("{}, {}, {} KiB of shared memory in a block, {} MiB of L2", library.about(),
                     units, gpu.shared_bytes >> 10, gpu.l2_bytes >> 20);
}

// One line of the doctor's: of a library for GPUs, and how it is built.
std::pair<std::string_view, std::string> state_of(Device device, const GpuLibrary& gpu,
                                                  std::string_view built,
                                                  std::string_view packaged) {
  if (gpu.library != nullptr)
    return {"ok",
            fmt::format("{}: {}, from {}", name_of(device), gpu_text(*gpu.library), gpu.file)};
  if (!gpu.file.empty())
    return {"missing",
            fmt::format("{}: {} was loaded, but {}", name_of(device), gpu.file, gpu.missing)};
  return {"missing",
          fmt::format("{}: {}; {}", name_of(device), gpu.missing, checkout() ? built : packaged)};
}

std::string plans_text(const StoredPlans& stored) {
  if (!stored.missing.empty()) return "default (" + stored.missing + ")";
  return fmt::format("{} tuned, in {}", stored.table.size(), plan_file().string());
}

Json description(const Triton* triton) {
  const Machine& machine = Machine::here();
  const auto memory = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return {{"processor", processor_name()},
          {"isa", name_of(machine.isa)},
          {"amx", amx::why_not().empty() ? Json("tiles of bf16") : Json(nullptr)},
          {"threads", machine.threads},
          {"l1_bytes", machine.l1_bytes},
          {"l2_bytes", machine.l2_bytes},
          {"l3_bytes", machine.l3_bytes},
          {"memory_bytes", memory},
          {"gpu", cuda_library().library != nullptr ? Json(gpu_text(*cuda_library().library))
                                                    : Json(nullptr)},
          {"triton", triton != nullptr ? Json(triton->text()) : Json(nullptr)},
          {"os", operating_system()},
          {"kernel", kernel()},
          {"compiler", kCompiler},
          {"version", version()},
          {"plans", plans_text(read_plans(plan_file()))}};
}

std::string shown(const std::string& key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!key.ends_with("_bytes")) return value.dump();
  const double mebibytes = value.get<double>() / (1 << 20);
  return mebibytes < 1      ? fmt::format("{:.0f} KiB", mebibytes * 1024)
         : mebibytes < 1024 ? fmt::format("{:.0f} MiB", mebibytes)
                            : fmt::format("{:.1f} GiB", mebibytes / 1024);
}

// A small call of the default variant gives what the reference gives.
bool works(const Operation& operation) {
  Case c = cases_of(operation, Flags{}, "quick").front();
  for (std::size_t i = 0; i < operation.dims.size(); ++i)
    c.extents[i] = static_cast<int>(i) == operation.batch() ? 2 : 17;
  const Arguments options = operation.make_arguments();
  set_options(operation, c, options);
  operation.derive(c.extents, options);
  Workload workload(c);
  workload.draw();
  for (const Configuration& configuration :
       configurations_of(workload, Flags{}, Unnamed::best).able) {
    run(workload, configuration);
    return Judge(workload)().passed();
  }
  return false;
}

}  // namespace

const char* version() { return ISOBIT_VERSION; }

int info(const Flags& flags) {
  std::string no_triton;
  const Json machine = description(Triton::find(no_triton));
  const std::map<std::string, std::string> missing = {
      {"amx", amx::why_not()}, {"gpu", cuda_library().missing}, {"triton", no_triton}};
  if (!flags.out.empty()) {
    std::filesystem::create_directories(flags.out);
    const std::filesystem::path path = flags.out / "info.json";
    std::ofstream file(path);
    if (!(file << machine.dump() << "\n" << std::flush))
      throw std::runtime_error(fmt::format("{}: cannot be written", path.string()));
  }
  if (flags.json) {
    fmt::print("{}\n", machine.dump());
    return kPassed;
  }
  for (const auto& [key, value] : machine.items()) {
    const std::string name = key.ends_with("_bytes") ? key.substr(0, key.size() - 6) : key;
    fmt::print("{:<10} {}\n", name,
               value.is_null() ? "none: " + missing.at(key) : shown(key, value));
  }
  return kPassed;
}

int doctor(const Flags& flags) {
  attach_devices();
  bool healthy = true;
  JsonLines lines(flags, "doctor");
  const auto say = [&](std::string_view state, std::string_view what) {
    lines.add({{"state", state}, {"what", what}});
    if (!flags.json) fmt::print("{:<8} {}\n", state, what);
  };
  for (const Operation* operation : catalog()) {
    const bool able = works(*operation);
    healthy &= able;
    say(able ? "ok" : "broken", fmt::format("{} {}", operation->op, operation->pass));
  }
  say("ok", fmt::format("instruction set {}", name_of(Machine::here().isa)));
  if (const StoredPlans stored = read_plans(plan_file()); stored.missing.empty())
    say("ok", fmt::format("plans: {}", plans_text(stored)));
  else
    say("missing", fmt::format("tuned plans: {}; `isobit tune OP` measures them", stored.missing));
  if (attached(Device::emu) != nullptr)
    say("ok", "emu: the GPU kernels, executed by an emulator");
  else
    say("missing", fmt::format("emu: {}", missing_device(Device::emu)));
  for (Device device : kExecutors)
    if (attached(device) != nullptr)
      say("ok", fmt::format("{}: what {} made of the GPU kernels, executed by an executor",
                            name_of(device), device == Device::ptx ? "nvcc" : "ptxas"));
    else if (checkout())  // packages never contain it
      say("missing", fmt::format("{}: {}", name_of(device), missing_device(device)));
  for (const auto& [state, what] :
       {state_of(Device::cuda, cuda_library(), "`make kernels` builds it",
                 "packages built with nvcc contain it"),
        state_of(Device::hip, hip_library(), "`make kernels-hip` builds it",
                 "no package contains it")})
    say(state, what);

  const Peers peers = load_peers(peer_folder());
  for (const Peer& peer : peers.available)
    say("ok", fmt::format("peer {} {}", peer.name(), peer.version()));
  for (const std::string& reason : peers.unavailable)
    say("missing", fmt::format("peer {}; {}", reason,
                               checkout() ? "`make build` builds the available peers"
                                          : "peers need a checkout"));

  const PythonRun python = run_python({"-m", "isobit.lab.callers"}, kPythonLimit);
  for (const Json& piece : python.said)
    say(piece.at("state").get<std::string>(), piece.at("what").get<std::string>());
  if (!python.trouble.empty())
    say("missing", fmt::format("Python for reports and comparisons: {}", python.trouble));
  return healthy ? kPassed : kFailed;
}

}  // namespace isobit::lab
