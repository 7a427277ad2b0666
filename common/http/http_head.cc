#include "common/http/http_head.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>

#include "common/base/hash.h"
#include "common/base/shortened.h"

namespace baton {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr size_t kMaxRequestId = 128;
constexpr size_t kMaxShown = 200;

std::string Text(beast::string_view view) {
  return {view.data(), view.size()};
}

struct AbsoluteTarget {
  std::string host;  // with the port
  std::string path;  // with the query
};

// The parts of a target in absolute form (RFC 9112, section 3.2.2); nullopt: another form.
std::optional<AbsoluteTarget> ParseAbsolute(const std::string& target, std::string_view method) {
  const std::string scheme = absl::AsciiStrToLower(target.substr(0, target.find("://")));
  if (scheme != "http" && scheme != "https") return std::nullopt;
  const std::string rest = target.substr(std::min(target.size(), scheme.size() + 3));
  const size_t end = std::min(rest.find_first_of("/?"), rest.size());
  AbsoluteTarget parts{rest.substr(0, end), rest.substr(end)};
  if (parts.path.empty() && method == "OPTIONS") {
    parts.path = "*";
  } else if (!parts.path.starts_with('/')) {
    parts.path.insert(0, "/");
  }
  return parts;
}

// The number of leading characters of `text` that are letters, digits or in `marks`.
size_t Span(std::string_view text, std::string_view marks) {
  const auto end = std::ranges::find_if_not(text, [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || marks.find(c) != marks.npos;
  });
  return static_cast<size_t>(end - text.begin());
}

bool IsChunked(const std::string& coding) {
  return absl::AsciiStrToLower(absl::StripAsciiWhitespace(coding)) == "chunked";
}

}  // namespace

HttpRequest ToRequest(const HttpHead& head) {
  HttpRequest request;
  request.id = RequestIdOf(Text(head["x-request-id"]));
  request.method = Text(head.method_string());
  for (const auto& field : head) {
    request.headers[absl::AsciiStrToLower(Text(field.name_string()))] = Text(field.value());
  }
  if (auto absolute = ParseAbsolute(Text(head.target()), request.method)) {
    SetTarget(absolute->path, request);
    request.headers["host"] = std::move(absolute->host);
  } else {
    SetTarget(Text(head.target()), request);
  }
  return request;
}

void SetTarget(std::string_view target, HttpRequest& request) {
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string_view::npos) request.query = target.substr(mark + 1);
}

bool HasFoldedLine(std::string_view header) {
  return header.find("\r\n ") != std::string_view::npos ||
         header.find("\r\n\t") != std::string_view::npos;
}

HttpRefusal CheckFraming(const HttpHead& head) {
  const auto lengths = head.count(http::field::content_length);
  const std::string length = Text(head[http::field::content_length]);
  if (lengths > 1 || length.find(',') != std::string::npos) {
    return {400, "the request has more than one Content-Length"};
  }
  const auto count = head.count(http::field::transfer_encoding);
  if (count == 0) return {};
  if (lengths > 0) {
    return {400, "the request has both Transfer-Encoding and Content-Length"};
  }
  if (head.version() < 11) return {400, "Transfer-Encoding needs HTTP/1.1"};
  if (count > 1) return {400, "the request has more than one Transfer-Encoding"};
  const std::string value = Text(head[http::field::transfer_encoding]);
  if (IsChunked(value)) return {};
  const std::vector<std::string> codings = absl::StrSplit(value, ',');
  if (std::any_of(codings.begin(), codings.end() - 1, IsChunked)) {
    return {400, fmt::format("Transfer-Encoding is '{}'; chunked must come last", Shown(value))};
  }
  return {501, fmt::format("Transfer-Encoding is '{}'; only chunked is known", Shown(value))};
}

HttpRefusal CheckHost(const HttpHead& head) {
  const auto hosts = head.count(http::field::host);
  if (hosts > 1) return {400, "the request has more than one Host"};
  if (hosts == 0 && head.version() >= 11) return {400, "the request has no Host"};
  const HttpRefusal refusal = CheckHostName(Text(head[http::field::host]));
  if (refusal.status != 0) return refusal;
  const auto absolute = ParseAbsolute(Text(head.target()), Text(head.method_string()));
  if (!absolute.has_value()) return {};
  return absolute->host.empty() ? HttpRefusal{400, "the request's target names no host"}
                                : CheckHostName(absolute->host);
}

HttpRefusal CheckHostName(std::string_view host) {
  const HttpRefusal refusal = {
      400,
      fmt::format("the host is '{}'; it must be a host, or host:port", Shown(std::string(host)))};
  std::string_view rest = host;
  if (rest.starts_with('[')) {  // an IPv6 address
    rest.remove_prefix(1 + Span(rest.substr(1), ":.-_~!$&'()*+,;="));
    if (!rest.starts_with(']')) return refusal;
    rest.remove_prefix(1);
  } else {
    rest.remove_prefix(Span(rest, "-._~%!$&'()*+,;="));
  }
  if (rest.empty()) return {};
  const bool port = rest.front() == ':' && std::ranges::all_of(rest.substr(1), [](char c) {
                      return absl::ascii_isdigit(static_cast<unsigned char>(c));
                    });
  return port ? HttpRefusal() : refusal;
}

HttpRefusal CheckExpect(const HttpRequest& request) {
  if (!request.headers.contains("expect") || ExpectsContinue(request)) return {};
  return {417,
          fmt::format("Expect is '{}'; only 100-continue is known",
                      Shown(std::string(request.header("expect"))))};
}

bool ExpectsContinue(const HttpRequest& request) {
  return absl::AsciiStrToLower(std::string(request.header("expect"))) == "100-continue";
}

std::string RequestIdOf(std::string given) {
  const auto plain = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("-_.:/+=@").find(c) != std::string_view::npos;
  };
  if (!given.empty() && given.size() <= kMaxRequestId &&
      std::all_of(given.begin(), given.end(), plain)) {
    return given;
  }
  return fmt::format("req-{:016x}", RandomId());
}

std::string HttpDate(std::time_t seconds) {
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  char text[64];
  return {text, std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc)};
}

std::string Shown(const std::string& value) {
  return Shortened(value, kMaxShown);
}

std::string OneLine(std::string value) {
  for (char& c : value) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return value;
}

}  // namespace baton
