// The input is what a peer sends to a tcp data endpoint. The endpoint must not crash, and only
// bytes in the open window may change.

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/base/check.h"
#include "kvtransfer/tcp/tcp_address.h"
#include "kvtransfer/tcp/tcp_transport.h"
#include "kvtransfer/wire/frame.h"
#include "tests/conformance/host_buffer.h"

namespace baton {
namespace {

constexpr uint64_t kKey = 0x6b6b6b6b6b6b6b6b;

// An endpoint that serves all inputs of the fuzzer.
class Endpoint final {
 public:
  Endpoint() {
    TransportOptions options;
    options.listen_address = "127.0.0.1:0";
    options.max_connections = 4;
    transport_ = *TcpTransport::Create(options, nullptr, {});
    region_ = *transport_->Register(arena_);
    address_ = *ParseTcpAddress(transport_->Listen()->substr(2));
    BATON_CHECK(transport_->OpenWindow({kKey, region_->id(), {{1024, 1024}}}).ok(), "window");
  }
  ~Endpoint() {
    transport_->CloseWindow(kKey);
    region_.reset();
  }

  void Serve(const uint8_t* data, size_t size) {
    arrived_ = 0;
    heard_.clear();
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(),
                  reinterpret_cast<const sockaddr*>(&address_.storage),
                  address_.length) != 0) {
      return;
    }
    // The peer stays connected until it has read all acknowledgements.
    bool open = true;
    for (int idle = 0; open && idle < 2;) {
      const ssize_t sent = ::send(socket.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) {
        data += sent;
        size -= static_cast<size_t>(sent);
      }
      const bool worked = has_work();
      PollEndpoint();
      open = Hear(socket);
      idle = worked || sent > 0 ? 0 : idle + 1;
    }
    CheckAcks();
    socket.Reset();
    for (int turn = 0; turn < 4; ++turn) PollEndpoint();
    for (size_t i = 0; i < arena_.size(); ++i) {
      const bool inside = i >= 1024 && i < 2048;
      BATON_CHECK(inside || arena_.data()[i] == std::byte{0}, "byte {} was written", i);
    }
  }

 private:
  bool has_work() const {
    pollfd waits{transport_->wait_fd(), POLLIN, 0};
    return ::poll(&waits, 1, 0) > 0;
  }
  void PollEndpoint() {
    std::array<Arrival, 8> arrivals;
    arrived_ += transport_->Poll(Time(std::chrono::hours(1)), arrivals);
  }
  // Reads what the endpoint has sent. Returns false when the endpoint has closed the connection.
  bool Hear(const UniqueFd& socket) {
    while (true) {
      std::array<char, 4096> buffer;
      const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got <= 0) return got < 0 && errno == EAGAIN;
      heard_.append(buffer.data(), static_cast<size_t>(got));
    }
  }
  // Checks that a frame is acknowledged with code 0 only when its payload has arrived.
  void CheckAcks() const {
    size_t good = 0;
    for (size_t at = 0; at + sizeof(WriteAck) <= heard_.size(); at += sizeof(WriteAck)) {
      WriteAck ack;
      std::memcpy(&ack, heard_.data() + at, sizeof(ack));
      BATON_CHECK(ack.magic == kAckMagic, "an acknowledgement begins with {:#010x}", ack.magic);
      good += ack.code == 0 ? 1 : 0;
    }
    // Acknowledgements to a peer that was cut off may be lost, so there may be fewer than arrivals.
    BATON_CHECK(good <= arrived_, "{} writes were acknowledged, {} arrived", good, arrived_);
  }

  HostBuffer arena_{4096};
  size_t arrived_ = 0;
  std::string heard_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Region> region_;
  TcpAddress address_;
};

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static baton::Endpoint endpoint;
  endpoint.Serve(data, size);
  return 0;
}
