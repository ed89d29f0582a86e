// Opens the page over the data in this document, or else over the service it came from.

import { Embedded } from "./embedded.js";
import { Page } from "./page.js";
import { Server } from "./server.js";

const page = new Page(Embedded.find() ?? new Server());
globalThis.tedtrajrec = page; // for the console
await page.start();
