// Trips as the GeoJSON that the map draws.

import { levelOf } from "./levels.js";

const collection = (features) => ({ type: "FeatureCollection", features });
const feature = (geometry, properties = {}) => ({ type: "Feature", geometry, properties });
const point = (coordinates, properties) => feature({ type: "Point", coordinates }, properties);
const line = (coordinates, properties) => feature({ type: "LineString", coordinates }, properties);

/** A piece for each two steps, as sure as the step it leads to. */
export function tripFeatures(trip) {
  return collection(
    trip.ways.map((way, i) => line(way.line, { step: i + 1, level: levelOf(trip.probability(i + 1)), broken: way.broken })),
  );
}

export function stepFeatures(trip) {
  return collection(trip.points.map((at, step) => point(at, { step, level: levelOf(trip.probability(step)) })));
}

/** The truth in as few lines as its breaks allow, so that the band under the trip is even. */
export function truthFeatures(trip) {
  const lines = [];
  let current = [];
  for (const way of trip.ways) {
    if (way.broken) {
      if (current.length > 1) lines.push(current);
      current = [];
    } else current.push(...(current.length ? way.line.slice(1) : way.line));
  }
  if (current.length > 1) lines.push(current);
  return collection(lines.map((coordinates) => line(coordinates)));
}

/** The fixes that were given, or else the steps that stand for them. */
export function fixFeatures(fixes, trip) {
  if (fixes) return collection(fixes.lon.map((lon, i) => point([lon, fixes.lat[i]])));
  return collection(trip.points.filter((_, step) => trip.observed(step)).map((at) => point(at)));
}

export const nothing = () => collection([]);
