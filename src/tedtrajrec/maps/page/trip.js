// One trip as the page uses it: its steps, the ways between them, and where the vehicle is at any time.

import { bounds, heading, measure, pointAlong } from "./geo.js";
import { way } from "./routing.js";

export class Trip {
  /**
   * @param {object} raw Columns as arrays, one value per step: timestamp, lon, lat, perhaps segment, ratio, ...
   * @param {Network|null} network
   * @param {boolean} isTruth Truth may hold noisy fixes beside exact positions; then the positions are meant.
   */
  constructor(raw, network, isTruth = false) {
    this.raw = raw;
    this.network = network;
    this.id = raw.traj_id;
    this.rank = raw.rank ?? 0;
    this.share = raw.share ?? null;
    this.key = `${this.id}\u0000${this.rank}`;
    this.time = raw.timestamp.map(epochSeconds);
    this.points = raw.lon.map((lon, i) => (isTruth && this.#exactPoint(i)) || [lon, raw.lat[i]]);
  }

  #exactPoint(i) {
    const [segment, ratio] = [this.segment(i), this.raw.ratio?.[i]];
    return this.network?.has(segment) && ratio != null ? this.network.pointAt(segment, ratio) : null;
  }

  get length() {
    return this.time.length;
  }

  get start() {
    return this.time[0];
  }

  get end() {
    return this.time[this.length - 1];
  }

  get seconds() {
    return this.end - this.start;
  }

  get box() {
    return bounds(this.points);
  }

  segment(i) {
    const segment = this.raw.segment?.[i];
    return segment == null || segment < 0 ? null : segment;
  }

  wayId(i) {
    return this.raw.osm_way_id?.[i] || this.network?.get(this.segment(i))?.osm_way_id || null;
  }

  observed(i) {
    return Boolean(this.raw.observed?.[i]);
  }

  probability(i) {
    return this.raw.probability?.[i] ?? null;
  }

  broken(i) {
    return Boolean(this.raw.break?.[i]);
  }

  /** The ways driven: ways[i] leads from step i to step i + 1. */
  get ways() {
    this.found ??= Array.from({ length: Math.max(this.length - 1, 0) }, (_, i) => this.#wayFrom(i));
    return this.found;
  }

  #wayFrom(i) {
    const straight = [this.points[i], this.points[i + 1]];
    const broken = this.broken(i + 1);
    const line = (!broken && this.network && this.#routed(i)) || straight;
    const along = measure(line);
    return { line, along, metres: along[along.length - 1], broken };
  }

  #routed(i) {
    const position = (k) => ({ segment: this.segment(k), ratio: this.raw.ratio?.[k] ?? 0 });
    const [a, b] = [position(i), position(i + 1)];
    if (a.segment === null || b.segment === null) return null;
    const line = way(this.network, a, b);
    return line && line.length > 1 ? line : null;
  }

  get metres() {
    return this.ways.reduce((sum, { metres, broken }) => sum + (broken ? 0 : metres), 0);
  }

  /** How long the ways driven took: without the time of breaks, as their metres do not count either. */
  get drivenSeconds() {
    return this.ways.reduce((sum, { broken }, i) => sum + (broken ? 0 : this.time[i + 1] - this.time[i]), 0);
  }

  get breaks() {
    return this.ways.filter(({ broken }) => broken).length;
  }

  /** How many steps have a probability; some methods know it only at fixes, or not at all. */
  get rated() {
    return this.time.filter((_, i) => this.probability(i) !== null).length;
  }

  /** Share of steps that are at least this probable, or null where most have no probability. */
  confident(least) {
    if (this.rated <= this.length / 2) return null;
    return this.time.filter((_, i) => this.probability(i) >= least).length / this.length;
  }

  /** Kilometres an hour on the way to step i (of the first step: on the way from it). */
  kmh(i) {
    const at = Math.max(i - 1, 0);
    const way_ = this.ways[at];
    const seconds = this.time[at + 1] - this.time[at];
    return way_ && !way_.broken && seconds > 0 ? (way_.metres / seconds) * 3.6 : null;
  }

  /** The last step at or before a time. */
  stepAt(time) {
    let low = 0;
    let high = this.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.time[middle] <= time) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Where the vehicle is: {point, heading, step, broken}; at constant speed between two steps. */
  placeAt(time) {
    const step = this.stepAt(time);
    if (step >= this.ways.length) return this.#placeAtEnd();
    const { line, along, metres, broken } = this.ways[step];
    const seconds = this.time[step + 1] - this.time[step];
    const share = seconds > 0 ? Math.min(Math.max((time - this.time[step]) / seconds, 0), 1) : 0;
    const at = pointAlong(line, along, share * metres);
    return { point: at.point, heading: metres > 0 ? at.heading : this.#headingFrom(step), step, broken };
  }

  #placeAtEnd() {
    const last = this.length - 1;
    const line = this.ways.at(-1)?.line;
    const direction = line ? heading(line.at(-2), line.at(-1)) : 0;
    return { point: this.points[last], heading: direction, step: last, broken: false };
  }

  // A vehicle that stands looks where it will go next.
  #headingFrom(step) {
    const next = this.ways.slice(step).find(({ metres }) => metres > 0);
    return next ? heading(next.line[0], next.line[1]) : 0;
  }
}

/** A time as files and the service give it: epoch seconds or ISO 8601. */
export function epochSeconds(time) {
  return typeof time === "number" ? time : Date.parse(time) / 1000;
}

/** Share of the steps of a trip that are on the same segment as another trip at the same time; null without any. */
export function agreement(trip, other) {
  const segments = new Map(other.time.map((time, i) => [time, other.segment(i)]));
  let both = 0;
  let same = 0;
  for (let i = 0; i < trip.length; i++) {
    const there = segments.get(trip.time[i]);
    if (there == null || trip.segment(i) === null) continue;
    both++;
    if (there === trip.segment(i)) same++;
  }
  return both ? same / both : null;
}
