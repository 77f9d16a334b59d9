// A connected socket as the HTTP library wants to read and write it.
#pragma once

#include <cpp-httplib/httplib.h>
#include <array>
#include <ctime>
#include <string>

namespace polykv {

// For one request; used by one thread. Does not own the socket, which blocks.
class SocketStream final : public httplib::Stream {
 public:
  SocketStream(int socket, time_t read_timeout_s, time_t write_timeout_s)
      : socket_(socket), read_timeout_s_(read_timeout_s), write_timeout_s_(write_timeout_s) {}

  bool is_readable() const override { return begin_ < end_; }
  bool wait_readable() const override;
  bool wait_writable() const override;
  bool is_peer_alive() const override;
  ssize_t read(char* out, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;  // of nobody
  void get_local_ip_and_port(std::string& ip, int& port) const override;   // of nobody
  socket_t socket() const override { return socket_; }
  time_t duration() const override { return 0; }
  void set_read_timeout(time_t seconds, time_t) override { read_timeout_s_ = seconds; }
  const char* buffered_data(size_t& size) const override;
  void consume_buffered(size_t size) override { begin_ += size; }

 private:
  const int socket_;
  time_t read_timeout_s_;
  const time_t write_timeout_s_;
  std::array<char, 4096> buffer_;  // [begin_, end_) was received and not read
  size_t begin_ = 0;
  size_t end_ = 0;
};

// Whether the socket has something to read, or its end, before the time is over.
bool WaitReadable(int socket, time_t timeout_s);

// Ends the sending, gives the client a moment to end its own, and closes: what it still sends must
// not make the system throw away the answer that it has not read.
void CloseGently(int socket);

}  // namespace polykv
