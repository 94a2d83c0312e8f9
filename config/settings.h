// What an operator may set, as one plain value. The member initialisers below are the defaults;
// everything else about a setting (name, range, unit, documentation, whether a reload changes it)
// is its row in settings_table.cc. Thread: a value; the daemon shares it as shared_ptr<const
// Settings> and swaps the pointer on reload. Units are in the names: _ms, _us, _bytes. A name in
// the file is "section.key": [log] level is log.level here too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/status.h"

namespace arcomm {

enum class LogLevel : std::uint8_t { Trace, Debug, Info, Warn, Error };
enum class LogFormat : std::uint8_t { Text, Json };
enum class BackendChoice : std::uint8_t { Auto, Host, Cuda };
enum class MpsChoice : std::uint8_t { Manage, Require, Off };
enum class NetOrder : std::uint8_t { OfRanks, OfRing };  // in which floats are added up
enum class NetPartials : std::uint8_t {
  Wide,
  DType
};  // of 16-bit types between nodes: as float32?
enum class NetAlgorithm : std::uint8_t { Auto, Exchange, Direct, Ring };

struct Settings {
  std::string runtime_dir = "/run/arcommd";    // sockets and the lock
  std::string state_dir = "/var/lib/arcommd";  // tuning, flight-recorder dumps

  struct Access {
    std::string group = "arcomm";  // "" or a missing group: only the daemon's own uid and root
    std::string admin_group = "arcomm-admin";  // likewise, for the admin socket
    bool trust_root = true;                    // uid 0 needs neither group
    friend bool operator==(const Access&, const Access&) = default;
  } access;
  struct Log {
    LogLevel level = LogLevel::Info;
    LogFormat format = LogFormat::Text;
    std::string file;  // "": standard error
    friend bool operator==(const Log&, const Log&) = default;
  } log;
  struct MetricsEndpoint {
    std::string listen = "127.0.0.1:9464";  // or "unix:<path>", or "" for none
    friend bool operator==(const MetricsEndpoint&, const MetricsEndpoint&) = default;
  } metrics;
  struct DeviceChoice {
    BackendChoice backend = BackendChoice::Auto;
    friend bool operator==(const DeviceChoice&, const DeviceChoice&) = default;
  } device;
  struct Host {
    std::uint64_t streams = 0;        // threads that reduce; 0: one per core
    std::int64_t in_call_bytes = -1;  // up to this ranks' calls meet without the worker; -1: auto
    friend bool operator==(const Host&, const Host&) = default;
  } host;
  struct Gpu {
    MpsChoice mps = MpsChoice::Require;
    bool resident = true;                       // a kernel that stays takes small operations
    std::uint64_t lease_ms = 20;                // without work it leaves after this
    bool in_stream = true;                      // small operations are launched by their clients
    std::uint64_t in_stream_communicators = 2;  // of one GPU, that share its SMs for them
    bool codecs = true;                         // operations that ask for one may have it
    bool speculative = true;  // larger operations are launched before they are called
    bool cuda_ipc = true;     // clients' memory by CUDA IPC handles, too
    std::uint64_t scratch_bytes = 4ull << 30;  // of each GPU: communicators' slots count in it
    std::string algorithm = "auto";            // or the name of the kernel for what is launched
    friend bool operator==(const Gpu&, const Gpu&) = default;
  } gpu;
  struct Rings {
    std::uint64_t slots = 256;  // a power of two
    friend bool operator==(const Rings&, const Rings&) = default;
  } rings;
  struct Wait {
    std::uint64_t spin_us = 50;  // a worker without work spins this long, then sleeps
    friend bool operator==(const Wait&, const Wait&) = default;
  } wait;
  struct Op {
    std::uint64_t default_timeout_ms = 600'000;
    std::uint64_t max_timeout_ms = 3'600'000;
    std::uint64_t segment_bytes = 64ull << 20;  // a longer operation runs in pieces of this size
    friend bool operator==(const Op&, const Op&) = default;
  } op;
  struct Comm {
    std::uint64_t join_timeout_ms = 60'000;
    friend bool operator==(const Comm&, const Comm&) = default;
  } comm;
  struct Net {
    std::string peers;       // "10.0.0.1:7400, 10.0.0.2:7400"; "": this daemon knows no other
    std::string listen;      // of peers' calls; "": none unless there are peers, then "[::]:7400"
    std::string name;        // of this node, for people; "": its host name
    std::string token_file;  // what all daemons know and nobody else
    std::string tls_cert, tls_key, tls_ca;  // mutual TLS between daemons where all are set
    std::string interfaces;                 // "eth0, ib*, 10.0.0.0/8"; "": what routes to the peers
    std::uint64_t data_port = 7401;
    std::uint64_t streams =
        0;             // to each peer, besides stream 0; 0: 8, or as many as half the cores
    std::string cpus;  // of the streams' threads: "4-7,12"; "": any
    std::uint64_t staging_bytes = 256ull << 20;  // of each worker, for what is on its way
    std::uint64_t peer_timeout_ms = 5000;        // a peer that is silent for so long is dead
    NetOrder order = NetOrder::OfRanks;
    NetPartials partials = NetPartials::Wide;
    NetAlgorithm algorithm = NetAlgorithm::Auto;
    std::uint64_t gpu_lanes = 0;       // of a kernel of GPUs of several nodes; 0: by their number
    std::uint64_t gpu_early_us = 500;  // one waits so long for the nodes to agree; 0: not launched
    friend bool operator==(const Net&, const Net&) = default;
  } net;
  struct Ring {  // of the ring between nodes; 0: as its tiers say
    std::uint64_t chunk_bytes = 0;
    std::uint64_t num_chunks = 0;
    std::uint64_t max_bdp_bytes = 0;
    std::uint64_t min_shard_bytes = 16;
    std::int64_t bidirectional_max_bytes = -2;  // -2: auto, -1: always, 0: off, else up to so many
    std::uint64_t max_blocks = 0;
    std::uint64_t threads = 0;
    friend bool operator==(const Ring&, const Ring&) = default;
  } ring;
  struct Quota {  // per uid; node_: of all together, 0: what the machine can bear
    std::uint64_t sessions = 256;
    std::uint64_t communicators = 1024;
    std::uint64_t registered_bytes = 64ull << 30;
    std::uint64_t in_flight = 16'384;  // 64 ranks with full rings
    std::uint64_t buffers = 65'536;
    std::uint64_t plans = 65'536;
    std::uint64_t node_connections = 0;
    std::uint64_t node_calls = 0;
    std::uint64_t node_sessions = 0;
    std::uint64_t node_communicators = 0;
    std::uint64_t node_host_bytes = 0;
    std::uint64_t node_mappings = 0;
    std::uint64_t node_plans = 0;
    std::uint64_t node_gpu_bytes = 0;  // of each GPU
    friend bool operator==(const Quota&, const Quota&) = default;
  } quota;
  struct Recorder {
    std::uint64_t records = 4096;  // a power of two
    friend bool operator==(const Recorder&, const Recorder&) = default;
  } recorder;
  struct Shutdown {
    std::uint64_t drain_timeout_ms = 5000;
    friend bool operator==(const Shutdown&, const Shutdown&) = default;
  } shutdown;
  struct Watchdog {
    bool enabled = true;  // ping systemd when it asks for pings
    std::uint64_t stall_ms =
        10'000;  // a worker with work that stands still this long stops the pings
    friend bool operator==(const Watchdog&, const Watchdog&) = default;
  } watchdog;
  struct Tuning {
    std::string file;  // "": <state_dir>/tuning.toml
    friend bool operator==(const Tuning&, const Tuning&) = default;
  } tuning;

  friend bool operator==(const Settings&, const Settings&) = default;
};

enum class SettingSource : std::uint8_t { Default, File, Environment, Flag };

// Where values come from. Later wins: default, file, environment, flag.
struct LoadRequest {
  std::string path{};  // "": no file
  // Somebody named the file, so that its absence is an error and not a start with defaults.
  bool path_must_exist = false;
  // "NAME=value"; only names that begin with ARCOMM_ are read.
  std::vector<std::string> environment{};
  std::vector<std::string> flags{};  // "section.key=value"
};

struct Loaded {
  Settings settings;
  std::string path;                    // the file that was read, or ""
  std::vector<SettingSource> sources;  // one per row of the table, in its order
  std::vector<std::string> warnings;
};

// InvalidArgument/BadConfig for a wrong file, variable or flag; the message cites file:line:column
// and the key, and lists every mistake found, one a line. NotFound or PermissionDenied when the
// file cannot be read.
Result<Loaded> load_settings(const LoadRequest& request);
// The same for text already in memory; `name` stands for the file in messages.
Result<Loaded> parse_settings(std::string_view toml, std::string_view name,
                              const LoadRequest& request = {});

// The path and whether it must exist: --config's value if not empty, else ARCOMM_CONFIG, else
// /etc/arcommd/arcommd.toml.
LoadRequest load_request(std::string config_flag, std::vector<std::string> set_flags);
// This process's environment as "NAME=value".
std::vector<std::string> process_environment();

struct SettingsDiff {
  std::vector<std::string> reloadable;     // "log.level: info -> debug"
  std::vector<std::string> needs_restart;  // the same, for settings that only a restart changes
  bool empty() const { return reloadable.empty() && needs_restart.empty(); }
};
SettingsDiff diff_settings(const Settings& before, const Settings& after);
// What runs after a reload: `after` for the settings a reload may change, `before` for the others.
Settings merge_reloadable(const Settings& before, const Settings& after);

// <state_dir>/tuning.toml unless tuning.file says otherwise.
std::string tuning_path(const Settings& settings);
// Beside it: tuning.network.toml.
std::string network_tuning_path(const Settings& settings);

std::string_view text_of(LogLevel level);
std::string_view text_of(LogFormat format);
std::string_view text_of(BackendChoice backend);
std::string_view text_of(MpsChoice mps);
std::string_view text_of(NetOrder order);
std::string_view text_of(NetPartials partials);
std::string_view text_of(NetAlgorithm algorithm);
std::string_view text_of(SettingSource source);

// Texts generated from the table.
std::string render_default_toml();  // arcommd.toml: every setting, commented out at its default
std::string render_values(
    const Loaded& loaded);    // --print-config: valid TOML, each value with its source
std::string render_manual();  // arcommd.toml(5), roff

}  // namespace arcomm
