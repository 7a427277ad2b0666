#pragma once

#include <string>

namespace baton {

// Whether only processes of this machine can reach a socket that listens on `host`: an address of
// 127.0.0.0/8 or ::1, or a name all of whose addresses are such. False for a name without an
// address.
bool IsLoopback(const std::string& host);

}  // namespace baton
