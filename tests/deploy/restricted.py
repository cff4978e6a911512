"""Pod Security "restricted", as far as fields of a pod can break it.

Source: Kubernetes' page "Pod Security Standards". Each rule is one line of `violations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def violations(pod: dict[str, Any]) -> list[str]:
    """Return what "restricted" refuses in this pod's spec; empty if it is admitted."""
    found = [f"{key} is shared with the host" for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    for volume in pod.get("volumes", ()):
        found += [f"volume {volume['name']} is a {kind}" for kind in volume.keys() - {"name"} - _VOLUMES]
    found += _user("the pod", pod.get("securityContext", {}))
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        found += [f"{container['name']}: {each}" for each in _container(container, pod.get("securityContext", {}))]
    return found


def _user(name: str, context: dict[str, Any]) -> Iterator[str]:
    if context.get("runAsUser") == 0:
        yield f"{name} runs as root"
    if context.get("sysctls"):
        yield f"{name} sets sysctls"


def _container(container: dict[str, Any], of_pod: dict[str, Any]) -> Iterator[str]:
    context = container.get("securityContext", {})
    yield from _user("the container", context)
    if context.get("privileged"):
        yield "privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation is not false"
    if context.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot is not true"
    if context.get("seccompProfile", of_pod.get("seccompProfile", {})).get("type") not in (
        "RuntimeDefault",
        "Localhost",
    ):
        yield "seccompProfile is not RuntimeDefault"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", ()):
        yield "capabilities are not dropped"
    if set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
        yield "capabilities are added"
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield "a port of the host"
