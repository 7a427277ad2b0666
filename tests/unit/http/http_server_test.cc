#include "common/http/http_server.h"

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/http/http_head.h"
#include "tests/support/own_sockets.h"
#include "tests/unit/http/http_server_fixture.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kLimit = std::chrono::seconds(20);

// RFC 9112, section 3.2.2: a server takes the form in which clients ask proxies.
TEST_F(HttpServerTest, ServesTargetsInAbsoluteForm) {
  StartServer();
  server_->AddRoute("GET", "/", [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Reply(
        200, "text/plain", fmt::format("root of {}", exchange->request().header("host")));
  });
  const auto get = [&](const std::string& target, const std::string& method = "GET") {
    return HttpSend(address(),
                    method + " " + target + " HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  };
  EXPECT_EQ(get("http://a:80/hello?x=http://b").body, "hello x=http://b");
  EXPECT_EQ(get("HTTPS://a/hello").body, "hello ");
  EXPECT_EQ(get("http://other:1").body, "root of other:1");
  EXPECT_EQ(get("http://other?q").body, "root of other");
  EXPECT_EQ(get("http://a", "OPTIONS").status, 204);
  for (const char* bad : {"http://",
                          "http:///hello",
                          "http://user@a/hello",
                          "http://a b/hello",
                          "http://a:b/hello"}) {
    EXPECT_EQ(get(bad).status, 400) << bad;
  }
  EXPECT_EQ(get("ftp://a/hello").status, 404);
  EXPECT_EQ(get("/hello?http://a/").status, 200);
}

TEST_F(HttpServerTest, AServerThatStartsServesProbesOnly) {
  HttpServerOptions options;
  options.starting = true;
  StartServer(options);
  for (const char* path : {"/hello", "/v1/models", "/no"}) {
    const HttpAnswer answer = HttpGet(address(), path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_NE(answer.head.find("Retry-After: 1\r\n"), std::string::npos) << answer.head;
    EXPECT_NE(ErrorOf(answer).find("is starting"), std::string::npos) << answer.body;
  }
  EXPECT_EQ(HttpGet(address(), "/healthz").status, 200);
  server_->SetStarted();
  EXPECT_EQ(HttpGet(address(), "/hello").status, 200);
  EXPECT_EQ(HttpGet(address(), "/no").status, 404);
}

TEST_F(HttpServerTest, ServesRoutesExactly) {
  StartServer();
  EXPECT_EQ(HttpGet(address(), "/hello?a=b").body, "hello a=b");
  EXPECT_EQ(HttpGet(address(), "/hello/").status, 404);
  EXPECT_EQ(HttpGet(address(), "/echo").status, 405);
  const auto echo =
      HttpSend(address(),
               "POST /echo HTTP/1.1\r\nHost: t\r\nX-Kind: a\tb\r\nContent-Length: 3\r\n"
               "Connection: close\r\n\r\nabc");
  EXPECT_EQ(echo.status, 200);
  EXPECT_EQ(echo.body, "abc");
  EXPECT_THAT(echo.head, HasSubstr("X-Kind: a b"));
}

TEST_F(HttpServerTest, KeepsTheConnectionForSeveralRequests) {
  StartServer();
  RawConnection connection(address());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(connection.Send(fmt::format("GET /hello?{} HTTP/1.1\r\nHost: t\r\n\r\n", i)));
    const std::string marker = fmt::format("hello {}", i);
    EXPECT_THAT(connection.ReadUntil(marker), HasSubstr(marker));
  }
  // Two pipelined requests are answered in order.
  ASSERT_TRUE(connection.Send(
      "GET /hello?x HTTP/1.1\r\nHost: t\r\n\r\nGET /hello?y HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(connection.ReadUntil("hello y"), HasSubstr("hello x"));
}

TEST_F(HttpServerTest, StreamsFromAnotherThread) {
  StartServer();
  std::promise<std::shared_ptr<HttpExchange>> taken;
  server_->AddRoute("GET", "/stream", [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->Begin(200, "text/event-stream");
    taken.set_value(std::move(exchange));
  });
  RawConnection connection(address());
  ASSERT_TRUE(connection.Send("GET /stream HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"));
  auto exchange = taken.get_future().get();
  EXPECT_TRUE(exchange->Write("data: 1\n\n"));
  EXPECT_THAT(connection.ReadUntil("data: 1\n\n\r\n"),
              HasSubstr("Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"));
  EXPECT_TRUE(exchange->Write("data: 2\n\n"));
  exchange->Finish("");
  EXPECT_FALSE(exchange->Write("late"));
  EXPECT_EQ(connection.ReadToEnd(), "9\r\ndata: 2\n\n\r\n0\r\n\r\n");
}

TEST_F(HttpServerTest, AcceptedSocketsSendWithoutDelay) {
  StartServer();
  RawConnection connection(address());
  const int accepted = AwaitAccepted(connection.fd());
  ASSERT_GE(accepted, 0);
  EXPECT_TRUE(AwaitNoDelay(accepted));
}

TEST_F(HttpServerTest, TheHeadOfAStreamAndItsFirstEventAreOneSegment) {
  StartServer();
  std::promise<std::shared_ptr<HttpExchange>> taken;
  server_->AddRoute("GET", "/stream", [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->Begin(200, "text/event-stream");
    exchange->Write("data: 1\n\n");
    taken.set_value(std::move(exchange));
  });
  RawConnection connection(address());
  ASSERT_TRUE(connection.Send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(connection.ReadUntil("data: 1\n\n\r\n"), HasSubstr("200 OK"));
  const uint32_t segments = ReceivedSegments(connection.fd());
  taken.get_future().get()->Finish("");
  if (segments == 0) GTEST_SKIP() << "an emulator tells no segments: NOT tested";
  EXPECT_EQ(segments, 1u);
}

TEST_F(HttpServerTest, TheLastBytesOfAStreamAndItsEndAreOneSegment) {
  StartServer();
  server_->AddRoute("GET", "/stream", [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Begin(200, "text/event-stream");
    exchange->Finish("data: 1\n\n");
  });
  RawConnection connection(address());
  ASSERT_TRUE(connection.Send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(connection.ReadUntil("\r\n0\r\n\r\n"), HasSubstr("\r\n9\r\ndata: 1\n\n\r\n"));
  const uint32_t segments = ReceivedSegments(connection.fd());
  if (segments == 0) GTEST_SKIP() << "an emulator tells no segments: NOT tested";
  EXPECT_EQ(segments, 1u);
}

TEST_F(HttpServerTest, TellsWhenTheClientGoesAway) {
  StartServer();
  std::promise<std::shared_ptr<HttpExchange>> taken;
  std::promise<void> gone;
  server_->AddRoute("GET", "/stream", [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->OnDisconnect([&] { gone.set_value(); });
    exchange->Begin(200, "text/event-stream");
    taken.set_value(std::move(exchange));
  });
  RawConnection connection(address());
  ASSERT_TRUE(connection.Send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n"));
  auto exchange = taken.get_future().get();
  connection.Close();
  ASSERT_EQ(gone.get_future().wait_for(kLimit), std::future_status::ready);
  EXPECT_FALSE(exchange->Write("x"));
  bool again = false;
  exchange->OnDisconnect([&] { again = true; });
  EXPECT_TRUE(again);
}

TEST_F(HttpServerTest, AStreamThatNobodyReadsIsDropped) {
  HttpServerOptions options;
  options.max_unsent_bytes = 1 << 20;
  StartServer(options);
  std::promise<std::shared_ptr<HttpExchange>> taken;
  server_->AddRoute("GET", "/flood", [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->Begin(200, "text/event-stream");
    taken.set_value(std::move(exchange));
  });
  RawConnection connection(address());
  ASSERT_TRUE(connection.Send("GET /flood HTTP/1.1\r\nHost: t\r\n\r\n"));
  auto exchange = taken.get_future().get();
  const std::string chunk(64 << 10, 'x');
  int written = 0;
  while (written < 10000 && exchange->Write(chunk)) ++written;
  EXPECT_LT(written, 10000);
}

TEST_F(HttpServerTest, AnswersThatNobodyReadsBoundTheMemoryOfAll) {
  HttpServerOptions options;
  options.max_unsent_bytes_in_all = 24 << 20;
  StartServer(options);
  server_->AddRoute("GET", "/large", [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Reply(200, "text/plain", std::string(20 << 20, 'x'));
  });
  std::vector<std::unique_ptr<RawConnection>> readers;
  for (int i = 0; i < 2; ++i) {
    readers.push_back(std::make_unique<RawConnection>(address()));
    ASSERT_TRUE(readers.back()->Send("GET /large HTTP/1.1\r\nHost: t\r\n\r\n"));
  }
  const auto wait_for = [&](int status) {
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (HttpGet(address(), "/hello").status != status) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  };
  ASSERT_TRUE(wait_for(503));
  const auto answer = HttpGet(address(), "/hello");
  EXPECT_THAT(answer.body, HasSubstr("have not read yet have reached the limit of 25165824 bytes"));
  EXPECT_THAT(answer.head, HasSubstr("Retry-After: 1"));
  EXPECT_EQ(HttpGet(address(), "/healthz").status, 200);
  readers.clear();
  EXPECT_TRUE(wait_for(200)) << "answers that are lost free their bytes";
}

TEST_F(HttpServerTest, AHandlerThatForgetsToAnswerGives500) {
  StartServer();
  server_->AddRoute("GET", "/forget", [](const std::shared_ptr<HttpExchange>&) {});
  EXPECT_EQ(HttpGet(address(), "/forget").status, 500);
}

TEST_F(HttpServerTest, RefusesWhatIsNotHttpOrTooBig) {
  HttpServerOptions options;
  options.max_body_bytes = 10;
  StartServer(options);
  EXPECT_EQ(HttpSend(address(), "garbage\r\n\r\n").status, 400);
  EXPECT_EQ(HttpSend(address(), std::string(64, '\xff') + "\r\n\r\n").status, 400);
  const auto big = HttpSend(
      address(), "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 11\r\n\r\nabcdefghijk");
  EXPECT_EQ(big.status, 413);
  EXPECT_THAT(big.body, HasSubstr("limit of 10 bytes"));
  const auto headers =
      HttpSend(address(),
               "GET /hello HTTP/1.1\r\nHost: t\r\nX: " + std::string(100 << 10, 'a') + "\r\n\r\n");
  EXPECT_EQ(headers.status, 431);
  EXPECT_EQ(HttpGet(address(), "/hello?still").body, "hello still");
}

TEST_F(HttpServerTest, IdleConnectionsAreClosed) {
  HttpServerOptions options;
  options.idle_timeout = std::chrono::milliseconds(50);
  StartServer(options);
  RawConnection idle(address());
  ASSERT_TRUE(idle.Send("GET /hello?idle HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(idle.ReadToEnd().value_or("no end"), ::testing::EndsWith("hello idle"));
}

TEST_F(HttpServerTest, HeadIsGetWithoutTheBody) {
  StartServer();
  const auto head =
      HttpSend(address(), "HEAD /hello?abc HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_THAT(head.head, HasSubstr("Content-Length: 9"));
  EXPECT_EQ(head.body, "");
  server_->AddRoute("GET", "/stream", [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Begin(200, "text/event-stream");
    EXPECT_FALSE(exchange->Write("data: 1\n\n"));
    exchange->Finish("");
  });
  RawConnection connection(address());
  ASSERT_TRUE(connection.Send(
      "HEAD /stream HTTP/1.1\r\nHost: t\r\n\r\nGET /hello?next HTTP/1.1\r\nHost: t\r\n\r\n"));
  const std::string both = connection.ReadUntil("hello next");
  EXPECT_THAT(both, HasSubstr("Transfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK"));
  EXPECT_EQ(HttpSend(address(), "HEAD /no HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").body,
            "");
}

TEST_F(HttpServerTest, WrongMethodsAndOptionsNameTheRightOnes) {
  StartServer();
  const auto wrong = HttpGet(address(), "/echo");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_THAT(wrong.head, HasSubstr("Allow: POST, OPTIONS"));
  EXPECT_EQ(ErrorOf(wrong), "GET /echo is not possible; possible methods are POST, OPTIONS");
  const auto missing = HttpGet(address(), "/missing");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(ErrorOf(missing), "nothing is served at GET /missing");
  EXPECT_EQ(Metric("baton_http_refused_total{status=\"404\"}"), 1);
  for (const auto& [path, allow] : {std::pair("/hello", "Allow: GET, HEAD, OPTIONS"),
                                    std::pair("*", "Allow: GET, HEAD, POST, OPTIONS")}) {
    const auto options =
        HttpSend(address(),
                 fmt::format("OPTIONS {} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n", path));
    EXPECT_EQ(options.status, 204);
    EXPECT_THAT(options.head, HasSubstr(allow));
  }
  EXPECT_EQ(
      HttpSend(address(), "OPTIONS /no HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").status,
      404);
}

TEST_F(HttpServerTest, APathWithAStarServesAllBelowIt) {
  StartServer();
  server_->AddRoute("GET", "/below/*", [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Reply(200, "text/plain", "at " + exchange->request().path);
  });
  server_->AddRoute("GET", "/below/exact", [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Reply(200, "text/plain", "exact");
  });
  EXPECT_EQ(HttpGet(address(), "/below/a/b").body, "at /below/a/b");
  EXPECT_EQ(HttpGet(address(), "/below/exact").body, "exact");
  EXPECT_EQ(HttpGet(address(), "/below/").status, 404);
  EXPECT_EQ(HttpGet(address(), "/below").status, 404);
}

TEST_F(HttpServerTest, AClientThatExpectsContinueIsToldToGoOnOrWhyNot) {
  HttpServerOptions options;
  options.max_body_bytes = 10;
  StartServer(options);
  RawConnection connection(address());
  ASSERT_TRUE(connection.Send(
      "POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n"));
  EXPECT_EQ(connection.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(connection.Send("abc"));
  EXPECT_THAT(connection.ReadUntil("abc"), StartsWith("HTTP/1.1 200 OK"));
  // These requests are refused before the body is sent.
  for (const auto& [request, status] :
       {std::pair("POST /echo HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 11",
                  413),
        std::pair("POST /no HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: 3",
                  404)}) {
    EXPECT_EQ(HttpSend(address(), std::string(request) + "\r\n\r\n").status, status);
  }
}

TEST_F(HttpServerTest, EveryAnswerHasADateAndARequestId) {
  StartServer();
  const auto with_id = [&](const std::string& id) {
    return HttpSend(address(),
                    fmt::format("GET /hello HTTP/1.1\r\nHost: t\r\nX-Request-ID: {}\r\nConnection: "
                                "close\r\n\r\n",
                                id))
        .head;
  };
  EXPECT_THAT(with_id("trace-1/a=b"), HasSubstr("\r\nx-request-id: trace-1/a=b\r\n"));
  for (const std::string& strange :
       {std::string("a b"), std::string("<a>"), std::string(129, 'a')}) {
    EXPECT_THAT(with_id(strange), HasSubstr("\r\nx-request-id: req-"));
  }
  EXPECT_THAT(HttpGet(address(), "/no").head, HasSubstr("\r\nx-request-id: req-"));
  EXPECT_THAT(HttpSend(address(), "garbage\r\n\r\n").head, HasSubstr(" GMT\r\n"));
  EXPECT_EQ(HttpDate(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
}

TEST_F(HttpServerTest, ErrorsHaveTheirIdUnderBothNamesOnce) {
  StartServer();
  server_->AddRoute("GET", "/fails", [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->AddHeader("request-id", exchange->request().id);
    throw std::runtime_error("no");
  });
  for (const char* path : {"/no", "/fails"}) {
    const std::string head = HttpGet(address(), path).head;
    EXPECT_THAT(head, HasSubstr("\r\nx-request-id: req-"));
    const size_t at = head.find("\r\nrequest-id: req-");
    ASSERT_NE(at, std::string::npos) << head;
    EXPECT_EQ(head.find("\r\nrequest-id:", at + 1), std::string::npos) << head;
  }
  EXPECT_THAT(HttpGet(address(), "/hello").head, Not(HasSubstr("\r\nrequest-id:")));
}

TEST_F(HttpServerTest, StopLeavesHeldExchangesInert) {
  StartServer();
  std::promise<std::shared_ptr<HttpExchange>> taken;
  server_->AddRoute("GET", "/hold", [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->Begin(200, "text/plain");
    taken.set_value(std::move(exchange));
  });
  RawConnection connection(address());
  ASSERT_TRUE(connection.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
  auto exchange = taken.get_future().get();
  server_.reset();
  EXPECT_FALSE(exchange->Write("x"));
  exchange->Finish("");
}

TEST(HttpServerStartTest, BadAddressesAreNamed) {
  for (const char* listen : {"localhost",
                             "127.0.0.1:http-no-such",
                             "127.0.0.1:99999",
                             "127.0.0.1:",
                             "no.such.host.invalid:1"}) {
    const auto server = HttpServer::Start({.listen = listen});
    EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument) << listen;
    EXPECT_THAT(std::string(Message(server.status())), HasSubstr(listen));
  }
  const auto first = HttpServer::Start({});
  ASSERT_TRUE(first.ok());
  const auto second = HttpServer::Start({.listen = (*first)->address()});
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(second.status())), StartsWith("cannot listen on 127.0.0.1:"));
}

}  // namespace
}  // namespace baton
