#include "daemon/operator/explanation.h"

#include <cstdint>
#include <limits>
#include <memory>

#include "daemon/plan/codec_words.h"
#include "daemon/plan/explain.h"
#include "daemon/plan/launch_table_between_nodes.h"
#include "daemon/plan/launch_table_builder.h"
#include "daemon/plan/network/explain_network.h"
#include "daemon/plan/network/gpu_exchange.h"
#include "daemon/plan/planner.h"
#include "daemon/shown.h"
#include "kernels/cuda_algorithms.h"
#include "kernels/host/reduce_in_call.h"

namespace arcomm {
namespace {

constexpr std::int32_t kExplainRanks = 2;  // when the question does not say
constexpr std::uint32_t kMostExplainedNodes = 4096;
constexpr const char* kWhereAllAllow =
    "; where gpu.codecs is on at every node of the communicator (arctl comms)";

v1::ExplainReply reply_of(const Explanation& why) {
  v1::ExplainReply reply;
  reply.set_text(why.text);
  reply.set_chosen(std::string(why.chosen));
  reply.set_runner_up(std::string(why.runner_up));
  reply.set_chosen_microseconds(why.chosen_microseconds);
  reply.set_runner_up_microseconds(why.runner_up_microseconds);
  return reply;
}

Coding coding_of(const v1::ExplainRequest& request) {
  return {.codec = static_cast<Codec>(request.codec()),
          .error_class = {request.least_snr_db(), request.most_relative_error()}};
}

// As the first communicator gets it, of GPUs those that can do everything.
LaunchTable table_of(CodecPlace place, const RanksOnNodes& where, const Settings& settings,
                     const NetworkPolicy& policy) {
  const std::uint32_t ranks = where.ranks;
  switch (place) {
    case CodecPlace::Gpus:
      return make_launch_table({.ranks = ranks,
                                .atomic_128b_stores = true,
                                .in_stream_blocks = settings.gpu.in_stream ? kMaxInStreamBlocks : 0,
                                .codecs = settings.gpu.codecs});
    case CodecPlace::GpusOfSeveralNodes:
      return make_launch_table_between_nodes(where, GpuExchange::kAlgorithm, policy);
    case CodecPlace::SeveralHosts:
      return make_launch_table_between_hosts(where, policy);
    case CodecPlace::OneHost:
      break;
  }
  return make_launch_table_on_host(ranks);
}

// What comes of the codec or the error class that the question names.
Status add_codec(const v1::ExplainRequest& request, const RanksOnNodes& where,
                 const Settings& settings, const NetworkPolicy& policy, v1::ExplainReply& reply) {
  const Coding coding = coding_of(request);
  const char* fault = request.codec() > 0xff ? "the codec is out of range" : find_fault(coding);
  if (fault != nullptr) return error(ErrorCode::InvalidArgument, Reason::BadValue, fault);
  reply.set_codec(std::string(text_of(Codec::None)));
  if (!coding.any()) return {};
  const bool spans_nodes = where.nodes > 1;
  const CodecPlace place = where.on_gpus
                               ? (spans_nodes ? CodecPlace::GpusOfSeveralNodes : CodecPlace::Gpus)
                           : spans_nodes ? CodecPlace::SeveralHosts
                                         : CodecPlace::OneHost;
  const LaunchKey key{.bytes = request.bytes(), .dtype = static_cast<DType>(request.dtype())};
  Codec codec = Codec::None;
  reply.set_codec_why(codec_words(coding, place, table_of(place, where, settings, policy), key,
                                  codec, spans_nodes ? why_no_codec_pays(where, policy) : ""));
  if (place == CodecPlace::GpusOfSeveralNodes && codec != Codec::None)
    reply.set_codec_why(reply.codec_why() + kWhereAllAllow);
  reply.set_codec(std::string(text_of(codec)));
  reply.set_text(reply.text() + "\nasked for " + to_string(coding) + ", gets " + reply.codec_why() +
                 "\n" + codec_bounds_text());
  return {};
}

// That sums of the type would have; none where it is refused, which add_codec() says.
Codec codec_of(const v1::ExplainRequest& request, DType dtype, const RanksOnNodes& where,
               const NetworkPolicy& policy) {
  if (where.on_gpus && !policy.gpu_codecs) return Codec::None;
  const Coding coding = coding_of(request);
  if (request.codec() >= kCodecs || find_fault(coding) != nullptr) return Codec::None;
  if (coding.error_class.any())
    return make_launch_table_between_hosts(where, policy)
        .codec_for(coding.error_class, {.bytes = request.bytes(), .dtype = dtype});
  return codec_serves(coding.codec, ReduceOp::Sum, dtype) ? coding.codec : Codec::None;
}

Result<v1::ExplainReply> explain_between_nodes(const v1::ExplainRequest& request, bool on_gpus,
                                               const Settings& settings,
                                               const NetworkTuning& measured) {
  const std::uint32_t nodes = request.nodes();
  const std::int64_t ranks = request.ranks() == 0 ? std::int64_t{nodes} : request.ranks();
  const std::uint32_t most_nodes = on_gpus ? kMaxGpuRanks : kMostExplainedNodes;
  const std::int64_t most_ranks = on_gpus ? kMaxGpuRanks : std::numeric_limits<std::int32_t>::max();
  if (nodes > most_nodes || ranks < nodes || ranks > most_ranks || request.dtype() >= kDTypes) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "cannot explain ", ranks,
                 " ranks on ", nodes, " nodes of dtype number ", request.dtype(), ": at most ",
                 most_nodes, on_gpus ? " GPUs and nodes" : " nodes",
                 ", a rank on each at least, dtypes below ", kDTypes);
  }
  const auto dtype = static_cast<DType>(request.dtype());
  const RanksOnNodes where{
      .ranks = static_cast<std::uint32_t>(ranks), .nodes = nodes, .on_gpus = on_gpus};
  // What other nodes allow is known once a communicator is formed.
  NetworkPolicy policy =
      NetworkPolicy::from(settings, measured.step_bytes(), measured.bytes_per_second());
  if (!policy.gpu_codecs) policy.no_gpu_codecs_on = network_setup_of(settings).node;
  const NetworkQuestion question{.count = request.bytes() / size_of(dtype),
                                 .dtype = dtype,
                                 .nodes = nodes,
                                 .one_seat_each = where.one_seat_each(),
                                 .codec = codec_of(request, dtype, where, policy)};
  v1::ExplainReply reply = reply_of(on_gpus ? explain_network_of_gpus(question, policy, measured)
                                            : explain_network(question, policy, measured));
  reply.set_table(shown(measured.source));
  ARC_RETURN_IF_ERROR(add_codec(request, where, settings, policy, reply));
  return reply;
}

}  // namespace

Result<v1::ExplainReply> explain_all_reduce(const v1::ExplainRequest& request, bool on_gpus,
                                            const InForce& in_force) {
  const std::shared_ptr<const Settings> settings = in_force.settings();
  if (request.nodes() > 1)
    return explain_between_nodes(request, on_gpus, *settings, *in_force.network_tuning());
  const std::int32_t most = on_gpus ? static_cast<std::int32_t>(kMaxGpuRanks) : kMaxRanks;
  const std::int32_t ranks = request.ranks() == 0 ? kExplainRanks : request.ranks();
  if (ranks < 1 || ranks > most || request.dtype() >= kDTypes) {
    return error(ErrorCode::InvalidArgument, Reason::BadValue, "cannot explain ", ranks,
                 " ranks of dtype number ", request.dtype(), ": 1 to ", most,
                 " ranks, dtypes below ", kDTypes);
  }
  const std::shared_ptr<const TuningTable> table = in_force.tuning();
  Explanation why;
  if (on_gpus) {
    const auto forced = forced_algorithm(settings->gpu.algorithm);
    if (!forced) return forced.error();
    why = arcomm::explain(table->gpu, *forced, static_cast<std::uint32_t>(ranks), request.bytes(),
                          static_cast<DType>(request.dtype()), settings->gpu.in_stream);
  } else {
    // What has a codec is the worker's, as is everything on a processor that cannot do it.
    const bool by_worker = request.codec() != 0 || request.least_snr_db() != 0 ||
                           request.most_relative_error() != 0 || !host::can_reduce_in_call();
    why = arcomm::explain(
        *table, host_shape(settings->host.streams), by_worker ? 0 : settings->host.in_call_bytes,
        static_cast<std::uint32_t>(ranks), request.bytes(), static_cast<DType>(request.dtype()));
  }
  v1::ExplainReply reply = reply_of(why);
  reply.set_table(shown(on_gpus ? table->gpu.source : table->source));
  const RanksOnNodes where{
      .ranks = static_cast<std::uint32_t>(ranks), .nodes = 1, .on_gpus = on_gpus};
  ARC_RETURN_IF_ERROR(add_codec(request, where, *settings, {}, reply));
  return reply;
}

}  // namespace arcomm
