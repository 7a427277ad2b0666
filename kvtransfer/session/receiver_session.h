#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kvtransfer/data_plane/planner.h"
#include "kvtransfer/messages/messages.h"
#include "kvtransfer/options.h"
#include "kvtransfer/session/sender_session.h"

namespace baton {

// The actions of a ReceiverSession, to be carried out in order. It also uses SendControl,
// ReportRefused and ReportQuarantined.
struct ReportOffer {
  Offer offer;
};
struct ReportWithdrawn {
  Status status;
};
// Lets writes with the grant's key into the granted blocks. GRANT is sent after this action.
struct OpenWindows {};
struct CloseWindows {};  // OnWindowsClosed must follow
struct ReportCommitted {
  std::string payload;
};
struct ReportReleased {
  Status status;
};
using ReceiverAction = std::variant<SendControl,
                                    ReportOffer,
                                    ReportRefused,
                                    ReportWithdrawn,
                                    OpenWindows,
                                    CloseWindows,
                                    ReportCommitted,
                                    ReportReleased,
                                    ReportQuarantined>;

enum class ReceiverState {
  kPending,      // offered; the worker has not answered
  kReceiving,    // granted; writes may land
  kClosing,      // complete and verified; the windows are being closed
  kDraining,     // failed; the windows are being closed
  kQuarantined,  // the windows could not be closed in time
  kCommitted,    // this and the following states are final
  kReleased,
  kRefused,
  kWithdrawn,
};
std::string_view Name(ReceiverState state);

// What a receiver answers to a message, other than OFFER, of a session that it does not have;
// nullopt: nothing.
std::optional<ControlMessage> AnswerWithoutReceiver(const ControlMessage& message);

// One hand-off, as the decode worker sees it. Pure: no I/O, threads or clock. Granted blocks may be
// written from OpenWindows until ReportCommitted or ReportReleased. These two come only after
// OnWindowsClosed. After its end the session still answers late messages. Owned by KvReceiver, or
// by a simulation.
class ReceiverSession final {
 public:
  // The worker's grant.
  struct Reservation {
    // A link to this worker.
    struct Link {
      LinkGroups groups;
      uint64_t block_bytes = 0;  // of one block of tokens, or of one state
    };
    baton::Grant grant;
    std::vector<Link> links;    // size is grant.links
    uint32_t state_blocks = 0;  // the local arena blocks of a state
  };

  ReceiverSession(Offer offer, OwedBlocks owed, const SessionTimes& times, Time now);

  // From the worker. InvalidArgument if the reservation does not fit the offer, FailedPrecondition
  // if the offer is no longer pending; the caller then keeps its blocks.
  Status Grant(Reservation reservation, Time now);
  void Refuse(Status reason, Time now);
  void Abort(Status reason, Time now);

  // From the peer.
  void OnMessage(const ControlMessage& message, Time now);
  void OnPeerLost(Status reason, Time now);

  // From the data path, in the order in which the pieces landed.
  void OnArrival(const PieceArrival& arrival, Time now);
  // OK: no byte can land any more. An error: this cannot be proven.
  void OnWindowsClosed(const Status& status, Time now);

  void OnTime(Time now);
  Time wake_time() const;

  std::vector<ReceiverAction> TakeActions() { return std::exchange(actions_, {}); }
  ReceiverState state() const { return state_; }
  bool ended() const { return state_ >= ReceiverState::kCommitted; }
  // The blocks that were granted in all cache groups.
  uint32_t granted_blocks() const { return BlocksIn(reservation_.grant); }
  // Every piece has arrived, and SEAL has not.
  bool lacks_only_seal() const {
    return state_ == ReceiverState::kReceiving && !sealed_ && arrived_ == pieces_.size();
  }
  const baton::Grant& grant() const { return reservation_.grant; }
  const OwedBlocks& owed() const { return owed_; }
  uint64_t bytes() const { return expected_bytes_; }
  uint32_t damaged_blocks() const { return damaged_; }

 private:
  struct Piece {
    bool arrived = false;
    uint64_t checksum = 0;
  };

  void Send(ControlMessage message) { actions_.emplace_back(SendControl{std::move(message)}); }
  void OnOfferAgain();
  void OnRenew(const Renew& renew);
  void SendProgress();
  void OnSeal(const Seal& seal, Time now);
  void Answer();  // answers a late message with the outcome
  void CloseWhenComplete(Time now);
  // The blocks of tokens with a piece whose checksum is not the one in SEAL.
  std::vector<uint32_t> DamagedBlocks() const;
  void Commit();
  void Drain(Status outcome, bool tell_peer, Time now);

  const Offer offer_;
  const OwedBlocks owed_;
  const SessionTimes times_;
  ReceiverState state_ = ReceiverState::kPending;
  std::vector<ReceiverAction> actions_;
  Reservation reservation_;
  PieceIndex index_;
  std::vector<Piece> pieces_;  // numbered by index_, as Seal::checksums
  uint32_t arrived_ = 0;       // pieces that have arrived
  uint64_t expected_bytes_ = 0;
  bool sealed_ = false;
  Seal seal_;
  uint32_t resends_ = 0;
  std::vector<uint32_t> wanted_again_;
  uint32_t damaged_ = 0;
  Status outcome_;
  Time deadline_;
  Time last_heard_;
  Time drain_until_ = kNever;
};

}  // namespace baton
