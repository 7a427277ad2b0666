#pragma once

namespace baton {

// Gives what gRPC and protocol buffers themselves log to our log, as modules "grpc" and "protobuf",
// instead of writing it to stderr, where a full pipe would block their threads. Servers and
// channels call it; once a process is enough. Thread-safe.
void RedirectLibraryLogs();

}  // namespace baton
