#pragma once

#include <string>
#include <vector>

#include "common/base/unique_fd.h"

namespace baton {

// A client for streamed answers of the OpenAI API, on one persistent connection. It sets
// TCP_NODELAY and reads as soon as bytes arrive, so that only the server's delays are measured. Any
// failure aborts the process by BATON_CHECK. Not thread-safe.
class EventClient final {
 public:
  // `address`: "IPv4:port".
  explicit EventClient(const std::string& address);

  // Sends a streaming request and reads its events up to [DONE]. Returns, for each event before
  // [DONE], the milliseconds from the request to the event's arrival. There is at least one event.
  std::vector<double> Stream(const std::string& path, const std::string& body);

 private:
  const std::string address_;
  UniqueFd socket_;
};

}  // namespace baton
