// What the fakes of CUDA, libarclient and NCCL know of each other: work on the one stream, which is
// done at once, or kept for a graph while the stream is captured. Thread: the one that uses CUDA.
#pragma once

#include <functional>

// Takes what it points to. Of libcuda.so.1; the others link it.
extern "C" void fake_stream_do(std::function<void()>* work);
