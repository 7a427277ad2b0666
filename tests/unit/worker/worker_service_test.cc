#include "common/worker/worker_service.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/worker/transfer_config_wire.h"
#include "tests/fakes/worker_node.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

std::string Told(const std::string& kv_advertise, const std::string& listening) {
  config::WorkerConfig config;
  config.set_kv_advertise(kv_advertise);
  const StatusOr<std::string> address = AdvertisedAddress(config, listening);
  return address.ok() ? *address : std::string(Message(address.status()));
}

TEST(AdvertisedAddress, IsWhatIsConfiguredOrWhereItListens) {
  EXPECT_EQ(Told("", "127.0.0.1:7090"), "127.0.0.1:7090");
  EXPECT_EQ(Told("a-host", "0.0.0.0:7090"), "a-host:7090");
  EXPECT_EQ(Told("a-host:80", "0.0.0.0:7090"), "a-host:80");
  EXPECT_EQ(Told("fd00::7", "[::]:7090"), "[fd00::7]:7090");
  EXPECT_EQ(Told("[fd00::7]", "[::]:7090"), "[fd00::7]:7090");
  EXPECT_EQ(Told("[fd00::7]:80", "[::]:7090"), "[fd00::7]:80");
}

TEST(AdvertisedAddress, NamesWhatIsWrong) {
  for (const char* bad : {"a-host:99999", "a-host:", "a-host:kv", ":7090", "[fd00::7]:99999"}) {
    EXPECT_THAT(Told(bad, "0.0.0.0:7090"), HasSubstr("kv_advertise: address '")) << bad;
  }
}

TEST(TransferOptions, TcpListensOnItsOwnPortOfTheHostOfKvListen) {
  MetricsRegistry metrics;
  SteadyClock clock;
  FakeExecutor executor({.blocks = 256});
  WorkerOptions options;
  options.id = WorkerId("decode");
  const auto worker = Worker::Create(std::move(options), executor, metrics, clock);
  ASSERT_TRUE(worker.ok()) << worker.status();
  config::WorkerConfig config;
  config.set_kv_listen("[::1]:7090");
  auto transfer = TransferOptionsOf(config, **worker);
  ASSERT_TRUE(transfer.ok()) << transfer.status();
  EXPECT_EQ(transfer->transport.listen_address, "[::1]:0");
  config.mutable_transfer()->set_tcp_port(7091);
  transfer = TransferOptionsOf(config, **worker);
  ASSERT_TRUE(transfer.ok()) << transfer.status();
  EXPECT_EQ(transfer->transport.listen_address, "[::1]:7091");
  for (const char* address : {"10.0.0.7", "10.0.0.7:80", "fd00::7", "[fd00::7]:80"}) {
    config.set_kv_advertise(address);
    EXPECT_TRUE(TransferOptionsOf(config, **worker).ok()) << address;
  }
  config.set_kv_advertise("a-host:80");
  EXPECT_THAT(std::string(Message(TransferOptionsOf(config, **worker).status())),
              HasSubstr("kv_advertise has the host 'a-host'; it must be an IP address"));
  config.mutable_transfer()->add_transports("shm");
  EXPECT_TRUE(TransferOptionsOf(config, **worker).ok());
}

TEST(ReceiveRate, IsMeasuredOnlyForHostMemoryWithoutASetting) {
  config::WorkerConfig config;
  EXPECT_EQ(config.transfer().max_receive_gigabytes_per_second(), 0)
      << "the loader fills in defaults";
  EXPECT_EQ(ReceiveRateWhileComputing(config, MemoryKind::kHost), 0u);
  config.mutable_transfer()->set_max_receive_gigabytes_per_second(-1);
  EXPECT_EQ(ReceiveRateWhileComputing(config, MemoryKind::kCuda), 0u);
  // 1.2 % of the rates of a slow emulated machine and of a large server.
  const uint64_t rate = ReceiveRateWhileComputing(config, MemoryKind::kHost);
  EXPECT_GE(rate, 100'000'000u);
  EXPECT_LT(rate, 50'000'000'000u);
  config.mutable_transfer()->set_max_receive_gigabytes_per_second(2.5);
  EXPECT_EQ(ReceiveRateWhileComputing(config, MemoryKind::kHost), 0u);
}

TEST(ReceiveRate, IsAtLeastTheFloorWhenOtherLoadDisturbsTheMeasurement) {
  config::WorkerConfig config;
  config.mutable_transfer()->set_max_receive_gigabytes_per_second(-1);
  const auto rate_of = [&](double measured) {
    return ReceiveRateWhileComputing(config, MemoryKind::kHost, [&](int) { return measured; });
  };
  for (const double measured : {0.0, 0.3e9, 8.3e9}) EXPECT_EQ(rate_of(measured), 100'000'000u);
  EXPECT_NEAR(static_cast<double>(rate_of(25e9)), 0.298e9, 1e6);
}

}  // namespace
}  // namespace baton
