// Small distances on the ground. Everything within a city, so a plane is exact enough to draw on.

const METRES_PER_DEGREE = 111_195;
const RADIANS = Math.PI / 180;

/** Metres east and north from a to b, both [lon, lat]. */
export function offset(a, b) {
  const shrink = Math.cos(((a[1] + b[1]) / 2) * RADIANS);
  return [(b[0] - a[0]) * METRES_PER_DEGREE * shrink, (b[1] - a[1]) * METRES_PER_DEGREE];
}

/** Metres between two points. */
export function distance(a, b) {
  return Math.hypot(...offset(a, b));
}

/** Direction from a to b in degrees, clockwise from north. */
export function heading(a, b) {
  const [east, north] = offset(a, b);
  return Math.atan2(east, north) / RADIANS;
}

/** The point a share (0..1) of the way from a to b. */
export function between(a, b, share) {
  return [a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])];
}

/** Metres from the start of a line to each of its points. */
export function measure(line) {
  const along = new Float64Array(line.length);
  for (let i = 1; i < line.length; i++) along[i] = along[i - 1] + distance(line[i - 1], line[i]);
  return along;
}

/** Where one is after some metres along a measured line: {point, heading, vertex before}. */
export function pointAlong(line, along, metres) {
  let i = 1;
  while (i < line.length - 1 && along[i] < metres) i++;
  const piece = along[i] - along[i - 1];
  const share = piece > 0 ? Math.min(Math.max((metres - along[i - 1]) / piece, 0), 1) : 0;
  return { point: between(line[i - 1], line[i], share), heading: heading(line[i - 1], line[i]), vertex: i - 1 };
}

/** West, south, east, north of points, or null without any. */
export function bounds(points) {
  if (!points.length) return null;
  const box = [Infinity, Infinity, -Infinity, -Infinity];
  for (const [lon, lat] of points) {
    box[0] = Math.min(box[0], lon);
    box[1] = Math.min(box[1], lat);
    box[2] = Math.max(box[2], lon);
    box[3] = Math.max(box[3], lat);
  }
  return box;
}
