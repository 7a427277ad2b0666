// What a peer may send to a tcp data endpoint: nothing crashes, and only the open window changes.

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/check.h"
#include "kvtransfer/tcp/tcp_address.h"
#include "kvtransfer/tcp/tcp_transport.h"
#include "tests/conformance/host_buffer.h"

namespace baton {
namespace {

constexpr uint64_t kKey = 0x6b6b6b6b6b6b6b6b;

// An endpoint that lives as long as the fuzzer.
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
    {
      UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(socket.get(),
                    reinterpret_cast<const sockaddr*>(&address_.storage),
                    address_.length) != 0) {
        return;
      }
      (void)!::send(socket.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    std::array<Arrival, 8> arrivals;
    for (int i = 0; i < 4; ++i) transport_->Poll(Time(std::chrono::hours(1)), arrivals);
    for (size_t i = 0; i < arena_.size(); ++i) {
      const bool inside = i >= 1024 && i < 2048;
      BATON_CHECK(inside || arena_.data()[i] == std::byte{0}, "byte {} was written", i);
    }
  }

 private:
  HostBuffer arena_{4096};
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
