// How fast the ways to other daemons are: measured by `arctl tune --network`, kept beside the
// tuning table, and used by communicators that meet here; and measured by `arctl bench --network`,
// with what comes to them on this node, for its operator alone.
// Thread: any; blocks for the whole measurement.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/peers/links/link_survey.h"
#include "daemon/in_force.h"
#include "daemon/operator/tune_call.h"
#include "daemon/workers.h"

namespace arcomm {

class NetworkTuner {
 public:
  // What control does for it, once it serves (control_plane.h).
  struct Control {
    std::function<Result<std::vector<SurveyedLink>>(const std::vector<std::string>& wanted,
                                                    const LinkSurvey::Progress& progress,
                                                    const std::function<bool()>& cancelled)>
        survey_links;
    std::function<void(const std::shared_ptr<const NetworkTuning>&)> use_network_tuning;
  };
  // Both outlive it.
  NetworkTuner(InForce& in_force, const Workers& workers, Control control)
      : in_force_(in_force), workers_(workers), control_(std::move(control)) {}

  Status tune(const TuneCall& call);
  // What a step between nodes costs: the ways to other daemons, and the flags of GPUs.
  Status bench(const TuneCall& call);

 private:
  Result<std::vector<SurveyedLink>> survey_links(const TuneCall& call);

  InForce& in_force_;
  const Workers& workers_;
  const Control control_;
};

}  // namespace arcomm
