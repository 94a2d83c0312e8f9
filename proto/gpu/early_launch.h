// Early launches: a kernel that CUDA may start before what is ahead of it in its stream has ended
// (programmatic stream serialization), because the kernel waits for that by itself. Client and
// daemon launch such kernels, each with its own half of CUDA, and go by the one rule below.
#pragma once

namespace arcomm {

// The instructions griddepcontrol.wait and .launch_dependents begin with this virtual architecture,
// 9.0 (PTX ISA 7.8). In code of an older one, our assembly leaves them out.
inline constexpr int kFirstPtxWithEarlyLaunches = 90;
// CUDA 12.3: from it on a stream capture takes an early launch, and graphs have such edges.
inline constexpr int kFirstDriverWithEarlyLaunches = 12'030;

// Whether a kernel may be launched early. `ptx_version`: the virtual architecture of the code that
// the GPU has loaded, as the function itself tells (CU_FUNC_ATTRIBUTE_PTX_VERSION,
// cudaFuncAttributes::ptxVersion). What the GPU could do does not matter: a GPU that is newer than
// this build runs code which its driver compiled from PTX of an older architecture. That code has
// no wait, so an early launch of it would read what is not written yet. Launched in order, it is
// right.
constexpr bool may_launch_early(int ptx_version, int driver_version) {
  return ptx_version >= kFirstPtxWithEarlyLaunches &&
         driver_version >= kFirstDriverWithEarlyLaunches;
}

}  // namespace arcomm
