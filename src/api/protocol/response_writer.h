// Turns what the engine delivers into the bytes of one HTTP response, in the shape of its endpoint:
// llama-server's native one, OpenAI completions, chat and Responses, Anthropic messages.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "session/request.h"

namespace polykv {

// One per request; used by one thread at a time. Any call may throw std::exception when generated
// text does not parse as the chat format promises.
class ResponseWriter {
 public:
  struct Plan;  // protocol/response_plan.h

  explicit ResponseWriter(Plan plan);
  ~ResponseWriter();

  // Appends the server-sent events for one event of generation `index`, if there is anything to
  // send. When it throws, what it had appended is still due. REQUIRES: event holds no Problem.
  void StreamText(size_t index, const GenerationEvent& event, std::string* out);

  // What closes a stream in which every generation has finished; may be empty.
  std::string StreamEnd() const;

  // `error`: the object that goes under "error" in a plain answer.
  std::string StreamError(const std::string& error) const;

  // The body of a response that is not streamed. `results` are in request order, one per
  // generation.
  std::string Body(std::vector<Finished> results);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace polykv
