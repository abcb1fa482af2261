// SPDX-License-Identifier: Apache-2.0
// Stored plans change speed, never a result, and never stop a call: whatever becomes of their file,
// they are as they were written, or missing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "isobit/core/error.h"
#include "isobit/dispatch/plan_file.h"

namespace isobit {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

PlanKey key(std::int64_t cols) {
  PlanKey key;
  std::string_view("layernorm fwd avx2 000-").copy(key.call.data(), key.call.size());
  key.extents = {1024, cols};
  key.dims = 2;
  key.threads = 2;
  return key;
}

// As many plans as a user has.
PlanTable plans(int value, int count = 200) {
  PlanTable table;
  for (int i = 0; i < count; ++i) table.set(key(i), {"simd.one_pass", {{"stream", value}}});
  return table;
}

// Runs the body in a process of its own, which may not outlive half a minute, and expects what it
// expects.
void expect_in_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    body();
    fflush(stdout);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Storing fails, says why, and leaves what is stored as it is.
void expect_refused(const fs::path& file, const std::string& why, const PlanTable& table) {
  const PlanTable before = read_plans(file).table;
  try {
    update_plans(file, [&](PlanTable& stored) { stored = table; });
    ADD_FAILURE() << "stored in " << file;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
  EXPECT_TRUE(read_plans(file).table == before);
}

class PlanFile : public testing::Test {
 protected:
  PlanFile() {
    std::string made = (fs::temp_directory_path() / "isobit_plans_XXXXXX").string();
    home_ = mkdtemp(made.data());
    folder_ = home_ / "isobit";
    file_ = folder_ / "plans";
    store(plans(1));
  }
  ~PlanFile() override { fs::remove_all(home_); }

  void store(const PlanTable& table) const {
    update_plans(file_, [&](PlanTable& stored) { stored = table; });
  }
  std::string content() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(std::string_view text) const { std::ofstream(file_, std::ios::binary) << text; }

  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator(folder_), {}); }

  // Nothing is read, and the reason is told.
  void expect_miss(const std::string& why) const {
    const StoredPlans stored = read_plans(file_);
    EXPECT_TRUE(stored.table.empty());
    EXPECT_NE(stored.missing.find(why), std::string::npos) << stored.missing;
  }

  fs::path home_, folder_, file_;
};

TEST_F(PlanFile, ComesBackAsItWasWritten) {
  EXPECT_EQ(read_plans(file_).missing, "");
  EXPECT_TRUE(read_plans(file_).table == plans(1));
  EXPECT_EQ(fs::status(folder_).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(file_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(PlanFile, IsGoneWithItsLastPlan) {
  store({});
  EXPECT_FALSE(fs::exists(file_));
  expect_miss("No such file");
}

TEST_F(PlanFile, NoTruncationIsBelieved) {
  const std::string whole = content();
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    write(whole.substr(0, random() % whole.size()));
    expect_miss("corrupt");
  }
}

TEST_F(PlanFile, NoFlippedBitIsBelieved) {
  const std::string whole = content();
  std::mt19937 random(2);
  for (int i = 0; i < 500; ++i) {
    std::string flipped = whole;
    flipped[random() % whole.size()] ^= static_cast<char>(1 << random() % 8);
    write(flipped);
    expect_miss("corrupt");
  }
  write(whole + "\n");
  expect_miss("corrupt");
}

// What holds its own checksum may still be no table.
TEST_F(PlanFile, NonsenseWithARightChecksumIsAMiss) {
  const std::string right = "layernorm fwd avx2 000- 1x2 3 simd stream=1\n";
  std::string too_many_dims = "a b c d 1";
  for (int dim = 1; dim <= kMaxDims; ++dim) too_many_dims += "x1";
  for (const std::string& line : std::vector<std::string>{
           "\n", " \n", "layernorm\n", "layernorm fwd avx2 000-\n", "a b c d 1x2 x simd\n",
           "a b c d 1x2 3\n", "a b c d 1x2 3 simd stream\n", "a b c d 1x2 3 simd stream=\n",
           "a b c d 1x2 3 simd =1\n", "a b c d 1x2 3 simd s=99999999999\n",
           "a b c d 99999999999999999999x2 3 simd\n", "a b c d  3 simd\n", "a b c d 1xx2 3 simd\n",
           too_many_dims + " 3 simd\n"}) {
    write(PlanTable().text(plan_header() + right + line));
    expect_miss("corrupt");
  }
  write(PlanTable().text(plan_header() + right));
  EXPECT_EQ(read_plans(file_).table.size(), 1u);
}

TEST_F(PlanFile, OfAnotherVersionOrMachineIsAMiss) {
  for (const char* part : {"plans ", "library ", "machine "}) {
    std::string header = plan_header();
    header[header.find(part) + std::string_view(part).size()] = '~';
    write(plans(1).text(header));
    expect_miss("from another version");
  }
}

TEST_F(PlanFile, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(chown(file_.c_str(), kNobody, kNobody), 0);
  expect_miss("owned by another user");
  store(plans(2));  // replaced by one of our own
  EXPECT_TRUE(read_plans(file_).table == plans(2));
  ASSERT_EQ(chown(folder_.c_str(), kNobody, kNobody), 0);
  expect_miss("owned by another user");
  expect_refused(file_, "owned by another user", plans(2));
}

TEST_F(PlanFile, ThatOthersMayWriteIsRefused) {
  for (mode_t mode : {0620, 0602, 0666}) {
    ASSERT_EQ(chmod(file_.c_str(), mode), 0);
    expect_miss("writable by other users");
  }
  ASSERT_EQ(chmod(file_.c_str(), 0600), 0);
  for (mode_t mode : {0720, 0702, 0777}) {
    ASSERT_EQ(chmod(folder_.c_str(), mode), 0);
    expect_miss("writable by other users");
  }
  store(plans(2));  // nobody else from now on
  EXPECT_EQ(fs::status(folder_).permissions(), fs::perms::owner_all);
}

TEST_F(PlanFile, LinksPipesAndFoldersAreRefused) {
  const fs::path real = home_ / "real";
  fs::rename(file_, real);
  fs::create_symlink(real, file_);
  expect_miss("symbolic link");
  store(plans(2));  // the link is replaced, not what it leads to
  EXPECT_TRUE(read_plans(file_).table == plans(2));
  EXPECT_TRUE(read_plans(file_).missing.empty());

  fs::remove(file_);
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  expect_in_child([&] { expect_miss("not a regular file"); });  // nor waits for a writer

  fs::remove(file_);
  fs::create_directory(file_);
  expect_miss("not a regular file");
  expect_refused(file_, "Is a directory", plans(2));

  fs::rename(folder_, real.string() + "_folder");
  fs::create_directory_symlink(real.string() + "_folder", folder_);
  expect_miss("Not a directory");
  expect_refused(file_, "Not a directory", plans(2));
}

TEST_F(PlanFile, ThatIsTooLargeIsNotRead) {
  ASSERT_EQ(truncate(file_.c_str(), off_t{1} << 40), 0);
  expect_miss("too large");
}

TEST_F(PlanFile, InAReadOnlyHomeIsRead) {
  expect_in_child([&] {
    if (geteuid() == 0) {  // for root nothing is read-only
      for (const fs::path& path : {home_, folder_, file_, folder_ / "lock"})
        ASSERT_EQ(chown(path.c_str(), kNobody, kNobody), 0);
      ASSERT_EQ(setgid(kNobody) | setuid(kNobody), 0);
    }
    fs::remove(folder_ / "lock");
    for (const fs::path& path : {folder_, home_}) ASSERT_EQ(chmod(path.c_str(), 0500), 0);
    EXPECT_TRUE(read_plans(file_).table == plans(1));
    expect_refused(home_ / "fresh" / "plans", "Permission denied", plans(2));
    chmod(home_.c_str(), 0700);
  });
}

TEST_F(PlanFile, OnAFullDiskStaysAsItWas) {
  expect_in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit most{100, 100};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &most), 0);
    expect_refused(file_, "File too large", plans(2));
  });
  EXPECT_TRUE(read_plans(file_).table == plans(1));
  EXPECT_EQ(files(), 2) << "plans and lock alone";
}

TEST_F(PlanFile, ThousandKilledWritersLeaveItWhole) {
  std::mt19937 random(3);
  int interrupted = 0;
  for (int kill_number = 0; kill_number < 1000; ++kill_number) {
    const pid_t writer = fork();
    if (writer == 0) {
      alarm(30);
      for (int value = 1;; value = 3 - value) store(plans(value));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 6000));
    kill(writer, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it ended by itself";
    const StoredPlans stored = read_plans(file_);
    ASSERT_EQ(stored.missing, "");
    ASSERT_TRUE(stored.table == plans(1) || stored.table == plans(2));
    interrupted += fs::exists(file_.string() + ".new");
    ASSERT_LE(files(), 3);
  }
  EXPECT_GT(interrupted, 0) << "no kill hit a write";
  store(plans(3));
  EXPECT_TRUE(read_plans(file_).table == plans(3));
  EXPECT_EQ(files(), 2) << "plans and lock alone";
}

TEST_F(PlanFile, WritersSideBySideLoseNothing) {
  constexpr int kWriters = 64, kPlans = 3;
  store({});
  std::vector<pid_t> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.push_back(fork());
    if (writers.back() != 0) continue;
    alarm(30);
    for (int i = 0; i < kPlans; ++i)
      update_plans(
          file_, [&](PlanTable& table) { table.set(key(writer * kPlans + i), {"simd", {}}); },
          std::chrono::seconds(25));  // sanitizers are slow
    _exit(0);
  }
  for (pid_t writer : writers) {
    int status = 0;
    waitpid(writer, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_plans(file_).table.size(), std::size_t{kWriters * kPlans});
}

TEST_F(PlanFile, AWriterThatSleepsIsNotWaitedForLong) {
  const int lock = open((folder_ / "lock").c_str(), O_RDWR);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  try {
    update_plans(file_, [](PlanTable&) {}, std::chrono::milliseconds(30));
    FAIL() << "written beside another writer";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("locked by another process"), std::string::npos);
  }
  EXPECT_TRUE(read_plans(file_).table == plans(1)) << "readers do not wait";
  close(lock);
}

TEST_F(PlanFile, ThatWouldGrowTooLargeIsNotWritten) {
  expect_refused(file_, "too many plans", plans(1, 100'000));
}

// The variables as they were, once the test is over.
class PlanFolder : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames)
      saved_.emplace_back(getenv(name) == nullptr ? "" : getenv(name));
  }
  void TearDown() override {
    for (std::size_t i = 0; i < std::size(kNames); ++i) set(kNames[i], saved_[i]);
  }
  static void set(const char* name, const std::string& value) {
    value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
  }

  static constexpr const char* kNames[] = {"XDG_CACHE_HOME", "HOME"};
  std::vector<std::string> saved_;
};

TEST_F(PlanFolder, IsTheUsersCache) {
  set("XDG_CACHE_HOME", "/somewhere");
  set("HOME", "/users/me");
  EXPECT_EQ(plan_file().parent_path(), "/somewhere/isobit");
  EXPECT_EQ(plan_folder(), "/somewhere/isobit");
  set("XDG_CACHE_HOME", "not/absolute");
  EXPECT_EQ(plan_file().parent_path(), "/users/me/.cache/isobit");
  set("XDG_CACHE_HOME", "");
  EXPECT_EQ(plan_file().parent_path(), "/users/me/.cache/isobit");
}

TEST_F(PlanFolder, MayBeMissing) {
  set("XDG_CACHE_HOME", "");
  set("HOME", "");
  EXPECT_EQ(plan_file(), fs::path());
  EXPECT_NE(read_plans(plan_file()).missing.find("no folder"), std::string::npos);
  expect_refused(plan_file(), "neither XDG_CACHE_HOME nor HOME", plans(1));
  set("HOME", "/nonexistent/home");
  EXPECT_NE(read_plans(plan_file()).missing.find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace isobit
