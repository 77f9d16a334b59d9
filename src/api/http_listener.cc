#include "api/http_listener.h"

#include <sys/socket.h>
#include <unistd.h>

#include "api/socket_stream.h"

namespace polykv {
namespace {

constexpr time_t kHeadTimeoutS = 20;               // between two pieces of a request's head
constexpr time_t kReservedTimeoutS = 1;            // the same, where others wait for the thread
constexpr char kOverload[] = "X-Polykv-Overload";  // among a request's headers; never the client's

class Counted {
 public:
  explicit Counted(std::atomic<int>* count) : count_(count) { ++*count_; }
  ~Counted() { --*count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>* const count_;
};

}  // namespace

bool HttpListener::IsOverload(const httplib::Request& request) {
  return request.has_header(kOverload);
}

bool HttpListener::process_and_close_socket(socket_t socket) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    sockets_.insert(socket);
  }
  if (threads_->usual.Run([this, socket] { Serve(socket, /*reserved=*/false); }) ||
      threads_->reserved.Run([this, socket] { Serve(socket, /*reserved=*/true); })) {
    return true;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  sockets_.erase(socket);
  close(socket);
  return false;
}

void HttpListener::Serve(int socket, bool reserved) {
  serve_guarded([&] { return ServeRequests(socket, reserved); });
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    sockets_.erase(socket);
  }
  CloseGently(socket);
}

bool HttpListener::ServeRequests(int socket, bool reserved) {
  const time_t idle_s = reserved ? kReservedTimeoutS : keep_alive_timeout_sec_;
  const time_t head_s = reserved ? kReservedTimeoutS : kHeadTimeoutS;
  for (size_t n_left = keep_alive_max_count_; n_left > 0; --n_left) {
    if (!WaitReadable(socket, idle_s)) break;
    const bool is_last = reserved || n_left == 1 || threads_->usual.n_open() > threads_->max / 2;
    SocketStream stream(socket, head_s, write_timeout_sec_);
    const auto after_head = [&](httplib::Request& request) {
      stream.set_read_timeout(read_timeout_sec_, 0);
      request.headers.erase(kOverload);
      if (reserved) request.set_header(kOverload, "1");
    };
    bool closed = false;
    const Counted counted(&n_requests_);
    const bool answered = process_request(stream, "", 0, "", 0, is_last, closed, after_head);
    if (!answered || closed || is_last) break;
  }
  return true;
}

void HttpListener::CutConnections() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
}

}  // namespace polykv
