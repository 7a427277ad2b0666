#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <google/protobuf/message.h>

#include "common/cluster/wire/command_wire.h"
#include "common/cluster/wire/join_wire.h"
#include "common/cluster/wire/report_wire.h"
#include "tests/unit/cluster/random_values.h"

namespace baton {
namespace {

namespace pb = worker::v1;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Time kNow{std::chrono::hours(5)};
constexpr int kRounds = 200;

// What the other side parses of `message`.
template <class T>
T Sent(const T& message) {
  T out;
  EXPECT_TRUE(out.ParseFromString(message.SerializeAsString()));
  return out;
}

// The fields of a message's type and of its parts that no message seen has set.
class UnsetFields {
 public:
  void See(const google::protobuf::Message& message) {
    const google::protobuf::Descriptor& type = *message.GetDescriptor();
    const google::protobuf::Reflection& reflection = *message.GetReflection();
    for (int i = 0; i < type.field_count(); ++i) known_.insert(type.field(i)->full_name());
    std::vector<const google::protobuf::FieldDescriptor*> set;
    reflection.ListFields(message, &set);
    for (const auto* field : set) {
      set_.insert(field->full_name());
      if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
      if (!field->is_repeated()) See(reflection.GetMessage(message, field));
      for (int i = 0; field->is_repeated() && i < reflection.FieldSize(message, field); ++i) {
        See(reflection.GetRepeatedMessage(message, field, i));
      }
    }
  }
  std::set<std::string> names() const {
    std::set<std::string> out;
    for (const std::string& name : known_) {
      if (!set_.contains(name)) out.insert(name);
    }
    return out;
  }

 private:
  std::set<std::string> known_;
  std::set<std::string> set_;
};

TEST(WireTest, EveryReportSurvives) {
  RandomValues values(1);
  UnsetFields unset;
  for (int i = 0; i < kRounds; ++i) {
    const WorkerReport report = values.Report();
    const pb::ToRouter message = Sent(ReportToProto(report));
    unset.See(message);
    const StatusOr<WorkerReport> back = ReportFromProto(message);
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_EQ(*back, report) << message.DebugString();
  }
  EXPECT_THAT(
      unset.names(),
      testing::ElementsAre("baton.worker.v1.ToRouter.handshake", "baton.worker.v1.ToRouter.join"));
}

TEST(WireTest, EveryJoinSurvives) {
  RandomValues values(2);
  UnsetFields unset;
  for (int i = 0; i < kRounds; ++i) {
    const WorkerInfo info = values.Info();
    const pb::ToRouter message = JoinToProto(info);
    unset.See(message.join());
    const StatusOr<WorkerInfo> back = WorkerInfoFromProto(Sent(message));
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_EQ(*back, info) << message.DebugString();
  }
  EXPECT_THAT(unset.names(), IsEmpty());
}

TEST(WireTest, EveryWelcomeSurvives) {
  RandomValues values(5);
  UnsetFields unset;
  for (int i = 0; i < kRounds; ++i) {
    const Welcome welcome = values.AnyWelcome();
    const pb::ToWorker message = WelcomeToProto(welcome);
    unset.See(message.welcome());
    const StatusOr<Welcome> back = WelcomeFromProto(Sent(message));
    ASSERT_TRUE(back.ok()) << back.status();
    ASSERT_EQ(*back, welcome) << message.DebugString();
  }
  EXPECT_THAT(unset.names(), IsEmpty());
}

TEST(WireTest, AFirstMessageWithoutWelcomeIsRefused) {
  pb::ToWorker message;
  message.set_send_snapshot(true);
  EXPECT_EQ(Message(WelcomeFromProto(message).status()),
            "the first message of a router must carry `welcome`");
  message.mutable_welcome()->set_router_id(std::string(257, 'r'));
  EXPECT_EQ(Message(WelcomeFromProto(message).status()),
            "welcome.router_id has 257 bytes; at most 256 are allowed");
}

TEST(WireTest, EveryCommandSurvives) {
  RandomValues values(3);
  UnsetFields unset;
  for (int i = 0; i < kRounds; ++i) {
    const std::vector<WorkerCommand> commands = values.Commands(kNow);
    const pb::ToWorker message = Sent(CommandsToProto(commands, kNow));
    unset.See(message);
    const DecodedCommands back = CommandsFromProto(message, kNow);
    ASSERT_TRUE(back.refused.empty()) << back.refused.front().status;
    ASSERT_EQ(back.commands, commands) << message.DebugString();
  }
  EXPECT_THAT(unset.names(),
              testing::ElementsAre("baton.worker.v1.ToWorker.handshake",
                                   "baton.worker.v1.ToWorker.welcome"));
}

TEST(WireTest, DeadlinesCrossAsTheTimeThatIsLeft) {
  DispatchCommand dispatch;
  dispatch.request.deadline = kNow + std::chrono::seconds(10);
  const WorkerCommand commands[] = {dispatch};
  const pb::ToWorker message = CommandsToProto(commands, kNow + std::chrono::seconds(4));
  EXPECT_EQ(message.dispatches(0).timeout_ms(), 6000u);
  // A deadline that has passed is not taken for none.
  EXPECT_EQ(CommandsToProto(commands, kNow + std::chrono::hours(1)).dispatches(0).timeout_ms(), 1u);
  const Time elsewhere{std::chrono::hours(900)};
  const DecodedCommands back = CommandsFromProto(message, elsewhere);
  const auto& request = std::get<DispatchCommand>(back.commands.at(0)).request;
  EXPECT_EQ(request.arrival, elsewhere);
  EXPECT_EQ(request.deadline, elsewhere + std::chrono::seconds(6));
}

// ---- invalid messages

class InvalidCommandTest : public testing::Test {
 protected:
  static pb::Dispatch Valid(RequestKind kind) {
    RandomValues values(4);
    for (const WorkerCommand& command : values.Commands(kNow)) {
      const auto* dispatch = std::get_if<DispatchCommand>(&command);
      if (dispatch == nullptr || dispatch->request.kind != kind) continue;
      return CommandsToProto({&command, 1}, kNow).dispatches(0);
    }
    return {};
  }

  static void ExpectRefused(const pb::Dispatch& dispatch, const std::string& words) {
    pb::ToWorker message;
    *message.add_dispatches() = Valid(RequestKind::kServe);
    *message.add_dispatches() = dispatch;
    const DecodedCommands decoded = CommandsFromProto(message, kNow);
    EXPECT_EQ(decoded.commands.size(), 1u) << "the valid dispatch is lost";
    ASSERT_EQ(decoded.refused.size(), 1u) << words;
    const FailedReport& refused = decoded.refused.front();
    EXPECT_EQ(refused.id, RequestId(dispatch.request_id()));
    EXPECT_EQ(refused.epoch, Epoch(dispatch.epoch()));
    EXPECT_EQ(refused.status.code(), StatusCode::kInvalidArgument);
    EXPECT_FALSE(refused.retryable);
    EXPECT_THAT(std::string(Message(refused.status)), HasSubstr("dispatch: "));
    EXPECT_THAT(std::string(Message(refused.status)), HasSubstr(words));
  }
};

TEST_F(InvalidCommandTest, TheFieldAtFaultIsNamed) {
  pb::Dispatch dispatch = Valid(RequestKind::kServe);
  dispatch.clear_kind();
  ExpectRefused(dispatch, "kind is 0; it must be SERVE, PREFILL or DECODE");
  dispatch = Valid(RequestKind::kPrefill);
  dispatch.mutable_tokens()->push_back('x');
  ExpectRefused(dispatch, "tokens has ");
  dispatch = Valid(RequestKind::kPrefill);
  dispatch.mutable_peer()->clear_kv_address();
  ExpectRefused(dispatch, "kv_address");
  dispatch = Valid(RequestKind::kDecode);
  dispatch.set_session_id(0);
  ExpectRefused(dispatch, "session_id is 0");
  dispatch = Valid(RequestKind::kDecode);
  dispatch.mutable_peer()->clear_worker_id();
  ExpectRefused(dispatch, "peer.worker_id is empty");
  dispatch = Valid(RequestKind::kServe);
  for (int i = 0; i < 2000; ++i) dispatch.add_stop_tokens(i);
  ExpectRefused(dispatch, "stop_tokens has ");
  dispatch = Valid(RequestKind::kServe);
  for (int i = 0; i < 2000; ++i) (*dispatch.mutable_sampling()->mutable_logit_bias())[i] = 1;
  ExpectRefused(dispatch, "sampling.logit_bias has 2000 entries; at most 1024");
  dispatch = Valid(RequestKind::kServe);
  dispatch.set_cache_salt(std::string(1025, 's'));
  ExpectRefused(dispatch, "cache_salt has 1025 bytes; at most 1024");
}

TEST_F(InvalidCommandTest, ARedirectWithoutASessionFailsItsRequest) {
  pb::ToWorker message;
  pb::Redirect& redirect = *message.add_redirects();
  redirect.set_request_id(7);
  redirect.set_epoch(3);
  redirect.mutable_peer()->set_worker_id("d");
  redirect.mutable_peer()->set_kv_address("127.0.0.1:9");
  const DecodedCommands decoded = CommandsFromProto(message, kNow);
  EXPECT_THAT(decoded.commands, IsEmpty());
  ASSERT_EQ(decoded.refused.size(), 1u);
  EXPECT_EQ(decoded.refused[0].id, RequestId(7));
  EXPECT_EQ(Message(decoded.refused[0].status), "redirect: session_id is 0; a hand-off needs one");
}

TEST(InvalidReportTest, TheFieldAtFaultIsNamed) {
  const auto why = [](const pb::ToRouter& message) {
    return std::string(Message(ReportFromProto(message).status()));
  };
  pb::ToRouter token;
  token.add_tokens()->set_finish(9);
  EXPECT_THAT(why(token), HasSubstr("finish 9"));
  pb::ToRouter event;
  event.add_cache_events()->set_kind(pb::CacheEvent::STORED);
  event.mutable_cache_events(0)->set_hashes(std::string(17, 'h'));
  EXPECT_THAT(why(event), HasSubstr("17 bytes of hashes"));
  event.mutable_cache_events(0)->clear_kind();
  EXPECT_THAT(why(event), HasSubstr("kind 0"));
  pb::ToRouter handoff;
  handoff.add_handoffs();
  EXPECT_THAT(why(handoff), HasSubstr("outcome 0"));
  pb::ToRouter join;
  join.mutable_join();
  EXPECT_THAT(why(join), HasSubstr("join"));
}

// A line end would divide lines of the router's log.
TEST(InvalidReportTest, AWorkerIdHasNoControlCharacters) {
  const auto why = [](const std::string& id) {
    WorkerInfo info = RandomValues(1).Info();
    info.id = WorkerId(id);
    return std::string(Message(WorkerInfoFromProto(JoinToProto(info)).status()));
  };
  for (const char byte : {'\n', '\r', '\t', '\x1b', '\x7f', '\0'}) {
    EXPECT_THAT(why(std::string("a") + byte + "b"),
                HasSubstr(fmt::format("join.worker_id has the control character {:#04x} at byte 1",
                                      static_cast<int>(byte))));
  }
  EXPECT_THAT(why(std::string(257, 'a')), HasSubstr("join.worker_id has 257 bytes"));
  EXPECT_THAT(why(""), HasSubstr("join.worker_id is empty"));
  EXPECT_EQ(why(std::string(256, 'a')), "");
  EXPECT_EQ(why("décode \"0\""), "");
}

// A worker that is wrong about itself, or lies, does not break the router's arithmetic.
TEST(InvalidReportTest, NumbersOutOfRangeAreClamped) {
  pb::ToRouter message;
  pb::Heartbeat& heartbeat = *message.mutable_heartbeat();
  heartbeat.set_running(-5);
  heartbeat.set_queued_tokens(INT64_MIN);
  heartbeat.set_step_ms_base(std::numeric_limits<double>::quiet_NaN());
  heartbeat.set_blocks_quarantined(-1);
  heartbeat.add_peers()->set_bytes_per_second(-1);
  message.add_handoffs()->set_outcome(pb::Handoff::COMMITTED);
  message.mutable_handoffs(0)->set_transfer_us(INT64_MAX);
  message.add_finished()->set_queue_us(INT64_MIN);
  const StatusOr<WorkerReport> report = ReportFromProto(message);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->load->engine.running, 0);
  EXPECT_EQ(report->load->engine.queued_tokens, 0);
  EXPECT_EQ(report->load->engine.step_ms_base, 0);
  EXPECT_EQ(report->load->blocks_quarantined, 0);
  EXPECT_EQ(report->load->peers.begin()->second.bytes_per_second, 0);
  EXPECT_GT(report->handoffs[0].transfer, Duration::zero());
  EXPECT_EQ(report->finished[0].times.queued, Duration::zero());
}

}  // namespace
}  // namespace baton
