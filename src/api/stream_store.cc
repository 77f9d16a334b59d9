#include "api/stream_store.h"

#include <algorithm>
#include <utility>

namespace polykv {
namespace {

constexpr size_t kMaxStreamBytes = size_t{4} << 20;
constexpr int64_t kKeepS = 300;

size_t KeptBytes(const StreamInfo& info) { return info.n_bytes - info.n_dropped; }

}  // namespace

RecordedStream::RecordedStream(Conversation conversation, int64_t unix_s)
    : conversation_(std::move(conversation)), started_unix_s_(unix_s) {}

void RecordedStream::Append(std::string_view bytes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (done_) return;
    buffer_.append(bytes);
    if (buffer_.size() - start_ > kMaxStreamBytes) start_ = buffer_.size() - kMaxStreamBytes;
    if (start_ > kMaxStreamBytes) {  // not at every byte: it moves all the others
      buffer_.erase(0, start_);
      base_ += std::exchange(start_, 0);
    }
  }
  changed_.notify_all();
}

void RecordedStream::End(int64_t unix_s) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (done_) return;
    done_ = true;
    completed_unix_s_ = unix_s;
  }
  changed_.notify_all();
}

void RecordedStream::Cancel() { cancelled_.store(true, std::memory_order_release); }

RecordedStream::Part RecordedStream::Read(size_t offset, std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return done_ || offset < end(); });
  if (offset < first()) return {};
  if (offset < end()) return {.bytes = buffer_.substr(offset - base_), .more = true};
  return {.bytes = {}, .more = !done_};
}

StreamInfo RecordedStream::info() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {.conversation = conversation_,
          .is_done = done_,
          .n_bytes = end(),
          .n_dropped = first(),
          .started_unix_s = started_unix_s_,
          .completed_unix_s = completed_unix_s_};
}

std::shared_ptr<RecordedStream> StreamStore::Open(const Conversation& conversation,
                                                  int64_t unix_s) {
  const auto stream = std::make_shared<RecordedStream>(conversation, unix_s);
  const std::lock_guard<std::mutex> lock(mutex_);
  Prune(unix_s);
  Remove(conversation, unix_s);
  streams_[conversation] = stream;
  return stream;
}

std::shared_ptr<RecordedStream> StreamStore::FindOrNull(const Conversation& conversation,
                                                        int64_t unix_s) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Prune(unix_s);
  const auto found = streams_.find(conversation);
  return found == streams_.end() ? nullptr : found->second;
}

std::vector<StreamInfo> StreamStore::Lookup(TenantId tenant,
                                            const std::vector<std::string>& conversation_ids,
                                            int64_t unix_s) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Prune(unix_s);
  std::vector<StreamInfo> infos;
  for (const std::string& wanted : conversation_ids) {
    for (const auto& [conversation, stream] : streams_) {
      const std::string& id = conversation.id;
      const bool is_meant = id == wanted || id.starts_with(wanted + "::");
      if (is_meant && conversation.tenant == tenant) infos.push_back(stream->info());
    }
  }
  return infos;
}

void StreamStore::Cancel(const Conversation& conversation, int64_t unix_s) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Remove(conversation, unix_s);
}

void StreamStore::Forget(const std::shared_ptr<RecordedStream>& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(streams_, [&stream](const auto& entry) { return entry.second == stream; });
}

void StreamStore::Remove(const Conversation& conversation, int64_t unix_s) {
  const auto found = streams_.find(conversation);
  if (found == streams_.end()) return;
  found->second->Cancel();
  found->second->End(unix_s);
  streams_.erase(found);
}

void StreamStore::Prune(int64_t unix_s) {
  size_t n_bytes = 0;
  std::vector<StreamInfo> ended;
  for (const auto& [conversation, stream] : streams_) {
    StreamInfo info = stream->info();
    n_bytes += KeptBytes(info);
    if (info.is_done) ended.push_back(std::move(info));
  }
  std::sort(ended.begin(), ended.end(), [](const StreamInfo& a, const StreamInfo& b) {
    return a.completed_unix_s < b.completed_unix_s;
  });
  for (const StreamInfo& info : ended) {
    const bool expired = unix_s - info.completed_unix_s >= kKeepS;
    if (!expired && n_bytes <= max_bytes_) return;
    n_bytes -= KeptBytes(info);
    streams_.erase(info.conversation);
  }
}

StreamRecording::StreamRecording(StreamStore* store, const Conversation& conversation,
                                 std::function<int64_t()> unix_s)
    : store_(store), unix_s_(std::move(unix_s)), stream_(store->Open(conversation, unix_s_())) {}

StreamRecording::~StreamRecording() {
  if (stream_->info().n_bytes == 0) store_->Forget(stream_);
  stream_->End(unix_s_());
}

}  // namespace polykv
