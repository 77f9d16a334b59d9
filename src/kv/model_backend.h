// What the engine asks of a model: KV sequences, decoding, text. Implemented by llama/ on libllama
// and by kv/fake_backend; tests/conformance runs the same suite on both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "kv/adapter_set.h"
#include "kv/drafter.h"
#include "kv/step_batch.h"

namespace polykv {

// Which beginning of a sequence another one can share.
enum class Sharing {
  kAnyPosition,  // plain attention: any
  kWindow,       // a sliding window: any behind which the window is still there (pool/share_rule)
  kAtTip,        // a recurrent state, alone or beside cells: the whole sequence only
  kOff,          // none; `ModelInfo::sharing_reason` says why
};

// One of the memories that a model has for what it has read.
struct MemoryUse {
  std::string name;  // "attn", "swa" (cells of layers with a window), "recurrent" (states)
  int32_t used = 0;  // cells or states that some sequence holds
  int32_t total = 0;
  int64_t bytes = 0;  // of all, used or not
};

struct ModelInfo {
  int32_t n_vocab = 0;
  int32_t n_ctx = 0;        // cells of the cache
  int32_t n_ctx_seq = 0;    // what one sequence may hold as the cache is laid out
  int32_t n_ctx_train = 0;  // 0: unknown
  int32_t n_seq_max = 0;    // every SeqId is below it, always
  int32_t n_batch = 0;      // largest StepBatch
  int32_t n_ubatch = 0;     // tokens that are computed together
  int64_t bytes_per_cell = 0;
  int64_t reserve_bytes = 0;       // of the memory: what the sequences beyond the slots take
  int64_t bytes_per_sequence = 0;  // and what one more would
  bool unified = true;  // one stream of cells; false: a buffer per sequence, a share is a copy
  Sharing sharing = Sharing::kAnyPosition;
  std::string sharing_reason;    // of kOff: "no_cells", "self_test"; else empty
  int32_t n_swa = 0;             // sliding window, 0: none or kept whole
  int32_t saved_window = 0;      // SaveState leaves out a window's cells before the last so many
                                 // positions; 0: it leaves out none
  bool generates = true;         // false: no cells and no logits, so Embed only
  bool pooled = false;           // Embed gives a vector per sequence, else one per token
  bool embeds_in_parts = false;  // several Embed may compute a sequence, else one does
  bool can_shift = true;         // ShiftPositions works
  bool removes_ends = true;      // RemoveRange can remove the end of a sequence that it computed
  int32_t n_adapters = 0;        // LoRA adapters that are loaded, ids from 0
};

// Which part of a sequence's memory a saved state is of.
enum class StateParts {
  kAll,
  kUnremovable,  // what RemoveRange cannot take back: window and recurrent state; small
};

enum class DecodeStatus {
  kOk,
  kNoRoom,  // no free cells for the batch; nothing changed
  kFailed,  // invalid batch or compute error; the batch's cells are gone, earlier ones stay
};

struct TokenCandidate {
  Token token;
  std::string text;
  float probability;
};

struct SampledToken {
  Token token = 0;
  float probability = 1.0F;         // filled when top is
  std::vector<TokenCandidate> top;  // most probable first, only when the request asked for it
};

// One stream's sampling state. Made on any thread, then used by one thread at a time.
class Sampler {
 public:
  virtual ~Sampler() = default;

  // Tells the sampler the whole prompt, in order (penalties look back at it). Once, before Sample.
  // Takes milliseconds for a long prompt: not on the engine thread.
  virtual void AcceptPrompt(std::span<const Token> prompt) = 0;

  // Samples at `output_index`, an index into the batch of the backend's last Decode whose `output`
  // was set, and accepts the token.
  virtual SampledToken Sample(int32_t output_index) = 0;

  // The same at `output_index` and the outputs right behind it, one for each token of `draft`, as
  // long as the sample is what the draft says. Returns at least one token: those that the draft had
  // right, then the one after them. Nothing follows a token that ends a generation before the end
  // of the draft.
  virtual std::vector<SampledToken> SampleAlong(int32_t output_index,
                                                std::span<const Token> draft) = 0;

  // From the next Sample on, the model is made to close its thinking. Nothing happens if it is not
  // thinking, or if the request did not ask for a sampler that can do this.
  virtual void EndReasoning() = 0;

  // Whether a sample may take milliseconds (a grammar, candidates for the client, no top-k).
  virtual bool is_slow() const { return false; }
};

// One stream's part in ModelBackend::Sample.
struct SampleJob {
  Sampler* sampler = nullptr;
  int32_t output_index = 0;
  std::span<const Token> draft = {};
  std::vector<SampledToken> sampled = {};  // result: as SampleAlong gives it
  std::string fault = {};                  // or why there is none, e.g. a grammar without a way on

  void Run();
};

// Engine thread only, except where said.
class ModelBackend {
 public:
  virtual ~ModelBackend() = default;

  virtual const ModelInfo& info() const = 0;  // any thread; constant

  // Adds `dst` to the cells of `src` in [p0, p1), p1 may be kToEnd. In a unified cache that is
  // metadata only; in a split one `dst` gets its own copy, and everything of it is copied.
  // A recurrent state has no range: whatever is asked, `dst` gets the state that `src` has at its
  // end, in place of its own. So [0, p1) is a prefix only if p1 is the length of `src`; and what
  // was parked as [p, kToEnd) comes back by sharing [0, p) first and [p, kToEnd) then.
  // REQUIRES: info().sharing is not kOff, dst holds no cell in [p0, p1), both ids < n_seq_max; in a
  // split cache p0 is 0, dst is empty and, with kAtTip, p1 is all of `src`.
  virtual void ShareRange(SeqId src, SeqId dst, Pos p0, Pos p1) = 0;

  // `dst` holds what `src` holds: the same cells in a unified cache, a copy of all of them in a
  // split one. Every memory can, a recurrent one too.
  // REQUIRES: dst holds nothing, both ids < n_seq_max.
  virtual void CloneSequence(SeqId src, SeqId dst) = 0;

  // Removes `seq` from its cells in [p0, p1) (p1 = kToEnd: all from p0); cells that nobody holds
  // are free then. False if this memory cannot remove a part of a sequence, or not as long as
  // another one stands at the same recurrent state; nothing changed then. Removing a whole sequence
  // never fails. No other sequence changes, ever.
  virtual bool RemoveRange(SeqId seq, Pos p0, Pos p1) = 0;

  // Adds `delta` to the positions of `seq` in [p0, p1). No two cells of it may meet in one place.
  // REQUIRES: info().can_shift; no other sequence holds a cell of them.
  virtual void ShiftPositions(SeqId seq, Pos p0, Pos p1, Pos delta) = 0;

  // Lowest position that `seq` still has cells for; -1 if it has none. Of a window it rises when
  // other sequences compute and take the cells that no window of `seq` reaches any more.
  virtual Pos MinPos(SeqId seq) const = 0;

  // Where the used cells of the attention end: the highest index + 1, 0 if none is used, -1 if
  // unknown. A step passes over all cells below it; of a split cache it is the longest buffer's.
  virtual int32_t HighestCell() const = 0;

  // Every memory of the model; empty if unknown.
  virtual std::vector<MemoryUse> MemoryUses() const = 0;

  // Bytes that SaveState writes for what `seq` holds now, copies just made included.
  virtual size_t StateSize(SeqId seq, StateParts parts) const = 0;
  // REQUIRES: bytes.size() == StateSize(seq, parts).
  virtual void SaveState(SeqId seq, StateParts parts, std::span<uint8_t> bytes) const = 0;
  // Replaces those parts of what `seq` holds by what was saved, of this or another sequence, on
  // this backend. False if there are no cells for it: `seq` is to be removed whole then.
  virtual bool LoadState(SeqId seq, StateParts parts, std::span<const uint8_t> bytes) = 0;

  // Writes what `seq` holds, whose tokens are `tokens`, into a file in llama-server's format of
  // slot files. Its size in bytes.
  virtual Result<int64_t> SaveSequence(SeqId seq, std::span<const Token> tokens,
                                       const std::string& path) = 0;
  // The tokens in such a file, each in [0, n_vocab).
  virtual Result<std::vector<Token>> ReadSavedTokens(const std::string& path) const = 0;
  // Replaces what `seq` holds by the cells in the file, one for each of its `n_tokens` tokens.
  // The file's size in bytes. A Problem leaves everything as it was.
  // REQUIRES: `seq` shares no cell.
  virtual Result<int64_t> LoadSequence(SeqId seq, int32_t n_tokens, const std::string& path) = 0;

  // Every Decode from now on computes with `adapters`, the first ones with none. Cheap if nothing
  // changes. REQUIRES: every id in it < info().n_adapters.
  virtual void UseAdapters(const AdapterSet& adapters) = 0;

  // Computes the batch and writes its cells. Positions of each sequence continue what it holds.
  // REQUIRES: info().generates.
  virtual DecodeStatus Decode(const StepBatch& batch) = 0;

  // Like Decode, for vectors in place of logits: every entry is an output.
  // REQUIRES: loaded for embeddings; at most n_ubatch entries; each sequence starts at position 0
  // unless info().embeds_in_parts; in a split cache one sequence only.
  virtual DecodeStatus Embed(const StepBatch& batch) = 0;

  // What the last Embed gave for `seq` if info().pooled, else for the batch's entry
  // `output_index`, which is one of `seq`. Not normalized; empty if the model gave none.
  virtual std::vector<float> Vector(SeqId seq, int32_t output_index) const = 0;

  // Runs every job, on several threads where that is faster; each has its own sampler.
  virtual void Sample(std::span<SampleJob> jobs) = 0;

  // Null: no speculation. Lives as long as the backend and knows of its own what happens to the
  // sequences. With it, RemoveRange takes back the end of any sequence.
  virtual Drafter* drafter() = 0;

  virtual bool IsEndOfGeneration(Token token) const = 0;               // any thread
  virtual std::string TokenText(Token token, bool special) const = 0;  // any thread
  virtual std::vector<Token> Tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const = 0;  // any thread
};

}  // namespace polykv
