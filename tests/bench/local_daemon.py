#!/usr/bin/env python3
"""Runs a command against an arcommd of its own, in a folder of its own: local_daemon.py BUILD -- COMMAND...

As a module: `with LocalDaemon(build_folder) as environment:` gives the environment for clients.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path


class LocalDaemon:
    def __init__(self, build: Path, settings: dict[str, str] | None = None):
        self.build = build
        self.settings = settings or {}

    def __enter__(self) -> dict[str, str]:
        self.folder = Path(tempfile.mkdtemp(prefix="arcommd-bench-"))
        self.log = open(self.folder / "log", "w")
        environment = dict(os.environ, ARCOMM_RUNTIME_DIR=str(self.folder / "run"), ARCOMM_STATE_DIR=str(self.folder / "state"))
        environment.update(self.settings)
        (self.folder / "run").mkdir()
        (self.folder / "state").mkdir()
        self.process = subprocess.Popen([self.build / "daemon" / "arcommd"], env=environment, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.process.poll() is None:
            status = subprocess.run([self.build / "client" / "arctl" / "arctl", "status"], env=environment,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if status.returncode in (0, 6):
                return environment
            time.sleep(0.05)
        log = (self.folder / "log").read_text()
        self.__exit__()
        raise RuntimeError(f"arcommd did not start:\n{log}")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class LocalCluster:
    """Several daemons on this machine, each on an address of its own, that know each other."""

    def __init__(self, build: Path, nodes: int, settings: dict[str, str] | None = None):
        self.build, self.nodes, self.settings = build, nodes, settings or {}

    def __enter__(self) -> list[str]:
        """The runtime folders."""
        self.token = tempfile.NamedTemporaryFile("w")
        self.token.write("of this run alone\n")
        self.token.flush()
        network = f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250 + 1}"
        addresses = [f"{network}.{i + 1}:7400" for i in range(self.nodes)]
        self.daemons, folders = [], []
        try:
            for address in addresses:
                daemon = LocalDaemon(self.build, {"ARCOMM_NET_PEERS": ",".join(addresses), "ARCOMM_NET_LISTEN": address,
                                                  "ARCOMM_NET_TOKEN_FILE": self.token.name, "ARCOMM_METRICS_LISTEN": "",
                                                  **self.settings})
                folders.append(daemon.__enter__()["ARCOMM_RUNTIME_DIR"])
                self.daemons.append(daemon)
        except RuntimeError:
            self.__exit__()
            raise
        return folders

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.__exit__()
        self.token.close()


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        sys.exit(__doc__)
    with LocalDaemon(Path(sys.argv[1])) as clients:
        sys.exit(subprocess.run(sys.argv[3:], env=clients).returncode)
