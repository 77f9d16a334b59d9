// One listening address, and what becomes of its connections. The HTTP library reads and writes the
// requests; which thread serves a connection and how long it may keep that thread is decided here.
//
// A connection has a thread of its own from its beginning to its end. When there is none left, a
// few reserved threads answer: status, and to anybody else that the server is overloaded.
#pragma once

#include <cpp-httplib/httplib.h>
#include <atomic>
#include <ctime>
#include <mutex>
#include <unordered_set>

#include "base/job_threads.h"

namespace polykv {

struct ConnectionThreads {
  explicit ConnectionThreads(size_t the_max) : max(the_max), usual(max, 0) {}

  const size_t max;
  JobThreads usual;
  JobThreads reserved{4, 256};
};

class HttpListener final : public httplib::Server {
 public:
  explicit HttpListener(ConnectionThreads* threads) : threads_(threads) {}

  // Whether the request came in on a reserved thread.
  static bool IsOverload(const httplib::Request& request);

  // Any thread.
  int n_requests() const {
    return n_requests_.load();
  }  // from their first byte to the answer's end
  void CutConnections();  // ends reads and writes on all of them, whatever they are at

 private:
  bool process_and_close_socket(socket_t socket) override;  // on the accepting thread
  void Serve(int socket, bool reserved);
  bool ServeRequests(int socket, bool reserved);

  ConnectionThreads* const threads_;
  std::atomic<int> n_requests_{0};
  std::mutex mutex_;
  std::unordered_set<int> sockets_;  // open; guarded by mutex_
};

}  // namespace polykv
