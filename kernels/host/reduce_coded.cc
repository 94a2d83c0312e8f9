#include "kernels/host/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/host/reduce_coded.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/host/coded_blocks-inl.h"
#include "kernels/host/half_format-inl.h"
#include "kernels/host/plain_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace arcomm::host::HWY_NAMESPACE {

template <typename Format>
void reduce_coded_elements(const ReduceCall& call) {
  const CodecFormat format = format_of(call.args.codec);
  if (format.is_fp8()) {
    CodedBlocks<Format, true>(call, format).run(call.first, call.last);
  } else {
    CodedBlocks<Format, false>(call, format).run(call.first, call.last);
  }
}

void reduce_coded(const ReduceCall& call) {
  if (call.args.dtype == DType::Float16) {
    reduce_coded_elements<Float16Format>(call);
  } else if (call.args.dtype == DType::BFloat16) {
    reduce_coded_elements<BFloat16Words>(call);
  } else {
    reduce_coded_elements<PlainFormat<float>>(call);
  }
}

}  // namespace arcomm::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace arcomm::host {
HWY_EXPORT(reduce_coded);
void reduce_coded(const ReduceCall& call) {
  HWY_DYNAMIC_DISPATCH(reduce_coded)(call);
}
}  // namespace arcomm::host
#endif
