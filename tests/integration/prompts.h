// Real prompts: text from documents, then a question about it.
#pragma once

#include <array>
#include <cstdint>

namespace polykv {

struct Prompt {
  int32_t n_prefix;  // tokens of text
  const char* question;
};
inline constexpr std::array<Prompt, 20> kPrompts = {{
    {64, "Question: What is this text about?\nAnswer:"},
    {68, "Question: Who is the reader of this page?\nAnswer:"},
    {72, "Summarize the text above in one sentence."},
    {77, "Question: Which tool does the author recommend?\nAnswer:"},
    {83, "Translate the last sentence into French."},
    {90, "Question: Name one requirement that is mentioned.\nAnswer:"},
    {97, "Please list the three most important points."},
    {105, "Question: Is there an example in the text?\nAnswer:"},
    {113, "Explain this to a beginner."},
    {122, "Question: What should a user do first?\nAnswer:"},
    {133, "Write a title for this section."},
    {150, "Question: Which platforms are supported?\nAnswer:"},
    {170, "What is missing from this description?"},
    {200, "Question: What can go wrong here?\nAnswer:"},
    {233, "Give me the command that was shown last."},
    {270, "Question: How many options are there?\nAnswer:"},
    {330, "Rewrite the last paragraph in simple words."},
    {450, "Question: What is the default value?\nAnswer:"},
    {700, "Who would be interested in this?"},
    {1500, "Question: What is the main idea?\nAnswer:"},
}};

}  // namespace polykv
