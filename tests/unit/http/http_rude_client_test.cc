#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/http/http_server_fixture.h"

// Clients that send invalid bytes, too many bytes, or nothing.
namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(20);
constexpr auto kSoon = std::chrono::milliseconds(100);

std::string Post(const std::string& body) {
  return fmt::format(
      "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      body.size(),
      body);
}

class RudeClientTest : public HttpServerTest {
 protected:
  void StartServerFor(int connections, int reserved) {
    HttpServerOptions options;
    options.max_connections = connections;
    options.reserved_connections = reserved;
    StartServer(options);
  }
  // Has a valid request of the connection answered.
  static void BecomeKnown(RawConnection& connection) {
    ASSERT_TRUE(connection.Send("GET /hello?known HTTP/1.1\r\nHost: t\r\n\r\n"));
    EXPECT_THAT(connection.ReadUntil("hello known"), HasSubstr("HTTP/1.1 200 "));
  }
};

TEST_F(RudeClientTest, AHeaderOfManyLinesIsBounded) {
  HttpServerOptions options;
  options.max_header_bytes = 8192;
  StartServer(options);
  const auto header_of = [](size_t bytes) {
    std::string header = "GET /hello?" + std::string(42, 'q') + " HTTP/1.1\r\nHost: t\r\n";
    while (header.size() < bytes) header += "Name: " + std::string(56, 'v') + "\r\n";
    return header;
  };
  const std::string end = "Connection: close\r\n\r\n";
  EXPECT_EQ(HttpSend(address(), header_of(8000) + end).status, 200);
  const HttpAnswer answer = HttpSend(address(), header_of(10'000) + end);
  EXPECT_EQ(answer.status, 431);
  EXPECT_EQ(ErrorOf(answer), "the header is over the limit of 8192 bytes");
  EXPECT_EQ(HttpSend(address(), header_of(1'000'000)).status, 431);  // a header that never ends
}

TEST_F(RudeClientTest, IdleConnectionsKeepNeitherProbesNorAnAnswerAway) {
  StartServerFor(4, /*reserved=*/2);
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(std::make_unique<RawConnection>(address()));
    ASSERT_TRUE(silent.back()->connected());
    if (i < 4) BecomeKnown(*silent.back());
  }
  EXPECT_EQ(HttpGet(address(), "/healthz").body, "ok");
  const HttpAnswer refused = HttpGet(address(), "/hello");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(ErrorOf(refused), "all 4 connections are in use");
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: 1"));
  // The oldest connections over the limit were closed for the next ones, with a 503 answer.
  EXPECT_THAT(silent[4]->ReadToEnd().value_or(""), HasSubstr("HTTP/1.1 503 "));
  // The first four connections are still served.
  ASSERT_TRUE(silent[0]->Send("GET /hello?0 HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(silent[0]->ReadUntil("hello 0"), HasSubstr("HTTP/1.1 200 "));
  EXPECT_GE(Metric("baton_http_refused_total{status=\"503\"}"), 2);
  silent.clear();
  Await([&] { return HttpGet(address(), "/hello").status == 200; }, "a free slot");
}

// The clients connect while the io thread is blocked, so that the server accepts all at once.
TEST_F(RudeClientTest, ProbesAreAnsweredBehindManySilentConnections) {
  StartServerFor(4, /*reserved=*/2);
  std::promise<std::shared_ptr<HttpExchange>> taken;
  std::promise<void> entered;
  std::promise<void> release;
  server_->AddRoute("GET", "/block", [&](std::shared_ptr<HttpExchange> exchange) {
    // Runs on the io thread.
    exchange->OnDisconnect([&] {
      entered.set_value();
      release.get_future().wait_for(kLimit);
    });
    taken.set_value(std::move(exchange));
  });
  RawConnection blocker(address());
  ASSERT_TRUE(blocker.Send("GET /block HTTP/1.1\r\nHost: t\r\n\r\n"));
  const auto exchange = taken.get_future().get();
  blocker.Close();
  entered.get_future().wait();
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<RawConnection>(address()));
  RawConnection probe(address());
  ASSERT_TRUE(probe.Send("GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n"));
  release.set_value();
  EXPECT_THAT(probe.ReadUntil("ok"), HasSubstr("HTTP/1.1 200 "));
}

// A handler that keeps its exchange keeps the connection alive, although the slot is free.
TEST_F(RudeClientTest, AConnectionThatIsClosedAlreadyDoesNotGiveWay) {
  StartServerFor(1, /*reserved=*/1);
  std::promise<std::shared_ptr<HttpExchange>> kept;
  server_->AddProbe("/kept", [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->Reply(200, "text/plain", "kept");
    kept.set_value(std::move(exchange));
  });
  RawConnection known(address());
  BecomeKnown(known);
  RawConnection closed(address());
  ASSERT_TRUE(closed.Send("GET /kept HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(closed.ReadUntil("kept"), HasSubstr("HTTP/1.1 200 "));
  closed.Close();
  const auto exchange = kept.get_future().get();
  RawConnection silent(address());
  RawConnection probe(address());
  ASSERT_TRUE(probe.Send("GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(probe.ReadUntil("ok"), HasSubstr("HTTP/1.1 200 "));
}

TEST_F(RudeClientTest, TheOldestStrangerGivesWayToANewConnection) {
  StartServerFor(4, /*reserved=*/1);
  RawConnection known(address());
  BecomeKnown(known);
  RawConnection prober(address());
  ASSERT_TRUE(prober.Send("GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(prober.ReadUntil("ok"), HasSubstr("HTTP/1.1 200 "));  // proves nothing
  RawConnection half(address());
  ASSERT_TRUE(half.Send("GET /hello HTTP/1.1\r\nHo"));
  RawConnection silent(address());
  std::vector<std::unique_ptr<RawConnection>> next;
  for (RawConnection* const oldest : {&prober, &half, &silent}) {
    next.push_back(std::make_unique<RawConnection>(address()));
    BecomeKnown(*next.back());
    EXPECT_THAT(oldest->ReadToEnd().value_or("it has not given way"), HasSubstr("HTTP/1.1 503 "));
  }
  EXPECT_EQ(Metric("baton_http_evicted_total"), 3);
  ASSERT_TRUE(known.Send("GET /hello?1 HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(known.ReadUntil("hello 1"), HasSubstr("HTTP/1.1 200 "));
}

TEST_F(RudeClientTest, OverTheLimitOfAnAddressOnlyItsOwnStrangersGiveWay) {
  HttpServerOptions options;
  options.max_connections_per_address = 1;
  StartServer(options);
  RawConnection other(address(), "127.0.0.2");
  RawConnection silent(address());
  EXPECT_EQ(HttpGet(address(), "/hello").status, 200);
  EXPECT_THAT(silent.ReadToEnd().value_or("it has not given way"), HasSubstr("HTTP/1.1 503 "));
  ASSERT_TRUE(other.Send("GET /hello?other HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(other.ReadUntil("hello other"), HasSubstr("HTTP/1.1 200 "));
}

TEST_F(RudeClientTest, OneAddressCannotTakeAllConnections) {
  HttpServerOptions options;
  options.max_connections_per_address = 2;
  StartServer(options);
  RawConnection first(address());
  RawConnection second(address());
  BecomeKnown(first);
  BecomeKnown(second);
  const HttpAnswer refused = HttpGet(address(), "/hello");
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("address 127.0.0.1 has 2 connections"));
  EXPECT_EQ(HttpGet(address(), "/healthz").status, 200);
  RawConnection other(address(), "127.0.0.2");
  ASSERT_TRUE(other.Send("GET /hello?other HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(other.ReadUntil("hello other"), HasSubstr("HTTP/1.1 200 "));
}

TEST_F(RudeClientTest, AHeaderOrBodyThatDoesNotComeInTimeGets408) {
  HttpServerOptions options;
  options.header_timeout = kSoon;
  StartServer(options);
  EXPECT_EQ(HttpSend(address(), "GET /hello HTTP/1.1\r\nHo").status, 408);
  RawConnection silent(address());
  EXPECT_EQ(silent.ReadToEnd(), "");
  options.header_timeout = kLimit;
  options.body_timeout = kSoon;
  StartServer(options);
  const HttpAnswer body =
      HttpSend(address(), "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nab");
  EXPECT_EQ(body.status, 408);
  EXPECT_EQ(ErrorOf(body), "the body did not come in time");
}

// Otherwise a client that sends single bytes slowly could keep its connection forever.
TEST_F(RudeClientTest, ASlowHeaderHasNoMoreTime) {
  HttpServerOptions options;
  options.header_timeout = kSoon;
  options.max_header_bytes = 2000;  // ends the test if the time-out does not
  StartServer(options);
  RawConnection slow(address());
  ASSERT_TRUE(slow.Send("GET /hello HTTP/1.1\r\nHost: t\r\nX: "));
  std::string answer;
  while (answer.empty() && slow.Send("x")) {
    answer = slow.ReadUntil("\r\n", std::chrono::milliseconds(10));
  }
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 408 "));
}

TEST_F(RudeClientTest, BodiesThatWaitAreBoundedTogether) {
  HttpServerOptions options;
  options.max_waiting_body_bytes = 1000;
  StartServer(options);
  std::promise<std::shared_ptr<HttpExchange>> taken;
  server_->AddRoute("POST", "/hold", [&](std::shared_ptr<HttpExchange> exchange) {
    taken.set_value(std::move(exchange));
  });
  const std::string body(600, 'x');
  RawConnection held(address());
  ASSERT_TRUE(held.Send("POST /hold HTTP/1.1\r\nHost: t\r\nContent-Length: 600\r\n\r\n" + body));
  auto exchange = taken.get_future().get();
  const HttpAnswer refused = HttpSend(address(), Post(body));
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(ErrorOf(refused), HasSubstr("limit of 1000 bytes"));
  EXPECT_EQ(HttpSend(address(), Post("small")).body, "small");
  exchange->Begin(200, "text/plain");
  EXPECT_EQ(HttpSend(address(), Post(body)).body, body);
  // A body that never ends counts, too, as long as its client is connected.
  RawConnection unfinished(address());
  ASSERT_TRUE(
      unfinished.Send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 700\r\n\r\n" + body));
  Await([&] { return HttpSend(address(), Post(body)).status == 503; }, "a refusal");
  unfinished.Close();
  Await([&] { return HttpSend(address(), Post(body)).status == 200; }, "room for a body");
}

TEST_F(RudeClientTest, AnAnswerReachesAClientThatIsStillSending) {
  StartServer();
  const std::string body(4 << 20, 'x');
  const HttpAnswer answer = HttpSend(
      address(),
      fmt::format(
          "POST /nowhere HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(ErrorOf(answer), "nothing is served at POST /nowhere");
}

TEST_F(RudeClientTest, ALongPathIsNotRepeatedWhole) {
  StartServer();
  const HttpAnswer answer = HttpGet(address(), "/" + std::string(10'000, 'p') + "\xff");
  EXPECT_EQ(answer.status, 404);
  EXPECT_LT(ErrorOf(answer).size(), 300u);
  EXPECT_FALSE(ErrorOf(HttpGet(address(), "/\xff")).empty());
}

TEST_F(RudeClientTest, ExceptionsOfHandlersAreAnsweredAndCounted) {
  StartServer();
  server_->AddRoute("GET", "/throw", [](const std::shared_ptr<HttpExchange>&) {
    throw std::runtime_error("a secret of the server");
  });
  server_->AddRoute("GET", "/throw_int", [](const std::shared_ptr<HttpExchange>&) { throw 1; });
  server_->AddRoute("GET", "/throw_late", [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Begin(200, "text/event-stream");
    exchange->Write("data: 1\n\n");
    throw std::bad_alloc();
  });
  server_->AddProbe("/throw_probe", [](const std::shared_ptr<HttpExchange>&) {
    throw std::runtime_error("a probe");
  });
  for (const char* path : {"/throw", "/throw_int", "/throw_probe"}) {
    const HttpAnswer answer = HttpGet(address(), path);
    EXPECT_EQ(answer.status, 500) << path;
    EXPECT_EQ(ErrorOf(answer), "the server failed to handle this request; its log says why");
  }
  RawConnection late(address());
  ASSERT_TRUE(late.Send("GET /throw_late HTTP/1.1\r\nHost: t\r\n\r\n"));
  const std::string cut = late.ReadToEnd().value_or("no end");
  EXPECT_THAT(cut, ::testing::Not(HasSubstr("0\r\n\r\n")));
  EXPECT_EQ(Metric("baton_http_exceptions_total"), 4);
  EXPECT_EQ(HttpGet(address(), "/hello?still").body, "hello still");
}

TEST_F(RudeClientTest, AnExceptionOnTheServersOwnThreadEndsOneConnectionOnly) {
  StartServer();
  std::promise<std::shared_ptr<HttpExchange>> taken;
  server_->AddRoute("GET", "/stream", [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->OnDisconnect([] { throw std::runtime_error("on disconnect"); });
    exchange->Begin(200, "text/event-stream");
    taken.set_value(std::move(exchange));
  });
  RawConnection connection(address());
  ASSERT_TRUE(connection.Send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n"));
  const auto exchange = taken.get_future().get();
  connection.Close();
  Await([&] { return Metric("baton_http_exceptions_total") == 1; }, "the exception");
  EXPECT_EQ(HttpGet(address(), "/hello?still").body, "hello still");
}

TEST_F(RudeClientTest, ProbesAreAnsweredWhileAllHandlerThreadsAreBusy) {
  HttpServerOptions options;
  options.handler_threads = 1;
  StartServer(options);
  std::promise<void> release;
  std::promise<void> entered;
  server_->AddRoute("GET", "/busy", [&](const std::shared_ptr<HttpExchange>& exchange) {
    entered.set_value();
    release.get_future().wait_for(kLimit);
    exchange->Reply(200, "text/plain", "done");
  });
  RawConnection busy(address());
  ASSERT_TRUE(busy.Send("GET /busy HTTP/1.1\r\nHost: t\r\n\r\n"));
  entered.get_future().wait();
  EXPECT_EQ(HttpGet(address(), "/healthz").body, "ok");
  release.set_value();
  EXPECT_THAT(busy.ReadUntil("done"), HasSubstr("HTTP/1.1 200 "));
}

}  // namespace
}  // namespace baton
