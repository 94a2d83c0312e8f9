#!/usr/bin/python3
"""The wheel: made of a copy of the package and the library that was built, installed into a fresh environment, used.

usage: wheel_test.py <client/python> <arcommd>     (ARCOMM_LIBRARY: libarclient)
"""
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile

from node_daemon import start_daemon

DEADLINE = 120
FIVE_LINES = """
import arcomm, numpy
with arcomm.Communicator(arcomm.unique_id(), 0, 1) as comm:
    x = comm.all_reduce(numpy.arange(5.0), op="avg")
    print(arcomm.__file__, arcomm.version(), x.sum())
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, **options)
    if done.returncode != 0:
        sys.exit("%s ended with %d:\n%s%s" % (" ".join(command), done.returncode, done.stdout, done.stderr))
    return done.stdout


def main():
    source, arcommd = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="arc") as folder:
        copy, environment = folder + "/source", folder + "/venv"
        shutil.copytree(source, copy)
        run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, copy)
        (wheel,) = glob.glob(folder + "/arcomm-*-py3-none-linux_*.whl")
        held = set(zipfile.ZipFile(wheel).namelist())
        assert {"arcomm/libarclient.so.0", "arcomm/py.typed", "arcomm/communicator.py"} <= held, held

        # numpy is the machine's, the package is not, and the library is the wheel's own.
        run(sys.executable, "-m", "venv", "--system-site-packages", environment)
        run(environment + "/bin/pip", "install", "--no-index", "--no-deps", wheel)
        plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ARCOMM_LIBRARY")}
        daemon = start_daemon(arcommd, folder)
        try:
            told = run(environment + "/bin/python", "-c", FIVE_LINES, cwd=folder,
                       env=plain | {"ARCOMM_RUNTIME_DIR": os.environ["ARCOMM_RUNTIME_DIR"]}).split()
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(DEADLINE)
        assert told[0].startswith(environment) and told[1:] == ["0.1.0", "10.0"], told


if __name__ == "__main__":
    main()
