#pragma once

#include <ctime>
#include <string>

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>

#include "common/http/http_server.h"

namespace baton {

using HttpHead = boost::beast::http::request_header<boost::beast::http::fields>;

// A status to answer instead of serving the request; status 0: it is served.
struct HttpRefusal {
  int status = 0;
  std::string message;
};

// All of the request but its body.
HttpRequest ToRequest(const HttpHead& head);

// Whether the length of the request's body is beyond doubt (RFC 9112, section 6). In doubt two
// servers in a row may see different requests, so the connection must not be used any longer.
HttpRefusal CheckFraming(const HttpHead& head);

// Only "100-continue" can be expected (RFC 9110, section 10.1.1).
HttpRefusal CheckExpect(const HttpHead& head);
bool ExpectsContinue(const HttpHead& head);

// The id that the client gave in x-request-id when it is short and plain, else a new one.
std::string RequestIdOf(const HttpHead& head);

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, section 5.6.7).
std::string HttpDate(std::time_t seconds);

// The beginning of an outside value, for messages.
std::string Shown(const std::string& value);

// A header's value, made of outside bytes perhaps: without line ends and control characters.
std::string OneLine(std::string value);

}  // namespace baton
