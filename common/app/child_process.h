#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace baton {

struct ChildOptions {
  std::vector<std::string> command;  // absolute path of the binary, then its arguments
  std::string log_file;              // stderr is appended to this file; empty: our own stderr
  std::vector<int> inherited = {};   // descriptors that the child keeps, with the same numbers
};

// A child process (one of Baton's services, or any other program) that ends with its parent: the
// kernel kills the child when the thread that started it ends, so children must be started on the
// main thread. The destructor kills and reaps the child. Not thread-safe.
class ChildProcess final {
 public:
  // Errors: NotFound when the binary is absent, Internal naming the failed system call.
  static StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildOptions& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;

  // Waits until the child prints RunService's line `ready {"name":"host:port",…}` to stdout and
  // returns the addresses in it. Errors: DeadlineExceeded after `limit`; Unavailable when the child
  // ended first; InvalidArgument when the line is not JSON.
  StatusOr<std::map<std::string, std::string>> WaitReady(Duration limit);

  // Sends `signal`, unless the child has ended.
  void Signal(int signal);

  // Waits until the child has ended and returns its exit status (128 + signal when a signal killed
  // it); nothing when it still runs after `limit`.
  std::optional<int> WaitExit(Duration limit);

  pid_t pid() const { return pid_; }
  // Returns the child's output to stdout since the last read, up to its end or until `limit`
  // passes.
  std::string ReadStdout(Duration limit);

 private:
  ChildProcess(pid_t pid, UniqueFd pidfd, UniqueFd stdout_fd);
  // Appends what can be read before `deadline` to `into`; false at end of file or time-out.
  bool ReadSome(Time deadline, std::string& into);

  pid_t pid_;
  UniqueFd pidfd_;
  UniqueFd stdout_;
  std::optional<int> exit_status_;
};

// The folder of the running binary, which also has Baton's other binaries.
std::string BinaryFolder();

}  // namespace baton
