"""The results of a soak: one document, and its pages for people."""

from __future__ import annotations

from typing import Any

from tests.soak.soak import Soak
from tests.soak.watch import MIB, at_share, slope_mib_an_hour

TOLD = {
    "segment copied": "segments copied",
    "local trimmed": "trims of the local tier",
    "log start moved": "log starts moved",
    "segment delete began": "segments condemned",
    "segment deleted": "segments deleted",
    "orphans found": "looks for orphans",
    "facts erased": "erasures of facts",
    "term started": "terms begun",
    "term ended": "terms ended early",
    "copy failed": "copies failed",
    "operation failed": "operations failed",
    "chore failed": "chores failed",
    "view rebuilt": "views rebuilt",
    "hold reported": "integrity holds",
}


def document(soak: Soak) -> dict[str, Any]:
    """Return the results in JSON types only."""
    ground, done, seen = soak.ground, soak.checks.done, soak.watch.seen
    fates = [*ground.truth.fates.values()]
    return {
        "held": not soak.complaints and not soak.interrupted,
        "interrupted": soak.interrupted,
        "seed": soak.seed,
        "seconds": round(soak.seconds),
        "settled_seconds": round(soak.settled_s),
        "disturbances": [
            {
                "kind": each.name,
                "happened": soak.happened[each.name],
                "shown": soak.shown[each.name],
                "effect": each.effect,
            }
            for each in soak.kinds
            if soak.happened[each.name]
        ],
        "records": {
            "acknowledged": ground.truth.written,
            "without_an_offset": sum(len(each.unplaced) for each in ground.truth.known.values()),
            "unanswered": sum(len(each.doubtful) for each in ground.truth.known.values()),
            "transactions": {fate: fates.count(fate) for fate in sorted({*fates})},
            "producers_restarted": sum(each.restarts for each in ground.writers),
        },
        "checks": {
            "reads": done.checks,
            "records_read": done.records,
            "of_them_remote": done.remote,
            "read_by_groups_set_back": ground.given_to_groups,
            "segments_verified": done.verified,
            "abandoned_attempts_seen": len(done.abandoned),
            "fenced_facts_seen": len(done.fenced),
            "partitions_described": done.described,
            "false_alarms_of_describe": done.alarms,
            "gaps_of_expired_records": done.expired,
            "digests": done.digests,
        },
        "agents_said": {name: ground.journal.counts[event] for event, name in TOLD.items()},
        "strange_lines": ground.journal.strange[:50],
        "agents": [_agent(index, [each for each in seen if each.agent == index]) for index in sorted(ground.agents)],
        "complaints": soak.complaints,
    }


def _agent(index: int, seen: list[Any]) -> dict[str, Any]:
    lives = [[each for each in seen if each.pid == pid] for pid in dict.fromkeys(each.pid for each in seen)]
    longest = max(lives, key=len, default=[])
    shares = {f"rss_mib_at_{share}": at_share(seen, share / 100) for share in (10, 50, 100)}
    slope = slope_mib_an_hour(longest)
    return {
        "agent": index,
        "lives": len(lives),
        **{name: None if figures is None else round(figures.rss / MIB) for name, figures in shares.items()},
        "longest_life_s": round(longest[-1].at - longest[0].at) if longest else 0,
        "rss_mib_an_hour": None if slope is None else round(slope),
        "threads": [min((each.threads for each in seen), default=0), max((each.threads for each in seen), default=0)],
        "fds": [min((each.fds for each in seen), default=0), max((each.fds for each in seen), default=0)],
    }


def pages(found: dict[str, Any]) -> str:
    """Return the report for people, some thirty lines."""
    verdict = "interrupted" if found["interrupted"] else "it held" if found["held"] else "IT DID NOT HOLD"
    records, checks = found["records"], found["checks"]
    lines = [
        f"Soak, seed {found['seed']}, {found['seconds']} s, and {found['settled_seconds']} s to settle: {verdict}",
        "",
    ]
    lines += ["  what befell it                  times   seen   effect"]
    for each in found["disturbances"]:
        lines.append(f"  {each['kind']:<30} {each['happened']:6} {each['shown']:6}   {each['effect']}")
    ends = ", ".join(f"{count:,} {fate}" for fate, count in records["transactions"].items())
    lines += [
        "",
        f"  {records['acknowledged']:,} records acknowledged ({records['without_an_offset']} without an offset), "
        f"{records['unanswered']} unanswered; transactions: {ends or 'none'}",
        f"  {checks['reads']} times all was read: {checks['records_read']:,} records, {checks['of_them_remote']:,} of "
        f"them from the remote tier; {checks['segments_verified']:,} segments verified byte by byte",
        f"  {checks['read_by_groups_set_back']:,} records read by plain consumers that were set back",
        f"  seen in the facts: {checks['abandoned_attempts_seen']} abandoned attempts, "
        f"{checks['fenced_facts_seen']} facts that came too late and were fenced",
        f"  describe: {checks['partitions_described']} looks, {len(checks['false_alarms_of_describe'])} warned of what "
        "nobody did",
        f"  {len(checks['gaps_of_expired_records'])} times a gap was met whose records Kafka's retention had deleted",
        "  agents: " + ", ".join(f"{count:,} {name}" for name, count in found["agents_said"].items() if count),
        "",
        "  agent  lives   RSS MiB at 10 %  50 %  100 %   MiB/h (longest life)   threads     fds",
    ]
    for each in found["agents"]:
        rss = [_number(each[f"rss_mib_at_{share}"]) for share in (10, 50, 100)]
        slope = f"{_number(each['rss_mib_an_hour'])} ({each['longest_life_s']} s)"
        spans = [f"{low}..{high}" for low, high in (each["threads"], each["fds"])]
        lines.append(
            f"  {each['agent']:5} {each['lives']:6} {rss[0]:>17} {rss[1]:>5} {rss[2]:>6}"
            f"   {slope:>20}   {spans[0]:>7} {spans[1]:>7}"
        )
    if found["strange_lines"]:
        lines += [
            "",
            f"  {len(found['strange_lines'])} lines of agents that are no JSON, the first: {found['strange_lines'][0]}",
        ]
    lines += ["", *(f"  COMPLAINT {each}" for each in found["complaints"])]
    return "\n".join(lines).rstrip()


def _number(found: int | None) -> str:
    return "-" if found is None else f"{found:,}"
