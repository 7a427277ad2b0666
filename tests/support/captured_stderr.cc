#include "tests/support/captured_stderr.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "common/base/check.h"

namespace baton {

CapturedStderr::CapturedStderr()
    : path_(folder_.Write("stderr", "")), original_(::dup(STDERR_FILENO)) {
  BATON_CHECK(original_ >= 0, "cannot duplicate standard error");
  const int file = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  BATON_CHECK(file >= 0, "cannot open {}", path_);
  std::fflush(stderr);
  BATON_CHECK(::dup2(file, STDERR_FILENO) >= 0, "cannot redirect standard error");
  ::close(file);
}

CapturedStderr::~CapturedStderr() {
  std::fflush(stderr);
  ::dup2(original_, STDERR_FILENO);
  ::close(original_);
}

std::string CapturedStderr::Text() const {
  std::ifstream file(path_, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace baton
