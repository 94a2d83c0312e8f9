// Open MPI's MPI_Allreduce with the inputs, repetitions and output of the other systems. Run under
// mpirun.
#include <mpi.h>

#include <algorithm>

#include "tests/bench/peer_run.h"

namespace arcomm::bench {
namespace {

void add_bfloat16_mpi(void* in, void* inout, int* count, MPI_Datatype*) {
  auto* out = static_cast<std::uint16_t*>(inout);
  add_bfloat16(out, out, static_cast<const std::uint16_t*>(in), static_cast<std::size_t>(*count));
}

int run(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  PeerOptions options = parse_peer_options(argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &options.ranks);
  MPI_Op add = MPI_SUM;
  MPI_Datatype type = MPI_FLOAT;
  if (options.dtype == DType::BFloat16) {
    MPI_Op_create(add_bfloat16_mpi, 1, &add);
    MPI_Type_contiguous(1, MPI_UINT16_T, &type);
    MPI_Type_commit(&type);
  } else if (options.dtype != DType::Float32) {
    std::fprintf(stderr, "mpi_peer: float32 and bfloat16 only\n");
    MPI_Finalize();
    return 2;
  }
  const std::uint64_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
  std::vector<std::byte> send(largest), recv(largest);
  const arctl::Pattern pattern(options.dtype, ReduceOp::Sum, options.ranks);
  for (const std::uint64_t bytes : options.sizes) {
    const auto count = static_cast<int>(bytes / size_of(options.dtype));
    pattern.fill(send.data(), static_cast<std::uint64_t>(count), rank);
    const auto once = [&] {
      MPI_Allreduce(send.data(), recv.data(), count, type, add, MPI_COMM_WORLD);
    };
    for (std::uint32_t i = 0; i < options.warmup_of(bytes); ++i) once();
    std::fill_n(recv.begin(), bytes, std::byte{0xa5});
    const auto slowest = [](double us) {
      double all = 0;
      MPI_Allreduce(&us, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      return all;
    };
    std::vector<double> samples;
    for (std::uint32_t round = 0; round < options.rounds; ++round) {
      MPI_Barrier(MPI_COMM_WORLD);
      samples.push_back(round_us(options, bytes, once, slowest));
    }
    std::uint64_t wrong = pattern.wrong(recv.data(), static_cast<std::uint64_t>(count)),
                  all_wrong = 0;
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) print_samples("openmpi", "auto", options, bytes, samples, all_wrong);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace arcomm::bench

int main(int argc, char** argv) {
  return arcomm::bench::run(argc, argv);
}
