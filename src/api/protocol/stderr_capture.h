// What a library writes to stderr, as text.
#pragma once

#include <cstdio>
#include <string>

namespace polykv {

// Catches the process's stderr from construction to Stop. One at a time.
class StderrCapture {
 public:
  StderrCapture();
  ~StderrCapture() { Stop(); }
  StderrCapture(const StderrCapture&) = delete;
  StderrCapture& operator=(const StderrCapture&) = delete;

  // Gives stderr back and returns what was written; empty when called again.
  std::string Stop();

 private:
  std::FILE* file_;  // null: nothing is caught
  int saved_ = -1;   // the real stderr
};

}  // namespace polykv
