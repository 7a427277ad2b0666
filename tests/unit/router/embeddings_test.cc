#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/text/chat_template.h"
#include "router/api/embeddings_answer.h"
#include "router/api/embeddings_request.h"
#include "router/api/score_answer.h"
#include "router/api/score_request.h"
#include "router/request_error.h"
#include "router/text/model_text.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::unique_ptr<ModelText> Load(const ModelTextOptions& options = {}) {
  auto text = ModelText::Load(std::string(BATON_TEST_DATA) + "/tiny/qwen3_embedding", options);
  EXPECT_TRUE(text.ok()) << text.status();
  return *std::move(text);
}

PromptResults Embedder() {
  PromptResults results;
  results.pooling = {.pooling = Pooling::kMean, .normalize = true};
  results.embedding_size = 8;
  return results;
}

TEST(EmbeddingsRequestTest, EachFormOfInputBecomesPrompts) {
  EmbeddingForm form;
  const auto read = [&](const char* body) {
    auto request = ReadEmbeddingsRequest(Json::parse(body), Embedder(), form);
    EXPECT_TRUE(request.ok()) << request.status();
    return *std::move(request);
  };
  ApiRequest request = read(R"({"input": "a", "model": "m", "user": "u", "priority": 2})");
  ASSERT_EQ(request.inputs.size(), 1u);
  EXPECT_EQ(std::get<std::string>(request.inputs[0]), "a");
  EXPECT_EQ(request.generation.pooling, Pooling::kMean);
  EXPECT_EQ(request.generation.max_tokens, 1);
  EXPECT_EQ(request.generation.model, "m");
  EXPECT_EQ(request.generation.priority, 2);
  EXPECT_TRUE(form.normalize);
  EXPECT_FALSE(form.base64);
  request = read(R"({"input": ["a", "b"], "encoding_format": "base64", "dimensions": 3})");
  EXPECT_EQ(request.inputs.size(), 2u);
  EXPECT_TRUE(form.base64);
  EXPECT_EQ(form.dimensions, 3);
  request = read(R"({"input": [1, 2]})");
  ASSERT_EQ(request.inputs.size(), 1u);
  EXPECT_THAT(std::get<std::vector<TokenId>>(request.inputs[0]), ElementsAre(1, 2));
  request = read(R"({"input": [[1, 2], [3]], "add_special_tokens": false})");
  EXPECT_EQ(request.inputs.size(), 2u);
  EXPECT_EQ(request.generation.add_special_tokens, false);
}

TEST(EmbeddingsRequestTest, BadRequestsNameTheMember) {
  const auto refused = [](const Json& body, const std::string& member, const std::string& why) {
    EmbeddingForm form;
    const auto request = ReadEmbeddingsRequest(body, Embedder(), form);
    ASSERT_FALSE(request.ok()) << body;
    EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(MemberOf(request.status()), member) << request.status();
    EXPECT_THAT(std::string(request.status().message()), HasSubstr(why));
  };
  refused(Json::parse("{}"), "input", "a string, an array");
  refused(Json::parse(R"({"input": 3})"), "input", "a string, an array");
  refused(Json::parse(R"({"input": ""})"), "input", "empty string");
  refused(Json::parse(R"({"input": []})"), "input", "empty array");
  refused(Json::parse(R"({"input": ["a", ""]})"), "input[1]", "empty string");
  refused(Json::parse(R"({"input": [[]]})"), "input[0]", "empty array");
  refused(Json::parse(R"({"input": ["a", 3]})"), "input[1]", "a string or an array");
  refused(Json::parse(R"({"input": [1, "a"]})"), "input", "an array of token ids");
  refused(Json::parse(R"({"input": "a", "encoding_format": "int8"})"), "encoding_format", "base64");
  refused(Json::parse(R"({"input": "a", "encoding_format": 3})"), "encoding_format", "a string");
  refused(Json::parse(R"({"input": "a", "dimensions": 0})"), "dimensions", "between 1 and 8");
  refused(Json::parse(R"({"input": "a", "dimensions": 9})"), "dimensions", "between 1 and 8");
  refused(Json::parse(R"({"input": "a", "dimensions": "3"})"), "dimensions", "integer");
  refused(Json::parse(R"({"input": "a", "dimension": 3})"), "dimension", "not a known member");
  refused({{"input", std::vector<std::string>(kMaxInputs + 1, "a")}}, "input", "at most 2048");
}

TEST(EmbeddingsRequestTest, AModelWithoutPoolingIsRefused) {
  EmbeddingForm form;
  PromptResults results;
  results.pooling = {.why_not = "has no pooling (no modules.json of sentence-transformers)"};
  const auto request = ReadEmbeddingsRequest(Json{{"input", "a"}}, results, form);
  ASSERT_FALSE(request.ok());
  EXPECT_THAT(std::string(request.status().message()),
              HasSubstr("the model has no pooling (no modules.json of sentence-transformers); the "
                        "router setting embedding_pooling"));
}

TEST(EmbeddingsAnswerTest, VectorsAreCutBeforeTheyAreNormalised) {
  const std::vector<float> pooled = {3, -4, 12};
  EXPECT_THAT(EmbeddingOf(pooled, {}), ElementsAre(3, -4, 12));
  EXPECT_THAT(EmbeddingOf(pooled, {.dimensions = 2}), ElementsAre(3, -4));
  EXPECT_THAT(EmbeddingOf(pooled, {.normalize = true, .dimensions = 2}), ElementsAre(0.6f, -0.8f));
  EXPECT_THAT(EmbeddingOf(pooled, {.normalize = true}),
              ElementsAre(3.0f / 13, -4.0f / 13, 12.0f / 13));
  EXPECT_THAT(EmbeddingOf(std::vector<float>{0, 0}, {.normalize = true}), ElementsAre(0, 0));
}

TEST(EmbeddingsAnswerTest, BothEncodingsReadBackTheSame) {
  const std::vector<float> vector = {0.1f, -1e-20f, 3.4e38f, 0, 16777216, 1};
  const std::vector<ApiChoice> choices = {{.pooled = {1}}, {.pooled = vector}};
  GenerationEnd end;
  end.prompt_tokens = 7;
  EmbeddingsAnswer floats("a \"name\"", {});
  const Json body = Json::parse(floats.Body(choices, end));
  EXPECT_EQ(body["object"], "list");
  EXPECT_EQ(body["model"], "a \"name\"");
  EXPECT_EQ(body["usage"], Json({{"prompt_tokens", 7}, {"total_tokens", 7}}));
  EXPECT_EQ(body["data"][1]["index"], 1);
  EXPECT_EQ(body["data"][1]["object"], "embedding");
  EXPECT_EQ(body["data"][1]["embedding"].get<std::vector<float>>(), vector);
  EmbeddingsAnswer coded("m", {.base64 = true});
  std::string bytes;
  ASSERT_TRUE(absl::Base64Unescape(
      Json::parse(coded.Body(choices, end))["data"][1]["embedding"].get<std::string>(), &bytes));
  std::vector<float> read(bytes.size() / sizeof(float));
  std::memcpy(read.data(), bytes.data(), bytes.size());
  EXPECT_EQ(read, vector);
}

ApiChoice Label(float logprob) {
  ApiChoice choice;
  choice.logprobs.emplace_back().chosen.logprob = logprob;
  return choice;
}

TEST(ScoreTest, AScoreIsTheSoftmaxOfTwoLogits) {
  const std::vector<ApiChoice> choices = {
      Label(-1), Label(-1), Label(-0.5f), Label(-2.5f), Label(-200), Label(-0.1f)};
  const std::vector<float> scores = ScoresOf(choices, {});
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_FLOAT_EQ(scores[0], 0.5f);
  EXPECT_FLOAT_EQ(scores[1], 1 / (1 + std::exp(-2.0f)));
  EXPECT_GE(scores[2], 0);
  EXPECT_LT(scores[2], 1e-30f);
}

TEST(ScoreTest, TheBestDocumentsComeFirst) {
  const std::vector<ApiChoice> choices = {
      Label(-3), Label(-1), Label(-1), Label(-3), Label(-1), Label(-3)};
  GenerationEnd end;
  end.prompt_tokens = 9;
  ScoreAnswer all(ScoreAnswer::Kind::kRerank, {"id", "m", 5}, {.documents = {"a", "b", "c"}});
  const Json body = Json::parse(all.Body(choices, end));
  EXPECT_EQ(body["id"], "id");
  EXPECT_EQ(body["usage"]["total_tokens"], 9);
  std::vector<int> order;
  for (const Json& one : body["results"]) order.push_back(one["index"].get<int>());
  EXPECT_THAT(order, ElementsAre(1, 2, 0));  // equal scores keep their order
  EXPECT_EQ(body["results"][0]["document"]["text"], "b");
  ScoreAnswer top(ScoreAnswer::Kind::kRerank, {"id", "m", 5}, {.top = 1});
  const Json best = Json::parse(top.Body(choices, end))["results"];
  ASSERT_EQ(best.size(), 1u);
  EXPECT_FALSE(best[0].contains("document"));
  ScoreAnswer score(ScoreAnswer::Kind::kScore, {"id", "m", 5}, {});
  const Json data = Json::parse(score.Body(choices, end));
  EXPECT_EQ(data["created"], 5);
  EXPECT_EQ(data["data"][0]["object"], "score");
  EXPECT_LT(data["data"][0]["score"].get<double>(), 0.2);
}

TEST(ScoreTest, EmbeddingsAreComparedByTheirCosine) {
  ScoreForm form;
  const auto request =
      ReadScoreRequest(Json::parse(R"({"text_1": "q", "text_2": ["a", "b"]})"), Embedder(), form);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->inputs.size(), 3u);
  EXPECT_EQ(request->generation.pooling, Pooling::kMean);
  const std::vector<ApiChoice> choices = {
      {.pooled = {3, 4}}, {.pooled = {30, 40}}, {.pooled = {-4, 3}}};
  const std::vector<float> scores = ScoresOf(choices, form);
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_NEAR(scores[0], 1, 1e-6);
  EXPECT_NEAR(scores[1], 0, 1e-6);
}

TEST(ScoreTest, ARerankerIsAskedOncePerPair) {
  const auto text = Load({.rerank = RerankFormat::kQwen3});
  ScoreForm form;
  const auto request = ReadScoreRequest(
      Json::parse(R"({"text_1": ["q", "r"], "text_2": ["a", "b"], "instruction": "i"})"),
      text->results(),
      form);
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_EQ(request->inputs.size(), 2u);
  EXPECT_EQ(request->generation.samples, 2);
  EXPECT_THAT(request->generation.labels, ElementsAre(258, 259));
  const auto& pair = std::get<RerankInput>(request->inputs[1]);
  EXPECT_EQ(pair.query, "r");
  EXPECT_EQ(pair.document, "b");
  EXPECT_EQ(pair.instruction, "i");
}

TEST(ScoreTest, BadRequestsNameTheMember) {
  const auto text = Load({.rerank = RerankFormat::kQwen3});
  const auto refused = [&](bool rerank, const char* body, const std::string& member) {
    ScoreForm form;
    const auto read = rerank ? &ReadRerankRequest : &ReadScoreRequest;
    const auto request = read(Json::parse(body), text->results(), form);
    ASSERT_FALSE(request.ok()) << body;
    EXPECT_EQ(MemberOf(request.status()), member) << request.status();
  };
  refused(false, R"({"text_2": "a"})", "text_1");
  refused(false, R"({"text_1": "a"})", "text_2");
  refused(false, R"({"text_1": "a", "text_2": []})", "text_2");
  refused(false, R"({"text_1": "a", "text_2": ["b", 3]})", "text_2[1]");
  refused(false, R"({"text_1": ["a", "b"], "text_2": ["c"]})", "text_1");
  refused(false, R"({"text_1": "a", "text_2": "b", "top_n": 2})", "top_n");
  refused(true, R"({"documents": ["a"]})", "query");
  refused(true, R"({"query": ["a"], "documents": ["a"]})", "query");
  refused(true, R"({"query": "a"})", "documents");
  refused(true, R"({"query": "a", "documents": "b"})", "documents");
  refused(true, R"({"query": "a", "documents": [{"image": "b"}]})", "documents[0]");
  refused(true, R"({"query": "a", "documents": ["b"], "top_n": -1})", "top_n");
}

TEST(RerankerTest, AModelSaysWhetherItIsOne) {
  const auto plain = Load();
  EXPECT_FALSE(plain->results().reranker.has_value());
  EXPECT_THAT(plain->results().why_no_reranker, HasSubstr("roles query and document"));
  EXPECT_EQ(plain->results().pooling.pooling, Pooling::kLast);
  EXPECT_TRUE(plain->results().pooling.normalize);
  EXPECT_EQ(plain->results().embedding_size, 64);
  const auto none = Load({.pooling = Pooling::kNone});
  ScoreForm form;
  const auto request = ReadRerankRequest(
      Json::parse(R"({"query": "q", "documents": ["d"]})"), none->results(), form);
  ASSERT_FALSE(request.ok());
  EXPECT_THAT(
      std::string(request.status().message()),
      ::testing::AllOf(HasSubstr("is not a reranker"), HasSubstr("embedding_pooling: none")));
}

TEST(RerankerTest, ATemplateWithQueriesAndDocumentsIsOne) {
  const auto text = Load();
  const auto find = [&](const char* source) {
    PromptResults results;
    const std::optional<ChatTemplate> own = ChatTemplate::Parse(source).value();
    EXPECT_TRUE(FindReranker(RerankFormat::kAuto, own, text->tokenizer(), results).ok());
    return results.reranker.has_value();
  };
  EXPECT_TRUE(
      find("{% for m in messages %}{% if m.role in ['query', 'document'] %}"
           "{{ m.content }}{% endif %}{% endfor %}"));
  EXPECT_FALSE(find("{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}"));
  EXPECT_FALSE(
      find("{% for m in messages %}{% if m.role == 'query' or m.role == 'document' %}"
           "x{% endif %}{% endfor %}"));
}

}  // namespace
}  // namespace baton::router
