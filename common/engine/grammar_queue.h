#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/cluster/request.h"
#include "common/engine/inbox.h"
#include "common/engine/sequence_masks.h"
#include "common/grammar/grammar.h"

namespace baton {

// The requests whose grammar is being compiled, or whose first mask is being computed. Each waits
// alone: the scheduler receives it when both are ready, so that no step waits for the first mask.
// Belongs to the engine's thread; the compiler and SequenceMasks call back on any thread.
class GrammarQueue final {
 public:
  // A request whose grammar is ready, and the samples of it that were stopped meanwhile.
  struct Ready {
    Request request;
    Constraint constraint;
    std::vector<int32_t> stopped;
  };

  // `compiler` may be null: this engine cannot constrain output. All outlive the queue.
  GrammarQueue(GrammarCompiler* compiler, SequenceMasks& masks, Inbox& inbox);
  // Callbacks have no effect afterwards.
  ~GrammarQueue();

  bool empty() const { return waiting_.empty(); }
  int32_t size() const { return static_cast<int32_t>(waiting_.size()); }
  bool Contains(const RequestKey& key) const { return waiting_.contains(key); }
  // The first masks that are being computed, or that nobody has taken yet. Thread-safe.
  int32_t first_masks() const { return gate_->first_masks; }

  // Starts the compilation of the grammar of `request`. The inbox receives Inbox::Compiled.
  void Add(Request request);
  // Takes the request of a compiled grammar out. Nothing when it is no longer waiting; a failure
  // when the grammar does not compile or allows no first token.
  std::optional<StatusOr<Ready>> Take(Inbox::Compiled compiled);
  // Removes a request; whether it was waiting.
  bool Cancel(const RequestKey& key) { return waiting_.erase(key) > 0; }
  void StopSample(const RequestKey& key, int32_t sample);
  void PeerReady(const RequestKey& key);
  // Removes the requests whose deadline has passed, or all if `all`. Returns their keys.
  std::vector<RequestKey> TakeExpired(Time now, bool all);

 private:
  struct Waiting {
    Request request;
    std::vector<int32_t> stopped;
    // Expires with the request, so that the compiler does not compile for nobody.
    std::shared_ptr<const bool> wanted = std::make_shared<const bool>(true);
  };
  // What callbacks use, which may come after the end of the queue.
  struct Gate {
    std::mutex mutex;
    Inbox* inbox = nullptr;
    SequenceMasks* masks = nullptr;
    std::atomic<int32_t> first_masks{0};

    // Needs the mutex. No effect after the end of the queue.
    void Push(const RequestKey& key, StatusOr<Constraint> constraint);
  };
  // What the first mask of a request depends on, beside its grammar.
  struct Output {
    std::vector<TokenId> stop_tokens;
    std::vector<TokenId> tokens;
  };
  // Nothing when the request chooses no token before Activate.
  static std::optional<Output> OutputOf(const Request& request);
  static void OnCompiled(const std::shared_ptr<Gate>& gate,
                         const RequestKey& key,
                         const std::optional<Output>& output,
                         CompiledGrammar grammar);

  GrammarCompiler* const compiler_;
  const std::shared_ptr<Gate> gate_;
  std::map<RequestKey, Waiting> waiting_;
};

}  // namespace baton
