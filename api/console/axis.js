// One axis for all bars of a page: of time or of offsets, with round ticks.

import { compact } from "./dom.js";

const MINUTE = 60_000, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 15_000, 30_000, MINUTE, 5 * MINUTE, 15 * MINUTE,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR,
  DAY, 2 * DAY, 3 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 61 * DAY, 91 * DAY, 182 * DAY, 365 * DAY, 730 * DAY, 3650 * DAY,
];
const TICK_PX = 120;
const day = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", timeZone: "UTC" });
const year = new Intl.DateTimeFormat("en", { month: "short", year: "numeric", timeZone: "UTC" });

// About when the log had come to an offset: a straight line between the pairs that are known.
export function timeOf(pairs, offset) {
  if (!pairs?.length) return null;
  const after = pairs.findIndex((each) => each.offset >= offset);
  if (after < 0) return pairs.at(-1).timestamp;
  if (after === 0) return pairs[0].timestamp;
  const [a, b] = [pairs[after - 1], pairs[after]];
  return a.timestamp + ((offset - a.offset) / (b.offset - a.offset)) * (b.timestamp - a.timestamp);
}

// From 0 to 1 along the axis. ``values``: all that must be on it.
export function axisOf(kind, values) {
  const known = values.filter((each) => each !== null);
  const low = Math.min(...known), high = Math.max(...known);
  const span = Math.max(high - low, 1);
  return {
    kind,
    empty: !known.length,
    at: (value) => Math.min(1, Math.max(0, (value - low) / span)),
    ticks: (width) => (known.length ? ticks(kind, low, low + span, Math.max(2, Math.floor(width / TICK_PX))) : []),
  };
}

function ticks(kind, low, high, most) {
  const step = kind === "time" ? timeStep((high - low) / most) : roundStep((high - low) / most);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high && found.length <= 2 * most; at += step) {
    found.push({ at: (at - low) / (high - low), text: kind === "time" ? timeText(at, step) : compact.format(at) });
  }
  return found;
}

function timeStep(atLeast) {
  return STEPS.find((each) => each >= atLeast) ?? STEPS.at(-1);
}

function roundStep(atLeast) {
  const power = 10 ** Math.floor(Math.log10(Math.max(atLeast, 1)));
  return power * [1, 2, 5, 10].find((each) => each * power >= atLeast);
}

function timeText(ms, step) {
  if (step >= 91 * DAY) return year.format(ms);
  if (step >= DAY || ms % DAY === 0) return day.format(ms);
  return new Date(ms).toISOString().slice(11, step < 1000 ? 23 : step < MINUTE ? 19 : 16);
}
