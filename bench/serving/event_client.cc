#include "bench/serving/event_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <string_view>

#include "common/base/check.h"
#include "common/rpc/address.h"

namespace baton {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);
constexpr std::string_view kEvent = "data: ";
constexpr std::string_view kDone = "data: [DONE]";
constexpr std::string_view kEndOfChunks = "\r\n0\r\n\r\n";

}  // namespace

EventClient::EventClient(const std::string& address, const std::string& ca_file)
    : address_(address) {
  const auto parsed = ParseHostPort(address);
  BATON_CHECK(parsed.ok(), "{}", Message(parsed.status()));
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(parsed->port);
  BATON_CHECK(::inet_pton(AF_INET, parsed->host.c_str(), &peer.sin_addr) == 1,
              "{} is not an IPv4 address",
              parsed->host);
  socket_.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  BATON_CHECK(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) == 0,
              "cannot connect to {}",
              address);
  const int on = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (!ca_file.empty()) Encrypt(ca_file);
}

void EventClient::Encrypt(const std::string& ca_file) {
  context_.reset(SSL_CTX_new(TLS_client_method()));
  BATON_CHECK(SSL_CTX_load_verify_file(context_.get(), ca_file.c_str()) == 1, "{}", ca_file);
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  tls_.reset(SSL_new(context_.get()));
  SSL_set_fd(tls_.get(), socket_.get());
  BATON_CHECK(SSL_connect(tls_.get()) == 1, "no TLS with {}", address_);
}

int EventClient::Send(std::string_view bytes) {
  const auto size = static_cast<int>(bytes.size());
  if (tls_ != nullptr) return SSL_write(tls_.get(), bytes.data(), size);
  return static_cast<int>(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

int EventClient::Receive(std::span<char> to) {
  if (tls_ != nullptr) return SSL_read(tls_.get(), to.data(), static_cast<int>(to.size()));
  return static_cast<int>(::recv(socket_.get(), to.data(), to.size(), 0));
}

std::vector<double> EventClient::Stream(const std::string& path, const std::string& body) {
  Begin(path, body);
  do {
    pollfd waiting{socket_.get(), POLLIN, 0};
    const auto limit = std::chrono::milliseconds(kLimit).count();
    BATON_CHECK(::poll(&waiting, 1, static_cast<int>(limit)) == 1,
                "{} sent nothing within the time limit",
                address_);
  } while (!Read());
  return std::move(events_);
}

void EventClient::Begin(const std::string& path, const std::string& body) {
  const std::string request = fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
      "{}",
      path,
      address_,
      body.size(),
      body);
  answer_.clear();
  events_.clear();
  seen_ = 0;
  done_ = false;
  start_ = SteadyClock().Now();
  for (size_t sent = 0; sent < request.size();) {
    const int n = Send(std::string_view(request).substr(sent));
    BATON_CHECK(n > 0, "{} closed the connection", address_);
    sent += static_cast<size_t>(n);
  }
}

bool EventClient::Read() {
  char buffer[16384];
  do {
    const int n = Receive(buffer);
    BATON_CHECK(n > 0, "{} closed the connection after: {}", address_, answer_);
    answer_.append(buffer, static_cast<size_t>(n));
  } while (tls_ != nullptr && SSL_pending(tls_.get()) > 0);
  const double ms = ToMillis(SteadyClock().Now() - start_);
  for (size_t at = answer_.find(kEvent, seen_); at != std::string::npos && !done_;
       at = answer_.find(kEvent, seen_)) {
    if (answer_.size() < at + kDone.size()) break;  // the next bytes decide: [DONE] or an event
    done_ = answer_.compare(at, kDone.size(), kDone) == 0;
    if (!done_) events_.push_back(ms);
    seen_ = at + kEvent.size();
  }
  if (!done_ || answer_.find(kEndOfChunks, seen_) == std::string::npos) return false;
  BATON_CHECK(answer_.rfind("HTTP/1.1 200 ", 0) == 0 && !events_.empty(), "{}", answer_);
  return true;
}

}  // namespace baton
