// Simulates one scenario; see bench/sim.py, which runs it.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <string>

#include "sim/scenario_file.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: polykv-sim SCENARIO.json (-: standard input), writes JSON\n", stderr);
    return 2;
  }
  try {
    const std::string path = argv[1];
    const polykv::Scenario scenario = path == "-"
                                          ? polykv::ReadScenario(polykv::Json::parse(std::cin))
                                          : polykv::ReadScenarioFile(path);
    std::cout << polykv::OutcomeJson(scenario, polykv::Simulate(scenario)).dump() << '\n';
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
