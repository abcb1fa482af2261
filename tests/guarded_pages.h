// SPDX-License-Identifier: Apache-2.0
// Arrays between two pages that nobody may touch, and a trap that tells where one was touched.
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>

namespace isobit::guarded {

// Where an array lies: its first byte follows the page before it, or its last precedes the page
// after it.
enum class Edge { front, back };

inline const char* name_of(Edge edge) {
  return edge == Edge::front ? "right after a forbidden page" : "right before a forbidden page";
}

// Memory of whole pages with a forbidden one on either side.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))),
        inner_((bytes + page_ - 1) / page_ * page_) {
    void* all = mmap(nullptr, inner_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) std::abort();
    begin_ = static_cast<std::byte*>(all) + page_;
    if (inner_ == 0) return;  // which QEMU refuses
    if (mprotect(begin_, inner_, PROT_READ | PROT_WRITE) != 0) std::abort();
  }
  ~Pages() { munmap(begin_ - page_, inner_ + 2 * page_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::byte* at(Edge edge, std::size_t bytes) const {
    return edge == Edge::front ? begin_ : begin_ + inner_ - bytes;
  }
  // How far `address` lies before or after an array here; empty: it is not one of the two pages.
  std::string place_of(const void* address) const {
    const std::byte* byte = static_cast<const std::byte*>(address);
    if (byte < begin_ - page_ || byte >= begin_ + inner_ + page_) return "";
    return byte < begin_ ? std::to_string(begin_ - byte) + " bytes before its first"
                         : std::to_string(byte - (begin_ + inner_)) + " bytes past its last";
  }

 private:
  std::size_t page_, inner_;
  std::byte* begin_;
};

namespace detail {

inline sigjmp_buf back;
inline const void* volatile touched;

inline void leave(int, siginfo_t* info, void*) {
  touched = info->si_addr;
  siglongjmp(back, 1);
}

}  // namespace detail

// The address whose access ended the call, which runs on this thread alone; nothing where it came
// to its end. What a call that is ended holds is lost.
template <class Call>
std::optional<const void*> trapped(const Call& call) {
  struct sigaction ours = {}, before[2];
  ours.sa_sigaction = detail::leave;
  ours.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &ours, &before[0]);
  sigaction(SIGBUS, &ours, &before[1]);
  const bool ended = sigsetjmp(detail::back, 1) != 0;
  if (!ended) call();
  sigaction(SIGSEGV, &before[0], nullptr);
  sigaction(SIGBUS, &before[1], nullptr);
  if (!ended) return std::nullopt;
  return detail::touched;
}

}  // namespace isobit::guarded
