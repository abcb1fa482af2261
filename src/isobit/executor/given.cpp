// SPDX-License-Identifier: Apache-2.0
#include "isobit/executor/given.h"

#include <cstring>
#include <string_view>
#include <vector>

#include "isobit/executor/elf_registers.h"
#include "isobit/executor/memory.h"
#include "isobit/executor/program.h"
#include "isobit/executor/settings.h"

namespace isobit::executor {
namespace {

// The caller's memory, among what kernels may touch.
class Loan {
 public:
  Loan(const IsobitLent* lent, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (!memory().lend(lent[i].begin, lent[i].bytes)) {
        end();
        throw LaunchError("memory that is lent begins within a sector, or is lent already");
      }
      begins_.push_back(lent[i].begin);
    }
  }
  ~Loan() { end(); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

 private:
  void end() {
    for (void* begin : begins_) memory().release(begin);
  }

  std::vector<void*> begins_;
};

std::vector<std::byte> buffer_of(const Function& kernel, const IsobitGivenLaunch& given) {
  if (given.parameter_count != kernel.parameters.size())
    throw LaunchError(kernel.name + " has " + std::to_string(kernel.parameters.size()) +
                      " parameters; given are " + std::to_string(given.parameter_count));
  std::vector<std::byte> buffer(kernel.parameter_bytes);
  for (std::size_t i = 0; i < given.parameter_count; ++i) {
    const Variable& parameter = kernel.parameters[i];
    if (parameter.bytes > sizeof given.parameters[i])
      throw LaunchError(kernel.name + ": parameter " + std::to_string(i) + " has " +
                        std::to_string(parameter.bytes) + " bytes");
    std::memcpy(&buffer[parameter.offset], &given.parameters[i], parameter.bytes);
  }
  return buffer;
}

}  // namespace

void launch_given(const IsobitGivenLaunch& given, std::map<std::string, Total>& totals,
                  bool in_full) {
  Module module(given.ptx);
  const Function* kernel = module.find(given.kernel);
  if (kernel == nullptr) throw LaunchError("no kernel " + std::string(given.kernel) + " in PTX");
  const std::vector<std::byte> parameters = buffer_of(*kernel, given);
  const Loan loan(given.lent, given.lent_count);
  const auto& [x, y, z] = given.grid;
  const LaunchShape shape{.blocks = x * y * z,
                          .threads = given.threads,
                          .shared_bytes = given.shared_bytes,
                          .along_y = y,
                          .along_z = z};
  const std::string_view code(static_cast<const char*>(given.machine_code),
                              given.machine_code_bytes);
  Total& total = totals[kernel->name];
  total.counters.in_full = in_full;
  ++total.launches;
  total.blocks += static_cast<std::uint64_t>(shape.blocks);
  total.shape = shape;
  total.registers = registers_in(code)[given.kernel];
  launch(*kernel, shape, parameters.data(), total.counters, settings().schedule, settings().limits);
}

}  // namespace isobit::executor
