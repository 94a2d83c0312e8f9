#!/usr/bin/env python3
"""What must not pass for a success: programs that fail, hang or leave something running, and machines that end early."""
import pathlib
import sys
import tempfile
import unittest

import kernel
import machine
import run
from image import Image

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()


def boot(*scripts, seconds=30):
    """A machine without anything of the build. Each script is (name, its deadline, what the shell does)."""
    linux = kernel.fetch(BUILD / "tests/rdma_vm/kernel")
    image = run.system(linux, [])
    for number, script in enumerate(scripts):
        run.add_script(image, number, *script)
    with tempfile.TemporaryDirectory() as folder:
        file, console = pathlib.Path(folder, "initramfs"), pathlib.Path(folder, "console")
        image.write(file)
        return machine.run(linux.image, file, console, seconds, megabytes=512, heard=lambda line: None)


class PlantedFailures(unittest.TestCase):
    def test_what_becomes_of_each_program_is_told(self):
        story = boot(("fails", 20, "exit 3"), ("hangs", 1, "sleep 100"),
                     ("leaves", 20, "sleep 100 & echo $! >/tmp/left; printf 'no end of line'"),
                     ("looks", 20, "! kill -0 $(cat /tmp/left)"),
                     ("crashes", 20, "kill -SEGV $$"))
        self.assertEqual(story.broken, "")
        self.assertEqual({one.name: one.code for one in story.programs},
                         {"fails": 3, "hangs": 137, "leaves": 0, "looks": 0, "crashes": 139})
        self.assertIn("no end of line", story.programs[2].output)

    def test_a_kernel_that_panics_is_no_success(self):
        story = boot(("passes", 20, "true"), ("panics", 20, "echo c >/proc/sysrq-trigger"))
        self.assertEqual([one.name for one in story.programs], ["passes"])
        self.assertIn("went off while panics was at work", story.broken)

    def test_a_machine_that_is_not_through_in_time_is_ended(self):
        story = boot(("hangs", 100, "sleep 100"), seconds=1)
        self.assertIn("not through in time: hangs was at work", story.broken)

    def test_a_program_is_judged_by_what_it_ran(self):
        def judged(code, *lines, **entry):
            return run.judge({"seconds": 9, **entry}, machine.Ended("one", code, 1, list(lines)))

        passed, skipped = "[       OK ] A.B (1 ms)", "[  SKIPPED ] A.C (0 ms)"
        self.assertEqual(judged(0, passed), "")
        self.assertEqual(judged(0), "ran no case")
        self.assertEqual(judged(0, passed, skipped), "skipped A.C")
        self.assertEqual(judged(0, passed, skipped, may_skip=["A.C"]), "")
        self.assertEqual(judged(1, passed), "ended with status 1")
        self.assertIn("killed: after 9 s", judged(137, passed))
        self.assertEqual(run.judge({"seconds": 9}, None), "did not run to its end")


class Images(unittest.TestCase):
    def test_a_file_brings_its_folders_and_a_program_its_libraries(self):
        image = Image()
        image.add_program("/usr/bin/env")
        with tempfile.TemporaryDirectory() as folder:
            image.write(pathlib.Path(folder, "image"))
            written = pathlib.Path(folder, "image").read_bytes()
        for name in (b"\0usr/bin/env\0", b"usr/bin\0", b"libc.so.6\0", b"ld-linux-x86-64.so.2\0", b"TRAILER!!!\0"):
            self.assertIn(name.lstrip(b"\0"), written)
        self.assertEqual(len(written) % 4, 0)


if __name__ == "__main__":
    try:
        run.ensure_tools()
        kernel.fetch(BUILD / "tests/rdma_vm/kernel")
    except kernel.Missing as missing:
        sys.exit(run.without(missing))
    unittest.main()
