#include "common/cluster/wire/join_wire.h"

#include <algorithm>
#include <string>

#include "common/cluster/member_id.h"
#include "common/cluster/wire/micros_wire.h"

namespace baton {
namespace {

namespace wire = worker::v1;

constexpr size_t kMaxText = 4096;

Status CheckPositive(const char* field, int64_t value) {
  if (value > 0) return OkStatus();
  return InvalidArgument("join.{} is {}; it must be at least 1", field, value);
}

}  // namespace

wire::ToRouter JoinToProto(const WorkerInfo& info) {
  wire::ToRouter message;
  wire::Join& join = *message.mutable_join();
  join.set_version(wire::PROTOCOL_VERSION);
  join.set_worker_id(info.id.value());
  join.set_boot_id(info.boot.value());
  join.set_can_prefill(info.can_prefill);
  join.set_can_decode(info.can_decode);
  join.set_model(info.model);
  join.set_fingerprint_high(info.fingerprint.high);
  join.set_fingerprint_low(info.fingerprint.low);
  join.set_kv_layout(info.kv_layout);
  join.set_kv_address(info.kv_address);
  join.set_block_tokens(info.block_tokens);
  join.set_sliding_window(info.window.tokens);
  join.set_window_is_chunk(info.window.chunked);
  join.set_blocks(info.blocks);
  join.set_max_sequences(info.max_sequences);
  join.set_context_length(info.context_length);
  join.set_vocabulary(info.vocabulary);
  join.set_max_step_tokens(info.max_step_tokens);
  join.set_admin_address(info.admin_address);
  join.set_device(info.device);
  join.set_program_version(info.program_version);
  join.set_deterministic(info.deterministic);
  join.set_itl_target_us(ToMicros(info.itl_target));
  join.set_shape_high(info.shape.high);
  join.set_shape_low(info.shape.low);
  join.set_tokenizer_high(info.tokenizer.high);
  join.set_tokenizer_low(info.tokenizer.low);
  join.set_secret_probe_high(info.secret_probe.high);
  join.set_secret_probe_low(info.secret_probe.low);
  join.set_weights_high(info.weights.high);
  join.set_weights_low(info.weights.low);
  return message;
}

StatusOr<WorkerInfo> WorkerInfoFromProto(const wire::ToRouter& message) {
  if (!message.has_join()) {
    return InvalidArgument("the first message of a worker must carry `join`");
  }
  const wire::Join& in = message.join();
  if (in.worker_id().empty()) return InvalidArgument("join.worker_id is empty");
  BATON_RETURN_IF_ERROR(CheckMemberId("join.worker_id", in.worker_id()));
  if (in.version() != static_cast<uint32_t>(wire::PROTOCOL_VERSION)) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "worker {} speaks protocol version {}, this router version {}",
                      in.worker_id(),
                      in.version(),
                      static_cast<int>(wire::PROTOCOL_VERSION));
  }
  for (const auto* text : {&in.model(),
                           &in.kv_layout(),
                           &in.kv_address(),
                           &in.admin_address(),
                           &in.device(),
                           &in.program_version()}) {
    if (text->size() <= kMaxText) continue;
    return InvalidArgument("join of worker {} has a text of {} bytes; at most {} are allowed",
                           in.worker_id(),
                           text->size(),
                           kMaxText);
  }
  if (!in.can_prefill() && !in.can_decode()) {
    return InvalidArgument("worker {} can neither prefill nor decode", in.worker_id());
  }
  BATON_RETURN_IF_ERROR(CheckPositive("block_tokens", in.block_tokens()));
  BATON_RETURN_IF_ERROR(CheckPositive("blocks", in.blocks()));
  BATON_RETURN_IF_ERROR(CheckPositive("context_length", in.context_length()));
  BATON_RETURN_IF_ERROR(CheckPositive("vocabulary", in.vocabulary()));
  WorkerInfo out;
  out.id = WorkerId(in.worker_id());
  out.boot = BootId(in.boot_id());
  out.can_prefill = in.can_prefill();
  out.can_decode = in.can_decode();
  out.model = in.model();
  out.fingerprint = {in.fingerprint_high(), in.fingerprint_low()};
  out.shape = {in.shape_high(), in.shape_low()};
  out.tokenizer = {in.tokenizer_high(), in.tokenizer_low()};
  out.secret_probe = {in.secret_probe_high(), in.secret_probe_low()};
  out.weights = {in.weights_high(), in.weights_low()};
  out.kv_layout = in.kv_layout();
  out.kv_address = in.kv_address();
  out.admin_address = in.admin_address();
  out.device = in.device();
  out.program_version = in.program_version();
  out.deterministic = in.deterministic();
  out.block_tokens = in.block_tokens();
  out.window = std::max(0, in.sliding_window());
  out.window.chunked = in.window_is_chunk();
  out.blocks = in.blocks();
  out.max_sequences = std::max(1, in.max_sequences());
  out.context_length = in.context_length();
  out.vocabulary = in.vocabulary();
  out.max_step_tokens = std::max(1, in.max_step_tokens());
  out.itl_target = FromMicros(in.itl_target_us());
  return out;
}

wire::ToWorker WelcomeToProto(const Welcome& welcome) {
  wire::ToWorker message;
  wire::Welcome& out = *message.mutable_welcome();
  out.set_router_id(welcome.router_id);
  out.set_router_tag(welcome.router_tag);
  out.set_heartbeat_ms(static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(welcome.heartbeat).count()));
  return message;
}

StatusOr<Welcome> WelcomeFromProto(const wire::ToWorker& message) {
  if (!message.has_welcome()) {
    return InvalidArgument("the first message of a router must carry `welcome`");
  }
  const wire::Welcome& in = message.welcome();
  BATON_RETURN_IF_ERROR(CheckMemberId("welcome.router_id", in.router_id()));
  Welcome out;
  out.router_id = in.router_id();
  out.router_tag = in.router_tag();
  out.heartbeat = std::chrono::milliseconds(in.heartbeat_ms());
  return out;
}

}  // namespace baton
