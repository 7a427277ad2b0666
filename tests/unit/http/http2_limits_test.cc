#include <atomic>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http2_frames.h"
#include "tests/unit/http/http2_client.h"
#include "tests/unit/http/http_server_fixture.h"

// The limits of requests, over HTTP/2.
namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr auto kSoon = std::chrono::milliseconds(100);

class Http2LimitsTest : public HttpServerTest {
 protected:
  // Has an exchange kept for each POST /hold.
  void HoldPosts() {
    server_->AddRoute("POST", "/hold", [this](std::shared_ptr<HttpExchange> exchange) {
      std::lock_guard lock(mutex_);
      held_.push_back(std::move(exchange));
    });
  }
  std::shared_ptr<HttpExchange> AwaitHeld(size_t number) {
    Await(
        [&] {
          std::lock_guard lock(mutex_);
          return held_.size() > number;
        },
        "the request");
    std::lock_guard lock(mutex_);
    return held_[number];
  }
  // The message of an error of the server itself.
  static std::string ErrorOf(const Http2Client::Answer& answer) {
    return HttpServerTest::ErrorOf(
        {answer.status, "Content-Type: " + answer.headers.at("content-type"), answer.body});
  }
  // What the server sends until it closes the connection.
  std::string AnswerTo(const std::string& frames) {
    RawConnection raw(address());
    raw.Send(http2::Greeting() + frames);
    return raw.ReadToEnd().value_or("the connection was not closed");
  }

  // The error code of the first frame of that type; -1: none comes.
  static int64_t AwaitCode(RawConnection& raw, uint8_t type) {
    std::string received;
    const Time limit = SteadyClock().Now() + std::chrono::seconds(10);
    while (http2::ErrorCodeIn(received, type) < 0 && SteadyClock().Now() < limit) {
      received += raw.ReadUntil("no such bytes", std::chrono::milliseconds(10));
    }
    return http2::ErrorCodeIn(received, type);
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpExchange>> held_;
};

TEST_F(Http2LimitsTest, ABodyOverTheLimitIsRefusedAndTheOthersGoOn) {
  HttpServerOptions options;
  options.max_body_bytes = 100'000;
  StartServer(options);
  Http2Client client(address());
  const auto right = client.Await(client.Post("/echo", std::string(100'000, 'a')));
  EXPECT_EQ(right.body.size(), 100'000u);
  const auto over = client.Await(client.Post("/echo", std::string(100'001, 'a')));
  EXPECT_EQ(over.status, 413);
  EXPECT_EQ(ErrorOf(over), "the body is over the limit of 100000 bytes");
  EXPECT_FALSE(over.reset.has_value());
  // The header says it already, and no body is awaited.
  const auto stated = client.Await(client.Send({.method = "POST",
                                                .path = "/echo",
                                                .headers = {{"content-length", "100001"}},
                                                .ends = false}));
  EXPECT_EQ(stated.status, 413);
  EXPECT_FALSE(stated.reset.has_value());
  EXPECT_EQ(client.Await(client.Get("/hello?still")).body, "hello still");
  EXPECT_EQ(Metric("baton_http_refused_total{status=\"413\"}"), 2);
}

TEST_F(Http2LimitsTest, BodiesThatWaitAreBoundedTogether) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  options.max_waiting_body_bytes = 4000;
  StartServer(options);
  HoldPosts();
  const std::string body(600, 'x');
  Http2Client client(address());
  const int32_t first = client.Post("/hold", body);
  const auto exchange = AwaitHeld(0);
  // A connection may hold a quarter.
  const auto refused = client.Await(client.Post("/echo", body));
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("4000 bytes in all, or 1000 bytes of one connection"));
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(client.Await(client.Post("/echo", "small")).body, "small");
  exchange->Begin(200, "text/plain");
  EXPECT_EQ(client.Await(client.Post("/echo", body)).body, body);
  exchange->Finish("");
  EXPECT_EQ(client.Await(first).status, 200);
  // All connections together have the whole.
  std::vector<std::unique_ptr<Http2Client>> clients;
  for (size_t i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<Http2Client>(address()));
    clients.back()->Post("/hold", body);
    AwaitHeld(1 + i);
  }
  EXPECT_EQ(client.Await(client.Post("/echo", body)).status, 503);
  clients.clear();
  std::lock_guard lock(mutex_);
  held_.clear();
  EXPECT_EQ(client.Await(client.Post("/echo", body)).body, body);
}

TEST_F(Http2LimitsTest, AHeaderOverTheLimitIsRefused) {
  HttpServerOptions options;
  options.max_header_bytes = 2000;
  StartServer(options);
  Http2Client client(address());
  EXPECT_EQ(client.Await(client.Send({.headers = {{"a", std::string(1600, 'v')}}})).status, 200);
  const auto over = client.Await(client.Send({.headers = {{"a", std::string(2000, 'v')}}}));
  EXPECT_EQ(over.status, 431);
  EXPECT_EQ(ErrorOf(over), "the header is over the limit of 2000 bytes");
  // Each line counts with 32 bytes, because it costs memory.
  Http2Client::Headers lines;
  for (int i = 0; i < 60; ++i) lines.emplace_back("n" + std::to_string(i), "v");
  EXPECT_EQ(client.Await(client.Send({.headers = lines})).status, 431);
  EXPECT_EQ(client.Await(client.Get("/hello?still")).body, "hello still");
}

TEST_F(Http2LimitsTest, ALateHeaderEndsTheConnection) {
  HttpServerOptions options;
  options.header_timeout = kSoon;
  StartServer(options);
  const std::string late =
      AnswerTo(http2::Frame(http2::kHeaders, http2::kEndStream, 1, http2::Header("GET", "/hello")));
  EXPECT_EQ(http2::ErrorCodeIn(late, http2::kGoAway), http2::kEnhanceYourCalm);
  EXPECT_EQ(Metric("baton_http_refused_total{status=\"408\"}"), 1);
  EXPECT_EQ(Metric("baton_http2_failures_total{reason=\"time\"}"), 1);
  // A client that asks for nothing, and one that stops within its first bytes.
  EXPECT_EQ(http2::ErrorCodeIn(AnswerTo(""), http2::kGoAway), http2::kNoError);
  RawConnection half(address());
  ASSERT_TRUE(half.Send("PRI * HT"));
  EXPECT_EQ(half.ReadToEnd(), "");
}

TEST_F(Http2LimitsTest, ALateBodyIsRefused) {
  HttpServerOptions options;
  options.body_timeout = kSoon;
  StartServer(options);
  Http2Client client(address());
  const auto late =
      client.Await(client.Send({.method = "POST", .path = "/echo", .body = "ab", .ends = false}));
  EXPECT_EQ(late.status, 408);
  EXPECT_EQ(ErrorOf(late), "the body did not come in time");
  EXPECT_EQ(client.Await(client.Get("/hello?still")).body, "hello still");
}

TEST_F(Http2LimitsTest, AnIdleConnectionIsClosedAndPingsDoNotKeepIt) {
  HttpServerOptions options;
  options.idle_timeout = std::chrono::milliseconds(300);
  StartServer(options);
  RawConnection raw(address());
  ASSERT_TRUE(raw.Send(http2::Greeting() + http2::Frame(http2::kHeaders,
                                                        http2::kEndHeaders | http2::kEndStream,
                                                        1,
                                                        http2::Header("GET", "/hello?idle"))));
  std::string received;
  for (int i = 0; i < 100 && http2::ErrorCodeIn(received, http2::kGoAway) < 0; ++i) {
    raw.Send(http2::Frame(http2::kPing, 0, 0, "12345678"));
    received += raw.ReadUntil("never", std::chrono::milliseconds(20));
  }
  EXPECT_THAT(received, HasSubstr("hello idle"));
  EXPECT_EQ(http2::ErrorCodeIn(received, http2::kGoAway), http2::kNoError);
}

TEST_F(Http2LimitsTest, AClosedWindowDoesNotHoldAnAnswerForEver) {
  HttpServerOptions options;
  options.write_timeout = kSoon;
  StartServer(options);
  Http2Client client(address(), {.window = 0});
  EXPECT_EQ(client.Await(client.Get("/hello?x")).reset, http2::kEnhanceYourCalm);
  // An answer without a body needs no window.
  EXPECT_EQ(client.Await(client.Send({.method = "HEAD"})).status, 200);
}

// Nobody reads the socket: the frames of the answers fill the buffers of the system.
TEST_F(Http2LimitsTest, AClientThatReadsNothingIsDisconnected) {
  HttpServerOptions options;
  options.write_timeout = kSoon;
  options.max_unsent_bytes = 64 << 20;
  StartServer(options);
  HoldPosts();
  RawConnection raw(address());
  const std::string much = http2::Number(0x7fff0000, 4);
  ASSERT_TRUE(raw.Send(http2::Greeting() +
                       http2::Frame(http2::kSettings, 0, 0, http2::Number(4, 2) + much) +
                       http2::Frame(http2::kWindowUpdate, 0, 0, much) +
                       http2::Frame(http2::kHeaders,
                                    http2::kEndHeaders | http2::kEndStream,
                                    1,
                                    http2::Header("POST", "/hold"))));
  auto exchange = AwaitHeld(0);
  std::promise<void> gone;
  exchange->OnDisconnect([&] { gone.set_value(); });
  exchange->Begin(200, "text/plain");
  for (int i = 0; i < 32; ++i) exchange->Write(std::string(1 << 20, 'x'));
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  // An exchange keeps the connection's object alive.
  exchange.reset();
  {
    std::lock_guard lock(mutex_);
    held_.clear();
  }
  Await([&] { return Metric("baton_http_connections") == 0; }, "the end of the connection");
}

TEST_F(Http2LimitsTest, EachRequestCountsAsAConnection) {
  HttpServerOptions options;
  options.max_connections = 2;
  options.reserved_connections = 1;
  StartServer(options);
  HoldPosts();
  Http2Client client(address());
  const int32_t first = client.Post("/hold", "");
  AwaitHeld(0);
  const int32_t second = client.Post("/hold", "");
  AwaitHeld(1);
  const auto refused = client.Await(client.Get("/hello"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(ErrorOf(refused), "all 2 connections are in use");
  EXPECT_EQ(client.Await(client.Get("/healthz")).body, "ok");
  AwaitHeld(1)->Reply(200, "text/plain", "");
  EXPECT_EQ(client.Await(second).status, 200);
  EXPECT_EQ(client.Await(client.Get("/hello?again")).body, "hello again");
  AwaitHeld(0)->Reply(200, "text/plain", "");
  EXPECT_EQ(client.Await(first).status, 200);
}

TEST_F(Http2LimitsTest, AConnectionOverTheLimitServesOneProbe) {
  HttpServerOptions options;
  options.max_connections = 1;
  StartServer(options);
  Http2Client known(address());
  EXPECT_EQ(known.Await(known.Get("/hello")).status, 200);
  Http2Client over(address());
  EXPECT_EQ(over.Await(over.Get("/healthz")).body, "ok");
  EXPECT_TRUE(over.AwaitEnd());
  EXPECT_EQ(over.goaway(), http2::kNoError);
  Http2Client refused(address());
  EXPECT_EQ(refused.Await(refused.Get("/hello")).status, 503);
  EXPECT_TRUE(refused.AwaitEnd());
}

TEST_F(Http2LimitsTest, AStrangerGivesWayToANewConnection) {
  HttpServerOptions options;
  options.max_connections = 1;
  StartServer(options);
  Http2Client stranger(address());
  EXPECT_EQ(stranger.Await(stranger.Get("/healthz")).body, "ok");
  Http2Client known(address());
  EXPECT_EQ(known.Await(known.Get("/hello?new")).body, "hello new");
  EXPECT_TRUE(stranger.AwaitEnd());
  Http2Client late(address());
  EXPECT_EQ(late.Await(late.Get("/hello")).status, 503);
  EXPECT_EQ(known.Await(known.Get("/hello?still")).body, "hello still");
}

TEST_F(Http2LimitsTest, TheGateDecidesBeforeTheBody) {
  HttpServerOptions options;
  options.gate = [](const HttpRequest& request) {
    HttpVerdict verdict;
    if (request.header("authorization") != "right") {
      verdict.status = 401;
      verdict.message = "a key is needed";
      verdict.challenge = "Bearer";
    }
    verdict.client = "somebody";
    verdict.max_body_bytes = 10;
    return verdict;
  };
  StartServer(options);
  Http2Client client(address());
  const auto refused =
      client.Await(client.Send({.method = "POST", .path = "/echo", .body = "a", .ends = false}));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(ErrorOf(refused), "a key is needed");
  EXPECT_EQ(refused.headers.at("www-authenticate"), "Bearer");
  const Http2Client::Headers key = {{"authorization", "right"}};
  const auto echo = client.Await(
      client.Send({.method = "POST", .path = "/echo", .body = "1234567890", .headers = key}));
  EXPECT_EQ(echo.body, "1234567890");
  const auto over = client.Await(
      client.Send({.method = "POST", .path = "/echo", .body = "12345678901", .headers = key}));
  EXPECT_EQ(over.status, 413);
  EXPECT_EQ(ErrorOf(over), "the body is over the limit of 10 bytes");
}

// Such a request could be read as another one by a proxy that turns it into HTTP/1.
TEST_F(Http2LimitsTest, RequestsThatServersReadDifferentlyAreRefused) {
  StartServer();
  std::atomic<int> served = 0;
  server_->AddRoute("POST", "/count", [&](const std::shared_ptr<HttpExchange>& exchange) {
    ++served;
    exchange->Reply(200, "text/plain", "served");
  });
  const std::string header = http2::Header("POST", "/count");
  const std::string pseudo_only = http2::Line(":method", "POST") + http2::Line(":scheme", "http");
  for (const std::string& block :
       {header + http2::Line("transfer-encoding", "chunked"),
        header + http2::Line("connection", "close"),
        header + http2::Line("keep-alive", "1"),
        header + http2::Line("upgrade", "h2c"),
        header + http2::Line("te", "gzip"),
        header + http2::Line("Name", "upper case"),
        header + http2::Line("na me", "a"),
        header + http2::Line("name:", "a"),
        header + http2::Line("name", "a\r\nx: b"),
        header + http2::Line("name", std::string("a\0b", 3)),
        header + http2::Line("name", "a\nb"),
        header + http2::Line("content-length", "1") + http2::Line("content-length", "2"),
        header + http2::Line("content-length", "1, 2"),
        header + http2::Line("content-length", "-1"),
        header + http2::Line("content-length", "5"),  // and no body
        header + http2::Line(":path", "/other"),
        header + http2::Line(":unknown", "a"),
        pseudo_only,
        pseudo_only + http2::Line(":path", "count"),
        pseudo_only + http2::Line(":path", "/count HTTP/1.1\r\nx: "),
        http2::Line("name", "before the pseudo headers") + header}) {
    SCOPED_TRACE(testing::PrintToString(block));
    RawConnection raw(address());
    ASSERT_TRUE(
        raw.Send(http2::Greeting() +
                 http2::Frame(http2::kHeaders, http2::kEndHeaders | http2::kEndStream, 1, block)));
    EXPECT_EQ(AwaitCode(raw, http2::kResetStream), http2::kProtocolError);
  }
  const auto hosts =
      [&](const std::string& authority, const std::string& host, const char* marker) {
        RawConnection raw(address());
        raw.Send(http2::Greeting() + http2::Frame(http2::kHeaders,
                                                  http2::kEndHeaders | http2::kEndStream,
                                                  1,
                                                  pseudo_only + http2::Line(":path", "/count") +
                                                      http2::Line(":authority", authority) +
                                                      http2::Line("host", host)));
        return raw.ReadUntil(marker);
      };
  EXPECT_THAT(hosts("a", "b", "is not the same"), HasSubstr("is not the same"));
  EXPECT_EQ(served, 0);
  for (const char* bad : {"a@b", "x:y", "[::1"}) {
    EXPECT_THAT(hosts(bad, bad, "must be a host"), HasSubstr("must be a host")) << bad;
  }
  EXPECT_EQ(served, 0);
  EXPECT_THAT(hosts("a", "a", "served"), HasSubstr("served"));
  EXPECT_EQ(served, 1);
}

}  // namespace
}  // namespace baton
