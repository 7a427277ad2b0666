#include "cli/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/generation_client.h"
#include "cli/local_cluster.h"
#include "cli/reachability.h"
#include "cli/status_table.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(FormatTest, NumbersForPeople) {
  EXPECT_EQ(FormatMillis(0.4), "0.40 ms");
  EXPECT_EQ(FormatMillis(37.12), "37.1 ms");
  EXPECT_EQ(FormatMillis(12345), "12.35 s");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1100000), "1.1 MB");
  EXPECT_EQ(FormatBytes(UINT64_MAX), "18446744.1 TB");
  EXPECT_EQ(FormatDuration(42), "42 s");
  EXPECT_EQ(FormatDuration(600), "10 min");
}

TEST(FormatTest, TablesAlignTheirColumns) {
  EXPECT_EQ(FormatTable({{"A", "LONG"}, {"wide", "x"}}), "A     LONG\nwide  x\n");
  EXPECT_EQ(FormatTable({}), "");
}

TEST(AccountTest, SaysWhereTheTimeWent) {
  GenerateAccount account;
  account.prompt_tokens = 40;
  account.cached_tokens = 16;
  account.generated_tokens = 11;
  account.queue_ms = 0.5;
  account.prefill_ms = 30;
  account.transfer_ms = 0.9;
  account.transfer_bytes = 1100000;
  account.transfer_gigabytes_per_second = 1.25;
  account.transport = "shm";
  account.prefill_worker = "prefill-1";
  account.decode_worker = "decode-0";
  account.ttft_ms = 33;
  account.tpot_ms = 8;
  account.attempts = 2;
  EXPECT_THAT(FormatAccount(account),
              AllOf(HasSubstr("on prefill-1: 40 prompt tokens, 16 of them cached"),
                    HasSubstr("1.1 MB over shm at 1.25 GB/s"),
                    HasSubstr("80.0 ms  on decode-0: 11 tokens"),
                    HasSubstr("(125 tokens/s)"),
                    HasSubstr("attempts")));
  account.transport.clear();
  account.prefill_worker.clear();
  EXPECT_THAT(FormatAccount(account),
              AllOf(HasSubstr("on decode-0: 40 prompt"), HasSubstr("on the same worker")));
}

TEST(StatusTableTest, ShowsReplaysWhenTheyAreOn) {
  ClusterSummary cluster;
  EXPECT_THAT(FormatCluster(cluster), Not(HasSubstr("replays")));
  cluster.replays = {0.05, 30, 2, {{"busy", 4}, {"failed", 0}}, 3, 1};
  EXPECT_THAT(
      FormatCluster(cluster),
      HasSubstr("replays of 5%: 30 equal, 2 different, 1 running, 3 waiting · skipped: 4 busy\n"));
}

TEST(StatusTableTest, ShowsWorkersLoadAndTransfers) {
  ClusterSummary cluster;
  cluster.router = "r0";
  cluster.version = "0.3.0";
  cluster.total = 7;  // includes invalid requests
  cluster.failed = 2;
  EXPECT_THAT(FormatCluster(cluster),
              AllOf(HasSubstr("router r0 0.3.0 · no model yet"),
                    HasSubstr("7 ended, 2 failed"),
                    HasSubstr("no worker has joined")));
  WorkerSummary worker;
  worker.id = "decode-0";
  worker.roles = "decode";
  worker.device = "cuda:1";
  worker.version = "0.2.0";
  worker.state = "ready";
  worker.blocks_total = 100;
  worker.blocks_free = 75;
  worker.transports.push_back({"prefill-0", "tcp", 5000000, 3, 0.75});
  cluster.workers.push_back(worker);
  EXPECT_THAT(FormatCluster(cluster),
              AllOf(HasSubstr("25/100 (25%)"),
                    HasSubstr("decode-0  decode  cuda:1  0.2.0    ready"),
                    HasSubstr("HITS  DRAFTS"),
                    HasSubstr("0%    -"),
                    HasSubstr("prefill-0  tcp   3          5.0 MB  0.75"),
                    Not(HasSubstr("LEAKED"))));
  EXPECT_THAT(FormatCluster(cluster), Not(HasSubstr("deterministic")));
  cluster.workers[0].draft_acceptance = 0.625;
  EXPECT_THAT(FormatCluster(cluster), HasSubstr("0%    62%"));
  cluster.workers[0].deterministic = false;
  EXPECT_THAT(FormatCluster(cluster), HasSubstr("cuda:1 (not deterministic)"));
  cluster.workers[0].blocks_leaked = 2;
  EXPECT_THAT(FormatCluster(cluster), HasSubstr("LEAKED 2"));
  EXPECT_THAT(FormatCluster(cluster), Not(HasSubstr("QUARANTINED")));
  cluster.workers[0].blocks_quarantined = 5;
  EXPECT_THAT(FormatCluster(cluster), HasSubstr("QUARANTINED 5"));
}

TEST(StatusTableTest, ShowsTheRanksOfGroups) {
  ClusterSummary cluster;
  WorkerSummary& worker = cluster.workers.emplace_back();
  worker.id = "decode-0";
  worker.ranks = {{.step_ms = 8, .exchange_ms = {}}};
  EXPECT_THAT(FormatCluster(cluster), Not(HasSubstr("EXCHANGE"))) << "one rank exchanges nothing";
  worker.ranks = {{.step_ms = 8, .exchange_ms = 0.5}, {.step_ms = 7.5, .exchange_ms = {}}};
  EXPECT_THAT(FormatCluster(cluster),
              AllOf(HasSubstr("WORKER    RANK  STEP     EXCHANGE"),
                    HasSubstr("decode-0  0     8.00 ms  0.50 ms"),
                    HasSubstr("decode-0  1     7.50 ms  -")));
}

TEST(StatusTableTest, ShowsTheCacheGroupsOfModelsWithSeveral) {
  ClusterSummary cluster;
  WorkerSummary& worker = cluster.workers.emplace_back();
  worker.id = "decode-0";
  worker.cache_groups = {{.name = "full", .layers = 12, .bytes = 393216, .blocks_held = 63}};
  EXPECT_THAT(FormatCluster(cluster), Not(HasSubstr("CACHE GROUP"))) << "BLOCKS says all";
  worker.cache_groups.push_back(
      {.name = "window of 128", .layers = 12, .bytes = 393216, .blocks_held = 9});
  EXPECT_THAT(FormatCluster(cluster),
              AllOf(HasSubstr("WORKER    CACHE GROUP    LAYERS  BLOCK OR STATE  BLOCKS HELD"),
                    HasSubstr("decode-0  full           12      393.2 kB        63"),
                    HasSubstr("decode-0  window of 128  12      393.2 kB        9")));
}

TEST(StatusTableTest, ShowsEachPairsTransfersAndWhyFasterTransportsAreNotInUse) {
  ClusterSummary cluster;
  EXPECT_THAT(FormatTransfers(cluster), HasSubstr("no KV was transferred"));
  WorkerSummary worker;
  worker.id = "prefill-0";
  worker.transports.push_back({.peer = "decode-0",
                               .transport = "tcp",
                               .bytes = 5000000,
                               .transfers = 3,
                               .gigabytes_per_second = 0.75,
                               .not_taken = "shm: another host",
                               .writes = 12,
                               .resent_blocks = 2,
                               .checksum_errors = 1,
                               .fences = 4,
                               .open = 6,
                               .quarantined_blocks = 8,
                               .oldest_ms = 1500});
  cluster.workers.push_back(worker);
  const std::string table = FormatTransfers(cluster);
  EXPECT_THAT(table, HasSubstr("NOT TAKEN"));
  EXPECT_THAT(table, HasSubstr("prefill-0  decode-0  tcp   6"));
  EXPECT_THAT(table, HasSubstr("3          12      5.0 MB  0.75  2       1        4       8"));
  EXPECT_THAT(table, HasSubstr("shm: another host"));

  // The receiving end measures no rate, and without an open hand-off none is the oldest.
  cluster.workers[0].transports[0].gigabytes_per_second = 0;
  cluster.workers[0].transports[0].open = 0;
  EXPECT_THAT(FormatTransfers(cluster),
              AllOf(HasSubstr("tcp   0     -       3"), HasSubstr("5.0 MB  -     2")));
}

TEST(StatusTableTest, ShowsWhoWasNotLetIn) {
  ClusterSummary cluster;
  EXPECT_THAT(FormatCluster(cluster), Not(HasSubstr("REFUSED")));
  cluster.refused.push_back({"tiny", "ipv4:10.0.0.7:4000", "another model", 12, 2500});
  cluster.refused.push_back({"", "ipv4:10.0.0.8:4000", "no join", 1, 100});
  EXPECT_THAT(FormatCluster(cluster),
              AllOf(HasSubstr("REFUSED"),
                    HasSubstr("tiny     ipv4:10.0.0.7:4000  12"),
                    HasSubstr("another model"),
                    HasSubstr("?        ipv4:10.0.0.8:4000  1")));
  cluster.workers.emplace_back();
  EXPECT_THAT(FormatCluster(cluster), HasSubstr("another model"));
}

TEST(StatusTableTest, ShowsClientsAndWhoHadNoProof) {
  ClusterSummary cluster;
  EXPECT_THAT(FormatCluster(cluster), AllOf(Not(HasSubstr("TENANT")), Not(HasSubstr("NO PROOF"))));
  cluster.callers.push_back({"acme/ci", 2, 30, 4000, {{"INTERNAL", 1}, {"RESOURCE_EXHAUSTED", 5}}});
  cluster.refused_peers.push_back({"ToRouter", "10.0.0.7", "another secret", 12, 2500});
  const std::string text = FormatCluster(cluster);
  EXPECT_THAT(text, HasSubstr("TENANT  KEY  RUN  REQUESTS  TOKENS  REFUSED  ERRORS"));
  EXPECT_THAT(text,
              HasSubstr("acme    ci   2    30        4000    5        1 INTERNAL, 5 RESOURCE"));
  EXPECT_THAT(text, HasSubstr("NO PROOF AT"));
  EXPECT_THAT(text, HasSubstr("ToRouter     10.0.0.7  12"));
}

TEST(StatusTableTest, ShowsPairsWhoseHandOffsFail) {
  ClusterSummary cluster;
  cluster.workers.emplace_back();
  EXPECT_THAT(FormatCluster(cluster), Not(HasSubstr("HAND-OFFS")));
  cluster.failing_pairs.push_back({"p0", "d0", 3, "no data channel", 1500, 6500});
  cluster.failing_pairs.push_back({"p1", "d0", 1, "refused", 2500, 0});
  const std::string text = FormatCluster(cluster);
  EXPECT_THAT(text, HasSubstr("HAND-OFFS FAIL FROM  TO  IN A ROW  LAST"));
  EXPECT_THAT(text, ContainsRegex("p0 +d0 +3 +1.* in 6.* no data channel"));
  EXPECT_THAT(text, ContainsRegex("p1 +d0 +1 +2.* now +refused"));
}

TEST(ReachabilityTest, OnlyTransportErrorsAreExplained) {
  const Status refused(StatusCode::kUnavailable, "Connection refused");
  EXPECT_THAT(std::string(Message(ExplainUnreachable(refused, "host:1"))),
              AllOf(HasSubstr("host:1"), HasSubstr("baton up"), HasSubstr("--server host:port")));
  EXPECT_THAT(std::string(Message(ExplainUnreachable(refused, "host:1", kAdminPort))),
              AllOf(HasSubstr("calls \"admin\""), HasSubstr("--admin host:port")));
  const Status own(StatusCode::kUnavailable, "no decode worker has joined");
  EXPECT_EQ(ExplainUnreachable(own, "host:1"), own);
  EXPECT_TRUE(ExplainUnreachable(OkStatus(), "host:1").ok());
}

TEST(LocalClusterTest, OverridesAreQuoted) {
  EXPECT_EQ(QuotedOverride("model.path", "a \"b\": c"), "model.path=\"a \\\"b\\\": c\"");
}

}  // namespace
}  // namespace baton
