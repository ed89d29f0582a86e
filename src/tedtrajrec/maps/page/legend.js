// What the colours and signs on the map mean.

import { LEVELS } from "./levels.js";
import { element } from "./describe.js";

/** @param {{known: boolean, unknown: boolean, truth: boolean, breaks: boolean}} parts What there is to explain. */
export function showLegend({ known, unknown, truth, breaks }) {
  const levels = LEVELS.filter(({ level }) => (level > 0 ? known : unknown));
  const entries = [
    ["fix", "fix, as given"],
    ...levels.map(({ level, name }) => [`level-${level}`, known ? name : "recovered trip"]),
  ];
  if (breaks) entries.push(["break", "break: no drivable way"]);
  if (truth) entries.push(["truth", "truth"]);
  const items = entries.map(([sign, text]) => element("li", [element("i", "", `sign ${sign}`), text]));
  if (known) items.splice(1, 0, element("li", "Recovered, probability of a step", "head"));
  document.querySelector("#legend ul").replaceChildren(...items);
  document.getElementById("legend").hidden = false;
}
