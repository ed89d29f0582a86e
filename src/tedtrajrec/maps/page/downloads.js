// The result as files, made in the browser from what is on the screen.

const COLUMNS = ["timestamp", "lon", "lat", "segment", "ratio", "osm_way_id", "observed", "probability", "break"];

/** CSV in the columns of `tedtrajrec recover`. */
export function toCsv(trips) {
  const alternatives = trips.some(({ rank }) => rank);
  const header = ["traj_id", ...COLUMNS, ...(alternatives ? ["alternative", "alternative_share"] : [])];
  const lines = [header.join(",")];
  for (const { raw, id, time, rank, share } of trips) {
    const columns = COLUMNS.map((name) => (name === "timestamp" ? time : raw[name]));
    for (let i = 0; i < time.length; i++) {
      const values = [id, ...columns.map((column) => column?.[i]), ...(alternatives ? [rank, share] : [])];
      lines.push(values.map(quoted).join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}

function quoted(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  const text = String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** GeoJSON: a line along the road for each trip, and the values of its steps. */
export function toGeoJson(trips, attribution) {
  const features = trips.map((trip) => ({
    type: "Feature",
    geometry: { type: "LineString", coordinates: trip.points },
    properties: {
      traj_id: trip.id,
      ...(trip.rank ? { alternative: trip.rank, alternative_share: trip.share } : {}),
      coordinateProperties: Object.fromEntries([
        ["times", trip.time],
        ...COLUMNS.slice(3).filter((name) => trip.raw[name]).map((name) => [name, trip.raw[name]]),
      ]),
    },
  }));
  return `${JSON.stringify({ type: "FeatureCollection", attribution, features })}\n`;
}

/** Hand a text to the browser as a file. */
export function save(text, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
