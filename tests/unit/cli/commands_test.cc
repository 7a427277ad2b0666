#include "cli/commands.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/cluster_client.h"
#include "cli/generation_client.h"
#include "common/app/version.h"
#include "common/cluster/sampling_fields.h"
#include "common/http/http_server.h"
#include "common/rpc/rpc_server.h"
#include "proto/admin.grpc.pb.h"
#include "proto/worker.grpc.pb.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct ToolResult {
  int status = 0;
  std::string output;
  std::string errors;
};

ToolResult RunTool(std::vector<std::string> words) {
  words.insert(words.begin(), "baton");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  ToolResult result;
  result.status = RunBaton(static_cast<int>(arguments.size()), arguments.data());
  result.output = testing::internal::GetCapturedStdout();
  result.errors = testing::internal::GetCapturedStderr();
  return result;
}

TEST(CommandsTest, TheVersionIsThatOfTheProject) {
  const ToolResult version = RunTool({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.output, fmt::format("baton {}\n", Version()));
}

TEST(CommandsTest, EachSamplingParameterHasAFlag) {
  const std::string help = RunTool({"generate", "--help"}).output;
  for (const SamplingField& field : kSamplingFields) {
    std::string flag = fmt::format("--{}", field.name);
    std::ranges::replace(flag, '_', '-');
    EXPECT_THAT(help, HasSubstr(flag));
  }
}

// --help is CLI11's own, so that it is an independent list of the flags.
TEST(CommandsTest, TheManualAndTheCompletionHaveEachCommandAndFlagOfHelp) {
  const std::string script = RunTool({"--bash-completion"}).output;
  std::string manual = RunTool({"--man-page"}).output;
  for (size_t at = 0; (at = manual.find("\\-", at)) != std::string::npos;) manual.erase(at, 1);
  int flags = 0;
  for (const std::vector<std::string>& command : {std::vector<std::string>{},
                                                  {"up"},
                                                  {"generate"},
                                                  {"chat"},
                                                  {"status"},
                                                  {"drain"},
                                                  {"verify"},
                                                  {"key", "add"},
                                                  {"model"},
                                                  {"model", "inspect"},
                                                  {"model", "check"},
                                                  {"model", "families"}}) {
    std::vector<std::string> words = command;
    words.emplace_back("--help");
    const ToolResult help = RunTool(words);
    ASSERT_EQ(help.status, 0);
    const std::string path = fmt::format(" {}", fmt::join(command, " "));
    const size_t offered = script.find(fmt::format("\"{}\") words=", command.empty() ? "" : path));
    ASSERT_NE(offered, std::string::npos) << path;
    const std::string line = script.substr(offered, script.find('\n', offered) - offered);
    if (!command.empty()) {
      EXPECT_THAT(manual, HasSubstr(fmt::format(".SS baton{}\n", path)));
    }
    std::istringstream lines(help.output);
    for (std::string text; std::getline(lines, text);) {
      const size_t begin = text.find("--");
      // A flag is at the start of its line; "--" in the help text of another flag is not.
      if (begin == std::string::npos || text.find_first_not_of(" -h,") < begin) continue;
      const std::string flag = text.substr(begin, text.find_first_of(" ,:", begin) - begin);
      EXPECT_THAT(manual, HasSubstr(flag + "\\fR"));
      EXPECT_THAT(line, HasSubstr(flag + " "));
      ++flags;
    }
  }
  EXPECT_GT(flags, 40);
}

TEST(CommandsTest, AnUnknownCommandIsNamed) {
  const ToolResult unknown = RunTool({"stauts", "--watch"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.errors,
              AllOf(HasSubstr("\"stauts\" is not a command of baton"), HasSubstr("status")));
  const ToolResult nested = RunTool({"model", "show"});
  EXPECT_EQ(nested.status, 2);
  EXPECT_THAT(nested.errors, HasSubstr("\"show\" is not a command of model"));
  EXPECT_THAT(RunTool({"status", "too", "much"}).errors, HasSubstr("too"));
  EXPECT_THAT(RunTool({}).errors, HasSubstr("subcommand is required"));
}

TEST(CommandsTest, AServerThatCannotBeAnAddressIsWrongUsage) {
  for (const auto& [address, wrong] : std::initializer_list<std::pair<const char*, const char*>>{
           {"localhost", "has no port"},
           {"127.0.0.1:99999", "99999"},
           {"127.0.0.1:0", "port 0"},
           {"http://127.0.0.1:8080", "is a URL"}}) {
    const ToolResult result = RunTool({"status", "--admin", address});
    EXPECT_EQ(result.status, 2) << address;
    EXPECT_THAT(result.errors, AllOf(HasSubstr("--admin"), HasSubstr(wrong))) << address;
    EXPECT_THAT(RunTool({"generate", "x", "--server", address}).errors,
                AllOf(HasSubstr("--server"), HasSubstr(wrong)))
        << address;
  }
}

TEST(CommandsTest, OperatorsCommandsSayThatTheirFlagIsAdmin) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"status", "--server", "127.0.0.1:7080"},
        std::vector<std::string>{"verify", "--server", "127.0.0.1:7080"},
        std::vector<std::string>{"drain", "decode-0", "--server", "127.0.0.1:7080"}}) {
    const ToolResult result = RunTool(words);
    EXPECT_EQ(result.status, 2) << words[0];
    EXPECT_THAT(result.errors, AllOf(HasSubstr("--server"), HasSubstr("--admin host:port")));
  }
  EXPECT_THAT(RunTool({"status", "--help"}).output, Not(HasSubstr("--server")));
}

TEST(CommandsTest, FlagsThatWouldDoNothingAreWrongUsage) {
  EXPECT_THAT(RunTool({"status", "--interval", "5"}).errors, HasSubstr("--watch"));
  EXPECT_THAT(RunTool({"generate", "x", "--raw", "--system", "y"}).errors, HasSubstr("--system"));
  EXPECT_THAT(RunTool({"up", "--start-seconds", "-5"}).errors, HasSubstr("--start-seconds"));
  EXPECT_THAT(RunTool({"up", "--max-tokens", "0"}).errors, HasSubstr("--max-tokens"));
}

// A router's Admin service.
class FakeAdmin final : public admin::v1::Admin::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const admin::v1::GetStatusRequest*,
                                      admin::v1::ClusterStatus* response) override {
    response->set_router_id("r0");
    admin::v1::WorkerStatus& worker = *response->add_workers();
    worker.set_worker_id("d0");
    worker.set_blocks_quarantined(5);
    worker.set_blocks_leaked(2);
    for (const char* name : {"full", "state"}) {
      admin::v1::CacheGroupStatus& group = *worker.add_cache_groups();
      group.set_name(name);
      group.set_layers(3);
      group.set_bytes(5000);
      group.set_blocks_held(7);
    }
    for (int i = 0; two_ready && i < 2; ++i) {
      admin::v1::WorkerStatus& good = *response->add_workers();
      good.set_worker_id(fmt::format("good-{}", i));
      good.set_roles("decode");
      good.set_state("ready");
    }
    admin::v1::RefusedJoin& refused = *response->add_refused_joins();
    refused.set_worker_id("tiny");
    refused.set_address("ipv4:10.0.0.7:4000");
    refused.set_reason("it has another model");
    refused.set_attempts(12);
    return Finish(context);
  }
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const admin::v1::DrainWorkerRequest* request,
                                        admin::v1::DrainWorkerResponse*) override {
    drains.emplace_back(request->worker_id(), request->keep());
    return Finish(context);
  }

  grpc::ServerUnaryReactor* GenerateOn(grpc::CallbackServerContext* context,
                                       const admin::v1::GenerateOnRequest* request,
                                       admin::v1::GenerateOnResponse* response) override {
    prompts.push_back(request->prompt());
    for (int token = 0; token < 5; ++token) {
      const bool wrong = token == 3 && request->decode_worker() == wrong_worker;
      response->add_token_ids(wrong ? 99 : token);
    }
    response->set_finish("length");
    return Finish(context);
  }

  std::vector<std::pair<std::string, bool>> drains;
  std::vector<std::string> prompts;
  std::string wrong_worker;
  bool two_ready = false;  // GetStatus lists two decode workers

 private:
  static grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class OperatorTest : public testing::Test {
 protected:
  void SetUp() override {
    grpc::Service* const services[] = {&admin_};
    server_ = RpcServer::Start("127.0.0.1:0", services).value();
  }
  ToolResult Run(std::vector<std::string> words) {
    words.insert(words.end(), {"--admin", server_->address()});
    return RunTool(std::move(words));
  }

  FakeAdmin admin_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(OperatorTest, TheStatusShowsAlarmsAndRefusedWorkers) {
  const ToolResult result = Run({"status"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("LEAKED 2 QUARANTINED 5"),
                    HasSubstr("d0      state        3       5.0 kB          7"),
                    HasSubstr("tiny     ipv4:10.0.0.7:4000  12"),
                    HasSubstr("it has another model")));
}

TEST_F(OperatorTest, ADrainSaysWhetherTheProcessStays) {
  EXPECT_EQ(Run({"drain", "d0"}).status, 0);
  EXPECT_EQ(Run({"drain", "d1", "--keep"}).status, 0);
  const std::vector<std::pair<std::string, bool>> expected = {{"d0", false}, {"d1", true}};
  EXPECT_EQ(admin_.drains, expected);
}

TEST_F(OperatorTest, VerifyComparesTheTokensOfTwoWorkers) {
  EXPECT_EQ(Run({"verify"}).status, 2) << "no worker is ready";
  admin_.two_ready = true;
  const ToolResult equal = Run({"verify", "one", "two", "three"});
  EXPECT_EQ(equal.status, 0) << equal.errors;
  EXPECT_THAT(admin_.prompts, ElementsAre("one", "one", "two", "two", "three", "three"));
  admin_.wrong_worker = "good-1";
  const ToolResult different = Run({"verify", "one"});
  EXPECT_EQ(different.status, 1);
  EXPECT_THAT(different.output, HasSubstr("request 0, token 3: 3 / 99"));
}

TEST_F(OperatorTest, VerifyReadsPromptsFromAFile) {
  admin_.two_ready = true;
  const std::string path = testing::TempDir() + "/prompts_of_verify";
  std::ofstream(path) << "first\n\nsecond";
  EXPECT_EQ(Run({"verify", "--file", path, "--requests", "3"}).status, 0);
  EXPECT_THAT(admin_.prompts, ElementsAre("first", "first", "second", "second", "first", "first"));
  std::ofstream(path) << "\n";
  const ToolResult empty = Run({"verify", "--file", path});
  EXPECT_EQ(empty.status, 2);
  EXPECT_THAT(empty.errors, HasSubstr("must have one prompt a line"));
  EXPECT_EQ(Run({"verify", "x", "--file", path}).status, 2);
}

// The errors of the commands for a wrong port, each with the flag for the right port.
std::vector<std::pair<std::string, std::string>> SaidOf(const std::string& address) {
  GenerateCall call;
  call.text = "Hello";
  const Status status = ClusterClient(address).GetStatus().status();
  const Status drain = ClusterClient(address).Drain("worker", false);
  const Status answer = GenerationClient(address).Generate(call, [](std::string_view) {}).status();
  const Status model = GenerationClient(address).ModelName().status();
  return {{"--admin", std::string(Message(status))},
          {"--admin", std::string(Message(drain))},
          {"--server", std::string(Message(answer))},
          {"--server", std::string(Message(model))}};
}

TEST(WrongPortTest, AnHttpPortIsNamed) {
  auto http = HttpServer::Start({});
  ASSERT_TRUE(http.ok());
  for (const auto& [flag, said] : SaidOf((*http)->address())) {
    EXPECT_THAT(said,
                AllOf(HasSubstr((*http)->address() + " is an HTTP port"),
                      HasSubstr(flag),
                      Not(HasSubstr("baton up"))));
  }
}

TEST(WrongPortTest, AnotherServiceIsNamed) {
  worker::v1::WorkerLink::CallbackService hub;
  grpc::Service* const services[] = {&hub};
  auto other = RpcServer::Start("127.0.0.1:0", services);
  ASSERT_TRUE(other.ok()) << other.status();
  for (const auto& [flag, said] : SaidOf((*other)->address())) {
    EXPECT_THAT(said,
                AllOf(HasSubstr((*other)->address() + " is a gRPC port, but not"),
                      HasSubstr("another one of its ports"),
                      HasSubstr(flag)));
  }
  (*other)->Shutdown(Duration::zero());
}

TEST(WrongPortTest, NobodyThereIsSaid) {
  for (const auto& [flag, said] : SaidOf("127.0.0.1:1")) {
    EXPECT_THAT(said, AllOf(HasSubstr("no router answers at 127.0.0.1:1"), HasSubstr("baton up")));
  }
}

// The configuration of a small model is enough.
TEST(KernelsCommandTest, ShowsWhatACardWouldRunAndRefuse) {
  const std::string folder = testing::TempDir() + "/model_of_kernels";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << R"({"model_type": "llama",
      "architectures": ["LlamaForCausalLM"], "vocab_size": 1024, "hidden_size": 512,
      "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
      "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 512,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": true})";
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"kernels", "--model", folder});
    return RunTool(std::move(words));
  };
  const ToolResult hopper = run({"--arch", "sm_90"});
  EXPECT_EQ(hopper.status, 0) << hopper.errors;
  EXPECT_THAT(hopper.output,
              AllOf(HasSubstr("sm_90: 132 SMs"), HasSubstr("gemm/gemv: the fastest")));
  const ToolResult older = run({"--arch", "sm_80", "--deterministic"});
  EXPECT_EQ(older.status, 0) << older.errors;
  EXPECT_THAT(older.output, HasSubstr("not gemm/sequential: needs sm_90a, and this is sm_80"));
  const ToolResult fp8 = run({"--arch", "sm_86", "--weights", "fp8", "--rows", "8"});
  EXPECT_EQ(fp8.status, 1);
  EXPECT_THAT(fp8.errors,
              AllOf(HasSubstr("no kernel computes GEMM of qkv, 1536 × 512 in fp8 on sm_86"),
                    HasSubstr("with --weights auto they are in bf16")));
  EXPECT_THAT(run({"--arch", "sm_75"}).errors, HasSubstr("must be one of sm_80"));
  EXPECT_THAT(run({"--json"}).output, HasSubstr("{\"kernel\":\"cpu/kernels_"));
}

}  // namespace
}  // namespace baton
