#include "common/http/http_server.h"

#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/thread.h"
#include "common/http/http_connection.h"
#include "common/log/log.h"

namespace baton {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

const Logger kLog("http");

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
    const size_t colon = listen.rfind(':');
    if (colon == std::string::npos) {
      return InvalidArgument("address \"{}\" has no port; it must be host:port", listen);
    }
    std::string host = listen.substr(0, colon);
    if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    boost::system::error_code error;
    tcp::resolver resolver(shared_->io);
    const auto found =
        resolver.resolve(host, listen.substr(colon + 1), tcp::resolver::passive, error);
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
    address_ = fmt::format("{}:{}", listen.substr(0, colon), local.port());
    return OkStatus();
  }

  void Run() {
    Accept();
    thread_ = StartThread("http", [this](const std::stop_token&) { shared_->io.run(); });
  }

  void Stop() {
    if (!thread_.joinable()) return;
    asio::post(shared_->io, [this] {
      stopping_ = true;
      boost::system::error_code ignored;
      acceptor_.close(ignored);
      retry_.cancel();
      for (const auto& weak : connections_) {
        if (const auto connection = weak.lock()) connection->Close();
      }
    });
    thread_.join();  // run() returns when the closed sockets' operations have ended
    shared_->handlers.join();
  }

  void AddRoute(const std::string& method, const std::string& path, Handler handler) {
    std::lock_guard lock(shared_->mutex);
    shared_->routes[{method, path}] = std::move(handler);
  }

  const std::string& address() const { return address_; }

 private:
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
      Admit(std::move(socket));
      Accept();
    });
  }

  void Admit(tcp::socket socket) {
    std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
    if (shared_->connections >= shared_->options.max_connections) return;
    // Otherwise Nagle's algorithm holds back each event until the client has acknowledged the one
    // before, which clients delay by 40 ms.
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto connection = std::make_shared<HttpConnection>(shared_, std::move(socket));
    connections_.push_back(connection);
    connection->ReadRequest();
  }

  std::shared_ptr<HttpShared> shared_;
  // What follows belongs to the io thread once it runs.
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::vector<std::weak_ptr<HttpConnection>> connections_;
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

void HttpServer::AddRoute(const std::string& method, const std::string& path, Handler handler) {
  impl_->AddRoute(method, path, std::move(handler));
}

const std::string& HttpServer::address() const {
  return impl_->address();
}

void HttpServer::Stop() {
  impl_->Stop();
}

}  // namespace baton
