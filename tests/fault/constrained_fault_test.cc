// A decode worker is killed in the middle of a constrained answer: a call of a tool, or an answer
// by a JSON schema.
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
struct StreamedAnswer {
  std::string tool;  // the name of the called tool
  std::string json;  // the fragments of the arguments or of the content, joined
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

StreamedAnswer Read(std::string_view answer) {
  StreamedAnswer read;
  const auto add = [&](const std::string& fragment) {
    read.json += fragment;
    read.fragments += fragment.empty() ? 0 : 1;
  };
  const std::string body = BodyOf(answer);
  constexpr std::string_view kData = "data: ";
  for (size_t at = body.find(kData); at != std::string::npos; at = body.find(kData, at)) {
    at += kData.size();
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) break;
    const std::string event = body.substr(at, end - at);
    read.done = event == "[DONE]";
    if (read.done) break;
    const Json choice = Json::parse(event).at("choices").at(0);
    if (choice["finish_reason"].is_string()) read.finish = choice["finish_reason"];
    const Json& delta = choice.at("delta");
    if (delta.contains("content") && delta["content"].is_string()) add(delta["content"]);
    for (const Json& call : delta.value("tool_calls", Json::array())) {
      const Json& function = call.at("function");
      read.tool += function.value("name", "");
      add(function.value("arguments", ""));
    }
  }
  return read;
}

// The members of a request that make the model answer with `schema`: as a call, or as the content.
Json ByTool(const Json& schema) {
  const Json tool = {{"type", "function"},
                     {"function", {{"name", "describe"}, {"parameters", schema}}}};
  return {{"tools", {tool}},
          {"tool_choice", {{"type", "function"}, {"function", {{"name", "describe"}}}}},
          {"parallel_tool_calls", false}};
}

Json ByResponseFormat(const Json& schema) {
  const Json named = {{"name", "city"}, {"schema", schema}, {"strict", true}};
  return {{"response_format", {{"type", "json_schema"}, {"json_schema", named}}}};
}

class ConstrainedFaultTest : public FaultTest {
 protected:
  using Members = Json (*)(const Json& schema);

  static std::string Body(Members members, int seed) {
    const auto text = [](int least, int most) {
      return Json{{"type", "string"}, {"minLength", least}, {"maxLength", most}};
    };
    const Json schema = {
        {"type", "object"},
        {"properties",
         {{"city", text(3, 20)},
          {"text", text(200, 260)},
          {"tags", {{"type", "array"}, {"items", text(1, 12)}, {"minItems", 3}, {"maxItems", 5}}}}},
        {"required", {"city", "text", "tags"}},
        {"additionalProperties", false}};
    Json body = {{"messages", {{{"role", "user"}, {"content", "Describe the city of Paris."}}}},
                 {"stream", true},
                 {"seed", seed},
                 {"temperature", 0.8},
                 {"max_tokens", 600}};
    body.update(members(schema));
    return body.dump();
  }

  // Streams an answer. Calls `disturb` once, when `after` bytes of its JSON have come.
  StreamedAnswer Stream(const std::string& body,
                        size_t after,
                        const std::function<void()>& disturb) {
    RawConnection connection(http("router"));
    EXPECT_TRUE(connection.Send(
        PostRequest("/v1/chat/completions", body, "Content-Type: application/json\r\n")));
    std::string answer;
    StreamedAnswer read;
    bool disturbed = false;
    for (std::string more; !read.done;) {
      more = connection.ReadUntil("\n\n", std::chrono::seconds(60));
      if (more.empty()) break;
      answer += more;
      read = Read(answer);
      if (disturbed || read.json.size() < after) continue;
      EXPECT_TRUE(read.finish.empty()) << "the answer had ended before the fault";
      disturb();
      disturbed = true;
    }
    EXPECT_TRUE(disturbed);
    EXPECT_TRUE(read.done) << answer;
    return read;
  }

  // Kills the decode worker that computes the only request.
  void KillBusyDecodeWorker() {
    for (const char* worker : kDecodeWorkers) {
      // The metric of a worker that was killed earlier is absent.
      if (Metric(worker, "baton_worker_sequences_running") <= 0) continue;
      return process(worker).Signal(SIGKILL);
    }
    FAIL() << "no decode worker computes the answer";
  }

  // Compares two answers with the same answers while decode workers are killed: one near the
  // beginning, another one near the end.
  void ExpectSameAnswers(Members members, const std::string& tool, const std::string& finish) {
    const std::string chat_template =
        std::string(BATON_TEST_DATA) + "/text/templates/qwen25_style.jinja";
    StartCluster(1, 3, {}, {QuotedOverride("chat_template", chat_template)});
    StreamedAnswer expected[2];
    for (int seed = 0; seed < 2; ++seed) {
      expected[seed] = Stream(Body(members, seed), 0, [] {});
      EXPECT_EQ(expected[seed].tool, tool);
      EXPECT_EQ(expected[seed].finish, finish);
      EXPECT_GT(expected[seed].fragments, 20);
      EXPECT_GE(Json::parse(expected[seed].json).at("text").get<std::string>().size(), 200u);
    }
    EXPECT_NE(expected[0].json, expected[1].json);
    const size_t moments[] = {40, 230};
    for (int seed = 0; seed < 2; ++seed) {
      const StreamedAnswer answer =
          Stream(Body(members, seed), moments[seed], [&] { KillBusyDecodeWorker(); });
      EXPECT_EQ(answer.json, expected[seed].json);
      EXPECT_EQ(answer.tool, expected[seed].tool);
      EXPECT_EQ(answer.finish, expected[seed].finish);
    }
    EXPECT_GE(Metric("router", "baton_router_retries_total"), 2);
    ExpectNoLeaks({"prefill-0"});
  }
};

TEST_F(ConstrainedFaultTest, TheArgumentsOfAStreamedCallSurviveAKilledDecodeWorker) {
  ExpectSameAnswers(&ByTool, "describe", "tool_calls");
}

TEST_F(ConstrainedFaultTest, AnAnswerByAJsonSchemaSurvivesAKilledDecodeWorker) {
  ExpectSameAnswers(&ByResponseFormat, "", "stop");
}

}  // namespace
}  // namespace baton
