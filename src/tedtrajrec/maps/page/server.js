// What the page needs from the service. The self-contained file has the same in embedded.js.

import { Problem } from "./problem.js";

const MOST_SEGMENTS = 60_000; // a larger network is loaded around the trips only
const MARGIN = 0.012; // degrees around the trips, about a kilometre

const TYPES = {
  csv: "text/csv",
  tsv: "text/tab-separated-values",
  gpx: "application/gpx+xml",
  geojson: "application/geo+json",
};

export class Server {
  /** @returns {Promise<{methods: object[], examples: object[], timeZone: string, title: string}>} */
  async start() {
    await this.#ready();
    const [about, { examples }] = await Promise.all([
      this.#ask("v1/methods"),
      this.#ask("v1/examples"),
    ]);
    this.about = about;
    return {
      title: "sparse GPS to trips on the road",
      takesFiles: true,
      methods: [...about.methods].sort((a, b) => b.default - a.default),
      timeZone: about.methods[0]?.time_zone,
      step: about.methods[0]?.step_s,
      attribution: about.attribution,
      examples,
    };
  }

  // A service that has just been started loads its model first.
  async #ready() {
    for (let tries = 0; tries < 120; tries++) {
      const answer = await fetch("healthz").catch(() => null);
      if (answer?.status !== 503) return;
      await new Promise((later) => setTimeout(later, 1000));
    }
  }

  /** The network of a box, or of everything where that is not too much; null: nothing yet. */
  async network(box) {
    const all = this.about.segments <= MOST_SEGMENTS;
    if (!all && !box) return null;
    const [west, south, east, north] = all
      ? this.about.bbox
      : [box[0] - MARGIN, box[1] - MARGIN, box[2] + MARGIN, box[3] + MARGIN];
    this.whole = all;
    return this.#ask(`v1/network?bbox=${[west, south, east, north].join(",")}`);
  }

  /**
   * @param {{file: File} | {example: object}} input
   * @param {{step_s?: number, alternatives?: number, timezone?: string}} options
   */
  async recover(input, method, options) {
    if (input.example) {
      const { traj_id, points } = input.example;
      const body = JSON.stringify({ ...options, method, trips: [{ traj_id, points }] });
      return this.#post("v1/recover", body, "application/json");
    }
    const query = new URLSearchParams({ ...options, method, fixes: true }); // only the service can read the file
    return this.#post(`v1/recover?${query}`, input.file, typeOf(input.file.name));
  }

  #post(url, body, type) {
    return this.#ask(url, { method: "POST", body, headers: { "Content-Type": type, Accept: "application/json" } });
  }

  async #ask(url, options = {}) {
    const headers = { ...options.headers, ...(this.token && { Authorization: `Bearer ${this.token}` }) };
    let answer;
    try {
      answer = await fetch(url, { ...options, headers });
    } catch {
      throw new Problem("The service does not answer.", "Check that 'tedtrajrec serve' still runs, then try again.");
    }
    if (answer.ok) return answer.json();
    throw await Problem.from(answer);
  }
}

function typeOf(name) {
  const ending = name.toLowerCase().replace(/\.gz$/, "").split(".").pop();
  const type = TYPES[ending];
  if (type) return type;
  throw new Problem(`${name} is not a kind of file this page knows.`, "Give a CSV, GPX or GeoJSON file.");
}
