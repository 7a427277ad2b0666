#include "kvtransfer/cuda_ipc/ipc_access.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/local_socket.h"

namespace baton {
namespace {

// Calls the kernel directly, because glibc 2.36 does not declare pidfd_open for C++. -1 on failure.
int OpenProcess(pid_t process) {
  return process > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, process, 0)) : -1;
}

}  // namespace

IpcAccess::IpcAccess(std::string peer, UniqueFd process, Dma& dma)
    : peer_(std::move(peer)), process_(std::move(process)), dma_(dma) {}

StatusOr<std::unique_ptr<RemoteAccess>> IpcAccess::Create(const UniqueFd& socket, Dma& dma) {
  BATON_ASSIGN_OR_RETURN(const pid_t process, LocalPeer(socket));
  // If a peer does not answer, only the end of its process proves that it writes no more. A process
  // whose end cannot be watched therefore gets no access.
  UniqueFd process_fd(OpenProcess(process));
  if (!process_fd.valid()) {
    return MakeStatus(StatusCode::kUnavailable,
                      "process {} cannot be watched: {}",
                      process,
                      process > 0 ? std::strerror(errno) : "it is in another pid namespace");
  }
  return std::unique_ptr<RemoteAccess>(
      new IpcAccess(fmt::format("process {}", process), std::move(process_fd), dma));
}

StatusOr<std::string> IpcAccess::Open(const Buffer& memory, std::string_view greeting) {
  if (!greeting.empty()) {
    return InvalidArgument("the greeting has {} bytes; in cuda_ipc it is empty", greeting.size());
  }
  return dma_.Export(memory);
}

bool IpcAccess::Revoke() {
  pollfd state{process_.get(), POLLIN, 0};
  return ::poll(&state, 1, 0) == 1;
}

}  // namespace baton
