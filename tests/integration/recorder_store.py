#!/usr/bin/python3
"""What a killed daemon was doing is shown by the next one, because systemd keeps its flight recorder.

usage: recorder_store.py <arcommd> <arctl>

This program is what systemd would be: the notify socket that takes the descriptor (FDSTORE=1), and the parent that
passes it on as LISTEN_FDS.
"""
import array
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

DEADLINE = 30


class Systemd:
    def __init__(self, folder):
        self.path = folder + "/notify.sock"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(DEADLINE)
        self.stored = {}

    def wait_for(self, wanted):
        while True:
            text, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(4))
            fields = dict(line.split("=", 1) for line in text.decode().splitlines())
            if "FDSTOREREMOVE" in fields and fields["FDNAME"] in self.stored:
                os.close(self.stored.pop(fields["FDNAME"]))
            for _, _, data in ancillary:
                self.stored[fields["FDNAME"]] = array.array("i", data)[0]
            if wanted in fields:
                return

    def start(self, arcommd, folder):
        environment = {"NOTIFY_SOCKET": self.path, "PATH": os.environ["PATH"]}
        inherited = sorted(self.stored)
        passed = [self.stored[name] for name in inherited]

        def adopt():
            # Out of the way first: one of them may bear the number of another's place.
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate(passed)]
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i, inheritable=True)

        shell = []
        if inherited:
            shell = ["/bin/sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh"]
            environment |= {"LISTEN_FDS": str(len(inherited)), "LISTEN_FDNAMES": ":".join(inherited)}
        daemon = subprocess.Popen(
            shell + [arcommd, "--runtime-dir", folder, "--set", "state_dir=" + folder, "--set", "metrics.listen=",
                     "--set", "device.backend=host"],
            env=environment, preexec_fn=adopt, close_fds=False, stderr=open(folder + "/log", "a"))
        self.wait_for("READY")
        return daemon


def trace(arctl, folder, *flags):
    done = subprocess.run([arctl, "trace", "--json", "--last", "0", *flags], env={"ARCOMM_RUNTIME_DIR": folder},
                          capture_output=True, timeout=DEADLINE, check=True)
    return json.loads(done.stdout)["records"]


def main(arcommd, arctl):
    with tempfile.TemporaryDirectory() as folder:
        systemd = Systemd(folder)
        daemon = None
        try:
            daemon = systemd.start(arcommd, folder)
            assert list(systemd.stored) == ["recorder0"], systemd.stored
            assert trace(arctl, folder, "--previous") == []
            subprocess.run([arctl, "bench", "--ranks", "2", "-b", "1K", "-e", "1K", "-n", "5", "--rounds", "1"],
                           env={"ARCOMM_RUNTIME_DIR": folder}, timeout=DEADLINE, check=True,
                           stdout=subprocess.DEVNULL)
            before = trace(arctl, folder)
            assert len(before) >= 10, before
            daemon.kill()
            daemon.wait()
            # As if the dead one had been of a newer version, which stores more.
            systemd.stored["journal0"] = os.memfd_create("journal")
            daemon = systemd.start(arcommd, folder)
            assert sorted(systemd.stored) == ["journal0", "recorder0"], systemd.stored
            assert trace(arctl, folder) == []
            assert trace(arctl, folder, "--previous") == before
        finally:
            if daemon is not None:
                daemon.send_signal(signal.SIGTERM)
                daemon.wait(DEADLINE)
            print(open(folder + "/log").read(), file=sys.stderr)


main(*sys.argv[1:])
