#pragma once

#include <future>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/integration/router_service.h"
#include "tests/support/raw_http.h"

// Tests of a router's HTTP APIs.
namespace baton {

using Json = nlohmann::json;

class OpenAiApiTest : public RouterServiceTest {
 protected:
  using RouterServiceTest::RouterServiceTest;

  static std::string PostOf(const std::string& path, const Json& body) {
    return PostRequest(path, body.dump());
  }

  // Sends the request on another thread, because its answer depends on messages of fake workers.
  std::future<HttpAnswer> Post(const std::string& path, const Json& body) {
    return std::async(std::launch::async,
                      [address = router_->http(), request = PostOf(path, body)] {
                        return HttpSend(address, request, kCallLimit);
                      });
  }
  HttpAnswer Get(const std::string& path) { return HttpGet(router_->http(), path); }

  void ExpectError(const std::string& path,
                   const Json& body,
                   int status,
                   const Json& param,
                   const std::string& code) {
    const HttpAnswer answer = Post(path, body).get();
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_LT(answer.body.size(), 4096u);
    const Json error = Json::parse(answer.body)["error"];
    EXPECT_EQ(error["param"], param) << error;
    EXPECT_EQ(error["code"], code) << error;
    EXPECT_EQ(error["type"], "invalid_request_error");
  }

  // Waits for `count` dispatches in any order. Returns them by prompt.
  static std::map<std::string, worker::v1::Dispatch> AwaitPrompts(FakeWorker& worker,
                                                                  size_t count) {
    std::map<std::string, worker::v1::Dispatch> dispatches;
    for (size_t i = 0; i < count; ++i) {
      worker::v1::Dispatch dispatch = worker.AwaitDispatch(i);
      std::string prompt;
      for (size_t at = 0; at < dispatch.tokens().size(); at += 4) prompt += dispatch.tokens()[at];
      dispatches[prompt] = std::move(dispatch);
    }
    return dispatches;
  }

  static void Answer(FakeWorker& worker,
                     const worker::v1::Dispatch& dispatch,
                     const std::vector<std::string>& samples) {
    for (size_t i = 0; i < samples.size(); ++i) {
      worker.Say(dispatch, static_cast<int32_t>(i), 0, samples[i], FinishReason::kLength);
    }
    worker.Finish(dispatch);
  }
};

// The events of a stream without [DONE].
inline std::vector<Json> EventsOf(const std::string& stream) {
  std::vector<Json> events;
  for (size_t at = stream.find("data: "); at != std::string::npos;
       at = stream.find("data: ", at + 1)) {
    const std::string line = stream.substr(at + 6, stream.find('\n', at) - at - 6);
    if (line != "[DONE]") events.push_back(Json::parse(line));
  }
  return events;
}

}  // namespace baton
