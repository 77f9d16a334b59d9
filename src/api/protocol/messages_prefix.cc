#include "api/protocol/messages_prefix.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "api/protocol/chat_turns.h"
#include "api/protocol/model_state.h"
#include "server-common.h"

namespace polykv {
namespace {

// First bytes of a text that merge differently with the token before them.
constexpr const char* kOpenings[] = {"Zq", "0", " x", "\n\ny", "<w", "\xE6\x97\xA5"};
constexpr size_t kMergeReach = 16;  // bytes; no token before that depends on a text

std::string Render(const ServedModel::State& model, const Json& body) {
  common_json chat = common_json::parse(JsonText(body));
  std::vector<raw_buffer> files;
  return oaicompat_chat_params_parse(chat, model.chat, files).at("prompt").get<std::string>();
}

template <typename Sequence>
size_t CommonPrefix(const Sequence& a, const Sequence& b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(end - a.begin());
}

// A text that is not in the messages.
std::string FreshProbe(const Json& messages) {
  const std::string text = JsonText(messages);
  std::string probe = "a7f3";
  while (text.find(probe) != std::string::npos) probe += "a7";
  return probe;
}

struct Rendered {
  std::vector<std::string> texts;  // not empty
  bool first_is_trimmed = false;   // the template drops space before the probe in the first
};

// What requests that begin with the messages of `body` are rendered to, as far as the template
// takes them; throws what it says about the first if it takes none.
Rendered RenderLater(const ServedModel::State& model, const Json& body, const std::string& probe) {
  Rendered rendered;
  std::exception_ptr refusal;
  const Json tools = body.value("tools", Json());
  const std::vector<Continuation> all = Continuations(body["messages"], tools, probe);
  for (const Continuation& continuation : all) {
    Json request = body;
    for (const Json& turn : continuation.turns) request["messages"].push_back(turn);
    request["add_generation_prompt"] = continuation.generation_prompt;
    try {
      std::string text = Render(model, request);
      rendered.first_is_trimmed =
          &continuation == &all.back() && text.find(kLeadingSpace + probe) == std::string::npos;
      rendered.texts.push_back(std::move(text));
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception&) {
      if (refusal == nullptr) refusal = std::current_exception();
    }
  }
  if (rendered.texts.empty()) std::rethrow_exception(refusal);
  return rendered;
}

std::string Replaced(std::string text, const std::string& from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Adds the same texts with other first bytes of what comes next, where that can matter: close
// behind what all of them begin with.
void AddOpenings(const std::string& probe, Rendered* rendered) {
  std::vector<std::string>& texts = rendered->texts;
  size_t n_common = texts[0].size();
  for (const std::string& text : texts) n_common = std::min(n_common, CommonPrefix(texts[0], text));
  const size_t n_rendered = texts.size();
  for (size_t i = 0; i < n_rendered; ++i) {
    const size_t at = texts[i].find(probe);
    if (at == std::string::npos || at > n_common + kMergeReach) continue;
    for (const std::string_view opening : kOpenings) {
      const bool trimmed = i == 0 && rendered->first_is_trimmed && Trim(opening) != opening;
      if (!trimmed) texts.push_back(Replaced(texts[i], probe, opening));
    }
  }
}

// What stands near the end of the last message, whatever the template: the name of the tool that
// it calls, or its text, of several parts the last; empty if there is neither.
std::string LastWords(const Json& messages) {
  const std::vector<Json> calls = OpenCalls(messages);
  if (!calls.empty()) return ResultTurn(calls.back(), "").value("name", "");
  const Json& message = messages.back();
  const Json content = message.is_object() ? message.value("content", Json()) : Json();
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array() || content.empty() || !content.back().is_object()) return "";
  const Json text = content.back().value("text", Json());
  return text.is_string() ? text.get<std::string>() : "";
}

// Where the messages end in `render`, the prompt of a request that goes on with `probe`: after
// their last words, or where the render of the messages alone goes another way.
size_t MessagesEnd(const ServedModel::State& model, const Json& body, const std::string& probe,
                   const std::string& render) {
  const size_t next = render.rfind(probe);
  const std::string words = LastWords(body["messages"]);
  const std::string_view wanted = Trim(words);
  if (!wanted.empty() && next != std::string::npos) {
    const size_t found = render.rfind(wanted, next);
    if (found != std::string::npos) return found + wanted.size();
  }
  Json alone = body;
  alone["add_generation_prompt"] = false;
  try {
    return CommonPrefix(render, Render(model, alone));
  } catch (const std::exception&) {
    return 0;  // the template refuses to end there: nothing to compare with
  }
}

Result<MessagesPrefix> Compute(const ServedModel::State& model, const Json& body) {
  const std::string probe = FreshProbe(body["messages"]);
  Rendered rendered = RenderLater(model, body, probe);
  AddOpenings(probe, &rendered);
  const std::vector<std::string>& texts = rendered.texts;
  const auto tokenize = [&model](const std::string& text) {
    return common_tokenize(model.vocab, text, /*add_special=*/true, /*parse_special=*/true);
  };
  MessagesPrefix prefix;
  prefix.tokens = tokenize(texts[0]);
  size_t common = prefix.tokens.size();
  for (size_t i = 1; i < texts.size(); ++i) {
    common = std::min(common, CommonPrefix(prefix.tokens, tokenize(texts[i])));
  }
  if (common == 0) return InvalidRequest("The chat template gives these messages no fixed prefix");

  // The token at the end may be cut differently in the whole, so one token of slack.
  const llama_tokens whole =
      tokenize(texts[0].substr(0, MessagesEnd(model, body, probe, texts[0])));
  if (common + 1 < CommonPrefix(whole, prefix.tokens)) {
    prefix.template_break = static_cast<int32_t>(common);
  }
  prefix.tokens.resize(common);
  return prefix;
}

}  // namespace

Result<MessagesPrefix> ComputeMessagesPrefix(const ServedModel& model, const Json& chat_body) {
  const auto messages = chat_body.find("messages");
  if (messages == chat_body.end() || !messages->is_array() || messages->empty()) {
    return InvalidRequest("Field 'messages': must be a list of at least one message");
  }
  return ClientFault<MessagesPrefix>([&] { return Compute(model.state(), chat_body); });
}

}  // namespace polykv
