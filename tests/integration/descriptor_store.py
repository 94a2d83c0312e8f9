#!/usr/bin/python3
"""What systemd keeps for a daemon that is killed: its flight recorder, which the next one shows, and the rings of its
sessions, in which the next one ends what was open.

usage: descriptor_store.py <arcommd> <arctl> <arcomm_test_client>

This program is what systemd would be: the notify socket that takes the descriptors (FDSTORE=1), and the parent that
passes them on as LISTEN_FDS.
"""
import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

DEADLINE = 30
PROMPT = 3  # "at once", on a busy machine
UNAVAILABLE, DAEMON_LOST = 14, 12


class Systemd:
    def __init__(self, folder):
        self.path = folder + "/notify.sock"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(DEADLINE)
        self.stored = {}

    def hear(self):
        text, ancillary, _, _ = self.socket.recvmsg(4096, socket.CMSG_SPACE(4))
        fields = dict(line.split("=", 1) for line in text.decode().splitlines())
        if "FDSTOREREMOVE" in fields and fields["FDNAME"] in self.stored:
            os.close(self.stored.pop(fields["FDNAME"]))
        for _, _, data in ancillary:
            self.stored[fields["FDNAME"]] = array.array("i", data)[0]
        return fields

    def wait_for(self, wanted):
        while wanted not in self.hear():
            pass

    def names(self):
        while select.select([self.socket], [], [], 0)[0]:
            self.hear()
        return sorted(self.stored)

    def rings(self):
        return [name for name in self.names() if name.startswith("rings-")]

    def start(self, arcommd, folder):
        environment = {"NOTIFY_SOCKET": self.path, "PATH": os.environ["PATH"]}
        inherited = self.names()
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
                     "--set", "device.backend=host", "--set", "op.segment_bytes=4194304"],
            env=environment, preexec_fn=adopt, close_fds=False, stderr=open(folder + "/log", "a"))
        self.wait_for("READY")
        return daemon


class Client:
    """A process that does what it is told: a line for a verb, a line for its outcome."""

    def __init__(self, program, folder):
        self.process = subprocess.Popen([program], env={"ARCOMM_RUNTIME_DIR": folder}, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, bufsize=0)

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")

    def hear(self, seconds=DEADLINE):
        assert select.select([self.process.stdout], [], [], seconds)[0], "no answer in %s s" % seconds
        code, reason, _, _, value, message = self.process.stdout.readline().decode().rstrip("\n").split(" ", 5)
        return int(code), int(reason), value, message

    def ok(self, line):
        self.tell(line)
        return self.expect_ok()

    def expect_ok(self):
        code, reason, value, message = self.hear()
        assert code == 0, (code, reason, message)
        return value

    def expect_lost(self, seconds=DEADLINE):
        code, reason, _, message = self.hear(seconds)
        assert (code, reason) == (UNAVAILABLE, DAEMON_LOST), (code, reason, message)
        return message


def together(clients, *lines):
    for client, line in zip(clients, lines):
        client.tell(line)
    for client in clients:
        client.expect_ok()


def trace(arctl, folder, *flags):
    done = subprocess.run([arctl, "trace", "--json", "--last", "0", *flags], env={"ARCOMM_RUNTIME_DIR": folder},
                          capture_output=True, timeout=DEADLINE, check=True)
    return json.loads(done.stdout)["records"]


def until(true, what):
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def recorder_is_shown(systemd, start, arctl, _, folder):
    daemon = start()
    assert systemd.names() == ["recorder0"], systemd.stored
    assert trace(arctl, folder, "--previous") == []
    subprocess.run([arctl, "bench", "--ranks", "2", "-b", "64K", "-e", "64K", "-n", "5", "--rounds", "1"],
                   env={"ARCOMM_RUNTIME_DIR": folder}, timeout=DEADLINE, check=True, stdout=subprocess.DEVNULL)
    before = trace(arctl, folder)
    assert len(before) >= 10, before
    until(lambda: systemd.names() == ["recorder0"], "the rings of sessions that have ended: %s" % systemd.stored)
    daemon.kill()
    daemon.wait()
    # As if the dead one had been of a newer version, which stores more; and rings that are none.
    systemd.stored["journal0"] = os.memfd_create("journal")
    systemd.stored["rings-0000002a00000007"] = os.memfd_create("rings")
    start()
    assert systemd.names() == ["recorder0"], systemd.stored
    assert trace(arctl, folder) == []
    assert trace(arctl, folder, "--previous") == before


def rings_are_ended(systemd, start, arctl, client_program, folder):
    daemon = start()
    clients = [Client(client_program, folder) for _ in range(2)]
    together(clients, "init 20000", "init 20000")
    old = systemd.rings()
    assert len(old) == 2, systemd.stored
    for name in ("c0", "c1"):
        unique_id = clients[0].ok("id")
        together(clients, *("comm %s 2 %s %d" % (name, unique_id, rank) for rank in range(2)))
        together(clients, *2 * ["allreduce %s 10 float32 sum" % name])
    # All at once, so that the library has memory for as many later, when no daemon gives it any.
    counts = {"read": 1000, "unread": 1000, "parts": 3000000, "last": 1000}
    for client in clients:
        for name, count in counts.items():
            client.ok("async %s c0 %d float32 sum" % (name, count))
    for name in counts:
        together(clients, *2 * ["wait " + name])
    done = len(trace(arctl, folder))

    def submit(name):
        clients[0].ok("async %s c0 %d float32 sum" % (name, counts[name]))

    # Neither finds its peer: one operation of each was read, and of the first client more were not.
    submit("read")
    clients[1].tell("allreduce c1 1000 float32 sum")
    until(lambda: len(trace(arctl, folder)) == done + 2, "the operations were not read")
    daemon.send_signal(signal.SIGSTOP)
    submit("unread")
    submit("parts")
    submit("last")
    clients[0].process.send_signal(signal.SIGSTOP)
    killed = time.monotonic()
    daemon.kill()
    daemon.wait()
    # Who watches its socket knows at once.
    clients[1].expect_lost(PROMPT)
    assert time.monotonic() - killed < PROMPT
    start()
    assert systemd.names() == ["recorder0"], systemd.stored
    # Who does not is told by its rings.
    clients[0].process.send_signal(signal.SIGCONT)
    for name in counts:
        clients[0].tell("wait " + name)
        message = clients[0].expect_lost(PROMPT)
        assert "died with this open" in message, message
    together(clients, "rebuild c0", "rebuild c0")
    together(clients, *2 * ["allreduce c0 1000 float32 sum n=5"])
    took = time.monotonic() - killed
    assert took < 5, "%.1f s from the kill to a clean AllReduce" % took
    assert len(systemd.rings()) == 2 and not set(old) & set(systemd.rings()), systemd.stored
    told = [line for line in open(folder + "/log") if "of the previous daemon is closed" in line]
    assert len(told) == 2, told
    assert any("1 operations ended with it, 0 of them unread" in line for line in told), told
    assert not any("not in order" in line for line in told), told
    together(clients, "finalize", "finalize")
    until(lambda: systemd.names() == ["recorder0"], "the rings of sessions that have ended: %s" % systemd.stored)
    for client in clients:
        client.process.stdin.close()
        assert client.process.wait(DEADLINE) == 0


def main(arcommd, arctl, client_program):
    for case in (recorder_is_shown, rings_are_ended):
        with tempfile.TemporaryDirectory() as folder:
            systemd = Systemd(folder)
            daemons = []

            def start():
                daemons.append(systemd.start(arcommd, folder))
                return daemons[-1]

            try:
                case(systemd, start, arctl, client_program, folder)
            finally:
                if daemons:
                    daemons[-1].send_signal(signal.SIGCONT)
                    daemons[-1].send_signal(signal.SIGTERM)
                    daemons[-1].wait(DEADLINE)
                print(open(folder + "/log").read(), file=sys.stderr)


main(*sys.argv[1:])
