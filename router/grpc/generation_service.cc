#include "router/grpc/generation_service.h"

#include <utility>
#include <vector>

#include "common/rpc/message_bytes.h"
#include "common/rpc/rpc_status.h"
#include "common/text/utf8.h"
#include "router/grpc/generate_stream_service.h"

namespace baton::router {
namespace {

constexpr int kMaxDetokenize = 1 << 20;

// Answers a unary call on a tokenizer thread, with the response that `fill` creates. gRPC keeps
// request and response alive until Finish.
template <class Request, class Response>
grpc::ServerUnaryReactor* Answer(
    grpc::CallbackServerContext* context,
    const CallGate& gate,
    RequestFrontend& frontend,
    const grpc::ByteBuffer& bytes,
    grpc::ByteBuffer& answer,
    Status (*fill)(const RequestFrontend&, const Request&, const TextLimits&, Response&)) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const StatusOr<std::string> client = gate.Admit(*context);
  if (!client.ok()) {
    reactor->Finish(ToGrpc(client.status()));
    return reactor;
  }
  frontend.PostTokenizing(*client, bytes.Length(), [=, &frontend, &bytes, &answer] {
    const TextLimits limits{.context_length = frontend.context_length(),
                            .cancelled = [context] { return context->IsCancelled(); }};
    Request request;
    Response response;
    Status status = limits.cancelled() ? Status(StatusCode::kCancelled, "the client left")
                                       : ParseMessage(bytes, request);
    if (status.ok()) status = fill(frontend, request, limits, response);
    if (status.ok()) answer = ToBytes(response);
    reactor->Finish(ToGrpc(status));
  });
  return reactor;
}

Status TokenizeInto(const RequestFrontend& frontend,
                    const v1::TokenizeRequest& request,
                    const TextLimits& limits,
                    v1::TokenizeResponse& response) {
  BATON_RETURN_IF_ERROR(frontend.CheckModel(request.model()));
  const ModelText& text = frontend.text();
  std::vector<TokenId> ids;
  if (request.has_chat()) {
    GenerationRequest chat;
    chat.input = ChatFromProto(request.chat());
    BATON_ASSIGN_OR_RETURN(ids, text.Encode(chat, limits));
  } else if (request.has_text()) {
    if (!IsValidUtf8(request.text())) return InvalidArgument("text is not valid UTF-8");
    const EncodeOptions options{.add_special = request.add_special(),
                                .parse_special = request.parse_special()};
    BATON_ASSIGN_OR_RETURN(ids, text.EncodeText(request.text(), options, limits));
  } else {
    return InvalidArgument("the request has no input; set text or chat");
  }
  for (const TokenId id : ids) {
    response.add_ids(id);
    response.add_pieces(std::string(text.tokenizer().piece(id)));
  }
  return OkStatus();
}

Status DetokenizeInto(const RequestFrontend& frontend,
                      const v1::DetokenizeRequest& request,
                      const TextLimits&,
                      v1::DetokenizeResponse& response) {
  BATON_RETURN_IF_ERROR(frontend.CheckModel(request.model()));
  const Tokenizer& tokenizer = frontend.text().tokenizer();
  if (request.ids_size() > kMaxDetokenize) {
    return InvalidArgument(
        "ids has {} entries; at most {} are allowed", request.ids_size(), kMaxDetokenize);
  }
  for (int i = 0; i < request.ids_size(); ++i) {
    if (tokenizer.Contains(request.ids(i))) continue;
    return InvalidArgument(
        "ids[{}] is {}; the vocabulary has {} tokens", i, request.ids(i), tokenizer.vocab_size());
  }
  const std::vector<TokenId> ids(request.ids().begin(), request.ids().end());
  response.set_text(tokenizer.Decode(ids, request.skip_special_tokens()));
  return OkStatus();
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerationService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return GenerateStream::Begin(context, *request, gate_, frontend_);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return Answer(context, gate_, frontend_, *request, *response, &TokenizeInto);
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request,
                                                        grpc::ByteBuffer* response) {
  return Answer(context, gate_, frontend_, *request, *response, &DetokenizeInto);
}

grpc::ServerUnaryReactor* GenerationService::ListModels(grpc::CallbackServerContext* context,
                                                        const v1::ListModelsRequest*,
                                                        v1::ListModelsResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const auto client = gate_.Admit(*context); !client.ok()) {
    reactor->Finish(ToGrpc(client.status()));
    return reactor;
  }
  for (const std::string& name : frontend_.model_names()) {
    v1::Model& model = *response->add_models();
    model.set_name(name);
    model.set_context_length(frontend_.context_length());
    model.set_vocabulary(frontend_.text().vocabulary());
    if (const auto cluster = core_.identity(); cluster.has_value()) {
      model.set_fingerprint(fmt::format("{}", cluster->fingerprint));
    }
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace baton::router
