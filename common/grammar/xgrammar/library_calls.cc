#include "common/grammar/xgrammar/library_calls.h"

#include <optional>
#include <stdexcept>
#include <string_view>

#include "common/base/exception_border.h"

namespace baton {
namespace {

constexpr int kWarning = 2;  // XGRAMMAR_LOG_LEVEL_WARNING

// The first warning of the call that runs on this thread.
thread_local std::optional<std::string>* warning = nullptr;

// XGrammar's messages begin with the place in its source: "[07:00:00] file.cc:12: ".
std::string_view WithoutPlace(std::string_view message) {
  const size_t place = message.find(".cc:");
  if (place == std::string_view::npos) return message;
  const size_t end = message.find(": ", place + 4);
  return end == std::string_view::npos ? message : message.substr(end + 2);
}

}  // namespace

Status CallXGrammar(const std::function<void()>& body) {
  std::optional<std::string> warned;
  warning = &warned;
  const std::optional<std::string> thrown = CaughtFrom(body);
  warning = nullptr;
  if (thrown.has_value()) {
    return InvalidArgument("the grammar is not valid: {}", WithoutPlace(*thrown));
  }
  if (warned.has_value()) return InvalidArgument("the grammar is not supported: {}", *warned);
  return OkStatus();
}

}  // namespace baton

// What XGrammar calls instead of writing to stderr (XGRAMMAR_LOG_CUSTOMIZE).
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int lineno, const std::string& message);
void LogMessageImpl(const std::string& file, int lineno, int level, const std::string& message);

void LogFatalImpl(const std::string&, int, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  if (level < baton::kWarning || baton::warning == nullptr) return;
  if (!baton::warning->has_value()) *baton::warning = message;
}

}  // namespace xgrammar
