#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace baton {

// What a client does on a connection of HTTP/2, and what the codec needs of the answers. The codec
// calls these methods while it receives or produces bytes, so they must not call the codec.
class Http2Events {
 public:
  virtual ~Http2Events() = default;

  virtual void OnRequestBegins(int32_t stream) = 0;
  // A line of a request's header; the names in lower case, also ":method", ":path", ":authority".
  virtual void OnHeader(int32_t stream, std::string_view name, std::string_view value) = 0;
  // The header is complete. `too_large`: lines were left out, because of the limit.
  virtual void OnHeaderEnds(int32_t stream, bool too_large) = 0;
  virtual void OnBody(int32_t stream, std::string_view bytes) = 0;
  virtual void OnRequestEnds(int32_t stream) = 0;
  // The stream is closed: the request is answered, or the client has reset it.
  virtual void OnStreamClosed(int32_t stream) = 0;

  // Copies the next bytes of the stream's answer. `last`: set when the answer ends with them.
  virtual size_t TakeAnswer(int32_t stream, std::span<uint8_t> into, bool& last) = 0;
};

}  // namespace baton
