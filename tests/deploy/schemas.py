"""JSON schemas of Kubernetes and of the Prometheus operator for kubeconform: made once a machine, offline afterwards.

Go fetches the modules that hold them, and checks both against Go's checksum database.

    <cache>/tierstate/kubernetes-v1.34.4/      a file for each kind; appears whole, by one rename
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tierstate.sandbox.artifacts import cache_folder, only_one
from tierstate.state.errors import InvalidRequest, Unavailable

KUBERNETES = "k8s.io/kubernetes", "v1.34.4", "api/openapi-spec/swagger.json"
OPERATOR = "github.com/prometheus-operator/prometheus-operator", "v0.85.0", "example/prometheus-operator-crd"
KINDS = {
    "ConfigMap",
    "Deployment",
    "Job",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "Service",
    "StatefulSet",
}
LOCATION = "{{ .ResourceKind }}{{ .KindSuffix }}.json"
"""How kubeconform finds the file of a kind."""


def schemas() -> Path:
    """Return the folder of the schemas; makes it when this machine has none.

    Errors: InvalidRequest (no Go), Unavailable (the modules cannot be fetched).
    """
    home = cache_folder() / f"kubernetes-{KUBERNETES[1]}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with only_one(home.with_name(home.name + ".lock")):
        if not home.exists():
            fresh = Path(tempfile.mkdtemp(prefix=home.name + ".", suffix=".part", dir=home.parent))
            try:
                _make(fresh / "whole", fresh / "modules")
                (fresh / "whole").rename(home)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    return home


def _make(folder: Path, modules: Path) -> None:
    folder.mkdir()
    definitions = json.loads(_fetched(*KUBERNETES, modules).read_text())["definitions"]
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            if kind["kind"] in KINDS and kind["version"] == "v1":
                needed = {each: _strict(definitions[each]) for each in _reached(name, definitions)}
                schema = {"$ref": f"#/definitions/{name}", "definitions": needed}
                _write(folder, kind["kind"], kind["group"], schema)
    operator = _fetched(*OPERATOR, modules)
    for name in ("prometheusrules", "servicemonitors"):
        spec = yaml.safe_load((operator / f"monitoring.coreos.com_{name}.yaml").read_text())["spec"]
        for version in spec["versions"]:
            if version["name"] == "v1":
                _write(folder, spec["names"]["kind"], spec["group"], _strict(version["schema"]["openAPIV3Schema"]))


def _write(folder: Path, kind: str, group: str, schema: dict[str, Any]) -> None:
    suffix = f"-{group.partition('.')[0]}" if group else ""
    (folder / f"{kind.lower()}{suffix}-v1.json").write_text(json.dumps(schema))


def _reached(name: str, definitions: dict[str, Any]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen.add(each)
            waiting += re.findall(r'"#/definitions/([^"]+)"', json.dumps(definitions[each]))
    return seen


def _strict(schema: Any) -> Any:
    """Return the schema without descriptions, in which an object has no other properties than those it names."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    if "Quantity is a fixed-point" in str(schema.get("description")):
        return {"type": ["number", "string"]}
    kept = {key: _strict(value) for key, value in schema.items() if not key.startswith("x-") and key != "description"}
    if isinstance(schema.get("properties"), dict):
        kept["properties"] = {key: _strict(value) for key, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            kept.setdefault("additionalProperties", False)
    return kept


def _fetched(module: str, version: str, path: str, folder: Path) -> Path:
    tool = shutil.which("go")
    if tool is None:
        raise InvalidRequest("schemas of Kubernetes are fetched with Go; install it (https://go.dev/dl)")
    environment = {**os.environ, "GOMODCACHE": str(folder), "GOFLAGS": "-modcacherw"}
    done = subprocess.run(
        [tool, "mod", "download", "-json", f"{module}@{version}"],
        cwd=folder.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"{module} could not be fetched", said=(done.stdout + done.stderr).strip()[-200:])
    return Path(json.loads(done.stdout)["Dir"]) / path
