#include "tests/support/captured_stderr.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "common/base/check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace baton {
namespace {

// A sanitizer's report ends the process, and the file with it: reports go to `descriptor`.
void ReportSanitizerFindingsTo([[maybe_unused]] int descriptor) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // The function takes the descriptor as a pointer.
  // NOLINTNEXTLINE(performance-no-int-to-ptr,cppcoreguidelines-pro-type-reinterpret-cast)
  __sanitizer_set_report_fd(reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)));
#endif
}

}  // namespace

CapturedStderr::CapturedStderr()
    : path_(folder_.Write("stderr", "")), original_(::dup(STDERR_FILENO)) {
  BATON_CHECK(original_ >= 0, "cannot duplicate standard error");
  const int file = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  BATON_CHECK(file >= 0, "cannot open {}", path_);
  std::fflush(stderr);
  ReportSanitizerFindingsTo(original_);
  BATON_CHECK(::dup2(file, STDERR_FILENO) >= 0, "cannot redirect standard error");
  ::close(file);
}

CapturedStderr::~CapturedStderr() {
  std::fflush(stderr);
  ::dup2(original_, STDERR_FILENO);
  ReportSanitizerFindingsTo(STDERR_FILENO);
  ::close(original_);
}

std::string CapturedStderr::Text() const {
  std::ifstream file(path_, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace baton
