// What decides how a communicator's operations run between its nodes, besides what they are: the
// same on all nodes for its epoch, as the daemon where it met had it in its settings. A value.
#pragma once

#include "config/settings.h"

namespace arcomm {

struct NetworkPolicy {
  NetOrder order = NetOrder::OfRanks;
  NetPartials partials = NetPartials::Wide;
  NetAlgorithm algorithm = NetAlgorithm::Auto;
  Settings::Ring ring = {};

  static NetworkPolicy from(const Settings& settings) {
    return {settings.net.order, settings.net.partials, settings.net.algorithm, settings.ring};
  }
  friend bool operator==(const NetworkPolicy&, const NetworkPolicy&) = default;
};

}  // namespace arcomm
