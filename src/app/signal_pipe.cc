#include "app/signal_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/check.h"

namespace polykv {
namespace {

// A signal handler has no argument of ours.
volatile std::sig_atomic_t write_end = -1;

void OnSignal(int) {
  const int saved_errno = errno;
  const char byte = 0;
  (void)!write(static_cast<int>(write_end), &byte, 1);
  errno = saved_errno;
}

}  // namespace

SignalPipe::SignalPipe() {
  int ends[2];
  POLYKV_CHECK(write_end == -1 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  read_end_ = ends[0];
  write_end = ends[1];
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool SignalPipe::Wait(std::chrono::milliseconds timeout) {
  pollfd waiting = {.fd = read_end_, .events = POLLIN, .revents = 0};
  const int n_ready = poll(&waiting, 1, static_cast<int>(timeout.count()));
  char byte = 0;
  return n_ready > 0 && read(read_end_, &byte, 1) == 1;
}

}  // namespace polykv
