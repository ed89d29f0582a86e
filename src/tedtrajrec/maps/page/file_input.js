// Files and examples, dropped or chosen.

import { count } from "./words.js";

export class FileInput {
  /** @param {(input: {file: File} | {example: object}) => void} onInput
   *  @param {() => void} onOptions Called when other options were chosen. */
  constructor(onInput, onOptions) {
    this.form = document.getElementById("input");
    this.file = document.getElementById("file");
    this.example = document.getElementById("example");
    this.file.addEventListener("change", () => {
      const [file] = this.file.files;
      this.file.value = ""; // so that the same file can be chosen again
      if (file) onInput({ file });
    });
    this.example.addEventListener("change", () => {
      if (this.example.value !== "") onInput({ example: this.examples[Number(this.example.value)] });
    });
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.options = document.getElementById("options");
    this.options.addEventListener("change", () => this.options.querySelector(":invalid") ?? onOptions());
    this.#takeDrops(onInput);
  }

  /** What the service should know beside the fixes; only what was said. */
  get chosen() {
    const value = (id) => document.getElementById(id).value.trim();
    return {
      ...(value("step") && { step_s: Number(value("step")) }),
      ...(Number(value("alternatives")) && { alternatives: Number(value("alternatives")) }),
      ...(value("zone") && { timezone: value("zone") }),
    };
  }

  show({ examples, timeZone, step }) {
    this.form.hidden = false;
    document.getElementById("zone").placeholder = timeZone ? `none, such as ${timeZone}` : "none";
    document.getElementById("step").placeholder = step ?? "";
    this.examples = examples;
    document.getElementById("example-row").hidden = !examples.length;
    for (const [i, { traj_id, points, truth }] of examples.entries()) {
      const text = `${traj_id}: ${count(points.length, "fix", "es")}${truth ? ", truth known" : ""}`;
      this.example.append(new Option(text, i));
    }
  }

  // The whole window takes files: what is dropped beside the box would otherwise replace the page.
  #takeDrops(onInput) {
    const root = document.documentElement;
    addEventListener("dragover", (event) => {
      event.preventDefault();
      root.classList.toggle("dropping", !this.form.hidden);
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) root.classList.remove("dropping");
    });
    addEventListener("drop", (event) => {
      event.preventDefault();
      root.classList.remove("dropping");
      const [file] = event.dataTransfer.files;
      if (file && !this.form.hidden) {
        this.example.value = "";
        onInput({ file });
      }
    });
  }
}
