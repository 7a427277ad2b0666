#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "router/types.h"

namespace baton::router {

// What a RequestMachine asks of its surroundings.
class RequestHost {
 public:
  struct Assignment {
    WorkerSlot prefill = kNoWorker;  // kNoWorker: decode serves alone
    WorkerSlot decode = kNoWorker;
  };
  struct PlaceQuery {
    const RequestSpec& spec;
    const std::vector<TokenId>& resumed;  // output so far
    int32_t samples = 1;
    const std::vector<BootId>& avoid;   // not these workers, if there are others
    const std::vector<BootId>& unable;  // never these: they said that they cannot hold it
    bool suspect = false;               // not beside another suspect (RequestMachine)
    bool again = false;                 // it was dispatched before
  };

  virtual ~RequestHost() = default;
  // Chooses workers. Nothing when none can take it now; an error when waiting will not help:
  // InvalidArgument when no worker can ever hold it.
  virtual StatusOr<std::optional<Assignment>> Place(const PlaceQuery& query) = 0;
  // Another decode worker for KV that `prefill` keeps; kNoWorker when there is none.
  virtual WorkerSlot PlaceDecode(const PlaceQuery& query, WorkerSlot prefill) = 0;
  // Why Place finds nothing, for the client of a request that is a suspect or not.
  virtual std::string WhyNoPlace(bool suspect) const = 0;
  // Whether KV ever went from this prefill worker's process to this decode worker's.
  virtual bool HandedOver(WorkerSlot prefill, WorkerSlot decode) const = 0;
  virtual void NoteHandOver(WorkerSlot prefill, WorkerSlot decode) = 0;
  virtual SessionId NewSession() = 0;
  virtual Peer PeerOf(WorkerSlot slot) const = 0;

  // Sends, and books the load of a dispatch; Release takes it off the books.
  virtual void Send(WorkerSlot slot, WorkerCommand command) = 0;
  virtual void PromptDone(WorkerSlot slot, RequestId id, Epoch epoch) = 0;
  virtual void Release(WorkerSlot slot, RequestId id, Epoch epoch) = 0;

  virtual void Deliver(RequestId id, ClientEvent event) = 0;
};

}  // namespace baton::router
