// `arctl bench --accuracy`: what is left of data when a codec has had them, through the real daemon
// and beside what is published. One thread.
#pragma once

#include <string>
#include <vector>

#include "client/arctl/bench/accuracy/data.h"
#include "client/arctl/bench/accuracy/judge.h"
#include "client/arctl/command_line/exit_code.h"
#include "client/arctl/command_line/invocation.h"
#include "client/arctl/view/json.h"
#include "proto/status.h"

namespace arcomm::arctl {

inline constexpr std::uint64_t kAccuracyElements = 1 << 19;
inline constexpr int kMostAccuracyRanks = 8;  // each holds the values of all

struct AccuracyOptions {
  std::string dtype = "float32", op = "sum";
  std::string codec = {};  // "": none and all codecs
  int ranks = 2;
  std::string data = {};  // a file of float32; "": made-up data alone
};

struct AccuracyPlan {
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  std::vector<Codec> codecs;
  int ranks = 2;
  std::string data;
  std::uint64_t recorded = 0;  // elements of each rank in it
};
// InvalidArgument says which option, what it got, and what it wants.
Result<AccuracyPlan> accuracy_plan_of(const AccuracyOptions& options);

struct AccuracyRow {
  AccuracyData data = AccuracyData::Gaussian;
  Codec codec = Codec::None;
  AccuracyFound found;  // the worst of the ranks' words
};
std::string accuracy_heading(const AccuracyPlan& plan, bool colour);
std::string accuracy_line(const AccuracyRow& row, bool colour);
Json accuracy_json(const std::vector<AccuracyRow>& rows, const AccuracyPlan& plan);

// DataLoss where an element is beyond its bound.
Status accuracy_verdict(const std::vector<AccuracyRow>& rows);

ExitCode bench_accuracy(const Invocation& invocation, const AccuracyPlan& plan);

}  // namespace arcomm::arctl
