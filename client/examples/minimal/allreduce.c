/* Every process adds its numbers to everybody else's. Start one per rank, with arcommd running:
 *   for r in 0 1 2 3; do minimal_allreduce $r 4 /tmp/job & done; wait
 */
#include <arclient.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHECK(call) \
  if ((call) != arcSuccess) return fprintf(stderr, "%s: %s\n", #call, arcGetLastError(NULL)), 1

/* Rank 0 makes the id; the file is how the others get it. The rename makes it appear whole. */
static int share_id(arcUniqueId* id, int rank, const char* path) {
  char part[4096];
  FILE* file = NULL;
  int tries;
  if (rank == 0) {
    CHECK(arcGetUniqueId(id));
    snprintf(part, sizeof part, "%s.part", path);
    file = fopen(part, "wb");
    if (!file || fwrite(id, sizeof *id, 1, file) != 1 || fclose(file) || rename(part, path))
      return perror(path), 1;
    return 0;
  }
  for (tries = 0; tries < 1000 && !(file = fopen(path, "rb")); tries++) usleep(10000);
  if (!file || fread(id, sizeof *id, 1, file) != 1)
    return fprintf(stderr, "no id in %s\n", path), 1;
  return fclose(file);
}

int main(int argc, char** argv) {
  if (argc != 4) return fprintf(stderr, "usage: %s RANK RANKS ID_FILE\n", argv[0]), 2;
  const int rank = atoi(argv[1]), ranks = atoi(argv[2]);
  enum { kCount = 1 << 20 };
  arcUniqueId id;
  arcComm_t comm;
  float* numbers;

  if (share_id(&id, rank, argv[3])) return 1;
  CHECK(arcInit(NULL));
  CHECK(arcCommInitRank(&comm, ranks, id, rank));
  CHECK(arcMemAlloc((void**)&numbers, kCount * sizeof(float)));
  for (int i = 0; i < kCount; i++) numbers[i] = (float)(rank + 1);

  CHECK(arcAllReduce(numbers, numbers, kCount, arcFloat32, arcSum, comm, NULL));
  printf("rank %d of %d: 1 + ... + %d = %g\n", rank, ranks, ranks, numbers[kCount - 1]);

  CHECK(arcMemFree(numbers));
  CHECK(arcCommDestroy(comm));
  CHECK(arcFinalize());
  return 0;
}
