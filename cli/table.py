"""The table of all commands: section, name, one-line help and module of each.

The click command (or group) is ``function`` of the module `tierstate.cli.<module>`. The help is here so that
``tierstate --help`` imports no command module.
"""

from __future__ import annotations

from typing import NamedTuple


class CommandEntry(NamedTuple):
    section: str
    name: str
    help: str
    module: str
    function: str = "command"


SECTIONS = ("Run", "Look", "Read", "State", "Change", "Store", "Play")

ENTRIES = (
    CommandEntry("Run", "init", "Create and check the tier-state topic.", "setup", "init"),
    CommandEntry("Run", "check", "Check everything before an agent starts.", "setup", "check"),
    CommandEntry("Run", "agent", "Copy and trim what this broker leads.", "agent"),
    CommandEntry("Run", "gateway", "Serve both tiers over HTTP.", "gateway"),
    CommandEntry("Run", "proxy", "Let any Kafka client read both tiers, unchanged.", "proxy"),
    CommandEntry("Run", "config", "Show the effective settings and where each came from.", "setup", "config"),
    CommandEntry("Look", "status", "Show all tiered topics, those in trouble first.", "status"),
    CommandEntry("Look", "topics", "List the tiered topics.", "topics"),
    CommandEntry("Look", "describe", "Show both tiers of a topic or partition, and why not more.", "describe"),
    CommandEntry("Look", "segments", "List the remote segments of a partition.", "segments"),
    CommandEntry("Look", "verify", "Verify the view, the objects behind it, and the archive.", "verify"),
    CommandEntry("Look", "leases", "Show who pins what of the remote tier.", "leases"),
    CommandEntry("Look", "digest", "Count and digest records as one reader sees them.", "digest"),
    CommandEntry("Read", "consume", "Read both tiers as one log.", "consume"),
    CommandEntry("Read", "dump-log", "Decode Kafka's files, or a copied segment, without a broker.", "dump_log"),
    CommandEntry("Read", "export", "Write a range of both tiers as Parquet, exactly once.", "export"),
    CommandEntry("Read", "table", "Keep Iceberg tables of topics: every record once.", "table_command"),
    CommandEntry(
        "Read", "restore", "Bring a topic back into any Kafka cluster, exactly once, and its groups.", "restore"
    ),
    CommandEntry("Read", "backup", "Keep in the bucket what a restore needs beside records.", "backup"),
    CommandEntry("Read", "drill", "Prove that the bucket can bring topics back: restore, compare, report.", "drill"),
    CommandEntry("State", "facts", "Print the tier-state topic as it stands.", "facts"),
    CommandEntry("State", "replay", "Rebuild the view from the topic or its archive, as of now or earlier.", "replay"),
    CommandEntry("State", "diff", "Compare two views, fact by fact.", "diff"),
    CommandEntry("State", "recover", "Rebuild the tier-state topic from the bucket alone.", "recover"),
    CommandEntry("Change", "delete-records", "Delete the records below an offset, from both tiers.", "delete_records"),
    CommandEntry("Change", "pause", "Leave a topic or partition as it is, until resumed.", "orders", "pause"),
    CommandEntry("Change", "resume", "Go on with what was paused or disabled.", "orders", "resume"),
    CommandEntry("Change", "disable", "Tier a topic no more; keep or delete its remote tier.", "orders", "disable"),
    CommandEntry("Change", "sweep", "Show what no segment needs in the store, and delete what may go.", "sweep"),
    CommandEntry("Change", "rescue", "Make room on the full disk of a broker that is down.", "rescue"),
    CommandEntry("Change", "undelete", "Take back that a topic is missing.", "undelete"),
    CommandEntry("Change", "settle", "Decide what nothing else tells: an unknown lineage, a contradiction.", "settle"),
    CommandEntry(
        "Change", "keep-prefix", "Decide which of two clusters keeps the bucket prefix; show who writes.", "keep_prefix"
    ),
    CommandEntry("Change", "accept-gap", "Show what neither tier has, and accept that it is lost.", "accept_gap"),
    CommandEntry("Change", "release", "Show or release the integrity holds of a partition.", "release"),
    CommandEntry("Store", "certify", "Certify that an object store keeps every promise it must.", "certify"),
    CommandEntry("Store", "migrate", "Move all objects to another bucket or account while agents run.", "migrate"),
    CommandEntry("Store", "adopt", "Copy another writer's segments here, as history of their topic id.", "adopt"),
    CommandEntry("Store", "keys", "Make and list encryption keys, and rotate segments to the active one.", "keys"),
    CommandEntry("Play", "sandbox", "Start, stop or show a real local Kafka.", "sandbox"),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
