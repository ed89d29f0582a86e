// The list of trips: one of them is shown. Arrow keys go through it, a search narrows it.

import { element, tripName } from "./describe.js";
import { clock, count, day, duration, percent } from "./words.js";
import { CONFIDENT } from "./levels.js";

const SEARCH_FROM = 9; // trips; fewer are seen at a glance

/** Trips without their alternatives. */
export function tripsOf(trips) {
  return trips.filter(({ rank }) => !rank);
}

export class TripList {
  /** @param {(key: string) => void} onSelect */
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.list = document.getElementById("trips");
    this.search = document.getElementById("search");
    this.heading = document.getElementById("list-name");
    this.search.addEventListener("input", () => this.#narrow());
    this.list.addEventListener("click", (event) => this.#pick(event.target.closest("[role=option]")));
    this.list.addEventListener("keydown", (event) => this.#key(event));
  }

  show(trips, selected) {
    this.heading.textContent = `Trips (${tripsOf(trips).length.toLocaleString("en")})`;
    this.search.hidden = trips.length < SEARCH_FROM;
    this.list.replaceChildren(...trips.map((trip) => entry(trip)));
    this.mark(selected);
    this.#narrow();
  }

  mark(key) {
    for (const item of this.list.children) {
      const chosen = item.dataset.key === key;
      item.setAttribute("aria-selected", chosen);
      item.tabIndex = chosen ? 0 : -1;
    }
  }

  #pick(item) {
    if (item) this.onSelect(item.dataset.key);
  }

  #key(event) {
    const items = [...this.list.children].filter((item) => !item.hidden);
    const here = items.indexOf(document.activeElement);
    const next = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: items.length - 1 }[event.key];
    if (next === undefined || !items[next]) return;
    event.preventDefault();
    items[next].focus();
    this.#pick(items[next]);
  }

  #narrow() {
    const wanted = this.search.value.trim().toLowerCase();
    for (const item of this.list.children) item.hidden = !item.dataset.key.toLowerCase().includes(wanted);
  }
}

function entry(trip) {
  const item = element("li", [
    element("strong", tripName(trip)),
    element("span", `${day(trip.start)}, ${clock(trip.start).slice(0, 5)} · ${duration(trip.seconds)} · ${count(trip.length, "step")}`),
  ]);
  const sure = trip.confident(CONFIDENT);
  if (sure !== null) {
    const bar = element("span", "", "bar");
    bar.title = `${percent(sure)} of steps with a probability of at least ${percent(CONFIDENT)}`;
    bar.append(element("span"));
    bar.firstChild.style.width = percent(sure).replace(" ", "");
    item.append(bar);
  }
  item.setAttribute("role", "option");
  item.dataset.key = trip.key;
  return item;
}
