#include "client/arctl/bench/in_call.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <thread>
#include <utility>

#include "client/arctl/bench/bench_case.h"
#include "client/arctl/bench/rank_team.h"
#include "proto/host/in_call.h"

namespace arcomm::arctl {
namespace {

namespace v1 = ::arcommd::v1;
using Clock = std::chrono::steady_clock;

constexpr std::array kRanks{2, 4, 8};
constexpr unsigned kRanksPerCore = 2;  // what more of them take says nothing but who got a core
constexpr std::array<std::uint64_t, 10> kSizes{256,   1024,  2048,  4096,  8192,
                                               16384, 24576, 32768, 49152, 65536};
static_assert(kSizes.back() == kMaxInCallBytes);
// Medians of rounds that last some hundred microseconds each, so that others who have a core for a
// moment spoil few of them; the first case of a team is warmed up for as long as processes that
// woke on one core may take to part.
constexpr std::uint32_t kRounds = 9, kWarmUp = 200, kFirstWarmUp = 4096;
constexpr std::uint32_t iterations_of(std::uint64_t bytes) {
  return bytes <= 4096 ? 400 : 100;
}
// Of a shorter one that would be the most.
constexpr std::chrono::milliseconds kLongBudget{2000};

// For all that is to be measured: not where the daemon does not know that it was asked.
bool meets_in_calls(Admin& admin, const RankTeam& team) {
  const Result<v1::CommunicatorsReply> shown = admin.communicators();
  if (!shown) return false;
  return std::ranges::any_of(shown->communicators(), [&](const auto& one) {
    return one.id() == team.communicator() &&
           std::ranges::any_of(one.launches(), [](const auto& row) {
             return row.path() == "in-call" && row.most_bytes() >= kMaxInCallBytes;
           });
  });
}

struct Question {
  std::uint64_t bytes;
  DType dtype;
  const char* type_class;  // as the daemon's tuning tables spell it
};

// plans: a plan's operations are the worker's.
Result<double> time(RankTeam& team, const Question& question, bool by_worker,
                    std::uint32_t warm_up) {
  const Result<Measured> measured = team.run({.count = question.bytes / size_of(question.dtype),
                                              .dtype = question.dtype,
                                              .persistent = by_worker,
                                              .warmup = warm_up,
                                              .iterations = iterations_of(question.bytes),
                                              .rounds = kRounds});
  if (!measured) return measured.error();
  if (measured->wrong != 0) {
    return error(ErrorCode::DataLoss, Reason::Corrupt, measured->wrong, " elements of ",
                 question.bytes, " bytes are wrong");
  }
  return measured->percentile_us(0.5);
}

// All sizes, or nothing: a bound that was only not looked beyond is none.
Status measure(Admin& admin, const InCallMeasure& how, int ranks, Clock::time_point until,
               std::vector<v1::TuneInCall>& all) {
  std::vector<v1::TuneInCall> found;
  TeamOptions options;
  options.ranks = ranks;
  options.buffer_bytes = kMaxInCallBytes;
  options.runtime_dir = how.runtime_dir;
  options.most_in_call_bytes = kMaxInCallBytes;
  options.timeout = how.timeout;
  Result<RankTeam> team = RankTeam::start(options);
  if (!team) return team.error();
  bool is_first = true;
  for (const std::uint64_t bytes : kSizes) {
    if (Clock::now() >= until) return team->finish();
    for (const Question& question :
         {Question{bytes, DType::Float32, "plain"}, Question{bytes, DType::BFloat16, "half"}}) {
      const Result<double> in_call = time(
          *team, question, false, is_first && how.budget >= kLongBudget ? kFirstWarmUp : kWarmUp);
      if (!in_call) return in_call.error();
      if (is_first && !meets_in_calls(admin, *team)) return team->finish();
      is_first = false;
      const Result<double> by_worker = time(*team, question, true, kWarmUp);
      if (!by_worker) return by_worker.error();
      v1::TuneInCall& point = found.emplace_back();
      point.set_bytes(bytes);
      point.set_ranks(ranks);
      point.set_type_class(question.type_class);
      point.set_microseconds(*in_call);
      point.set_by_worker_microseconds(*by_worker);
      if (how.seen) how.seen(point);
    }
  }
  std::ranges::move(found, std::back_inserter(all));
  return team->finish();
}

}  // namespace

Status measure_in_call(Admin& admin, const InCallMeasure& how, std::vector<v1::TuneInCall>& found) {
  const unsigned most_ranks = kRanksPerCore * std::max(1U, std::thread::hardware_concurrency());
  const Clock::time_point until = Clock::now() + how.budget;
  for (const int ranks : kRanks) {
    if (std::cmp_greater(ranks, most_ranks)) break;
    const std::size_t before = found.size();
    ARC_RETURN_IF_ERROR(measure(admin, how, ranks, until, found));
    if (found.size() == before) break;
  }
  return {};
}

}  // namespace arcomm::arctl
