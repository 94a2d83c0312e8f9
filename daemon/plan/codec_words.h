// What becomes of a wish for a codec or an error class, in words: for `arctl comms` and
// `arctl tune --explain`. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "daemon/plan/network/coding_between_nodes.h"
#include "daemon/plan/network_policy.h"
#include "proto/coding.h"
#include "proto/gpu/launch_table.h"

namespace arcomm {

// Where ranks are, as far as codecs care.
enum class CodecPlace : std::uint8_t { OneHost, Gpus, SeveralHosts, GpusOfSeveralNodes };

// Why GPUs of several nodes take no codec under this policy, naming the node that keeps it so where
// that is known; "" where they do.
std::string why_no_codecs(const NetworkPolicy& policy);
// Why an error class gets none between nodes (coding_rows_between_nodes() is empty).
std::string why_no_codec_pays(const RanksOnNodes& where, const NetworkPolicy& policy);

// What operations of every size get that ask for `coding`; "" where they ask for nothing.
// "none at any size: nothing travels between ranks of one host, ..."
// why_none: of ranks on several nodes, why_no_codec_pays().
std::string codec_words(const Coding& coding, CodecPlace place, const LaunchTable& table,
                        std::string_view why_none = {});
// The same of one operation; its key's own codec is not looked at. codec: what it gets.
std::string codec_words(const Coding& coding, CodecPlace place, const LaunchTable& table,
                        const LaunchKey& key, Codec& codec, std::string_view why_none = {});
// Every codec, a line each: what it promises of one and of two quantizations, and its bits.
std::string codec_bounds_text();

}  // namespace arcomm
