#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "common/http/http_connection.h"
#include "common/http/http_limits.h"
#include "common/http/http_server.h"

namespace baton {

// The answer to one request of a connection. Thread-safe; its mutex preserves the order in which
// bytes are posted to the connection.
class ConnectionExchange final : public HttpExchange {
 public:
  // `body_share` is the part of the server's byte budget that the request's body holds.
  ConnectionExchange(std::shared_ptr<HttpConnection> connection,
                     HttpRequest request,
                     bool keep_alive,
                     ByteBudget::Share body_share);
  ~ConnectionExchange() override;

  const HttpRequest& request() const override { return request_; }
  void AddHeader(std::string name, std::string value) override;
  void Reply(int status, std::string content_type, std::string body) override;
  void Begin(int status, std::string content_type) override;
  bool Write(std::string bytes) override;
  void Finish() override;
  void OnDisconnect(std::function<void()> callback) override;

  // Replies with an error of the server itself. If a stream has begun, closes the connection.
  void Fail(int status, const std::string& message);
  void OnClientDisconnect();

 private:
  enum class State { kNew, kStreaming, kDone };

  std::string Head(int status, const std::string& content_type) const;
  void ReplyLocked(int status, const std::string& content_type, const std::string& body);
  void FreeBody();
  void Post(std::string bytes, bool last);

  const std::shared_ptr<HttpConnection> connection_;
  const bool keep_alive_;
  const bool head_only_;
  std::mutex mutex_;  // guards the members below
  HttpRequest request_;
  ByteBudget::Share body_share_;
  std::string headers_;
  std::string head_;  // the head of a stream until it is sent with the first bytes
  State state_ = State::kNew;
  bool gone_ = false;
  std::function<void()> on_disconnect_;
};

}  // namespace baton
