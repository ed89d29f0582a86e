// What went wrong, in words.

const BY_STATUS = {
  401: "The service wants a token, which this page has not got.",
  413: "The file is larger than this service takes.",
  429: "The service is busy. Try again in a moment.",
  503: "The service is busy. Try again in a moment.",
  504: "The service took too long over it. Try a smaller file.",
};

export class Problem extends Error {
  constructor(what, remedy = "") {
    super(remedy ? `${what} ${remedy}` : what);
  }

  /** From an answer of the service (application/problem+json). */
  static async from(answer) {
    let said = {};
    try {
      said = await answer.json();
    } catch {
      // not JSON: the status alone speaks
    }
    const detail = typeof said.detail === "string" ? said.detail : "";
    return new Problem(detail || said.title || BY_STATUS[answer.status] || `The service answered with status ${answer.status}.`);
  }
}

/** Any error as a sentence for people. */
export function inWords(error) {
  if (error instanceof Problem) return error.message;
  console.error(error);
  return `Something went wrong on this page (${error.message}). Reload it and try again.`;
}
