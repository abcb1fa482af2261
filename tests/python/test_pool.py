# SPDX-License-Identifier: Apache-2.0
"""The pool by itself, in a program of a few threads that do nothing else: no block is handed out
twice, and a forked child finds its lock free."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "isobit" / "simd" / "pool.cpp"
COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)

pytestmark = pytest.mark.skipif(
    not (COMPILER and SOURCE.exists()), reason="needs a compiler and the sources"
)

PROGRAM = r"""
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "isobit/simd/pool.h"

namespace pool = isobit::pool;

constexpr std::int64_t kBytes = 1 << 20;

void require(bool condition, const char* what) {
  if (condition) return;
  std::puts(what);
  std::_Exit(1);
}

// However many blocks of a size wait, each is handed out once.
void alone() {
  for (int waiting = 1; waiting <= 4; ++waiting) {
    std::vector<void*> blocks;
    for (int i = 0; i < waiting; ++i) blocks.push_back(pool::take(kBytes));
    for (void* block : blocks) pool::give(block, kBytes);
    std::set<void*> living;
    for (int i = 0; i < 5; ++i) living.insert(pool::take(kBytes));
    require(living.size() == 5, "a block was handed out twice");
    require(pool::use().waiting == 0 && pool::use().lent == 5 * kBytes, "miscounted");
    for (void* block : living) pool::give(block, kBytes);
    pool::empty();
  }
}

// Memory of any size begins at a cache line, is the caller's to the last byte, and goes back to
// where it came from.
void from_either() {
  for (const std::int64_t limit : {std::int64_t{0}, std::int64_t{1} << 40}) {
    pool::set_limit(limit);
    std::vector<std::pair<std::byte*, std::size_t>> living;
    for (std::size_t bytes : {1, 63, 64, 65, 100000, 262016, 262143, 262144, 3 << 20}) {
      auto* const memory = static_cast<std::byte*>(pool::allocate(bytes));
      require(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0, "not at a cache line");
      std::memset(memory, static_cast<int>(living.size()), bytes);
      living.emplace_back(memory, bytes);
    }
    require((pool::use().lent > 0) == (limit > 0), "not from the pool, or from one turned off");
    for (std::size_t i = 0; i < living.size(); ++i) {
      const auto [memory, bytes] = living[i];
      require(std::all_of(memory, memory + bytes, [&](std::byte it) { return it == std::byte(i); }),
              "memory of two");
      pool::release(memory);
    }
    require(pool::use().lent == 0, "something was not given back");
  }
  require(pool::allocate(std::size_t{1} << 60) == nullptr, "there is no such memory");
}

// Blocks of any sizes lie apart, and what waits serves others: a larger one where ranges touch, and
// smaller ones.
void of_any_size() {
  pool::set_limit(std::int64_t{1} << 40);
  std::map<std::byte*, std::int64_t> living;
  std::int64_t held = 0;
  std::uint32_t state = 1;
  const auto draw = [&](std::uint32_t below) { return ((state = state * 69069 + 1) >> 8) % below; };
  const auto give = [&](auto found) {
    pool::give(found->first, found->second);
    held -= found->second;
    living.erase(found);
  };
  std::int64_t most = 0;
  for (int i = 0; i < 20000; ++i) {
    if (living.size() > draw(12)) {
      give(std::next(living.begin(), draw(static_cast<std::uint32_t>(living.size()))));
    } else {
      const std::int64_t bytes = std::int64_t{1 + draw(63)} << 18 << draw(2);
      auto* const block = static_cast<std::byte*>(pool::take(bytes));
      if (block == nullptr) continue;  // too small
      const auto [place, is_new] = living.emplace(block, bytes);
      require(is_new, "a block was handed out twice");
      if (place != living.begin()) {
        const auto [before, size] = *std::prev(place);
        require(before + size <= block, "a block begins in another");
      }
      if (const auto after = std::next(place); after != living.end())
        require(block + bytes <= after->first, "a block ends in another");
      held += bytes;
    }
    const pool::Use use = pool::use();
    require(use.lent >= held && use.lent <= held + held / 8, "miscounted what is lent");
    most = std::max(most, use.lent + use.waiting);
  }
  while (!living.empty()) give(living.begin());
  require(pool::use().lent == 0 && pool::use().waiting == most, "miscounted what waits");
  void* const all = pool::take(most);  // less than what is mapped at a time
  require(pool::use().waiting == 0, "ranges that touch were not joined");
  pool::give(all, most);
  pool::empty();
  require(pool::use().waiting == 0, "something still waits");
}

// Each thread writes its name into what it holds, and finds it there.
void work(int name, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    auto* one = static_cast<int*>(pool::take(kBytes));
    auto* other = static_cast<int*>(pool::take(kBytes));
    *one = name;
    *other = -name;
    std::this_thread::yield();
    require(*one == name && *other == -name, "two threads hold one block");
    pool::give(one, kBytes);
    pool::give(other, kBytes);
  }
}

void together(int rounds) {
  std::vector<std::thread> threads;
  for (int name = 1; name <= 4; ++name) threads.emplace_back(work, name, rounds);
  for (auto& thread : threads) thread.join();
  require(pool::use().lent == 0, "miscounted");
}

void forked() {
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int name = 1; name <= 2; ++name)
    threads.emplace_back([&, name] {
      while (!done) work(name, 1);
    });
  for (int i = 0; i < 1000; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(3);  // ends a child that waits for a lock
      pool::give(pool::take(kBytes), kBytes);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    require(status == 0, "a forked child found the pool locked");
  }
  done = true;
  for (auto& thread : threads) thread.join();
}

int main(int, char** words) {
  const std::string_view what = words[1];
  if (what == "alone") alone();
  if (what == "from either") from_either();
  if (what == "of any size") of_any_size();
  if (what == "together") together(300);
  if (what == "forked") forked();
}
"""


def built(source, folder, *flags):
    main, program = folder / "main.cpp", folder / "program"
    main.write_text(PROGRAM)
    command = [COMPILER, "-std=c++20", "-O1", "-g", "-pthread", *flags, f"-I{ROOT / 'src'}"]
    subprocess.run([*command, main, source, "-o", program], check=True)
    return program


# What is asked, and how the program is compiled for it: that a lock is missing must take no luck.
FLAGS = {
    "alone": [],
    "from either": ["-fsanitize=undefined"],
    "of any size": [],
    "together": ["-fsanitize=thread"],
    "forked": [],
}


def asked(program, what):
    """Its status and what it said; a race ends it, because what it breaks may loop for ever."""
    env = dict(os.environ, TSAN_OPTIONS="halt_on_error=1")
    result = subprocess.run([program, what], capture_output=True, text=True, timeout=300, env=env)
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("what", FLAGS)
def test_nothing_is_handed_out_twice_in_threads_and_forks(what, tmp_path):
    assert asked(built(SOURCE, tmp_path, *FLAGS[what]), what) == (0, "")


def planted(text, pattern, replacement=""):
    changed = re.sub(pattern, replacement, text)
    assert changed != text
    return changed


# defect: (what finds it, what is replaced, by what)
DEFECTS = {
    "a block of several that wait is handed out twice": (
        "alone",
        r"replace\(found, begin \+ bytes, found->first - bytes\);",
        "",
    ),
    "what waits is counted as lent": ("alone", r"bytes_ -= bytes;", ""),
    "what is left of a range begins in the block": (
        "of any size",
        r"replace\(found, begin \+ bytes, ",
        "replace(found, begin + bytes / 2, ",
    ),
    "a block goes to the C library": ("from either", r"head\.bytes > 0", "false"),
    "memory overlaps what is before it": ("from either", r"2 \* kLine - past", "kLine - past"),
    "what was joined still waits by itself": ("of any size", r"forget\(next\);", ""),
    "ranges that touch are not joined": ("of any size", r"before \+ size == begin", "false"),
    "no lock": ("together", r"const std::lock_guard lock\(here\.mutex\);", ""),
    "a fork takes the lock along as it is": ("forked", r"(?s)pthread_atfork\(.*?\}\);", ""),
    "a fork leaves the lock to the child": (
        "forked",
        r"(\.unlock\(\); \},\n\s*)\[\] \{[^}]*\}",
        r"\1[] {}",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("defect", DEFECTS)
def test_each_of_these_defects_would_be_found(defect, tmp_path):
    what, *replaced = DEFECTS[defect]
    source = tmp_path / "pool.cpp"
    source.write_text(planted(SOURCE.read_text(), *replaced))
    status, _ = asked(built(source, tmp_path, *FLAGS[what]), what)
    assert status != 0
