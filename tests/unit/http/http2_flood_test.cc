#include <functional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/http/flood_budget.h"
#include "common/http/http2_codec.h"
#include "tests/support/http2_frames.h"
#include "tests/unit/http/http_server_fixture.h"

// Clients that keep a connection busy with frames that bring no request.
namespace baton {
namespace {

using http2::Frame;
using http2::Greeting;
using http2::Header;
using http2::Line;
using ::testing::HasSubstr;

TEST(FloodBudgetTest, AllowsABurstAndThenARate) {
  FloodBudget budget(/*burst=*/3, /*per_second=*/10);
  Time now{std::chrono::hours(1)};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.Take(now));
  EXPECT_FALSE(budget.Take(now));
  now += std::chrono::milliseconds(250);
  EXPECT_TRUE(budget.Take(now));
  EXPECT_FALSE(budget.Take(now));
  now += std::chrono::hours(1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(budget.Take(now));
  EXPECT_FALSE(budget.Take(now));
}

// Counts what the codec reports. Answers nothing, or endlessly.
class CountingEvents final : public Http2Events {
 public:
  void OnRequestBegins(int32_t) override { ++requests; }
  void OnHeader(int32_t, std::string_view name, std::string_view value) override {
    header_bytes += name.size() + value.size();
  }
  void OnHeaderEnds(int32_t, bool too_large) override { large_headers += too_large ? 1 : 0; }
  void OnBody(int32_t, std::string_view) override {}
  void OnRequestEnds(int32_t) override {}
  void OnStreamClosed(int32_t) override { ++closed; }
  size_t TakeAnswer(int32_t, std::span<uint8_t> into, bool&) override {
    // Each part has one byte.
    if (!endless || !std::exchange(part_, !part_)) return 0;
    into[0] = 'x';
    ++taken;
    return 1;
  }

  int requests = 0;
  int closed = 0;
  int large_headers = 0;
  size_t header_bytes = 0;
  bool endless = false;  // there is always a next part of an answer
  int taken = 0;

 private:
  bool part_ = true;
};

// A codec whose client has sent its preface, and the time.
class GreetedCodec {
 public:
  static constexpr size_t kMaxHeader = 16 << 10;

  GreetedCodec() { codec_.Receive(Greeting(), now_); }

  // Sends what `next` gives for 1, 2, … until the connection ends, and returns for how many calls
  // it lasted. The codec's own frames are read after each.
  int Endure(int calls, const std::function<std::string(uint32_t)>& next) {
    for (int i = 0; i < calls; ++i) {
      if (!codec_.failure().empty() || codec_.is_over()) return i;
      codec_.Receive(next(static_cast<uint32_t>(i + 1)), now_);
      codec_.Produce(sent_, sent_.size() + (1 << 20));
    }
    return calls;
  }
  // The error code with which the connection ended.
  int64_t EndCode() { return http2::ErrorCodeIn(sent_, http2::kGoAway); }
  // A whole request on the stream of that number.
  static std::string Request(uint32_t number, int flags = http2::kEndHeaders) {
    return Frame(http2::kHeaders, flags, 2 * number - 1, Header("GET", "/hello"));
  }
  static std::string Cancel(uint32_t number) {
    return Frame(http2::kResetStream, 0, 2 * number - 1, http2::Number(8, 4));
  }

  Time now_{std::chrono::hours(1)};
  CountingEvents events_;
  Http2Codec codec_{events_, kMaxHeader};
  std::string sent_;
};

class Http2CodecTest : public ::testing::Test, protected GreetedCodec {};

// CVE-2023-44487.
TEST_F(Http2CodecTest, RapidResetsEndTheConnection) {
  const int lasted = Endure(1000, [](uint32_t number) { return Request(number) + Cancel(number); });
  EXPECT_EQ(lasted, 201);
  EXPECT_EQ(codec_.failure(), "resets");
  EXPECT_EQ(EndCode(), http2::kEnhanceYourCalm);
  EXPECT_TRUE(codec_.is_over());
  EXPECT_EQ(events_.closed, 200);  // the last frame was not looked at
}

TEST_F(Http2CodecTest, SomeResetsASecondAreNoFlood) {
  const int lasted = Endure(1000, [this](uint32_t number) {
    now_ += std::chrono::milliseconds(25);
    return Request(number) + Cancel(number);
  });
  EXPECT_EQ(lasted, 1000);
  // All that are in progress at once.
  std::string all;
  for (uint32_t i = 1001; i <= 1100; ++i) all += Request(i);
  for (uint32_t i = 1001; i <= 1100; ++i) all += Cancel(i);
  codec_.Receive(all, now_);
  EXPECT_EQ(codec_.failure(), "");
  EXPECT_EQ(events_.closed, 1100);
}

// CVE-2025-8671: the client has the server reset the streams.
TEST_F(Http2CodecTest, StreamsThatBreakTheProtocolCountAsResets) {
  const int lasted = Endure(1000, [](uint32_t number) {
    return Request(number) +
           Frame(http2::kWindowUpdate, 0, 2 * number - 1, http2::Number(0x7fffffff, 4));
  });
  EXPECT_LE(lasted, 201);
  EXPECT_EQ(EndCode(), http2::kEnhanceYourCalm);
}

TEST_F(Http2CodecTest, MalformedRequestsCountAsResets) {
  const int lasted = Endure(1000, [](uint32_t number) {
    return Frame(http2::kHeaders,
                 http2::kEndHeaders | http2::kEndStream,
                 2 * number - 1,
                 Header("GET", "/hello") + Line("connection", "close"));
  });
  EXPECT_LE(lasted, 201);
  EXPECT_EQ(codec_.failure(), "resets");
  EXPECT_EQ(EndCode(), http2::kEnhanceYourCalm);
}

// CVE-2024-27316. nghttp2 has a limit of its own in Debian's version, which is higher.
TEST_F(Http2CodecTest, AHeaderOfManyFramesEndsTheConnection) {
  const int lasted = Endure(100, [](uint32_t number) {
    if (number == 1) return Frame(http2::kHeaders, 0, 1, Header("GET", "/hello"));
    return Frame(http2::kContinuation, 0, 1, "");
  });
  EXPECT_EQ(lasted, 8);  // the first frame, six more, and one too many
  EXPECT_EQ(codec_.failure(), "header");
  EXPECT_EQ(EndCode(), http2::kEnhanceYourCalm);
}

// A line that is in the client's table costs one byte and is as long as the table.
TEST_F(Http2CodecTest, AHeaderThatGrowsWhenItIsReadIsBounded) {
  const std::string indexed = "\x40" + Line("name", std::string(3000, 'v')).substr(1);
  const auto bomb = [&](size_t times) {
    return Header("GET", "/hello") + indexed + std::string(times, '\xbe');
  };
  codec_.Receive(Frame(http2::kHeaders, http2::kEndHeaders, 1, bomb(10)), now_);
  EXPECT_EQ(codec_.failure(), "");
  EXPECT_EQ(events_.large_headers, 1);
  EXPECT_LE(events_.header_bytes, kMaxHeader);
  codec_.Receive(Frame(http2::kHeaders, http2::kEndHeaders, 3, bomb(10'000)), now_);
  EXPECT_EQ(codec_.failure(), "header");
  EXPECT_LE(events_.header_bytes, 2 * kMaxHeader);
  codec_.Produce(sent_, 1 << 20);
  EXPECT_EQ(EndCode(), http2::kEnhanceYourCalm);
}

TEST_F(Http2CodecTest, FramesWithoutUseEndTheConnection) {
  const std::string body = Request(1);
  const std::string padding = std::string(1, '\x03') + std::string(3, '\0');
  for (const auto& [what, frame] :
       {std::pair("settings", Frame(http2::kSettings, 0, 0, "")),
        std::pair("pings", Frame(http2::kPing, 0, 0, "12345678")),
        std::pair("ping acks", Frame(http2::kPing, 1, 0, "12345678")),
        std::pair("priorities", Frame(http2::kPriority, 0, 3, std::string(5, '\1'))),
        std::pair("unknown frames", Frame(0x0b, 0, 0, "12345678")),
        std::pair("the last unknown type", Frame(0xff, 0, 1, "")),
        std::pair("priority updates", Frame(0x10, 0, 0, std::string(4, '\0') + "u=1")),
        std::pair("window updates", Frame(http2::kWindowUpdate, 0, 0, http2::Number(1, 4))),
        std::pair("window updates of a stream",
                  Frame(http2::kWindowUpdate, 0, 1, http2::Number(1, 4))),
        std::pair("empty data", Frame(http2::kData, 0, 1, "")),
        std::pair("padding", Frame(http2::kData, http2::kPadded, 1, padding))}) {
    SCOPED_TRACE(what);
    GreetedCodec fresh;
    const int lasted = fresh.Endure(
        3000, [&, frame = frame](uint32_t number) { return number == 1 ? body : frame; });
    EXPECT_GE(lasted, 450);
    EXPECT_LE(lasted, 502);
    EXPECT_EQ(fresh.codec_.failure(), "frames");
    EXPECT_EQ(fresh.EndCode(), http2::kEnhanceYourCalm);
  }
}

TEST_F(Http2CodecTest, DataOfOneByteEndsTheConnection) {
  const int lasted = Endure(5000, [&](uint32_t number) {
    return number == 1 ? Request(1) : Frame(http2::kData, 0, 1, "d");
  });
  EXPECT_GE(lasted, 2000);
  EXPECT_LE(lasted, 2002);
  EXPECT_EQ(codec_.failure(), "frames");
}

TEST_F(Http2CodecTest, FewHeadersMayBeTooLarge) {
  const std::string large = Header("GET", "/hello", {{"large", std::string(kMaxHeader, 'l')}});
  const int lasted = Endure(100, [&](uint32_t number) {
    return Frame(http2::kHeaders, 0, 2 * number - 1, large.substr(0, 16'000)) +
           Frame(http2::kContinuation, http2::kEndHeaders, 2 * number - 1, large.substr(16'000));
  });
  EXPECT_EQ(lasted, 21);
  EXPECT_EQ(codec_.failure(), "resets");
}

// nghttp2 ignores such frames without a word.
TEST_F(Http2CodecTest, DataOfARequestThatHasEndedIsCounted) {
  codec_.Receive(Request(1), now_);
  codec_.Reset(1, HttpAbort::kFailed);
  codec_.Produce(sent_, 1 << 20);
  EXPECT_LE(Endure(5000, [](uint32_t) { return Frame(http2::kData, 0, 1, ""); }), 502);
  EXPECT_EQ(codec_.failure(), "frames");
}

// A client may update both windows for each part of an answer, however small the parts are.
TEST_F(Http2CodecTest, WindowUpdatesOfAClientThatReadsAreNoFlood) {
  events_.endless = true;
  codec_.Receive(Request(1), now_);
  HttpAnswerHead head;
  head.status = 200;
  codec_.Answer(1, head, /*has_body=*/true);
  const std::string update = http2::Number(1, 4);
  const int lasted = Endure(3000, [&](uint32_t) {
    codec_.Resume(1);
    return Frame(http2::kWindowUpdate, 0, 0, update) + Frame(http2::kWindowUpdate, 0, 1, update);
  });
  EXPECT_EQ(lasted, 3000);
  EXPECT_EQ(codec_.failure(), "");
  EXPECT_GE(events_.taken, 3000);
}

TEST_F(Http2CodecTest, MoreRequestsThanAllowedAreNotBegun) {
  std::string all;
  for (uint32_t i = 1; i <= 150; ++i) all += Request(i);
  codec_.Receive(all, now_);
  EXPECT_EQ(events_.requests, 100);
  // A client that knows the limit breaks the protocol.
  codec_.Produce(sent_, 1 << 20);
  codec_.Receive(Frame(http2::kSettings, 1, 0, "") + Request(151), now_);
  codec_.Produce(sent_, 1 << 20);
  EXPECT_EQ(events_.requests, 100);
  EXPECT_EQ(EndCode(), http2::kProtocolError);
}

class Http2FloodTest : public HttpServerTest {};

TEST_F(Http2FloodTest, ACalmClientIsServedBesideAFlood) {
  StartServer();
  RawConnection flood(address());
  std::string frames = Greeting();
  for (uint32_t stream = 1; stream < 5000; stream += 2) {
    frames += Frame(
        http2::kHeaders, http2::kEndHeaders | http2::kEndStream, stream, Header("GET", "/hello"));
    frames += Frame(http2::kResetStream, 0, stream, http2::Number(8, 4));
  }
  flood.Send(frames);
  const std::string end = flood.ReadToEnd().value_or("the connection was not closed");
  EXPECT_EQ(http2::ErrorCodeIn(end, http2::kGoAway), http2::kEnhanceYourCalm);
  EXPECT_EQ(Metric("baton_http2_failures_total{reason=\"resets\"}"), 1);
  EXPECT_EQ(HttpGet(address(), "/hello?calm").body, "hello calm");
}

TEST_F(Http2FloodTest, BytesThatAreNoFramesEndTheConnection) {
  StartServer();
  for (const std::string& garbage :
       {std::string(64, '\xff'),
        Frame(http2::kHeaders, http2::kEndHeaders, 0, Header("GET", "/hello")),
        Frame(http2::kHeaders, http2::kEndHeaders, 2, Header("GET", "/hello")),
        Frame(http2::kHeaders, http2::kEndHeaders, 1, "\xff\xff\xff\xff"),
        Frame(http2::kContinuation, http2::kEndHeaders, 1, ""),
        Frame(http2::kData, 0, 1, "no such stream"),
        Frame(http2::kSettings, 0, 0, "odd"),
        Frame(http2::kSettings, 0, 0, http2::Number(4, 2) + http2::Number(0xffffffff, 4)),
        Frame(http2::kWindowUpdate, 0, 0, http2::Number(0, 4)),
        Frame(http2::kPing, 0, 0, "short"),
        Frame(http2::kGoAway, 0, 1, "12345678")}) {
    SCOPED_TRACE(testing::PrintToString(garbage));
    RawConnection raw(address());
    ASSERT_TRUE(raw.Send(Greeting() + garbage));
    const std::string end = raw.ReadToEnd().value_or("the connection was not closed");
    EXPECT_GT(http2::ErrorCodeIn(end, http2::kGoAway), 0);
    EXPECT_EQ(HttpGet(address(), "/hello?next").body, "hello next");
  }
  EXPECT_EQ(Metric("baton_http2_failures_total{reason=\"protocol\"}"), 11);
  EXPECT_THAT(metrics_.Serialize(), HasSubstr("baton_http_connections"));
}

}  // namespace
}  // namespace baton
