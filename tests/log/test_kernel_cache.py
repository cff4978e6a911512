"""Kernels are compiled once a machine if any place can keep them; without a place the log reports it once."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from tierstate.log import lazy_kernel
from tierstate.log.kernel_folder import kernel_folder
from tierstate.log.warm_kernels import load_all

pytestmark = pytest.mark.extended

SHOWN = (
    "from tierstate.log import lazy_kernel as k, warm_kernels\nwarm_kernels.load_all()\n"
    "print(k.compiled_here(), k.FOLDER)"
)


@pytest.fixture(scope="module", autouse=True)
def warm_folder() -> None:
    """Fill the folder that the tests copy and read."""
    load_all()


PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that obeys the files' write permissions, even as root."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "PATH"))}
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        env=kept | variables,
        text=True,
        timeout=200,
        preexec_fn=partial(ctypes.CDLL(None).prctl, PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0),
    )


def test_a_warm_folder_that_is_read_only_is_read_from_a_copy(tmp_path: Path) -> None:
    warm = tmp_path / "warm"
    shutil.copytree(lazy_kernel.FOLDER, warm / Path(lazy_kernel.FOLDER).name, symlinks=True)
    folders = [warm, *warm.iterdir(), *warm.glob("*/kernels")]
    for folder in folders:
        folder.chmod(0o555)
    try:
        process = run(SHOWN, NUMBA_CACHE_DIR=str(warm), TMPDIR=str(tmp_path))
    finally:
        for folder in folders:
            folder.chmod(0o755)
    own = tmp_path / f"tierstate-kernels-{os.getuid()}" / Path(lazy_kernel.FOLDER).name
    assert process.stdout == f"False {own}\n", process.stderr


@pytest.mark.parametrize("setting", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
def test_a_read_only_folder_of_the_environment_is_found_without_a_setting(tmp_path: Path, setting: str) -> None:
    """One user builds an image and another runs it, and manifests may name another folder."""
    warm = tmp_path / "environment" / "share" / "tierstate" / "kernels"
    shutil.copytree(lazy_kernel.FOLDER, warm / Path(lazy_kernel.FOLDER).name, symlinks=True)
    folders = [warm, *warm.iterdir(), *warm.glob("*/kernels")]
    for folder in folders:
        folder.chmod(0o555)
    environment = f"import sys\nsys.prefix = {str(tmp_path / 'environment')!r}\n"
    try:
        process = run(environment + SHOWN, **{setting: str(tmp_path / "user")})
    finally:
        for folder in folders:
            folder.chmod(0o755)
    home = tmp_path / "user" / ("tierstate/numba" if setting == "XDG_CACHE_HOME" else "")
    assert process.stdout == f"False {home / Path(lazy_kernel.FOLDER).name}\n", process.stderr


def test_a_command_compiles_only_what_it_calls_and_leaves_numbas_settings_alone(tmp_path: Path) -> None:
    process = run(
        f"import sys\nsys.prefix = {str(tmp_path)!r}\n"
        "import numba\nnumba.config.CACHE_DIR = 'of the user'\n"
        "from tierstate.log import lazy_kernel, search_kernels\n"
        "search_kernels.fall_back(__import__('numpy').zeros(3, 'uint8'))\n"
        "print(sum(each.was_cold for each in lazy_kernel.Kernel.every), numba.config.CACHE_DIR)",
        NUMBA_CACHE_DIR=str(tmp_path),
    )
    assert process.stdout == "1 of the user\n", process.stderr


def test_kernels_are_warm_for_the_same_source_at_another_path(tmp_path: Path) -> None:
    """A packed environment is unpacked at a path of each application."""
    package = Path(lazy_kernel.__file__).resolve().parents[1]
    for name in ("log", "state", "runtime", "storage", "schemas"):
        if (package / name).is_dir():
            shutil.copytree(package / name, tmp_path / "unpacked" / "tierstate" / name)
    (tmp_path / "unpacked" / "tierstate" / "__init__.py").write_text("")
    home = Path(lazy_kernel.FOLDER).parent
    process = run(SHOWN, NUMBA_CACHE_DIR=str(home), PYTHONPATH=str(tmp_path / "unpacked"))
    assert process.stdout == f"False {lazy_kernel.FOLDER}\n", process.stderr


def test_another_source_does_not_take_the_place_of_this_one(tmp_path: Path) -> None:
    before = sorted(Path(lazy_kernel.FOLDER, "kernels").iterdir())
    changed = tmp_path / "changed" / "tierstate" / "log"
    shutil.copytree(Path(lazy_kernel.__file__).parent, changed)
    (changed.parent / "__init__.py").write_text("")
    with open(changed / "json_kernels.py", "a") as source:
        source.write("# changed\n")
    process = run(
        "from tierstate.log.kernel_folder import kernel_folder\nprint(kernel_folder())",
        NUMBA_CACHE_DIR=str(Path(lazy_kernel.FOLDER).parent),
        PYTHONPATH=str(changed.parents[1]),
    )
    assert Path(process.stdout.strip()).parent == Path(lazy_kernel.FOLDER).parent
    assert Path(process.stdout.strip()) != Path(lazy_kernel.FOLDER)
    assert sorted(Path(lazy_kernel.FOLDER, "kernels").iterdir()) == before
    shutil.rmtree(process.stdout.strip())


def test_a_folder_that_others_may_write_into_is_not_loaded_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere(tmp_path, monkeypatch)
    own = tmp_path / f"tierstate-kernels-{os.getuid()}"
    assert Path(kernel_folder()).parent == own
    own.chmod(0o777)
    assert kernel_folder() == ""


def test_a_link_is_not_taken_for_the_folder_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere(tmp_path, monkeypatch)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"tierstate-kernels-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    assert kernel_folder() == ""


def test_without_a_place_for_machine_code_an_executor_warns_once(tmp_path: Path) -> None:
    (tmp_path / f"tierstate-kernels-{os.getuid()}").write_text("a file where the folder should be")
    (tmp_path / "tierstate").write_text("here too")
    program = (
        f"import sys\nsys.prefix = {str(tmp_path)!r}\n"
        "from tierstate.log import kernels, search_kernels\nfrom tierstate.spark.batch import tell_if_cold\n"
        "search_kernels.fall_back.load()\ntell_if_cold()\ntell_if_cold()\nprint(kernels.REASONS[kernels.SHORT])"
    )
    process = run(program, XDG_CACHE_HOME=str(tmp_path), TMPDIR=str(tmp_path))
    assert process.stdout == "a record reaches beyond its batch\n", process.stderr
    assert process.stderr.count("this process compiled its kernels, and can keep them nowhere; run `python -m") == 1


def test_an_executor_whose_kernels_are_warm_says_nothing() -> None:
    process = run(
        "from tierstate.log.warm_kernels import load_all\nfrom tierstate.spark.batch import tell_if_cold\n"
        "load_all()\ntell_if_cold()",
        NUMBA_CACHE_DIR=str(Path(lazy_kernel.FOLDER).parent),
    )
    assert process.returncode == 0
    assert process.stderr == ""


def nowhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no place for the user's cache folder; ``folder`` is the temporary folder."""
    (folder / "tierstate").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(sys, "prefix", str(folder))
