#include <signal.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/e2e/cluster.h"
#include "tests/support/raw_http.h"

// Embeddings and scores of real processes, compared with those of an independent implementation.
namespace baton {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class EmbeddingsEndToEnd : public ClusterTest {
 protected:
  std::string Model() const override {
    return std::string(BATON_TEST_DATA) + "/tiny/qwen3_embedding";
  }

  EmbeddingsEndToEnd() {
    std::ifstream file(Model() + "/golden.json");
    golden_ = Json::parse(file);
  }

  // KV in float32, as in the reference.
  void Start(int prefill, int decode, std::vector<std::string> worker_set = {}) {
    worker_set.emplace_back("engine.kv_type=f32");
    StartCluster(prefill, decode, worker_set, {"rerank_format=qwen3"});
  }

  HttpAnswer Post(const std::string& path, const Json& body) {
    return HttpSend(http("router"), PostRequest(path, body.dump()), kAnswerLimit);
  }

  Json Texts() const {
    Json texts = Json::array();
    for (const Json& one : golden_["embeddings"]) texts.push_back(one["text"]);
    return texts;
  }

  // Embeddings are the normalised states of the last tokens.
  void ExpectGolden(const Json& answer, size_t dimensions = 64) {
    ASSERT_EQ(answer["data"].size(), golden_["embeddings"].size());
    int64_t tokens = 0;
    for (size_t i = 0; i < answer["data"].size(); ++i) {
      const auto got = answer["data"][i]["embedding"].get<std::vector<double>>();
      const auto want = golden_["embeddings"][i]["last"].get<std::vector<double>>();
      tokens += static_cast<int64_t>(golden_["embeddings"][i]["tokens"].size());
      ASSERT_EQ(got.size(), dimensions);
      double length = 0;
      for (size_t n = 0; n < dimensions; ++n) length += want[n] * want[n];
      for (size_t n = 0; n < dimensions; ++n) {
        EXPECT_NEAR(got[n], want[n] / std::sqrt(length), 2e-6) << i << " number " << n;
      }
    }
    EXPECT_EQ(answer["usage"], Json({{"prompt_tokens", tokens}, {"total_tokens", tokens}}));
  }

  void ExpectScores() {
    for (const Json& one : golden_["scores"]) {
      Json body = {{"text_1", one["query"]}, {"text_2", one["document"]}};
      if (one["instruction"] != "") body["instruction"] = one["instruction"];
      const HttpAnswer answer = Post("/v1/score", body);
      ASSERT_EQ(answer.status, 200) << answer.body;
      const Json scores = Json::parse(answer.body);
      EXPECT_NEAR(scores["data"][0]["score"].get<double>(), one["score"].get<double>(), 1e-5);
      EXPECT_EQ(scores["usage"]["prompt_tokens"], one["tokens"].size());
    }
  }

  // Many long inputs, which take seconds. No two begin alike.
  static Json LongRequest() {
    Json inputs = Json::array();
    for (int i = 0; i < 120; ++i) {
      Json tokens = Json::array();
      for (int t = 0; t < 1500; ++t) tokens.push_back((i * 37 + t * 11 + t / 97 * i) % 500);
      inputs.push_back(std::move(tokens));
    }
    return {{"input", std::move(inputs)}};
  }

  bool AwaitRunning(const std::string& worker) {
    for (int i = 0; i < 2000; ++i) {
      if (Metric(worker, "baton_worker_sequences_running") > 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  Json golden_;
};

TEST_F(EmbeddingsEndToEnd, PrefillWorkersServeThemAlone) {
  Start(1, 1);
  const HttpAnswer answer = Post("/v1/embeddings", {{"input", Texts()}, {"model", "tiny"}});
  ASSERT_EQ(answer.status, 404) << answer.body;
  const HttpAnswer named = Post("/v1/embeddings", {{"input", Texts()}});
  ASSERT_EQ(named.status, 200) << named.body;
  ExpectGolden(Json::parse(named.body));
  EXPECT_EQ(Post("/v1/embeddings", {{"input", Texts()}}).body, named.body);  // from the cache
  const HttpAnswer cut = Post("/v1/embeddings", {{"input", Texts()}, {"dimensions", 10}});
  ExpectGolden(Json::parse(cut.body), 10);
  ExpectScores();
  EXPECT_GT(Metric("prefill-0", "baton_prompt_tokens_computed_total"), 0);
  EXPECT_EQ(Metric("decode-0", "baton_prompt_tokens_computed_total"), 0);
  EXPECT_EQ(Metric("prefill-0", "baton_output_tokens_total"), 10);  // two labels of each pair
  ExpectNoLeaks({"prefill-0", "decode-0"});
}

TEST_F(EmbeddingsEndToEnd, SoDoUnifiedWorkersAndGroups) {
  Start(0, 1, {"unified=true"});
  const HttpAnswer unified = Post("/v1/embeddings", {{"input", Texts()}});
  ASSERT_EQ(unified.status, 200) << unified.body;
  ExpectGolden(Json::parse(unified.body));
  ExpectScores();
  SetRanks({.tensor_parallel = 2}, {});
  Start(1, 1);
  EXPECT_EQ(Post("/v1/embeddings", {{"input", Texts()}}).body, unified.body);
  SetRanks({.pipeline_parallel = 2}, {});
  Start(1, 1);
  EXPECT_EQ(Post("/v1/embeddings", {{"input", Texts()}}).body, unified.body);
  ExpectScores();
}

TEST_F(EmbeddingsEndToEnd, AClusterOfDecodeWorkersSaysSo) {
  Start(0, 1);
  const HttpAnswer answer = Post("/v1/embeddings", {{"input", "a"}});
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("computed by prefill workers, and this router has none"));
  EXPECT_THAT(answer.head, HasSubstr("Retry-After"));
}

TEST_F(EmbeddingsEndToEnd, DocumentsAreRankedAndCompared) {
  Start(1, 1);
  const Json ask = {
      {"query", golden_["scores"][0]["query"]},
      {"documents",
       {golden_["scores"][1]["document"], {{"text", golden_["scores"][0]["document"]}}}},
      {"top_n", 1}};
  const HttpAnswer ranked = Post("/v1/rerank", ask);
  ASSERT_EQ(ranked.status, 200) << ranked.body;
  const Json results = Json::parse(ranked.body)["results"];
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0]["index"], 1);
  EXPECT_NEAR(results[0]["relevance_score"].get<double>(),
              golden_["scores"][0]["score"].get<double>(),
              1e-5);
  StartCluster(1, 1);  // without a format of the prompt, embeddings are compared
  const HttpAnswer compared =
      Post("/v1/score", {{"text_1", "The sky is blue."}, {"text_2", {"The sky is blue.", "a"}}});
  ASSERT_EQ(compared.status, 200) << compared.body;
  const Json scores = Json::parse(compared.body)["data"];
  EXPECT_NEAR(scores[0]["score"].get<double>(), 1, 1e-6);
  EXPECT_LT(scores[1]["score"].get<double>(), 0.99);
}

TEST_F(EmbeddingsEndToEnd, InputsThatCannotBeComputedAreNamed) {
  Start(1, 1);
  const Json tokens(std::vector<int>(2048, 1));
  HttpAnswer answer = Post("/v1/embeddings", {{"input", Json::array({"a", tokens})}});
  EXPECT_EQ(answer.status, 400);
  Json error = Json::parse(answer.body)["error"];
  EXPECT_EQ(error["param"], "input[1]");
  EXPECT_EQ(error["code"], "context_length_exceeded");
  answer = Post("/v1/embeddings", {{"input", {1, 512}}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(Json::parse(answer.body)["error"]["param"], "input[1]");
  answer = Post("/v1/embeddings", {{"input", std::string(1 << 20, 'a')}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(Json::parse(answer.body)["error"]["param"], "input");
  Json late = LongRequest();
  late["timeout_ms"] = 300;
  answer = Post("/v1/embeddings", late);
  EXPECT_EQ(answer.status, 504) << answer.body.substr(0, 300);
  ASSERT_TRUE(WaitMetric("prefill-0", "baton_worker_sequences_running", 0));
  ExpectNoLeaks({"prefill-0"});
}

TEST_F(EmbeddingsEndToEnd, AClientThatLeavesEndsItsRequest) {
  Start(1, 1);
  {
    RawConnection client(http("router"));
    ASSERT_TRUE(client.Send(PostRequest("/v1/embeddings", LongRequest().dump())));
    ASSERT_TRUE(AwaitRunning("prefill-0"));
  }
  ASSERT_TRUE(WaitMetric("prefill-0", "baton_worker_sequences_running", 0));
  EXPECT_LT(Metric("prefill-0", "baton_prompt_tokens_computed_total"), 120 * 1500);
  ExpectNoLeaks({"prefill-0"});
}

TEST_F(EmbeddingsEndToEnd, AnotherWorkerTakesOverWhatAKilledOneHad) {
  Start(2, 1);
  const HttpAnswer want = Post("/v1/embeddings", LongRequest());
  ASSERT_EQ(want.status, 200) << want.body.substr(0, 300);
  ASSERT_EQ(HttpSend(http("router"), PostRequest("/reset_prefix_cache", "{}")).status, 200);
  auto answer =
      std::async(std::launch::async, [&] { return Post("/v1/embeddings", LongRequest()); });
  ASSERT_TRUE(AwaitRunning("prefill-0"));
  process("prefill-0").Signal(SIGKILL);
  const HttpAnswer got = answer.get();
  EXPECT_EQ(got.status, 200) << got.body.substr(0, 300);
  EXPECT_TRUE(got.body == want.body);
  ExpectNoLeaks({"prefill-1"});
}

TEST_F(EmbeddingsEndToEnd, WithoutAnotherWorkerAKilledOneIsAnError) {
  Start(1, 1);
  auto answer =
      std::async(std::launch::async, [&] { return Post("/v1/embeddings", LongRequest()); });
  ASSERT_TRUE(AwaitRunning("prefill-0"));
  process("prefill-0").Signal(SIGKILL);
  ASSERT_EQ(answer.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  const HttpAnswer got = answer.get();
  EXPECT_EQ(got.status, 503);
  EXPECT_THAT(got.body, HasSubstr("prefill workers"));
}

}  // namespace
}  // namespace baton
