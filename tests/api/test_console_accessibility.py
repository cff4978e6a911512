"""Every page of the console is readable by people who see little, and by screen readers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.api.browser import Browser
from tests.servers.axe import axe_script

CONSOLE = Path(__file__).parents[2] / "api" / "console"
FINDINGS = "axe.run().then(said => said.violations.map(each => [each.id, each.nodes.map(node => node.html)]))"


@pytest.fixture(scope="module")
def axe() -> str:
    return axe_script()


@pytest.mark.chromium
@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("address", ["", "#/:tables", "#/orders", "#/orders/0/69995?count=12&contains=1", "docs"])
def test_axe_finds_nothing_on_any_page(page: Browser, url: str, axe: str, address: str, width: int) -> None:
    page.width(width)
    page.open(
        f"{url}/{address}",
        {"": "6 topics", "#/:tables": "4 tables", "docs": "/v1/topics"}.get(address, "What happened last"),
    )
    page.run("for (const each of document.querySelectorAll('details')) each.open = true")
    page.run(f"{axe}; 0")
    for scheme in ("dark", "light"):
        page.scheme(scheme)
        assert page.run(FINDINGS) == [], scheme
    page.width(1280)


def test_words_and_shapes_stand_out_from_what_they_are_on_in_both_schemes() -> None:
    text = (CONSOLE / "console.css").read_text()
    light, dark = (
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part)) for part in re.findall(r":root \{(.*?)\n *\}", text, re.S)
    )
    for colours in (light, light | dark):
        grounds = [colours[name] for name in ("back", "card", "soft")]
        for name in ("ink", "quiet", "trouble", "focus"):
            assert min(contrast(colours[name], ground) for ground in grounds) >= 4.5, name
        assert contrast(colours["on"], colours["focus"]) >= 4.5
        for name in ("remote", "local", "both", "gap"):
            assert min(contrast(colours[name], ground) for ground in grounds[:2]) >= 3, name
        for name, share in (("remote", 0.22), ("local", 0.24)):
            assert contrast(colours["ink"], mixed(colours[name], colours["card"], share)) >= 4.5, name


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours as WCAG 2.2 defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def mixed(one: str, other: str, share: float) -> str:
    parts = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in parts)
