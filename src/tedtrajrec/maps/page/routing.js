// The way that was driven between two steps: the shortest one. Steps are seconds apart, so searches stay small.

import { distance } from "./geo.js";

const MOST_METRES = 6_000;
const TURNING_ROUND = 200; // metres that turning round in the street counts, so that it is the last resort

/** The line from position a to position b ({segment, ratio}), or null where the network shows none. */
export function way(network, a, b) {
  if (!network.has(a.segment) || !network.has(b.segment)) return null;
  if (a.segment === b.segment && b.ratio >= a.ratio - 0.05) return network.slice(a.segment, a.ratio, b.ratio);
  const chain = search(network, a, b);
  if (!chain) return null;
  const lines = [network.slice(a.segment, a.ratio, 1)];
  for (const segment of chain.slice(1, -1)) lines.push(network.get(segment).line);
  lines.push(network.slice(b.segment, 0, b.ratio));
  return lines.flat().filter((point, i, all) => i === 0 || String(point) !== String(all[i - 1]));
}

/** A* over segments: the chain from a's to b's segment. */
function search(network, a, b) {
  const goal = network.get(b.segment).line[0];
  const toGoal = (segment) => distance(network.get(segment).line.at(-1), goal);
  // What has been reached: the metres driven up to the end of the segment, and the entry it was reached from.
  const open = [{ segment: a.segment, metres: (1 - a.ratio) * network.get(a.segment).metres, from: null }];
  open[0].least = open[0].metres + toGoal(a.segment);
  const best = new Map();
  while (open.length) {
    let first = 0;
    for (let i = 1; i < open.length; i++) if (open[i].least < open[first].least) first = i;
    const here = open[first];
    open[first] = open.at(-1);
    open.pop();
    if (here.arrived) return chainOf(here);
    for (const segment of network.followers(here.segment)) {
      let metres = here.metres + (network.isBack(here.segment, segment) ? TURNING_ROUND : 0);
      if (segment === b.segment) {
        open.push({ segment, from: here, arrived: true, least: metres });
        continue;
      }
      metres += network.get(segment).metres;
      if (metres > MOST_METRES || metres >= (best.get(segment) ?? Infinity)) continue;
      best.set(segment, metres);
      open.push({ segment, metres, from: here, least: metres + toGoal(segment) });
    }
  }
  return null;
}

function chainOf(entry) {
  const chain = [];
  for (let at = entry; at; at = at.from) chain.push(at.segment);
  return chain.reverse();
}
