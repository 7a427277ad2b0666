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
  std::string log_file;              // its stderr is appended here; empty: ours
};

// A process that we started and that ends with us: the kernel kills it when the thread that started
// it ends (so start children on the main thread), and the destructor kills and reaps it. One of
// Baton's services, or any other program. Not thread-safe.
class ChildProcess final {
 public:
  // Errors: NotFound when the binary is absent, Internal naming the failed system call.
  static StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildOptions& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;

  // Waits for the line `ready {"name":"host:port",…}` of RunService on the child's stdout and
  // returns its addresses. Errors: DeadlineExceeded; Unavailable when the child ended before.
  StatusOr<std::map<std::string, std::string>> WaitReady(Duration limit);

  // Sends `signal`, unless the child has ended.
  void Signal(int signal);

  // The exit status once the child has ended (128 + signal when one killed it); nothing when it
  // still runs after `limit`.
  std::optional<int> WaitExit(Duration limit);

  pid_t pid() const { return pid_; }
  // What it wrote to stdout since the last call, until it ends or `limit` passes.
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

// The folder of the running binary: where its sister binaries are.
std::string BinaryFolder();

}  // namespace baton
