// The messages between routers and workers. The first byte of the input selects the direction, and
// the rest is the serialised message. A message that is accepted must have one meaning: its values,
// encoded and decoded again, encode to the same bytes.

#include <cstdint>
#include <string>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "common/base/check.h"
#include "common/cluster/wire/command_wire.h"
#include "common/cluster/wire/join_wire.h"
#include "common/cluster/wire/report_wire.h"

namespace baton {
namespace {

namespace pb = worker::v1;

constexpr Time kNow{std::chrono::hours(5)};

// Maps serialise in the order of their keys.
std::string Bytes(const google::protobuf::Message& message) {
  std::string out;
  {
    google::protobuf::io::StringOutputStream stream(&out);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return out;
}

void ToRouter(const std::string& bytes) {
  pb::ToRouter message;
  if (!message.ParseFromString(bytes)) return;
  if (const StatusOr<WorkerInfo> info = WorkerInfoFromProto(message); info.ok()) {
    const pb::ToRouter again = JoinToProto(*info);
    const StatusOr<WorkerInfo> back = WorkerInfoFromProto(again);
    BATON_CHECK(back.ok(), "a join is refused after it was accepted: {}", back.status().ToString());
    BATON_CHECK(Bytes(JoinToProto(*back)) == Bytes(again), "a join changes its meaning");
  }
  if (const StatusOr<WorkerReport> report = ReportFromProto(message); report.ok()) {
    const pb::ToRouter again = ReportToProto(*report);
    const StatusOr<WorkerReport> back = ReportFromProto(again);
    BATON_CHECK(back.ok(), "a report is refused after it was accepted");
    BATON_CHECK(Bytes(ReportToProto(*back)) == Bytes(again), "a report changes its meaning");
  }
}

void ToWorker(const std::string& bytes) {
  pb::ToWorker message;
  if (!message.ParseFromString(bytes)) return;
  if (const StatusOr<Welcome> welcome = WelcomeFromProto(message); welcome.ok()) {
    const pb::ToWorker again = WelcomeToProto(*welcome);
    const StatusOr<Welcome> back = WelcomeFromProto(again);
    BATON_CHECK(back.ok(), "a welcome is refused after it was accepted");
    BATON_CHECK(*back == *welcome, "a welcome changes its meaning");
  }
  const DecodedCommands decoded = CommandsFromProto(message, kNow);
  for (const FailedReport& refused : decoded.refused) {
    BATON_CHECK(refused.status.code() == StatusCode::kInvalidArgument, "refused without a reason");
  }
  const pb::ToWorker again = CommandsToProto(decoded.commands, kNow);
  const DecodedCommands back = CommandsFromProto(again, kNow);
  BATON_CHECK(back.refused.empty(), "a command is refused after it was accepted");
  BATON_CHECK(Bytes(CommandsToProto(back.commands, kNow)) == Bytes(again),
              "a command changes its meaning");
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  (data[0] & 1) == 0 ? baton::ToRouter(bytes) : baton::ToWorker(bytes);
  return 0;
}
