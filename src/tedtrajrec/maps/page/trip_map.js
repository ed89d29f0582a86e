// One map: the network, one trip on it, and the vehicle.

import { AttributionControl, Map as MapView, Marker, NavigationControl, Popup, ScaleControl } from "./vendor/maplibre-gl/maplibre-gl.mjs";
import { bounds } from "./geo.js";
import { fixFeatures, nothing, stepFeatures, tripFeatures, truthFeatures } from "./features.js";
import { mapStyle } from "./map_style.js";

const CALM = matchMedia("(prefers-reduced-motion: reduce)");
const REACH = 8; // pixels around the pointer in which a step counts as pointed at

export class TripMap {
  /** @param {(step: number) => Node} describe What the popup says of a step.
   *  @param {(step: number) => void} onPick Called when a step is clicked. */
  constructor(container, { describe, onPick }) {
    this.data = { network: nothing(), truth: nothing(), trip: nothing(), steps: nothing(), fixes: nothing() };
    this.view = new MapView({
      container,
      style: mapStyle(),
      center: [0, 20],
      zoom: 1,
      maxZoom: 20,
      dragRotate: false,
      pitchWithRotate: false,
      touchPitch: false,
      attributionControl: false,
      fadeDuration: 0,
      locale: { "Map.Title": "Map of the trip; arrows move it, plus and minus zoom" },
    });
    this.view.touchZoomRotate.disableRotation();
    this.view.keyboard.disableRotation();
    this.view.addControl(new NavigationControl({ showCompass: false }), "top-right");
    this.popup = new Popup({ closeButton: false, closeOnClick: false, className: "step-popup", maxWidth: "260px", offset: 12 });
    this.vehicle = new Marker({ element: vehicleElement(), rotationAlignment: "map" });
    this.view.on("style.load", () => this.#show());
    this.view.on("mousemove", (event) => this.#point(event, describe));
    this.view.on("mouseout", () => this.popup.remove());
    this.view.on("click", (event) => {
      const step = this.#stepNear(event.point);
      if (step === null) return;
      onPick(step);
      this.#point(event, describe);
    });
  }

  setNetwork(network, attribution) {
    this.#set("network", network.roads);
    if (this.scale) return;
    if (attribution)
      this.view.addControl(new AttributionControl({ compact: false, customAttribution: credit(attribution) }));
    this.scale = new ScaleControl();
    this.view.addControl(this.scale, "bottom-right"); // what comes later stands above
  }

  /** Draw a trip with its fixes and its truth, where there are any. */
  setTrip(trip, fixes, truth) {
    this.trip = trip;
    this.popup.remove();
    this.#set("trip", trip ? tripFeatures(trip) : nothing());
    this.#set("steps", trip ? stepFeatures(trip) : nothing());
    this.#set("truth", truth ? truthFeatures(truth) : nothing());
    this.#set("fixes", trip ? fixFeatures(fixes, trip) : nothing());
    if (!trip) this.vehicle.remove();
  }

  /** Move the vehicle to where it is at a time. */
  setTime(time) {
    if (!this.trip) return;
    const { point, heading, broken } = this.trip.placeAt(time);
    this.vehicle.setLngLat(point).setRotation(heading).addTo(this.view);
    this.vehicle.getElement().classList.toggle("unsure", broken);
  }

  /** Bring a box (west, south, east, north) into view. */
  fit(box, { animate = true } = {}) {
    const { clientWidth, clientHeight } = this.view.getContainer();
    const around = Math.round(Math.min(clientWidth, clientHeight) * 0.1);
    const padding = { top: around, right: around, bottom: around, left: around };
    const legend = document.querySelector("#legend[open]");
    if (legend && clientWidth > 3 * legend.offsetWidth) padding.left += legend.offsetWidth;
    else if (legend && clientHeight > 2.5 * legend.offsetHeight) padding.bottom += legend.offsetHeight;
    this.view.fitBounds(box, { padding, maxZoom: 16.5, animate: animate && !CALM.matches, duration: 500 });
  }

  fitNetwork() {
    const box = bounds(this.data.network.features.flatMap(({ geometry }) => geometry.coordinates));
    if (box) this.fit(box, { animate: false });
  }

  /** Keep a moving vehicle in view. */
  follow() {
    const at = this.view.project(this.vehicle.getLngLat());
    const { clientWidth, clientHeight } = this.view.getContainer();
    const inside = at.x > 40 && at.y > 40 && at.x < clientWidth - 40 && at.y < clientHeight - 40;
    if (!inside && !this.view.isMoving()) this.view.easeTo({ center: this.vehicle.getLngLat(), duration: CALM.matches ? 0 : 400 });
  }

  /** Take the colours of the moment. */
  restyle() {
    this.view.setStyle(mapStyle(), { diff: false });
  }

  #set(name, geojson) {
    this.data[name] = geojson;
    this.view.getSource(name)?.setData(geojson);
  }

  #show() {
    for (const [name, geojson] of Object.entries(this.data)) this.view.getSource(name).setData(geojson);
  }

  #stepNear({ x, y }) {
    const box = [[x - REACH, y - REACH], [x + REACH, y + REACH]];
    const layers = ["steps", "trip", "break"].filter((layer) => this.view.getLayer(layer));
    const found = this.view.queryRenderedFeatures(box, { layers });
    return found.length ? found[0].properties.step : null;
  }

  #point(event, describe) {
    const step = this.#stepNear(event.point);
    this.view.getCanvas().style.cursor = step === null ? "" : "pointer";
    if (step === null) this.popup.remove();
    else this.popup.setLngLat(event.lngLat).setDOMContent(describe(step)).addTo(this.view);
  }
}

/** Who made the map, as OpenStreetMap asks to be named, or in the words of the network. */
function credit(attribution) {
  if (attribution.includes("OpenStreetMap"))
    return '<a href="https://www.openstreetmap.org/copyright" target="_blank" rel="noopener">© OpenStreetMap contributors</a>';
  const plain = document.createElement("span");
  plain.textContent = attribution;
  return plain.innerHTML;
}

function vehicleElement() {
  const element = document.createElement("div");
  element.className = "vehicle";
  element.innerHTML = '<svg viewBox="0 0 28 28" aria-hidden="true"><circle cx="14" cy="14" r="12"/><path d="M14 5.5l6 15-6-3.6-6 3.6z"/></svg>';
  return element;
}

/** Let two maps show the same place at all times. */
export function keepTogether(a, b) {
  let moving = false;
  const follow = (from, to) => () => {
    if (moving) return;
    moving = true;
    to.jumpTo({ center: from.getCenter(), zoom: from.getZoom() });
    moving = false;
  };
  a.view.on("move", follow(a.view, b.view));
  b.view.on("move", follow(b.view, a.view));
}
