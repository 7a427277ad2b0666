#include "tests/integration/raw_rpc.h"

#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

namespace baton {
namespace {

// Returns whether the next operation succeeded. Every operation ends, at the latest at the call's
// deadline.
bool Next(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  return queue.Next(&tag, &ok) && ok;
}

}  // namespace

RawAnswer RawCall(const std::shared_ptr<grpc::Channel>& channel,
                  const std::string& method,
                  const std::string& request,
                  std::chrono::milliseconds limit) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + limit);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  RawAnswer answer;
  {
    const auto call = stub.PrepareCall(&context, method, &queue);
    call->StartCall(nullptr);
    const grpc::Slice slice(request);
    const grpc::ByteBuffer message(&slice, 1);
    grpc::ByteBuffer received;
    if (Next(queue)) {
      call->WriteLast(message, {}, nullptr);
      if (Next(queue)) {
        call->Read(&received, nullptr);
        if (Next(queue)) {
          std::vector<grpc::Slice> slices;
          if (received.Dump(&slices).ok()) {
            for (const grpc::Slice& part : slices) {
              answer.bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
            }
          }
        }
      }
    }
    call->Finish(&answer.status, nullptr);
    Next(queue);
  }
  queue.Shutdown();
  while (Next(queue)) {
  }
  return answer;
}

}  // namespace baton
