#pragma once

#include <string>
#include <vector>

#include "common/base/unique_fd.h"

namespace baton {

// A client of the OpenAI API's streams, on one connection that it keeps. It sets TCP_NODELAY and
// reads as soon as bytes arrive, so that only the server's delays are measured. A wrong answer
// breaks an invariant. Not thread-safe.
class EventClient final {
 public:
  // `address`: "IPv4:port".
  explicit EventClient(const std::string& address);

  // Sends a streaming request and reads its events up to [DONE]. Returns the milliseconds from
  // sending to each event's arrival, [DONE] left out; one event at least.
  std::vector<double> Stream(const std::string& path, const std::string& body);

 private:
  const std::string address_;
  UniqueFd socket_;
};

}  // namespace baton
