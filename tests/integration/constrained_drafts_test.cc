#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/byte_model.h"
#include "tests/integration/http_api.h"
#include "tests/integration/router_cluster.h"

// Constrained answers of clusters whose workers verify drafts: bodies and streams are those of a
// worker that has none.
namespace baton {
namespace {

const std::string kPath = "/v1/completions";
const std::string kArena = "engine.kv_memory_mib=16";
const std::string kDrafts = "engine.lookup_drafts=5";

Json Schema(const std::string& text) {
  return {{"json", Json::parse(text)}};
}

// Answers of a small model repeat themselves. Stop strings end within values and within names, and
// `max_tokens` anywhere.
std::vector<Json> Requests() {
  const Json people = Schema(R"({"type": "array", "minItems": 3, "items": {"type": "object",
      "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
      "required": ["name", "age"], "additionalProperties": false}})");
  const Json choice = {{"choice", {"the first choice", "the first choices", "another"}}};
  const Json pattern = {{"regex", "(abcab|abd){4,30}x?"}};
  const Json rules = {{"grammar", "root ::= (\"one two three, \" | \"one two four, \")+ \"end\""}};
  std::vector<Json> requests;
  for (const Json& grammar : {people, choice, pattern, rules}) {
    for (int variant = 0; variant < 5; ++variant) {
      Json request = {{"prompt", "one two four, one two three, [{\"name\": \"ab\", \"age\": 1"},
                      {"structured_outputs", grammar},
                      {"temperature", variant % 2 == 0 ? 0.0 : 1.0},
                      {"seed", 7 + variant},
                      {"max_tokens", 60 + 23 * variant},
                      {"logprobs", 1},
                      {"n", variant == 3 ? 2 : 1}};
      if (variant == 1) request["stop"] = {"e\"", "three, one", "abda", "choice"};
      if (variant == 2) request["frequency_penalty"] = 0.3;
      // Such a token is part of no other output, so no word of the grammars may have it.
      if (variant == 4) request["stop_token_ids"] = {'q', '2'};
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

struct Shown {
  std::string text;
  Json finish_reason;
  Json tokens;
  Json logprobs;

  bool operator==(const Shown&) const = default;
};

std::vector<Shown> BodyOf(Cluster& cluster, const Json& request) {
  const HttpAnswer answer =
      HttpSend(cluster.router().http(), PostRequest(kPath, request.dump()), kLong);
  EXPECT_EQ(answer.status, 200) << answer.body << " to " << request;
  if (answer.status != 200) return {};
  std::vector<Shown> shown;
  const Json body = Json::parse(answer.body);
  for (const Json& choice : body["choices"]) {
    shown.push_back({choice["text"],
                     choice["finish_reason"],
                     choice["logprobs"]["tokens"],
                     choice["logprobs"]["token_logprobs"]});
  }
  return shown;
}

std::vector<Shown> StreamOf(Cluster& cluster, Json request) {
  request["stream"] = true;
  const HttpAnswer answer =
      HttpSend(cluster.router().http(), PostRequest(kPath, request.dump()), kLong);
  EXPECT_EQ(answer.status, 200) << answer.body;
  std::vector<Shown> shown(request["n"].get<size_t>(), {"", nullptr, Json::array(), Json::array()});
  for (const Json& event : EventsOf(answer.body)) {
    for (const Json& choice : event["choices"]) {
      Shown& sample = shown[choice["index"]];
      EXPECT_TRUE(sample.finish_reason.is_null()) << "an event after the end: " << choice;
      sample.text += choice["text"].get<std::string>();
      sample.finish_reason = choice["finish_reason"];
      if (choice["logprobs"].is_null()) continue;
      for (const Json& token : choice["logprobs"]["tokens"]) sample.tokens.push_back(token);
      for (const Json& one : choice["logprobs"]["token_logprobs"]) sample.logprobs.push_back(one);
    }
  }
  return shown;
}

std::vector<std::vector<Shown>> AskAll(Cluster& cluster, const std::vector<Json>& requests) {
  std::vector<std::vector<Shown>> answers(requests.size());
  std::vector<std::jthread> clients;
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.emplace_back([&, i] { answers[i] = BodyOf(cluster, requests[i]); });
  }
  clients.clear();
  return answers;
}

void ExpectEqual(const std::vector<std::vector<Shown>>& found,
                 const std::vector<std::vector<Shown>>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(found[i].size(), wanted[i].size()) << i;
    for (size_t sample = 0; sample < wanted[i].size(); ++sample) {
      EXPECT_EQ(found[i][sample].text, wanted[i][sample].text) << i;
      EXPECT_TRUE(found[i][sample] == wanted[i][sample]) << i;
    }
  }
}

class ConstrainedDrafts : public ::testing::TestWithParam<const char*> {};

TEST_P(ConstrainedDrafts, BodiesAndStreamsAreThoseOfPlainDecoding) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/" + GetParam());
  const std::vector<Json> requests = Requests();
  std::vector<std::vector<Shown>> plain;
  {
    Cluster alone(model.path(), 0, 1, {.workers = {kArena}});
    plain = AskAll(alone, requests);
    for (const char* reason : {"stop", "length"}) {
      const auto ends = [&](const auto& answer) { return answer[0].finish_reason == reason; };
      EXPECT_GT(std::ranges::count_if(plain, ends), 3) << reason;
    }
  }
  for (const auto& [prefill, decode, arena] : std::vector<std::tuple<int, int, std::string>>{
           {0, 1, kArena}, {1, 2, kArena}, {1, 1, "engine.kv_blocks=60"}}) {
    SCOPED_TRACE(arena + ", prefill workers: " + std::to_string(prefill));
    Cluster cluster(model.path(), prefill, decode, {.workers = {arena, kDrafts}});
    ExpectEqual(AskAll(cluster, requests), plain);
    for (size_t i = 0; i < requests.size(); ++i) {
      ExpectEqual({StreamOf(cluster, requests[i])}, {plain[i]});
    }
    EXPECT_GT(cluster.Sum("baton_drafts_accepted_total"), 100);
    cluster.ExpectNoLeaks();
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         ConstrainedDrafts,
                         ::testing::Values("llama_gqa", "gemma3_text", "qwen3_next"));

}  // namespace
}  // namespace baton
