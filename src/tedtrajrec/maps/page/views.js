// Which method is on the map: one of them, or two side by side.

import { element } from "./describe.js";

export class Views {
  /** @param {(shown: string[]) => void} onChange Names of the one or two methods to show. */
  constructor(onChange) {
    this.onChange = onChange;
    this.fieldset = document.getElementById("views");
    this.choices = document.getElementById("view-choices");
    this.other = document.getElementById("other");
    this.otherRow = document.getElementById("other-row");
    this.fieldset.addEventListener("change", (event) => this.#changed(event.target));
  }

  offer(methods) {
    this.names = methods.map(({ name }) => name);
    [this.first, this.second] = this.names;
    this.fieldset.hidden = this.names.length < 2;
    const choice = (value, text) => {
      const input = element("input");
      Object.assign(input, { type: "radio", name: "view", value, checked: value === this.first });
      return element("label", [input, element("span", text)]);
    };
    this.choices.replaceChildren(...this.names.map((name) => choice(name, name)), choice("", "Side by side"));
    this.other.replaceChildren(...this.names.map((name) => new Option(name, name)));
  }

  get shown() {
    return this.both ? [this.first, this.second] : [this.first];
  }

  #changed(changed) {
    if (changed === this.other) this.second = this.other.value;
    else if (changed.value) {
      this.both = false;
      this.first = changed.value;
      if (this.second === this.first) this.second = this.names.find((name) => name !== this.first);
    } else this.both = true;
    this.other.value = this.second;
    this.otherRow.hidden = !this.both || this.names.length < 3;
    this.onChange(this.shown);
  }
}
