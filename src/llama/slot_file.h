// The tokens in llama-server's slot files: what its server_tokens::serialize writes in front of the
// memory's state, for text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace polykv {

std::vector<Token> PackTokens(std::span<const Token> tokens);

// The tokens of a file that libllama wrote with packed tokens, or with plain ones as earlier
// llama-servers had them; each in [0, n_vocab). The state behind them is not looked at.
Result<std::vector<Token>> ReadTokensOfSlotFile(const std::string& path, int32_t n_vocab);

// The state behind the tokens, with `n_before` zero bytes in front of it. Empty if it cannot be
// read.
std::vector<uint8_t> ReadStateOfSlotFile(const std::string& path, size_t n_before);

}  // namespace polykv
