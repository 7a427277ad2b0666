#include "tests/e2e/host_cluster.h"

#include <signal.h>

namespace baton {
namespace {

std::vector<GenerateCall> Calls() {
  std::vector<GenerateCall> calls;
  for (int i = 0; i < 4; ++i) {
    GenerateCall& call = calls.emplace_back();
    call.temperature = i % 2 == 1 ? 0.8F : 0;
    if (i % 2 == 1) call.seed = 100 + static_cast<uint64_t>(i);
    call.max_tokens = 16;
    call.ignore_eos = true;
  }
  return calls;
}

}  // namespace

std::vector<std::vector<int32_t>> HostClusterTest::Answers() {
  std::vector<std::vector<int32_t>> answers;
  for (GenerateCall& call : Calls()) {
    const int number = static_cast<int>(answers.size());
    call.text = number == 2 ? LongPromptOf(number) : PromptOf(number);
    const GenerateAccount account = Ask(call);
    served_by_ = {account.prefill_worker, account.decode_worker};
    answers.push_back(account.tokens);
  }
  return answers;
}

void HostClusterTest::AddGroup(const HostRanks& place,
                               int tensor,
                               int pipeline,
                               size_t members,
                               std::vector<std::string> settings) {
  for (const std::string& setting :
       {std::string("worker_id=group"),
        std::string("engine.threads=1"),
        std::string("engine.kv_memory_mib=64"),
        // The arenas of the ranks are on other hosts than the peers, where shm does not reach.
        std::string("transfer.require_transport=tcp"),
        fmt::format("engine.tensor_parallel={}", tensor),
        fmt::format("engine.pipeline_parallel={}", pipeline),
        "security.cluster_secret_file=" + cluster().secret_file(),
        fmt::format("routers=[\"{}\"]", cluster().router().addresses.at("workers"))}) {
    settings.push_back(setting);
  }
  auto group = ChildProcess::Start({MpirunCommand(place, settings), ""});
  ASSERT_TRUE(group.ok()) << group.status();
  group_ = *std::move(group);
  const Status joined = cluster().WaitJoined(members, kStartLimit);
  ASSERT_TRUE(joined.ok()) << joined;
}

void HostClusterTest::ExpectGroupDecodes(const std::vector<std::vector<int32_t>>& expected) {
  EXPECT_EQ(RunTool({"drain", "decode-0", "--keep"}).status, 0);
  EXPECT_EQ(Answers(), expected);
  EXPECT_EQ(served_by_.decode, "group");
  EXPECT_EQ(served_by_.prefill, "prefill-0");
  EndGroup();
}

void HostClusterTest::ExpectGroupPrefills(const std::vector<std::vector<int32_t>>& expected) {
  EXPECT_EQ(RunTool({"drain", "prefill-0", "--keep"}).status, 0);
  EXPECT_EQ(Answers(), expected);
  EXPECT_EQ(served_by_.prefill, "group");
  ExpectNoLeaks({"decode-0"});
  EndGroup();
}

void HostClusterTest::EndGroup() {
  group_->Signal(SIGTERM);
  EXPECT_NE(group_->WaitExit(kAnswerLimit), std::optional<int>());
  group_.reset();
}

}  // namespace baton
