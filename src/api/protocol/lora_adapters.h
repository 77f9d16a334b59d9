// Adapter sets on the wire: GET and POST /lora-adapters, and a request's "lora".
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "api/protocol/served_model.h"
#include "base/result.h"
#include "kv/adapter_set.h"

namespace polykv {

// As llama-server reads it: an adapter that is not named has scale 0, an unknown id no effect.
AdapterSet ToAdapterSet(const ServedModel::State& model, const std::map<int32_t, float>& scale_of);

// The body of POST /lora-adapters.
Result<AdapterSet> ParseLoraAdapters(const ServedModel& model, const std::string& body);

// The answers to GET, with the scales in `adapters`, and to POST.
std::string LoraAdaptersBody(const ServedModel& model, const AdapterSet& adapters);
std::string LoraAppliedBody();

}  // namespace polykv
