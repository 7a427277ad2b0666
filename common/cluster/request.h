#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "common/base/status.h"
#include "common/base/token_list.h"

namespace baton {

// (id, epoch) identifies a request on one worker.
using RequestKey = std::pair<RequestId, Epoch>;

// What a worker does with a request.
enum class RequestKind : uint8_t {
  kServe,    // computes the prompt and generates to the end
  kPrefill,  // computes the prompt, chooses the first token of each sample, then holds the prompt's
             // KV until ReleaseKv
  kDecode,   // reserves blocks for a prompt whose KV arrives from a prefill worker, then generates
};

// How the hidden states of a prompt, after the final norm, become the vector that is its result.
enum class Pooling : uint8_t {
  kNone,   // the result is output
  kLast,   // the state of the last token
  kMean,   // the mean of all states
  kFirst,  // the state of the first token
};

// What a client states and a worker gets unchanged. The router only copies this struct, so that a
// new member needs no code between the APIs and the wire.
struct PassedOptions {
  int32_t priority = 0;    // the priority policy serves higher values first
  std::string cache_salt;  // separates tenants in the prefix cache
  // What the output must match (common/grammar/grammar_spec.h); empty: anything. The stop tokens
  // are allowed only where the output may end.
  std::string grammar;

  bool operator==(const PassedOptions&) const = default;
};

// What the user chose, which is the same for every dispatch of the request.
struct RequestOptions : PassedOptions {
  SamplingParams sampling;  // sample i draws with a seed derived from (seed, i)
  int32_t max_tokens = 16;  // of output, resumed tokens included
  int32_t min_tokens = 0;
  std::vector<TokenId> stop_tokens;  // end the sequence; the token is emitted as the last one
  // k ≥ 0: the logprob of each prompt token but the first, and the k highest there; -1: none. They
  // come with the first token, and the whole prompt is computed for them, cached or not.
  int32_t prompt_logprobs = -1;
  // With kNone the request generates. Otherwise it ends after its prompt, with a vector: it must be
  // kServe with one sample and one token, whose id and logprob say nothing.
  Pooling pooling = Pooling::kNone;
  // The first token of each sample, whatever the logits are, for its logprob; empty: none.
  std::vector<TokenId> labels;
  Time arrival{};  // at this process
  Duration age{};  // how long before `arrival` a router accepted the request
  // A number for who sent the request (a key or an address). Clients take turns in the worker's
  // queue of grammars that wait to be compiled; other queues ignore it. 0: no client, such as a
  // replay.
  uint64_t client_tag = 0;
  Time deadline = kNever;

  bool pools() const { return pooling != Pooling::kNone; }
  // No output follows the results of the prompt.
  bool ends_with_prompt() const { return pools() || !labels.empty(); }
  bool operator==(const RequestOptions&) const = default;
};

// A request as the engine sees it. (id, epoch) names a request: a later epoch of the same id is a
// new request.
struct Request : RequestOptions {
  RequestId id;
  Epoch epoch;
  RequestKind kind = RequestKind::kServe;
  // The prompt, followed by tokens that an earlier epoch generated (resume). At least one.
  TokenList tokens;
  // How many of `tokens` are the user's prompt. The rest is output: penalties, max_tokens and
  // output indices count the rest as output. A request with resumed output has one sample, and
  // first_sample is that sample's number.
  int32_t prompt_length = 0;
  int32_t samples = 1;  // parallel samples ("n")
  int32_t first_sample = 0;
  // kPrefill, kDecode: the other worker of the hand-off takes its KV blocks first. This worker
  // takes none before Engine::PeerReady (kvtransfer/waiting.md).
  bool peer_first = false;
  // kPrefill: no other workers may serve the request, so the hand-off goes on over a slow link.
  bool pinned = false;

  bool operator==(const Request&) const = default;
};

enum class FinishReason : uint8_t {
  kNone,       // more tokens follow
  kStop,       // a stop token was chosen
  kLength,     // max_tokens, the context length or the size of the KV arena is reached
  kHandedOff,  // kPrefill only: this was the first token; a decode worker generates the rest
};

// One token of one sample. `index` counts output tokens from 0, resumed tokens included.
struct TokenOutput {
  RequestId id;
  Epoch epoch;
  int32_t sample = 0;
  int32_t index = 0;
  SampledToken token;
  FinishReason finish = FinishReason::kNone;
  int32_t cached_tokens = 0;  // with index 0: as in RequestTimes
  // With the first token of a request that wants prompt_logprobs: of the prompt's tokens from the
  // second on.
  std::vector<SampledToken> prompt = {};
  // The result of a request that pools; not normalised.
  std::vector<float> pooled = {};

  bool operator==(const TokenOutput&) const = default;
};

// Where the time of a request went on its worker.
struct RequestTimes {
  Duration queued{};   // arrival → first step
  Duration prefill{};  // first step → first token (kServe, kPrefill)
  int32_t cached_tokens = 0;

  bool operator==(const RequestTimes&) const = default;
};

}  // namespace baton
