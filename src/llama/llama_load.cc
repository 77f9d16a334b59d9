#include "llama/llama_load.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "llama/llama_drafter.h"
#include "llama/memory_internals.h"
#include "llama/sharing_probe.h"
#include "log.h"
#include "speculative.h"

namespace polykv {
namespace {

constexpr int32_t kMaxSequences = 256;  // LLAMA_MAX_SEQ, which llama.h does not show

// What libllama keeps in host memory for each cell beside K and V, wherever those are
// (llama-kv-cells.h: pos, ext, shift, seq).
constexpr int64_t kCellRecordBytes = 52;

Problem LoadProblem(std::string message) {
  return {.status = 500, .type = "server_error", .message = std::move(message)};
}

std::string UnreadableReason(const std::string& path) {
  if (path.empty()) return "no model given: use -m FILE";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) return "cannot open model file '" + path + "': " + std::strerror(errno);
  return "";
}

// libllama fills the records of all cells before it asks for the memory of K and V, which is
// several times as much: an absurd context would bring the machine down instead of being refused.
bool ContextIsAbsurd(const common_params& params, int32_t n_seq_max) {
  int64_t n_cells = static_cast<uint32_t>(params.n_ctx);
  if (!params.kv_unified) n_cells = n_cells / params.n_parallel * n_seq_max;
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return n_cells * kCellRecordBytes > memory / 4;
}

bool IsEmbedding(const common_params& params) {
  return params.embedding || (params.pooling_type != LLAMA_POOLING_TYPE_UNSPECIFIED &&
                              params.pooling_type != LLAMA_POOLING_TYPE_NONE);
}

// The parameters of the context: llama-server's but for the number of sequences and what follows
// from it.
common_params WithSequences(common_params params, int32_t n_seq_max) {
  KeepSupportedDrafters(&params);
  // One output per sequence and decode, libllama insists on room for that many; more where a slot
  // has a draft to check.
  const common_speculative_output_limits outputs = common_speculative_get_output_limits(
      params.n_batch, params.n_parallel, common_speculative_n_max(&params.speculative));
  params.n_outputs_max = std::max(IsEmbedding(params) ? params.n_batch : outputs.total, n_seq_max);
  params.n_outputs_max_per_seq = IsEmbedding(params) ? 1 : std::max(1, outputs.per_seq);
  if (!params.kv_unified) {
    // What libllama would give each of n_parallel sequences (llama-context.cpp, n_ctx_seq).
    const int32_t n_ctx_seq = GGML_PAD(GGML_PAD(params.n_ctx, 256) / params.n_parallel, 256);
    params.n_ctx = n_ctx_seq * n_seq_max;
  }
  params.n_parallel = n_seq_max;
  if (params.sampling.backend_sampling) {
    // A sampler in the graph belongs to one sequence id; ours change hands between requests.
    LOG_WRN("%s: backend sampling is not supported, sampling on the CPU\n", __func__);
    params.sampling.backend_sampling = false;
  }
  return params;
}

// Quantized cells come in blocks that must divide what a head keeps of a token.
std::string CacheTypeHint(const common_params& params) {
  std::string types;
  for (const ggml_type type : {params.cache_type_k, params.cache_type_v}) {
    if (ggml_is_quantized(type)) types += std::string(" ") + ggml_type_name(type);
  }
  return types.empty() ? ""
                       : " (its heads may not divide into blocks of the cache type" + types + ")";
}

Problem ExplainFailure(const common_params& params, const common_init_result_ptr& loaded) {
  const std::string& path = params.model.path;
  if (loaded == nullptr || loaded->model() == nullptr) {
    return LoadProblem(
        "cannot load model '" + path +
        "': not a complete GGUF file, an unknown architecture, or too little memory");
  }
  const std::string tokens =
      params.n_ctx == 0 ? "the model's own size" : std::to_string(params.n_ctx) + " tokens";
  return LoadProblem("cannot create a context of " + tokens + " and " +
                     std::to_string(params.n_parallel) + " sequences for model '" + path +
                     "': too little memory, or an adapter or option that does not fit the model" +
                     CacheTypeHint(params));
}

std::string UnsupportedReason(const common_params& params, const llama_model* model,
                              const llama_context* context) {
  if (llama_model_has_encoder(model)) return "encoder-decoder models are not supported";
  if (llama_get_memory(context) == nullptr && !params.embedding) {
    return "it does not generate text (--embedding or --reranking serve what it can do)";
  }
  for (const common_adapter_lora_info& adapter : params.lora_adapters) {
    if (llama_adapter_get_alora_n_invocation_tokens(adapter.ptr) > 0) {
      return "adapter '" + adapter.path + "' is an activated LoRA, which this server does not do";
    }
  }
  return "";
}

// Whether the vector of a sequence hangs on its last token alone, which sees the others' cells.
bool EmbedsInParts(const llama_context* context) {
  if (llama_get_memory(context) == nullptr) return false;
  const enum llama_pooling_type pooling = llama_pooling_type(context);
  return pooling == LLAMA_POOLING_TYPE_LAST ||
         (pooling == LLAMA_POOLING_TYPE_RANK && llama_get_causal_attn(context));
}

// Cells of the window layers of a unified cache for `n_seq` sequences (llama-kv-cache-iswa.cpp).
int64_t WindowCells(const ModelInfo& info, int32_t n_seq) {
  const int64_t wanted = int64_t{info.n_swa} * n_seq + info.n_ubatch;
  return GGML_PAD(std::min<int64_t>(info.n_ctx, wanted), 256);
}

// What `use` would take if there were `n_seq` sequences.
int64_t BytesWith(int32_t n_seq, const MemoryUse& use, const ModelInfo& info) {
  if (!info.unified || use.name == "recurrent") return use.bytes / info.n_seq_max * n_seq;
  if (use.name != "swa" || info.n_swa == 0) return use.bytes;
  return use.bytes / use.total * WindowCells(info, n_seq);
}

void MeasureSequences(const std::vector<MemoryUse>& uses, int32_t n_parallel, ModelInfo* info) {
  for (const MemoryUse& use : uses) {
    if (use.total == 0) continue;
    info->reserve_bytes += use.bytes - BytesWith(n_parallel, use, *info);
    info->bytes_per_sequence += BytesWith(info->n_seq_max + 1, use, *info) - use.bytes;
  }
}

// Why loading need not be tried; empty: nothing speaks against it.
std::string RefusalReason(const common_params& params, int32_t n_seq_max) {
  if (n_seq_max > kMaxSequences) {
    return "slots, pools and sessions need " + std::to_string(n_seq_max) +
           " sequences, but llama.cpp has at most " + std::to_string(kMaxSequences);
  }
  if (!params.kv_unified && params.n_ctx == 0 && n_seq_max > params.n_parallel) {
    return "pools or sessions in a split cache need a context size: use -c N";
  }
  if (ggml_is_quantized(params.cache_type_v) &&
      params.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_DISABLED) {
    return std::string("a V cache of type ") + ggml_type_name(params.cache_type_v) +
           " needs flash attention: drop -fa off, or use -ctv f16";
  }
  const std::string unreadable = UnreadableReason(params.model.path);
  if (!unreadable.empty()) return unreadable;
  if (ContextIsAbsurd(params, n_seq_max)) {
    return "a context of " + std::to_string(params.n_ctx) + " tokens does not fit in memory";
  }
  return "";
}

}  // namespace

Result<common_init_result_ptr> LoadModel(common_params* params, int32_t n_seq_max) {
  POLYKV_CHECK(params->n_parallel >= 1 && params->n_parallel <= n_seq_max);
  const std::string refusal = RefusalReason(*params, n_seq_max);
  if (!refusal.empty()) return LoadProblem(refusal);

  const int32_t n_parallel = params->n_parallel;
  common_params raised = WithSequences(*params, n_seq_max);
  common_init_result_ptr loaded;
  try {
    loaded = common_init_from_params(raised);
  } catch (const std::exception& error) {
    return LoadProblem("cannot load model '" + params->model.path + "': " + error.what());
  }
  if (loaded == nullptr || loaded->model() == nullptr || loaded->context() == nullptr) {
    return ExplainFailure(raised, loaded);
  }
  const std::string unsupported = UnsupportedReason(raised, loaded->model(), loaded->context());
  if (!unsupported.empty()) {
    return LoadProblem("cannot serve model '" + params->model.path + "': " + unsupported);
  }
  *params = std::move(raised);
  params->n_parallel = n_parallel;
  return loaded;
}

ModelInfo DescribeModel(const llama_model* model, const llama_context* context,
                        const common_params& params) {
  ModelInfo info;
  info.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  info.n_ctx = static_cast<int32_t>(llama_n_ctx(context));
  info.n_ctx_seq = static_cast<int32_t>(llama_n_ctx_seq(context));
  info.n_ctx_train = llama_model_n_ctx_train(model);
  info.n_seq_max = static_cast<int32_t>(llama_n_seq_max(context));
  info.n_batch = static_cast<int32_t>(llama_n_batch(context));
  info.n_ubatch = static_cast<int32_t>(llama_n_ubatch(context));
  info.unified = params.kv_unified;
  info.n_swa = params.swa_full ? 0 : llama_model_n_swa(model);
  info.saved_window = llama_model_n_swa(model);
  info.n_adapters = static_cast<int32_t>(params.lora_adapters.size());
  info.can_shift = llama_memory_can_shift(llama_get_memory(context));
  info.generates = llama_get_memory(context) != nullptr;
  info.pooled = llama_pooling_type(context) != LLAMA_POOLING_TYPE_NONE;
  info.embeds_in_parts = EmbedsInParts(context);
  info.sharing = info.generates ? SharingOf(model, params.swa_full) : Sharing::kOff;
  info.sharing_reason = info.generates ? "" : "no_cells";
  if (info.generates) {
    MeasureSequences(MemoryUses(llama_get_memory(context)), params.n_parallel, &info);
  }
  return info;
}

}  // namespace polykv
