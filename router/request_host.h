#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "router/types.h"

namespace baton::router {

// The services that a RequestMachine needs from its owner (RouterCore).
class RequestHost {
 public:
  struct Assignment {
    WorkerSlot prefill = kNoWorker;  // kNoWorker: the decode worker serves alone
    WorkerSlot decode = kNoWorker;
  };
  struct PlaceQuery {
    const RequestSpec& spec;
    const std::vector<TokenId>& resumed;  // output so far
    int32_t samples = 1;
    const std::vector<BootId>& avoid;   // workers to use only when there are no others
    const std::vector<BootId>& unable;  // workers that can never hold the request: not to be used
    bool suspect = false;               // not on a worker with another suspect (RequestMachine)
    bool again = false;                 // the request was dispatched before
  };

  virtual ~RequestHost() = default;
  // Chooses workers. nullopt when no worker can take the request now. An error when waiting does
  // not help: InvalidArgument when no worker can ever hold the request, ResourceExhausted when its
  // first token is expected after its deadline.
  virtual StatusOr<std::optional<Assignment>> Place(const PlaceQuery& query) = 0;
  // Chooses a decode worker for KV that `prefill` keeps; kNoWorker when there is none.
  virtual WorkerSlot PlaceDecode(const PlaceQuery& query, WorkerSlot prefill) = 0;
  // The reason why Place returned nullopt, as text for the client. `suspect` as in PlaceQuery.
  virtual std::string WhyNoPlace(bool suspect) const = 0;
  // Whether a hand-off from this prefill worker's process to this decode worker's ever committed.
  virtual bool HandedOver(WorkerSlot prefill, WorkerSlot decode) const = 0;
  virtual void NoteHandOver(WorkerSlot prefill, WorkerSlot decode) = 0;
  // A hand-off between these two workers, of which none has committed yet, was refused although the
  // decode worker is not full. For some seconds both methods above choose this pair only when there
  // is no other.
  virtual void NoteOutOfReach(WorkerSlot prefill, WorkerSlot decode) = 0;
  virtual SessionId NewSession() = 0;
  virtual Peer PeerOf(WorkerSlot slot) const = 0;

  // Sends a command and books the load of a dispatch. Release removes the booking.
  virtual void Send(WorkerSlot slot, WorkerCommand command) = 0;
  virtual void PromptDone(WorkerSlot slot, RequestId id, Epoch epoch) = 0;
  virtual void Release(WorkerSlot slot, RequestId id, Epoch epoch) = 0;

  virtual void Deliver(RequestId id, ClientEvent event) = 0;
};

}  // namespace baton::router
