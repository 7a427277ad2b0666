#include "common/app/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json.h"

namespace baton {
namespace {

constexpr int kCannotRun = 127;

Status SystemError(const char* call) {
  return MakeStatus(StatusCode::kInternal, "{}: {}", call, std::strerror(errno));
}

int PollMillis(Time deadline) {
  const double left = ToMillis(deadline - SteadyClock().Now());
  return static_cast<int>(std::clamp(left, 0.0, 1e9));
}

// Runs in the child between fork and exec, where only system calls are allowed.
[[noreturn]] void Become(char* const* arguments,
                         int stdout_fd,
                         int log_fd,
                         const std::vector<int>& inherited,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kCannotRun);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::setpgid(0, 0);  // Ctrl-C is for the parent, which then drains its children
  ::dup2(stdout_fd, STDOUT_FILENO);
  if (log_fd >= 0) ::dup2(log_fd, STDERR_FILENO);
  for (const int fd : inherited) ::fcntl(fd, F_SETFD, 0);
  ::execv(arguments[0], arguments);
  ::_exit(kCannotRun);
}

}  // namespace

ChildProcess::ChildProcess(pid_t pid, UniqueFd pidfd, UniqueFd stdout_fd)
    : pid_(pid), pidfd_(std::move(pidfd)), stdout_(std::move(stdout_fd)) {}

ChildProcess::~ChildProcess() {
  Signal(SIGKILL);
  WaitExit(std::chrono::seconds(10));
}

StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const ChildOptions& options) {
  const std::string& binary = options.command.at(0);
  if (::access(binary.c_str(), X_OK) != 0) {
    return MakeStatus(
        StatusCode::kNotFound, "{} cannot be started: {}", binary, std::strerror(errno));
  }
  UniqueFd log;
  if (!options.log_file.empty()) {
    log.Reset(::open(options.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log.valid()) return SystemError(options.log_file.c_str());
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return SystemError("pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  std::vector<std::string> words = options.command;
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return SystemError("fork");
  if (pid == 0) Become(arguments.data(), write_end.get(), log.get(), options.inherited, parent);
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd.valid()) {
    const Status error = SystemError("pidfd_open");
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return error;
  }
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(pid, std::move(pidfd), std::move(read_end)));
}

bool ChildProcess::ReadSome(Time deadline, std::string& into) {
  pollfd waiting{stdout_.get(), POLLIN, 0};
  if (::poll(&waiting, 1, PollMillis(deadline)) <= 0) return false;
  char buffer[4096];
  const auto n = ::read(stdout_.get(), buffer, sizeof(buffer));
  if (n <= 0) return false;
  into.append(buffer, static_cast<size_t>(n));
  return true;
}

StatusOr<std::map<std::string, std::string>> ChildProcess::WaitReady(Duration limit) {
  const Time deadline = SteadyClock().Now() + limit;
  std::string text;
  constexpr std::string_view kMark = "ready ";
  while (true) {
    const size_t begin = text.find(kMark);
    const size_t end = begin == std::string::npos ? begin : text.find('\n', begin);
    if (end != std::string::npos) {
      const std::string_view line = std::string_view(text).substr(0, end);
      BATON_ASSIGN_OR_RETURN(const nlohmann::json json,
                             ParseJson("its line \"ready\"", line.substr(begin + kMark.size())));
      std::map<std::string, std::string> addresses;
      for (const auto& [name, address] : json.items()) {
        if (address.is_string()) addresses[name] = address.get<std::string>();
      }
      return addresses;
    }
    if (ReadSome(deadline, text)) continue;
    if (const auto exit = WaitExit(std::chrono::milliseconds(0))) {
      return MakeStatus(
          StatusCode::kUnavailable, "it ended with status {} before it was ready", *exit);
    }
    if (SteadyClock().Now() >= deadline) {
      return MakeStatus(
          StatusCode::kDeadlineExceeded, "it was not ready within {:.1f} s", ToSeconds(limit));
    }
  }
}

void ChildProcess::Signal(int signal) {
  if (!exit_status_.has_value()) ::kill(pid_, signal);
}

std::optional<int> ChildProcess::WaitExit(Duration limit) {
  if (exit_status_.has_value()) return exit_status_;
  pollfd waiting{pidfd_.get(), POLLIN, 0};
  const Time deadline = SteadyClock().Now() + limit;
  int ready = 0;
  do {
    ready = ::poll(&waiting, 1, PollMillis(deadline));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) return std::nullopt;
  int status = 0;
  if (::waitpid(pid_, &status, 0) != pid_) return std::nullopt;
  exit_status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return exit_status_;
}

std::string ChildProcess::ReadStdout(Duration limit) {
  const Time deadline = SteadyClock().Now() + limit;
  std::string text;
  while (ReadSome(deadline, text)) {
  }
  return text;
}

std::string BinaryFolder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

}  // namespace baton
