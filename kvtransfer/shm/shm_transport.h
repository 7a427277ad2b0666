#pragma once

#include "kvtransfer/wire/frame_transport.h"

namespace baton {

// KV data between processes of one host and user. The sender passes its arena's memfd and a slot
// table over a Unix-domain socket, then only the runs of each write; the receiver copies the
// payload. Each operation is settled in its slot (wire/slot_table.h), so fence and abort do not
// need the peer. Descriptor: "1|host boot id|abstract socket name". Contract and threads:
// transport.h.
class ShmTransport final : public FrameTransport {
 public:
  static StatusOr<std::unique_ptr<Transport>> Create(const TransportOptions& options,
                                                     std::function<void(std::string_view)> log);

  std::string_view name() const override { return "shm"; }
  // The buffer must be a memfd. Register seals it against shrinking and growing.
  StatusOr<std::unique_ptr<Region>> Register(const Buffer& buffer) override;
  StatusOr<std::string> Listen() override;
  Status Reaches(std::string_view descriptor) const override;
  StatusOr<std::unique_ptr<Channel>> Connect(const Region& local,
                                             std::string_view descriptor,
                                             uint32_t peer_region) override;

 private:
  using FrameTransport::FrameTransport;

  StatusOr<std::unique_ptr<PeerConnection>> Accept(UniqueFd socket, Time now);
};

}  // namespace baton
