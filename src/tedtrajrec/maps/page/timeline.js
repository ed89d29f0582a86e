// The time slider: drives the vehicle along, by hand, by keys or by itself.

import { colour, levelOf } from "./levels.js";
import { clock, zoneName } from "./words.js";

const KEYS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };

export class Timeline {
  /** @param {(time: number, playing: boolean) => void} onTime */
  constructor(onTime) {
    this.onTime = onTime;
    this.section = document.getElementById("time");
    this.slider = document.getElementById("slider");
    this.button = document.getElementById("play");
    this.clock = document.getElementById("clock");
    this.rate = document.getElementById("rate");
    this.strip = document.getElementById("strip");
    this.playing = false;
    this.slider.addEventListener("input", () => this.setTime(this.trip.start + Number(this.slider.value)));
    this.slider.addEventListener("keydown", (event) => this.#key(event));
    this.button.addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    new ResizeObserver(() => this.draw()).observe(this.strip);
  }

  setTrip(trip, time = trip?.start) {
    this.pause();
    this.trip = trip;
    this.section.inert = !trip;
    if (!trip) return;
    this.slider.max = trip.seconds;
    this.draw();
    this.setTime(Math.min(Math.max(time, trip.start), trip.end));
  }

  setTime(time) {
    this.time = time;
    this.slider.value = Math.round(time - this.trip.start);
    const step = this.trip.stepAt(time);
    this.clock.textContent = `${clock(time)} ${zoneName(time)}`;
    this.slider.setAttribute("aria-valuetext", `${clock(time)}, step ${step + 1} of ${this.trip.length}`);
    this.onTime(time, this.playing);
  }

  play() {
    if (this.time >= this.trip.end) this.setTime(this.trip.start);
    this.#setPlaying(true);
    let before = performance.now();
    const frame = (now) => {
      if (!this.playing) return;
      const time = Math.min(this.time + ((now - before) / 1000) * Number(this.rate.value), this.trip.end);
      before = now;
      this.setTime(time);
      if (time >= this.trip.end) this.pause();
      else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  pause() {
    this.#setPlaying(false);
  }

  #setPlaying(playing) {
    this.playing = playing;
    this.button.setAttribute("aria-pressed", playing);
    this.button.lastElementChild.textContent = playing ? "Pause" : "Play";
  }

  // Keys go from step to step, which is what one looks at; the pointer goes by the second.
  #key(event) {
    const steps = KEYS[event.key];
    if (!steps || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const here = this.trip.stepAt(this.time);
    const back = steps < 0 && this.time > this.trip.time[here] ? 1 : 0;
    const step = Math.min(Math.max(here + steps + back, 0), this.trip.length - 1);
    this.setTime(this.trip.time[step]);
  }

  /** Paint how sure each step is along the slider, and a tick at each fix. */
  draw() {
    const { clientWidth: width, clientHeight: height } = this.strip;
    if (!this.trip || !width) return;
    const scale = devicePixelRatio || 1;
    this.strip.width = width * scale;
    this.strip.height = height * scale;
    const pen = this.strip.getContext("2d");
    pen.scale(scale, scale);
    const x = (time) => ((time - this.trip.start) / Math.max(this.trip.seconds, 1)) * width;
    for (let i = 1; i < this.trip.length; i++) {
      const [left, right] = [x(this.trip.time[i - 1]), x(this.trip.time[i])];
      const broken = this.trip.broken(i);
      pen.fillStyle = broken ? colour("break") : colour(levelOf(this.trip.probability(i)));
      if (broken) for (let at = left; at < right; at += 6) pen.fillRect(at, height / 2 - 1, Math.min(3, right - at), 2);
      else pen.fillRect(left, height / 2 - 3, right - left + 0.5, 6);
    }
    for (let i = 0; i < this.trip.length; i++) {
      if (!this.trip.observed(i)) continue;
      const at = Math.min(Math.max(x(this.trip.time[i]), 3), width - 3);
      pen.beginPath();
      pen.arc(at, height / 2, 3, 0, 2 * Math.PI);
      pen.fillStyle = colour("fix");
      pen.fill();
      pen.lineWidth = 1.5;
      pen.strokeStyle = colour("fix-edge");
      pen.stroke();
    }
  }
}
