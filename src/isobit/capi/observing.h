// SPDX-License-Identifier: Apache-2.0
// Who sees the calls that come through the C interface, and how a call is shown to them. Where
// nobody watches, a call asks for that and does nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "isobit/core/execution.h"
#include "isobit/dispatch/operation.h"

namespace isobit::capi {

// An option of which a double may not hold every bit.
struct WholeOption {
  std::string_view name;
  std::uint64_t value;
};

struct Observed {
  const Operation& operation;
  const Arguments& args;
  std::span<const WholeOption> wholes;
  Device device;
};

class Observer {
 public:
  virtual ~Observer() = default;
  // Of a call whose arguments were read and not checked. What it returns is given to `after`.
  virtual std::shared_ptr<void> before(const Observed&) { return nullptr; }
  // Of a call that succeeded; begin and end are nanoseconds of the steady clock.
  virtual void after(const Observed& call, std::int64_t begin, std::int64_t end,
                     const std::shared_ptr<void>& before) = 0;
};

// There is a place for each of them; the one before is returned once no call is being shown to it.
enum class Watch : std::uint8_t { observer, recorder };
std::unique_ptr<Observer> exchange_observer(Watch role, std::unique_ptr<Observer> next);

inline std::atomic<int> observers = 0;

void observe(const Operation& operation, const Arguments& args, std::span<const WholeOption> wholes,
             Device device, const std::function<void()>& call);
const Operation& operation_titled(std::string_view title);

// Runs call(), which computes the operation of this title on these arguments.
template <class Args, class Call>
void observed(std::string_view title, const Args& args, const Execution& execution, Call call) {
  if (observers.load(std::memory_order_relaxed) == 0) [[likely]]
    return call();
  std::vector<WholeOption> wholes;
  if constexpr (requires { args.dropout_seed; })
    wholes.push_back({"dropout_seed", static_cast<std::uint64_t>(args.dropout_seed)});
  if constexpr (requires { args.seed; })
    wholes.push_back({"seed", static_cast<std::uint64_t>(args.seed)});
  if constexpr (requires { args.random_seed; }) {
    wholes.push_back({"random_seed", args.random_seed});
    wholes.push_back({"random_offset", args.random_offset});
  }
  // Nobody owns them here: they outlive the call.
  const Arguments shown(std::shared_ptr<void>(std::shared_ptr<void>(), const_cast<Args*>(&args)));
  observe(operation_titled(title), shown, wholes, execution.machine.device, call);
}

}  // namespace isobit::capi
