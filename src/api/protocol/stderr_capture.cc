#include "api/protocol/stderr_capture.h"

#include <unistd.h>

namespace polykv {

StderrCapture::StderrCapture() : file_(std::tmpfile()) {
  if (file_ == nullptr) return;
  std::fflush(stderr);
  saved_ = dup(STDERR_FILENO);
  dup2(fileno(file_), STDERR_FILENO);
}

std::string StderrCapture::Stop() {
  std::string text;
  if (file_ == nullptr) return text;
  std::fflush(stderr);
  dup2(saved_, STDERR_FILENO);
  close(saved_);
  std::rewind(file_);
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), file_)) > 0;)
    text.append(buffer, n);
  std::fclose(file_);
  file_ = nullptr;
  return text;
}

}  // namespace polykv
