#include "llama/slot_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
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

using Header = std::array<uint32_t, 3>;  // magic, version, number of words before the state

uint64_t StateOffset(const Header& header) {
  return sizeof(Header) + uint64_t{header[2]} * sizeof(Token);
}

uint64_t FileSize(const std::string& path) {  // 0: there is none
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<uint64_t>(size);
}

std::optional<Header> ReadHeader(std::ifstream& file, uint64_t file_size) {
  Header header = {};
  if (!file.read(reinterpret_cast<char*>(header.data()), sizeof(header))) return std::nullopt;
  const bool valid = header[0] == LLAMA_STATE_SEQ_MAGIC && header[1] == LLAMA_STATE_SEQ_VERSION &&
                     StateOffset(header) <= file_size;
  return valid ? std::optional(header) : std::nullopt;
}

Result<std::vector<Token>> ReadWords(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::optional<Header> header = ReadHeader(file, FileSize(path));
  if (!header.has_value()) return NotASlotFile();
  std::vector<Token> words((*header)[2]);
  file.read(reinterpret_cast<char*>(words.data()),
            static_cast<std::streamsize>(words.size() * sizeof(Token)));
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

Result<std::vector<Token>> ReadTokensOfSlotFile(const std::string& path, int32_t n_vocab) {
  Result<std::vector<Token>> words = ReadWords(path);
  if (!words.ok()) return words;
  Result<std::vector<Token>> tokens = Unpack(std::move(words.value()));
  if (!tokens.ok()) return tokens;
  const bool valid = std::all_of(tokens.value().begin(), tokens.value().end(),
                                 [=](Token token) { return token >= 0 && token < n_vocab; });
  if (!valid) return InvalidRequest("Invalid tokens in slot save file");
  return tokens;
}

std::vector<uint8_t> ReadStateOfSlotFile(const std::string& path, size_t n_before) {
  std::ifstream file(path, std::ios::binary);
  const uint64_t file_size = FileSize(path);
  const std::optional<Header> header = ReadHeader(file, file_size);
  if (!header.has_value()) return {};
  const uint64_t n_bytes = file_size - StateOffset(*header);
  std::vector<uint8_t> state(n_before + n_bytes);
  file.seekg(static_cast<std::streamoff>(StateOffset(*header)));
  file.read(reinterpret_cast<char*>(state.data() + n_before),
            static_cast<std::streamsize>(n_bytes));
  return file ? state : std::vector<uint8_t>();
}

}  // namespace polykv
