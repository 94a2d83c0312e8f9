#include "daemon/plan/codec_words.h"

#include <gtest/gtest.h>

#include "daemon/plan/launch_table_between_nodes.h"
#include "daemon/plan/launch_table_builder.h"

namespace arcomm {
namespace {

LaunchTable on_gpus(std::uint32_t ranks, bool codecs = true, std::uint32_t blocks = 95) {
  return make_launch_table(
      {.ranks = ranks, .atomic_128b_stores = true, .in_stream_blocks = blocks, .codecs = codecs});
}

LaunchTable between_nodes(bool codecs) {
  return make_launch_table_between_nodes({.ranks = 2, .nodes = 2, .on_gpus = true},
                                         NetworkAlgorithm::Exchange, {.gpu_codecs = codecs});
}

std::string words(Codec codec, const LaunchTable& table) {
  return codec_words({.codec = codec}, CodecPlace::Gpus, table);
}

TEST(CodecWords, OfGpusSayHowFarACodecGoesAndHowOftenItQuantizes) {
  EXPECT_EQ(words(Codec::Q6, on_gpus(2)),
            "q6 as asked, in the ranks' own streams: up to 3406 MB of float16 and bfloat16, 6813 "
            "MB of float32; each element is quantized once on its way");
  EXPECT_NE(words(Codec::Q6, on_gpus(4)).find("quantized twice"), std::string::npos);
}

TEST(CodecWords, OfGpusSayWhatACodecNeedsWhereItIsRefused) {
  for (const LaunchTable& table : {on_gpus(2, false), on_gpus(2, true, 0), on_gpus(1)}) {
    EXPECT_EQ(words(Codec::Fp8, table),
              "fp8 is refused: only in-stream kernels take codecs, between ranks whose GPUs' "
              "stores of 128 bytes arrive whole, where gpu.codecs is on");
  }
}

TEST(CodecWords, OfOneOperationNameTheCodecThatItGets) {
  Codec codec = Codec::None;
  LaunchKey key{.bytes = 1 << 20, .dtype = DType::Float16};
  codec_words({.codec = Codec::Q8}, CodecPlace::Gpus, on_gpus(2), key, codec);
  EXPECT_EQ(codec, Codec::Q8);
  codec_words({.codec = Codec::Q8}, CodecPlace::Gpus, on_gpus(2, false), key, codec);
  EXPECT_EQ(codec, Codec::None);
  key.op = ReduceOp::Max;
  EXPECT_NE(codec_words({.codec = Codec::Q8}, CodecPlace::Gpus, on_gpus(2), key, codec)
                .find("q8 is refused: codecs serve sum and avg"),
            std::string::npos);
  EXPECT_EQ(codec, Codec::None);
  key.op = ReduceOp::Sum;
  const std::string refused =
      codec_words({.codec = Codec::Q8}, CodecPlace::GpusOfSeveralNodes, between_nodes(false), key,
                  codec, "node node-b does not allow codecs");
  EXPECT_EQ(codec, Codec::None);
  EXPECT_EQ(refused,
            "q8 is refused between GPUs of several nodes: node node-b does not allow codecs");
  const std::string taken = codec_words({.codec = Codec::Q8}, CodecPlace::GpusOfSeveralNodes,
                                        between_nodes(true), key, codec);
  EXPECT_EQ(codec, Codec::Q8);
  EXPECT_EQ(taken,
            "q8 at every size, as asked: by exchange, 8.5 bits of an element travel to each node; "
            "a node's sum is quantized once");
  EXPECT_NE(codec_words({.codec = Codec::Q4}, CodecPlace::SeveralHosts,
                        make_launch_table_on_host(2), key, codec)
                .find("4.5 bits of an element travel"),
            std::string::npos);
  EXPECT_EQ(codec, Codec::Q4);
}

TEST(CodecWords, NameTheNodeThatKeepsGpusOfSeveralFromCodecs) {
  NetworkPolicy policy;
  EXPECT_EQ(why_no_codecs(policy), "");
  policy.gpu_codecs = false;
  EXPECT_EQ(why_no_codecs(policy),
            "not all of its nodes are known to allow codecs: gpu.codecs must be on at each of "
            "them, and they of one release of arcommd");
  policy.no_gpu_codecs_on = "node-b (10.0.0.2:7400)";
  const std::string why = why_no_codecs(policy);
  EXPECT_EQ(why,
            "node node-b (10.0.0.2:7400) does not allow codecs: gpu.codecs is off there, or its "
            "release of arcommd does not tell");
  const Coding of_class{.error_class = {.least_snr_db = 20}};
  EXPECT_EQ(codec_words(of_class, CodecPlace::GpusOfSeveralNodes, between_nodes(false), why),
            "none at any size: " + why);
}

TEST(CodecWords, OfAnErrorClassOnGpusNameWhatPays) {
  const Coding coding{.error_class = {.least_snr_db = 40}};
  EXPECT_EQ(codec_words(coding, CodecPlace::Gpus, on_gpus(2)),
            "q8 from 4194304 bytes on, else q8_rotated from 4194304 bytes on, else none");
  EXPECT_EQ(codec_words(coding, CodecPlace::Gpus, on_gpus(4)),
            "none at any size: none is known to be faster there");
  EXPECT_EQ(codec_words(coding, CodecPlace::GpusOfSeveralNodes, between_nodes(true)),
            "q8 from 65536 bytes on, else q8_rotated from 65536 bytes on, else none");
}

TEST(CodecWords, OfAnErrorClassBetweenHostsNameSizesByTypeAndWhyThereAreNone) {
  const Coding coding{.error_class = {.least_snr_db = 40}};
  const RanksOnNodes where{.ranks = 2, .nodes = 2};
  NetworkPolicy policy{.link_bytes_per_second = 700'000'000};
  const LaunchTable table = make_launch_table_between_hosts(where, policy);
  EXPECT_EQ(codec_words(coding, CodecPlace::SeveralHosts, table),
            "q8 from 65536 bytes of float32 on, else q8_rotated from 65536 bytes of float32 on, "
            "else none");
  policy.link_bytes_per_second = 0;
  EXPECT_EQ(
      codec_words(coding, CodecPlace::SeveralHosts, make_launch_table_between_hosts(where, policy),
                  why_no_codec_pays(where, policy)),
      "none at any size: how fast the network is was not measured where it meets (arctl tune "
      "--network), so that a codec is to be named");
}

}  // namespace
}  // namespace arcomm
