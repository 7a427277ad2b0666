// A decode worker is killed in the middle of a streamed call of a tool.
#include <signal.h>

#include <charconv>
#include <functional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/worker_plan.h"
#include "tests/fault/fault_cluster.h"
#include "tests/support/raw_http.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr const char* kDecodeWorkers[] = {"decode-0", "decode-1", "decode-2"};

// What a stream has delivered so far.
struct StreamedCall {
  std::string name;
  std::string arguments;  // the fragments, joined
  std::string finish;
  int fragments = 0;
  bool done = false;
};

// The body of an HTTP answer in chunks (RFC 9112, section 7.1), as far as its chunks are whole.
std::string BodyOf(std::string_view answer) {
  std::string body;
  size_t at = answer.find("\r\n\r\n");
  at = at == std::string_view::npos ? answer.size() : at + 4;
  while (at < answer.size()) {
    size_t bytes = 0;
    const size_t end = answer.find("\r\n", at);
    if (end == std::string_view::npos) break;
    std::from_chars(answer.data() + at, answer.data() + end, bytes, 16);
    if (bytes == 0 || end + 2 + bytes + 2 > answer.size()) break;
    body += answer.substr(end + 2, bytes);
    at = end + 2 + bytes + 2;
  }
  return body;
}

StreamedCall Read(std::string_view answer) {
  StreamedCall call;
  const std::string body = BodyOf(answer);
  constexpr std::string_view kData = "data: ";
  for (size_t at = body.find(kData); at != std::string::npos; at = body.find(kData, at)) {
    at += kData.size();
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    call.done = event == "[DONE]";
    if (call.done) break;
    const Json choice = Json::parse(event).at("choices").at(0);
    if (choice["finish_reason"].is_string()) call.finish = choice["finish_reason"];
    for (const Json& delta : choice["delta"].value("tool_calls", Json::array())) {
      const Json& function = delta.at("function");
      call.name += function.value("name", "");
      const std::string fragment = function.value("arguments", "");
      call.arguments += fragment;
      call.fragments += fragment.empty() ? 0 : 1;
    }
  }
  return call;
}

class ToolCallFaultTest : public FaultTest {
 protected:
  static std::string BodyWithSeed(int seed) {
    const auto text = [](int least, int most) {
      return Json{{"type", "string"}, {"minLength", least}, {"maxLength", most}};
    };
    const Json parameters = {
        {"type", "object"},
        {"properties",
         {{"city", text(3, 20)},
          {"text", text(200, 260)},
          {"tags", {{"type", "array"}, {"items", text(1, 12)}, {"minItems", 3}, {"maxItems", 5}}}}},
        {"required", {"city", "text", "tags"}}};
    const Json tool = {{"type", "function"},
                       {"function", {{"name", "describe"}, {"parameters", parameters}}}};
    return Json{{"messages", {{{"role", "user"}, {"content", "Describe the city of Paris."}}}},
                {"tools", {tool}},
                {"tool_choice", {{"type", "function"}, {"function", {{"name", "describe"}}}}},
                {"parallel_tool_calls", false},
                {"stream", true},
                {"seed", seed},
                {"temperature", 0.8},
                {"max_tokens", 600}}
        .dump();
  }

  // Streams a forced call. Calls `disturb` once, when `after` bytes of the arguments have come.
  StreamedCall Stream(int seed, size_t after, const std::function<void()>& disturb) {
    const std::string body = BodyWithSeed(seed);
    RawConnection connection(http("router"));
    EXPECT_TRUE(connection.Send(
        fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: baton\r\nContent-Type: "
                    "application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                    body.size(),
                    body)));
    std::string answer;
    StreamedCall call;
    bool disturbed = false;
    for (std::string more; !call.done;) {
      more = connection.ReadUntil("\n\n", std::chrono::seconds(60));
      if (more.empty()) break;
      answer += more;
      call = Read(answer);
      if (disturbed || call.arguments.size() < after) continue;
      EXPECT_TRUE(call.finish.empty()) << "the call had ended before the fault";
      disturb();
      disturbed = true;
    }
    EXPECT_TRUE(disturbed);
    EXPECT_TRUE(call.done) << answer;
    return call;
  }

  // Kills the decode worker that computes the only request.
  void KillBusyDecodeWorker() {
    for (const char* worker : kDecodeWorkers) {
      // The metric of a worker that was killed earlier is absent.
      if (Metric(worker, "baton_worker_sequences_running") <= 0) continue;
      return process(worker).Signal(SIGKILL);
    }
    FAIL() << "no decode worker computes the call";
  }
};

TEST_F(ToolCallFaultTest, TheArgumentsOfAStreamedCallSurviveAKilledDecodeWorker) {
  const std::string chat_template =
      std::string(BATON_TEST_DATA) + "/text/templates/qwen25_style.jinja";
  StartCluster(1, 3, {}, {QuotedOverride("chat_template", chat_template)});
  StreamedCall expected[2];
  for (int seed = 0; seed < 2; ++seed) {
    expected[seed] = Stream(seed, 0, [] {});
    EXPECT_EQ(expected[seed].name, "describe");
    EXPECT_EQ(expected[seed].finish, "tool_calls");
    EXPECT_GT(expected[seed].fragments, 20);
    EXPECT_GE(Json::parse(expected[seed].arguments).at("text").get<std::string>().size(), 200u);
  }
  EXPECT_NE(expected[0].arguments, expected[1].arguments);
  // One worker is killed in the middle of the first string, another one near the end.
  const size_t moments[] = {40, 230};
  for (int seed = 0; seed < 2; ++seed) {
    const StreamedCall call = Stream(seed, moments[seed], [&] { KillBusyDecodeWorker(); });
    EXPECT_EQ(call.arguments, expected[seed].arguments);
    EXPECT_EQ(call.name, expected[seed].name);
    EXPECT_EQ(call.finish, expected[seed].finish);
  }
  EXPECT_GE(Metric("router", "baton_router_retries_total"), 2);
  ExpectNoLeaks({"prefill-0"});
}

}  // namespace
}  // namespace baton
