"""The chart deploy/helm, rendered by a real helm and judged by a real kubeconform."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from tests.deploy.schemas import LOCATION, schemas
from tests.servers.needs import needs
from tests.servers.store_programs import StoreProgram, store_program
from tierstate.state.errors import Unavailable

RELEASE = "1.34.0"
"""Of Kubernetes. A helm that `go install` built takes 1.20 for the newest, which the chart refuses."""
Found = TypeVar("Found")
ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm"
HELM = StoreProgram("helm", "go", "helm.sh/helm/v3/cmd/helm", "v3.22.0", "helm")
KUBECONFORM = StoreProgram("kubeconform", "go", "github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0", "kubeconform")


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm. Skips the test on a machine that cannot build it; with TIERSTATE_CI=1 that is a failure."""
    needs(HELM)
    program = _had(lambda: store_program(HELM))
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)


def render(*arguments: str | Path, release: str = "tierstate") -> str:
    """Return what `helm template` prints. Raises AssertionError with helm's message where it refuses."""
    done = helm("template", release, CHART, "--kube-version", RELEASE, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(text) if each]


def nonconforming(text: str, folder: Path) -> str:
    """Return kubeconform's complaints about these manifests; empty if there is none."""
    needs(KUBECONFORM)
    program, location = _had(lambda: (store_program(KUBECONFORM), schemas() / LOCATION))
    file = folder / "manifests.yaml"
    file.write_text(text)
    done = subprocess.run(
        [program, "-strict", "-schema-location", str(location), str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def pods(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the spec of each pod that these manifests make, by kind and name of their owner."""
    owners = [each for each in found if "template" in each.get("spec", {})]
    return {f"{each['kind']} {each['metadata']['name']}": each["spec"]["template"]["spec"] for each in owners}


def patched_brokers(patch: dict[str, Any]) -> dict[str, Any]:
    """Return a StatefulSet of brokers with the agent in it, as `kubectl patch` merges both: by names."""
    brokers = yaml.safe_load((Path(__file__).parent / "brokers.yaml").read_text())
    assert patch.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert patch["metadata"] == {"name": brokers["metadata"]["name"]}
    assert patch["spec"].keys() == {"template"}
    assert patch["spec"]["template"].keys() == {"spec"}
    added, pod = patch["spec"]["template"]["spec"], brokers["spec"]["template"]["spec"]
    for part in added:
        names = [each["name"] for each in [*pod.get(part, ()), *added[part]]]
        assert len(names) == len(set(names)), "a patch of the same name would change the broker's"
        pod[part] = [*pod.get(part, ()), *added[part]]
    assert isinstance(brokers, dict)
    return brokers


def _had(make: Callable[[], Found]) -> Found:
    try:
        return make()
    except Unavailable as error:
        if os.environ.get("TIERSTATE_CI") == "1":
            raise
        pytest.skip(str(error))
