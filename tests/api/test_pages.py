"""The console, the documentation and openapi.json: whole, valid, and from nowhere else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.api.gateways import Call
from tierstate.api.media import RECORD_TYPES
from tierstate.api.pages import ASSETS


def test_openapi_describes_every_route_and_every_reference_resolves(call: Call) -> None:
    document = call("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    prefix = "/v1/topics"
    one = f"{prefix}/{{topic}}/partitions/{{partition}}"
    routes = {
        prefix,
        f"{prefix}/{{topic}}",
        f"{prefix}/{{topic}}/partitions",
        f"{prefix}/{{topic}}/summary",
        f"{prefix}/{{topic}}/times",
        f"{prefix}/{{topic}}/groups",
        f"{prefix}/{{topic}}/facts",
        one,
        f"{one}/segments",
        f"{one}/agent",
        f"{one}/offsets",
        f"{one}/records",
        "/v1/tables",
        "/v1/plans",
        "/v1/plans/{plan}",
        f"{one}/segments/{{segment_id}}/grant",
        f"{one}/segments/{{segment_id}}/{{name}}",
    }
    assert set(document["paths"]) == routes
    operations = [call for methods in document["paths"].values() for call in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    references = list(_references(document))
    assert references
    for reference in references:
        node: Any = document
        for name in reference.removeprefix("#/").split("/"):
            node = node[name]
    records = document["paths"][f"{one}/records"]["get"]
    assert tuple(records["responses"]["200"]["content"]) == RECORD_TYPES
    assert {parameter["name"] for parameter in records["parameters"]} >= {"offset", "timestamp", "max_bytes", "tier"}


def _references(value: Any) -> Any:
    if isinstance(value, dict):
        for name, item in value.items():
            if name == "$ref":
                yield item
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


@pytest.mark.parametrize("path", ["/", "/docs", *(f"/console/{name}" for name in sorted(ASSETS))])
def test_pages_load_nothing_from_elsewhere(call: Call, path: str) -> None:
    answer = call(path)
    assert answer.status_code == 200
    assert not re.findall(r"""(?:src|href|url|import|fetch)\W{1,3}(?:https?:)?//""", answer.text)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("page", ["/", "/docs"])
def test_what_a_page_links_to_is_there(call: Call, page: str) -> None:
    links = re.findall(r'(?:src|href)="(/[^"]*)"', call(page).text)
    assert links
    for link in links:
        assert call(link).status_code == 200


@pytest.mark.parametrize("script", sorted(name for name in ASSETS if name.endswith(".js")))
def test_what_a_module_imports_is_there(call: Call, script: str) -> None:
    for name in re.findall(r'from "\./([^"]+)"', call(f"/console/{script}").text):
        assert call(f"/console/{name}").status_code == 200


@pytest.mark.parametrize("page", ["/", "/docs"])
def test_no_page_has_inline_script_or_style_that_its_policy_forbids(call: Call, page: str) -> None:
    text = call(page).text
    assert not re.search(r"<style|style=|\son\w+=|<script>", text)


def test_every_field_of_the_console_has_a_label(call: Call) -> None:
    text = call("/").text
    labelled = re.sub(r"<label.*?</label>", "", text, flags=re.DOTALL)
    assert set(re.findall(r'<(?:input|select)[^>]*id="(\w+)"', labelled)) == set(re.findall(r'for="(\w+)"', text))
    assert '<html lang="en">' in text
