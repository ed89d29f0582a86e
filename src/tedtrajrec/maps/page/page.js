// The page: what is loaded, which trip and which methods are shown, and everything that follows from it.

import { FileInput } from "./file_input.js";
import { Network } from "./network.js";
import { Timeline } from "./timeline.js";
import { Trip } from "./trip.js";
import { TripList, tripsOf } from "./trip_list.js";
import { TripMap, keepTogether } from "./trip_map.js";
import { Views } from "./views.js";
import { bounds } from "./geo.js";
import { count, setTimeZone } from "./words.js";
import { element, stepCard, stepFacts, tripFacts, tripLine, tripName } from "./describe.js";
import { Problem, inWords } from "./problem.js";
import { save, toCsv, toGeoJson } from "./downloads.js";
import { showLegend } from "./legend.js";

const byId = (id) => document.getElementById(id);

export class Page {
  constructor(source) {
    this.source = source;
    this.results = new Map(); // method -> {trips: Map of key -> Trip, notes, rejects, attribution}
    this.maps = [];
    this.input = new FileInput(
      (input) => this.#guard(() => this.open(input)),
      () => this.given && this.#guard(() => this.open(this.given)),
    );
    this.views = new Views(() => this.#guard(() => this.show()));
    this.list = new TripList((key) => this.#guard(() => this.select(key)));
    this.timeline = new Timeline((time, playing) => this.#moved(time, playing));
    byId("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.source.token = byId("token").value;
      this.start();
    });
    byId("csv").addEventListener("click", () => this.#download("csv"));
    byId("geojson").addEventListener("click", () => this.#download("geojson"));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const map of this.maps) map.restyle();
      this.timeline.draw();
    });
    byId("legend").open = !matchMedia("(max-width: 860px)").matches;
  }

  async start() {
    await this.#guard(async () => {
      this.#say("Loading…");
      if (!this.maps.length) this.#addMap(byId("map-a"));
      const about = await this.source.start();
      this.about = about;
      setTimeZone(about.timeZone ?? "UTC");
      byId("title").textContent = about.title;
      this.views.offer(about.methods);
      await this.#loadNetwork(null);
      this.maps[0].fitNetwork();
      if (about.takesFiles) {
        this.input.show(about);
        this.#say("");
        byId("welcome").hidden = false;
        byId("welcome").textContent = "Drop a file of sparse GPS fixes, or pick an example.";
      } else await this.open({});
    });
  }

  /** Recover a file or an example and show it. */
  async open(input) {
    const results = new Map();
    this.opening = results;
    for (const method of this.views.shown) results.set(method, await this.#recover(input, method));
    if (this.opening !== results) return; // something else was opened meanwhile
    this.given = input;
    this.results = results;
    byId("welcome").hidden = true;
    await this.show(this.#result(0).trips.keys().next().value);
  }

  /** Show the chosen methods, and a trip (the one shown already, if not another). */
  async show(key = this.key) {
    if (!this.given) return;
    for (const method of this.views.shown)
      if (!this.results.has(method)) this.results.set(method, await this.#recover(this.given, method));
    const rearranged = this.#arrangeMaps();
    const result = this.#result(0);
    byId("side").hidden = false;
    this.list.show([...result.trips.values()], key);
    this.#showRemarks(result);
    const chosen = result.trips.has(key) ? key : result.trips.keys().next().value;
    const again = chosen === this.key;
    this.select(chosen, { refit: rearranged || !again, time: again ? this.timeline.time : undefined });
  }

  /** Show a trip. */
  select(key, { refit = true, time } = {}) {
    this.key = key;
    this.list.mark(key);
    const trip = this.#trip(0);
    const fixes = trip && this.#result(0).fixes.get(trip.id);
    const truth = trip && this.#result(0).truth.get(trip.id);
    for (const [i, map] of this.maps.entries()) map.setTrip(this.#trip(i), fixes, truth);
    this.timeline.setTrip(trip, time);
    if (!trip) return;
    const shown = this.views.shown.map((_, i) => this.#trip(i)).filter(Boolean);
    showLegend({
      known: shown.some((one) => one.rated),
      unknown: shown.some((one) => one.rated < one.length),
      truth: Boolean(truth),
      breaks: shown.some(({ breaks }) => breaks),
    });
    if (refit) this.maps[0].fit(bounds([...trip.points, ...(truth?.points ?? [])]));
    byId("trip-name").textContent = tripName(trip);
    byId("trip-facts").replaceChildren(...tripFacts(trip, truth, shown[1], this.views.shown[1]));
    byId("trip-notes").textContent = tripLine(trip);
    document.title = `${tripName(trip)} · tedtrajrec`;
  }

  #trip(i) {
    return this.#result(i)?.trips.get(this.key);
  }

  #result(i) {
    return this.results.get(this.views.shown[i]);
  }

  async #recover(input, method) {
    this.#say(input.file ? `Recovering ${input.file.name} with ${method}…` : "Recovering…");
    const answer = await this.source.recover(input, method, this.input.chosen);
    const points = answer.trips.flatMap(({ lon, lat }) => lon.map((x, i) => [x, lat[i]]));
    if (points.length) await this.#loadNetwork(bounds(points));
    const trips = answer.trips.filter(({ lon }) => lon.length).map((raw) => new Trip(raw, this.network));
    if (!trips.length) throw new Problem("None of the trips could be recovered.", why(answer));
    const given = input.example ? asColumns(input.example) : (answer.fixes ?? []);
    const truth = input.example?.truth ? [{ ...input.example.truth, traj_id: input.example.traj_id }] : (answer.truth ?? []);
    this.#say(`${count(tripsOf(trips).length, "trip")}${answer.rejects.length ? `, ${count(answer.rejects.length, "reject")}` : ""}`);
    return {
      trips: new Map(trips.map((trip) => [trip.key, trip])),
      fixes: new Map(given.map((fixes) => [fixes.traj_id, fixes])),
      truth: new Map(truth.map((raw) => [raw.traj_id, new Trip(raw, this.network, true)])),
      rejects: answer.rejects,
      notes: answer.notes,
      attribution: answer.attribution,
    };
  }

  async #loadNetwork(box) {
    if (this.source.whole && this.network) return;
    const geojson = await this.source.network(box);
    if (!geojson) return;
    this.network = new Network(geojson);
    for (const map of this.maps) map.setNetwork(this.network, this.about.attribution);
  }

  #addMap(pane) {
    const i = this.maps.length;
    const map = new TripMap(pane.querySelector(".map"), {
      describe: (step) => stepCard(this.#trip(i), step),
      onPick: (step) => {
        this.timeline.pause();
        this.timeline.setTime(this.#trip(i).time[step]);
      },
    });
    if (this.network) map.setNetwork(this.network, this.about.attribution);
    this.maps.push(map);
    return map;
  }

  /** Show one map or two; returns whether that changed. */
  #arrangeMaps() {
    const [first, second] = this.views.shown;
    const changed = byId("map-b").hidden !== !second;
    for (const [pane, name] of [[byId("map-a"), first], [byId("map-b"), second]]) {
      const label = pane.querySelector(".pane-name");
      label.textContent = name ?? "";
      label.hidden = !second;
    }
    byId("map-b").hidden = !second;
    if (second && this.maps.length < 2) {
      const [a, b] = [this.maps[0], this.#addMap(byId("map-b"))];
      b.view.jumpTo({ center: a.view.getCenter(), zoom: a.view.getZoom() });
      keepTogether(a, b);
    }
    if (changed) for (const map of this.maps) map.view.resize();
    return changed;
  }

  #moved(time, playing) {
    for (const [i, map] of this.maps.entries()) if (i < this.views.shown.length) map.setTime(time);
    if (playing) this.maps[0].follow();
    const trip = this.#trip(0);
    const step = trip.stepAt(time);
    if (this.here?.trip === trip && this.here.step === step) return;
    this.here = { trip, step };
    byId("here-facts").replaceChildren(...stepFacts(trip, step));
  }

  #showRemarks({ rejects, notes }) {
    const box = byId("rejects");
    box.hidden = !rejects.length;
    box.firstElementChild.textContent = `${count(rejects.length, "reject")}: fixes or trips that could not be used`;
    const lines = rejects.slice(0, 200).map(({ traj_id, reason, row }) =>
      element("li", [traj_id, row && `row ${row}`, reason].filter(Boolean).join(": ")),
    );
    box.lastElementChild.replaceChildren(...lines);
    byId("notes").hidden = !notes.length;
    byId("notes").replaceChildren(...notes.map((note) => element("li", note)));
  }

  #download(kind) {
    const { trips, attribution } = this.#result(0);
    const name = `recovered-${this.views.shown[0].replace(/[^\w.-]+/g, "_")}`;
    const all = [...trips.values()];
    if (kind === "csv") save(toCsv(all), `${name}.csv`, "text/csv");
    else save(toGeoJson(all, attribution), `${name}.geojson`, "application/geo+json");
  }

  #say(text) {
    byId("status").textContent = text;
  }

  // Errors are shown in words; what was on the page before stays.
  async #guard(work) {
    const error = byId("error");
    error.hidden = true;
    byId("token-form").hidden = true;
    try {
      await work();
    } catch (fault) {
      this.#say("");
      byId("token-form").hidden = fault.status !== 401;
      if (fault.status === 401 && !this.source.token) return;
      error.textContent = inWords(fault);
      error.hidden = false;
      error.scrollIntoView({ block: "nearest" });
    }
  }
}

/** The reasons of rejects, each once, and what the service notes of the input. */
function why({ rejects, notes }) {
  const reasons = [...new Set(rejects.map(({ reason }) => reason))];
  return [reasons.length && `Why: ${reasons.slice(0, 3).join("; ")}.`, ...notes].filter(Boolean).join(" ");
}

function asColumns({ traj_id, points }) {
  return [{ traj_id, lon: points.map(({ lon }) => lon), lat: points.map(({ lat }) => lat) }];
}
