#include "llama/slot_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "llama.h"

namespace polykv {
namespace {

// Of packed tokens: no token, the version, their number, the tokens, the number of media.
constexpr Token kPackedMark = LLAMA_TOKEN_NULL;
constexpr Token kPackedVersion = 1;
constexpr size_t kPackedHeader = 3;
constexpr size_t kPackedExtra = kPackedHeader + 1;

Problem NotASlotFile() {
  return InvalidRequest("No available space in KV cache or invalid slot save file");
}

// The words between libllama's header and the state.
Result<std::vector<Token>> ReadPayload(const std::string& path) {
  std::error_code error;
  const auto file_size = static_cast<uint64_t>(std::filesystem::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  std::array<uint32_t, 3> header = {};  // magic, version, number of words
  if (error || !file.read(reinterpret_cast<char*>(header.data()), sizeof(header))) {
    return NotASlotFile();
  }
  const uint64_t n_bytes = uint64_t{header[2]} * sizeof(Token);
  if (header[0] != LLAMA_STATE_SEQ_MAGIC || header[1] != LLAMA_STATE_SEQ_VERSION ||
      n_bytes > file_size - sizeof(header)) {
    return NotASlotFile();
  }
  std::vector<Token> words(header[2]);
  file.read(reinterpret_cast<char*>(words.data()), static_cast<std::streamsize>(n_bytes));
  if (!file) return NotASlotFile();
  return words;
}

Result<std::vector<Token>> Unpack(std::vector<Token> words) {
  if (words.empty() || words[0] != kPackedMark) return words;
  if (words.size() < kPackedHeader) {
    return InvalidRequest("Unexpected end of server tokens state");
  }
  if (words[1] != kPackedVersion) {
    return InvalidRequest("Unsupported server tokens state version");
  }
  const uint64_t n_words = uint64_t{static_cast<uint32_t>(words[2])} + kPackedExtra;
  if (words.size() < n_words) return InvalidRequest("Unexpected end of server tokens state");
  if (words[n_words - 1] != 0) {
    return InvalidRequest("Cannot restore media tokens without an mmproj");
  }
  if (words.size() > n_words) return InvalidRequest("Trailing data in server tokens state");
  return std::vector<Token>(words.begin() + kPackedHeader, words.end() - 1);
}

}  // namespace

std::vector<Token> PackTokens(std::span<const Token> tokens) {
  std::vector<Token> packed = {kPackedMark, kPackedVersion, static_cast<Token>(tokens.size())};
  packed.insert(packed.end(), tokens.begin(), tokens.end());
  packed.push_back(0);
  return packed;
}

size_t PackedSize(int32_t n_tokens) { return static_cast<size_t>(n_tokens) + kPackedExtra; }

Result<std::vector<Token>> ReadTokensOfSlotFile(const std::string& path, int32_t n_vocab) {
  Result<std::vector<Token>> words = ReadPayload(path);
  if (!words.ok()) return words;
  Result<std::vector<Token>> tokens = Unpack(std::move(words.value()));
  if (!tokens.ok()) return tokens;
  const bool valid = std::all_of(tokens.value().begin(), tokens.value().end(),
                                 [=](Token token) { return token >= 0 && token < n_vocab; });
  if (!valid) return InvalidRequest("Invalid tokens in slot save file");
  return tokens;
}

}  // namespace polykv
