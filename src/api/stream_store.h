// What streams with a conversation id have sent, so that a client whose connection broke reads on
// while the generation runs, or afterwards.
//
// Own code instead of llama.cpp's server-stream: its store is one for the whole process and bounds
// each stream, but not their sum.
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace polykv {

// By which a client comes back to its stream; equal ids of two tenants are two conversations.
struct Conversation {
  TenantId tenant = kEverybody;
  std::string id;

  auto operator<=>(const Conversation&) const = default;
};

struct StreamInfo {
  Conversation conversation;
  bool is_done = false;
  size_t n_bytes = 0;    // that were ever sent
  size_t n_dropped = 0;  // of them no longer kept: the first ones
  int64_t started_unix_s = 0;
  int64_t completed_unix_s = 0;  // 0: not yet
};

// One stream's bytes: the last 4 MiB, as llama-server. Thread-safe.
class RecordedStream {
 public:
  RecordedStream(Conversation conversation, int64_t unix_s);

  void Append(std::string_view bytes);  // drops what comes after the end
  void End(int64_t unix_s);             // the first call counts
  void Cancel();                        // whoever generates should stop
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

  struct Part {
    std::string bytes;
    bool more = false;  // another Read after these bytes may give some
  };
  // What is kept from `offset` on; waits for the first byte, at most `timeout`. Nothing, and no
  // more, if the byte at `offset` has been dropped.
  Part Read(size_t offset, std::chrono::milliseconds timeout);

  StreamInfo info() const;

 private:
  size_t first() const { return base_ + start_; }
  size_t end() const { return base_ + buffer_.size(); }

  const Conversation conversation_;
  const int64_t started_unix_s_;
  std::atomic<bool> cancelled_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_. Bytes of the stream [base_, base_ + buffer_.size()), kept from start_ on.
  std::string buffer_;
  size_t base_ = 0;
  size_t start_ = 0;
  bool done_ = false;
  int64_t completed_unix_s_ = 0;
};

// The streams by conversation, at most one each. A stream is kept until five minutes after its end,
// or shorter if ended streams make the sum exceed the limit. Thread-safe; `unix_s` is now.
class StreamStore {
 public:
  static constexpr size_t kMaxBytes = size_t{256} << 20;

  explicit StreamStore(size_t max_bytes = kMaxBytes) : max_bytes_(max_bytes) {}

  // An earlier stream of the conversation is cancelled and ends.
  std::shared_ptr<RecordedStream> Open(const Conversation& conversation, int64_t unix_s);
  std::shared_ptr<RecordedStream> FindOrNull(const Conversation& conversation, int64_t unix_s);
  // Those of the tenant's conversations and of their variants, "<id>::<model>".
  std::vector<StreamInfo> Lookup(TenantId tenant, const std::vector<std::string>& conversation_ids,
                                 int64_t unix_s);
  void Cancel(const Conversation& conversation, int64_t unix_s);  // and forget
  void Forget(const std::shared_ptr<RecordedStream>& stream);

 private:
  // REQUIRES: mutex_ is held.
  void Remove(const Conversation& conversation, int64_t unix_s);
  void Prune(int64_t unix_s);

  const size_t max_bytes_;
  std::mutex mutex_;
  std::map<Conversation, std::shared_ptr<RecordedStream>> streams_;  // guarded by mutex_
};

// The writing end, held by one response. Its end ends the stream; one that got no byte is
// forgotten, since the response was no stream.
class StreamRecording {
 public:
  // `store` outlives the recording; `unix_s` tells the time.
  StreamRecording(StreamStore* store, const Conversation& conversation,
                  std::function<int64_t()> unix_s);
  ~StreamRecording();
  StreamRecording(const StreamRecording&) = delete;
  StreamRecording& operator=(const StreamRecording&) = delete;

  void Append(std::string_view bytes) { stream_->Append(bytes); }
  bool cancelled() const { return stream_->cancelled(); }

 private:
  StreamStore* const store_;
  const std::function<int64_t()> unix_s_;
  const std::shared_ptr<RecordedStream> stream_;
};

}  // namespace polykv
