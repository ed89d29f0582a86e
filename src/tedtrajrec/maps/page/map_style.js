// What the map looks like: the road network by class, and on it the truth, the trip, its steps and the fixes.

import { LEVELS, colour } from "./levels.js";

const EMPTY = { type: "FeatureCollection", features: [] };

// Width in pixels at zoom 11, 14 and 18.
const ROADS = [
  { name: "minor", widths: [0.4, 2.2, 11], classes: ["residential", "living_street", "unclassified", "service", "road"] },
  { name: "middle", widths: [0.9, 3.4, 15], classes: ["tertiary", "tertiary_link", "secondary", "secondary_link"] },
  {
    name: "major",
    widths: [1.6, 4.8, 19],
    classes: ["primary", "primary_link", "trunk", "trunk_link", "motorway", "motorway_link"],
  },
];

const byZoom = ([far, near, nearest], add = 0) => [
  "interpolate", ["exponential", 1.5], ["zoom"], 11, far + add, 14, near + add, 18, nearest + add,
];

const TRIP_WIDTH = ["interpolate", ["linear"], ["zoom"], 11, 3.5, 15, 6, 18, 10];
const wider = (pixels) => ["interpolate", ["linear"], ["zoom"], 11, 3.5 + pixels, 15, 6 + pixels, 18, 10 + pixels];

const byLevel = () => ["match", ["get", "level"], ...LEVELS.slice(0, -1).flatMap(({ level }) => [level, colour(level)]), colour(0)];

const ROUND = { "line-cap": "round", "line-join": "round" };

function roadLayers() {
  const layer = (kind, { name, widths, classes }) => ({
    id: `road-${name}-${kind}`,
    type: "line",
    source: "network",
    filter: ["in", ["get", "class"], ["literal", classes]],
    layout: ROUND,
    paint:
      kind === "edge"
        ? { "line-color": colour("road-edge"), "line-width": byZoom(widths, 1.4) }
        : { "line-color": colour(`road-${name}`), "line-width": byZoom(widths) },
  });
  return [...ROADS.map((road) => layer("edge", road)), ...ROADS.map((road) => layer("fill", road))];
}

function tripLayers() {
  const whole = ["!", ["get", "broken"]];
  return [
    {
      id: "truth",
      type: "line",
      source: "truth",
      layout: ROUND,
      paint: { "line-color": colour("truth"), "line-width": wider(9), "line-opacity": 0.55 },
    },
    {
      id: "trip-edge",
      type: "line",
      source: "trip",
      filter: whole,
      layout: ROUND,
      paint: { "line-color": colour("trip-edge"), "line-width": wider(3) },
    },
    {
      id: "trip",
      type: "line",
      source: "trip",
      filter: whole,
      layout: ROUND,
      paint: { "line-color": byLevel(), "line-width": TRIP_WIDTH },
    },
    {
      id: "break",
      type: "line",
      source: "trip",
      filter: ["get", "broken"],
      paint: { "line-color": colour("break"), "line-width": 2.5, "line-dasharray": [2.4, 2] },
    },
    {
      id: "steps",
      type: "circle",
      source: "steps",
      minzoom: 13.5,
      paint: {
        "circle-radius": ["interpolate", ["linear"], ["zoom"], 13.5, 1.6, 18, 5],
        "circle-color": colour("trip-edge"),
        "circle-stroke-color": byLevel(),
        "circle-stroke-width": 1,
      },
    },
    {
      id: "fixes",
      type: "circle",
      source: "fixes",
      paint: {
        "circle-radius": ["interpolate", ["linear"], ["zoom"], 11, 3.5, 16, 7],
        "circle-color": colour("fix"),
        "circle-stroke-color": colour("fix-edge"),
        "circle-stroke-width": ["interpolate", ["linear"], ["zoom"], 11, 1.5, 16, 2.5],
      },
    },
  ];
}

/** The whole style, in the colours of the moment. */
export function mapStyle() {
  const source = () => ({ type: "geojson", data: EMPTY, maxzoom: 16 });
  return {
    version: 8,
    sources: { network: source(), truth: source(), trip: source(), steps: source(), fixes: source() },
    layers: [
      { id: "ground", type: "background", paint: { "background-color": colour("ground") } },
      ...roadLayers(),
      ...tripLayers(),
    ],
  };
}
