#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decode_worker/decode_service.h"
#include "prefill_worker/prefill_service.h"
#include "tests/fakes/fake_router.h"
#include "tests/integration/process.h"
#include "tests/support/raw_http.h"

// What others find of a worker at the moment that it joins.
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
    EXPECT_NE(join.shape_low(), 0u);
    EXPECT_NE(join.fingerprint_low(), 0u);
  }
}

TEST(WorkerStart, AWildcardIsNotToldToOthers) {
  FakeRouter router;
  config::WorkerConfig config;
  ConfigSources sources;
  sources.overrides = Settings(router, "w");
  sources.overrides.insert(sources.overrides.end(),
                           {"kv_listen=0.0.0.0:0", "kv_advertise=127.0.0.1"});
  ASSERT_TRUE(LoadConfig(sources, config).ok());
  MetricsRegistry metrics;
  SteadyClock clock;
  const auto http = HttpServer::Start({.listen = "0.0.0.0:0"});
  ASSERT_TRUE(http.ok()) << http.status();
  AppContext context{metrics, **http, clock};
  const auto worker = StartDecodeWorker(config, context);
  ASSERT_TRUE(worker.ok()) << worker.status();
  const worker::v1::Join join = router.AwaitJoin("w");
  EXPECT_EQ(join.kv_address().rfind("127.0.0.1:", 0), 0u) << join.kv_address();
  EXPECT_EQ(join.admin_address().rfind("127.0.0.1:", 0), 0u) << join.admin_address();
  (*worker)->Stop();
}

}  // namespace
}  // namespace baton
