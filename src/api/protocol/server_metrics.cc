#include "api/protocol/server_metrics.h"

#include "server-task.h"

namespace polykv {
namespace {

uint64_t Unsigned(TimeUs us) { return us > 0 ? static_cast<uint64_t>(us) : 0; }

void AddPrompt(const Counters& now, const Counters& before, server_metrics::bucket* bucket) {
  const uint64_t n_tokens = now.n_prompt_processed - before.n_prompt_processed;
  bucket->add(n_tokens, n_tokens, Unsigned(now.prompt_us - before.prompt_us));
}

void AddGenerated(const Counters& now, const Counters& before, server_metrics::bucket* bucket) {
  bucket->add(now.n_generated - before.n_generated,
              now.n_generated_steps - before.n_generated_steps,
              Unsigned(now.generate_us - before.generate_us));
}

}  // namespace

std::string ServerMetrics::Text(const EngineSnapshot& snapshot) {
  const Counters& now = snapshot.counters;
  server_task_result_metrics result;
  result.n_processing_slots = snapshot.n_running;
  result.n_tasks_deferred = snapshot.n_waiting;
  AddPrompt(now, {}, &result.metrics.prompt);
  AddGenerated(now, {}, &result.metrics.predict);
  result.metrics.n_prompt_cached = now.n_prompt_cached;
  result.metrics.n_tokens_max = now.n_tokens_max;
  result.metrics.n_decode = now.n_decode;
  result.metrics.n_busy_slots = now.n_busy_slots;
  result.metrics.n_draft_tokens = now.n_draft;
  result.metrics.n_draft_accepted = now.n_draft_accepted;
  result.metrics.n_draft_verif_steps = now.n_drafts;
  result.metrics.n_accepted_per_pos = now.n_accepted_at;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (now.n_generated >= previous_.n_generated &&
        now.n_prompt_processed >= previous_.n_prompt_processed) {  // not an older snapshot
      AddPrompt(now, previous_, &result.metrics.prompt_bucket);
      AddGenerated(now, previous_, &result.metrics.predict_bucket);
      previous_ = now;
    }
  }
  return result.to_metrics();
}

}  // namespace polykv
