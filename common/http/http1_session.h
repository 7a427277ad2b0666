#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "common/http/http_connection.h"
#include "common/http/http_head.h"
#include "common/http/http_limits.h"
#include "common/http/http_routes.h"
#include "common/http/http_server.h"
#include "common/http/http_session.h"

namespace baton {

class ConnectionExchange;

// HTTP/1.0 and 1.1 (RFC 9112) on a connection. Reads a request, lets its exchange answer it, and
// reads the next one. Owned by the connection. All methods run on the io thread unless their
// comment says otherwise.
class Http1Session final : public HttpSession {
 public:
  explicit Http1Session(HttpConnection& connection) : connection_(connection) {}

  void Start() override;
  void OnRead(boost::system::error_code error) override;
  void OnWriteBegins() override;
  void OnWritten(size_t bytes, bool all) override;
  void OnTimeout() override;
  void OnClosed() override;
  void Drain() override {}
  void Stop() override { connection_.Close(); }
  bool is_idle() const override { return phase_ == Phase::kHead; }

  // Sends bytes of the answer after the bytes that are queued. `last`: these bytes end the answer.
  void Send(std::string bytes, bool last, bool keep_alive);
  // Bytes that are queued and not yet accepted by the system. Any thread may call these two.
  UnsentBytes& unsent() { return unsent_; }

 private:
  enum class Phase { kHead, kBody, kAnswer };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  HttpShared& shared() { return *connection_.shared(); }
  void NextRequest(Duration limit);
  // Reads more bytes, unless a read is in progress.
  void Read();
  bool HasBytesToParse() const;
  void Parse();
  // Handles a complete header. False when it has already been answered; then no body is read.
  bool OnHead();
  // Asks the gate and sets route_. False when there is no handler to call and the request has been
  // answered.
  bool Admit();
  // False when the bytes so far exceed a limit and the request has been refused.
  bool CheckSizes(bool need_more);
  bool keeps_alive() const;
  void OnParseError(boost::system::error_code error);
  void Dispatch();
  std::shared_ptr<ConnectionExchange> MakeExchange(bool keep_alive);
  // Answers with an error of the server itself. Does not read the rest of the request and closes
  // the connection after the answer.
  void Refuse(const HttpRefusal& refusal);
  void Continue();
  // Notices when the client disconnects during its exchange. An encrypted stream must read for
  // that: it may receive a part of the next request.
  void WatchForDisconnect(uint64_t exchange_number);
  void OnClientDisconnect();

  HttpConnection& connection_;
  Phase phase_ = Phase::kHead;
  bool timed_out_ = false;
  std::optional<Parser> parser_;
  size_t parsed_bytes_ = 0;  // bytes of the header, then of the body with its framing
  size_t max_body_bytes_ = 0;
  HttpRequest request_;
  HttpRoutes::Route route_;
  ByteBudget::Share body_share_;

  std::weak_ptr<ConnectionExchange> exchange_;
  uint64_t exchange_number_ = 0;
  bool answer_complete_ = false;
  bool keep_alive_ = false;
  UnsentBytes unsent_{shared().unsent_bytes};
};

}  // namespace baton
