#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/proto_buffer_writer.h>

#include "common/base/status.h"

namespace baton {

// For methods that receive their messages as raw bytes. When gRPC itself parses requests and cannot
// parse one (for example because a string is not UTF-8), the client gets UNIMPLEMENTED without a
// message.

// Parses `bytes`. Errors: InvalidArgument that names the type that the request should have.
template <class Message>
Status ParseMessage(const grpc::ByteBuffer& bytes, Message& message) {
  grpc::ByteBuffer copy = bytes;  // shares the memory
  grpc::ProtoBufferReader reader(&copy);
  if (reader.status().ok() && message.ParseFromZeroCopyStream(&reader)) return OkStatus();
  return InvalidArgument(
      "the request is not a {}: it is malformed, or a string in it is not valid UTF-8",
      Message::descriptor()->full_name());
}

template <class Message>
grpc::ByteBuffer ToBytes(const Message& message) {
  grpc::ByteBuffer bytes;
  grpc::ProtoBufferWriter writer(&bytes, 1 << 20, static_cast<int>(message.ByteSizeLong()));
  message.SerializeToZeroCopyStream(&writer);
  return bytes;
}

}  // namespace baton
