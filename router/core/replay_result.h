#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/token_id.h"
#include "common/cluster/request.h"
#include "router/types.h"

namespace baton::router {

// The workers of one run of a request. `prefill` equals `decode` when one worker served it alone.
struct WorkerPair {
  WorkerId prefill;
  WorkerId decode;
};

// The output of one sample.
struct SampleOutput {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
  // The sample ended for a reason outside its tokens: a stop string, or a full KV arena.
  bool cut = false;
};

// Where two outputs of one request differ first.
struct ReplayDifference {
  int32_t sample = 0;
  int32_t position = 0;           // index of the output token
  std::optional<TokenId> first;   // nullopt: the first run had ended before this position
  std::optional<TokenId> replay;  // nullopt: the replay had ended before this position
};

// Why a request of the sample was not compared.
enum class ReplaySkip : uint8_t {
  kNoOtherWorker,     // no other decode worker is ready and could hold the request
  kBusy,              // clients needed the workers, or too many requests waited for their replay
  kNotDeterministic,  // one of its workers may give other tokens when others share its steps
  kTooLong,           // the request alone exceeds ReplayOptions::max_tokens
  kWorkerLeft,        // one of its workers had left the router before the request ended
  kFailed,            // the replay ended with an error, for example because its worker was lost
};
constexpr int kReplaySkips = 6;
// "no_other_worker", "busy", "not_deterministic", "too_long", "worker_left", "failed".
std::string_view Name(ReplaySkip skip);

// The end of the check of one request.
struct ReplayResult {
  RequestId request;
  WorkerPair first;
  WorkerPair replay;                         // empty when the request was not replayed
  std::optional<ReplaySkip> skipped;         // set: not compared
  std::optional<ReplayDifference> mismatch;  // set: the outputs differ
  int32_t cached_tokens = 0;  // prompt tokens that the replay found in a prefix cache
};

}  // namespace baton::router
