#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/http/http_server_fixture.h"

// Requests whose end, lines or host other servers may read differently.
namespace baton {
namespace {

using ::testing::HasSubstr;

const std::string kChunked = "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";

class HttpFramingTest : public HttpServerTest {};

// None of these requests ends, so an answer proves that the server stopped reading.
TEST_F(HttpFramingTest, ChunkFramingIsBounded) {
  StartServer();
  const std::string much(40 << 10, '0');
  std::string trailers = "0\r\n";
  while (trailers.size() < much.size()) trailers += "a: b\r\n";
  for (const std::string& framing : {"1;extension=" + much,
                                     "1;extension=\"" + much,
                                     much,
                                     "1\r\na\r\n" + much,
                                     trailers,
                                     "0;extension=" + much}) {
    SCOPED_TRACE(framing.substr(0, 14));
    const HttpAnswer answer = HttpSend(address(), kChunked + framing);
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(ErrorOf(answer),
                HasSubstr("size line, or the trailer, is over the limit of 16384"));
  }
  EXPECT_EQ(HttpSend(address(), "no HTTP\r\n\r\n").status, 400);
  EXPECT_EQ(Metric("baton_http_refused_total{status=\"400\"}"), 7);
}

TEST_F(HttpFramingTest, TheFramingOfAChunkedBodyCountsAgainstTheLimit) {
  HttpServerOptions options;
  options.max_body_bytes = 10'000;
  StartServer(options);
  std::string request = kChunked;
  for (int i = 0; i < 20; ++i) request += "1;x=" + std::string(1000, 'y') + "\r\na\r\n";
  const HttpAnswer answer = HttpSend(address(), request);
  EXPECT_EQ(answer.status, 413);
  EXPECT_THAT(ErrorOf(answer), HasSubstr("limit of 10000 bytes"));
  // The same number of bytes without such framing is accepted.
  EXPECT_EQ(HttpSend(address(), PostRequest("/echo", std::string(10'000, 'a'))).body.size(),
            10'000u);
  EXPECT_EQ(HttpSend(address(), PostRequest("/echo", std::string(10'001, 'a'))).status, 413);
}

// Each answer on another connection proves that the server has read the piece sent before it.
TEST_F(HttpFramingTest, AChunkedBodyMayComeByteByByte) {
  StartServer();
  for (const std::string body : {"0\r\n\r\n", "1\r\na\r\n0\r\n\r\n"}) {
    RawConnection slow(address());
    ASSERT_TRUE(slow.Send(kChunked));
    for (const char byte : body) {
      ASSERT_TRUE(slow.Send(std::string(1, byte)));
      ASSERT_EQ(HttpGet(address(), "/hello").status, 200);
    }
    EXPECT_THAT(slow.ReadUntil("\r\n\r\n"), HasSubstr("HTTP/1.1 200")) << body;
  }
}

TEST_F(HttpFramingTest, RequestsOfDoubtfulLengthAreRefused) {
  StartServer();
  struct Case {
    const char* header;
    int status;
  };
  for (const Case& one : std::vector<Case>{
           {"Transfer-Encoding: chunked\r\nContent-Length: 3", 400},
           {"Content-Length: 3\r\nTransfer-Encoding: chunked", 400},
           {"Transfer-Encoding: gzip\r\nContent-Length: 3", 400},
           {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400},
           {"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 400},
           {"Transfer-Encoding: chunked, gzip", 400},
           {"Transfer-Encoding: chunked, chunked", 400},
           {"Transfer-Encoding:", 501},
           {"Transfer-Encoding: gzip", 501},
           {"Transfer-Encoding: gzip, chunked", 501},
           {"Transfer-Encoding: xchunked", 501},
           {"Transfer-Encoding: chunked;q=1", 501},
           {"Transfer-Encoding: \"chunked\"", 501},
           {"Transfer-Encoding: identity", 501},
           {"Transfer-Encoding : chunked", 400},
           {"Transfer-Encoding: \x0b"
            "chunked",
            400},
           {"Content-Length: 3\r\nContent-Length: 4", 400},
           {"Content-Length: 3, 4", 400},
           {"Content-Length: +3", 400},
           {"Content-Length: -1", 400},
           {"Content-Length: 0x3", 400},
           {"Content-Length: 99999999999999999999999", 400},
           {"Expect: 200-ok\r\nContent-Length: 3", 417},
       }) {
    SCOPED_TRACE(one.header);
    // The bytes after the header must never be treated as a second request.
    const HttpAnswer answer =
        HttpSend(address(),
                 fmt::format("POST /echo HTTP/1.1\r\nHost: t\r\n{}\r\n\r\nGET /hello?smuggled "
                             "HTTP/1.1\r\nHost: t\r\n\r\n",
                             one.header));
    EXPECT_EQ(answer.status, one.status);
    EXPECT_FALSE(ErrorOf(answer).empty());
    EXPECT_THAT(answer.head, HasSubstr("Connection: close"));
  }
  EXPECT_EQ(HttpSend(address(),
                     "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")
                .status,
            400);
  const std::string right =
      "POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n"
      "2;x=y\r\nab\r\n1\r\nc\r\n0\r\nTrailer: t\r\n\r\n";
  EXPECT_EQ(HttpSend(address(), right).body, "abc");
}

// Servers in a row may read such a header differently, and then disagree where a request ends.
TEST_F(HttpFramingTest, HeadersThatServersReadDifferentlyAreRefused) {
  StartServer();
  for (const std::string& header : {std::string("x: a\r\n b"),  // a folded line
                                    std::string("Transfer-Encoding:\r\n chunked"),
                                    std::string("Content-Length: 3\r\n\t"),
                                    std::string("x: a\nContent-Length: 3"),  // a bare LF
                                    std::string("x: a\rContent-Length: 3"),  // a bare CR
                                    std::string("x: a\r\rContent-Length: 3"),
                                    std::string("x: a\0b", 6),
                                    std::string("x\0y: a", 6),
                                    std::string(" Content-Length: 3"),
                                    std::string("Content-Length\t: 3"),
                                    std::string("Content_Length : 3"),
                                    std::string(": 3"),
                                    std::string("Content-Length: 3\r\nContent-Length: 3"),
                                    std::string("Content-Length: 3,3"),
                                    std::string("Content-Length:"),
                                    std::string("Content-Length: 3 3")}) {
    SCOPED_TRACE(testing::PrintToString(header));
    const HttpAnswer answer =
        HttpSend(address(),
                 "POST /echo HTTP/1.1\r\nHost: t\r\n" + header +
                     "\r\n\r\nGET /hello?smuggled HTTP/1.1\r\nHost: t\r\n\r\n");
    EXPECT_EQ(answer.status, 400) << answer.head << answer.body;
    EXPECT_THAT(answer.head, HasSubstr("Connection: close"));
    EXPECT_THAT(answer.body, testing::Not(HasSubstr("smuggled")));
  }
  for (const std::string& line : {std::string("GET /hello HTTP/1.1\n\n"),
                                  std::string("GET /hello\tHTTP/1.1\r\n\r\n"),
                                  std::string("GET /hello HTTP/1.1 x\r\n\r\n"),
                                  std::string("GET  /hello HTTP/1.1\r\nHost: t\r\n\r\n"),
                                  std::string("GET /hello\0 HTTP/1.1\r\n\r\n", 24)}) {
    EXPECT_EQ(HttpSend(address(), line).status, 400) << testing::PrintToString(line);
  }
}

// Servers in a row may take such a request to different sites.
TEST_F(HttpFramingTest, ARequestNamesOneHost) {
  StartServer();
  const auto status = [&](const std::string& version, const std::string& hosts) {
    return HttpSend(address(),
                    "GET /hello HTTP/" + version + "\r\n" + hosts + "Connection: close\r\n\r\n")
        .status;
  };
  EXPECT_EQ(status("1.1", ""), 400);
  EXPECT_EQ(status("1.0", ""), 200);
  for (const char* version : {"1.1", "1.0"}) {
    EXPECT_EQ(status(version, "Host: a\r\nHost: a\r\n"), 400) << version;
    for (const char* bad :
         {"x/y", "a@b", "a b", "a:b", "a:80:80", "[::1", "::1", "a\"b", "\xc3\xa9"}) {
      EXPECT_EQ(status(version, fmt::format("Host: {}\r\n", bad)), 400) << version << bad;
    }
    for (const char* good :
         {"", "a", "a.b-c_d~:8080", "127.0.0.1:80", "[::1]:80", "[::1]", "a%41", "a:"}) {
      EXPECT_EQ(status(version, fmt::format("Host: {}\r\n", good)), 200) << version << good;
    }
  }
}

// None of these bodies ends, so an answer proves that the server does not wait for more.
TEST_F(HttpFramingTest, SpoiltFramingOfChunksIsRefusedAtOnce) {
  StartServer();
  for (const std::string framing : {"zz",
                                    "z",
                                    "3\n",
                                    "3\nabc\r\n",
                                    "3\r\nabc\r\nz",
                                    "3\r\nabc\r\n3\n",
                                    "3;a=b\n",
                                    "3x",
                                    "\r\n",
                                    "\n",
                                    "0\r\na: b\n",
                                    "-3",
                                    "+3",
                                    "0x3",
                                    " 3",
                                    "3\r\nabc\n"}) {
    const HttpAnswer answer = HttpSend(address(), kChunked + framing);
    EXPECT_EQ(answer.status, 400) << testing::PrintToString(framing);
  }
  const std::string body = "3;a=\"b\"\r\nabc\r\nA\r\n\r\n \n\t: x\r\n\r\n0\r\nTrailer: t\r\n\r\n";
  RawConnection slow(address());
  for (const char byte : kChunked + body) {
    ASSERT_TRUE(slow.Send(std::string(1, byte)));
    std::this_thread::yield();
  }
  EXPECT_THAT(slow.ReadUntil("x\r\n"), HasSubstr("HTTP/1.1 200"));
}

TEST_F(HttpFramingTest, AFoldedTrailerIsRefusedAsAFoldedHeader) {
  StartServer();
  for (const char* trailer : {"a: b\r\n c\r\n", "a: b\r\n\tc\r\n", " a: b\r\n"}) {
    const HttpAnswer answer = HttpSend(address(),
                                       kChunked + "3\r\nabc\r\n0\r\n" + trailer +
                                           "\r\nGET /hello?smuggled HTTP/1.1\r\nHost: t\r\n\r\n");
    EXPECT_EQ(answer.status, 400) << testing::PrintToString(trailer);
    EXPECT_THAT(answer.body, testing::Not(HasSubstr("smuggled")));
  }
  // A body may have such lines.
  RawConnection plain(address());
  ASSERT_TRUE(plain.Send(kChunked + "6\r\na\r\n b\n\r\n0\r\na: b\r\n\r\n"));
  EXPECT_THAT(plain.ReadUntil(" b\n"), HasSubstr("HTTP/1.1 200"));
}

}  // namespace
}  // namespace baton
