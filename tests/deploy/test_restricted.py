"""Each rule of Pod Security "restricted" finds the pod that breaks it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.deploy.restricted import violations

CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
POD: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [{"name": "one", "securityContext": CONTAINER, "ports": [{"containerPort": 1}]}],
    "volumes": [{"name": "tmp", "emptyDir": {}}],
}


def test_a_pod_that_keeps_them_is_admitted() -> None:
    assert violations(POD) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("hostNetwork", True),
        ("hostPID", True),
        ("volumes.0.hostPath", {"path": "/"}),
        ("securityContext.runAsNonRoot", False),
        ("securityContext.runAsUser", 0),
        ("securityContext.sysctls", [{"name": "net.core.somaxconn", "value": "1"}]),
        ("securityContext.seccompProfile", {"type": "Unconfined"}),
        ("containers.0.securityContext.runAsNonRoot", False),
        ("containers.0.securityContext.runAsUser", 0),
        ("containers.0.securityContext.privileged", True),
        ("containers.0.securityContext.allowPrivilegeEscalation", None),
        ("containers.0.securityContext.seccompProfile", {"type": "Unconfined"}),
        ("containers.0.securityContext.capabilities", {}),
        ("containers.0.securityContext.capabilities", {"drop": ["ALL"], "add": ["SYS_ADMIN"]}),
        ("containers.0.ports.0.hostPort", 80),
    ],
)
def test_a_pod_that_breaks_one_is_refused(path: str, value: object) -> None:
    pod = copy.deepcopy(POD)
    place: Any = pod
    *parts, last = path.split(".")
    for part in parts:
        place = place[int(part) if part.isdigit() else part]
    place[last] = value
    assert len(violations(pod)) == 1


def test_a_pod_that_says_nothing_is_refused() -> None:
    assert len(violations({"containers": [{"name": "one"}]})) == 4
