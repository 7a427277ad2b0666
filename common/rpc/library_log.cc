#include "common/rpc/library_log.h"

#include <openssl/x509.h>

#include <string>
#include <string_view>

#include <absl/strings/numbers.h>
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include "common/log/log.h"

namespace baton {
namespace {

const Logger kGrpcLog("grpc");
const Logger kProtobufLog("protobuf");

// gRPC names the reason for which OpenSSL refuses a certificate by its number.
std::string Explained(std::string_view message) {
  constexpr std::string_view kRefused = "Certificate verify failed with code ";
  std::string text(message);
  long reason = 0;
  if (message.substr(0, kRefused.size()) == kRefused &&
      absl::SimpleAtoi(text.substr(kRefused.size()), &reason)) {
    text += fmt::format(": {}", X509_verify_cert_error_string(reason));
  }
  return text;
}

void LogOfGrpc(gpr_log_func_args* line) {
  LogLevel level = LogLevel::kDebug;
  if (line->severity == GPR_LOG_SEVERITY_ERROR) level = LogLevel::kError;
  if (line->severity == GPR_LOG_SEVERITY_INFO) level = LogLevel::kInfo;
  if (kGrpcLog.Enabled(level)) kGrpcLog.Write(level, Explained(line->message));
}

// After a fatal message protocol buffers end the process themselves.
void LogOfProtobuf(google::protobuf::LogLevel severity,
                   const char*,
                   int,
                   const std::string& message) {
  LogLevel level = LogLevel::kError;
  if (severity == google::protobuf::LOGLEVEL_INFO) level = LogLevel::kInfo;
  if (severity == google::protobuf::LOGLEVEL_WARNING) level = LogLevel::kWarning;
  if (kProtobufLog.Enabled(level)) kProtobufLog.Write(level, message);
}

}  // namespace

void RedirectLibraryLogs() {
  static const bool redirected = [] {
    gpr_set_log_function(LogOfGrpc);
    google::protobuf::SetLogHandler(LogOfProtobuf);
    return true;
  }();
  (void)redirected;
}

}  // namespace baton
