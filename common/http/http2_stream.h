#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/base/clock.h"
#include "common/http/http_head.h"
#include "common/http/http_limits.h"
#include "common/http/http_routes.h"
#include "common/http/http_server.h"

namespace baton {

class ConnectionExchange;

// One request of a connection of HTTP/2, and its answer. Used on the io thread.
struct Http2Stream {
  enum class Phase { kHead, kBody, kAnswer };

  // `unsent_sum`: HttpShared::unsent_bytes.
  explicit Http2Stream(std::atomic<size_t>& unsent_sum)
      : unsent(std::make_shared<UnsentBytes>(unsent_sum)) {}

  // Appends bytes of the answer. `last`: the answer ends with them.
  void Append(std::string bytes, bool last, Time now, Duration write_timeout);
  // Copies the next bytes of the answer, and sets `ends` when it ends with them.
  size_t Take(std::span<uint8_t> into, bool& ends, Time now, Duration write_timeout);

  Phase phase = Phase::kHead;
  bool head_complete = false;
  bool body_complete = false;
  HttpRefusal refusal;    // found while the request was received
  HttpRequest request;    // until the exchange has it
  std::string authority;  // ":authority"
  HttpRoutes::Route route;
  size_t max_body_bytes = 0;
  // A request beside others of its connection has a slot of its own, so that the limits of
  // connections bound the requests in progress, too.
  std::optional<ConnectionSlots::Slot> slot;
  ByteBudget::Share body_share;
  std::weak_ptr<ConnectionExchange> exchange;

  std::deque<std::string> output;
  size_t taken_of_front = 0;  // bytes of the first element of output that are sent
  bool output_ends = false;
  // Bytes in output, and those on the way to it from another thread.
  const std::shared_ptr<UnsentBytes> unsent;
  // When the header or the body must be complete, or the first element of output taken.
  Time deadline = kNever;
};

}  // namespace baton
