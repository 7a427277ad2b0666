#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

// Unix-domain sockets between processes of one host and user, by abstract names (unix(7)): they
// need no file, and go with their owner. All are non-blocking.
namespace baton {

// Tells this machine, since its last start, from all others.
StatusOr<std::string> HostBootId();

// `type`: SOCK_STREAM or SOCK_SEQPACKET.
StatusOr<UniqueFd> ListenLocal(std::string_view name, int type);
StatusOr<UniqueFd> ConnectLocal(std::string_view name, int type);

// The process at the other end. PermissionDenied when it is of another user: abstract sockets have
// no file permissions.
StatusOr<pid_t> LocalPeer(const UniqueFd& socket);

}  // namespace baton
