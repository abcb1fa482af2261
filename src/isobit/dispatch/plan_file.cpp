// SPDX-License-Identifier: Apache-2.0
// Reads plans with suspicion and replaces them atomically.
#include "isobit/dispatch/plan_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "isobit/core/error.h"

namespace isobit {
namespace {

namespace fs = std::filesystem;

constexpr off_t kMostBytes = 1 << 20;  // some ten thousand plans

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() { close(); }
  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  bool close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

Descriptor open_folder(const fs::path& folder) {
  return Descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// Without following links, and without waiting for whoever writes to a pipe.
Descriptor open_in(const Descriptor& folder, const std::string& name, int flags) {
  return Descriptor(
      openat(folder.get(), name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
}

std::string reason(int error) { return std::strerror(error); }

// Why what was opened is not to be trusted; empty where it is.
std::string distrust(const Descriptor& opened, mode_t kind) {
  struct stat status{};
  if (fstat(opened.get(), &status) != 0) return reason(errno);
  if ((status.st_mode & S_IFMT) != kind) return "not a regular file";
  if (status.st_uid != geteuid()) return "owned by another user";
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "writable by other users";
  if (kind == S_IFREG && status.st_size > kMostBytes) return "too large";
  return "";
}

// No more than is allowed and a bit, should it grow meanwhile.
std::optional<std::string> read_all(const Descriptor& file) {
  std::string text;
  char buffer[16 << 10];
  while (std::ssize(text) <= kMostBytes) {
    const ssize_t count = read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    text.append(buffer, static_cast<std::size_t>(count));
  }
  return text;
}

StoredPlans read_plans(const Descriptor& folder, const fs::path& path) {
  const auto missing = [](const fs::path& what, const std::string& why) {
    return StoredPlans{{}, what.string() + ": " + why};
  };
  if (!folder) return missing(path.parent_path(), reason(errno));
  if (const std::string why = distrust(folder, S_IFDIR); !why.empty())
    return missing(path.parent_path(), why);
  const Descriptor file = open_in(folder, path.filename(), O_RDONLY);
  if (!file) return missing(path, reason(errno));
  if (const std::string why = distrust(file, S_IFREG); !why.empty()) return missing(path, why);
  const std::optional<std::string> text = read_all(file);
  if (!text) return missing(path, reason(errno));
  std::optional<PlanTable> table = PlanTable::parse(*text, plan_header());
  if (!table) return missing(path, "corrupt, or from another version");
  return {std::move(*table), ""};
}

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw Error(text("cannot store plans: ", path.string(), ": ", why));
}

// Ours, and for nobody else to enter.
Descriptor make_folder(const fs::path& path) {
  int error = 0;
  fs::path part;
  for (const fs::path& name : path)
    if (mkdir((part /= name).c_str(), 0700) != 0 && errno != EEXIST) error = errno;
  Descriptor folder = open_folder(path);
  if (!folder) fail(path, reason(error != 0 ? error : errno));
  struct stat status{};
  if (fstat(folder.get(), &status) != 0) fail(path, reason(errno));
  if (status.st_uid != geteuid()) fail(path, "owned by another user");
  if ((status.st_mode & 0077) != 0 && fchmod(folder.get(), 0700) != 0) fail(path, reason(errno));
  return folder;
}

// Held until it is closed; the system lets go for a process that is killed. A file of its own,
// since network file systems lock only what is open for writing.
Descriptor lock(const Descriptor& folder, const fs::path& path,
                std::chrono::milliseconds patience) {
  const fs::path name = path.parent_path() / "lock";
  Descriptor file = open_in(folder, name.filename(), O_RDWR | O_CREAT);
  if (!file) fail(name, reason(errno));
  const auto end = std::chrono::steady_clock::now() + patience;
  while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) fail(name, reason(errno));
    if (std::chrono::steady_clock::now() > end) fail(name, "locked by another process");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return file;
}

bool write_all(const Descriptor& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(file.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// The lock is held, so a temporary file was left by a writer that was killed.
void replace(const Descriptor& folder, const fs::path& path, const std::string& text) {
  const std::string name = path.filename(), temporary = name + ".new";
  unlinkat(folder.get(), temporary.c_str(), 0);
  Descriptor file = open_in(folder, temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (file && write_all(file, text) && fsync(file.get()) == 0 && file.close() &&
      renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) == 0 &&
      fsync(folder.get()) == 0)
    return;
  const int error = errno;
  unlinkat(folder.get(), temporary.c_str(), 0);
  fail(path, reason(error));
}

}  // namespace

fs::path plan_folder() {
  const auto folder = [](const char* variable) {
    const char* value = secure_getenv(variable);
    return value != nullptr && value[0] == '/' ? fs::path(value) : fs::path();
  };
  fs::path caches = folder("XDG_CACHE_HOME");
  if (caches.empty())
    if (const fs::path home = folder("HOME"); !home.empty()) caches = home / ".cache";
  return caches.empty() ? caches : caches / "isobit";
}

fs::path plan_file() {
  const fs::path folder = plan_folder();
  if (folder.empty()) return folder;
  return folder / ("plans-" ISOBIT_VERSION "-" + hex(checksum(plan_header())));
}

std::string plan_header() {
  const Machine& machine = Machine::here();
  std::string header = "isobit plans 1\nlibrary " ISOBIT_VERSION "\nmachine " + processor_name();
  header.append(", ").append(name_of(machine.isa)).append(", caches of");
  for (std::int64_t bytes : {machine.l1_bytes, machine.l2_bytes, machine.l3_bytes})
    header.append(" ").append(std::to_string(bytes));  // no stream: a locale would group digits
  return header + " bytes\n";
}

StoredPlans read_plans(const fs::path& file) {
  if (file.empty()) return {{}, "no folder: neither XDG_CACHE_HOME nor HOME is usable"};
  return read_plans(open_folder(file.parent_path()), file);
}

void update_plans(const fs::path& file, const std::function<void(PlanTable&)>& change,
                  std::chrono::milliseconds patience) {
  if (file.empty()) throw Error("cannot store plans: neither XDG_CACHE_HOME nor HOME is set");
  const Descriptor folder = make_folder(file.parent_path());
  const Descriptor held = lock(folder, file, patience);
  PlanTable table = read_plans(folder, file).table;
  const PlanTable before = table;
  change(table);
  if (table.empty() && unlinkat(folder.get(), file.filename().c_str(), 0) != 0 && errno != ENOENT)
    fail(file, reason(errno));
  if (table.empty() || table == before) return;
  const std::string text = table.text(plan_header());
  if (text.size() > kMostBytes) fail(file, "too many plans; `isobit tune --clear` deletes them");
  replace(folder, file, text);
}

}  // namespace isobit
