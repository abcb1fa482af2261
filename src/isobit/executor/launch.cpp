// SPDX-License-Identifier: Apache-2.0
// The scheduler: clusters come as there is room; warps run in turn, each until it has to wait or
// its turn is over; within a warp the group that is furthest behind goes on, so that groups meet
// again.
#include "isobit/executor/launch.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>

#include "isobit/executor/memory.h"
#include "isobit/executor/warp.h"

namespace isobit::executor {

Current current;

void fail(const Warp& warp, const Instruction& instruction, const std::string& what) {
  const Function& function =
      *(warp.group != nullptr ? warp.group->frame : warp.frames.back().get())->function;
  const auto index = &instruction - function.code.data();
  const bool known = index >= 0 && index < std::ssize(function.code);
  throw LaunchError(what + "; block " + std::to_string(warp.block->index) + ", warp " +
                    std::to_string(warp.index) + ", " + function.place_of(instruction) +
                    (known ? ", " + function.opcodes[static_cast<std::size_t>(index)] : "") +
                    ", in " + function.name);
}

std::string Function::place_of(const Instruction& instruction) const {
  if (!is_machine_code) return "PTX line " + std::to_string(instruction.line);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string address;
  for (std::uint32_t rest = instruction.line; rest != 0 || address.empty(); rest /= 16)
    address.insert(address.begin(), kDigits[rest % 16]);
  return "machine code at 0x" + address;
}

namespace {

constexpr std::size_t kSharedAlignment = 1024;
constexpr std::byte kPoison{0xff};

// Whether the instruction reads what the load brings.
bool needs(const Instruction& instruction, const Warp::Load& load) {
  const bool only_address = instruction.execute == executor::load;
  for (int i = only_address ? 4 : 0; i < (only_address ? 7 : 14); ++i)
    for (int j = 0; j < load.count; ++j)
      if (instruction.slots[i] != kNoSlot && instruction.slots[i] == load.slots[j]) return true;
  return false;
}

// A move between registers of PTX waits for nothing: machine code has no such.
void move_along(const Instruction& move, Warp::Load& load) {
  const bool unpacks = move.execute == unpack;
  const int first = unpacks ? 1 : 0, end = unpacks ? 1 + move.count : 1;
  for (int i = first; i < end && load.count < static_cast<int>(std::size(load.slots)); ++i)
    load.slots[load.count++] = move.slots[i];
}

// Loads come back in order: with the one that is needed all before it.
void await_loads(Warp& warp, const Instruction& instruction) {
  for (std::size_t i = warp.loads.size(); i-- > 0;) {
    if (!needs(instruction, warp.loads[i])) continue;
    if (instruction.kind == Kind::move && !warp.group->frame->function->is_machine_code) {
      move_along(instruction, warp.loads[i]);
      continue;
    }
    Counters& counters = *warp.counters;
    ++counters.waits;
    counters.awaited_bytes += warp.awaited_bytes;
    counters.most_awaited = std::max(counters.most_awaited, warp.awaited_bytes);
    for (std::size_t n = 0; n <= i; ++n) {
      warp.awaited_bytes -= warp.loads.front().bytes;
      warp.loads.pop_front();
    }
    return;
  }
}

bool may_merge(const Group& group) {
  return group.state == State::runs || group.state == State::awaits_lanes;
}

// Groups that stand at one instruction of one call go on together.
void merge_groups(Warp& warp) {
  for (std::size_t i = 0; i < warp.groups.size(); ++i)
    for (std::size_t j = i + 1; j < warp.groups.size();) {
      Group& one = warp.groups[i];
      const Group& other = warp.groups[j];
      if (one.at == other.at && one.frame == other.frame && may_merge(one) && may_merge(other)) {
        one.lanes |= other.lanes;
        one.state = State::runs;
        warp.groups.erase(warp.groups.begin() + static_cast<std::ptrdiff_t>(j));
      } else {
        ++j;
      }
    }
}

// The group that runs: the one furthest behind in the deepest call.
Group* choose_group(Warp& warp) {
  Group* best = nullptr;
  for (Group& group : warp.groups) {
    if (group.state != State::runs) continue;
    if (best == nullptr || group.frame->depth > best->frame->depth ||
        (group.frame->depth == best->frame->depth && group.at < best->at))
      best = &group;
  }
  return best;
}

// Runs a group until it goes elsewhere, reaches another group, or has used up its turn. Returns how
// many instructions it executed.
std::uint64_t run_group(Warp& warp, Group& group, std::uint64_t turn) {
  std::uint32_t until = 0xffff'ffff;
  for (const Group& other : warp.groups)
    if (&other != &group && other.frame == group.frame && other.at > group.at && may_merge(other))
      until = std::min(until, other.at);
  warp.group = &group;
  warp.next = group.at;
  warp.registers = group.frame->registers.data();
  warp.constants = group.frame->function->constants.data();
  const Instruction* code = group.frame->function->code.data();
  Counters& counters = *warp.counters;
  std::uint64_t executed = 0;
  while (executed < turn) {
    const Instruction& instruction = code[warp.next++];
    std::uint32_t lanes = warp.group->lanes;
    if (instruction.guard != kNoSlot) {
      const std::uint32_t predicate = *warp.in<std::uint32_t>(instruction.guard);
      lanes &= instruction.unless ? ~predicate : predicate;
    }
    ++executed;
    ++counters.by_kind[static_cast<int>(instruction.kind)];
    counters.lanes += static_cast<std::uint64_t>(std::popcount(lanes));
    if (lanes != 0) {
      warp.lanes = lanes;
      warp.leaves_row = false;
      if (!warp.loads.empty() && instruction.kind != Kind::control) await_loads(warp, instruction);
      instruction.execute(warp, instruction);
      if (warp.leaves_row && (warp.group == nullptr || warp.groups.size() > 1)) break;
    }
    if (warp.next >= until) break;
  }
  if (warp.group != nullptr) warp.group->at = warp.next;
  warp.group = nullptr;
  counters.instructions += executed;
  return executed;
}

// Returns how many instructions the warp executed before nobody in it could go on, or its turn was
// over.
std::uint64_t run_warp(Warp& warp, std::uint64_t turn) {
  std::uint64_t executed = 0;
  for (Group& group : warp.groups)
    if (group.state == State::awaits_copies) group.state = State::runs;
  while (executed < turn) {
    if (warp.groups.size() > 1) merge_groups(warp);
    Group* group = choose_group(warp);
    if (group == nullptr) break;
    executed += run_group(warp, *group, turn - executed);
  }
  return executed;
}

// The parameters; for machine code behind what the driver puts there. What is not known stays NaN.
std::vector<std::byte> bank_of(const Function& kernel, const LaunchShape& shape,
                               const std::byte* parameters) {
  const std::size_t before = kernel.is_machine_code ? kParametersInBank : 0;
  std::vector<std::byte> bank(before + kernel.parameter_bytes, kPoison);
  std::copy_n(parameters, kernel.parameter_bytes,
              bank.begin() + static_cast<std::ptrdiff_t>(before));
  if (kernel.is_machine_code) write_launch(bank, shape);
  return bank;
}

class Scheduler {
 public:
  Scheduler(const Function& kernel, const LaunchShape& shape, const std::byte* parameters,
            Counters& counters, const Schedule& schedule, const Limits& limits)
      : kernel_(kernel),
        shape_(shape),
        bank_(bank_of(kernel, shape, parameters)),
        schedule_(schedule),
        limits_(limits),
        counters_(counters),
        most_instructions_(counters.instructions + limits.instructions),
        random_(schedule.seed),
        resident_(std::max(1, schedule.resident / shape.cluster)) {}

  void run() {
    while (next_block_ < shape_.blocks || !clusters_.empty()) {
      while (static_cast<int>(clusters_.size()) < resident_ && next_block_ < shape_.blocks) start();
      if (!turn()) explain_deadlock();
      if (counters_.instructions > most_instructions_)
        throw LaunchError("more than " + std::to_string(limits_.instructions) +
                          " instructions: the kernel does not end");
      std::erase_if(clusters_, [&](const auto& cluster) {
        if (cluster->live > 0) return false;
        retire(*cluster);
        return true;
      });
    }
  }

 private:
  void start() {
    auto cluster = std::make_unique<Cluster>();
    const auto bytes = static_cast<std::size_t>(shape_.shared_bytes);
    for (int rank = 0; rank < shape_.cluster; ++rank) {
      auto block = std::make_unique<Block>();
      block->cluster = cluster.get();
      block->index = next_block_++;
      block->rank = rank;
      block->live = shape_.threads;
      block->shared = arena(bytes);
      std::fill_n(block->shared, bytes, kPoison);
      for (int first = 0; first < shape_.threads; first += kLanes)
        block->warps.push_back(new_warp(*block, first));
      cluster->live += shape_.threads;
      cluster->blocks.push_back(std::move(block));
    }
    clusters_.push_back(std::move(cluster));
  }

  // Shared memory is no array in global memory, so it lies on pages of its own.
  std::byte* arena(std::size_t bytes) {
    if (free_arenas_.empty()) {
      arenas_.push_back(
          std::make_unique<Pages>(std::max<std::size_t>(bytes, 1) + kSharedAlignment));
      return arenas_.back()->begin();
    }
    std::byte* found = free_arenas_.back();
    free_arenas_.pop_back();
    return found;
  }

  std::unique_ptr<Warp> new_warp(Block& block, int first) {
    std::unique_ptr<Warp> warp;
    if (spare_.empty()) {
      warp = std::make_unique<Warp>();
      warp->local = std::make_unique_for_overwrite<std::byte[]>(kLanes * kLocalBytes);
    } else {
      warp = std::move(spare_.back());
      spare_.pop_back();
    }
    const int lanes = std::min(kLanes, shape_.threads - first);
    warp->block = &block;
    warp->index = first / kLanes;
    warp->all = warp->live = lanes == kLanes ? kAllLanes : (1U << lanes) - 1;
    warp->counters = &counters_;
    warp->parameters = bank_.data() + (kernel_.is_machine_code ? kParametersInBank : 0);
    warp->loads.clear();
    warp->awaited_bytes = 0;
    warp->copies.clear();
    std::fill_n(warp->committed, kLanes, 0);
    warp->products = {};
    for (auto& frame : warp->frames) warp->spare_frames.push_back(std::move(frame));
    warp->frames.clear();
    Frame* frame = new_frame(*warp, kernel_);
    frame->caller = nullptr;
    frame->call = nullptr;
    frame->depth = frame->local = 0;
    frame->lanes = warp->all;
    warp->groups = {{.lanes = warp->all, .frame = frame}};
    return warp;
  }

  void retire(Cluster& cluster) {
    for (const auto& block : cluster.blocks) {
      free_arenas_.push_back(block->shared);
      for (auto& warp : block->warps) spare_.push_back(std::move(warp));
    }
  }

  std::vector<Warp*> live_warps() const {
    std::vector<Warp*> warps;
    for (const auto& cluster : clusters_)
      for (const auto& block : cluster->blocks)
        for (const auto& warp : block->warps)
          if (warp->live != 0) warps.push_back(warp.get());
    return warps;
  }

  // Whether any warp went on.
  bool turn() {
    const std::vector<Warp*> all = live_warps();
    std::vector<Warp*> warps = all;
    if (schedule_.order == Order::reversed) std::reverse(warps.begin(), warps.end());
    if (schedule_.order == Order::random) std::shuffle(warps.begin(), warps.end(), random_);
    if (schedule_.order == Order::starving) starve(warps);
    bool moved = false;
    for (Warp* warp : warps) {
      if (warp->live == 0) continue;
      const std::uint64_t waiting = counters_.by_kind[static_cast<int>(Kind::sync)];
      const std::uint64_t executed = run_warp(*warp, length_of_turn());
      // Who only looked whether a wait is over has not gone on.
      moved |= executed > counters_.by_kind[static_cast<int>(Kind::sync)] - waiting;
    }
    return moved || went_on_at_barriers(all);
  }

  // A barrier that was the last instruction of a turn may have let others go on.
  static bool went_on_at_barriers(const std::vector<Warp*>& warps) {
    return std::ranges::any_of(warps, [](const Warp* warp) {
      return warp->live != 0 && std::ranges::any_of(warp->groups, [](const Group& group) {
               return group.state == State::runs;
             });
    });
  }

  std::uint64_t length_of_turn() {
    constexpr std::uint64_t kTurn = 100'000;
    return schedule_.order == Order::random ? 1 + random_() % 200 : kTurn;
  }

  // A few warps go on, and who they are changes rarely; the others do so once these cannot.
  void starve(std::vector<Warp*>& warps) {
    if (turns_++ % 8 == 0) favour_ = random_();
    std::mt19937_64 order(favour_);
    std::shuffle(warps.begin(), warps.end(), order);
    const auto can = [](const Warp* warp) {
      return std::ranges::any_of(warp->groups,
                                 [](const Group& g) { return g.state == State::runs; });
    };
    std::vector<Warp*> few;
    for (Warp* warp : warps)
      if (few.size() < 2 && can(warp)) few.push_back(warp);
    if (!few.empty()) warps = few;
  }

  [[noreturn]] void explain_deadlock() const {
    static constexpr const char* kStates[] = {"goes on", "waits at the block's barrier",
                                              "waits at the cluster's barrier",
                                              "waits for lanes of its warp", "waits for copies"};
    std::string who;
    int told = 0;
    for (const Warp* warp : live_warps())
      for (const Group& group : warp->groups)
        if (told++ < 4)
          who += "; block " + std::to_string(warp->block->index) + ", warp " +
                 std::to_string(warp->index) + " " + kStates[static_cast<int>(group.state)] +
                 " at " + group.frame->function->place_of(group.frame->function->code[group.at]);
    throw LaunchError("nobody can go on" + who + "; in " + kernel_.name);
  }

  const Function& kernel_;
  const LaunchShape shape_;
  const std::vector<std::byte> bank_;  // with the parameters
  const Schedule schedule_;
  const Limits limits_;
  Counters& counters_;
  const std::uint64_t most_instructions_;
  std::mt19937_64 random_;
  const int resident_;  // clusters
  std::uint64_t turns_ = 0, favour_ = 0;
  std::int64_t next_block_ = 0;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<std::unique_ptr<Warp>> spare_;
  std::vector<std::unique_ptr<Pages>> arenas_;
  std::vector<std::byte*> free_arenas_;
};

}  // namespace

void launch(const Function& kernel, const LaunchShape& shape, const std::byte* parameters,
            Counters& counters, const Schedule& schedule, const Limits& limits) {
  if (shape.threads < 1 || shape.threads > kernel.most_threads)
    throw LaunchError(std::to_string(shape.threads) + " threads a block; the kernel takes " +
                      std::to_string(kernel.most_threads));
  if (shape.shared_bytes > limits.shared_bytes)
    throw LaunchError(std::to_string(shape.shared_bytes) + " bytes of shared memory; a block has " +
                      std::to_string(limits.shared_bytes));
  if (shape.blocks < 1 || shape.cluster < 1 || shape.blocks % shape.cluster != 0)
    throw LaunchError(std::to_string(shape.blocks) + " blocks in clusters of " +
                      std::to_string(shape.cluster));
  current = {shape,
             &kernel,
             schedule.copies_land_early,
             limits.capability,
             schedule.approximation,
             schedule.long_divisions};
  memory().forget_sectors();
  Scheduler(kernel, shape, parameters, counters, schedule, limits).run();
}

namespace {
std::int64_t along_x() {
  return current.shape.blocks / (current.shape.along_y * current.shape.along_z);
}
}  // namespace

#define ISOBIT_SPECIAL(name, value)                                                                \
  if (register_name == (name))                                                                     \
    return [](Warp& warp, const Instruction& instruction) {                                        \
      std::uint32_t* to = warp.out<std::uint32_t>(instruction.slots[0]);                           \
      for_lanes(warp.lanes,                                                                        \
                [&]([[maybe_unused]] int lane) { to[lane] = static_cast<std::uint32_t>(value); }); \
    };

Handler special_register(std::string_view register_name) {
  ISOBIT_SPECIAL("%tid.x", warp.index * kLanes + lane)
  ISOBIT_SPECIAL("%ntid.x", current.shape.threads)
  ISOBIT_SPECIAL("%ctaid.x", warp.block->index % along_x())
  ISOBIT_SPECIAL("%ctaid.y", warp.block->index / along_x() % current.shape.along_y)
  ISOBIT_SPECIAL("%ctaid.z", warp.block->index / along_x() / current.shape.along_y)
  ISOBIT_SPECIAL("%nctaid.x", along_x())
  ISOBIT_SPECIAL("%nctaid.y", current.shape.along_y)
  ISOBIT_SPECIAL("%nctaid.z", current.shape.along_z)
  ISOBIT_SPECIAL("%laneid", lane)
  ISOBIT_SPECIAL("%warpid", warp.index)
  ISOBIT_SPECIAL("%cluster_ctarank", warp.block->rank)
  ISOBIT_SPECIAL("%cluster_nctarank", current.shape.cluster)
  return nullptr;
}

#undef ISOBIT_SPECIAL

}  // namespace isobit::executor
