#include "api/protocol/embedding_parser.h"

#include <optional>
#include <utility>

#include "api/protocol/model_state.h"
#include "api/protocol/prompt_tokens.h"
#include "mtmd-helper.h"
#include "server-task.h"

namespace polykv {
namespace {

Problem NotSupported(std::string message) {
  return {.status = 501, .type = "not_supported_error", .message = std::move(message)};
}

// How the vectors of one request are written.
struct VectorFormat {
  bool is_oai = false;
  bool use_base64 = false;  // kOai only
  int32_t normalize = 2;    // as --embd-normalize; pooled vectors only
};

Result<VectorFormat> ReadFormat(const ServedModel::State& model, bool is_oai,
                                const common_json& body) {
  VectorFormat format;
  format.is_oai = is_oai && body.contains("input");  // "content" is llama-server's own
  const std::string encoding = body.contains("encoding_format")
                                   ? body.at("encoding_format").get<std::string>()
                                   : std::string("float");
  format.use_base64 = encoding == "base64";
  if (!format.use_base64 && encoding != "float") {
    return InvalidRequest("The format to return the embeddings in. Can be either float or base64");
  }
  format.normalize = model.params.embd_normalize;
  if (body.contains("embd_normalize")) {
    const common_json& normalize = body.at("embd_normalize");
    if (!normalize.is_number_integer()) {
      return InvalidRequest("Field 'embd_normalize': must be an integer");
    }
    format.normalize = normalize.get<int32_t>();
  }
  return format;
}

server_tokens TokenizeInput(const ServedModel::State& model, const common_json& input) {
  const mtmd_helper_init_opt no_media = mtmd_helper_init_opt_default();
  if (input.is_object() && input.contains("content")) {
    return tokenize_oai_content_array(model.vocab, /*mctx=*/nullptr, model.chat,
                                      input.at("content"), /*add_special=*/true,
                                      /*parse_special=*/true, no_media);
  }
  return tokenize_input_subprompt(model.vocab, /*mctx=*/nullptr, input, /*add_special=*/true,
                                  /*parse_special=*/true, no_media);
}

// Adds the tokens of one prompt; a 400 if there are none.
std::optional<Problem> AddPrompt(const server_tokens& tokens, EmbeddingJob* job) {
  if (tokens.empty()) return InvalidRequest("Input content cannot be empty");
  job->prompts.push_back(tokens.get_tokens());
  return std::nullopt;
}

std::optional<Problem> AddInputs(const ServedModel::State& model, const common_json& input,
                                 EmbeddingJob* job) {
  if (auto problem = CheckTokenIds(model.vocab, input)) return problem;
  if (!input.is_array() || json_is_array_and_contains_numbers(input)) {
    return AddPrompt(TokenizeInput(model, input), job);
  }
  if (input.empty()) return InvalidRequest("\"input\" must not be empty");
  for (const common_json& element : input) {
    if (auto problem = AddPrompt(TokenizeInput(model, element), job)) return problem;
  }
  return std::nullopt;
}

std::vector<int32_t> Lengths(const EmbeddingJob& job) {
  std::vector<int32_t> lengths;
  for (const auto& prompt : job.prompts) lengths.push_back(static_cast<int32_t>(prompt.size()));
  return lengths;
}

common_json EmbeddingJson(const PromptVectors& vectors, size_t index, int32_t n_tokens, bool pooled,
                          const VectorFormat& format) {
  server_task_result_embd result;
  result.index = index;
  result.n_tokens = n_tokens;
  result.res_type = format.is_oai ? TASK_RESPONSE_TYPE_OAI_EMBD : TASK_RESPONSE_TYPE_NONE;
  result.embedding = vectors;
  if (pooled) {
    for (std::vector<float>& vector : result.embedding) {
      common_embd_normalize(vector.data(), vector.data(), static_cast<int>(vector.size()),
                            format.normalize);
    }
  }
  return result.to_json();
}

Result<EmbeddingJob> EmbeddingsJob(const ServedModel::State& model, bool is_oai, common_json body) {
  if (is_oai && !model.pooled_vectors) {
    return InvalidRequest(
        "Pooling type 'none' is not OAI compatible. Please use a different pooling type");
  }
  const char* field = body.contains("input") ? "input" : "content";
  if (!body.contains(field)) return InvalidRequest("\"input\" or \"content\" must be provided");
  Result<VectorFormat> format = ReadFormat(model, is_oai, body);
  if (!format.ok()) return format.problem();
  EmbeddingJob job;
  if (auto problem = AddInputs(model, body.at(field), &job)) return *std::move(problem);

  job.write_body = [&model, body = std::move(body), format = format.value(),
                    lengths = Lengths(job)](const std::vector<PromptVectors>& vectors) {
    common_json embeddings = common_json::array();
    for (size_t i = 0; i < vectors.size(); ++i) {
      embeddings.push_back(EmbeddingJson(vectors[i], i, lengths[i], model.pooled_vectors, format));
    }
    return safe_json_to_str(format.is_oai ? format_embeddings_response_oaicompat(
                                                body, model.name, embeddings, format.use_base64)
                                          : embeddings);
  };
  return job;
}

Result<EmbeddingJob> RerankJob(const ServedModel::State& model, common_json body) {
  if (!body.contains("query")) return InvalidRequest("\"query\" must be provided");
  if (!body.at("query").is_string()) return InvalidRequest("\"query\" must be a string");
  const bool is_tei = body.contains("texts");  // the other format is Jina's
  std::vector<std::string> documents =
      json_value(body, "documents", json_value(body, "texts", std::vector<std::string>()));
  if (documents.empty()) {
    return InvalidRequest("\"documents\" must be a non-empty string array");
  }
  const int top_n = json_value(body, "top_n", static_cast<int>(documents.size()));
  if (top_n < 0) return InvalidRequest("Field 'top_n': must be 0 or more");
  EmbeddingJob job;
  for (const std::string& document : documents) {
    const server_tokens prompt =
        format_prompt_rerank(model.model, model.vocab, /*mctx=*/nullptr, body.at("query"), document,
                             mtmd_helper_init_opt_default());
    if (auto problem = AddPrompt(prompt, &job)) return *std::move(problem);
  }
  job.write_body = [&model, body = std::move(body), documents = std::move(documents), is_tei, top_n,
                    lengths = Lengths(job)](const std::vector<PromptVectors>& vectors) mutable {
    common_json ranks = common_json::array();
    for (size_t i = 0; i < vectors.size(); ++i) {
      server_task_result_rerank result;
      result.index = i;
      result.n_tokens = lengths[i];
      result.score = vectors[i].front().front();
      ranks.push_back(result.to_json());
    }
    return safe_json_to_str(
        format_response_rerank(body, model.name, ranks, is_tei, documents, top_n));
  };
  return job;
}

}  // namespace

Result<EmbeddingJob> ParseEmbedding(const ServedModel& model, EmbeddingEndpoint endpoint,
                                    const std::string& body) {
  const ServedModel::State& state = model.state();
  const bool is_rerank = endpoint == EmbeddingEndpoint::kRerank;
  if (is_rerank &&
      !(state.params.embedding && state.params.pooling_type == LLAMA_POOLING_TYPE_RANK)) {
    return NotSupported("This server does not support reranking. Start it with `--reranking`");
  }
  if (!state.params.embedding) {
    return NotSupported("This server does not support embeddings. Start it with `--embeddings`");
  }
  Result<common_json> json = ParseBody(body);
  if (!json.ok()) return json.problem();
  return ClientFault<EmbeddingJob>([&]() -> Result<EmbeddingJob> {
    if (is_rerank) return RerankJob(state, std::move(json.value()));
    return EmbeddingsJob(state, endpoint == EmbeddingEndpoint::kOai, std::move(json.value()));
  });
}

}  // namespace polykv
