"""Every command, one line each: its section, its name, its one-line help, and the module that is imported to run it.

The module `tierstate.cli.<module>` has a click command (or group) named ``command``. The help stands here so that
``tierstate --help`` imports none of them. A command is listed when its module exists.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    section: str
    name: str
    help: str
    module: str


SECTIONS = ("Run", "Look", "Read", "State", "Change", "Store", "Play")

ENTRIES = (
    Entry("Run", "init", "Create and check the tier-state topic.", "init"),
    Entry("Run", "check", "Check everything before an agent starts.", "check"),
    Entry("Run", "agent", "Copy and trim what this broker leads.", "agent"),
    Entry("Run", "gateway", "Serve both tiers over HTTP.", "gateway"),
    Entry("Run", "config", "Show the effective settings and where each came from.", "config"),
    Entry("Look", "topics", "List the tiered topics.", "topics"),
    Entry("Look", "describe", "Show both tiers of a topic or partition, and why not more.", "describe"),
    Entry("Look", "segments", "List the remote segments of a partition.", "segments"),
    Entry("Look", "verify", "Verify the view, the objects behind it, and the archive.", "verify"),
    Entry("Look", "leases", "Show who pins what of the remote tier.", "leases"),
    Entry("Look", "digest", "Count and digest records as one reader sees them.", "digest"),
    Entry("Read", "consume", "Read both tiers as one log.", "consume"),
    Entry("Read", "dump-log", "Decode Kafka's files, or a copied segment, without a broker.", "dump_log"),
    Entry("State", "facts", "Print the tier-state topic as it stands.", "facts"),
    Entry("State", "replay", "Rebuild the view from the topic or its archive, as of now or earlier.", "replay"),
    Entry("State", "diff", "Compare two views, fact by fact.", "diff"),
    Entry("State", "recover", "Rebuild the tier-state topic from the bucket alone.", "recover"),
    Entry("Change", "delete-records", "Delete the records below an offset, from both tiers.", "delete_records"),
    Entry("Change", "pause", "Leave a topic or partition as it is, until resumed.", "pause"),
    Entry("Change", "resume", "Go on with what was paused or disabled.", "resume"),
    Entry("Change", "disable", "Tier a topic no more; keep or delete its remote tier.", "disable"),
    Entry("Change", "sweep", "Show what no segment needs in the store, and delete what may go.", "sweep"),
    Entry("Change", "undelete", "Take back that a topic is missing.", "undelete"),
    Entry("Change", "settle", "Decide what nothing else tells: an unknown lineage, a contradiction.", "settle"),
    Entry("Change", "release", "Show or release the integrity holds of a partition.", "release"),
    Entry("Store", "certify", "Certify that an object store keeps every promise it must.", "certify"),
    Entry("Store", "keys", "Make and list encryption keys, and rotate segments to the active one.", "keys"),
    Entry("Play", "sandbox", "Start, stop or show a real local Kafka.", "sandbox"),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
