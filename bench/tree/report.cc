#include "tree/report.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <fstream>

namespace polykv {

void Say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
}

Row::Row(const std::string& table) : text_("{\"table\": \"" + table + "\"") {}

Row::~Row() {
  std::printf("%s}\n", text_.c_str());
  std::fflush(stdout);
}

Row& Row::Add(const std::string& name, const std::string& plain) {
  text_ += ", \"" + name + "\": \"" + plain + "\"";
  return *this;
}

Row& Row::Add(const std::string& name, double value) {
  text_ += ", \"" + name + "\": " + std::to_string(value);
  return *this;
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace polykv
