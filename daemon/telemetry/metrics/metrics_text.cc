// The metrics as prometheus-cpp's families, and those as text. Made anew at each scrape; nothing is
// kept.
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <limits>
#include <utility>

#include "daemon/telemetry/log/log.h"
#include "daemon/telemetry/metrics/metrics.h"
#include "proto/version.h"

namespace arcomm {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

ErrorCode nth(std::size_t index, ErrorCode) {
  return error_code_from(static_cast<unsigned>(index));
}
Reason nth(std::size_t index, Reason) {
  return reason_from(static_cast<unsigned>(index));
}

Codec nth(std::size_t index, Codec) {
  return static_cast<Codec>(index);
}
std::string_view label_of(ErrorCode code) {
  return name_of(code);
}
std::string_view label_of(Reason reason) {
  return name_of(reason);
}
std::string_view label_of(Codec codec) {
  return text_of(codec);
}

template <typename Enum>
struct CountedElsewhere {
  Enum of{};
  std::uint64_t more = 0;
};

class Collector : public prometheus::Collectable {
 public:
  explicit Collector(const Metrics& metrics) : metrics_(metrics) {}

  std::vector<MetricFamily> Collect() const override {
    families_.clear();
    const Metrics& m = metrics_;
    const InCallCounts::Sum in_call = m.in_call.of_all();
    by("arcomm_operations_total", "Finished operations, one per rank, by their code.", "code",
       m.operations, 0, {.of = ErrorCode::Ok, .more = in_call.operations});
    by("arcomm_coded_operations_total", "Finished operations with a codec, one per rank, by codec.",
       "codec", m.coded, 1);  // from the first real one on
    by("arcomm_error_class_operations_total",
       "Finished operations that an error class was asked for, one per rank, by what it came to.",
       "codec", m.of_error_class);
    counter("arcomm_in_call_operations_total",
            "Those of them that ranks on the host ran within their calls, as they say.",
            static_cast<double>(in_call.operations));
    histogram("arcomm_operation_duration_seconds", "From submission to completion, one per rank.",
              m.operation_duration);
    counter("arcomm_bytes_reduced_total", "Bytes of the buffers of operations that succeeded.",
            static_cast<double>(m.bytes_reduced.value() + in_call.bytes));
    by("arcomm_rejected_total", "Requests refused before they became operations.", "reason",
       m.rejected);
    gauge("arcomm_operations_in_flight", "Operations admitted and not finished.",
          m.operations_in_flight);
    gauge("arcomm_sessions", "Attached client processes.", m.sessions);
    counter("arcomm_sessions_opened_total", "Sessions opened since the start.",
            static_cast<double>(m.sessions_opened.value()));
    by("arcomm_sessions_lost_total", "Sessions that ended without saying so.", "reason",
       m.sessions_lost);
    gauge("arcomm_communicators", "Communicators, ready or revoked.", m.communicators);
    by("arcomm_communicators_revoked_total", "Communicators that failed.", "reason",
       m.communicators_revoked);
    gauge("arcomm_registered_bytes", "Bytes of registered memory.", m.registered_bytes);
    gauge("arcomm_buffers", "Registered buffers.", m.buffers);
    gauge("arcomm_plans", "Persistent plans.", m.plans);
    MetricFamily& used =
        family("arcomm_node_used", "What all users together have, by resource.", MetricType::Gauge);
    for (std::size_t i = 0; i < kNodeResources; ++i) add_gauge(used, i, m.of_node[i].used);
    MetricFamily& limit = family(
        "arcomm_node_limit", "What all users together may have, by resource.", MetricType::Gauge);
    for (std::size_t i = 0; i < kNodeResources; ++i) add_gauge(limit, i, m.of_node[i].limit);
    counter("arcomm_worker_busy_seconds_total", "Time that workers spent with work at hand.",
            static_cast<double>(m.worker_busy_ns.value()) / kNsPerSecond);
    waits("arcomm_worker_wait_seconds_total",
          "Time that workers spent without work, by how they waited for it.", m.worker_wait_ns);
    counter("arcomm_worker_sleeps_total", "Times that a worker went to sleep for want of work.",
            static_cast<double>(m.worker_sleeps.value()));
    gauge("arcomm_worker_turn_max_seconds",
          "The longest turn of a worker's loop: nothing was served meanwhile.",
          static_cast<double>(m.worker_turn_ns.value()) / kNsPerSecond);
    MetricFamily& speculative = family(
        "arcomm_speculative_launches_total",
        "Operations of GPUs that were launched before they were called.", MetricType::Counter);
    add_counter(speculative, "result", "hit", static_cast<double>(m.speculative_hits.value()));
    add_counter(speculative, "result", "miss", static_cast<double>(m.speculative_misses.value()));
    by("arcomm_control_calls_total", "Control calls answered, by code.", "code", m.control_calls);
    counter("arcomm_connections_refused_total", "Connections of users who may not attach.",
            static_cast<double>(m.connections_refused.value()));
    counter("arcomm_connections_flooding_total",
            "Connections ended for what they brought besides calls, resets above all.",
            static_cast<double>(m.connections_flooding.value()));
    peers();
    MetricFamily& reloads =
        family("arcomm_config_reloads_total", "Reloads of the configuration.", MetricType::Counter);
    add_counter(reloads, "result", "ok", static_cast<double>(m.config_reloads_ok.value()));
    add_counter(reloads, "result", "error", static_cast<double>(m.config_reloads_failed.value()));
    counter("arcomm_log_lines_dropped_total", "Log lines that the output could not take.",
            static_cast<double>(log::dropped_lines()));
    counter("arcomm_log_lines_left_out_total", "Log lines that were beyond a user's share.",
            static_cast<double>(log::left_out_lines()));
    build_info();
    return families_;
  }

 private:
  void peers() const {
    const Metrics& m = metrics_;
    MetricFamily& states =
        family("arcomm_peers", "Other daemons that this one knows, by state.", MetricType::Gauge);
    const auto add = [&states](const char* state, const Gauge& from) {
      ClientMetric metric;
      metric.label = {{"state", state}};
      metric.gauge.value = static_cast<double>(from.value());
      states.metric.push_back(std::move(metric));
    };
    add("alive", m.peers_alive);
    add("unreachable", m.peers_unreachable);
    add("refused", m.peers_refused);
    counter("arcomm_peers_lost_total", "Daemons that were alive and found dead, or started anew.",
            static_cast<double>(m.peers_lost.value()));
    gauge("arcomm_links", "Links of this daemon's workers to other daemons'.", m.links);
    counter("arcomm_links_opened_total", "Links made since the start.",
            static_cast<double>(m.links_opened.value()));
    counter("arcomm_links_lost_total", "Links that failed; those of daemons found dead besides.",
            static_cast<double>(m.links_lost.value()));
    counter("arcomm_link_sent_bytes_total", "Bytes sent over all links.",
            static_cast<double>(m.link_sent_bytes.value()));
    counter("arcomm_link_received_bytes_total", "Bytes received over all links.",
            static_cast<double>(m.link_received_bytes.value()));
    counter("arcomm_link_retransmits_total", "Segments that TCP sent again on links.",
            static_cast<double>(m.link_retransmits.value()));
    gauge(
        "arcomm_link_delivered_bytes_per_second",
        "How fast what was sent last has reached the peers, as TCP measured it then, of all links.",
        m.link_delivered_bytes_per_second);
    MetricFamily& held_up =
        family("arcomm_link_held_up_seconds_total",
               "Time that sending on links has waited for room, by where.", MetricType::Counter);
    add_counter(held_up, "by", "peer", seconds_of_us(m.link_waited_for_peer_us));
    add_counter(held_up, "by", "buffer", seconds_of_us(m.link_waited_for_buffer_us));
    waits("arcomm_link_wait_seconds_total",
          "Time that the threads of links' streams spent without work, by how they waited for it.",
          m.link_wait_ns);
    MetricFamily& dropped =
        family("arcomm_net_dropped_total",
               "Frames of other daemons that were let go of, by reason.", MetricType::Counter);
    for (std::size_t i = 0; i < kNetDrops; ++i)
      add_counter(dropped, "reason", text_of(static_cast<NetDrop>(i)),
                  static_cast<double>(m.net_dropped[i].value()));
  }

  MetricFamily& family(std::string_view name, std::string_view help, MetricType type) const {
    MetricFamily& added = families_.emplace_back();
    added.name = name;
    added.help = help;
    added.type = type;
    return added;
  }

  static void add_counter(MetricFamily& to, std::string_view label, std::string_view value,
                          double amount) {
    ClientMetric metric;
    if (!label.empty()) metric.label = {{std::string(label), std::string(value)}};
    metric.counter.value = amount;
    to.metric.push_back(std::move(metric));
  }

  static double seconds_of_us(const Counter& us) { return static_cast<double>(us.value()) / 1e6; }
  void waits(std::string_view name, std::string_view help,
             const CounterBy<Waiting, kWaitings>& ns) const {
    MetricFamily& to = family(name, help, MetricType::Counter);
    for (const Waiting how : {Waiting::Spin, Waiting::Yield, Waiting::Sleep})
      add_counter(to, "state", text_of(how), static_cast<double>(ns[how].value()) / kNsPerSecond);
  }

  void counter(std::string_view name, std::string_view help, double value) const {
    add_counter(family(name, help, MetricType::Counter), "", "", value);
  }

  void gauge(std::string_view name, std::string_view help, const Gauge& from) const {
    gauge(name, help, static_cast<double>(from.value()));
  }
  void gauge(std::string_view name, std::string_view help, double value) const {
    ClientMetric metric;
    metric.gauge.value = value;
    family(name, help, MetricType::Gauge).metric.push_back(std::move(metric));
  }

  static void add_gauge(MetricFamily& to, std::size_t resource, const Gauge& gauge) {
    ClientMetric metric;
    metric.label = {{"resource", std::string(text_of(static_cast<NodeResource>(resource)))}};
    metric.gauge.value = static_cast<double>(gauge.value());
    to.metric.push_back(std::move(metric));
  }

  template <typename Enum, std::size_t N>
  void by(std::string_view name, std::string_view help, std::string_view label,
          const CounterBy<Enum, N>& counters, std::size_t first = 0,
          const CountedElsewhere<Enum>& elsewhere = {}) const {
    MetricFamily& to = family(name, help, MetricType::Counter);
    for (std::size_t i = first; i < N; ++i) {
      const Enum which = nth(i, Enum{});
      const std::uint64_t more = which == elsewhere.of ? elsewhere.more : 0;
      add_counter(to, label, label_of(which), static_cast<double>(counters[which].value() + more));
    }
  }

  void histogram(std::string_view name, std::string_view help,
                 const DurationHistogram& from) const {
    const DurationHistogram::Folded folded = from.fold();
    ClientMetric metric;
    std::uint64_t cumulative = 0;
    for (std::size_t i = 0; i < DurationHistogram::kBuckets; ++i) {
      cumulative += folded.buckets[i];
      const double bound = i < DurationHistogram::kBounds ? DurationHistogram::bound_seconds(i)
                                                          : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({.cumulative_count = cumulative, .upper_bound = bound});
    }
    metric.histogram.sample_count = folded.count;
    metric.histogram.sample_sum = folded.sum_seconds;
    family(name, help, MetricType::Histogram).metric.push_back(std::move(metric));
  }

  void build_info() const {
    ClientMetric metric;
    metric.label = {{"version", std::to_string(kVersionMajor) + "." +
                                    std::to_string(kVersionMinor) + "." +
                                    std::to_string(kVersionPatch)}};
    metric.gauge.value = 1;
    family("arcomm_build_info", "The version that runs.", MetricType::Gauge)
        .metric.push_back(std::move(metric));
  }

  const Metrics& metrics_;
  mutable std::vector<MetricFamily> families_;  // one Collector serves one scrape
};

}  // namespace

std::string render_metrics(const Metrics& metrics) {
  return prometheus::TextSerializer().Serialize(Collector(metrics).Collect());
}

}  // namespace arcomm
