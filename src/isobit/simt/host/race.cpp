// SPDX-License-Identifier: Apache-2.0
// Finds data races of emulated kernels by what happens before what, whatever the schedule. Kernels
// compiled with -fsanitize=thread call the functions at the end; this file is linked in place of
// the sanitizer's own run-time, which knows neither shared memory nor a thousand fibers. It is
// itself compiled without.
#include "isobit/simt/host/race.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>
#include <unordered_map>
#include <utility>
#include <vector>

namespace isobit::simt::host {
namespace {

using Clocks = std::vector<std::uint32_t>;  // one for each thread of the launch

void join(Clocks& into, const Clocks& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

struct Runner {
  std::uint32_t id;
  Self self;
  Clocks seen;
};

struct Access {
  const void* code = nullptr;
  std::uint32_t thread = 0, clock = 0;
  std::uint8_t bytes = 0;  // of the word, a bit each; none: no access
  bool atomic = false, writes = false;
};

struct Word {
  Access write, reads[4];
  std::uint64_t use = 0;  // which of its page's this tells of; an earlier one's is forgotten
};
constexpr std::uintptr_t kWordBytes = 2;  // the smallest element
constexpr std::uintptr_t kPageBytes = 4096;
struct Page {
  std::uint64_t use = 0;
  Word words[kPageBytes / kWordBytes];
};

std::string place(const void* code) {
  Dl_info info = {};
  if (dladdr(code, &info) == 0) return "?";
  // One before the return address: the call.
  const auto offset = static_cast<const char*>(code) - static_cast<const char*>(info.dli_fbase) - 1;
  char line[512] = "?";
  std::ostringstream command;
  command << "addr2line -s -e '" << info.dli_fname << "' " << std::hex << "0x" << offset;
  if (FILE* output = popen(command.str().c_str(), "r")) {
    if (std::fgets(line, sizeof line, output) == nullptr) std::strcpy(line, "?");
    pclose(output);
  }
  line[std::strcspn(line, " \n")] = 0;
  return line;
}

class RaceDetector final : public Observer {
 public:
  void* started(const Self& self) override {
    auto runner = std::make_unique<Runner>();
    runner->id = static_cast<std::uint32_t>(runners_.size());
    runner->self = self;
    runner->seen.resize(runner->id + 1);
    runner->seen[runner->id] = 1;
    return runners_.emplace_back(std::move(runner)).get();
  }
  void finished(void*) override {}
  void runs(void* identity) override { current_ = static_cast<Runner*>(identity); }

  void acquire(const void* tag) override {
    if (const auto found = released_.find(tag); found != released_.end())
      join(current_->seen, found->second);
  }
  void release(const void* tag) override {
    join(released_[tag], current_->seen);
    ++current_->seen[current_->id];
  }

  void access(const void* address, std::size_t bytes, bool writes) override {
    access(address, bytes, writes, false, __builtin_return_address(0));
  }
  void access(const void* address, std::size_t bytes, bool writes, bool atomic, const void* code) {
    if (current_ == nullptr || on_own_stack(address)) return;  // launches order the host
    const auto begin = reinterpret_cast<std::uintptr_t>(address), end = begin + bytes;
    for (auto at = begin / kWordBytes * kWordBytes; at < end; at += kWordBytes) {
      Access now{code, current_->id, current_->seen[current_->id], 0, atomic, writes};
      for (std::uintptr_t i = 0; i < kWordBytes; ++i)
        if (at + i >= begin && at + i < end) now.bytes |= 1u << i;
      note(at, now);
    }
  }

  // Shared memory of the next block: whoever used it before is no matter.
  void forget(const void* address, std::size_t bytes) override {
    const auto begin = reinterpret_cast<std::uintptr_t>(address) / kPageBytes;
    for (std::uintptr_t page = begin; page * kPageBytes < begin * kPageBytes + bytes; ++page)
      if (auto known = pages_.extract(page)) unused_.push_back(std::move(known.mapped()));
    last_page_ = nullptr;
  }

  std::string findings() override {
    std::string found = std::exchange(findings_, {});
    current_ = nullptr;
    last_page_ = nullptr;
    runners_.clear();
    released_.clear();
    for (auto& [number, page] : pages_) unused_.push_back(std::move(page));
    pages_.clear();
    seen_.clear();
    return found;
  }

 private:
  static constexpr std::size_t kMostFindings = 5;

  Word& word(std::uintptr_t address) {
    const auto number = address / kPageBytes;
    if (last_page_ == nullptr || number != last_number_) {
      auto& page = pages_[number];
      if (page == nullptr) page = new_page();
      last_page_ = page.get();
      last_number_ = number;
    }
    Word& word = last_page_->words[address % kPageBytes / kWordBytes];
    if (word.use != last_page_->use) {
      word = {};
      word.use = last_page_->use;
    }
    return word;
  }

  // Those of earlier launches are used again: to clear their words costs more than most launches.
  std::unique_ptr<Page> new_page() {
    if (unused_.empty()) unused_.push_back(std::make_unique<Page>());
    std::unique_ptr<Page> page = std::move(unused_.back());
    unused_.pop_back();
    page->use = ++uses_;
    return page;
  }

  bool happened_before(const Access& earlier) const {
    const Clocks& seen = current_->seen;
    return earlier.thread == current_->id ||
           (earlier.thread < seen.size() && seen[earlier.thread] >= earlier.clock);
  }

  void note(std::uintptr_t address, const Access& now) {
    Word& word = this->word(address);
    const auto races = [&](const Access& earlier) {
      return (earlier.bytes & now.bytes) != 0 && !(earlier.atomic && now.atomic) &&
             !happened_before(earlier);
    };
    if (races(word.write)) report(address, word.write, now);
    if (!now.writes) {
      Access* slot = std::find_if(std::begin(word.reads), std::end(word.reads), [&](auto& read) {
        return read.bytes == 0 || (read.thread == now.thread && read.bytes == now.bytes) ||
               (read.bytes == now.bytes && happened_before(read));
      });
      if (slot == std::end(word.reads)) slot = &word.reads[next_slot_++ % std::size(word.reads)];
      *slot = now;
      return;
    }
    for (Access& read : word.reads) {
      if (races(read)) report(address, read, now);
      read.bytes &= static_cast<std::uint8_t>(~now.bytes);
    }
    // The word's other byte, written by somebody else, is forgotten: no operator has bytes.
    word.write = now;
  }

  void report(std::uintptr_t address, const Access& earlier, const Access& now) {
    if (!seen_.insert({earlier.code, now.code}).second || seen_.size() > kMostFindings) return;
    const auto say = [&](const Access& access) {
      const Self& self = runners_[access.thread]->self;
      std::ostringstream out;
      out << (access.writes ? "write" : "read") << " at " << place(access.code) << " by block "
          << self.block << ", thread " << self.thread;
      return out.str();
    };
    const std::string where = describe(reinterpret_cast<const void*>(address));
    findings_ += findings_.empty() ? "" : "\n";
    findings_ += "data race on " + (where.empty() ? std::string("global memory") : where) + ": " +
                 say(now) + ", not ordered with " + say(earlier);
  }

  Runner* current_ = nullptr;
  std::vector<std::unique_ptr<Runner>> runners_;
  std::unordered_map<const void*, Clocks> released_;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::vector<std::unique_ptr<Page>> unused_;
  std::uint64_t uses_ = 0;
  Page* last_page_ = nullptr;
  std::uintptr_t last_number_ = 0;
  std::set<std::pair<const void*, const void*>> seen_;
  std::uint32_t next_slot_ = 0;
  std::string findings_;
};

RaceDetector& detector() {
  static RaceDetector detector;
  return detector;
}

}  // namespace

void detect_races() { set_observer(&detector()); }

}  // namespace isobit::simt::host

// What compilers call for -fsanitize=thread.
extern "C" {

using isobit::simt::host::detector;

#define ISOBIT_CODE __builtin_return_address(0)
#define ISOBIT_ACCESSES(bytes)                                                                 \
  void __tsan_read##bytes(void* p) { detector().access(p, bytes, false, false, ISOBIT_CODE); } \
  void __tsan_write##bytes(void* p) { detector().access(p, bytes, true, false, ISOBIT_CODE); } \
  void __tsan_unaligned_read##bytes(void* p) {                                                 \
    detector().access(p, bytes, false, false, ISOBIT_CODE);                                    \
  }                                                                                            \
  void __tsan_unaligned_write##bytes(void* p) {                                                \
    detector().access(p, bytes, true, false, ISOBIT_CODE);                                     \
  }
ISOBIT_ACCESSES(1)
ISOBIT_ACCESSES(2)
ISOBIT_ACCESSES(4)
ISOBIT_ACCESSES(8)
ISOBIT_ACCESSES(16)

void __tsan_read_range(void* p, std::size_t bytes) {
  detector().access(p, bytes, false, false, ISOBIT_CODE);
}
void __tsan_write_range(void* p, std::size_t bytes) {
  detector().access(p, bytes, true, false, ISOBIT_CODE);
}

// Of a static variable that is made at its first use, by the host.
unsigned char __tsan_atomic8_load(const volatile unsigned char* p, int order) {
  return __atomic_load_n(p, order);
}
unsigned __tsan_atomic32_load(const volatile unsigned* p, int order) {
  detector().access(const_cast<unsigned*>(p), 4, false, true, ISOBIT_CODE);
  return __atomic_load_n(p, order);
}
void __tsan_atomic32_store(volatile unsigned* p, unsigned value, int order) {
  detector().access(const_cast<unsigned*>(p), 4, true, true, ISOBIT_CODE);
  __atomic_store_n(p, value, order);
}
unsigned __tsan_atomic32_fetch_add(volatile unsigned* p, unsigned value, int order) {
  detector().access(const_cast<unsigned*>(p), 4, true, true, ISOBIT_CODE);
  return __atomic_fetch_add(p, value, order);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

}  // extern "C"
