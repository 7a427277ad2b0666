#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/free_with.h"
#include "common/base/unique_fd.h"

namespace baton {

// A client for streamed answers of the OpenAI API, on one persistent connection. It sets
// TCP_NODELAY and reads as soon as bytes arrive, so that only the server's delays are measured. Any
// failure aborts the process by BATON_CHECK. Not thread-safe.
class EventClient final {
 public:
  // `address`: "IPv4:port". `ca_file`: the connection is encrypted, and this authority signed the
  // server's certificate; empty: no encryption.
  explicit EventClient(const std::string& address, const std::string& ca_file = "");

  // Sends a streaming request and reads its events up to [DONE]. Returns, for each event before
  // [DONE], the milliseconds from the request to the event's arrival. There is at least one event.
  std::vector<double> Stream(const std::string& path, const std::string& body);

  // The same in steps, for a thread with many clients: sends the request; then Read is to be called
  // whenever fd() is readable, until it returns true, because the answer is complete.
  void Begin(const std::string& path, const std::string& body);
  bool Read();
  int fd() const { return socket_.get(); }

 private:
  using Context = std::unique_ptr<SSL_CTX, FreeWith<SSL_CTX_free>>;
  using Connection = std::unique_ptr<SSL, FreeWith<SSL_free>>;

  void Encrypt(const std::string& ca_file);
  // As send(2) and recv(2), through TLS when the connection is encrypted.
  int Send(std::string_view bytes);
  int Receive(std::span<char> to);

  const std::string address_;
  UniqueFd socket_;
  Context context_;
  Connection tls_;  // null: no encryption

  // Of the request in progress.
  Time start_;
  std::string answer_;
  size_t seen_ = 0;  // bytes of answer_ in which events were looked for
  bool done_ = false;
  std::vector<double> events_;
};

}  // namespace baton
