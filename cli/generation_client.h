#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "cli/router_endpoint.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/cluster/sampling_fields.h"

namespace baton {

struct ChatTurn {
  std::string role;
  std::string content;
};

// One request with the parameters that the user set. Absent parameters take the server's defaults.
struct GenerateCall : SamplingOverrides {
  std::string model;
  std::vector<ChatTurn> turns;  // a chat; when empty, `text` is the prompt, without a template
  std::string text;
  std::optional<uint64_t> seed;
  std::optional<int32_t> max_tokens;
  std::vector<std::string> stop;
  std::string regex = {};  // what the whole answer must match; empty: anything
  bool ignore_eos = false;
  uint32_t timeout_ms = 0;
};

// The result of a request and its times (Usage and Timings of proto/generation.proto).
struct GenerateAccount {
  std::string text;             // the whole answer
  std::vector<int32_t> tokens;  // the generated tokens
  std::string finish;           // "stop" or "length"
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t generated_tokens = 0;
  double queue_ms = 0;
  double prefill_ms = 0;
  double transfer_ms = 0;
  double ttft_ms = 0;
  double tpot_ms = 0;
  uint64_t transfer_bytes = 0;
  double transfer_gigabytes_per_second = 0;
  std::string transport;  // empty: no KV was handed over
  std::string prefill_worker;
  std::string decode_worker;
  int32_t attempts = 0;
};

// A client of a router's Generation service. Thread-safe.
class GenerationClient final {
 public:
  explicit GenerationClient(const RouterEndpoint& endpoint);
  ~GenerationClient();

  // Streams an answer: calls `on_text` with each piece of text on the caller's thread. A stop
  // request on `stop` cancels the request. Errors: the server's own, Cancelled, and Unavailable,
  // which names the address and the command that starts a cluster.
  StatusOr<GenerateAccount> Generate(const GenerateCall& call,
                                     const std::function<void(std::string_view)>& on_text,
                                     const std::stop_token& stop = {});

  // The name of the model that the cluster serves.
  StatusOr<std::string> ModelName();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The time of each phase of the request, one line per phase, for display.
std::string FormatAccount(const GenerateAccount& account);
// The account as one JSON object.
std::string AccountJson(const GenerateAccount& account);

}  // namespace baton
