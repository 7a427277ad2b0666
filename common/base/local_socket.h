#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

// Unix-domain sockets between processes of one host and user, with abstract names (unix(7)): the
// names need no file, and disappear with their owner. All sockets are non-blocking.
namespace baton {

// An id of this machine that is unique among machines and changes at each boot.
StatusOr<std::string> HostBootId();

// `type`: SOCK_STREAM or SOCK_SEQPACKET.
StatusOr<UniqueFd> ListenLocal(std::string_view name, int type);
// PermissionDenied when the listener runs as another user.
StatusOr<UniqueFd> ConnectLocal(std::string_view name, int type);

// The process at the other end. PermissionDenied if it runs as another user: abstract sockets have
// no file permissions, so this check replaces them. Unavailable if the kernel does not name it.
StatusOr<pid_t> LocalPeer(const UniqueFd& socket);

}  // namespace baton
