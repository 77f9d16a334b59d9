#include "api/socket_stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace polykv {
namespace {

constexpr int kGoodbyeMs = 100;
constexpr int kGoodbyeReads = 64;  // of at most 16 KiB

// poll's answer; a signal does not end the wait.
int Poll(int socket, int16_t events, int timeout_ms) {
  pollfd waiting = {.fd = socket, .events = events, .revents = 0};
  int n_ready = 0;
  do {
    n_ready = poll(&waiting, 1, timeout_ms);
  } while (n_ready < 0 && errno == EINTR);
  return n_ready;
}

ssize_t Receive(int socket, char* out, size_t size, int flags) {
  ssize_t n = 0;
  do {
    n = recv(socket, out, size, flags);
  } while (n < 0 && errno == EINTR);
  return n;
}

int Milliseconds(time_t seconds) {
  return static_cast<int>(std::clamp<time_t>(seconds, 0, 1'000'000) * 1000);
}

}  // namespace

bool SocketStream::wait_readable() const { return WaitReadable(socket_, read_timeout_s_); }

bool SocketStream::wait_writable() const {
  return Poll(socket_, POLLOUT, Milliseconds(write_timeout_s_)) > 0;
}

bool SocketStream::is_peer_alive() const {
  char byte = 0;
  return Poll(socket_, POLLIN, 0) == 0 || Receive(socket_, &byte, 1, MSG_PEEK) > 0;
}

ssize_t SocketStream::read(char* out, size_t size) {
  if (begin_ == end_) {
    if (!wait_readable()) {
      error_ = httplib::Error::Timeout;
      return -1;
    }
    const bool direct = size >= buffer_.size();
    const ssize_t n = direct ? Receive(socket_, out, size, 0)
                             : Receive(socket_, buffer_.data(), buffer_.size(), 0);
    if (n <= 0) {
      error_ = n == 0 ? httplib::Error::ConnectionClosed : httplib::Error::Read;
      return n;
    }
    if (direct) return n;
    begin_ = 0;
    end_ = static_cast<size_t>(n);
  }
  const size_t n = std::min(size, end_ - begin_);
  std::memcpy(out, buffer_.data() + begin_, n);
  begin_ += n;
  return static_cast<ssize_t>(n);
}

ssize_t SocketStream::write(const char* data, size_t size) {
  if (!wait_writable()) return -1;
  ssize_t n = 0;
  do {
    n = send(socket_, data, size, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n;
}

void SocketStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void SocketStream::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

const char* SocketStream::buffered_data(size_t& size) const {
  size = end_ - begin_;
  return size > 0 ? buffer_.data() + begin_ : nullptr;
}

bool WaitReadable(int socket, time_t timeout_s) {
  return Poll(socket, POLLIN, Milliseconds(timeout_s)) > 0;
}

void CloseGently(int socket) {
  shutdown(socket, SHUT_WR);
  std::array<char, 16'384> dropped;
  for (int i = 0; i < kGoodbyeReads && Poll(socket, POLLIN, kGoodbyeMs) > 0; ++i) {
    if (Receive(socket, dropped.data(), dropped.size(), 0) <= 0) break;
  }
  close(socket);
}

}  // namespace polykv
