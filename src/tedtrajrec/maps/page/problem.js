// What went wrong, in words.

const BY_STATUS = {
  413: "The file is larger than this service takes.",
  429: "The service is busy. Try again in a moment.",
  503: "The service is busy. Try again in a moment.",
  504: "The service took too long over it. Try a smaller file.",
};

// Where a client of the service would change the address, as one does it here.
const IN_ADDRESS = "?timezone=";
const HERE = "Name the zone of such times under Options.";

export class Problem extends Error {
  constructor(what, remedy = "", status = 0) {
    super(remedy ? `${what} ${remedy}` : what);
    this.status = status;
  }

  /** From an answer of the service (application/problem+json). */
  static async from(answer) {
    let said = {};
    try {
      said = await answer.json();
    } catch {
      // not JSON: the status alone speaks
    }
    const detail = typeof said.detail === "string" ? forThisPage(said.detail) : "";
    const place = [said.row && `row ${said.row}`, said.field && `column ${said.field}`].filter(Boolean).join(", ");
    const other = BY_STATUS[answer.status] ?? said.title ?? `The service answered with status ${answer.status}.`;
    return new Problem(detail ? (place ? `${place}: ${detail}` : detail) : other, "", answer.status);
  }
}

function forThisPage(detail) {
  const sentences = detail.split(/(?<=\.)\s+/);
  return sentences.map((sentence) => (sentence.includes(IN_ADDRESS) ? HERE : sentence)).join(" ");
}

/** Any error as a sentence for people. */
export function inWords(error) {
  if (error instanceof Problem) return error.message;
  console.error(error);
  return `Something went wrong on this page (${error.message}). Reload it and try again.`;
}
