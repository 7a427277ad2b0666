#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/decoder_weights.h"
#include "common/model/model_identity.h"
#include "common/model/open_model.h"
#include "common/worker/worker_service.h"
#include "decode_worker/decode_service.h"
#include "kernels/cpu/cpu_backend.h"
#include "prefill_worker/prefill_service.h"
#include "tests/fakes/byte_model.h"
#include "tests/fakes/fake_router.h"
#include "tests/integration/process.h"
#include "tests/support/raw_http.h"

// What a router and other workers observe of a worker when it joins.
namespace baton {
namespace {

std::vector<std::string> Settings(const FakeRouter& router, const std::string& id) {
  return {"model.path=" BATON_TEST_DATA "/tiny/llama_gqa",
          "engine.threads=1",
          "engine.kv_blocks=64",
          "worker_id=" + id,
          "routers=[\"" + router.address() + "\"]"};
}

TEST(WorkerStart, ItsListenersAreThereBeforeItJoins) {
  for (const char* role : {"decode", "prefill"}) {
    FakeRouter router;
    bool looked = false;
    std::vector<std::string> unreachable;
    router.OnJoin([&](const worker::v1::Join& join) {
      looked = true;
      std::vector<std::string> told = {join.admin_address()};
      if (join.can_decode()) told.push_back(join.kv_address());
      for (const std::string& address : told) {
        if (!RawConnection(address).connected()) unreachable.push_back(address);
      }
    });
    const bool decode = role == std::string("decode");
    InProcess worker(decode ? &StartDecodeWorker : &StartPrefillWorker, Settings(router, role));
    const worker::v1::Join join = router.AwaitJoin(role);
    EXPECT_TRUE(looked);
    EXPECT_THAT(unreachable, ::testing::IsEmpty()) << role;
    EXPECT_EQ(join.kv_address().empty(), !decode);
  }
}

TEST(WorkerStart, ItsRolesAreThereBeforeItDials) {
  FakeRouter router;
  config::WorkerConfig config;
  ConfigSources sources;
  sources.overrides = Settings(router, "w");
  ASSERT_TRUE(LoadConfig(sources, config).ok());
  MetricsRegistry metrics;
  SteadyClock clock;
  const auto http = HttpServer::Start({});
  ASSERT_TRUE(http.ok()) << http.status();
  const auto security = ProcessSecurity::Open(config.security(), metrics);
  ASSERT_TRUE(security.ok()) << security.status();
  AppContext context{metrics, **http, clock, **security};
  std::string said;
  const auto service = WorkerService::Start(
      config, context, WorkerKind::kPrefill, [&](const config::WorkerConfig&, Worker& worker) {
        said = std::string(Message(worker.Ready()));
        return std::map<std::string, std::string>();
      });
  ASSERT_TRUE(service.ok()) << service.status();
  EXPECT_EQ(said, "the worker has not started");
  (*service)->Stop();
}

// The worker's Join describes its model. A router that reads the same folder must compute the same
// description.
TEST(WorkerStart, ItSaysWhatItsModelIs) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/llama_gqa");
  const StatusOr<ModelIdentity> expected = IdentifyModel(model.path(), {});
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_NE(expected->tokenizer, Hash128());
  FakeRouter router;
  std::vector<std::string> settings = Settings(router, "w");
  settings.push_back("model.path=" + model.path());
  InProcess worker(&StartDecodeWorker, settings);
  const worker::v1::Join join = router.AwaitJoin("w");
  EXPECT_EQ((Hash128{join.shape_high(), join.shape_low()}), expected->shape);
  EXPECT_EQ((Hash128{join.tokenizer_high(), join.tokenizer_low()}), expected->tokenizer);
  EXPECT_EQ((Hash128{join.fingerprint_high(), join.fingerprint_low()}), expected->fingerprint);
  const auto opened = OpenModel(model.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  CpuDevice device;
  const auto ops = MakeCpuOps(device, {.threads = 1});
  ASSERT_TRUE(ops.ok()) << ops.status();
  const auto loaded = LoadDecoderWeights(opened->spec, *opened->weights, **ops);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ((Hash128{join.weights_high(), join.weights_low()}), loaded->hash);
}

TEST(WorkerDrain, OfARouterFinishesTheService) {
  for (const bool keep : {false, true}) {
    FakeRouter router;
    InProcess worker(&StartDecodeWorker, Settings(router, "w"));
    router.AwaitJoin("w");
    EXPECT_FALSE(worker.service().Finished());
    worker::v1::ToWorker message;
    message.mutable_drain()->set_keep(keep);
    router.Send("w", message);
    router.AwaitLeft("w");
    EXPECT_EQ(worker.service().Finished(), !keep);
  }
}

TEST(WorkerStart, AWildcardIsNotToldToOthers) {
  FakeRouter router;
  config::WorkerConfig config;
  ConfigSources sources;
  sources.overrides = Settings(router, "w");
  sources.overrides.insert(
      sources.overrides.end(),
      {"kv_listen=0.0.0.0:0", "kv_advertise=127.0.0.1", "security.insecure=true"});
  ASSERT_TRUE(LoadConfig(sources, config).ok());
  MetricsRegistry metrics;
  SteadyClock clock;
  const auto http = HttpServer::Start({.listen = "0.0.0.0:0"});
  ASSERT_TRUE(http.ok()) << http.status();
  const auto security = ProcessSecurity::Open(config.security(), metrics);
  ASSERT_TRUE(security.ok()) << security.status();
  AppContext context{metrics, **http, clock, **security};
  const auto worker = StartDecodeWorker(config, context);
  ASSERT_TRUE(worker.ok()) << worker.status();
  const worker::v1::Join join = router.AwaitJoin("w");
  EXPECT_EQ(join.kv_address().rfind("127.0.0.1:", 0), 0u) << join.kv_address();
  EXPECT_EQ(join.admin_address().rfind("127.0.0.1:", 0), 0u) << join.admin_address();
  (*worker)->Stop();
}

}  // namespace
}  // namespace baton
