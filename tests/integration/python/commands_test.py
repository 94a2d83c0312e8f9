#!/usr/bin/python3
"""python -m arcomm check and bench, over a daemon and without one.

usage: commands_test.py <arcommd>     (PYTHONPATH: client/python; ARCOMM_LIBRARY: libarclient)
"""
import os
import subprocess
import sys
import unittest

from node_daemon import NodeDaemon

ARCOMMD = sys.argv.pop(1)
DEADLINE = 120


def setUpModule():
    global daemon
    daemon = NodeDaemon(ARCOMMD)


def tearDownModule():
    daemon.stop()


def arcomm(*arguments, **environment):
    return subprocess.run([sys.executable, "-m", "arcomm", *arguments], capture_output=True, text=True, timeout=DEADLINE,
                          env=os.environ | environment)


class Check(unittest.TestCase):
    def test_sums_of_processes_on_the_host_are_verified(self):
        told = arcomm("check", "--device", "host", "--ranks", "3")
        self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
        self.assertIn("24 sums between 3 processes are right", told.stdout)
        self.assertIn("all is well", told.stdout)

    def test_without_a_daemon_it_says_what_to_start(self):
        told = arcomm("check", ARCOMM_RUNTIME_DIR="/nowhere")
        self.assertEqual(told.returncode, 1)
        self.assertIn("start arcommd", told.stdout)

    def test_without_a_library_it_says_what_to_install(self):
        told = arcomm("check", ARCOMM_LIBRARY="/nowhere/libarclient.so.0")
        self.assertEqual(told.returncode, 1)
        self.assertIn("install arcommd, or name the file in $ARCOMM_LIBRARY", told.stderr)

    def test_a_device_that_is_named_must_be_there(self):
        told = arcomm("check", "--device", "gpu", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(told.returncode, 1)
        self.assertIn("FAILED", told.stdout)


class Bench(unittest.TestCase):
    def test_every_size_has_its_line(self):
        told = arcomm("bench", "--sizes", "1K,64K", "--dtype", "float64", "--no-peer")
        self.assertEqual(told.returncode, 0, told.stdout + told.stderr)
        lines = [line.split() for line in told.stdout.splitlines()[3:]]
        self.assertEqual([line[:5] for line in lines],
                         [["1024", "128", "float64", "sum", "in"], ["65536", "8192", "float64", "sum", "in"]])
        for line in lines:
            self.assertGreater(float(line[5]), 0)
            self.assertEqual(line[9], "0")

    def test_what_is_no_size_is_refused(self):
        told = arcomm("bench", "--sizes", "1X")
        self.assertEqual(told.returncode, 2)
        self.assertIn("is no size", told.stderr)


if __name__ == "__main__":
    unittest.main()
