"""The daemon that a test in Python starts."""
import os
import signal
import subprocess
import sys
import tempfile
import time

STOPS_WITHIN = 120  # seconds


def start_daemon(arcommd, folder):
    """With folders of its own under `folder`, which $ARCOMM_RUNTIME_DIR names from then on; its socket is there."""
    runtime, state = os.path.join(folder, "run"), os.path.join(folder, "state")
    os.mkdir(runtime)
    os.mkdir(state)
    log_path = os.path.join(folder, "log")
    with open(log_path, "w") as log:
        daemon = subprocess.Popen(
            [arcommd, "--runtime-dir", runtime, "--set", "state_dir=" + state, "--set", "metrics.listen="],
            stdout=log, stderr=subprocess.STDOUT)
    end = time.monotonic() + 20
    while not os.path.exists(os.path.join(runtime, "client.sock")):
        if daemon.poll() is not None or time.monotonic() > end:
            daemon.kill()
            with open(log_path) as log:
                sys.exit("the daemon did not start:\n" + log.read())
        time.sleep(0.01)
    os.environ["ARCOMM_RUNTIME_DIR"] = runtime
    return daemon


class NodeDaemon:
    """One in a folder that goes with it; it must end well when it is told to stop."""

    def __init__(self, arcommd):
        self._folder = tempfile.TemporaryDirectory(prefix="arc")
        self.folder = self._folder.name
        self.process = start_daemon(arcommd, self.folder)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(STOPS_WITHIN) == 0
        self._folder.cleanup()
