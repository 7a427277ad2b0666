#include "tests/support/full_pipe.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/check.h"

namespace baton {

FullPipe::FullPipe() : path_(folder_.path() + "/full_pipe") {
  BATON_CHECK(::mkfifo(path_.c_str(), 0600) == 0, "cannot create the pipe {}", path_);
  fd_.Reset(::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  BATON_CHECK(fd_.valid(), "cannot open the pipe {}", path_);
  const std::string piece(PIPE_BUF, '.');
  for (ssize_t n = 0; n >= 0; n = ::write(fd_.get(), piece.data(), piece.size())) {
    filling_ += static_cast<size_t>(n);
  }
}

void FullPipe::ReadFilling() {
  while (filling_ > 0) {
    BATON_CHECK(ReadOnce(Duration::zero()), "the pipe {} has lost part of its filling", path_);
  }
}

const std::string& FullPipe::ReadUntil(const std::string& marker, Duration limit) {
  const Time deadline = SteadyClock().Now() + limit;
  while (text_.find(marker) == std::string::npos) {
    if (!ReadOnce(deadline - SteadyClock().Now())) break;
  }
  return text_;
}

bool FullPipe::ReadOnce(Duration limit) {
  char buffer[PIPE_BUF];
  pollfd waiting{fd_.get(), POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(std::max(ToMillis(limit), 0.0))) <= 0) return false;
  const ssize_t n = ::read(fd_.get(), buffer, sizeof(buffer));
  if (n <= 0) return false;
  const size_t skipped = std::min(filling_, static_cast<size_t>(n));
  filling_ -= skipped;
  text_.append(buffer + skipped, static_cast<size_t>(n) - skipped);
  return true;
}

}  // namespace baton
