#pragma once

namespace baton {

// Sends the log lines of gRPC and protocol buffers to Baton's log, as modules "grpc" and
// "protobuf". By default these libraries write to stderr themselves, where a full pipe would block
// their threads. Every server and channel calls this function; only the first call has an effect.
// Thread-safe.
void RedirectLibraryLogs();

}  // namespace baton
