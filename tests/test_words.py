"""docs/words.md has this house's own words: each names its file, each file's noun is there, no noun means two things.

The noun of a name is what stands last in it, as in English: `turn_queue.py` is a queue, `StableOffsetPin` a pin.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "words.md").read_text()
FLOORS = "state schemas runtime rules broker log storage leader follower fetch values app".split()
FACES = "api cli consumer proxy sandbox spark".split()
"""Their files are called after commands, routes and options, which have pages of their own: no noun of theirs is asked
for. But none of their classes takes another one's name."""

KAFKA = set(
    "acceptor acl batch broker client config control epoch fetch group header id index isolation key leadership log"
    " marker meta object partition quota range reader record remote replica request resource retention sasl snapshot"
    " source state store transaction truncation upload uuid writer".split()
)
"""Words of Kafka, and of every object store."""

PLAIN = set(
    "access address allocator answer azure block body break builder cache check clock code codec compression"
    " connection column count ddl decoder deletion description diff difference directory discovery dispatch doc"
    " encoding encryption end error event evolution existence extra file filter fingerprint folder gauge gcs head"
    " health info kind layout lifecycle line listing json login management memo members memory metric name"
    " observer option overview page pair parser policy probe progress queue raw reference registry replacement"
    " report rocksdb row s3 scan schemas scratch search section setting setup severity socket sorting spec status"
    " target text time tls token tool travel tree turn type unit unwrapper url urls values verification wire".split()
)
"""Plain English, or a programmer's: it means in its file what a dictionary says."""

NO_NOUN = set(
    "aged ahead apply ask before by checked copied decode delete due earliest following given gone kept"
    " known load local locate malformed missing moved observe observed off open reached read reading rebuilt refused"
    " repeatable resume retry rotate satisfiable seen stopped sweeping touched unconverted unknown verify watching"
    " whole".split()
)
"""What a file does, or what is so of a thing: plain with the words before it."""

OTHERS = KAFKA | PLAIN | NO_NOUN

SECTIONS = {
    "runtime/settings.py": "classes called as the tables of the file",
    "runtime/gateway_settings.py": "the same",
    "runtime/proxy_settings.py": "the same",
    "api/models.py": "as in openapi.json",
}
"""Classes whose names are read by people outside: they are called as there."""

ONE_THING = {
    "agent": "an agent: its loop; all of it opened",
    "archived_deletes": "what the archive says of deleted segments: read from it; asked by a sweep",
    "batch": "Kafka's record batch; Spark's batch read",
    "custody": "custody: what should be done; doing it",
    "offsets": "offsets: what the numbers mean; Kafka's questions for them, by time and by epoch",
    "open": "wiring of the room",
    "options": "options of the room",
    "orders": "orders of people: which stand; giving one",
    "positions": "where to read from: as typed; as Spark writes it",
    "reader": "whoever reads: one segment; a log",
    "records": "Avro's records; Kafka's records, as HTTP and Python have them",
    "recovery": "a recovery: what should be written; from which places",
    "segment": "a segment: a copied one; one on disk",
    "service": "a thread of a process; what the routes work with",
    "source": "a source of records: by our reader; Spark's data source",
    "topics": "topics: settings; as Kafka describes them; as HTTP answers",
    "plans": "plans for readers without a key to the bucket: made; asked for",
    "transactions": "Kafka's transactions: as a broker lists them; as a log tells them",
}
"""Files of one name in two rooms, and what they are the same of. Commands are called after what they run."""


class Entry(NamedTuple):
    words: tuple[str, ...]
    sentence: str
    files: tuple[str, ...]


def entries(page: str) -> list[Entry]:
    rows = [re.split(r" ?\| ?", line.strip("| ")) for line in page.splitlines() if line.startswith("| ")]
    return [
        Entry(tuple(row[0].split(", ")), row[1], tuple(re.findall(r"\]\(\.\./([^)]+)\)", row[-1])))
        for row in rows
        if row[0] != "word"
    ]


def words(name: str) -> list[str]:
    """Of a name in any case, or of prose."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]


def forms(word: str) -> set[str]:
    """A word, and what it may be the plural of."""
    return {word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)}


def files(root: Path, rooms: list[str]) -> list[Path]:
    return sorted(file for room in rooms for file in (root / room).rglob("*.py") if file.stem != "__init__")


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def classes(file: Path) -> list[str]:
    return [node.name for node in parsed(file).body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def nouns(file: Path) -> list[str]:
    """Of the file, and of its main class: the first that others may use."""
    return [words(name)[-1] for name in [file.stem, *classes(file)[:1]]]


def explained(page: str) -> set[str]:
    return {words(word)[-1] for entry in entries(page) for word in entry.words}


def unexplained(root: Path, page: str) -> set[str]:
    known = explained(page) | OTHERS
    return {
        f"{file.relative_to(root)}: {noun}"
        for file in files(root, FLOORS)
        for noun in nouns(file)
        if not forms(noun) & known
    }


def defined(file: Path) -> str:
    """Names and docstrings of a file, as words."""
    named = [node for node in ast.walk(parsed(file)) if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    texts = [ast.get_docstring(node) or "" for node in (parsed(file), *named)]
    return " , ".join(" ".join(words(text)) for text in [file.stem, *(node.name for node in named), *texts])


@pytest.mark.parametrize("entry", entries(PAGE), ids=lambda entry: entry.words[0])
def test_each_word_names_a_file_that_defines_it(entry: Entry) -> None:
    assert entry.files, "names no file"
    texts = [defined(ROOT / file) for file in entry.files]
    for word in entry.words:
        phrase = rf"\b{' '.join(words(word))}(s|es)?\b"
        assert any(re.search(phrase, text) for text in texts), f"{word}: {entry.files} do not speak of it"


def test_each_word_is_explained_once_in_one_short_sentence() -> None:
    said = [word for entry in entries(PAGE) for word in entry.words]
    assert len(said) == len(set(said))
    assert {entry.words[0] for entry in entries(PAGE) if len(entry.sentence.split()) > 20} == set()


def test_the_noun_of_each_file_is_explained_or_plain() -> None:
    assert unexplained(ROOT, PAGE) == set()


def test_a_new_private_word_is_noticed_and_so_is_one_whose_entry_is_gone(tmp_path: Path) -> None:
    (tmp_path / "leader").mkdir()
    (tmp_path / "leader" / "long_vigils.py").write_text("class _Inner: ...\nclass OpenWard: ...\nclass Batch: ...\n")
    assert unexplained(tmp_path, PAGE) == {"leader/long_vigils.py: vigils", "leader/long_vigils.py: ward"}
    without = "\n".join(line for line in PAGE.splitlines() if not line.startswith("| setback |"))
    assert unexplained(ROOT, without) == {"leader/setbacks.py: setbacks"}


def test_the_list_of_plain_words_is_no_longer_than_it_must_be() -> None:
    used = {form for file in files(ROOT, FLOORS) for noun in nouns(file) for form in forms(noun)}
    assert OTHERS - used == set(), "no file is called so any more: take it off the list"
    assert OTHERS & explained(PAGE) == set(), "explained in docs/words.md: take it off the list"
    assert len(OTHERS) == len(KAFKA) + len(PLAIN) + len(NO_NOUN), "on two lists"


def test_no_two_classes_have_one_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file in files(ROOT, [*FLOORS, *FACES]):
        if str(file.relative_to(ROOT)) not in SECTIONS:
            for name in classes(file):
                found[name].append(str(file.relative_to(ROOT)))
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_files_of_one_name_in_two_rooms_are_of_one_thing() -> None:
    rooms: dict[str, set[str]] = defaultdict(set)
    for file in files(ROOT, [*FLOORS, *FACES]):
        rooms[file.stem].add(file.relative_to(ROOT).parts[0])
    shared = {name for name, where in rooms.items() if len(where - {"cli"}) > 1}
    assert shared == ONE_THING.keys()
