/* libarclient: collective communication through the node's arcommd daemon. C ABI, in NCCL's manner.
 *
 * Threads: every function may be called from any thread; calls on one communicator are ordered by
 * the order in which they are made, and ranks must make them in the same order. Group state is per
 * thread. Ownership: handles are released by the matching Destroy/Free call; pointers passed in are
 * borrowed for the call, buffers of an asynchronous operation until its ticket is done. Errors:
 * every call returns an arcResult_t (gRPC's canonical numbers). arcGetLastError() gives this
 * thread's last failure in words, with values and what to do; arcGetLastErrorInfo() the same for
 * programs. Time: no call blocks longer than its timeout plus 100 ms, but for what first uses a GPU
 * (see arcCommInitRank).
 *
 * On GPUs (device "gpu" or "GPU-<uuid>" in arcConfig_t) pointers are device pointers, streams are
 * cudaStream_t, and arcAllReduce and arcPlanStart put the operation on the stream and return, as in
 * NCCL. They may be captured into a CUDA graph; every replay is a new operation. What goes wrong
 * once an operation is on its stream is told by arcCommGetAsyncError. The CUDA driver is looked for
 * when the first such session attaches; nothing links it.
 */
#ifndef ARCLIENT_H_
#define ARCLIENT_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ARC_API __attribute__((visibility("default")))
#else
#define ARC_API
#endif

#define ARC_MAJOR 0
#define ARC_MINOR 1
#define ARC_PATCH 0
#define ARC_VERSION_CODE (ARC_MAJOR * 10000 + ARC_MINOR * 100 + ARC_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  arcSuccess = 0,
  arcCancelled = 1,          /* of gRPC; no call ends with it */
  arcUnknown = 2,            /* a code that this library does not know */
  arcInvalidArgument = 3,    /* an argument is wrong: correct the call */
  arcDeadlineExceeded = 4,   /* the timeout passed: see reasons Timeout and Crossed */
  arcNotFound = 5,           /* no such handle, ticket, memory or device */
  arcAlreadyExists = 6,      /* the rank is taken, or the memory registered already */
  arcPermissionDenied = 7,   /* this user may not: see reason Permission */
  arcResourceExhausted = 8,  /* see reasons Quota and OutOfMemory */
  arcFailedPrecondition = 9, /* not as things are: the reason and the message say what first */
  arcAborted = 10,           /* the communicator ended: arcCommRebuild, or arcCommDestroy */
  arcOutOfRange = 11,        /* larger than there can be, or past an end */
  arcUnimplemented = 12,     /* not on this device, or not in this build */
  arcInternal = 13,          /* a GPU, or an answer of the daemon, was not what it must be */
  arcUnavailable = 14,       /* no daemon serves this process now, or CUDA's driver is missing */
  arcDataLoss = 15,          /* as arcCancelled */
  arcUnauthenticated = 16,   /* as arcCancelled */
  arcInProgress = 100        /* not an error: arcTest only */
} arcResult_t;

/* What it was, and what to do next. "Rebuild" is arcCommRebuild, on all ranks. */
typedef enum {
  arcReasonNone = 0,          /* the code says it all */
  arcReasonBadValue = 1,      /* a value, or a call out of turn: the message says which */
  arcReasonOutOfBounds = 2,   /* a range leaves its memory */
  arcReasonUnknownHandle = 3, /* destroyed or freed before, or never given */
  arcReasonMismatch = 4,      /* the ranks asked for different things; the message has both */
  arcReasonTimeout = 5,       /* an operation's: rebuild; a wait's or a join's: again */
  arcReasonRemoteDied = 6,    /* `rank` is dead: rebuild, its replacement calls arcCommInitRank */
  arcReasonRemoteAborted = 7, /* `rank` left, or called arcCommAbort: rebuild or destroy */
  arcReasonRevoked = 8,       /* an earlier operation failed: rebuild; of a plan: create it again */
  arcReasonCrossed = 9,       /* two communicators, called in opposite order: rebuild both */
  arcReasonQuota = 10,        /* release some, or have the quota.* of the message raised */
  arcReasonShuttingDown = 11, /* as DaemonLost */
  arcReasonDaemonLost = 12,   /* rebuild: that waits for the next daemon, up to the timeout */
  arcReasonNotRunning = 13,   /* start arcommd, or correct runtime_dir, and call again */
  arcReasonForked = 14,       /* a child after fork: exec first */
  arcReasonPermission = 15,   /* the socket's group, or another user's communicator */
  arcReasonVersion = 16,      /* install client and daemon of one version */
  arcReasonQuarantined = 17,  /* a process (`rank`) wrote into its rings: mend it, rebuild */
  arcReasonOutOfMemory = 18,  /* memory or descriptors are used up, here or in the daemon */
  arcReasonBadConfig = 19,    /* the daemon's own: no call here ends with it */
  arcReasonCorrupt = 20,      /* shared bytes make no sense: as Quarantined */
  arcReasonUnsupported = 21,  /* this build or machine cannot do this */
  arcReasonBug = 22,          /* a defect of arcommd: please report it */
  arcReasonReordered = 23     /* graphs were replayed in another order on `rank`: rebuild */
} arcReason_t;

typedef enum {
  arcFloat16 = 0,
  arcBfloat16 = 1,
  arcFloat32 = 2,
  arcFloat64 = 3,
  arcInt8 = 4,
  arcUint8 = 5,
  arcInt32 = 6,
  arcUint32 = 7,
  arcInt64 = 8,
  arcUint64 = 9
} arcDataType_t;

typedef enum { arcSum = 0, arcProd = 1, arcMin = 2, arcMax = 3, arcAvg = 4 } arcRedOp_t;

/* What elements are rounded to before they are summed: see arcAllReduceWith. */
typedef enum {
  arcCodecNone = 0,
  arcCodecFp8 = 1,
  arcCodecQ8 = 2,
  arcCodecQ6 = 3,
  arcCodecQ4 = 4,
  arcCodecQ8Rotated = 5,
  arcCodecQ6Rotated = 6,
  arcCodecQ4Rotated = 7
} arcCodec_t;

#define ARC_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[ARC_UNIQUE_ID_BYTES];
} arcUniqueId;

typedef struct arcComm_s* arcComm_t;
typedef struct arcPlan_s* arcPlan_t;
typedef uint64_t arcTicket_t; /* 0 is never a ticket */
typedef void* arcStream_t;    /* a cudaStream_t on a GPU, NULL being the legacy default stream; must
                                 be NULL on the host device */

/* struct_size is set by ARC_CONFIG_INITIALIZER; fields are only appended. NULL and 0 mean the
 * default. */
typedef struct {
  size_t struct_size;
  const char* runtime_dir; /* where the daemon's sockets are; default $ARCOMM_RUNTIME_DIR, then
                              /run/arcommd */
  const char* device;  /* "host:0", "gpu", "GPU-<uuid>"; default $ARCOMM_DEVICE, then the daemon's
                          first device. The rank uses the GPU whose context is current when it
                          calls arcCommInitRank; where none is, "GPU-<uuid>", or with "gpu" the
                          first that the process sees. */
  uint64_t timeout_ms; /* default deadline of operations and control calls; default the daemon's */
} arcConfig_t;
#define ARC_CONFIG_INITIALIZER \
  { sizeof(arcConfig_t), NULL, NULL, 0 }

/* Of one AllReduce, or a communicator's default: a codec, or how far off the result may be, or
 * neither, which is no codec; see arcAllReduceWith. The same on every rank, else reason Mismatch.
 * struct_size is set by ARC_ALL_REDUCE_CONFIG_INITIALIZER; fields are only appended. */
typedef struct {
  size_t struct_size;
  arcCodec_t codec;
  uint32_t reserved;          /* 0 */
  double least_snr_db;        /* an error class: signal over noise, in dB; 0: not asked for */
  double most_relative_error; /* another, or both: of an element; 0: not asked for */
} arcAllReduceConfig_t;
#define ARC_ALL_REDUCE_CONFIG_INITIALIZER \
  { sizeof(arcAllReduceConfig_t), arcCodecNone, 0, 0, 0 }

/* Of a communicator. struct_size is set by ARC_COMM_CONFIG_INITIALIZER; fields are only appended.
 */
typedef struct {
  size_t struct_size;
  /* What AllReduces of this communicator get that bring no config of their own; read during the
   * call. NULL: no codec. The same on every rank, else reason Mismatch. */
  const arcAllReduceConfig_t* all_reduce;
  /* On GPUs: its kernels fill so many SMs of each at most, 0: as many as pay. The same on every
   * rank of a node, else reason Mismatch. Large operations take longer for it, and computation
   * beside them less. With a codec, operations are as long as 20 MB of float16 for each SM, longer
   * ones are refused. Not counted: the next operation's blocks, which may come while the last ones
   * end; kernels of one block that post or wait; what the daemon keeps for all communicators' small
   * operations (10 SMs, while there are any); and between nodes 2 SMs for each of net.gpu_lanes. On
   * the host it means nothing. */
  uint32_t most_sms;
  uint32_t reserved; /* 0 */
} arcCommConfig_t;
#define ARC_COMM_CONFIG_INITIALIZER \
  { sizeof(arcCommConfig_t), NULL, 0, 0 }

typedef struct {
  size_t struct_size;
  arcResult_t code;
  arcReason_t reason;
  int rank;     /* the rank that caused it, or -1 */
  uint64_t seq; /* of the operation, or UINT64_MAX */
  char message[512];
} arcErrorInfo_t;

/* ---- library ---- */
/* Attaches to the daemon. config may be NULL. Calls may nest, with the same config (else
 * arcFailedPrecondition): the last arcFinalize detaches. Without arcInit the first call that needs
 * the daemon attaches with the defaults. $ARCOMM_POST, of sessions on GPUs: "kernel", or "memops"
 * for streams that wait by stream memory operations and not by a kernel of ours. $ARCOMM_TRIGGER:
 * "early", or "late". A kernel of yours that is launched early behind an in-stream operation (with
 * programmatic stream serialization, or on such an edge of a graph) begins before the result is
 * stored, and must wait for it (griddepcontrol.wait, cudaGridDependencySynchronize). With "late" it
 * begins when the operation has ended, and need not. $ARCOMM_IN_CALL_BYTES, of communicators on the
 * host whose rank 0 this process is: up to how many bytes their operations run within the ranks'
 * calls, 1 to 65536, in the place of the daemon's bound; arctl tune measures with it. */
ARC_API arcResult_t arcInit(const arcConfig_t* config);
ARC_API arcResult_t arcFinalize(void);
ARC_API arcResult_t arcGetVersion(int* version); /* ARC_VERSION_CODE of the library */
ARC_API const char* arcGetErrorString(arcResult_t result);
ARC_API const char* arcGetReasonString(arcReason_t reason);
/* This thread's last failure, of whatever call; "" if none. Valid until the thread's next failing
 * call. Failures are kept by thread, not by communicator: comm is not looked at, and may be NULL or
 * destroyed. arcCommGetAsyncError says what ended a communicator, whoever noticed. */
ARC_API const char* arcGetLastError(arcComm_t comm);
ARC_API arcResult_t arcGetLastErrorInfo(arcErrorInfo_t* info); /* set info->struct_size first */

/* ---- communicators ---- */
/* Make it once, hand it to all ranks by any means. Needs no daemon; where one answers that knows
 * others, the id says at which node its ranks meet, so make it on a node where one of them will be.
 * Does not attach: a process may fork afterwards. */
ARC_API arcResult_t arcGetUniqueId(arcUniqueId* id);
/* Blocks until all `ranks` ranks have called, or the timeout. Several ranks may live in one
 * process: call from one thread each, or all between arcGroupStart and arcGroupEnd. 1 <= ranks
 * <= 64.
 * On GPUs the rank is on the GPU that is current in the calling thread; each rank needs one of its
 * own. ranks <= 8 (else arcUnimplemented), and a GPU is in at most 32 communicators of several
 * ranks at a time, of all users together (else reason Quota). Here and in arcCommRebuild, a GPU
 * whose context is still being set up may take up to 5 s past the timeout. */
ARC_API arcResult_t arcCommInitRank(arcComm_t* comm, int ranks, arcUniqueId id, int rank);
/* As arcCommInitRank, with a default codec or error class for the communicator's AllReduces, and a
 * bound on the SMs that it fills, which it keeps when it is rebuilt. arctl comms shows them, and
 * what becomes of them. config may be NULL. */
ARC_API arcResult_t arcCommInitRankConfig(arcComm_t* comm, int ranks, arcUniqueId id, int rank,
                                          const arcCommConfig_t* config);
/* Waits for this rank's operations, then leaves. Other ranks' later operations fail with reason
 * RemoteAborted. On GPUs synchronize the streams first: a start that is still on a stream, or in a
 * graph that is replayed later, ends without a result. */
ARC_API arcResult_t arcCommDestroy(arcComm_t comm);
/* Revokes the communicator on all ranks at once; operations in flight end with arcAborted. Frees
 * comm. */
ARC_API arcResult_t arcCommAbort(arcComm_t comm);
/* After a failure: forms the communicator again, same id and rank, next epoch. All ranks call it; a
 * process that replaces a dead one calls arcCommInitRank with the same id, or
 * arcCommInitRankConfig with the same id and config. */
ARC_API arcResult_t arcCommRebuild(arcComm_t comm);
ARC_API arcResult_t arcCommCount(arcComm_t comm, int* ranks);
ARC_API arcResult_t arcCommUserRank(arcComm_t comm, int* rank);
ARC_API arcResult_t arcCommGetEpoch(arcComm_t comm, uint64_t* epoch);
/* *state: arcSuccess while usable, else why not (arcGetLastErrorInfo says which rank). May ask the
 * daemon, for 50 ms at most, and the GPU, for 70. On GPUs ask it after synchronizing a stream,
 * before the results are used: a stream never hangs, it also runs on when an operation has failed.
 */
ARC_API arcResult_t arcCommGetAsyncError(arcComm_t comm, arcResult_t* state);

/* ---- memory ---- */
/* Memory that the daemon owns and this process shares: collectives on it move without a copy. Page
 * aligned, zeroed. On GPUs: memory of the GPU that is current in the calling thread, in whole
 * granules of 2 MiB. */
ARC_API arcResult_t arcMemAlloc(void** ptr, size_t bytes);
/* On GPUs this and arcMemDeregister need streams that are synchronized (else
 * arcFailedPrecondition), and graphs that used the memory are not replayed again: its plans go with
 * it. */
ARC_API arcResult_t arcMemFree(void* ptr);
/* Other memory that an operation is at work on is the caller's to keep, too: until its stream is
 * past it. Freed or unmapped before that its results are undefined, and where the operation is
 * in-stream the process's GPU context may be lost, under MPS that of every process on the GPU.
 * Where the daemon runs it the communicator's peers, other communicators and the GPU are not hurt:
 * memory of arcMemAlloc and of cuMemCreate lives until the daemon has let go of it. Of cudaMalloc's
 * memory NVIDIA promises that to nobody; a daemon with gpu.cuda_ipc = false refuses it. */
/* Makes [ptr, ptr + bytes) known, so that operations inside it need no further set-up. A mapping of
 * a memfd sealed with F_SEAL_SHRINK is shared as it is; other memory gets a staging buffer of its
 * own and is copied through it. On GPUs the whole allocation around ptr is registered (by its CUDA
 * IPC handle), or the chunks that are mapped under the range, as the first operation that is not
 * in-stream would do; arcMemDeregister of what neither has done is arcNotFound. A
 * chunk that other buffers lie on, too, is given back when no operation or graph needs it. */
ARC_API arcResult_t arcMemRegister(void* ptr, size_t bytes);
ARC_API arcResult_t arcMemDeregister(void* ptr);

/* ---- AllReduce ---- */
/* recv[i] = op over all ranks of send[i], i < count; the same bits on every rank. send == recv is
 * in place; otherwise they must not overlap. Pointers are aligned to the element. arcAvg divides by
 * the number of ranks; integers truncate toward zero. On GPUs, arctl comms says which sizes and
 * types are in-stream. */
/* clang-format off */
/*            | on the host                 | on GPUs
 *   blocking | until the result is there   | no: returns when the operation is on the stream
 *   stream   | must be NULL                | any of the rank's GPU; on several streams operations take
 *            |                             | place in the order of the calls
 *   capture  | -                           | yes; what graphs replay on several streams at once, the
 *            |                             | caller puts in order, the same way on every rank. All
 *            |                             | ranks capture the same operations of a communicator in
 *            |                             | the same order, and run each of them from a graph or none
 *            |                             | does: those that meet out of order fail with reason
 *            |                             | Reordered, before anything is written
 *   memory   | any (see above)             | of the rank's GPU, not managed. In-stream, and where the
 *            |                             | communicator has one rank: any such memory,
 *            |                             | cudaMallocAsync pools included. Else: such as another
 *            |                             | process can be given: cudaMalloc, arcMemAlloc, or mappings
 *            |                             | of cuMemCreate's allocations with a shareable handle, up to
 *            |                             | 256 behind one another (PyTorch's caching allocator,
 *            |                             | expandable segments included)
 *   asks the | for every operation         | in-stream: never. Else: for the first use of an allocation,
 *   daemon   |                             | and of a combination of buffers and count; also in a capture
 *   count 0  | ends when all ranks have called; the pointers are not looked at. Where another rank asks
 *            | for more, both fail with reason Mismatch (on GPUs as the stream runs; where the sizes take
 *            | different ways there and a graph has calls of the communicator: at the deadline)
 */
/* clang-format on */
ARC_API arcResult_t arcAllReduce(const void* send, void* recv, size_t count, arcDataType_t dtype,
                                 arcRedOp_t op, arcComm_t comm, arcStream_t stream);
/* As arcAllReduce, with a codec: every rank's elements, or what its node's ranks have together, are
 * quantized once, in blocks of 32, and what is left of them is summed in float32 and rounded once
 * to dtype. The result is another one than without, and the same bits on every rank. A codec is
 * used where it is asked for and nowhere else: by this call's config, or, where that is NULL and
 * for arcAllReduce, by the communicator's (arcCommInitRankConfig). A config that asks for nothing
 * is no codec, whatever the communicator's default. Codecs serve arcSum and arcAvg of arcFloat16,
 * arcBfloat16 and arcFloat32 between ranks on the host: of one node, where they cost time and save
 * none, as nothing travels there; and of several, where what travels is encoded. The ranks of a
 * node are added before they are quantized, together, and where each node combines a part
 * (net.algorithm) the result is quantized once more. They serve 2 to 8 GPUs of one node, too, at
 * any size, where the communicator's operations are in-stream (arctl comms); between more than two
 * GPUs sums are quantized once more on their way back. The first operation with a codec loads its
 * kernels, which takes some time and may wait for what the GPU runs: a default codec's are loaded
 * with the communicator, those of a plan with the plan. And they serve GPUs of several nodes: as
 * hosts of several, but what a node's ranks have together is quantized once, at every size. Both
 * where gpu.codecs is on: at the daemons of all nodes, else it is refused on all ranks. Anything
 * else is refused on the rank that asks, with arcInvalidArgument and the codec's name; other ranks
 * are not told.
 *
 * With an error class in the place of a codec the operation gets the fastest codec that honours it,
 * and none where no codec is known to be faster than none: on one host, between hosts whose network
 * is fast or was not measured (arctl tune --network), between more than two GPUs of a node, between
 * two below 4 MB, and between nodes below 64 KB. What is not served gets none, too. The daemon
 * decides, once, when the communicator is formed, for all ranks alike; arcCommGetCodec, arctl comms
 * and arctl tune --explain say what comes of it. There are two classes, on top of what arcAllReduce
 * itself rounds. */
/* clang-format off */
/*   least_snr_db         10 log10 of (the sum of squares of the exact result / that of what the
 *                        codec is off by), of Gaussian data: what is published of each codec, no
 *                        promise for other data
 *   most_relative_error  of every element: |what it is off by| is at most this times the sum over
 *                        the ranks of the largest magnitudes in its block (over their number, of an
 *                        average), whatever the data, but for the exceptions below
 *
 *                        |  Fp8     Q8      Q6      Q4      Q8Rotated  Q6Rotated  Q4Rotated
 *   least_snr_db         |  32.4    45.3    33.3    21.2    45.3       33.3       21.2
 *   most_relative_error  |  0.0628  0.0118  0.0352  0.1290  0.1256     0.5020     2.0079
 *
 * Where sums are quantized once more, between more than two GPUs of one node and between hosts by
 * direct (net.algorithm), the ratio is 3.01 dB less, and the error is e + e (1 + e) in the place
 * of e. Around a ring of n hosts, which no error class takes, noise is (n + 3) / 2 - 1 / n times as
 * strong, and the error (1 + e)^n - 1.
 *
 * How far off one rank's value x may be; a: the largest magnitude in its block of 32 elements,
 * counted from the first; L: 128 with Q8, 32 with Q6, 8 with Q4:
 *   Fp8         max(|x| / 16, a / 448 * 2^-10) * (1 + 2^-8)
 *   Q8, Q6, Q4  a / (2 L) * (1 + 2^-8) + |x| * 2^-22; for an x of the other sign than the block's
 *               (first) largest value and beyond a * (L - 1/2) / L * (1 - 2^-8):
 *               a * (1 / L + 2^-8)
 *   ..Rotated   the mean of that over the 32 values of the block's Walsh-Hadamard transform, which
 *               is what they quantize, and 5 * 2^-24 * (the sum of the block's magnitudes + a 32nd
 *               of the transform's and of its bounds). For data with outliers.
 * A sum is off by its ranks' bounds together, an average by that over their number; where sums are
 * quantized once more, around a ring at every node that they pass, by the bound of that besides, of
 * the sum as it is by then. Between several
 * nodes a rank here is a node, x and a those of the sum of its ranks. Both are rounded. Where a is
 * below 2^-100 the block counts as zeros. A NaN or an infinity makes its block's results NaN; a
 * value near the type's largest may become infinite, with ..Rotated one beyond 2^118 NaN, too.
 * kernels/codec/README.md has where these bounds are from, the format, and signal over noise: about
 * 32 dB with Fp8, 45 with Q8, 33 with Q6 and 21 with Q4 for Gaussian data.
 */
/* clang-format on */
ARC_API arcResult_t arcAllReduceWith(const void* send, void* recv, size_t count,
                                     arcDataType_t dtype, arcRedOp_t op,
                                     const arcAllReduceConfig_t* config, arcComm_t comm,
                                     arcStream_t stream);
/* *codec: what an AllReduce of this gets; config as arcAllReduceWith's. Asks nobody. */
ARC_API arcResult_t arcCommGetCodec(arcComm_t comm, size_t count, arcDataType_t dtype,
                                    arcRedOp_t op, const arcAllReduceConfig_t* config,
                                    arcCodec_t* codec);
/* Returns once submitted. Every ticket must be waited for (or tested until done) once. On GPUs
 * there are no tickets: arcUnimplemented. */
ARC_API arcResult_t arcAllReduceAsync(const void* send, void* recv, size_t count,
                                      arcDataType_t dtype, arcRedOp_t op, arcComm_t comm,
                                      arcStream_t stream, arcTicket_t* ticket);
/* The same with arcAllReduceWith's config. */
ARC_API arcResult_t arcAllReduceAsyncWith(const void* send, void* recv, size_t count,
                                          arcDataType_t dtype, arcRedOp_t op,
                                          const arcAllReduceConfig_t* config, arcComm_t comm,
                                          arcStream_t stream, arcTicket_t* ticket);
/* arcInProgress, or the operation's result (the ticket is then spent). */
ARC_API arcResult_t arcTest(arcTicket_t ticket);
/* timeout_ms 0: the operation's own deadline. arcDeadlineExceeded with reason Timeout leaves the
 * ticket valid when it was this wait that ended and not the operation; arcGetLastErrorInfo's seq is
 * then UINT64_MAX. */
ARC_API arcResult_t arcWait(arcTicket_t ticket, uint64_t timeout_ms);

/* ---- persistent plans: MPI_Allreduce_init's shape ---- */
/* Checks and registers once what is then started many times. Waits for no other rank: a start meets
 * whatever AllReduce the other ranks call or start. After arcCommRebuild starts fail
 * (arcFailedPrecondition, reason Revoked): destroy the plan and create it again.
 * On GPUs the node has 16384 plans for all users together (else reason Quota). Each combination of
 * buffers and count that arcAllReduce is called with is one too; those not in use make room. */
ARC_API arcResult_t arcPlanCreateAllReduce(arcPlan_t* plan, const void* send, void* recv,
                                           size_t count, arcDataType_t dtype, arcRedOp_t op,
                                           arcComm_t comm);
/* The same with arcAllReduceWith's config, which holds for every start. */
ARC_API arcResult_t arcPlanCreateAllReduceWith(arcPlan_t* plan, const void* send, void* recv,
                                               size_t count, arcDataType_t dtype, arcRedOp_t op,
                                               const arcAllReduceConfig_t* config, arcComm_t comm);
/* On the host one start at a time per plan. On GPUs as many as the streams order, with the timeout
 * that was in force when the plan was created. */
ARC_API arcResult_t arcPlanStart(arcPlan_t plan, arcStream_t stream);
/* On GPUs arcUnimplemented: synchronize the stream. */
ARC_API arcResult_t arcPlanWait(arcPlan_t plan, uint64_t timeout_ms);
/* Fails (arcFailedPrecondition) while a start has not been waited for. On GPUs it may be called at
 * any time: what is on a stream or in a graph stays good. */
ARC_API arcResult_t arcPlanDestroy(arcPlan_t plan);

/* ---- groups ---- */
/* Between the two, calls of this thread are collected, so that one thread can drive several ranks.
 * The outermost arcGroupEnd makes them: first arcCommInitRank (*comm is NULL until then) and
 * arcCommRebuild, together, on threads that end with it; then AllReduces of all kinds and
 * arcPlanStart, whose timeouts begin with arcGroupEnd, and waits for the blocking ones; then
 * arcCommDestroy. Returns the first failure, and makes the other calls all the same.
 * arcPlanWait, and arcWait and arcTest of the group's tickets, fail meanwhile
 * (arcFailedPrecondition). All other calls are made at once; on GPUs so are arcAllReduce and
 * arcPlanStart, which wait for no one. */
ARC_API arcResult_t arcGroupStart(void);
ARC_API arcResult_t arcGroupEnd(void);

#ifdef __cplusplus
}
#endif
#endif /* ARCLIENT_H_ */
