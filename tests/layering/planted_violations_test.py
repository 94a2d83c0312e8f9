#!/usr/bin/env python3
"""check_layering.py finds what it is for: each case plants one file in an otherwise clean tree."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import check_layering  # noqa: E402  (the path has to be known first)

CONTRACT = "// What it is. Thread: any.\n#pragma once\n"


def violations(path, text):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        clean = root / "proto" / "types.h"
        clean.parent.mkdir()
        clean.write_text(CONTRACT)
        planted = root / path
        planted.parent.mkdir(parents=True, exist_ok=True)
        planted.write_text(text)
        return check_layering.violations_in(root)[1]


def includes(path, header):
    begin = CONTRACT if path.endswith((".h", ".hpp", ".cuh")) else ""
    return violations(path, f"{begin}#include {header}\n")


class Includes(unittest.TestCase):
    def test_forbidden(self):
        for path, header in [
                ("proto/a.h", '"config/settings.h"'),
                ("config/a.h", '"kernels/args.h"'),
                ("kernels/a.h", '"transport/device/device.h"'),
                ("transport/device/a.h", '"kernels/args.h"'),
                ("transport/device/a.h", '"transport/peer/host_shm.h"'),
                ("transport/net/tcp/a.h", '"transport/peer/host_shm.h"'),
                ("client/src/a.cc", '"daemon/plan/plan.h"'),
                ("client/cuda/cuda_a.cc", '"kernels/args.h"'),
                ("client/arctl/a.cc", '"kernels/args.h"'),
                ("client/src/a.cc", '"transport/peer/host_shm.h"'),
                ("client/examples/a.cc", '"proto/types.h"'),
                ("client/examples/a.cc", '"client/src/session/session.h"'),
                ("client/include/arclient.hpp", '"proto/types.h"'),
                ("daemon/telemetry/a.h", '"daemon/plan/plan.h"'),
                ("daemon/memory/a.h", '"daemon/plan/plan.h"'),
                ("daemon/plan/tuning/a.cc", '"daemon/plan/launch_table_builder.h"'),
                ("daemon/plan/network/a.h", '"daemon/plan/explain.h"'),
                ("daemon/comm/a.h", '"daemon/session/session.h"'),
                ("daemon/session/a.h", '"daemon/exec/worker/worker.h"'),
                ("daemon/exec/a.h", '"daemon/control/access/connection_gate.h"'),
                ("daemon/exec/a.h", '"daemon/exec/gpu/gpu_backend.h"'),
                ("daemon/exec/gpu/a.h", '"daemon/exec/tune/gpu_tuner.h"'),
                ("daemon/exec/gpu/group/a.h", '"daemon/exec/worker/worker.h"'),
                ("daemon/exec/host/a.h", '"daemon/exec/gpu/gpu_backend.h"'),
                ("daemon/exec/net/links/a.h", '"daemon/exec/host/host_backend.h"'),
                ("daemon/exec/worker/a.h", '"daemon/exec/tune/tuner.h"'),
                ("daemon/control/a.h", '"daemon/exec/gpu/gpu_backend.h"'),
                ("daemon/control/a.h", '"daemon/operator/operator_actions.h"'),
                ("kernels/lines/a.cuh", '"kernels/codec/plain.cuh"'),
                ("kernels/codec/a.cuh", '"kernels/in_stream/exchange.cuh"'),
                ("kernels/resident/a.cuh", '"kernels/in_stream/exchange.cuh"'),
                ("kernels/args.h", '"kernels/resident/grid.h"'),
                ("client/src/a.cc", '"kernels/launch/launch_cuda.h"'),
                ("daemon/control/a.h", '"daemon/daemon.h"'),
                ("daemon/plan/a.h", '"client/include/arclient.h"'),
                ("daemon/plan/a.h", '"tests/support/pattern.h"'),
                ("daemon/exec/a.cc", "<grpcpp/grpcpp.h>"),
                ("client/src/session/session.cc", "<grpc/grpc.h>"),
                ("daemon/daemon.cc", '"proto/arcommd/v1/control.grpc.pb.h"'),
                ("daemon/exec/a.cc", "<cuda_runtime.h>"),
                ("daemon/exec/a.cc", "<boost/interprocess/mapped_region.hpp>"),
                ("transport/device/host/host_device.cc", "<cuda.h>"),
                ("client/arctl/gpu/device.h", "<cuda.h>"),
                ("transport/peer/a.h", "<nvml.h>"),
                ("daemon/exec/a.cc", '"worker.h"'),
                ("daemon/exec/a.cc", '"../plan/plan.h"')]:
            with self.subTest(path=path, header=header):
                found = includes(path, header)
                self.assertEqual(len(found), 1, found)
                self.assertIn(header.strip('"<>'), found[0])

    def test_allowed(self):
        for path, header in [
                ("config/a.h", '"proto/status.h"'),
                ("transport/net/tcp/a.h", '"transport/net/endpoint.h"'),
                ("client/src/a.cc", '"transport/device/memory.h"'),
                ("client/src/a.cc", '"kernels/host/reduce_in_call.h"'),
                ("client/cuda/cuda_a.cc", '"transport/device/cuda/cuda_driver.h"'),
                ("proto/shared_mapping.h", "<boost/interprocess/mapped_region.hpp>"),
                ("client/examples/a.c", "<arclient.h>"),
                ("client/include/arclient.hpp", '"arclient.h"'),
                ("client/arctl/a.cc", '"client/src/control/node_control.h"'),
                ("daemon/control/a.cc", '"daemon/exec/worker/device_worker.h"'),
                ("daemon/exec/tune/a.cc", '"daemon/exec/worker/device_worker.h"'),
                ("daemon/exec/gpu/network/a.h", '"daemon/exec/net/links/links.h"'),
                ("daemon/exec/gpu/a.h", '"kernels/resident/grid.h"'),
                ("daemon/operator/a.cc", '"daemon/in_force.h"'),
                ("daemon/plan/network/a.cc", '"daemon/plan/tuning/tuning_file.h"'),
                ("daemon/plan/a.cc", '"daemon/plan/network/network_choice.h"'),
                ("kernels/in_stream/a.cuh", '"kernels/codec/concept.cuh"'),
                ("daemon/control/a.cc", "<grpcpp/grpcpp.h>"),
                ("daemon/main.cc", '"daemon/daemon.h"'),
                ("daemon/daemon.cc", '"kernels/catalog.h"'),
                ("transport/device/cuda/cuda_device.cc", "<cuda.h>"),
                ("client/arctl/gpu/cuda_device.cc", "<cuda.h>"),
                ("client/cuda/post/cuda_post.cc", "<cuda.h>"),
                ("kernels/device/ptx.cuh", "<cuda_fp16.h>"),
                ("tests/unit/a_test.cc", '"daemon/plan/plan.h"')]:
            with self.subTest(path=path, header=header):
                self.assertEqual(includes(path, header), [])


class Tree(unittest.TestCase):
    def test_a_stranger_at_the_top(self):
        self.assertEqual(len(violations("notes/todo.md", "")), 1)
        self.assertEqual(len(violations("Makefile", "")), 1)
        self.assertEqual(violations(".clang-tidy", ""), [])

    def test_a_header_without_its_guard_or_its_contract(self):
        self.assertIn("#pragma once", violations("proto/a.h", "// A contract.\n")[0])
        self.assertIn("contract", violations("proto/a.h", "#pragma once\n")[0])

    def test_a_header_that_switches_on_cuda(self):
        self.assertIn("switches on CUDA", violations("proto/a.h", CONTRACT + "#ifdef ARCOMM_CUDA\n#endif\n")[0])

    def test_a_name_that_says_nothing(self):
        for path in ["proto/utils.h", "daemon/plan/plan_helper.h", "daemon/session_manager/a.h", "config/common.cmake"]:
            with self.subTest(path=path):
                self.assertTrue(any("says nothing" in line for line in violations(path, CONTRACT)))


if __name__ == "__main__":
    unittest.main()
