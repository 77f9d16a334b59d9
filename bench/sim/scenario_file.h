// Scenarios as JSON; bench/sim/scenarios/README.md names the fields.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "sim/scenario.h"
#include "sim/simulation.h"

namespace polykv {

using Json = nlohmann::ordered_json;

// Throws std::exception with what is wrong. An unknown field is wrong.
Scenario ReadScenario(const Json& json);
Scenario ReadScenarioFile(const std::string& path);
ModelCost ReadModelCost(const Json& json);

Json OutcomeJson(const Scenario& scenario, const Outcome& outcome);

}  // namespace polykv
