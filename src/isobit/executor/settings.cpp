// SPDX-License-Identifier: Apache-2.0
#include "isobit/executor/settings.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string_view>

namespace isobit::executor {
namespace {

Settings read_settings() {
  Settings settings;
  const char* text = std::getenv("ISOBIT_EXECUTOR");
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; std::getline(words, word, ',');) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    const auto number = [&] { return std::strtoll(value.c_str(), nullptr, 10); };
    static constexpr std::string_view kOrders[] = {"in_order", "reversed", "random", "starving"};
    const auto* order = std::find(std::begin(kOrders), std::end(kOrders), value);
    if (name == "order" && order != std::end(kOrders))
      settings.schedule.order = static_cast<Order>(order - std::begin(kOrders));
    else if (name == "seed")
      settings.schedule.seed = static_cast<std::uint64_t>(number());
    else if (name == "resident")
      settings.schedule.resident = static_cast<int>(number());
    else if (name == "early")
      settings.schedule.copies_land_early = number() != 0;
    else if (name == "approximation")
      settings.schedule.approximation = static_cast<int>(number());
    else if (name == "long_divisions")
      settings.schedule.long_divisions = number() != 0;
    else if (name == "sm")
      settings.limits.capability = static_cast<int>(number());
    else if (name == "multiprocessors")
      settings.multiprocessors = static_cast<int>(number());
    else if (name == "instructions")
      settings.limits.instructions = static_cast<std::uint64_t>(number());
    else if (name == "counters")
      settings.counters = value;
    else
      settings.wrong = "ISOBIT_EXECUTOR: unknown: " + word;
  }
  return settings;
}

}  // namespace

const Settings& settings() {
  static const Settings kSettings = read_settings();
  return kSettings;
}

}  // namespace isobit::executor
