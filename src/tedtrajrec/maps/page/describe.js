// A trip or a step of it in words, as lists of facts.

import { CONFIDENT, colour, levelOf } from "./levels.js";
import { clock, count, day, duration, kilometres, percent, speed } from "./words.js";
import { agreement } from "./trip.js";

/** An element with text or children. */
export function element(tag, content = "", className = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (typeof content === "string") made.textContent = content;
  else made.append(...content);
  return made;
}

const row = (name, value) => element("div", [element("dt", name), element("dd", value)]);

/** Facts of one step: what the popup and the panel show. */
export function stepFacts(trip, step) {
  const rows = [["Time", clock(trip.time[step])]];
  const segment = trip.segment(step);
  if (segment !== null) {
    const road = trip.network?.get(segment)?.class;
    rows.push(["Segment", road ? `${segment} (${road.replaceAll("_", " ")})` : String(segment)]);
  }
  if (trip.wayId(step)) rows.push(["OSM way", String(trip.wayId(step))]);
  const kmh = trip.kmh(step);
  if (kmh !== null) rows.push(["Speed", speed(kmh)]);
  const made = rows.map(([name, value]) => row(name, value));
  const probability = trip.probability(step);
  if (probability !== null) made.push(row("Probability", [swatch(levelOf(probability)), percent(probability, 1)]));
  made.push(row("Position", trip.observed(step) ? "at a fix" : "recovered"));
  if (trip.broken(step)) made.push(row("Break", "no drivable way from the step before"));
  return made;
}

function swatch(level) {
  const made = element("span", "", "swatch");
  made.style.background = colour(level);
  return made;
}

export const stepCard = (trip, step) => element("dl", stepFacts(trip, step), "rows");

/** Facts of a whole trip; truth and the other method's trip where there are any. */
export function tripFacts(trip, truth, other, otherName) {
  const rows = [
    [kilometres(trip.metres), "driven"],
    [duration(trip.seconds), "taken"],
  ];
  if (trip.drivenSeconds > 0) rows.push([speed((trip.metres / trip.drivenSeconds) * 3.6), "on average"]);
  const sure = trip.confident(CONFIDENT);
  if (sure !== null) rows.push([percent(sure), "confident steps"]);
  if (truth) {
    const right = agreement(trip, truth);
    if (right !== null) rows.push([percent(right), "match the truth"]);
  }
  if (other) {
    const same = agreement(trip, other);
    if (same !== null) rows.push([percent(same), `same as ${otherName}`]);
  }
  if (trip.breaks) rows.push([String(trip.breaks), trip.breaks === 1 ? "break" : "breaks"]);
  return rows.map(([value, name]) => element("div", [element("dd", value), element("dt", name)]));
}

/** 1 Jul 2013, 08:30 to 08:52, 12 fixes, 89 steps every 15 s */
export function tripLine(trip) {
  const fixes = trip.points.filter((_, step) => trip.observed(step)).length;
  const when = `${day(trip.start)}, ${clock(trip.start)} to ${clock(trip.end)}`;
  return `${when} · ${count(fixes, "fix", "es")}, ${count(trip.length, "step")}`;
}

export function tripName(trip) {
  if (!trip.rank) return trip.id;
  return `${trip.id}, alternative ${trip.rank}${trip.share === null ? "" : ` (${percent(trip.share)})`}`;
}
