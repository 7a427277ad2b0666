#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/http/http_answer_writer.h"
#include "common/http/http_limits.h"
#include "common/http/http_server.h"

namespace baton {

// The answer to one request of a connection. Thread-safe; its mutex preserves the order in which
// bytes are given to the writer.
class ConnectionExchange final : public HttpExchange {
 public:
  // `body_share` is the part of the server's byte budget that the request's body holds.
  ConnectionExchange(std::unique_ptr<HttpAnswerWriter> writer,
                     HttpRequest request,
                     ByteBudget::Share body_share);
  ~ConnectionExchange() override;

  const HttpRequest& request() const override { return request_; }
  void AddHeader(std::string name, std::string value) override;
  void Reply(int status, std::string content_type, std::string body) override;
  void Begin(int status, std::string content_type) override;
  bool Write(std::string bytes) override;
  void Finish(std::string bytes) override;
  void OnDisconnect(std::function<void()> callback) override;

  // Replies with an error of the server itself. If a stream has begun, aborts the answer.
  void Fail(int status, const std::string& message);
  void OnClientDisconnect();

 private:
  enum class State { kNew, kStreaming, kDone };

  HttpAnswerHead Head(int status, const std::string& content_type) const;
  void ReplyLocked(int status, const std::string& content_type, std::string body);
  // False after having aborted the answer of a client that reads too slowly for `bytes` more.
  bool CheckRoom(size_t bytes);
  void FreeBody();

  const std::unique_ptr<HttpAnswerWriter> writer_;  // outlives body_share_, whose budget it keeps
  const bool head_only_;
  std::mutex mutex_;  // guards the members below
  HttpRequest request_;
  ByteBudget::Share body_share_;
  std::vector<std::pair<std::string, std::string>> headers_;
  std::optional<HttpAnswerHead> head_;  // of a stream, until it is sent with the first bytes
  State state_ = State::kNew;
  bool gone_ = false;
  std::function<void()> on_disconnect_;
};

}  // namespace baton
