#include "app/options.h"

#include <gtest/gtest.h>

#include <map>

namespace polykv {
namespace {

Result<ParsedOptions> Parse(std::vector<std::string> arguments,
                            std::map<std::string, std::string> environment = {}) {
  arguments.insert(arguments.begin(), "polykv-server");
  return ParseOptions(arguments, [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(OptionsTest, DefaultsAndTheRestStays) {
  Result<ParsedOptions> parsed = Parse({"-m", "x.gguf", "-np", "4"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().options.max_pools, 16);
  EXPECT_EQ(parsed.value().options.max_sessions, -1);
  EXPECT_EQ(parsed.value().rest,
            (std::vector<std::string>{"polykv-server", "-m", "x.gguf", "-np", "4"}));
}

TEST(OptionsTest, BothSpellings) {
  Result<ParsedOptions> parsed =
      Parse({"--polykv-max-pools", "3", "-v", "--polykv-max-sessions=5"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().options.max_pools, 3);
  EXPECT_EQ(parsed.value().options.max_sessions, 5);
  EXPECT_TRUE(parsed.value().options.pools_given);
  EXPECT_EQ(parsed.value().rest, (std::vector<std::string>{"polykv-server", "-v"}));
}

TEST(OptionsTest, EnvironmentLosesToTheCommandLine) {
  Result<ParsedOptions> parsed =
      Parse({"--polykv-grace-ms", "5"}, {{"POLYKV_GRACE_MS", "7"}, {"POLYKV_DRAIN_MS", "9"}});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().options.grace_ms, 5);
  EXPECT_EQ(parsed.value().options.drain_ms, 9);
}

TEST(OptionsTest, MistakesAreOneLine) {
  const std::vector<std::vector<std::string>> cases = {
      {"--polykv-max-pool", "3"},   {"--polykv-max-pools"},          {"--polykv-max-pools", "x"},
      {"--polykv-max-pools", "-1"}, {"--polykv-max-pools", "255"},   {"--polykv-max-pools", "3x"},
      {"--polykv-max-pools="},      {"--polykv-prefill-chunk", "8"}, {"--polykv-grace-ms", "1e3"},
  };
  for (const auto& arguments : cases) {
    Result<ParsedOptions> parsed = Parse(arguments);
    ASSERT_FALSE(parsed.ok()) << arguments[0];
    EXPECT_NE(parsed.problem().message.find("--polykv-"), std::string::npos);
    EXPECT_EQ(parsed.problem().message.find('\n'), std::string::npos);
  }
}

TEST(OptionsTest, FlagsNeedNoValueAndTextsAreTaken) {
  const auto off = Parse({"--polykv-isolate-keys=0"}, {{"POLYKV_ISOLATE_KEYS", "1"}});
  EXPECT_FALSE(off.value().options.isolate_keys);
  const auto on = Parse({"--polykv-isolate-keys", "-v", "--polykv-admin-key", "k=1"});
  EXPECT_TRUE(on.value().options.isolate_keys);
  EXPECT_EQ(on.value().options.admin_key, "k=1");
  EXPECT_EQ(on.value().rest, (std::vector<std::string>{"polykv-server", "-v"}));
  EXPECT_TRUE(Parse({}, {{"POLYKV_ISOLATE_KEYS", "1"}}).value().options.isolate_keys);
  EXPECT_FALSE(Parse({}, {{"POLYKV_ISOLATE_KEYS", "yes"}}).ok());
  EXPECT_FALSE(Parse({"--polykv-admin-key="}).ok());
}

TEST(OptionsTest, AChoiceIsOneOfItsWords) {
  EXPECT_EQ(Parse({}).value().options.attention, "off");
  for (const char* word : {"auto", "on", "off"}) {
    EXPECT_EQ(Parse({"--polykv-attention", word}).value().options.attention, word);
  }
  for (const char* word : {"", "o", "of", "auto|on", "1"}) {
    EXPECT_FALSE(Parse({"--polykv-attention", word}).ok()) << word;
  }
}

TEST(OptionsTest, KeysThatCannotBeIsolatedAreRefused) {
  const std::vector<std::string> keys = {"a", "b"};
  EXPECT_FALSE(CheckKeys({}, {}).has_value());
  EXPECT_FALSE(CheckKeys({.isolate_keys = true}, keys).has_value());
  EXPECT_FALSE(CheckKeys({.isolate_keys = true, .admin_key = "c"}, keys).has_value());
  EXPECT_TRUE(CheckKeys({.isolate_keys = true}, {}).has_value());
  EXPECT_TRUE(CheckKeys({.admin_key = "c"}, keys).has_value());
  EXPECT_TRUE(CheckKeys({.isolate_keys = true, .admin_key = "b"}, keys).has_value());
}

TEST(OptionsTest, BadEnvironmentNamesTheVariable) {
  Result<ParsedOptions> parsed = Parse({}, {{"POLYKV_MAX_WAITING", "0"}});
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.problem().message.find("POLYKV_MAX_WAITING"), std::string::npos);
}

TEST(OptionsTest, HelpShowsEveryFlagAndDefault) {
  const std::string help = OptionsHelp();
  for (const char* text :
       {"--polykv-max-pools N", "(default: 16)", "POLYKV_SESSION_IDLE_MS", "--polykv-drain-ms N",
        "(default: 30000)", "--polykv-isolate-keys ", "--polykv-admin-key TEXT",
        "--polykv-attention auto|on|off", "(default: off)"}) {
    EXPECT_NE(help.find(text), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace polykv
