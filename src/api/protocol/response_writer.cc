#include "api/protocol/response_writer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "api/protocol/response_plan.h"
#include "base/check.h"
#include "common.h"

namespace polykv {
namespace {

constexpr char kBlock[] = "opencoti";

common_json AttachBlock(const AttachReport& report) {
  common_json block = common_json::object();
  block["pool_id"] = report.pool_id == kNoPool ? common_json(nullptr) : common_json(report.pool_id);
  block["session_id"] =
      report.session_id.empty() ? common_json(nullptr) : common_json(report.session_id);
  block["cache_n"] = report.cache_n;
  block["session_tps"] =
      report.session_tps > 0 ? common_json(report.session_tps) : common_json(nullptr);
  block["ctx_used"] = report.ctx_used;
  block["ctx_headroom_tokens"] = std::max(0, report.ctx_total - report.ctx_used);
  if (!report.miss_reason.empty()) block["miss_reason"] = report.miss_reason;
  if (report.sessions_remaining) {
    block["backpressure"] = {{"sessions_remaining", *report.sessions_remaining}};
  }
  if (report.prefix_break_at.has_value()) block["prefix_break_at"] = *report.prefix_break_at;
  if (!report.stop_reason.empty()) block["stop_reason"] = report.stop_reason;
  return block;
}

server_slot_stats Stats(const Timings& timings) {
  server_slot_stats stats;
  stats.n_prompt_cached = static_cast<uint64_t>(timings.n_prompt_cached);
  stats.n_prompt_processed = static_cast<uint64_t>(timings.n_prompt_processed);
  stats.n_gen = static_cast<uint64_t>(timings.n_generated);
  stats.n_draft_tokens = static_cast<uint64_t>(timings.n_draft);
  stats.n_draft_accepted = static_cast<uint64_t>(timings.n_draft_accepted);
  stats.t_start = timings.t_start;
  stats.t_prompt_last = timings.t_prompt_last;
  stats.t_gen_last = timings.t_last;
  return stats;
}

completion_token_output TokenOutput(const SampledToken& token, const std::string& text) {
  completion_token_output output;
  output.tok = token.token;
  output.prob = token.probability;
  output.text_to_send = text;
  for (const TokenCandidate& candidate : token.top) {
    output.probs.push_back({candidate.token, candidate.text, candidate.probability});
  }
  return output;
}

stop_type StopType(StopKind kind) {
  switch (kind) {
    case StopKind::kEndOfGeneration:
      return STOP_TYPE_EOS;
    case StopKind::kStopWord:
      return STOP_TYPE_WORD;
    case StopKind::kLimit:
      return STOP_TYPE_LIMIT;
    case StopKind::kNone:
      break;
  }
  return STOP_TYPE_NONE;
}

bool IsChatLike(task_response_type type) {
  return type != TASK_RESPONSE_TYPE_NONE && type != TASK_RESPONSE_TYPE_OAI_CMPL;
}

// Where a stream's first chunk shows the block: its first JSON document.
void PutInFirst(const common_json& block, common_json* chunk) {
  if (!chunk->is_array()) {
    (*chunk)[kBlock] = block;
    return;
  }
  common_json& first = chunk->at(0);
  (first.contains("data") ? first["data"] : first)[kBlock] = block;
}

// Where a stream's last chunk shows it: message_delta, the response of response.completed, or the
// last document.
void PutInLast(const common_json& block, common_json* chunk) {
  if (!chunk->is_array()) {
    (*chunk)[kBlock] = block;
    return;
  }
  for (common_json& event : *chunk) {
    if (!event.contains("event")) continue;
    const std::string name = event.at("event").get<std::string>();
    if (name == "message_delta") event["data"][kBlock] = block;
    if (name == "response.completed") event["data"]["response"][kBlock] = block;
  }
  common_json& last = chunk->back();
  if (!last.contains("event")) last[kBlock] = block;
}

}  // namespace

struct ResponseWriter::Impl {
  struct Progress {
    explicit Progress(const common_chat_parser_params& params) : state(params) {}
    task_result_state state;
    std::optional<AttachReport> first_report;  // waits for the first chunk
    bool piece_sent = false;
    std::optional<Piece> last_piece;  // waits for Finished, which says how to show it
  };

  explicit Impl(Plan the_plan) : plan(std::move(the_plan)) {
    for (const Plan::Generation& generation : plan.generations) {
      progress.push_back(std::make_unique<Progress>(generation.params.chat_parser_params));
    }
  }

  const task_params& Params(size_t index) const { return plan.generations[index].params; }
  task_response_type Type() const { return Params(0).res_type; }

  server_task_result_cmpl_partial Partial(size_t index, const Timings& timings) const;
  server_task_result_cmpl_partial FromPiece(size_t index, const Piece& piece, bool with_timings);
  server_task_result_cmpl_partial FromProgress(size_t index, const polykv::Progress& event) const;
  server_task_result_cmpl_final FromFinished(size_t index, Finished finished) const;
  std::vector<completion_token_output> TokenOutputs(size_t index, const Finished& finished) const;
  // `last_report` with the last chunk of a generation.
  std::string Render(size_t index, server_task_result&& result,
                     const AttachReport* last_report = nullptr);
  std::string Sse(const common_json& chunk) const;
  common_json MergeChoices(std::vector<common_json> bodies) const;

  Plan plan;
  std::vector<std::unique_ptr<Progress>> progress;  // one per generation
};

server_task_result_cmpl_partial ResponseWriter::Impl::Partial(size_t index,
                                                              const Timings& timings) const {
  const task_params& params = Params(index);
  server_task_result_cmpl_partial result;
  result.index = index;
  result.n_decoded = timings.n_generated;
  result.n_prompt_tokens = plan.generations[index].n_prompt_tokens;
  result.n_prompt_tokens_cache = timings.n_prompt_cached;
  result.post_sampling_probs = params.post_sampling_probs;
  result.prob_output = TokenOutput({}, "");
  result.verbose = params.verbose;
  result.res_type = params.res_type;
  result.oaicompat_model = params.oaicompat_model;
  result.oaicompat_cmpl_id = params.oaicompat_cmpl_id;
  return result;
}

server_task_result_cmpl_partial ResponseWriter::Impl::FromPiece(size_t index, const Piece& piece,
                                                                bool with_timings) {
  const task_params& params = Params(index);
  server_task_result_cmpl_partial result = Partial(index, piece.timings);
  result.content = piece.text;
  result.tokens = {piece.token.token};
  if (params.sampling.n_probs > 0) result.prob_output = TokenOutput(piece.token, piece.text);
  if (with_timings || params.timings_per_token) result.stats = Stats(piece.timings);
  if (IsChatLike(params.res_type)) {
    // The opening delta hangs on n_decoded == 1, also when the first tokens made no piece.
    bool& sent = progress[index]->piece_sent;
    result.n_decoded = sent ? std::max(result.n_decoded, 2) : 1;
    sent = true;
  }
  return result;
}

server_task_result_cmpl_partial ResponseWriter::Impl::FromProgress(
    size_t index, const polykv::Progress& event) const {
  Timings timings;
  timings.n_prompt_cached = event.n_cached;
  timings.n_prompt_processed = event.n_processed - event.n_cached;
  timings.t_start = 1;
  timings.t_prompt_last = timings.t_start + event.elapsed_us;
  server_task_result_cmpl_partial result = Partial(index, timings);
  if (Params(index).timings_per_token) result.stats = Stats(timings);
  result.tokens = {0};
  result.is_progress = true;
  result.progress.total = event.n_total;
  result.progress.cache = event.n_cached;
  result.progress.processed = event.n_processed;
  result.progress.time_ms = event.elapsed_us / 1000;
  return result;
}

std::vector<completion_token_output> ResponseWriter::Impl::TokenOutputs(
    size_t index, const Finished& finished) const {
  std::vector<completion_token_output> outputs;
  if (Params(index).sampling.n_probs <= 0 || Params(index).stream) return outputs;
  size_t n_tokens = std::min(finished.tokens.size(), finished.token_texts.size());
  if (finished.stop == StopKind::kStopWord) {
    n_tokens -=
        std::min(n_tokens, common_tokenize(plan.vocab, finished.stopping_word, false).size());
  }
  for (size_t i = 0; i < n_tokens; ++i) {
    outputs.push_back(TokenOutput(finished.tokens[i], finished.token_texts[i]));
  }
  return outputs;
}

server_task_result_cmpl_final ResponseWriter::Impl::FromFinished(size_t index,
                                                                 Finished finished) const {
  const task_params& params = Params(index);
  server_task_result_cmpl_final result;
  result.index = index;
  result.id_slot = finished.slot_id;
  result.stream = params.stream;
  result.include_usage = params.include_usage;
  result.probs_output = TokenOutputs(index, finished);
  if (!params.stream) {
    result.content = std::move(finished.text);
    if (params.return_tokens) {
      for (const SampledToken& token : finished.tokens) result.tokens.push_back(token.token);
    }
  }
  result.stats = Stats(finished.timings);
  result.prompt = plan.generations[index].prompt_text;
  result.truncated = finished.truncated;
  result.n_decoded = finished.timings.n_generated;
  result.n_prompt_tokens = plan.generations[index].n_prompt_tokens;
  result.n_prompt_tokens_cache = finished.timings.n_prompt_cached;
  result.n_tokens_cached = finished.n_tokens_cached;
  result.has_new_line = finished.has_new_line;
  result.stopping_word = std::move(finished.stopping_word);
  result.stop = StopType(finished.stop);
  result.post_sampling_probs = params.post_sampling_probs;
  result.response_fields = params.response_fields;
  result.generation_params = params;
  result.verbose = params.verbose;
  result.res_type = params.res_type;
  result.oaicompat_model = params.oaicompat_model;
  result.oaicompat_cmpl_id = params.oaicompat_cmpl_id;
  return result;
}

std::string ResponseWriter::Impl::Render(size_t index, server_task_result&& result,
                                         const AttachReport* last_report) {
  result.update(progress[index]->state);
  common_json chunk = result.to_json();
  if (chunk.is_null() || (chunk.is_array() && chunk.empty())) return "";
  std::optional<AttachReport>& first_report = progress[index]->first_report;
  if (first_report.has_value()) PutInFirst(AttachBlock(*first_report), &chunk);
  first_report.reset();
  if (last_report != nullptr && plan.with_attach_block)
    PutInLast(AttachBlock(*last_report), &chunk);
  return Sse(chunk);
}

std::string ResponseWriter::Impl::Sse(const common_json& chunk) const {
  switch (Type()) {
    case TASK_RESPONSE_TYPE_ANTHROPIC:
      return format_anthropic_sse(chunk);
    case TASK_RESPONSE_TYPE_OAI_RESP:
      return format_oai_resp_sse(chunk);
    default:
      return format_oai_sse(chunk);
  }
}

common_json ResponseWriter::Impl::MergeChoices(std::vector<common_json> bodies) const {
  if (bodies.size() == 1) return std::move(bodies[0]);
  if (Type() == TASK_RESPONSE_TYPE_OAI_CHAT || Type() == TASK_RESPONSE_TYPE_OAI_CMPL) {
    for (size_t i = 1; i < bodies.size(); ++i) {
      bodies[0]["choices"].push_back(std::move(bodies[i]["choices"].at(0)));
    }
    return std::move(bodies[0]);
  }
  common_json array = common_json::array();
  for (common_json& body : bodies) array.push_back(std::move(body));
  return array;
}

ResponseWriter::ResponseWriter(Plan plan) : impl_(std::make_unique<Impl>(std::move(plan))) {
  POLYKV_CHECK(!impl_->plan.generations.empty());
}
ResponseWriter::~ResponseWriter() = default;

void ResponseWriter::StreamText(size_t index, const GenerationEvent& event, std::string* out) {
  POLYKV_CHECK(!std::holds_alternative<Problem>(event));
  Impl::Progress& progress = *impl_->progress[index];
  if (const auto* started = std::get_if<Started>(&event)) {
    if (impl_->plan.with_attach_block) progress.first_report = started->report;
    return;  // the head goes out, without a byte of body
  }
  if (const auto* piece = std::get_if<Piece>(&event)) {
    if (piece->last) {
      progress.last_piece = *piece;
    } else {
      *out += impl_->Render(index, impl_->FromPiece(index, *piece, false));
    }
    return;
  }
  if (const auto* step = std::get_if<polykv::Progress>(&event)) {
    *out += impl_->Render(index, impl_->FromProgress(index, *step));
    return;
  }
  const auto& finished = std::get<Finished>(event);
  if (progress.last_piece.has_value()) {
    // llama-server knows of a stop word before it sends the piece, of every other end after.
    const bool with_timings = finished.stop == StopKind::kStopWord;
    *out += impl_->Render(index, impl_->FromPiece(index, *progress.last_piece, with_timings));
  }
  *out += impl_->Render(index, impl_->FromFinished(index, finished), &finished.report);
}

std::string ResponseWriter::StreamEnd() const {
  const task_response_type type = impl_->Type();
  const bool done = type == TASK_RESPONSE_TYPE_OAI_CHAT || type == TASK_RESPONSE_TYPE_OAI_CMPL;
  return done ? "data: [DONE]\n\n" : "";
}

std::string ResponseWriter::StreamError(const std::string& error) const {
  if (impl_->Type() == TASK_RESPONSE_TYPE_ANTHROPIC) {
    return format_anthropic_sse({{"event", "error"}, {"data", common_json::parse(error)}});
  }
  return format_oai_sse({{"error", common_json::parse(error)}});
}

std::string ResponseWriter::Body(std::vector<Finished> results) {
  POLYKV_CHECK(results.size() == impl_->progress.size());
  std::vector<common_json> bodies;
  for (size_t i = 0; i < results.size(); ++i) {
    const AttachReport report = results[i].report;
    server_task_result_cmpl_final result = impl_->FromFinished(i, std::move(results[i]));
    result.update(impl_->progress[i]->state);
    bodies.push_back(result.to_json());
    if (impl_->plan.with_attach_block) bodies.back()[kBlock] = AttachBlock(report);
  }
  return safe_json_to_str(impl_->MergeChoices(std::move(bodies)));
}

}  // namespace polykv
