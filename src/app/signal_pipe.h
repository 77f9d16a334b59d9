// SIGINT and SIGTERM as something that a thread can wait for.
#pragma once

#include <chrono>

namespace polykv {

// One per process. The handlers only write a byte to a pipe.
class SignalPipe {
 public:
  SignalPipe();  // installs the handlers, and ignores SIGPIPE
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  // Waits for the next signal; false after `timeout` without one. A negative timeout waits for
  // ever.
  bool Wait(std::chrono::milliseconds timeout);

 private:
  int read_end_ = -1;  // open until the process ends, as is the other end
};

}  // namespace polykv
