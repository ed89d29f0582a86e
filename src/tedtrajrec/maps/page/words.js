// Numbers and times as people read them.

let zone = "UTC";

/** Times are shown in this IANA zone from now on. */
export function setTimeZone(name) {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    zone = name;
  } catch {
    zone = "UTC";
  }
}

const parts = (time, options) =>
  new Intl.DateTimeFormat("en-GB", { timeZone: zone, ...options }).format(new Date(time * 1000));

/** 08:31:15 */
export const clock = (time) => parts(time, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

/** 1 Jul 2013 */
export const day = (time) => parts(time, { day: "numeric", month: "short", year: "numeric" });

/** UTC, CET, GMT+8: what clocks show at that time. */
export function zoneName(time) {
  const format = new Intl.DateTimeFormat("en-GB", { timeZone: zone, timeZoneName: "short" });
  return format.formatToParts(new Date(time * 1000)).find(({ type }) => type === "timeZoneName").value;
}

export const kilometres = (metres) => `${(metres / 1000).toFixed(metres < 9_950 ? 1 : 0)} km`;

export const percent = (share, digits = 0) => `${(share * 100).toFixed(digits)} %`;

export const speed = (kmh) => `${Math.round(kmh)} km/h`;

/** 12 min, 1 h 5 min, 40 s */
export function duration(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** 1 trip, 3 trips, 2 fixes */
export const count = (n, noun, plural = "s") => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : plural}`;
