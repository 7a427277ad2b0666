#include "tests/support/tcp_proxy.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "common/base/thread.h"

namespace baton {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Error = boost::system::error_code;

tcp::endpoint EndpointOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  return {asio::ip::make_address(address.substr(0, colon)),
          static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1))};
}

// Closes with RST instead of FIN, so that both ends see a broken connection.
void Reset(tcp::socket& socket) {
  Error ignored;
  socket.set_option(asio::socket_base::linger(true, 0), ignored);
  socket.close(ignored);
}

}  // namespace

// All work runs on one thread. TcpProxy calls Impl's public methods on this thread through Run.
class TcpProxy::Impl {
 public:
  // Runs `work` on the proxy's thread and waits for it.
  template <class F>
  auto Run(F work) {
    std::packaged_task<decltype(work())()> task(std::move(work));
    auto result = task.get_future();
    asio::post(io_, [&task] { task(); });
    return result.get();
  }

  Impl() : acceptor_(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)) {
    address_ = fmt::format("127.0.0.1:{}", acceptor_.local_endpoint().port());
    Accept();
    thread_ = StartThread("tcp-proxy", [this](const std::stop_token&) { io_.run(); });
  }

  ~Impl() {
    Run([this] {
      Cut();
      acceptor_.close();
    });
    guard_.reset();
    io_.stop();
  }

  const std::string& address() const { return address_; }

  void Forward(const std::string& target) { target_ = EndpointOf(target); }

  int Cut() {
    const auto cut = std::exchange(relays_, {});
    for (const auto& relay : cut) {
      Reset(relay->client);
      Reset(relay->server);
    }
    held_.clear();
    return static_cast<int>(cut.size());
  }

  void Freeze() { frozen_ = true; }

  void Limit(size_t bytes_per_second) { limit_ = bytes_per_second; }

  void ChangeBit(size_t after) { change_after_ = after; }
  int changed_bits() const { return changed_bits_; }

  void Thaw() {
    frozen_ = false;
    for (const auto& resume : std::exchange(held_, {})) resume();
  }

 private:
  // The two sockets of one relayed connection.
  struct Relay {
    explicit Relay(tcp::socket accepted)
        : client(std::move(accepted)), server(client.get_executor()) {}
    tcp::socket client;
    tcp::socket server;
    std::array<char, 16384> to_server;
    std::array<char, 16384> to_client;
    size_t sent_to_server = 0;
  };
  using RelayPtr = std::shared_ptr<Relay>;

  void Accept() {
    acceptor_.async_accept([this](Error error, tcp::socket socket) {
      if (error) return;
      if (target_.port() == 0) {
        Reset(socket);
      } else {
        const auto relay = std::make_shared<Relay>(std::move(socket));
        relays_.insert(relay);
        WhenThawed([this, relay] { Connect(relay); });
      }
      Accept();
    });
  }

  void Connect(const RelayPtr& relay) {
    relay->server.async_connect(target_, [this, relay](Error error) {
      if (error) return End(relay);
      Error ignored;
      relay->client.set_option(tcp::no_delay(true), ignored);
      relay->server.set_option(tcp::no_delay(true), ignored);
      Pass(relay, relay->client, relay->server, relay->to_server);
      Pass(relay, relay->server, relay->client, relay->to_client);
    });
  }

  void Pass(const RelayPtr& relay,
            tcp::socket& from,
            tcp::socket& to,
            std::array<char, 16384>& buffer) {
    from.async_read_some(
        asio::buffer(buffer), [this, relay, &from, &to, &buffer](Error error, size_t size) {
          if (error) return End(relay);
          const bool to_server = &from == &relay->client;
          if (to_server) Change(*relay, size);
          const auto write = [this, relay, &from, &to, &buffer, size] {
            asio::async_write(to,
                              asio::buffer(buffer, size),
                              [this, relay, &from, &to, &buffer](Error failed, size_t) {
                                if (failed) return End(relay);
                                Pass(relay, from, to, buffer);
                              });
          };
          WhenThawed([this, to_server, size, write] {
            to_server&& limit_ > 0 ? WhenDue(size, write) : write();
          });
        });
  }

  // Calls `work` when the limit allows `size` more bytes.
  void WhenDue(size_t size, std::function<void()> work) {
    due_ = std::max(due_, Clock::now()) + std::chrono::microseconds(size * 1'000'000 / limit_);
    const auto timer = std::make_shared<asio::steady_timer>(io_, due_);
    timer->async_wait([timer, work = std::move(work)](Error) { work(); });
  }

  // The next `size` bytes of a client are in the relay's buffer.
  void Change(Relay& relay, size_t size) {
    if (change_after_ && relay.sent_to_server >= *change_after_) {
      change_after_.reset();
      ++changed_bits_;
      relay.to_server[size / 2] ^= 1;
    }
    relay.sent_to_server += size;
  }

  void WhenThawed(std::function<void()> work) {
    if (frozen_) {
      held_.push_back(std::move(work));
    } else {
      work();
    }
  }

  void End(const RelayPtr& relay) {
    Error ignored;
    relay->client.close(ignored);
    relay->server.close(ignored);
    relays_.erase(relay);
  }

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard_{io_.get_executor()};
  tcp::acceptor acceptor_;
  std::string address_;
  tcp::endpoint target_;
  std::set<RelayPtr> relays_;
  std::vector<std::function<void()>> held_;
  bool frozen_ = false;
  size_t limit_ = 0;  // bytes per second; 0: none
  Clock::time_point due_;
  std::optional<size_t> change_after_;  // a bit must be changed
  int changed_bits_ = 0;
  std::jthread thread_;
};

TcpProxy::TcpProxy() : impl_(std::make_unique<Impl>()) {}
TcpProxy::~TcpProxy() = default;

const std::string& TcpProxy::address() const {
  return impl_->address();
}

void TcpProxy::Forward(const std::string& target) {
  impl_->Run([&] { impl_->Forward(target); });
}

int TcpProxy::Cut() {
  return impl_->Run([&] { return impl_->Cut(); });
}

void TcpProxy::Freeze() {
  impl_->Run([&] { impl_->Freeze(); });
}

void TcpProxy::Thaw() {
  impl_->Run([&] { impl_->Thaw(); });
}

void TcpProxy::Limit(size_t bytes_per_second) {
  impl_->Run([&] { impl_->Limit(bytes_per_second); });
}

void TcpProxy::ChangeBit(size_t after) {
  impl_->Run([&] { impl_->ChangeBit(after); });
}

int TcpProxy::changed_bits() const {
  return impl_->Run([&] { return impl_->changed_bits(); });
}

}  // namespace baton
