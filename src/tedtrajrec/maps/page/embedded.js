// What the page needs, from the data inside a self-contained file.

export class Embedded {
  constructor(data) {
    this.data = data;
  }

  /** The data of this document, if it carries any. */
  static find() {
    const holder = document.getElementById("data");
    return holder ? new Embedded(JSON.parse(holder.textContent)) : null;
  }

  async start() {
    const { title, methods, time_zone: timeZone, attribution } = this.data;
    return { title, methods, timeZone, attribution, takesFiles: false, examples: [] };
  }

  async network() {
    return this.data.network;
  }

  async recover(_input, method) {
    const { methods, fixes, truth, attribution } = this.data;
    const { trips, notes } = methods.find(({ name }) => name === method);
    return { trips, notes, fixes, truth, attribution, rejects: [] };
  }
}
