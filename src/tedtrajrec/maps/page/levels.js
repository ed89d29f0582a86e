// How sure a step is, in four levels and "not known". Colours are in map.css, so that light and dark are in one place.

export const LEVELS = [
  { level: 4, least: 0.95, name: "95 % or more" },
  { level: 3, least: 0.8, name: "80 to 95 %" },
  { level: 2, least: 0.5, name: "50 to 80 %" },
  { level: 1, least: 0, name: "less than 50 %" },
  { level: 0, least: null, name: "not known" },
];

export const CONFIDENT = 0.8;

export function levelOf(probability) {
  if (probability === null || Number.isNaN(probability)) return 0;
  return LEVELS.find(({ least }) => probability >= least)?.level ?? 1;
}

/** The colour of a level, or any other colour by its name in the style sheet. */
export function colour(name) {
  const variable = typeof name === "number" ? `--level-${name}` : `--${name}`;
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}
