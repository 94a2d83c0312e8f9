// What the self-test of GPUs found, as text for people and as JSON. Text out: nothing is printed
// here. Any thread.
#pragma once

#include <string>
#include <vector>

#include "client/arctl/check/gpus.h"
#include "client/arctl/view/json.h"

namespace arcomm::arctl {

// One line where nothing was tested; else a table with a row for each team, what was wrong or went
// wrong, which launch path operations took, and what cannot be had.
std::string gpu_check_text(const GpuCheck& check, bool colour);
Json gpu_check_json(const GpuCheck& check);

// "GPU 3", "GPUs 0, 1"
std::string gpus_text(const std::vector<int>& gpus);

}  // namespace arcomm::arctl
