#pragma once

#include <cstddef>
#include <span>

#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace baton {

// Maps all bytes of `memory`, a memfd, so that changes are shared with the other processes that map
// it. The caller unmaps them (munmap). InvalidArgument when it is not memory, or has fewer than
// `least_bytes` bytes; ResourceExhausted when the system does not map it.
StatusOr<std::span<std::byte>> MapSharedMemory(const UniqueFd& memory,
                                               size_t least_bytes,
                                               bool writable = true);

}  // namespace baton
