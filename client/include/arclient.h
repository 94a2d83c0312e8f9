/* libarclient: collective communication through the node's arcommd daemon. C ABI, in NCCL's manner.
 *
 * Threads: every function may be called from any thread; calls on one communicator are ordered by
 * the order in which they are made, and ranks must make them in the same order. Group state is per
 * thread. Ownership: handles are released by the matching Destroy/Free call; pointers passed in are
 * borrowed for the call, buffers of an asynchronous operation until its ticket is done. Errors:
 * every call returns an arcResult_t (gRPC's canonical numbers). arcGetLastError() gives this
 * thread's last failure in words, with values and what to do; arcGetLastErrorInfo() the same for
 * programs. Time: no call blocks longer than its timeout plus 100 ms.
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
  arcCancelled = 1,
  arcUnknown = 2,
  arcInvalidArgument = 3,
  arcDeadlineExceeded = 4,
  arcNotFound = 5,
  arcAlreadyExists = 6,
  arcPermissionDenied = 7,
  arcResourceExhausted = 8,
  arcFailedPrecondition = 9,
  arcAborted = 10,
  arcOutOfRange = 11,
  arcUnimplemented = 12,
  arcInternal = 13,
  arcUnavailable = 14,
  arcDataLoss = 15,
  arcUnauthenticated = 16,
  arcInProgress = 100 /* not an error: arcTest and arcCommGetAsyncError only */
} arcResult_t;

typedef enum {
  arcReasonNone = 0,
  arcReasonBadValue = 1,
  arcReasonOutOfBounds = 2,
  arcReasonUnknownHandle = 3,
  arcReasonMismatch = 4,
  arcReasonTimeout = 5,
  arcReasonRemoteDied = 6,
  arcReasonRemoteAborted = 7,
  arcReasonRevoked = 8,
  arcReasonCrossed = 9,
  arcReasonQuota = 10,
  arcReasonShuttingDown = 11,
  arcReasonDaemonLost = 12,
  arcReasonNotRunning = 13,
  arcReasonForked = 14,
  arcReasonPermission = 15,
  arcReasonVersion = 16,
  arcReasonQuarantined = 17,
  arcReasonOutOfMemory = 18,
  arcReasonBadConfig = 19,
  arcReasonCorrupt = 20,
  arcReasonUnsupported = 21,
  arcReasonBug = 22
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
                          first device. Which GPU a rank is on says the context that is current
                          when it calls arcCommInitRank; "GPU-<uuid>" counts where none is. */
  uint64_t timeout_ms; /* default deadline of operations and control calls; default the daemon's */
} arcConfig_t;
#define ARC_CONFIG_INITIALIZER \
  { sizeof(arcConfig_t), NULL, NULL, 0 }

typedef struct {
  size_t struct_size;
  arcResult_t code;
  arcReason_t reason;
  int rank;     /* the rank that caused it, or -1 */
  uint64_t seq; /* of the operation, or UINT64_MAX */
  char message[512];
} arcErrorInfo_t;

/* ---- library ---- */
/* Attaches to the daemon. config may be NULL. Calls may nest: the last arcFinalize detaches.
 * Without arcInit the first call that needs the daemon attaches with the defaults. */
ARC_API arcResult_t arcInit(const arcConfig_t* config);
ARC_API arcResult_t arcFinalize(void);
ARC_API arcResult_t arcGetVersion(int* version); /* ARC_VERSION_CODE of the library */
ARC_API const char* arcGetErrorString(arcResult_t result);
ARC_API const char* arcGetReasonString(arcReason_t reason);
/* This thread's last failure; "" if none. Valid until the thread's next failing call. comm may be
 * NULL. */
ARC_API const char* arcGetLastError(arcComm_t comm);
ARC_API arcResult_t arcGetLastErrorInfo(arcErrorInfo_t* info); /* set info->struct_size first */

/* ---- communicators ---- */
/* Needs no daemon. Make it once, hand it to all ranks by any means. */
ARC_API arcResult_t arcGetUniqueId(arcUniqueId* id);
/* Blocks until all `ranks` ranks have called, or the timeout. Several ranks may live in one
 * process: call from one thread each, or all between arcGroupStart and arcGroupEnd. 1 <= ranks
 * <= 64. On GPUs the rank is on the GPU that is current in the calling thread; each rank needs one
 * of its own. */
ARC_API arcResult_t arcCommInitRank(arcComm_t* comm, int ranks, arcUniqueId id, int rank);
/* Waits for this rank's operations, then leaves. Other ranks' later operations fail with reason
 * RemoteAborted. On GPUs synchronize the streams first: a start that is still on a stream, or in a
 * graph that is replayed later, ends without a result. */
ARC_API arcResult_t arcCommDestroy(arcComm_t comm);
/* Revokes the communicator on all ranks at once; operations in flight end with arcAborted. Frees
 * comm. */
ARC_API arcResult_t arcCommAbort(arcComm_t comm);
/* After a failure: forms the communicator again, same id and rank, next epoch. All ranks call it; a
 * process that replaces a dead one calls arcCommInitRank with the same id. */
ARC_API arcResult_t arcCommRebuild(arcComm_t comm);
ARC_API arcResult_t arcCommCount(arcComm_t comm, int* ranks);
ARC_API arcResult_t arcCommUserRank(arcComm_t comm, int* rank);
ARC_API arcResult_t arcCommGetEpoch(arcComm_t comm, uint64_t* epoch);
/* *state: arcSuccess while usable, else why not (arcGetLastErrorInfo says which rank). May ask the
 * daemon and the GPU, for 50 ms each at most. On GPUs ask it after synchronizing a stream, before
 * the results are used: a stream never hangs, it also runs on when an operation has failed. */
ARC_API arcResult_t arcCommGetAsyncError(arcComm_t comm, arcResult_t* state);

/* ---- memory ---- */
/* Memory that the daemon owns and this process shares: collectives on it move without a copy. Page
 * aligned. On GPUs: memory of the GPU that is current in the calling thread, in whole granules of
 * 2 MiB. */
ARC_API arcResult_t arcMemAlloc(void** ptr, size_t bytes);
/* On GPUs this and arcMemDeregister need streams that are synchronized, and graphs that used the
 * memory are not replayed again: its plans go with it. */
ARC_API arcResult_t arcMemFree(void* ptr);
/* Makes [ptr, ptr + bytes) known, so that operations inside it need no further set-up. A mapping of
 * a memfd sealed with F_SEAL_SHRINK is shared as it is; other memory gets a staging buffer of its
 * own and is copied through it. On GPUs the whole allocation around ptr is registered (by its CUDA
 * IPC handle, or as a descriptor where it has one), as the first operation would do. */
ARC_API arcResult_t arcMemRegister(void* ptr, size_t bytes);
ARC_API arcResult_t arcMemDeregister(void* ptr);

/* ---- AllReduce ---- */
/* recv[i] = op over all ranks of send[i], i < count; the same bits on every rank. send == recv is
 * in place; otherwise they must not overlap. Pointers aligned to the element; any memory (see
 * above). arcAvg divides by the number of ranks; integers truncate toward zero. On the host it
 * returns when the result is there.
 * On GPUs it returns when the operation is on the stream; send and recv are device pointers into
 * memory of the rank's GPU that another process can be given: cudaMalloc (PyTorch's caching
 * allocator), or arcMemAlloc; not managed memory, cudaMallocAsync pools or one buffer over several
 * mapped allocations. The first use of an allocation, and of a combination of buffers and count,
 * asks the daemon, also during a capture. On several streams the operations take place in the order
 * of the calls; what graphs replay on several streams at once, the caller puts in order, the same
 * way on every rank. */
ARC_API arcResult_t arcAllReduce(const void* send, void* recv, size_t count, arcDataType_t dtype,
                                 arcRedOp_t op, arcComm_t comm, arcStream_t stream);
/* Returns once submitted. Every ticket must be waited for (or tested until done) once. On GPUs
 * there are no tickets: arcUnimplemented. */
ARC_API arcResult_t arcAllReduceAsync(const void* send, void* recv, size_t count,
                                      arcDataType_t dtype, arcRedOp_t op, arcComm_t comm,
                                      arcStream_t stream, arcTicket_t* ticket);
/* arcInProgress, or the operation's result (the ticket is then spent). */
ARC_API arcResult_t arcTest(arcTicket_t ticket);
/* timeout_ms 0: the operation's own deadline. arcDeadlineExceeded with reason Timeout leaves the
 * ticket valid when it was this wait that ended and not the operation; arcGetLastErrorInfo's seq is
 * then UINT64_MAX. */
ARC_API arcResult_t arcWait(arcTicket_t ticket, uint64_t timeout_ms);

/* ---- persistent plans: MPI_Allreduce_init's shape ---- */
ARC_API arcResult_t arcPlanCreateAllReduce(arcPlan_t* plan, const void* send, void* recv,
                                           size_t count, arcDataType_t dtype, arcRedOp_t op,
                                           arcComm_t comm);
/* On the host one start at a time per plan. On GPUs as many as the streams order. */
ARC_API arcResult_t arcPlanStart(arcPlan_t plan, arcStream_t stream);
/* On GPUs arcUnimplemented: synchronize the stream. */
ARC_API arcResult_t arcPlanWait(arcPlan_t plan, uint64_t timeout_ms);
ARC_API arcResult_t arcPlanDestroy(arcPlan_t plan);

/* ---- groups ---- */
/* Between the two, calls of this thread are collected; arcGroupEnd submits them all and waits for
 * the blocking ones, so that one thread can drive several ranks. Returns the first failure. On GPUs
 * an AllReduce waits for no one and goes to its stream at once. */
ARC_API arcResult_t arcGroupStart(void);
ARC_API arcResult_t arcGroupEnd(void);

#ifdef __cplusplus
}
#endif
#endif /* ARCLIENT_H_ */
