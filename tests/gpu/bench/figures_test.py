#!/usr/bin/env python3
"""The table and the drawing of a run, from files as the programs write them. Needs no GPU."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from xml.etree import ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import plot  # noqa: E402  (the path has to be known first)
import run_figures  # noqa: E402


def measured(us, size, light):
    busbw = size / us * 1e-3  # of two ranks
    return {"p50_us": us, "p99_us": us + 1, "min_us": us - 1, "algbw_gb_s": busbw, "busbw_gb_s": busbw,
            "of_light_pct": 100 * busbw / light if light else None, "batches": 101, "operations": 100,
            "checked": "all" if size <= 1 << 26 else "sampled", "checked_bytes": min(size, 1 << 22), "wrong": 0}


def bench(light=400.0):
    """As `arctl bench --device gpu --json` between two GPUs without symmetric windows says it."""
    rows = []
    for size in (1024, 1 << 20, 1 << 28):
        us = 5 + size / 300e3
        for in_place in (False, True):
            rows.append({"bytes": size, "count": size // 2, "in_place": in_place,
                         "arcommd": {"stream": measured(us, size, light), "graph": measured(us - 1, size, light)},
                         "nccl": {"stream": measured(us * 2, size, light), "graph": measured(us * 3, size, light)}})
    return {"collective": "all_reduce", "device": "gpu", "ranks": 2, "dtype": "float16", "op": "sum",
            "timing": "cuda-events", "memory": "shared", "version": "0.1.0", "gpus": [0, 1], "light_gb_s": light,
            "light_why": "", "rows": rows,
            "contenders": [{"name": "arcommd", "measured": True, "gpu": "NVIDIA H200, CUDA 13.0"},
                           {"name": "nccl", "measured": True, "version": "2.27.3"},
                           {"name": "nccl-symmetric", "measured": False, "why": "no symmetric window here"}]}


KERNELS = [{"bytes": 1024, "ranks": 2, "light_gbs": 390.0, "nccl_us": [9.0, 40.0], "nccl_symmetric_us": [-1, None]},
           {"bytes": 1 << 20, "ranks": 2, "light_gbs": 390.0, "nccl_us": [99.0, 7.0], "nccl_symmetric_us": [6.5, 6.0]}]
TORCH = [{"bytes": 1024, "ranks": 2, "one_shot": {"p50_us": 8.0, "p99_us": 9.0}, "two_shot": None}]


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, content):
        with open(os.path.join(self.folder.name, name), "w") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))

    def figures(self):
        return run_figures.figures_of(self.folder.name, 2)

    def test_nccl_counts_as_what_it_did_better(self):
        self.write("service-2.json", bench())
        self.write("kernels-2.json", KERNELS)
        self.write("torch-peer-2.json", TORCH)
        small, middle, large = self.figures()
        self.assertEqual(small.peers["stream"], {"NCCL": 9.0})  # by the ranks about 10
        self.assertAlmostEqual(small.peers["graph"]["NCCL"], 3 * (5 + 1024 / 300e3))  # in one process 40
        self.assertEqual(small.best_peer("graph"), ("PyTorch one-shot", 8.0))
        self.assertEqual(middle.peers["graph"]["NCCL"], 7.0)
        self.assertEqual(middle.peers["stream"]["NCCL symmetric"], 6.5)
        self.assertNotIn("NCCL symmetric", large.peers["graph"])
        self.assertAlmostEqual(large.times_as_fast("stream"), 2)
        self.assertEqual([one.checked for one in (small, large)], ["all", "sampled"])

    def test_the_table_has_columns_under_their_titles(self):
        self.write("service-2.json", bench())
        self.write("kernels-2.json", KERNELS)
        lines = list(run_figures.table(self.figures()))
        self.assertEqual(len(lines), 2 + 3)
        places = [[i for i, c in enumerate(line) if c == "|"] for line in lines]
        self.assertTrue(all(one == places[0] for one in places), "\n".join(lines))
        self.assertIn(" 1M ", lines[3])
        self.assertIn("sampled", lines[4])

    def test_the_light_is_the_ranks_else_that_of_the_kernels(self):
        self.write("service-2.json", bench(light=None))
        self.write("kernels-2.json", KERNELS)
        small, _, large = self.figures()
        self.assertEqual(small.light_gbs, 390.0)
        self.assertIsNone(large.of_light("graph"))
        self.write("service-2.json", bench(light=400.0))
        large = self.figures()[-1]
        self.assertAlmostEqual(large.of_light("graph"), large.ours["graph"]["of_light_pct"])

    def test_the_drawing_is_a_drawing(self):
        self.write("service-2.json", bench())
        self.write("torch-peer-2.json", TORCH)
        self.assertEqual(run_figures.ranks_in(self.folder.name), [2])
        svg = plot.draw([self.figures()])
        self.assertTrue(ElementTree.fromstring(svg).tag.endswith("svg"))
        for words in ("arcommd, graph", "NCCL", "PyTorch one-shot", "to the next, all at once: 400"):
            self.assertIn(words, svg)
        self.assertNotIn("NCCL symmetric", svg)

    def test_the_committed_drawing_is_what_is_made_of_the_recorded_figures(self):
        here = os.path.dirname(os.path.abspath(plot.__file__))
        recorded, drawn = os.path.join(here, "recorded"), os.path.join(self.folder.name, "figures.svg")
        host = os.path.join(here, "..", "..", "bench", "recorded", "compare.json")
        subprocess.run([sys.executable, plot.__file__, recorded, drawn, host], check=True, capture_output=True)
        with open(drawn) as made, open(os.path.join(recorded, "figures.svg")) as committed:
            self.assertTrue(made.read() == committed.read(), "tests/gpu/bench/README.md says how to make it anew")

    def test_one_file_is_enough_for_a_drawing(self):
        self.write("mine.json", bench())
        source = os.path.join(self.folder.name, "mine.json")
        subprocess.run([sys.executable, plot.__file__, source], check=True, capture_output=True)
        with open(os.path.join(self.folder.name, "mine.svg")) as file:
            self.assertIn("2 GPUs: bus bandwidth", file.read())
        failed = subprocess.run([sys.executable, plot.__file__, source + ".none"], capture_output=True, text=True)
        self.assertNotEqual(failed.returncode, 0)
        self.assertIn("mine.json.none", failed.stderr)

    def test_figures_of_a_host_are_none(self):
        self.write("service-2.json", {"collective": "all_reduce", "ranks": 2, "rows": [{"bytes": 1024, "p50_us": 3.0}]})
        for command in ([run_figures.__file__, self.folder.name, "2"], [plot.__file__, self.folder.name],
                        [plot.__file__, os.path.join(self.folder.name, "service-2.json")]):
            failed = subprocess.run([sys.executable, *command], capture_output=True, text=True)
            self.assertEqual(failed.returncode, 1)
            self.assertIn("this is not what `arctl bench --device gpu --json` says", failed.stderr)
            self.assertNotIn("Traceback", failed.stderr)

    def test_a_run_that_failed_may_lack_a_mode_and_a_contender(self):
        said = bench()
        del said["rows"][-2]["arcommd"]["graph"], said["rows"][-2]["nccl"]  # out of place
        self.write("service-2.json", said)
        large = self.figures()[-1]
        self.assertIsNone(large.times_as_fast("stream"))
        self.assertEqual(len(list(run_figures.table(self.figures()))), 2 + 3)
        self.assertIn("arcommd, graph", plot.draw([self.figures()]))

    def test_a_program_that_failed_leaves_no_figures(self):
        self.write("service-2.json", "")
        self.assertEqual(self.figures(), [])


if __name__ == "__main__":
    unittest.main()
