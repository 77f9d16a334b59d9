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
// Of what PackTokens makes of `n_tokens` tokens.
size_t PackedSize(int32_t n_tokens);

// The tokens of a file that libllama wrote with packed tokens, or with plain ones as earlier
// llama-servers had them; each in [0, n_vocab). The state behind them is not looked at.
Result<std::vector<Token>> ReadTokensOfSlotFile(const std::string& path, int32_t n_vocab);

}  // namespace polykv
