// SPDX-License-Identifier: Apache-2.0
// The errors that a caller can meet; each is thrown once, at the boundary, before anything is
// written.
#pragma once

#include <cstdio>
#include <locale>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

namespace isobit {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The call breaks a rule; the message names operator, argument, rule and value.
struct InvalidArgument : Error {
  using Error::Error;
};
// The call is right, yet no variant here can run it; the message says why each is unavailable.
struct Unsupported : Error {
  using Error::Error;
};
struct DeviceError : Error {
  using Error::Error;
};

// The allocator refused a call's workspace. The message lies within, as there may be no memory for
// one.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::size_t bytes) noexcept {
    std::snprintf(message_, sizeof message_,
                  "out of memory: cannot allocate %zu bytes of workspace; use fewer rows or "
                  "threads",
                  bytes);
  }
  const char* what() const noexcept override { return message_; }

 private:
  char message_[112];
};

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());  // another groups the digits of numbers
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw InvalidArgument(text(parts...));
}

}  // namespace isobit
