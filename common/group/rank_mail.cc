#include "common/group/rank_mail.h"

#include <algorithm>
#include <utility>

namespace baton {

std::string MailOf(RankMail kind, std::string_view bytes) {
  std::string mail;
  mail.reserve(1 + bytes.size());
  mail += static_cast<char>(kind);
  mail += bytes;
  return mail;
}

std::string MailOf(uint64_t ended, const RankTimes& times) {
  const EndedSteps told = {ended,
                           static_cast<int64_t>(times.steps),
                           times.step_seconds,
                           times.exchange_seconds.value_or(-1)};
  return MailOf(RankMail::kEnded,
                std::string_view(reinterpret_cast<const char*>(&told), sizeof(told)));
}

StatusOr<EndedSteps> EndedIn(std::string_view bytes) {
  EndedSteps ended;
  if (bytes.size() != sizeof(ended)) {
    return MakeStatus(StatusCode::kInternal,
                      "a letter about ended steps has {} bytes; it must have {}",
                      bytes.size(),
                      sizeof(ended));
  }
  std::memcpy(&ended, bytes.data(), sizeof(ended));
  return ended;
}

RankTimes TimesOf(const EndedSteps& ended) {
  RankTimes times;
  times.steps = ended.steps;
  times.step_seconds = ended.step_seconds;
  if (ended.exchange_seconds >= 0) times.exchange_seconds = ended.exchange_seconds;
  return times;
}

Duration LetterPause(Duration idle) {
  constexpr int kShare = 50;
  constexpr Duration kShortest = std::chrono::microseconds(20);
  constexpr Duration kLongest = std::chrono::milliseconds(2);
  return std::clamp<Duration>(idle / kShare, kShortest, kLongest);
}

void TextQueue::Push(std::string text) {
  {
    const std::lock_guard lock(mutex_);
    texts_.push_back(std::move(text));
  }
  changed_.notify_all();
}

void TextQueue::Close(Status reason) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_.ok()) closed_ = std::move(reason);
  }
  changed_.notify_all();
}

StatusOr<std::string> TextQueue::Take(Duration limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return !texts_.empty() || !closed_.ok(); });
  if (!texts_.empty()) {
    std::string text = std::move(texts_.front());
    texts_.pop_front();
    return text;
  }
  if (!closed_.ok()) return closed_;
  return MakeStatus(
      StatusCode::kDeadlineExceeded, "no message came within {:.1f} s", ToSeconds(limit));
}

}  // namespace baton
