#include "common/http/http_server.h"

#include <sys/socket.h>

#include <ctime>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/host_port.h"
#include "common/base/thread.h"
#include "common/http/http_connection.h"
#include "common/http/http_error.h"
#include "common/http/http_head.h"
#include "common/http/plain_stream.h"
#include "common/log/log.h"

namespace baton {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

const Logger kLog("http");

// The whole answer, head and body, to a client whose connection is closed for want of slots.
std::string ServerIsFull(const std::string& why) {
  const std::string body = HttpErrorBody(503, why);
  return fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nDate: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
      "Retry-After: 1\r\nConnection: close\r\n\r\n{}",
      HttpDate(std::time(nullptr)),
      kHttpErrorType,
      body.size(),
      body);
}

}  // namespace

std::string_view HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

class HttpServer::Impl final {
 public:
  explicit Impl(const HttpServerOptions& options)
      : shared_(std::make_shared<HttpShared>(options)),
        acceptor_(shared_->io),
        retry_(shared_->io) {}

  Status Listen() {
    const std::string& listen = shared_->options.listen;
    BATON_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(listen));
    boost::system::error_code error;
    tcp::resolver resolver(shared_->io);
    const auto found =
        resolver.resolve(address.host, std::to_string(address.port), tcp::resolver::passive, error);
    if (error || found.empty()) {
      return InvalidArgument("address \"{}\" is not usable: {}", listen, error.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (error) {
      return MakeStatus(
          StatusCode::kUnavailable, "cannot listen on {}: {}", listen, error.message());
    }
    const tcp::endpoint local = acceptor_.local_endpoint(error);
    address.port = local.port();
    address_ = address.ToString();
    return OkStatus();
  }

  void Run() {
    Accept();
    thread_ = StartThread("http", [this](const std::stop_token&) { RunIo(); });
  }

  void Drain() {
    asio::post(shared_->io, [this] {
      shared_->draining = true;
      for (const auto& connection : OpenConnections()) connection->Drain();
    });
  }

  void Stop() {
    if (!thread_.joinable()) return;
    asio::post(shared_->io, [this] {
      stopping_ = true;
      boost::system::error_code ignored;
      acceptor_.close(ignored);
      retry_.cancel();
      for (const auto& connection : OpenConnections()) connection->Stop();
    });
    thread_.join();  // RunIo returns when the operations of the closed sockets have ended
    shared_->handlers.join();
    shared_->probe_handlers.join();
  }

  void AddRoute(const std::string& method, const std::string& path, HttpRoutes::Route route) {
    shared_->routes.Add(method, path, std::move(route));
  }

  void SetStarted() { shared_->starting = false; }

  const std::string& address() const { return address_; }

 private:
  // An exception ends the operation that threw it, and thereby its connection, but no other.
  void RunIo() {
    while (true) {
      try {
        shared_->io.run();
        return;
      } catch (const std::exception& exception) {
        shared_->probe.OnException();
        kLog.Error("a connection ended with an exception: {}", exception.what());
      }
    }
  }

  std::vector<std::shared_ptr<HttpConnection>> OpenConnections() {
    std::lock_guard lock(shared_->mutex);
    std::vector<std::shared_ptr<HttpConnection>> connections;
    for (const auto& [key, weak] : shared_->open) {
      if (auto connection = weak.lock()) connections.push_back(std::move(connection));
    }
    return connections;
  }

  void Accept() {
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (stopping_) return;
      if (error) {
        kLog.Warning("accept failed: {}", error.message());
        retry_.expires_after(kAcceptRetry);
        retry_.async_wait([this](boost::system::error_code) {
          if (!stopping_) Accept();
        });
        return;
      }
      Accept();
      Admit(std::move(socket));
    });
  }

  void Admit(tcp::socket socket) {
    boost::system::error_code error;
    const tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) return;  // the client has already disconnected
    // Without TCP_NODELAY, Nagle's algorithm delays each event until the client has acknowledged
    // the event before, and clients delay acknowledgements by 40 ms.
    socket.set_option(tcp::no_delay(true), error);
    const std::string address = peer.address().to_string();
    ConnectionSlots::Slot slot = shared_->slots.Take(address);
    if (slot.held() && !slot.reserved()) return Serve(std::move(socket), std::move(slot));
    if (!CloseOldestStranger(slot)) {
      if (slot.held()) return Serve(std::move(socket), std::move(slot));
      CloseOldestReserved();
    }
    slot.Release();
    ConnectionSlots::Slot again = shared_->slots.Take(address);
    if (!again.held()) {
      return RefuseSocket(socket, again.over_limit(), shared_->options.streams == nullptr);
    }
    Serve(std::move(socket), std::move(again));
  }

  void Serve(tcp::socket socket, ConnectionSlots::Slot slot) {
    const bool reserved = slot.reserved();
    auto connection =
        std::make_shared<HttpConnection>(shared_, MakeStream(std::move(socket)), std::move(slot));
    if (reserved) {
      std::erase_if(reserved_, [](const auto& weak) { return weak.expired(); });
      reserved_.push_back(connection);
    }
    connection->Start();
  }

  std::unique_ptr<HttpStream> MakeStream(tcp::socket socket) {
    const auto& streams = shared_->options.streams;
    if (streams != nullptr) return streams->MakeStream(std::move(socket));
    return std::make_unique<PlainStream>(std::move(socket));
  }

  // Makes room for a connection that got `slot` over a limit. False when every connection that
  // counts against that limit has had a valid request, or has one that is being read.
  bool CloseOldestStranger(const ConnectionSlots::Slot& slot) {
    for (const auto& weak : shared_->strangers) {
      const auto stranger = weak.lock();
      if (stranger == nullptr || !stranger->is_dispensable()) continue;
      if (slot.over_address_limit() && stranger->slot().address() != slot.address()) continue;
      RefuseConnection(*stranger, slot.over_limit());
      shared_->probe.OnEvicted();
      stranger->Close();
      return true;
    }
    return false;
  }

  // Makes room for a probe when silent connections hold all reserved slots.
  void CloseOldestReserved() {
    for (const auto& weak : reserved_) {
      const auto connection = weak.lock();
      if (connection == nullptr || !connection->is_dispensable()) continue;
      RefuseConnection(*connection, connection->slot().over_limit());
      return connection->Close();
    }
  }

  void RefuseConnection(HttpConnection& connection, const std::string& why) {
    RefuseSocket(connection.stream().socket(), why, connection.reads_plain_http1());
  }

  // Answers with 503 without waiting: bytes that the socket does not accept at once are lost. A
  // client with TLS or HTTP/2 could not read the answer.
  void RefuseSocket(tcp::socket& socket, const std::string& why, bool reads_plain_http1) {
    shared_->probe.OnRefused(503);
    const std::string answer = ServerIsFull(why);
    if (reads_plain_http1) {
      (void)::send(
          socket.native_handle(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    boost::system::error_code ignored;
    socket.shutdown(tcp::socket::shutdown_both, ignored);
  }

  std::shared_ptr<HttpShared> shared_;
  // The members below belong to the io thread once it runs.
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::deque<std::weak_ptr<HttpConnection>> reserved_;  // the oldest first
  bool stopping_ = false;
  std::string address_;
  std::jthread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  Stop();
}

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  BATON_RETURN_IF_ERROR(impl->Listen());
  impl->Run();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

void HttpServer::AddRoute(const std::string& method,
                          const std::string& path,
                          Handler handler,
                          Runner run) {
  impl_->AddRoute(method, path, {std::move(handler), std::move(run), /*is_probe=*/false});
}

void HttpServer::AddProbe(const std::string& path, Handler handler) {
  impl_->AddRoute("GET", path, {std::move(handler), nullptr, /*is_probe=*/true});
}

void HttpServer::SetStarted() {
  impl_->SetStarted();
}

const std::string& HttpServer::address() const {
  return impl_->address();
}

void HttpServer::Drain() {
  impl_->Drain();
}

void HttpServer::Stop() {
  impl_->Stop();
}

}  // namespace baton
