// What the program says: a line of progress on stderr, a result as one line of JSON on stdout.
#pragma once

#include <cstdint>
#include <string>

namespace polykv {

// printf's format; the line is ended here.
[[gnu::format(printf, 1, 2)]] void Say(const char* format, ...);

// One flat JSON object, printed when it goes.
class Row {
 public:
  explicit Row(const std::string& table);
  ~Row();
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  Row& Add(const std::string& name, const std::string& plain);  // neither has a character to escape
  Row& Add(const std::string& name, double value);

 private:
  std::string text_;
};

int64_t ResidentBytes();  // memory that this process holds now

}  // namespace polykv
