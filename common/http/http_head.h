#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>

#include "common/http/http_server.h"

namespace baton {

using HttpHead = boost::beast::http::request_header<boost::beast::http::fields>;

// The status with which a request is refused; 0 when the request is served.
struct HttpRefusal {
  int status = 0;
  std::string message;
  std::string challenge = {};  // with status 401: the value of WWW-Authenticate
};

// The request without its body.
HttpRequest ToRequest(const HttpHead& head);

// Sets the path and the query from `target`, which is a path, or "*" for OPTIONS (ToRequest also
// takes the absolute form of HTTP/1, "http://host/path").
void SetTarget(std::string_view target, HttpRequest& request);

// Refuses a request whose body length is ambiguous (RFC 9112, section 6). Two servers in a row may
// split ambiguous bytes into different requests, so the connection must be closed after a refusal.
HttpRefusal CheckFraming(const HttpHead& head);

// Refuses a request that states no host (HTTP/1.1), more than one or a malformed one (RFC 9112,
// section 3.2): two servers in a row may take such a request to different sites.
HttpRefusal CheckHost(const HttpHead& head);
// Refuses `host` unless it is a host or host:port (RFC 3986, section 3.2), or empty.
HttpRefusal CheckHostName(std::string_view host);

// Whether a line of the header begins with a space or tab and so goes on with the value of the line
// before: RFC 9112, section 5.2, has a server refuse that, because others read it differently.
bool HasFoldedLine(std::string_view header);

// Refuses any expectation but "100-continue" (RFC 9110, section 10.1.1).
HttpRefusal CheckExpect(const HttpRequest& request);
bool ExpectsContinue(const HttpRequest& request);

// `given`, the client's x-request-id, if it has at most 128 characters and only letters, digits and
// "-_.:/+=@"; else a new id.
std::string RequestIdOf(std::string given);

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, section 5.6.7).
std::string HttpDate(std::time_t seconds);

// The first 200 bytes of a value from outside, for messages.
std::string Shown(const std::string& value);

// Makes a header's value from text that may come from outside: replaces line ends and control
// characters with spaces.
std::string OneLine(std::string value);

}  // namespace baton
