// The prefix of messages, and what is appended to it, under every chat template that comes with
// llama.cpp, with the vocabulary of the model in $POLYKV_TEST_MODEL.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "api/protocol/appended_messages.h"
#include "api/protocol/messages_prefix.h"
#include "api/protocol/text_tools.h"
#include "api/protocol/vocabulary_test_support.h"
#include "common.h"

namespace polykv {
namespace {

using Messages = std::vector<Json>;
using Tokens = std::vector<Token>;

Json Turn(const char* role, const char* text) { return {{"role", role}, {"content", text}}; }

Json Call(const char* id) {
  return {{"role", "assistant"},
          {"content", ""},
          {"tool_calls",
           Json::array(
               {{{"id", id},
                 {"type", "function"},
                 {"function", {{"name", "get_colour"}, {"arguments", R"({"thing":"sky"})"}}}}})}};
}

Json ToolResult(const char* id, const char* text) {
  return {{"role", "tool"}, {"tool_call_id", id}, {"name", "get_colour"}, {"content", text}};
}

const Json kSystem = Turn("system", "You know this: the sky is green.");
const Json kUser = Turn("user", "Which colour has the sky?");
const Json kAnswer = Turn("assistant", "It is green.");
const Json kCall = Call("abcdef123");
const Json kResult = ToolResult("abcdef123", "The record says green.");
const Json kNextUser = Turn("user", "What about grass?");
const Json kNextAnswer = Turn("assistant", "That too.");
const Json kNextCall = Call("ghijkl456");
const Json kNextResult = ToolResult("ghijkl456", "42");
const Json kTools = Json::parse(R"([{"type": "function", "function": {
    "name": "get_colour", "description": "Looks a colour up.",
    "parameters": {"type": "object", "properties": {"thing": {"type": "string"}},
                   "required": ["thing"]}}}])");

Messages Joined(Messages list, const Messages& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

// What later requests add to a list that ends in `last`: next user, answer, tool result.
std::vector<Messages> LaterTurns(const Json& last, bool tools) {
  if (last.contains("tool_calls")) {
    return {{kResult},
            {ToolResult("abcdef123", "42")},
            {kResult, kNextAnswer, kNextUser},
            {ToolResult("abcdef123", "{\"colour\":1}"), kNextCall, kNextResult}};
  }
  const bool before_answer = last["role"] == "user" || last["role"] == "tool";
  const Messages called = {kNextCall, kNextResult};
  std::vector<Messages> all = {{kNextUser},
                               {Turn("user", "1 + 1?"), kNextAnswer, Turn("user", "Sure?")}};
  if (before_answer) {
    all.push_back({});
    all.push_back({kNextAnswer, kNextUser});
  }
  if (tools) all.push_back(before_answer ? called : Joined({kNextUser}, called));
  return all;
}

// One template, and what it makes of lists of messages; each is computed once.
class Subject {
 public:
  Subject(const llama_model* weights, const std::filesystem::path& file) : name_(file.stem()) {
    std::ifstream stream(file);
    params_.chat_template = {std::istreambuf_iterator<char>(stream), {}};
    params_.use_jinja = true;
    Result<std::unique_ptr<ServedModel>> model =
        ServedModel::Make({.params = &params_, .model = weights, .make_sampler = {}});
    if (!model.ok()) throw std::runtime_error(name_ + ": " + model.problem().message);
    model_ = std::move(model.value());
  }

  const std::string& name() const { return name_; }

  // The tokens of a chat request; nothing if the template refuses it.
  const std::optional<Tokens>& Prompt(const Messages& messages, bool tools) {
    const std::string body = JsonText(Body(messages, tools));
    const auto [entry, is_new] = prompts_.try_emplace(body);
    if (!is_new) return entry->second;
    Result<std::string> rendered = ApplyTemplateBody(*model_, body);
    if (rendered.ok()) {
      entry->second = TokenizePrompt(*model_, Json::parse(rendered.value())["prompt"]).value();
    }
    return entry->second;
  }

  const Result<MessagesPrefix>& Prefix(const Messages& messages, bool tools) {
    const Json body = Body(messages, tools);
    const auto found = prefixes_.find(JsonText(body));
    if (found != prefixes_.end()) return found->second;
    return prefixes_.emplace(JsonText(body), ComputeMessagesPrefix(*model_, body)).first->second;
  }

  Result<MessagesPrefix> Appended(std::span<const Token> parent, const Messages& appended,
                                  bool tools) {
    Json body = {{"append_messages", appended}};
    if (tools) body["tools"] = kTools;
    return ComputeAppendedMessages(*model_, body, parent);
  }

  std::string Text(const Tokens& tokens) const {
    return Json::parse(DetokenizeBody(*model_, JsonText({{"tokens", tokens}})).value())["content"];
  }

 private:
  static Json Body(const Messages& messages, bool tools) {
    Json body = {{"messages", messages}};
    if (tools) body["tools"] = kTools;
    return body;
  }

  std::string name_;
  common_params params_;
  std::unique_ptr<ServedModel> model_;
  std::map<std::string, std::optional<Tokens>> prompts_;
  std::map<std::string, Result<MessagesPrefix>> prefixes_;
};

// How `prefix` relates to every later request that the template takes; empty if it is right.
std::string Fault(Subject* subject, const Messages& messages, bool tools, const Tokens& prefix,
                  bool has_break) {
  std::optional<Tokens> any, common;
  for (const Messages& turns : LaterTurns(messages.back(), tools)) {
    const std::optional<Tokens>& later = subject->Prompt(Joined(messages, turns), tools);
    if (!later.has_value()) continue;
    if (!any.has_value()) any = common = later;
    const auto end = std::mismatch(common->begin(), common->end(), later->begin(), later->end());
    common->erase(end.first, common->end());
  }
  if (!common.has_value()) return "a prefix, but no later request";
  const bool is_true =
      prefix.size() <= common->size() && std::equal(prefix.begin(), prefix.end(), common->begin());
  if (!is_true) return "later requests differ before its end";
  if (prefix.size() + 8 < common->size()) return "needlessly short";
  const std::string words = messages.back()["content"];
  // The last character may be cut together with what follows, and a template may not write it.
  const std::string said = words.substr(0, words.empty() ? 0 : words.size() - 1);
  const bool writes = subject->Text(*any).find(said) != std::string::npos;
  const bool complete = subject->Text(prefix).find(said) != std::string::npos;
  if (writes && !complete && !has_break) return "ends before the messages, and does not say so";
  return "";
}

struct Row {
  std::string what;
  std::string fault;   // empty: none
  bool given = false;  // tokens, not a refusal
};

struct Case {
  const char* name;
  Messages messages;
  bool tools;
};

struct AppendCase {
  const char* name;
  Messages parent, appended;
  bool tools;
};

Row CheckPrefix(Subject* subject, const Case& check) {
  Row row = {.what = subject->name() + ": " + check.name};
  const Result<MessagesPrefix>& prefix = subject->Prefix(check.messages, check.tools);
  if (!prefix.ok()) {
    bool usable = false;
    for (const Messages& turns : LaterTurns(check.messages.back(), check.tools)) {
      usable |= subject->Prompt(Joined(check.messages, turns), check.tools).has_value();
    }
    const bool clear = prefix.problem().status == 400 && !prefix.problem().message.empty();
    if (usable || !clear) row.fault = "refused: " + prefix.problem().message;
    return row;
  }
  row.given = true;
  const bool broken = prefix.value().template_break.has_value();
  row.fault = Fault(subject, check.messages, check.tools, prefix.value().tokens, broken);
  return row;
}

Row CheckAppended(Subject* subject, const AppendCase& check) {
  Row row = {.what = subject->name() + ": " + check.name};
  const Result<MessagesPrefix>& parent = subject->Prefix(check.parent, check.tools);
  if (!parent.ok()) return row;
  Tokens tokens = parent.value().tokens;
  const Result<MessagesPrefix> appended = subject->Appended(tokens, check.appended, check.tools);
  if (!appended.ok()) {
    const bool clear = appended.problem().status == 400 && !appended.problem().message.empty();
    if (!clear) row.fault = "refused: " + appended.problem().message;
    return row;
  }
  row.given = true;
  const bool broken = appended.value().template_break.has_value();
  tokens.insert(tokens.end(), appended.value().tokens.begin(), appended.value().tokens.end());
  if (broken && *appended.value().template_break != static_cast<int32_t>(tokens.size())) {
    row.fault = "the break is not at the end";
    return row;
  }
  row.fault = Fault(subject, Joined(check.parent, check.appended), check.tools, tokens, broken);
  return row;
}

class PrefixTemplatesTest : public VocabularyTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(VocabularyTest::SetUp());
    std::set<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(POLYKV_TEMPLATES)) {
      if (entry.path().extension() == ".jinja") files.insert(entry.path());
    }
    files_ = {files.begin(), files.end()};
    ASSERT_GE(files_.size(), 60U);
  }

  // Runs `check` on every case with each template, on two threads.
  template <typename Cases, typename Check>
  std::vector<Row> ForEachTemplate(const Cases& cases, const Check& check) {
    std::vector<std::vector<Row>> rows(files_.size());
    const auto work = [&](size_t first) {
      for (size_t i = first; i < files_.size(); i += 2) {
        Subject subject(vocabulary_.get(), files_[i]);
        for (const auto& checked : cases) rows[i].push_back(check(&subject, checked));
      }
    };
    std::thread other(work, 1);
    work(0);
    other.join();
    std::vector<Row> all;
    for (std::vector<Row>& some : rows) all.insert(all.end(), some.begin(), some.end());
    return all;
  }

  static void ExpectNoFault(const std::vector<Row>& rows) {
    std::string table;
    size_t n_given = 0;
    for (const Row& row : rows) {
      if (!row.fault.empty()) table += row.what + ": " + row.fault + "\n";
      n_given += row.given ? 1 : 0;
    }
    EXPECT_TRUE(table.empty()) << table;
    EXPECT_GE(10 * n_given, 9 * rows.size()) << "most templates allow it";
  }

  std::vector<std::filesystem::path> files_;
};

TEST_F(PrefixTemplatesTest, EveryLaterRequestBeginsWithThePrefixOrTheAnswerSaysWhyNot) {
  const std::vector<Case> cases = {
      {"user", {kUser}, false},
      {"system, user", {kSystem, kUser}, false},
      {"system, user, assistant", {kSystem, kUser, kAnswer}, false},
      {"tools, system", {kSystem}, true},
      {"tools, system, user, call, result", {kSystem, kUser, kCall, kResult}, true},
  };
  ExpectNoFault(ForEachTemplate(cases, CheckPrefix));
}

TEST_F(PrefixTemplatesTest, AppendedMessagesContinueThePrefixAsTheWholeListWould) {
  const std::vector<AppendCase> cases = {
      {"system + user", {kSystem}, {kUser}, false},
      {"system, user + assistant", {kSystem, kUser}, {kAnswer}, false},
      {"tools, system, user, call + result", {kSystem, kUser, kCall}, {kResult}, true},
  };
  ExpectNoFault(ForEachTemplate(cases, CheckAppended));
}

}  // namespace
}  // namespace polykv
