#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/rpc/channel.h"
#include "common/text/byte_alphabet.h"
#include "common/text/utf8.h"
#include "decode_worker/decode_service.h"
#include "prefill_worker/prefill_service.h"
#include "proto/generation.grpc.pb.h"
#include "router/router_service.h"
#include "tests/integration/process.h"

// A router, two prefill and two decode workers in one process, on tiny real models, against the
// same engine serving whole requests by itself: the tokens must be the same.
namespace baton {
namespace {

constexpr auto kLong = std::chrono::seconds(120);

// A copy of a tiny model with a tokenizer: one token a byte.
class ModelFolder final {
 public:
  explicit ModelFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("baton_cluster_" + name + "_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
    const std::filesystem::path source = std::filesystem::path(BATON_TEST_DATA) / "tiny" / name;
    for (const auto& file : std::filesystem::directory_iterator(source)) {
      std::filesystem::copy_file(file.path(),
                                 path_ / file.path().filename(),
                                 std::filesystem::copy_options::overwrite_existing);
    }
    nlohmann::json tokenizer = {{"version", "1.0"},
                                {"added_tokens", nlohmann::json::array()},
                                {"normalizer", nullptr},
                                {"pre_tokenizer",
                                 {{"type", "ByteLevel"},
                                  {"add_prefix_space", false},
                                  {"trim_offsets", true},
                                  {"use_regex", true}}},
                                {"post_processor", nullptr},
                                {"decoder",
                                 {{"type", "ByteLevel"},
                                  {"add_prefix_space", true},
                                  {"trim_offsets", true},
                                  {"use_regex", true}}},
                                {"model", {{"type", "BPE"}, {"vocab", nlohmann::json::object()}}}};
    tokenizer["model"]["merges"] = nlohmann::json::array();
    for (int byte = 0; byte < 256; ++byte) {
      std::string piece;
      AppendUtf8(piece, PrintableOfByte(static_cast<uint8_t>(byte)));
      tokenizer["model"]["vocab"][piece] = byte;
    }
    std::ofstream(path_ / "tokenizer.json") << tokenizer.dump();
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};

v1::GenerateRequest MakeRequest(int number) {
  v1::GenerateRequest request;
  for (int i = 0; i < 1 + number * 37 % 200; ++i) {
    request.mutable_tokens()->add_ids((i * (number % 3 + 1) + number / 3) % 250);
  }
  request.set_max_tokens(4 + number * 5 % 28);
  request.set_ignore_eos(true);
  request.set_echo_tokens(true);
  request.mutable_sampling()->set_temperature(number % 2 == 0 ? 0.0f : 1.0f);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(number));
  if (number % 4 == 1) request.mutable_sampling()->set_top_p(0.9f);
  if (number % 5 == 2) request.mutable_sampling()->set_repetition_penalty(1.3f);
  request.set_samples(number % 7 == 3 ? 3 : 1);
  return request;
}

struct Answer {
  std::map<int, std::vector<int>> tokens;  // by sample
  v1::Timings timings;
  grpc::Status status;
};

class Cluster final {
 public:
  Cluster(const std::string& model,
          int prefill,
          int decode,
          std::vector<std::string> worker_overrides)
      : router_(&router::StartRouter,
                {"model.path=" + model, "heartbeat_ms=50", "model.name=tiny"}) {
    worker_overrides.insert(worker_overrides.end(),
                            {"model.path=" + model,
                             "engine.threads=1",
                             "routers=[" + router_.address("workers") + "]"});
    for (int i = 0; i < prefill; ++i) {
      workers_.push_back(std::make_unique<InProcess>(&StartPrefillWorker, worker_overrides));
    }
    for (int i = 0; i < decode; ++i) {
      workers_.push_back(std::make_unique<InProcess>(&StartDecodeWorker, worker_overrides));
    }
    stub_ = v1::Generation::NewStub(MakeChannel(router_.address("grpc")));
    Await([this] { return router_.service().Ready().ok(); });
    for (const auto& worker : workers_) Await([&] { return worker->service().Ready().ok(); });
  }

  Answer Ask(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kLong);
    const auto stream = stub_->Generate(&context, request);
    Answer answer;
    v1::GenerateResponse response;
    while (stream->Read(&response)) {
      auto& tokens = answer.tokens[response.sample()];
      tokens.insert(tokens.end(), response.token_ids().begin(), response.token_ids().end());
      if (response.has_timings()) answer.timings = response.timings();
      if (response.has_error()) ADD_FAILURE() << response.error().message();
    }
    answer.status = stream->Finish();
    return answer;
  }

  // Asks all at once and ends some of them early when `cancel`.
  std::vector<Answer> AskAll(int count) {
    std::vector<Answer> answers(static_cast<size_t>(count));
    std::vector<std::jthread> clients;
    for (int i = 0; i < count; ++i) {
      clients.emplace_back([&, i] { answers[static_cast<size_t>(i)] = Ask(MakeRequest(i)); });
    }
    clients.clear();
    return answers;
  }

  void ExpectNoLeaks() {
    for (const auto& worker : workers_) {
      Await([&] { return worker->Metric("baton_kv_cache_utilization") == 0; });
      EXPECT_EQ(worker->Metric("baton_kv_leaked_blocks"), 0);
      EXPECT_EQ(worker->Metric("baton_requests_running"), 0);
      EXPECT_EQ(worker->Metric("baton_requests_waiting"), 0);
    }
  }

  double Sum(const std::string& metric) {
    double sum = 0;
    for (const auto& worker : workers_) sum += worker->Metric(metric);
    return sum;
  }

 private:
  static void Await(const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + kLong;
    while (!condition() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(condition());
  }

  InProcess router_;
  std::vector<std::unique_ptr<InProcess>> workers_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

void ExpectSame(const std::vector<Answer>& found, const std::vector<Answer>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(wanted[i].status.ok()) << wanted[i].status.error_message();
    EXPECT_TRUE(found[i].status.ok()) << found[i].status.error_message();
    EXPECT_EQ(found[i].tokens, wanted[i].tokens) << "request " << i;
  }
}

constexpr int kRequests = 20;

class RouterCluster : public ::testing::TestWithParam<const char*> {};

TEST_P(RouterCluster, DisaggregatedEqualsUnified) {
  const ModelFolder model(GetParam());
  std::vector<Answer> unified;
  {
    Cluster alone(model.path(), 0, 1, {});
    unified = alone.AskAll(kRequests);
    EXPECT_TRUE(unified[0].timings.transport().empty());
    alone.ExpectNoLeaks();
  }
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {"transfer.transports=[shm]"},
           {"transfer.transports=[tcp]", "engine.max_step_tokens=16"},
           {"engine.max_step_tokens=50", "engine.kv_blocks=40"},  // few blocks: preemption
           {"engine.max_step_tokens=8", "engine.prefix_cache=false"}}) {
    SCOPED_TRACE(overrides.front());
    Cluster cluster(model.path(), 2, 2, overrides);
    const std::vector<Answer> first = cluster.AskAll(kRequests);
    ExpectSame(first, unified);
    EXPECT_FALSE(first[2].timings.transport().empty()) << "nothing was handed over";
    ExpectSame(cluster.AskAll(kRequests), unified);  // now with prefix hits
    cluster.ExpectNoLeaks();
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         RouterCluster,
                         ::testing::Values("llama_gqa", "mistral_window", "qwen3_moe"));

}  // namespace
}  // namespace baton
