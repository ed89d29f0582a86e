// The road network: the map that is drawn, and the ways between the steps of a trip.

import { measure, pointAlong } from "./geo.js";

export class Network {
  /** @param {object} geojson One LineString per directed segment, as /v1/network gives it. */
  constructor(geojson) {
    this.segments = new Map();
    this.startingAt = new Map();
    for (const feature of geojson.features) this.#add(feature);
  }

  /** What there is to draw: each road once, though most are two segments, there and back. */
  get roads() {
    const drawn = new Set();
    const features = [];
    for (const { line, metres, start, end, class: name } of this.segments.values()) {
      const road = `${[start, end].sort()} ${metres.toFixed(0)}`;
      if (drawn.has(road)) continue;
      drawn.add(road);
      features.push({ type: "Feature", geometry: { type: "LineString", coordinates: line }, properties: { class: name } });
    }
    return { type: "FeatureCollection", features };
  }

  #add({ geometry, properties }) {
    const line = geometry.coordinates;
    const along = measure(line);
    const segment = {
      ...properties,
      line,
      along,
      metres: along[along.length - 1],
      start: String(line[0]),
      end: String(line[line.length - 1]),
    };
    this.segments.set(properties.segment, segment);
    const starting = this.startingAt.get(segment.start);
    if (starting) starting.push(properties.segment);
    else this.startingAt.set(segment.start, [properties.segment]);
  }

  has(segment) {
    return this.segments.has(segment);
  }

  get(segment) {
    return this.segments.get(segment);
  }

  /** Segments that may follow: those the map names, or else all that start where this one ends. */
  followers(segment) {
    const { successors, end } = this.get(segment);
    return (successors ?? this.startingAt.get(end) ?? []).filter((next) => this.has(next));
  }

  /** Whether b runs back along a. */
  isBack(a, b) {
    const [there, back] = [this.get(a), this.get(b)];
    return there.start === back.end && there.end === back.start && Math.abs(there.metres - back.metres) < 1;
  }

  pointAt(segment, ratio) {
    const { line, along, metres } = this.get(segment);
    return pointAlong(line, along, ratio * metres).point;
  }

  /** The line along a segment between two ratios, forwards or backwards. */
  slice(segment, from, to) {
    if (from > to) return this.slice(segment, to, from).reverse();
    const { line, along, metres } = this.get(segment);
    const a = pointAlong(line, along, from * metres);
    const b = pointAlong(line, along, to * metres);
    return [a.point, ...line.slice(a.vertex + 1, b.vertex + 1), b.point];
  }
}
