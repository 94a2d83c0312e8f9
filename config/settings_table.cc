#include "config/settings_table.h"

#include <array>

#include "config/choice_words.h"
#include "config/network_rules.h"
#include "config/text_rules.h"

namespace arcomm {
namespace {

constexpr std::uint64_t kKiB = 1ull << 10;
constexpr std::uint64_t kMiB = 1ull << 20;
constexpr std::uint64_t kTiB = 1ull << 40;
constexpr std::uint64_t kDayMs = 24ull * 3600 * 1000;

constexpr std::array<LimitSetting::Word, 1> kAuto{{{"auto", -1}}};
constexpr std::array<LimitSetting::Word, 3> kBothWays{{{"auto", -2}, {"always", -1}, {"off", 0}}};

// The member that a row stands for, named once. Captureless, so that a row is constant data.
#define ARC_FIELD(type, member) [](Settings& s) -> type& { return s.member; }
#define ARC_CHOICE(names, type, member)                                              \
  ChoiceSetting {                                                                    \
    names, [](const Settings& s) { return static_cast<std::uint8_t>(s.member); },    \
        [](Settings& s, std::uint8_t index) { s.member = static_cast<type>(index); } \
  }

constexpr TextSetting text(std::string& (*field)(Settings&), const TextRule& rule) {
  return {.field = field, .accepts = rule.accepts, .allowed = rule.allowed};
}

constexpr SettingRow kRows[] = {
    {.section = "",
     .key = "runtime_dir",
     .kind = text(ARC_FIELD(std::string, runtime_dir), kSocketFolder),
     .doc = "Folder of the sockets (client.sock, admin.sock, fd.sock) and the lock file. Clients "
            "look there too: they read ARCOMM_RUNTIME_DIR. Sockets that systemd passes stay where "
            "their units put them."},
    {.section = "",
     .key = "state_dir",
     .kind = text(ARC_FIELD(std::string, state_dir), kFolder),
     .doc = "Folder of what outlives the daemon: the tuning table and flight-recorder dumps. The "
            "shipped unit lets the daemon write below /run/arcommd and /var/lib/arcommd only: for "
            "another folder, here or in log.file, give it ReadWritePaths= (systemctl edit)."},
    {.section = "access",
     .key = "group",
     .kind = text(ARC_FIELD(std::string, access.group), kGroupName),
     .reloadable = true,
     .doc = "Group whose members may attach. Empty, or a group that does not exist: only root (see "
            "trust_root) and the user that the daemon runs as. Under systemd the socket units set "
            "the sockets' "
            "group too: change both."},
    {.section = "access",
     .key = "admin_group",
     .kind = text(ARC_FIELD(std::string, access.admin_group), kGroupName),
     .reloadable = true,
     .doc = "Group whose members may use the admin socket: all of arctl but check and bench, which "
            "are clients. Empty or missing: as above."},
    {.section = "access",
     .key = "trust_root",
     .kind = SwitchSetting{.field = ARC_FIELD(bool, access.trust_root)},
     .reloadable = true,
     .doc = "Whether uid 0 may attach and operate without being in either group. The root of a "
            "container without a user namespace has uid 0, too. false: root is any other user, "
            "even to a daemon that runs as root, and may be in the groups. That keeps out a "
            "container whose root cannot change its groups (without CAP_SETGID and CAP_SETUID); "
            "from one that can, keep admin.sock: mount the other two sockets alone."},
    {.section = "log",
     .key = "level",
     .kind = ARC_CHOICE(kLogLevels, LogLevel, log.level),
     .reloadable = true,
     .doc = "The least severe lines that are written. Audit lines are always written."},
    {.section = "log",
     .key = "format",
     .kind = ARC_CHOICE(kLogFormats, LogFormat, log.format),
     .reloadable = true,
     .doc = "Lines for people, or one JSON object a line."},
    {.section = "log",
     .key = "file",
     .kind = text(ARC_FIELD(std::string, log.file), kFileOrNothing),
     .doc = "File to append to; a reload opens it anew, for log rotation. Empty: standard error, "
            "which under "
            "systemd is the journal."},
    {.section = "metrics",
     .key = "listen",
     .kind = text(ARC_FIELD(std::string, metrics.listen), kListenAddress),
     .doc = "Where Prometheus finds the metrics: an address and port, unix:<path>, or empty for "
            "nowhere. The port "
            "asks nobody who they are: keep it on 127.0.0.1."},
    {.section = "device",
     .key = "backend",
     .kind = ARC_CHOICE(kBackends, BackendChoice, device.backend),
     .doc = "What reduces: host (CPU and shared memory), cuda, or auto: cuda where this build and "
            "machine have it."},
    {.section = "host",
     .key = "streams",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, host.streams), .max = 64},
     .doc = "Threads of the host backend that reduce. 0: one per core, 64 at most."},
    {.section = "host",
     .key = "in_call_bytes",
     .kind =
         LimitSetting{
             .field = ARC_FIELD(std::int64_t, host.in_call_bytes), .words = kAuto, .max = 64 << 10},
     .reloadable = true,
     .doc =
         "Operations of up to so many bytes (unless that was measured: of 16-bit types half, and "
         "of "
         "more than 4 ranks less), "
         "between 2 to 8 ranks that are all on this host, run within the ranks' calls, which hand "
         "each other what they send in memory that the daemon makes for the communicator; whatever "
         "does not meet there soon goes to the "
         "worker. auto: up to what arctl tune found to be faster so, and 16 KiB where it has not "
         "been run. 0: the worker runs everything. Communicators keep what held when they were "
         "formed."},
    {.section = "gpu",
     .key = "mps",
     .kind = ARC_CHOICE(kMpsChoices, MpsChoice, gpu.mps),
     .doc =
         "NVIDIA MPS, without which every hand-over between client and daemon costs about 280 us. "
         "require: serve all the same when this daemon is no client of an MPS server, and say "
         "degraded in arctl status. manage: start one for as long as the daemon runs, with its "
         "pipes in mps/pipe of the runtime folder, which clients name in "
         "CUDA_MPS_PIPE_DIRECTORY; only a daemon that root runs can start one that all users share "
         "(-multiuser-server), any other serves GPUs to its own user and refuses the rest. Where "
         "the daemon is not root, as the shipped unit has it, and clients are of several users: "
         "require, and let root start nvidia-cuda-mps-control -d -multiuser-server before the "
         "daemon. off: do without, and say nothing."},
    {.section = "gpu",
     .key = "resident",
     .kind = SwitchSetting{.field = ARC_FIELD(bool, gpu.resident)},
     .reloadable = true,
     .doc = "Small operations are taken by a kernel that stays on each GPU while there is work. "
            "Off: it comes for each burst of them and leaves at once, which costs tens of "
            "microseconds. ARCOMM_NO_RESIDENT=1 in the daemon's environment is off too."},
    {.section = "gpu",
     .key = "in_stream",
     .kind = SwitchSetting{.field = ARC_FIELD(bool, gpu.in_stream)},
     .reloadable = true,
     .doc = "Operations of float16, bfloat16 and float32 up to 2 MB (16 MB between two GPUs; less "
            "where arctl tune found launches to be faster) run in the client's own stream, by a "
            "kernel that the daemon hands over, through memory that it lends the ranks: where "
            "every rank's process sees the GPUs of all ranks. The first communicator on a GPU gets "
            "most of its SMs for that, another one a small share, further ones what is left "
            "(gpu.in_stream_communicators). "
            "Off, for communicators to come: the resident kernel and launches by the daemon take "
            "them, and no process maps memory of another GPU's rank."},
    {.section = "gpu",
     .key = "in_stream_communicators",
     .kind =
         NumberSetting{
             .field = ARC_FIELD(std::uint64_t, gpu.in_stream_communicators), .min = 2, .max = 8},
     .reloadable = true,
     .doc = "Communicators of one GPU that shall have SMs for in-stream operations. The blocks of "
            "all must fit on the GPU side by side. Of 132 SMs the first has 95 and the second 25, "
            "which suffices for at most 1.25 times the first's time. A third one has 1, for "
            "operations up to 16 KB, and further ones none. With 3 the first has 70, with 4 it has "
            "45, which costs it up to a tenth of its speed from 1 MB on, and all others have 25. "
            "Each one more than 4 takes 6 from the first and has those, up to 96 KB. A change "
            "holds for communicators to come; arctl comms says what each has."},
    {.section = "gpu",
     .key = "codecs",
     .kind = SwitchSetting{.field = ARC_FIELD(bool, gpu.codecs)},
     .reloadable = true,
     .doc = "Operations that ask for a codec get it, whatever their size: on one node where they "
            "are in-stream (gpu.in_stream) and the GPUs' stores of 128 bytes arrive whole, else "
            "they are refused; and between nodes. A client loads a codec's kernels when it first "
            "asks for it on one node, and what asks for none costs nothing. Off, for communicators "
            "to come: every codec is refused, and an error class gets none. A communicator of "
            "several nodes takes codecs where it is on at all of them; arctl comms names the one "
            "where it is not."},
    {.section = "gpu",
     .key = "lease_ms",
     .kind =
         NumberSetting{.field = ARC_FIELD(std::uint64_t, gpu.lease_ms), .min = 1, .max = 60'000},
     .unit = SettingUnit::Milliseconds,
     .reloadable = true,
     .doc = "A resident kernel without work leaves after this time; the next operation brings it "
            "back, which costs tens of microseconds."},
    {.section = "gpu",
     .key = "speculative",
     .kind = SwitchSetting{.field = ARC_FIELD(bool, gpu.speculative)},
     .reloadable = true,
     .doc = "Operations too large for the resident kernel are launched speculatively where a "
            "communicator repeats itself: the next two already wait for their calls, behind gates "
            "of one warp each, for gpu.lease_ms at most. Off: each is launched when all ranks have "
            "called it, which costs about 5 us a rank."},
    {.section = "gpu",
     .key = "cuda_ipc",
     .kind = SwitchSetting{.field = ARC_FIELD(bool, gpu.cuda_ipc)},
     .reloadable = true,
     .doc = "Memory of cudaMalloc is taken for operations that the daemon runs. It comes by a CUDA "
            "IPC handle, and what happens to kernels that use it when a client frees it, or dies, "
            "in the middle of an operation, NVIDIA does not promise. Off, for memory to come: only "
            "what lives until the daemon lets go of it, by arcMemAlloc or of cuMemCreate with a "
            "shareable handle (PyTorch's expandable segments); where clients of several users "
            "share GPUs under MPS. What is in-stream takes any memory all the same."},
    {.section = "gpu",
     .key = "scratch_bytes",
     .kind =
         NumberSetting{.field = ARC_FIELD(std::uint64_t, gpu.scratch_bytes), .min = 0, .max = kTiB},
     .unit = SettingUnit::Bytes,
     .reloadable = true,
     .doc = "Memory of each GPU for what the ranks' launched kernels hand each other. A "
            "communicator has 34 MB of each of its GPUs from its beginning, and the slots of "
            "stream and copy_engine, 64 MB more for each other rank, from when the first plan "
            "comes that one of them is to run. Where that would be more than this, or the GPU has "
            "no memory left, it has none in its life, and two_shot or flash runs these plans "
            "instead, slower; arctl comms says so. A change holds for slots to come."},
    {.section = "gpu",
     .key = "algorithm",
     .kind = text(ARC_FIELD(std::string, gpu.algorithm), kKernelName),
     .reloadable = true,
     .doc = "The kernel for every operation that is launched and that it can run; others, and all "
            "with auto, get the tuning table's choice (arctl tune --explain SIZE says which): "
            "one_shot_ll16, one_shot_ll128, two_shot_ll128, two_shot, flash, stream or "
            "copy_engine. Operations small enough for the resident kernel go there in any case. A "
            "change "
            "holds for communicators to come."},
    {.section = "rings",
     .key = "slots",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, rings.slots),
                           .min = 8,
                           .max = 65'536,
                           .power_of_two = true},
     .reloadable = true,
     .doc = "Requests that a session can have under way before it must wait, or quota.in_flight "
            "where that is less. Sessions that are open keep their rings."},
    {.section = "wait",
     .key = "spin_us",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, wait.spin_us), .max = 1'000'000},
     .unit = SettingUnit::Microseconds,
     .reloadable = true,
     .doc = "A worker that finds no work spins this long before it sleeps. Waking it costs about "
            "40 us; spinning "
            "costs a core."},
    {.section = "op",
     .key = "default_timeout_ms",
     .kind =
         NumberSetting{
             .field = ARC_FIELD(std::uint64_t, op.default_timeout_ms), .min = 1, .max = kDayMs},
     .unit = SettingUnit::Milliseconds,
     .reloadable = true,
     .doc = "Deadline of an operation, and of a control call, whose caller names none "
            "(arcConfig_t.timeout_ms). Ten minutes, as PyTorch gives NCCL: a rank that compiles, "
            "captures graphs or loads weights comes minutes after its peers, and one that has died "
            "is noticed at once whatever stands here."},
    {.section = "op",
     .key = "max_timeout_ms",
     .kind =
         NumberSetting{
             .field = ARC_FIELD(std::uint64_t, op.max_timeout_ms), .min = 1, .max = kDayMs},
     .unit = SettingUnit::Milliseconds,
     .reloadable = true,
     .doc = "Longest deadline that a caller gets; a longer one is shortened to this."},
    {.section = "op",
     .key = "segment_bytes",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, op.segment_bytes),
                           .min = 64 * kKiB,
                           .max = 1024 * kMiB},
     .unit = SettingUnit::Bytes,
     .reloadable = true,
     .doc = "A longer operation runs in pieces of this size, so that a short one need not wait for "
            "all of it."},
    {.section = "comm",
     .key = "join_timeout_ms",
     .kind =
         NumberSetting{
             .field = ARC_FIELD(std::uint64_t, comm.join_timeout_ms), .min = 1, .max = kDayMs},
     .unit = SettingUnit::Milliseconds,
     .reloadable = true,
     .doc = "How long the first rank of a communicator waits for the last, where its request names "
            "no time. libarclient always names one: arcConfig_t.timeout_ms, or else "
            "op.default_timeout_ms."},
    {.section = "net",
     .key = "peers",
     .kind = text(ARC_FIELD(std::string, net.peers), kPeerList),
     .doc = "All daemons whose ranks may be in one communicator, such as \"10.0.0.1:7400, "
            "10.0.0.2:7400\": the same list, in the same words, on all nodes, this one included. "
            "The daemon finds itself in it by its interfaces' addresses. Empty: it knows no other, "
            "but for those that find it (net.listen)."},
    {.section = "net",
     .key = "listen",
     .kind = text(ARC_FIELD(std::string, net.listen), kPeerListenAddress),
     .doc = "Where other daemons call this one. No client and no operator is served there. Empty: "
            "where net.peers has this daemon, on that port of all addresses, or 7400; and without "
            "net.peers nowhere."},
    {.section = "net",
     .key = "name",
     .kind = text(ARC_FIELD(std::string, net.name), kNodeName),
     .doc = "What this node is called in the messages of all of them. Empty: its host name."},
    {.section = "net",
     .key = "token_file",
     .kind = text(ARC_FIELD(std::string, net.token_file), kFileOrNothing),
     .doc = "A file with what all daemons know and nobody else, 16 bytes at least (openssl rand "
            "-hex 32), of mode 0600 and owned by the user that the daemon runs as, or by root. "
            "Daemons prove to each other that they know it, without sending it. It keeps strangers "
            "out; it does not encrypt."},
    {.section = "net",
     .key = "tls_cert",
     .kind = text(ARC_FIELD(std::string, net.tls_cert), kFileOrNothing),
     .doc = "With net.tls_key and net.tls_ca: daemons' calls are encrypted, and both sides must "
            "show a certificate of that authority that names the address in net.peers. PEM. Data "
            "connections are not encrypted in any case: keep them on a network of your own."},
    {.section = "net",
     .key = "tls_key",
     .kind = text(ARC_FIELD(std::string, net.tls_key), kFileOrNothing),
     .doc = "The key of net.tls_cert, PEM, of mode 0600."},
    {.section = "net",
     .key = "tls_ca",
     .kind = text(ARC_FIELD(std::string, net.tls_ca), kFileOrNothing),
     .doc = "Who has signed the daemons' certificates, PEM."},
    {.section = "net",
     .key = "interfaces",
     .kind = text(ARC_FIELD(std::string, net.interfaces), kInterfaceList),
     .doc = "Which interfaces carry data, such as \"eth0, ib*, 10.0.0.0/8\"; several are used side "
            "by side. Empty: the one that routes to the peers. arctl net says which were chosen."},
    {.section = "net",
     .key = "data_port",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, net.data_port), .max = 65'535},
     .doc = "Where data connections of other daemons arrive, on each of the interfaces. 0: any "
            "that is free."},
    {.section = "net",
     .key = "streams",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, net.streams), .max = 64},
     .doc =
         "Connections to each other daemon that carry large data, with a thread for each, on "
         "both sides; the side that has fewer decides. 0: 8, or as many as half the cores; and on "
         "fewer than 4 cores one without a thread, which the worker drives."},
    {.section = "net",
     .key = "cpus",
     .kind = text(ARC_FIELD(std::string, net.cpus), kCpuList),
     .doc = "The CPUs that these threads run on, in turn, such as \"4-7,12\". Empty: any."},
    {.section = "net",
     .key = "peer_timeout_ms",
     .kind =
         NumberSetting{
             .field = ARC_FIELD(std::uint64_t, net.peer_timeout_ms), .min = 100, .max = 600'000},
     .unit = SettingUnit::Milliseconds,
     .doc = "A daemon that does not answer for this long is taken for dead: communicators that "
            "span it end on all nodes, and can be built anew without it."},
    {.section = "net",
     .key = "staging_bytes",
     .kind =
         NumberSetting{
             .field = ARC_FIELD(std::uint64_t, net.staging_bytes), .min = kMiB, .max = kTiB},
     .unit = SettingUnit::Bytes,
     .doc =
         "Memory of each worker for what is on its way between nodes, pinned for GPUs. Allocated "
         "at the start where net.peers or net.listen is set, else when the first communicator "
         "spans some. Communicators share it; one that finds none left is refused."},
    {.section = "net",
     .key = "order",
     .kind = ARC_CHOICE(kNetOrders, NetOrder, net.order),
     .doc = "The order in which floats are added up between nodes. rank: of ranks within a node, "
            "then of nodes, whatever the size. ring: large operations between many nodes may take "
            "the ring's, which begins at another node in each shard and depends on count and "
            "number of nodes alone. This and the settings of the ring count where a communicator "
            "meets, for all of its nodes. GPUs of several nodes have no ring: they add up by "
            "rank."},
    {.section = "net",
     .key = "partials",
     .kind = ARC_CHOICE(kNetPartials, NetPartials, net.partials),
     .doc = "How sums of float16 and bfloat16 travel between nodes. wide: as float32, so that a "
            "result is rounded once. dtype: rounded where they leave a node, in half the bytes. "
            "Of several GPUs on a node they always travel wide."},
    {.section = "net",
     .key = "algorithm",
     .kind = ARC_CHOICE(kNetAlgorithms, NetAlgorithm, net.algorithm),
     .doc =
         "How an AllReduce goes between nodes. auto: by size and number of nodes, as arctl tune "
         "--explain tells. ring: floats take direct all the same, unless net.order is ring. With a "
         "codec, which auto never takes around a ring, every node that a sum passes quantizes "
         "it anew. GPUs of several nodes always take exchange, whatever this says."},
    {.section = "net",
     .key = "gpu_lanes",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, net.gpu_lanes), .max = 32},
     .doc =
         "Lanes between a GPU and those of other nodes: each is a block that stages and one that "
         "combines, with 2 MiB of net.staging_bytes for each other node (less among more than 8 "
         "nodes). 0: 8, and 4 among more than 4 nodes. Counts where a communicator meets, for "
         "all of its nodes."},
    {.section = "net",
     .key = "gpu_early_us",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, net.gpu_early_us), .max = 1'000'000},
     .unit = SettingUnit::Microseconds,
     .reloadable = true,
     .doc =
         "Where the nodes of a communicator of GPUs are in step, a kernel is launched as soon as "
         "a node's own ranks have called, and stages its data while the nodes agree: for so "
         "long, then it is launched when they have. Until then it holds 2 SMs for each lane. 0: "
         "always when they have agreed."},
    {.section = "ring",
     .key = "chunk_bytes",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, ring.chunk_bytes), .max = 1024 * kMiB},
     .unit = SettingUnit::Bytes,
     .doc =
         "Bytes that go to the next node of a ring at once. 0: as the tiers of "
         "operations' sizes say. Never more than a frame carries, which is 128 KiB between hosts "
         "(64 KiB among more than 8 nodes, 32 KiB among more than 16)."},
    {.section = "ring",
     .key = "num_chunks",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, ring.num_chunks), .max = 65'536},
     .doc =
         "Chunks that may be under way to a neighbour. 0: as the tiers say. With "
         "ring.chunk_bytes it is held to ring.max_bdp_bytes and to staging; hosts have staging for "
         "6 chunks of the largest size from a neighbour. arctl tune --explain says what bounds "
         "it."},
    {.section = "ring",
     .key = "max_bdp_bytes",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, ring.max_bdp_bytes), .max = kTiB},
     .unit = SettingUnit::Bytes,
     .doc = "The largest bandwidth-delay product of a link: no more is under way to a neighbour. "
            "0: 32 MiB, and 128 MiB on GPUs after Hopper."},
    {.section = "ring",
     .key = "min_shard_bytes",
     .kind =
         NumberSetting{.field = ARC_FIELD(std::uint64_t, ring.min_shard_bytes), .max = 1024 * kMiB},
     .unit = SettingUnit::Bytes,
     .doc = "An operation whose shards would be smaller takes no ring, even where net.algorithm is "
            "ring."},
    {.section = "ring",
     .key = "bidirectional_max_bytes",
     .kind = LimitSetting{.field = ARC_FIELD(std::int64_t, ring.bidirectional_max_bytes),
                          .words = kBothWays,
                          .max = static_cast<std::int64_t>(kTiB)},
     .unit = SettingUnit::Bytes,
     .doc = "Operations of up to so many bytes gather their results both ways around the ring, in "
            "half of the steps. auto: 4 MiB, and 128 MiB on GPUs after Hopper."},
    {.section = "ring",
     .key = "max_blocks",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, ring.max_blocks), .max = 1024},
     .doc = "The most blocks that a ring's kernel has on each GPU. 0: as the tiers say. Nothing "
            "launches that kernel yet."},
    {.section = "ring",
     .key = "threads",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, ring.threads), .max = 1024},
     .doc = "Threads in a block of the ring's kernel. 0: as the tiers say. Nothing launches it "
            "yet."},
    {.section = "quota",
     .key = "sessions",
     .kind =
         NumberSetting{.field = ARC_FIELD(std::uint64_t, quota.sessions), .min = 1, .max = 65'536},
     .reloadable = true,
     .doc = "Sessions (attached processes) of one user."},
    {.section = "quota",
     .key = "communicators",
     .kind =
         NumberSetting{
             .field = ARC_FIELD(std::uint64_t, quota.communicators), .min = 1, .max = 1'000'000},
     .reloadable = true,
     .doc = "Communicator ranks of one user."},
    {.section = "quota",
     .key = "registered_bytes",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, quota.registered_bytes),
                           .max = 1024 * kTiB},
     .unit = SettingUnit::Bytes,
     .reloadable = true,
     .doc = "Bytes of memory that one user may have registered or allocated."},
    {.section = "quota",
     .key = "in_flight",
     .kind =
         NumberSetting{
             .field = ARC_FIELD(std::uint64_t, quota.in_flight), .min = 1, .max = 1'000'000},
     .reloadable = true,
     .doc = "Operations of one user that are submitted and not finished."},
    {.section = "quota",
     .key = "buffers",
     .kind =
         NumberSetting{
             .field = ARC_FIELD(std::uint64_t, quota.buffers), .min = 1, .max = 10'000'000},
     .reloadable = true,
     .doc = "Registered buffers of one user."},
    {.section = "quota",
     .key = "plans",
     .kind =
         NumberSetting{.field = ARC_FIELD(std::uint64_t, quota.plans), .min = 1, .max = 10'000'000},
     .reloadable = true,
     .doc = "Persistent plans of one user."},
    {.section = "quota",
     .key = "node_sessions",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, quota.node_sessions), .max = 65'536},
     .reloadable = true,
     .doc = "Sessions of all users. 0: a sixteenth of the daemon's descriptors (LimitNOFILE=), 64 "
            "at least. Of this and the limits below, a user gets no more than is still free, so "
            "that there is room for one who has nothing yet; 65,536 uids in a row above 65,535, "
            "which are one person's in a user namespace, count as one user. arctl status "
            "shows what is in use and what 0 came to."},
    {.section = "quota",
     .key = "node_communicators",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, quota.node_communicators),
                           .max = 10'000'000},
     .reloadable = true,
     .doc = "Communicator ranks of all users. 0: one for each MiB of memory, 4096 at least."},
    {.section = "quota",
     .key = "node_host_bytes",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, quota.node_host_bytes),
                           .max = 1024 * kTiB},
     .unit = SettingUnit::Bytes,
     .reloadable = true,
     .doc = "Memory of the host that all users may have registered or allocated, whether or not "
            "its pages are there yet. 0: seven eighths of the machine's memory, or of the memory "
            "limit of the service (MemoryMax=). A user gets up to three times of what is still "
            "free, which is three quarters for one alone; and the processes of a control group "
            "no more than the group's own memory limit."},
    {.section = "quota",
     .key = "node_mappings",
     .kind =
         NumberSetting{.field = ARC_FIELD(std::uint64_t, quota.node_mappings), .max = 10'000'000},
     .reloadable = true,
     .doc = "Sessions and registered buffers of all users, each of which the daemon maps, the same "
            "memory anew each time that it is registered. 0: half of vm.max_map_count."},
    {.section = "quota",
     .key = "node_plans",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, quota.node_plans), .max = 100'000'000},
     .reloadable = true,
     .doc = "Persistent plans of all users. 0: one for each 32 KiB of memory, 131072 at least. On "
            "GPUs there are 16384 besides, whatever is set."},
    {.section = "quota",
     .key = "node_connections",
     .kind =
         NumberSetting{.field = ARC_FIELD(std::uint64_t, quota.node_connections), .max = 1'000'000},
     .reloadable = true,
     .doc = "Connections of all users, on all three sockets: a process has one of fd.sock and one "
            "or more of client.sock. 0: an eighth of the daemon's descriptors, 64 at least. Of one "
            "user 1024, or 8 for each of quota.sessions where that is more."},
    {.section = "quota",
     .key = "node_calls",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, quota.node_calls), .max = 1'000'000},
     .reloadable = true,
     .doc = "Control calls of all users that wait for their answers, such as those of ranks whose "
            "communicator is not complete. 0: one for each 2 MiB of memory, from 4096 to 65536."},
    {.section = "quota",
     .key = "node_gpu_bytes",
     .kind =
         NumberSetting{.field = ARC_FIELD(std::uint64_t, quota.node_gpu_bytes), .max = 1024 * kTiB},
     .unit = SettingUnit::Bytes,
     .reloadable = true,
     .doc = "Memory of each GPU that the daemon may have allocated for all users. 0: all that the "
            "GPU has. A user gets up to three times of what is still free, which is three quarters "
            "for one alone; what users allocated by themselves and registered is not counted."},
    {.section = "recorder",
     .key = "records",
     .kind = NumberSetting{.field = ARC_FIELD(std::uint64_t, recorder.records),
                           .min = 16,
                           .max = 1'048'576,
                           .power_of_two = true},
     .doc = "Operations that the flight recorder of a worker keeps; 128 bytes each."},
    {.section = "shutdown",
     .key = "drain_timeout_ms",
     .kind =
         NumberSetting{.field = ARC_FIELD(std::uint64_t, shutdown.drain_timeout_ms), .max = 60'000},
     .unit = SettingUnit::Milliseconds,
     .reloadable = true,
     .doc =
         "On SIGTERM operations under way get this long to finish; what is left then is failed."},
    {.section = "watchdog",
     .key = "enabled",
     .kind = SwitchSetting{.field = ARC_FIELD(bool, watchdog.enabled)},
     .doc =
         "Answer systemd's watchdog, where the unit has one, for as long as every worker moves."},
    {.section = "watchdog",
     .key = "stall_ms",
     .kind =
         NumberSetting{
             .field = ARC_FIELD(std::uint64_t, watchdog.stall_ms), .min = 100, .max = kDayMs},
     .unit = SettingUnit::Milliseconds,
     .reloadable = true,
     .doc = "A worker that has work and stands still this long no longer counts as moving."},
    {.section = "tuning",
     .key = "file",
     .kind = text(ARC_FIELD(std::string, tuning.file), kFileOrNothing),
     .doc = "The tuning table that arctl tune writes. Empty: tuning.toml in the state folder. What "
            "arctl tune --network measures lies beside it, as tuning.network.toml."},
};

#undef ARC_CHOICE
#undef ARC_FIELD

}  // namespace

std::span<const SettingRow> settings_table() {
  return kRows;
}

}  // namespace arcomm
