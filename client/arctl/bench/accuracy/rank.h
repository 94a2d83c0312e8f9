// A rank's part in `arctl bench --accuracy`: fills, reduces, and judges its own result, for which
// it makes the other ranks' values, too. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "client/arctl/bench/accuracy/data.h"
#include "client/arctl/bench/rank_board.h"
#include "proto/status.h"

namespace arcomm::arctl {

class AccuracyRank {
 public:
  AccuracyRank(const RankBoard& board, Rank rank) : board_(board), rank_(rank) {}

  // reduce: the case's AllReduce, from send to recv. Leaves what was found in the rank's slot.
  Status run(const BenchCase& what, std::byte* send, const std::byte* recv,
             const std::function<Status()>& reduce);

 private:
  Status make_inputs(const BenchCase& what);

  const RankBoard& board_;
  const Rank rank_;
  // Of the last case, which the next one mostly has, too.
  std::optional<AccuracyData> data_;
  std::vector<std::vector<float>> inputs_;  // by rank
};

}  // namespace arcomm::arctl
