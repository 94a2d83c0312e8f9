"""Puts libarclient into the wheel: $ARCOMM_LIBRARY, else the one that was built last in a build folder beside."""

import os
import pathlib
import shutil

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel


def library() -> pathlib.Path:
    named = os.environ.get("ARCOMM_LIBRARY")
    if named:
        return pathlib.Path(named)
    builds = pathlib.Path(__file__).resolve().parents[2] / "build"
    built = sorted(builds.glob("*/client/libarclient.so.0"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise SystemExit(
            f"no libarclient.so.0 under {builds}: build it first (./quickstart build), or name one in $ARCOMM_LIBRARY"
        )
    return built[-1]


class WithLibrary(build_py):
    def run(self) -> None:
        super().run()
        shutil.copyfile(library(), pathlib.Path(self.build_lib) / "arcomm" / "libarclient.so.0")


class HasALibrary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


class OfThisMachine(bdist_wheel):
    """For any Python 3, and for the platform that the library was built on."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(distclass=HasALibrary, cmdclass={"build_py": WithLibrary, "bdist_wheel": OfThisMachine})
